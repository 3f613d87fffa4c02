/* SPDX-License-Identifier: Apache-2.0 */
/* watch: follows a job until it ends, over restarts of the coordinator.
 *
 *   first answer awaited --(--timeout)--> exit 3
 *        | status
 *        v
 *   watching --lost, said once--> trying again --(--reconnect)--> exit 3
 *        ^                             | status, said
 *        +-----------------------------+
 *        | the job has ended
 *        v
 *   summary, exit by state
 *
 * On a terminal one line is redrawn in place; elsewhere a line is printed when something changes,
 * or every ten seconds. Evaluations and notices are printed as they come, once, also over a
 * restart. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "trainctl/ctl.h"
#include "trainctl/job_json.h"
#include "trainctl/job_text.h"

#define TERMINAL_INTERVAL_MS 250
#define PLAIN_INTERVAL_MS    1000
#define PLAIN_LINE_NS        (10 * NS_PER_S)
#define RETRY_MS             200
#define PLAIN_WIDTH          200

struct watch {
    struct ctl *ctl;
    char job[32]; /* the number: a newer job of the same name must not take its place over a restart
                   */
    bool is_found;
    bool is_lost; /* said so, no status since */
    bool has_live_line;
    uint64_t heard_ns; /* last status, or the start */
    uint64_t line_ns;  /* last plain progress line; 0: none */
    size_t evaluations_said;
    char
        last_notice[256]; /* the newest one said; the coordinator keeps a bounded list that moves */
    char last_phase[64];
    enum steadfast_job_state last_state;
    int exit_code; /* of the ended job; -1: it has not ended */
};

static volatile sig_atomic_t was_interrupted;

static void on_interrupt(int signum)
{
    (void)signum;
    was_interrupted = 1;
}

static size_t terminal_width(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20)
        return size.ws_col - 1u; /* a full last column wraps on some terminals */
    return 79;
}

static void clear_live_line(struct watch *watch)
{
    if (watch->has_live_line)
        fputs("\r\033[K", stdout);
    watch->has_live_line = false;
}

/* ---- what is said ------------------------------------------------------------------------------
 */
static void say_evaluations(struct watch *watch, const struct steadfast_job *job)
{
    for (; watch->evaluations_said < job->evaluation_count; watch->evaluations_said++) {
        char text[200];
        job_text_evaluation(&job->evaluations[watch->evaluations_said], text, sizeof(text));
        clear_live_line(watch);
        printf("%s: %s\n", job->name, text);
    }
}

/* Notices after the last one said; all, when it has left the coordinator's list meanwhile. */
static void say_notices(struct watch *watch, const struct steadfast_job *job)
{
    size_t next = 0;
    for (size_t i = job->notice_count; i > 0 && watch->last_notice[0]; i--)
        if (strncmp(job->notices[i - 1], watch->last_notice, sizeof(watch->last_notice) - 1) == 0) {
            next = i;
            break;
        }
    for (size_t i = next; i < job->notice_count; i++) {
        clear_live_line(watch);
        printf("%s: %s\n", job->name, job->notices[i]);
        snprintf(watch->last_notice, sizeof(watch->last_notice), "%s", job->notices[i]);
    }
}

static void say_progress(struct watch *watch, const struct steadfast_job *job)
{
    char line[512];
    if (watch->ctl->is_terminal) {
        job_text_progress(job, true, terminal_width(), line, sizeof(line));
        printf("\r%s\033[K", line);
        watch->has_live_line = true;
        return;
    }
    bool has_changed =
        job->state != watch->last_state || strcmp(job->phase, watch->last_phase) != 0;
    if (watch->line_ns && !has_changed && watch->heard_ns - watch->line_ns < PLAIN_LINE_NS)
        return;
    job_text_progress(job, false, PLAIN_WIDTH, line, sizeof(line));
    puts(line);
    watch->line_ns = watch->heard_ns;
}

static bool on_status(const struct steadfast_job *job, void *arg)
{
    struct watch *watch = arg;
    watch->heard_ns = clock_now_ns();
    if (watch->is_lost)
        ctl_note(watch->ctl, "the coordinator is back", NULL);
    watch->is_lost = false;
    if (!watch->is_found)
        snprintf(watch->job, sizeof(watch->job), "%" PRIu64, job->id);
    watch->is_found = true;
    bool has_ended = steadfast_job_has_ended(job->state);
    if (watch->ctl->is_json) {
        job_json_print(job_json(job), true, stdout);
    } else {
        say_evaluations(watch, job);
        say_notices(watch, job);
        if (!has_ended)
            say_progress(watch, job);
    }
    snprintf(watch->last_phase, sizeof(watch->last_phase), "%s", job->phase);
    watch->last_state = job->state;
    if (has_ended) {
        watch->exit_code = ctl_exit_of_state(job->state);
        clear_live_line(watch);
        if (!watch->ctl->is_json)
            job_text_summary(job, stdout);
    }
    fflush(stdout);
    return !was_interrupted;
}

/* ---- the life of a watch -----------------------------------------------------------------------
 */
static bool may_come_back(enum steadfast_code code)
{
    return code == STEADFAST_UNAVAILABLE || code == STEADFAST_TIMEOUT;
}

static int follow(struct watch *watch, const char *job)
{
    struct ctl *ctl = watch->ctl;
    uint32_t interval_ms = ctl->interval_ms   ? ctl->interval_ms
                           : ctl->is_terminal ? TERMINAL_INTERVAL_MS
                                              : PLAIN_INTERVAL_MS;
    for (;;) {
        uint64_t patience_ms = watch->is_found ? ctl->reconnect_s * 1000ull : ctl_timeout_ms(ctl);
        uint64_t silent_ms = (clock_now_ns() - watch->heard_ns) / NS_PER_MS;
        uint64_t left_ms = silent_ms < patience_ms ? patience_ms - silent_ms : 1;
        uint64_t silence_ms = MIN(left_ms, (uint64_t)ctl_timeout_ms(ctl) + interval_ms);
        struct steadfast_error err;
        enum steadfast_code code =
            steadfast_watch(ctl->client, watch->is_found ? watch->job : job, interval_ms,
                            (uint32_t)silence_ms, on_status, watch, &err);
        if (watch->exit_code >= 0)
            return watch->exit_code;
        if (was_interrupted)
            return CTL_INTERRUPTED;
        ASSERT(code != STEADFAST_OK); /* an ended job has set the exit code */
        silent_ms = (clock_now_ns() - watch->heard_ns) / NS_PER_MS;
        if (!may_come_back(code) || silent_ms >= patience_ms) {
            clear_live_line(watch);
            return ctl_fail(ctl, &err);
        }
        if (watch->is_found && !watch->is_lost) {
            clear_live_line(watch);
            fflush(stdout);
            char text[LIMIT_ADDRESS_BYTES + 80];
            snprintf(text, sizeof(text), "coordinator %s went away; trying again for %u s",
                     ctl->coordinator, ctl->reconnect_s);
            ctl_note(ctl, text, err.text);
            watch->is_lost = true;
        }
        nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * (long)NS_PER_MS}, NULL);
    }
}

int watch_job(struct ctl *ctl, const char *job)
{
    struct watch watch = {.ctl = ctl, .heard_ns = clock_now_ns(), .exit_code = -1};
    struct sigaction act = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    struct sigaction old;
    sigaction(SIGINT, NULL, &old);
    if (old.sa_handler != SIG_IGN) /* a background job of a script does not hear the terminal's */
        sigaction(SIGINT, &act, NULL); /* the second one ends us as usual */
    int rc = follow(&watch, job);
    sigaction(SIGINT, &old, NULL);
    if (rc == CTL_INTERRUPTED) {
        clear_live_line(&watch);
        fflush(stdout);
        fprintf(stderr, "trainctl: the job goes on; end it with: trainctl cancel %s\n",
                watch.is_found ? watch.job : job);
    }
    return rc;
}

int cmd_watch(struct ctl *ctl)
{
    int rc = ctl_connect(ctl);
    return rc == CTL_OK ? watch_job(ctl, ctl->words[1]) : rc;
}
