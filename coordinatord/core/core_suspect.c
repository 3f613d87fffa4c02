/* SPDX-License-Identifier: Apache-2.0 */
/* core_suspect: who killed the worker. A lost worker had several tickets, and any of the first few
 * may have been running. None of them is blamed for that. One that was there at two losses is a
 * suspect, and runs alone the next time: on a worker that holds nothing else. A worker that is lost
 * with one ticket tells which one it was. So a step that kills is found, whatever was issued before
 * it, and those beside it are not abandoned with it.
 *
 *   issued --lost with others--> seen --lost with others--> suspect --lost alone--> one failure
 *
 * While suspects wait, one worker is kept for them: it gets nothing new until it is empty.
 */
#include "coordinatord/core/core_beside_int.h"

static struct suspicion *suspicion_of(struct job *job, enum core_step_kind kind)
{
    return kind == CORE_EVAL ? &job->eval.suspicion : &job->steps.suspicion;
}

bool core_suspect_has(struct job *job, enum core_step_kind kind, uint64_t number)
{
    const struct ranges *suspects = &suspicion_of(job, kind)->suspects;
    return suspects->count && ranges_has(suspects, number);
}

void core_suspect_clear(struct job *job, enum core_step_kind kind, uint64_t number)
{
    struct suspicion *suspicion = suspicion_of(job, kind);
    if (suspicion->seen.count)
        ranges_remove_range(&suspicion->seen, number, number);
    if (suspicion->suspects.count)
        ranges_remove_range(&suspicion->suspects, number, number);
}

void core_suspect_add_all(struct core *core, const struct in_flight *flights, size_t count)
{
    for (size_t i = 0; i < count && i < CORE_SUSPECTS; i++) {
        const struct in_flight *flight = &flights[i];
        struct job *job = core_job_of(core, flight->ref.job);
        if (!job || !core_job_is_active(job) || flight->generation != job->generation)
            continue;
        struct suspicion *suspicion = suspicion_of(job, flight->ref.kind);
        if (!ranges_add(&suspicion->seen, flight->ref.step))
            ranges_add(&suspicion->suspects, flight->ref.step);
    }
}

/* The lowest suspect that waits to be issued again. */
static bool next_of(const struct ranges *suspects, const struct ranges *again, uint64_t *ret_number)
{
    for (size_t i = 0; i < suspects->count; i++) {
        for (uint64_t number = suspects->items[i].first; number <= suspects->items[i].last;
             number++) {
            if (ranges_has(again, number)) {
                *ret_number = number;
                return true;
            }
        }
    }
    return false;
}

bool core_suspect_next(struct job *job, enum core_step_kind *ret_kind, uint64_t *ret_number)
{
    if (job->eval.phase == EVAL_RUNNING &&
        next_of(&job->eval.suspicion.suspects, &job->eval.again, ret_number)) {
        *ret_kind = CORE_EVAL;
        return true;
    }
    if (job->phase == PHASE_TRAINING &&
        next_of(&job->steps.suspicion.suspects, &job->steps.again, ret_number)) {
        *ret_kind = CORE_TRAIN;
        return true;
    }
    return false;
}

bool core_suspect_wants(const struct core *core, const struct member *worker)
{
    bool is_any = false;
    for (size_t i = 0; i < core->live_count && !is_any; i++) {
        enum core_step_kind kind;
        uint64_t number;
        is_any = core_job_is_runnable(core, core->live[i]) &&
                 core_suspect_next(core->live[i], &kind, &number);
    }
    if (!is_any)
        return false;
    for (size_t i = 0; i < core->member_count; i++) {
        const struct member *first = core->members[i];
        if (first->role == CORE_WORKER && first->state == MEMBER_ATTACHED && !first->is_leaving &&
            !first->is_stuck && core->now_ns >= first->hold_until_ns)
            return first == worker;
    }
    return false;
}
