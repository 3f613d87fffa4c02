/* SPDX-License-Identifier: Apache-2.0 */
/* step_run: tickets in, orders about them, and what moves waiting steps on. */
#include "workerd/step/step_run.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "workerd/step/step_int.h"

/* ---- moving on ---------------------------------------------------------------------------------
 */
static void advance_step(struct step *step)
{
    struct open_job *job = step->job;
    if (job->state == JOB_BROKEN) {
        step_end_finish(step, OUTCOME_FAILED, &job->err);
        return;
    }
    if (job->state == JOB_OPENING)
        return;
    if (!step->has_input && !step->slot && !step_ask_batch(step))
        return;
    if (!step->has_vars && !step_ask_vars(step))
        return;
    if (step->has_input && step->has_vars)
        step_compute_begin(step);
}

void step_run_advance(struct step_run *run)
{
    run->is_changed = false;
    struct step *next = NULL;
    for (struct step *step = run->lists[STEP_WAITING].first; step && !run->is_stopped;
         step = next) {
        next = step->next;
        advance_step(step);
    }
}

bool step_run_has_change(const struct step_run *run)
{
    return run->is_changed;
}

void step_run_ticket(struct step_run *run, const struct step_ticket *ticket)
{
    struct open_job *job = step_jobs_find(run, ticket->key.job);
    size_t held = step_table_held_count(run);
    struct step *step = step_table_add(run);
    step->ticket = *ticket;
    step->received_ns = clock_now_ns();
    step->deadline_ns =
        step->received_ns +
        (ticket->deadline_ms ? ticket->deadline_ms : DEFAULT_STEP_DEADLINE_MS) * NS_PER_MS;
    struct err err = {.code = ERR_OK};
    if (!job || job->generation != ticket->generation)
        err_set(&err, ERR_STALE, "job %" PRIu64 " is not open here in generation %" PRIu64,
                ticket->key.job, ticket->generation);
    else if (run->is_stopped)
        err_set(&err, ERR_CANCELLED, "this worker is leaving");
    else if (held >= STEP_HELD_MAX)
        err_set(&err, ERR_FULL, "%zu tickets are held, want at most %zu", held, STEP_HELD_MAX);
    run->is_changed = true;
    if (err.code != ERR_OK) {
        step_end_finish(step, OUTCOME_RETURNED, &err);
        return;
    }
    ASSERT(job);
    step->job = job;
    job->step_count++;
}

void step_run_check_deadlines(struct step_run *run, uint64_t now_ns)
{
    struct step *next = NULL;
    for (struct step *step = run->lists[STEP_WAITING].first; step; step = next) {
        next = step->next;
        if (now_ns < step->deadline_ns)
            continue;
        struct err err;
        err_set(&err, ERR_TIMEOUT, "not begun before its deadline; %s",
                step->job->state == JOB_OPENING ? "the job was still opening"
                : !step->has_input              ? "its batch was not staged"
                : !step->has_vars               ? "its variables were not there"
                                                : "the device or the gradient arrays were busy");
        step_end_finish(step, OUTCOME_RETURNED, &err);
    }
}

/* ---- orders ------------------------------------------------------------------------------------
 */
void step_run_revoke(struct step_run *run, const struct step_key *key)
{
    struct step *step = step_table_find(run, STEP_WAITING, key);
    if (!step) {
        step = step_table_find(run, STEP_ON_DEVICE, key);
        if (step && !device_request_take_back(&step->request))
            return; /* begun: it runs to its end and is reported */
    }
    if (step)
        step_end_drop(step);
}

void step_run_drop_all(struct step_run *run)
{
    step_jobs_close_all(run);
    step_report_drop_all(run);
}

bool step_run_is_empty(const struct step_run *run)
{
    return step_table_is_empty(run) && !run->jobs;
}

size_t step_run_stop(struct step_run *run, struct step_key *ret_keys, size_t max)
{
    run->is_stopped = true;
    size_t count = 0;
    for (int state = STEP_WAITING; state <= STEP_ON_DEVICE; state++) {
        struct step *next = NULL;
        for (struct step *step = run->lists[state].first; step; step = next) {
            next = step->next;
            if (step->is_dropped || count >= max)
                continue;
            if (state == STEP_ON_DEVICE && !device_request_take_back(&step->request))
                continue;
            ret_keys[count++] = step->ticket.key;
            step_end_drop(step);
        }
    }
    return count;
}

size_t step_run_give_up(struct step_run *run, uint64_t stuck_before_ns, struct step_key *ret_keys,
                        size_t max)
{
    size_t count = 0;
    for (int state = STEP_ON_DEVICE; state <= STEP_PUSHING; state++) {
        struct step *next = NULL;
        for (struct step *step = run->lists[state].first; step && count < max; step = next) {
            next = step->next;
            bool is_stuck = state == STEP_PUSHING && step->request.ended_ns < stuck_before_ns;
            if (step->is_dropped || !(is_stuck || step_jobs_misses_server(step->job)))
                continue;
            ret_keys[count++] = step->ticket.key;
            step_end_drop(step);
        }
    }
    return count;
}

size_t step_run_begun_count(const struct step_run *run)
{
    size_t count = run->lists[STEP_PUSHING].count;
    for (const struct step *step = run->lists[STEP_ON_DEVICE].first; step; step = step->next)
        count += !step->is_dropped;
    return count;
}

size_t step_run_held(const struct step_run *run, struct step_key *ret_keys, size_t max)
{
    size_t count = 0;
    for (int state = STEP_PUSHING; state >= STEP_WAITING; state--)
        for (const struct step *step = run->lists[state].first; step && count < max;
             step = step->next)
            if (!step->is_dropped)
                ret_keys[count++] = step->ticket.key;
    return count;
}

/* ---- begin and end -----------------------------------------------------------------------------
 */
static void mark_changed(void *arg)
{
    struct step_run *run = arg;
    run->is_changed = true;
}

struct step_run *step_run_new(const struct job_env *env, void (*on_report)(void *arg), void *arg)
{
    struct step_run *run = base_alloc(sizeof(*run));
    run->env = *env;
    run->env.on_change = mark_changed;
    run->env.on_unborrowed = step_jobs_on_unborrowed;
    run->env.arg = run;
    run->on_report = on_report;
    run->on_report_arg = arg;
    return run;
}

void step_run_free(struct step_run *run)
{
    if (!run)
        return;
    ASSERT(step_run_is_empty(run));
    step_table_free_spares(run);
    free(run);
}
