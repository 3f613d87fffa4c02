/* SPDX-License-Identifier: Apache-2.0 */
/* core_window: the order in which steps are issued. The epoch is cut into windows; a worker leases
 * one at a time and helps others at the end of the epoch. What came back goes first.
 *
 * `issued` holds every step that left its window in this generation, so that a window skips what
 * was claimed, acknowledged or abandoned before.
 */
#include "coordinatord/core/core_sched_int.h"

static uint64_t epoch_first(const struct job *job, uint32_t epoch)
{
    return (uint64_t)epoch * job->steps_per_epoch;
}

static uint64_t epoch_end(const struct job *job, uint32_t epoch)
{
    return MIN(job->steps_total, epoch_first(job, epoch) + job->steps_per_epoch);
}

void core_window_begin(struct job *job)
{
    uint64_t low = ranges_watermark(&job->steps.settled);
    job->steps.epoch = (uint32_t)(MIN(low, job->steps_total - 1) / job->steps_per_epoch);
    /* An epoch that is complete but not evaluated (a restart came between) is looked at once more:
     * all its steps are issued, so only the evaluation is left of it. */
    bool is_unevaluated = job->spec->has_eval && job->steps.epoch > 0 &&
                          low == epoch_first(job, job->steps.epoch) &&
                          job->past.evaluated_epochs < job->steps.epoch;
    if (is_unevaluated)
        job->steps.epoch--;
    job->past.evaluated_epochs = MAX(job->past.evaluated_epochs, (uint64_t)job->steps.epoch);
    job->steps.next_place = 0;
    job->steps.lease_count = 0;
}

static bool may_issue(const struct job *job, uint64_t step)
{
    struct rule_steps steps = core_job_rule_steps(job);
    return job->rule->may_issue(&steps, step);
}

enum take { TAKE_STEP, TAKE_EXHAUSTED, TAKE_HELD };

/* Removes exhausted leases on the way; *ret_step is a step not issued before. HELD: it may not leave
 * yet by the job's rule, and stays. */
static enum take lease_take(struct job *job, size_t at, uint64_t *ret_step)
{
    struct lease *lease = &job->steps.leases[at];
    uint64_t step = ranges_next_missing(&job->steps.issued, lease->next);
    if (step >= lease->end) {
        *lease = job->steps.leases[--job->steps.lease_count];
        return TAKE_EXHAUSTED;
    }
    if (!may_issue(job, step))
        return TAKE_HELD;
    lease->next = step + 1;
    *ret_step = step;
    return TAKE_STEP;
}

static bool lease_next_window(struct job *job, uint64_t owner)
{
    /* After a restart most of an epoch may have been issued: whole windows are passed over at once. */
    uint64_t begin = epoch_first(job, job->steps.epoch);
    uint64_t end = epoch_end(job, job->steps.epoch);
    uint64_t step = ranges_next_missing(&job->steps.issued,
                                        begin + job->steps.next_place * job->order.window_batches);
    if (step >= end)
        return false;
    job->steps.next_place = (step - begin) / job->order.window_batches;
    uint64_t first = begin + job->steps.next_place * job->order.window_batches;
    job->steps.next_place++;
    if (job->steps.lease_count == job->steps.lease_capacity) {
        job->steps.lease_capacity = MAX(job->steps.lease_capacity * 2, (size_t)16);
        job->steps.leases =
            base_realloc(job->steps.leases, job->steps.lease_capacity * sizeof(*job->steps.leases));
    }
    job->steps.leases[job->steps.lease_count++] = (struct lease){
        .owner = owner, .next = first, .end = MIN(end, first + job->order.window_batches)};
    return true;
}

/* Own window, then a free one, then a new one, then from whoever has most left. */
static enum take pick_from_windows(struct job *job, uint64_t session, uint64_t *ret_step)
{
    for (;;) {
        size_t best = job->steps.lease_count;
        for (size_t i = 0; i < job->steps.lease_count && best == job->steps.lease_count; i++)
            if (job->steps.leases[i].owner == session)
                best = i;
        for (size_t i = 0; i < job->steps.lease_count && best == job->steps.lease_count; i++)
            if (job->steps.leases[i].owner == 0)
                best = i;
        if (best < job->steps.lease_count)
            job->steps.leases[best].owner = session;
        else if (lease_next_window(job, session))
            best = job->steps.lease_count - 1;
        if (best == job->steps.lease_count) {
            uint64_t most = 0;
            for (size_t i = 0; i < job->steps.lease_count; i++) {
                if (job->steps.leases[i].end - job->steps.leases[i].next >= most) {
                    most = job->steps.leases[i].end - job->steps.leases[i].next;
                    best = i;
                }
            }
        }
        if (best == job->steps.lease_count)
            return TAKE_EXHAUSTED;
        enum take take = lease_take(job, best, ret_step);
        if (take != TAKE_EXHAUSTED)
            return take;
    }
}

/* The next epoch opens when nothing of this one is left to issue; with an evaluation, only after
 * its version was fixed (core_ckpt.c starts that when the epoch is settled). */
static bool next_epoch(struct job *job)
{
    if (epoch_end(job, job->steps.epoch) >= job->steps_total)
        return false;
    if (job->spec->has_eval && job->past.evaluated_epochs < (uint64_t)job->steps.epoch + 1)
        return false;
    job->steps.epoch++;
    job->steps.next_place = 0;
    ASSERT(job->steps.lease_count == 0);
    return true;
}

/* Suspects are passed over: core_suspect_next issues them. */
static bool pick_again(struct job *job, uint64_t *ret_step)
{
    for (size_t i = 0; i < job->steps.again.count; i++) {
        for (uint64_t step = job->steps.again.items[i].first;
             step <= job->steps.again.items[i].last; step++) {
            if (core_suspect_has(job, CORE_TRAIN, step) || ranges_has(&job->steps.finished, step) ||
                !may_issue(job, step))
                continue;
            ranges_remove_range(&job->steps.again, step, step);
            *ret_step = step;
            return true;
        }
    }
    return false;
}

bool core_window_pick(struct job *job, uint64_t session, uint64_t *ret_step)
{
    if (pick_again(job, ret_step))
        return true;
    do {
        enum take take = pick_from_windows(job, session, ret_step);
        if (take != TAKE_EXHAUSTED)
            return take == TAKE_STEP;
    } while (next_epoch(job));
    return false;
}
