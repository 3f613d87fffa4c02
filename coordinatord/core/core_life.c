/* SPDX-License-Identifier: Apache-2.0 */
/* core_life: the machine's life, and the end of every event. */
#include <stdlib.h>

#include "coordinatord/core/core_life_int.h"

struct core *core_new(const struct core_config *config)
{
    ASSERT(config->start > 0 && config->lease_ms > 0 && config->running_max > 0);
    struct core *core = base_alloc(sizeof(*core));
    core->config = *config;
    core->deadline_ns = UINT64_MAX;
    core->next_session = config->start << 32;
    core->next_attempt = config->start << 32;
    core->next_pin = config->start << 32;
    core->next_order = config->start << 32;
    core->next_job = 1;
    map_init(&core->by_conn);
    map_init(&core->by_session);
    return core;
}

void core_free(struct core *core)
{
    if (!core)
        return;
    for (size_t i = 0; i < core->member_count; i++)
        core_member_free(core->members[i]);
    free(core->members);
    for (size_t i = 0; i < core->job_count; i++)
        core_job_free(core->jobs[i]);
    free(core->jobs);
    while (core->orders) {
        struct order *next = core->orders->next;
        free(core->orders);
        core->orders = next;
    }
    core_out_free(core);
    map_done(&core->by_conn);
    map_done(&core->by_session);
    free(core->pending);
    free(core->waiting);
    free(core->stuck_text);
    free(core->live);
    free(core->view_shards);
    free(core->view_servers);
    free(core);
}

void core_start(struct core *core, uint64_t now_ns)
{
    core_event_begin(core, now_ns);
    core->is_started = true;
    core->start_ns = now_ns;
    for (size_t i = 0; i < core->job_count; i++) {
        struct job *job = core->jobs[i];
        ranges_copy(&job->steps.issued, &job->steps.finished);
        job->begin_ns = now_ns;
        if (job->state == CORE_JOB_QUEUED) {
            core_job_set_phase(core, job, PHASE_QUEUED);
        } else if (job->state == CORE_JOB_RUNNING || job->state == CORE_JOB_PAUSED) {
            job->state = CORE_JOB_RUNNING;
            if (job->place.is_replayed_placement)
                core_job_set_phase(core, job, PHASE_RECOVERING);
            else
                core_job_begin_looking(core, job); /* it was not placed yet */
            job->hold_until_ns = now_ns + (uint64_t)core->config.recover_ms * NS_PER_MS / 2;
            core_arm(core, job->hold_until_ns);
        } else {
            job->phase = PHASE_ENDED;
        }
    }
    size_t live = 0;
    for (size_t i = 0; i < core->live_count; i++)
        if (core_job_is_active(core->live[i]))
            core->live[live++] = core->live[i];
    core->live_count = live;
    core_event_end(core);
}

/* What an event may have made possible: ends first, then phases, since they open jobs, then tickets,
 * then the acknowledgements collected on the way. */
void core_event_end(struct core *core)
{
    if (core->is_started) {
        if (core->dooms_due)
            core_job_end_doomed(core);
        if (core->drops_due)
            core_job_drop_ended(core);
        core_job_advance_all(core);
        if (core->is_fill_due) {
            core->is_fill_due = false;
            core_sched_fill_all(core);
        }
    }
    core_ack_flush(core);
}
