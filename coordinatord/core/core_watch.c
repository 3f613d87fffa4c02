/* SPDX-License-Identifier: Apache-2.0 */
/* core_watch: the deadlines of jobs, and the word about a job that does not move on: who holds
 * what. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "coordinatord/core/core_life_int.h"

static const char *who_holds(struct core *core, const struct job *job)
{
    const char *text = "";
    for (size_t i = 0; i < core->member_count; i++) {
        const struct member *worker = core->members[i];
        size_t held = 0;
        uint64_t oldest = UINT64_MAX;
        for (size_t f = 0; f < worker->flight_count; f++) {
            const struct in_flight *flight = &worker->flight[worker->flight_head + f];
            if (flight->ref.job == job->number) {
                held++;
                oldest = MIN(oldest, flight->ref.step);
            }
        }
        if (held && strlen(text) < 300)
            text = core_arena_text(core, "%s %s holds %zu (oldest %" PRIu64 ");", text,
                                   worker->name, held, oldest);
    }
    return *text ? text : " no worker holds a step of it";
}

void core_watch_check(struct core *core)
{
    for (size_t i = 0; i < core->live_count;) {
        struct job *job = core->live[i];
        bool is_idle =
            job->phase == PHASE_QUEUED || core->is_stuck; /* waits for others, not for an answer */
        if (is_idle)
            job->progress_ns = core->now_ns;
        uint64_t over_ns = job->progress_ns + core->config.job_wait_ms * NS_PER_MS;
        if (core->now_ns >= over_ns) {
            core_job_end(core, job, CORE_JOB_FAILED, ERR_TIMEOUT,
                         core_arena_text(core, "nothing happened for %u s (%s):%s",
                                         core->config.job_wait_ms / 1000,
                                         *job->reason ? job->reason : "training",
                                         who_holds(core, job)));
            continue;
        }
        core_arm(core, over_ns);
        if (core->now_ns >= job->stall_ns) {
            if (!is_idle && core->now_ns >= job->progress_ns + CORE_STALL_NS)
                core_notice(core, job, "no progress for %" PRIu64 " s:%s",
                            (uint64_t)((core->now_ns - job->progress_ns) / NS_PER_S),
                            *job->reason ? job->reason : who_holds(core, job));
            job->stall_ns = core->now_ns + CORE_STALL_NS;
        }
        core_arm(core, job->stall_ns);
        if (job->hold_until_ns > core->now_ns)
            core_arm(core, job->hold_until_ns);
        while (job->phase == PHASE_TRAINING && core->now_ns >= job->pace.slot_ns + NS_PER_S) {
            job->pace.slot_at = (job->pace.slot_at + 1) % RATE_SLOTS;
            job->pace.slot_steps[job->pace.slot_at] = 0;
            job->pace.slot_images[job->pace.slot_at] = 0;
            job->pace.slot_ns = core->now_ns >= job->pace.slot_ns + RATE_SLOTS * NS_PER_S
                                    ? core->now_ns
                                    : job->pace.slot_ns + NS_PER_S;
        }
        if (job->phase == PHASE_TRAINING) {
            core_arm(core, job->pace.slot_ns + NS_PER_S);
            if (core->config.audit_ms && core->now_ns >= job->audit.next_ns)
                core_audit_start(core, job, false);
            if (core->config.audit_ms)
                core_arm(core, job->audit.next_ns);
        }
        if (job->ckpt.phase != CKPT_NONE) {
            if (core->now_ns >= job->ckpt.deadline_ns)
                core_ckpt_stop(core, job, ERR_TIMEOUT, "it was not written in time", false);
            else
                core_arm(core, job->ckpt.deadline_ns);
        }
        i++;
    }
}
