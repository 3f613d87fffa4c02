/* SPDX-License-Identifier: Apache-2.0 */
/* core_step: how a step comes back without a result: its worker is gone, revoked, or takes up a
 * ticket again; and when it is given up. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
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

uint64_t core_step_finish(struct core *core, struct job *job, uint64_t step, uint32_t examples)
{
    ranges_add(&job->steps.finished, step);
    job->steps.failed_in_a_row = 0;
    job->steps.images += examples;
    ranges_add(&job->steps.issued, step);
    ranges_add(&job->steps.left, step);
    ranges_remove_range(&job->steps.again, step, step);
    ranges_remove_range(&job->steps.on_trial, step, step);
    core_suspect_clear(job, CORE_TRAIN, step);
    if (job->steps.troubles.count)
        free(map_remove(&job->steps.troubles, step + 1));
    struct core_record record = {.kind = CORE_REC_ACKED,
                                 .job = job->number,
                                 .first = step,
                                 .last = step,
                                 .number = core_issue_again_count(job),
                                 .number2 = job->steps.images};
    return core_record(core, &record);
}

void core_step_abandon(struct core *core, struct job *job, uint64_t step, uint32_t attempts,
                       enum err_code code, const char *text)
{
    if (ranges_has(&job->steps.finished, step))
        return;
    core_job_add_abandoned(job, step, attempts, code, text);
    ranges_add(&job->steps.issued, step); /* perhaps by an earlier life of ours */
    ranges_add(&job->steps.left, step);
    ranges_remove_range(&job->steps.again, step, step);
    ranges_remove_range(&job->steps.on_trial, step, step);
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

static double flight_s(const struct in_flight *flight)
{
    return (double)(flight->gone_ns - flight->sent_ns) / (double)NS_PER_S;
}

/* False: it goes on trial. */
static bool may_go_again(struct job *job, const struct in_flight *flight, enum blame blame,
                         const char *who)
{
    if (blame == BLAME_NONE)
        return true;
    struct trouble *trouble = core_trouble_of(job, flight->ref.step);
    if (blame == BLAME_HUNG) {
        trouble->count++;
    } else {
        trouble->alone.deaths++;
        trouble->alone.seconds += flight_s(flight);
    }
    trouble->is_failure = false;
    trouble->code = ERR_UNAVAILABLE;
    snprintf(trouble->who, sizeof(trouble->who), "%s", who);
    snprintf(trouble->text, sizeof(trouble->text), "its worker died or hung while it ran, last %s",
             who);
    return trouble->count + (uint32_t)trouble->alone.deaths < job->spec->steps.max_attempts;
}

void core_step_give_back(struct core *core, struct job *job, const struct in_flight *flight,
                         enum blame blame, const char *who)
{
    const struct core_step_ref *ref = &flight->ref;
    core_issue_cancel(core, job, flight);
    if (!core_job_is_active(job) || flight->generation != job->generation)
        return;
    core->is_fill_due = true;
    if (ref->kind == CORE_EVAL) {
        if (job->eval.phase == EVAL_RUNNING && !ranges_has(&job->eval.done, ref->step))
            core_eval_give_back(core, job, ref->step, blame != BLAME_NONE, who);
        return;
    }
    if (ranges_has(&job->steps.finished, ref->step))
        return;
    if (may_go_again(job, flight, blame, who))
        ranges_add(&job->steps.again, ref->step);
    else
        ranges_add(&job->steps.on_trial, ref->step);
}

/* A death with the step among the tickets that may have been begun is none without it. */
static void witness(struct core *core, const struct in_flight *flight)
{
    struct job *job = core_job_of(core, flight->ref.job);
    if (!job || !core_job_is_active(job) || flight->generation != job->generation ||
        flight->ref.kind != CORE_TRAIN || ranges_has(&job->steps.finished, flight->ref.step))
        return;
    struct trouble *trouble = core_trouble_of(job, flight->ref.step);
    if (trouble->with.deaths == 0) {
        trouble->since =
            (struct hazard){core->lives.deaths - 1, core->lives.seconds - flight_s(flight)};
        trouble->before = (struct hazard){core->recent.deaths - 1, core->recent.seconds};
    }
    trouble->with.deaths++;
    trouble->with.seconds += flight_s(flight);
}

void core_step_worker_gone(struct core *core, struct member *worker, enum blame blame,
                           uint64_t gone_ns)
{
    size_t count = worker->flight_count;
    struct in_flight *flights = core_arena(core, (count + 1) * sizeof(*flights));
    if (count)
        memcpy(flights, worker->flight + worker->flight_head, count * sizeof(*flights));
    worker->flight_count = 0; /* first: what follows may end a job and look through all flights */
    worker->flight_head = 0;
    size_t held = 0; /* first among the flights: what it had got */
    for (size_t i = 0; i < count; i++) {
        struct in_flight flight = flights[i];
        flight.gone_ns = MAX(flight.sent_ns, gone_ns);
        struct job *job = core_job_of(core, flight.ref.job);
        if (!flight.is_waiting)
            flights[held++] = flight;
        else if (job)
            core_step_give_back(core, job, &flight, BLAME_NONE, worker->name);
    }
    for (size_t i = 0; blame == BLAME_DEATH && i < held && i < CORE_SUSPECTS; i++)
        witness(core, &flights[i]);
    bool is_sure = blame == BLAME_HUNG || held == 1;
    if (blame == BLAME_DEATH && held > 1)
        core_suspect_add_all(core, flights, held);
    for (size_t i = 0; i < held; i++) {
        struct job *job = core_job_of(core, flights[i].ref.job);
        if (job)
            core_step_give_back(core, job, &flights[i], is_sure && i == 0 ? blame : BLAME_NONE,
                                worker->name);
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
            if (!flight.is_waiting)
                refs[count++] = flight.ref;
            core_flight_remove(worker, &worker->flight[worker->flight_head + f]);
            core_step_give_back(core, job, &flight, BLAME_NONE, worker->name);
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
    struct in_flight flight = {.ref = *ref,
                               .generation = job->generation,
                               .sent_ns = core->now_ns,
                               .deadline_ms = job->spec->steps.deadline_ms};
    core_flight_push(worker, &flight);
    core_arm(core, core->now_ns + (flight.deadline_ms + core->config.lease_ms) * NS_PER_MS);
    return true;
}
