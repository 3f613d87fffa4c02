/* SPDX-License-Identifier: Apache-2.0 */
/* core_view: looking in, for status, watch and cluster. Nothing here changes what the core will do.
 */
#include <stdlib.h>
#include <string.h>

#include "coordinatord/core/core_base_int.h"

static void fill_rates(const struct core *core, const struct job *job, uint64_t now_ns,
                       struct core_job_view *view)
{
    uint64_t end_ms = job->phase == PHASE_ENDED ? job->ended_ms : core_wall_ms(core, now_ns);
    view->elapsed_s =
        job->began_ms && end_ms > job->began_ms ? (double)(end_ms - job->began_ms) * 1e-3 : 0;
    uint64_t end_ns = job->phase == PHASE_ENDED ? job->end_ns : now_ns;
    double here_s = end_ns > job->begin_ns ? (double)(end_ns - job->begin_ns) * 1e-9 : 0;
    if (job->phase == PHASE_ENDED ||
        job->phase == PHASE_FINISHING) { /* over the whole run of this process */
        if (here_s > 0 && core->is_started) {
            view->steps_per_second = (double)job->pace.acked_here / here_s;
            view->images_per_second = (double)job->pace.images_here / here_s;
        }
        return;
    }
    if (job->phase != PHASE_TRAINING)
        return;
    uint64_t steps = 0;
    uint64_t images = 0;
    for (size_t i = 0; i < RATE_SLOTS; i++) {
        steps += job->pace.slot_steps[i];
        images += job->pace.slot_images[i];
    }
    double span = (double)(now_ns - job->pace.slot_ns) * 1e-9 + RATE_SLOTS - 1;
    double since = (double)(now_ns - job->phase_ns) * 1e-9;
    span = MIN(span, since);
    if (span > 0.05) {
        view->steps_per_second = (double)steps / span;
        view->images_per_second = (double)images / span;
    }
}

static void fill_servers(struct core *core, const struct job *job, struct core_job_view *view)
{
    core->view_servers = base_realloc(core->view_servers,
                                      (job->place.server_count + 1) * sizeof(*core->view_servers));
    for (size_t i = 0; i < job->place.server_count; i++) {
        const struct member *member =
            core_member_named(core, CORE_SERVER, job->place.servers[i].name);
        core->view_servers[i] = (struct core_server_ref){
            .conn = member ? member->conn : CORE_NO_CONN,
            .name = job->place.servers[i].name,
            .address = job->place.servers[i].address,
            .shard_count = job->place.servers[i].shard_count,
            .memory_bytes = member ? member->memory_bytes : 0,
        };
    }
    view->servers = core->view_servers;
    view->server_count = job->place.server_count;
    core->view_shards = base_realloc(core->view_shards,
                                     (job->accounts.shard_count + 1) * sizeof(*core->view_shards));
    view->duplicates_refused = job->accounts.final_duplicates;
    for (size_t i = 0; i < job->accounts.shard_count; i++) {
        const struct shard_view *shard = &job->accounts.shards[i];
        core->view_shards[i] =
            (struct core_shard_view){job->place.servers[shard->server_index].name, shard->shard,
                                     shard->applied, shard->bytes};
        view->duplicates_refused += shard->duplicates;
    }
    view->shards = core->view_shards;
    view->shard_count = job->accounts.shard_count;
}

/* Of the last step before which nothing is missing. */
static uint32_t last_epoch(const struct job *job)
{
    uint64_t low = ranges_watermark(&job->steps.finished);
    return low ? (uint32_t)((low - 1) / job->steps_per_epoch) : 0;
}

/* The last one counts when no restart can take it back. */
static size_t durable_evals(const struct core *core, const struct job *job)
{
    bool is_ahead = job->past.eval_count && job->past.eval_seq > core->written_seq;
    return job->past.eval_count - is_ahead;
}

bool core_job_view(struct core *core, uint64_t now_ns, uint64_t number,
                   struct core_job_view *ret_view)
{
    const struct job *job = core_job_of(core, number);
    if (!job)
        return false;
    bool is_held = core->is_stuck && job->state == CORE_JOB_RUNNING;
    *ret_view = (struct core_job_view){
        .job = job->number,
        .name = job->name,
        .spec = job->spec,
        .spec_json = job->spec_json,
        .is_resume = job->is_resume,
        .state = is_held ? CORE_JOB_PAUSED : job->state,
        .phase = core_phase_name(job->phase),
        .reason = is_held ? core->stuck_text : job->reason,
        .generation = job->generation,
        .first_ckpt = core_job_first_ckpt(job),
        .steps_total = job->steps_total,
        .steps_per_epoch = job->steps_per_epoch,
        .issued = ranges_total(&job->steps.left),
        .acknowledged = job->steps.acked_count,
        .reissued = job->steps.reissued,
        .abandoned = job->past.abandoned_count,
        .lost = job->accounts.lost,
        .repeated = job->accounts.repeated,
        .is_accounting_final = job->accounts.is_accounting_final,
        .evals = job->past.evals,
        .eval_count = durable_evals(core, job),
        .ckpts = job->past.ckpts,
        .ckpt_count = job->past.ckpt_count,
        .abandoned_steps = job->past.abandoned_list,
        .abandoned_count = job->past.abandoned_count,
        .notices = (const char *const *)job->past.notices,
        .notice_count = job->past.notice_count,
        .loss = job->pace.loss,
        .staleness = job->pace.staleness,
        .phase_steps = job->pace.phase_steps,
        .phases = job->pace.phases,
        .epoch = job->phase == PHASE_ENDED ? last_epoch(job) : job->steps.epoch,
        .submitted_ms = job->submitted_ms,
        .acked = &job->steps.acked,
        .abandoned_set = &job->steps.abandoned,
        .ckpt_acked = &job->ckpt.acked,
    };
    for (size_t i = 0; i < core->member_count; i++) {
        const struct member *worker = core->members[i];
        for (size_t f = 0; f < worker->flight_count; f++) {
            if (worker->flight[worker->flight_head + f].ref.job == number) {
                ret_view->worker_count++;
                break;
            }
        }
    }
    fill_servers(core, job, ret_view);
    fill_rates(core, job, now_ns, ret_view);
    return true;
}

size_t core_job_list(const struct core *core, uint64_t *ret_jobs, size_t max)
{
    for (size_t i = 0; i < core->job_count && i < max; i++)
        ret_jobs[i] = core->jobs[i]->number;
    return core->job_count;
}

uint64_t core_job_find(const struct core *core, const char *name_or_number)
{
    for (size_t i = core->job_count; i-- > 0;)
        if (strcmp(core->jobs[i]->name, name_or_number) == 0)
            return core->jobs[i]->number;
    char *end = NULL;
    unsigned long long number = strtoull(name_or_number, &end, 10);
    return *name_or_number && !*end && core_job_of(core, number) ? number : 0;
}

size_t core_member_count(const struct core *core)
{
    return core->member_count;
}

bool core_member_view(const struct core *core, uint64_t now_ns, size_t member_index,
                      struct core_member_view *ret_view)
{
    static const char *const states[] = {[MEMBER_ATTACHED] = "attached",
                                         [MEMBER_SILENT] = "silent",
                                         [MEMBER_LOST] = "lost",
                                         [MEMBER_LEFT] = "left"};
    if (member_index >= core->member_count)
        return false;
    const struct member *member = core->members[member_index];
    *ret_view = (struct core_member_view){
        .name = member->name,
        .address = member->address,
        .role = member->role,
        .state = states[member->state],
        .conn = member->conn,
        .incarnation = member->incarnation,
        .session = member->session,
        .memory_bytes = member->memory_bytes,
        .in_flight = (uint32_t)member->flight_count,
        .steps_done = member->steps_done,
        .silent_ns = now_ns > member->heard_ns ? now_ns - member->heard_ns : 0,
        .held_bytes = member->held_bytes,
        .shard_count = member->shard_count,
    };
    return true;
}
