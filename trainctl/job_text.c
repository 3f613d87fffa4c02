/* SPDX-License-Identifier: Apache-2.0 */
/* job_text: the live line is built from parts in the order of their use; the summary says where
 * numbers come from. */
#include "trainctl/job_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "trainctl/text_table.h"

#define BAR_CELLS        24
#define BAR_CELLS_NARROW 10
#define BAR_COLUMNS      99 /* a terminal of 100, whose last column stays free: room for a short bar */
#define WIDE_COLUMNS     129 /* and for a long one */
#define STATE_COLUMNS    24  /* "paused: " and enough of the reason to know it by */

struct line {
    char *buf;
    size_t width; /* columns left */
    size_t used;
};

static const char *gap_of(const struct line *line)
{
    return line->used > 0 ? "  " : "";
}

/* A part that has no room is left out; shorter ones after it may still have some. */
static void add_part(struct line *line, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void add_part(struct line *line, const char *fmt, ...)
{
    char part[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(part, sizeof(part), fmt, ap);
    va_end(ap);
    const char *gap = gap_of(line);
    size_t length = strlen(gap) + strlen(part);
    if (length > line->width)
        return;
    snprintf(line->buf + line->used, length + 1, "%s%s", gap, part);
    line->used += length;
    line->width -= length;
}

/* A part that is never left out while there is a column: it is cut, between two characters. */
static void add_part_cut(struct line *line, size_t columns, const char *text)
{
    static const char dots[] = "...";
    size_t room = MIN(line->width, columns + strlen(gap_of(line)));
    if (room <= strlen(gap_of(line)) + strlen(dots))
        return;
    room -= strlen(gap_of(line));
    if (strlen(text) <= room) {
        add_part(line, "%s", text);
        return;
    }
    size_t kept = room - strlen(dots);
    while (kept > 0 && ((unsigned char)text[kept] & 0xc0) == 0x80) /* inside a UTF-8 sequence */
        kept--;
    add_part(line, "%.*s%s", (int)kept, text, dots);
}

static double fraction_done(const struct steadfast_job *job)
{
    if (job->steps_total == 0)
        return job->state == STEADFAST_JOB_SUCCEEDED ? 1 : 0;
    return fmin(1, (double)(job->acknowledged + job->abandoned) / (double)job->steps_total);
}

static void draw_bar(double done, size_t cells, char ret_bar[BAR_CELLS + 3])
{
    size_t filled = (size_t)(done * (double)cells);
    memset(ret_bar, ' ', cells + 2);
    memset(ret_bar + 1, '=', filled);
    if (filled < cells)
        ret_bar[filled + 1] = '>';
    ret_bar[0] = '[';
    ret_bar[cells + 1] = ']';
    ret_bar[cells + 2] = '\0';
}

/* What the job does instead of training: "evaluating", "paused: ps:1 lost"; "" when it trains. */
static void describe_state(const struct steadfast_job *job, char *buf, size_t size)
{
    bool is_running = job->state == STEADFAST_JOB_RUNNING;
    buf[0] = '\0';
    if (is_running && strcmp(job->phase, "training") == 0)
        return;
    snprintf(buf, size, "%s%s%s",
             is_running && job->phase[0] ? job->phase : steadfast_job_state_name(job->state),
             job->reason[0] ? ": " : "", job->reason);
}

void job_text_progress(const struct steadfast_job *job, bool has_bar, size_t width, char *buf,
                       size_t size)
{
    ASSERT(size > 0);
    char state[200];
    describe_state(job, state, sizeof(state));
    size_t state_columns = MIN(strlen(state), (size_t)STATE_COLUMNS);
    struct line line = {.buf = buf, .width = MIN(width, size - 1)};
    buf[0] = '\0';
    double done = fraction_done(job);
    add_part_cut(&line, state_columns ? line.width / 3 : line.width, job->name);
    size_t cells = width < WIDE_COLUMNS ? BAR_CELLS_NARROW : BAR_CELLS;
    size_t bar_columns = strlen("  [] 100%") + cells;
    if (has_bar && width >= BAR_COLUMNS &&
        line.width >= bar_columns + (state_columns ? state_columns + 2 : 0)) {
        char bar[BAR_CELLS + 3];
        draw_bar(done, cells, bar);
        add_part(&line, "%s %3d%%", bar, (int)(done * 100));
    } else if (!state_columns || line.width >= strlen("  100%  ") + state_columns) {
        add_part(&line, "%d%%", (int)(done * 100));
    }
    if (state_columns)
        add_part_cut(&line, line.width, state);
    add_part(&line, "step %" PRIu64 "/%" PRIu64, job->acknowledged, job->steps_total);
    if (isfinite(job->steps_per_second))
        add_part(&line, "%.1f steps/s", job->steps_per_second);
    if (isfinite(job->loss) && job->loss != 0)
        add_part(&line, "loss %.4f", job->loss);
    char eta[32];
    if (isfinite(job->eta_seconds))
        add_part(&line, "eta %s", text_duration(job->eta_seconds, eta, sizeof(eta)));
    if (isfinite(job->images_per_second))
        add_part(&line, "%.0f images/s", job->images_per_second);
    add_part(&line, "epoch %u/%u", MIN(job->epoch + 1, MAX(job->epochs, 1u)), job->epochs);
    if (!steadfast_job_has_ended(job->state))
        add_part(&line, "%u worker%s", job->workers, job->workers == 1 ? "" : "s");
}

void job_text_evaluation(const struct steadfast_evaluation *evaluation, char *buf, size_t size)
{
    snprintf(buf, size, "epoch %u: test accuracy %.4f, loss %.4f (%" PRIu64 " steps)",
             evaluation->epoch, evaluation->accuracy, evaluation->loss, evaluation->step);
}

static void print_accounting(const struct steadfast_job *job, FILE *out)
{
    fprintf(out,
            "  steps       issued %" PRIu64 ", acknowledged %" PRIu64 " of %" PRIu64
            ", re-issued %" PRIu64 ", abandoned %" PRIu64 "\n",
            job->issued, job->acknowledged, job->steps_total, job->reissued, job->abandoned);
    for (size_t i = 0; i < job->shard_count; i++) {
        const struct steadfast_shard *shard = &job->shards[i];
        char bytes[32];
        fprintf(out, "  %-11s %s shard %u: %" PRIu64 " steps, %s\n", i == 0 ? "applied" : "",
                shard->server, shard->shard, shard->applied,
                text_bytes(shard->bytes, bytes, sizeof(bytes)));
    }
    fprintf(out, "  duplicates  %" PRIu64 " refused\n", job->duplicates_refused);
    fprintf(out, "  lost        %" PRIu64 "\n  repeated    %" PRIu64 "\n", job->lost,
            job->repeated);
    const char *accounting = "so far: the marks of all shards are compared at the end";
    if (job->is_accounting_final)
        accounting = "final: the ledger against every shard's own marks";
    else if (steadfast_job_has_ended(job->state))
        accounting = "not final: the job ended before the shards' marks were compared";
    fprintf(out, "  accounting  %s\n", accounting);
}

/* The shares add up to the mean step, a little longer than by the clock where parts overlapped. */
static void print_phases(const struct steadfast_job *job, FILE *out)
{
    double all = job->compute_seconds + job->serialise_seconds + job->copy_seconds +
                 job->wait_seconds + job->apply_seconds;
    if (job->phase_steps == 0 || !isfinite(all) || all <= 0)
        return;
    fprintf(
        out,
        "  step time   %.2f ms: compute %.1f %%, serialise %.1f %%, copy %.1f %%, wait %.1f %%, "
        "apply %.1f %%\n",
        all * 1e3, 100 * job->compute_seconds / all, 100 * job->serialise_seconds / all,
        100 * job->copy_seconds / all, 100 * job->wait_seconds / all,
        100 * job->apply_seconds / all);
}

void job_text_summary(const struct steadfast_job *job, FILE *out)
{
    char text[200], duration[32];
    fprintf(out, "job %" PRIu64 " %s: %s", job->id, job->name,
            steadfast_job_state_name(job->state));
    if (job->state == STEADFAST_JOB_RUNNING && job->phase[0])
        fprintf(out, " (%s)", job->phase);
    if (job->reason[0])
        fprintf(out, ": %s", job->reason);
    fprintf(out, "\n  time        %s",
            text_duration(job->elapsed_seconds, duration, sizeof(duration)));
    if (isfinite(job->eta_seconds))
        fprintf(out, ", %s left", text_duration(job->eta_seconds, duration, sizeof(duration)));
    fprintf(out, ", epoch %u of %u, generation %" PRIu64 "\n",
            MIN(job->epoch + 1, MAX(job->epochs, 1u)), job->epochs, job->generation);
    if (isfinite(job->steps_per_second) && isfinite(job->images_per_second))
        fprintf(out, "  rates       %.1f steps/s, %.0f images/s, staleness %.2f\n",
                job->steps_per_second, job->images_per_second, job->staleness);
    else
        fprintf(out, "  rates       -\n");
    print_phases(job, out);
    print_accounting(job, out);
    for (size_t i = 0; i < job->evaluation_count; i++) {
        job_text_evaluation(&job->evaluations[i], text, sizeof(text));
        fprintf(out, "  %-11s %s\n", i == 0 ? "evaluation" : "", text);
    }
    for (size_t i = 0; i < job->checkpoint_count; i++)
        fprintf(out, "  %-11s %s (step %" PRIu64 ")\n", i == 0 ? "checkpoint" : "",
                job->checkpoints[i].path, job->checkpoints[i].step);
    for (size_t i = 0; i < job->abandoned_step_count; i++) {
        const struct steadfast_abandoned *step = &job->abandoned_steps[i];
        fprintf(out, "  %-11s step %" PRIu64 " after %u attempts: %s: %s\n",
                i == 0 ? "abandoned" : "", step->step, step->attempts, step->code, step->text);
    }
    for (size_t i = 0; i < job->notice_count; i++)
        fprintf(out, "  %-11s %s\n", i == 0 ? "notice" : "", job->notices[i]);
}
