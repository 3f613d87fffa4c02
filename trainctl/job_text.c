/* SPDX-License-Identifier: Apache-2.0 */
/* job_text: the live line is built from parts in the order of their use; the summary says where
 * numbers come from. */
#include "trainctl/job_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "trainctl/text_table.h"

#define BAR_WIDTH 24

struct line {
    char *buf;
    size_t size;
    size_t width; /* columns left */
    size_t used;
    bool is_full; /* a part had no room: nothing follows it */
};

static void add_part(struct line *line, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void add_part(struct line *line, const char *fmt, ...)
{
    char part[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(part, sizeof(part), fmt, ap);
    va_end(ap);
    const char *gap = line->used > 0 ? "  " : "";
    size_t length = strlen(gap) + strlen(part);
    if (line->is_full || length > line->width || line->used + length >= line->size) {
        line->is_full = true;
        return;
    }
    snprintf(line->buf + line->used, line->size - line->used, "%s%s", gap, part);
    line->used += length;
    line->width -= length;
}

static double fraction_done(const struct steadfast_job *job)
{
    if (job->steps_total == 0)
        return job->state == STEADFAST_JOB_SUCCEEDED ? 1 : 0;
    return fmin(1, (double)(job->acknowledged + job->abandoned) / (double)job->steps_total);
}

static void draw_bar(double done, char ret_bar[BAR_WIDTH + 3])
{
    int filled = (int)(done * BAR_WIDTH);
    memset(ret_bar, ' ', BAR_WIDTH + 2);
    memset(ret_bar + 1, '=', (size_t)filled);
    if (filled < BAR_WIDTH)
        ret_bar[filled + 1] = '>';
    ret_bar[0] = '[';
    ret_bar[BAR_WIDTH + 1] = ']';
    ret_bar[BAR_WIDTH + 2] = '\0';
}

void job_text_progress(const struct steadfast_job *job, bool has_bar, size_t width, char *buf,
                       size_t size)
{
    struct line line = {.buf = buf, .size = size, .width = width};
    buf[0] = '\0';
    double done = fraction_done(job);
    add_part(&line, "%s", job->name);
    if (has_bar) {
        char bar[BAR_WIDTH + 3];
        draw_bar(done, bar);
        add_part(&line, "%s %3d%%", bar, (int)(done * 100));
    } else {
        add_part(&line, "%d%%", (int)(done * 100));
    }
    bool is_training = job->state == STEADFAST_JOB_RUNNING && strcmp(job->phase, "training") == 0;
    if (!is_training) {
        const char *doing = job->state == STEADFAST_JOB_RUNNING && job->phase[0]
                                ? job->phase
                                : steadfast_job_state_name(job->state);
        add_part(&line, "%s%s%s", doing, job->reason[0] ? ": " : "", job->reason);
    }
    add_part(&line, "epoch %u/%u", MIN(job->epoch + 1, MAX(job->epochs, 1u)), job->epochs);
    add_part(&line, "step %" PRIu64 "/%" PRIu64, job->acknowledged, job->steps_total);
    add_part(&line, "%.1f steps/s", job->steps_per_second);
    add_part(&line, "%.0f images/s", job->images_per_second);
    if (isfinite(job->loss) && job->loss != 0)
        add_part(&line, "loss %.4f", job->loss);
    if (!steadfast_job_has_ended(job->state)) {
        char eta[32];
        add_part(&line, "eta %s", text_duration(job->eta_seconds, eta, sizeof(eta)));
        add_part(&line, "%u worker%s", job->workers, job->workers == 1 ? "" : "s");
    }
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
    fprintf(out, "  accounting  %s\n",
            job->is_accounting_final ? "final: the ledger against every shard's own marks"
                                     : "so far: the marks of all shards are compared at the end");
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
    if (!steadfast_job_has_ended(job->state))
        fprintf(out, ", %s left", text_duration(job->eta_seconds, duration, sizeof(duration)));
    fprintf(out, ", epoch %u of %u, generation %" PRIu64 "\n",
            MIN(job->epoch + 1, MAX(job->epochs, 1u)), job->epochs, job->generation);
    fprintf(out, "  rates       %.1f steps/s, %.0f images/s, staleness %.2f\n",
            job->steps_per_second, job->images_per_second, job->staleness);
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
