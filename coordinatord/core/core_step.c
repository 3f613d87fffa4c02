/* SPDX-License-Identifier: Apache-2.0 */
/* core_step: how a step comes back without a result: its worker is gone, revoked, or takes up a
 * ticket again; and when it is given up. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "coordinatord/core/core_sched_int.h"

struct trouble *core_trouble_of(struct job *job, uint64_t step)
{
    struct trouble *trouble = map_get(&job->steps.troubles, step + 1);
    if (!trouble) {
        trouble = base_alloc(sizeof(*trouble));
        map_put(&job->steps.troubles, step + 1, trouble);
    }
    return trouble;
}

void core_step_abandon(struct core *core, struct job *job, uint64_t step, uint32_t attempts,
                       enum err_code code, const char *text)
{
    if (ranges_has(&job->steps.finished, step))
        return;
    core_job_add_abandoned(job, step, attempts, code, text);
    ranges_add(&job->steps.issued, step); /* perhaps by an earlier life of ours */
    ranges_remove_range(&job->steps.again, step, step);
    core_suspect_clear(job, CORE_TRAIN, step);
    struct core_record record = {.kind = CORE_REC_ABANDONED,
                                 .job = job->number,
                                 .first = step,
                                 .number = attempts,
                                 .text = err_name(code),
                                 .text2 = text};
    core_record(core, &record);
    core_notice(core, job, "step %" PRIu64 " is abandoned after %u attempts: %s: %s", step,
                attempts, err_name(code), text);
    if (job->past.abandoned_count >= LIMIT_ABANDONED)
        core_job_doom(core, job, code, "too many steps were abandoned");
}

void core_step_give_back(struct core *core, struct job *job, const struct core_step_ref *ref,
                         uint64_t generation, bool is_blamed, const char *who)
{
    if (!core_job_is_active(job) || generation != job->generation)
        return;
    core->is_fill_due = true;
    if (ref->kind == CORE_EVAL) {
        if (job->eval.phase == EVAL_RUNNING && !ranges_has(&job->eval.done, ref->step))
            core_eval_give_back(core, job, ref->step, is_blamed, who);
        return;
    }
    if (ranges_has(&job->steps.finished, ref->step))
        return;
    if (is_blamed) {
        struct trouble *trouble = core_trouble_of(job, ref->step);
        trouble->code = ERR_UNAVAILABLE;
        snprintf(trouble->text, sizeof(trouble->text),
                 "its worker died or hung while it ran, last %s", who);
        if (++trouble->count >= job->spec->steps.max_attempts) {
            core_step_abandon(core, job, ref->step, trouble->count, trouble->code, trouble->text);
            return;
        }
    }
    ranges_add(&job->steps.again, ref->step);
}

void core_step_worker_gone(struct core *core, struct member *worker, enum blame blame)
{
    size_t count = worker->flight_count;
    struct in_flight *flights = core_arena(core, (count + 1) * sizeof(*flights));
    if (count)
        memcpy(flights, worker->flight + worker->flight_head, count * sizeof(*flights));
    worker->flight_count = 0; /* first: what follows may end a job and look through all flights */
    worker->flight_head = 0;
    if (blame == BLAME_DEATH && count > 1)
        core_suspect_add_all(core, flights, count);
    bool is_sure = blame == BLAME_OLDEST || (blame == BLAME_DEATH && count == 1);
    for (size_t i = 0; i < count; i++) {
        struct job *job = core_job_of(core, flights[i].ref.job);
        if (job)
            core_step_give_back(core, job, &flights[i].ref, flights[i].generation,
                                is_sure && i == 0, worker->name);
    }
    for (size_t j = 0; j < core->live_count; j++)
        for (size_t l = 0; l < core->live[j]->steps.lease_count; l++)
            if (core->live[j]->steps.leases[l].owner == worker->session)
                core->live[j]->steps.leases[l].owner = 0;
}

void core_step_revoke_job(struct core *core, struct job *job)
{
    for (size_t i = 0; i < core->member_count; i++) {
        struct member *worker = core->members[i];
        if (worker->role != CORE_WORKER || !worker->flight_count)
            continue;
        struct core_step_ref *refs = core_arena(core, worker->flight_count * sizeof(*refs));
        size_t count = 0;
        for (size_t f = worker->flight_count; f-- > 0;) {
            struct in_flight flight = worker->flight[worker->flight_head + f];
            if (flight.ref.job != job->number)
                continue;
            refs[count++] = flight.ref;
            core_flight_remove(worker, &worker->flight[worker->flight_head + f]);
            core_step_give_back(core, job, &flight.ref, flight.generation, false, worker->name);
        }
        if (count && worker->conn != CORE_NO_CONN) {
            struct core_act *act = core_act_add(core, CORE_ACT_REVOKE);
            act->conn = worker->conn;
            act->refs = refs;
            act->count = count;
        }
    }
}

/* A ticket of an earlier life of ours that its worker still means to run. */
bool core_step_adopt(struct core *core, struct member *worker, const struct core_step_ref *ref)
{
    struct job *job = core_job_of(core, ref->job);
    if (!job || !core_job_is_active(job) || ref->kind != CORE_TRAIN ||
        ref->step >= job->steps_total || job->phase == PHASE_LOOKING ||
        job->phase == PHASE_PLANNING || job->phase == PHASE_PLACING ||
        worker->flight_count >= LIMIT_CREDIT_MAX || !ranges_add(&job->steps.issued, ref->step))
        return false;
    struct in_flight flight = {*ref, job->generation, core->now_ns, job->spec->steps.deadline_ms};
    core_flight_push(worker, &flight);
    core_arm(core, core->now_ns + (flight.deadline_ms + core->config.lease_ms) * NS_PER_MS);
    return true;
}
