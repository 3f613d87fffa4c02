/* SPDX-License-Identifier: Apache-2.0 */
/* core_sched: which step goes to which worker.
 *
 * A step of the epoch being issued is in one of these places:
 *
 *   window not leased --> leased window --> in flight --> reported --> durable
 *                                             |  ^        (finished)   (acked, settled)
 *           worker lost, returned, failed     v  |
 *                                            again (lowest first, before everything else)
 */
#include <string.h>

#include "coordinatord/core/core_sched_int.h"

static void send_open(struct core *core, struct member *worker, const struct job *job)
{
    size_t at = 0;
    while (at < worker->opened_count && worker->opened[at].job != job->number)
        at++;
    if (at < worker->opened_count && worker->opened[at].generation == job->generation)
        return;
    if (at == worker->opened_count) {
        worker->opened = base_realloc(worker->opened, (at + 1) * sizeof(*worker->opened));
        worker->opened_count++;
    }
    worker->opened[at] = (struct opened){job->number, job->generation};
    struct core_act *act = core_act_add(core, CORE_ACT_OPEN);
    act->conn = worker->conn;
    act->job = job->number;
    act->generation = job->generation;
}

/* A ticket for the step or batch that was picked. */
static struct core_ticket make_ticket(struct core *core, struct job *job, enum core_step_kind kind,
                                      uint64_t number)
{
    struct core_ticket ticket = {
        .ref = {.job = job->number, .step = number, .attempt = ++core->next_attempt, .kind = kind},
        .generation = job->generation,
        .deadline_ms = job->spec->steps.deadline_ms,
    };
    if (kind == CORE_EVAL) {
        ticket.batch = number;
        ticket.epoch = job->eval.epoch - 1;
        ticket.pin = job->eval.pin;
    } else {
        ticket.epoch = (uint32_t)(number / job->steps_per_epoch);
        ticket.batch = number % job->steps_per_epoch;
        struct rule_steps steps = core_job_rule_steps(job);
        ticket.pin = job->rule->version(&steps, number);
        ranges_add(&job->steps.issued, number);
    }
    return ticket;
}

static bool next_ticket(struct core *core, struct member *worker, struct job *job,
                        struct core_ticket *ret_ticket)
{
    uint64_t number = 0;
    if (core_eval_next(job, &number))
        *ret_ticket = make_ticket(core, job, CORE_EVAL, number);
    else if (job->phase == PHASE_TRAINING && core_window_pick(job, worker->session, &number))
        *ret_ticket = make_ticket(core, job, CORE_TRAIN, number);
    else
        return false;
    return true;
}

/* A batch of an evaluation leaves at once, it is nothing that is counted. False: so it does. */
static bool hand_out(struct core *core, struct member *worker, struct job *job,
                     const struct core_ticket *ticket)
{
    send_open(core, worker, job);
    if (ticket->ref.kind == CORE_TRAIN) {
        core_issue_add(core, worker, job, ticket);
        return true;
    }
    struct in_flight flight = {.ref = ticket->ref,
                               .generation = ticket->generation,
                               .sent_ns = core->now_ns,
                               .deadline_ms = ticket->deadline_ms};
    core_flight_push(worker, &flight);
    return false;
}

/* The worker is empty: it gets one suspect and nothing else until that one is back. */
static void fill_alone(struct core *core, struct member *worker)
{
    for (size_t i = 0; i < core->live_count; i++) {
        struct job *job = core->live[i];
        enum core_step_kind kind;
        uint64_t number;
        if (!core_job_is_runnable(core, job) || !core_suspect_next(job, &kind, &number))
            continue;
        ranges_remove_range(kind == CORE_EVAL ? &job->eval.again : &job->steps.again, number,
                            number);
        struct core_ticket *ticket = core_arena(core, sizeof(*ticket));
        *ticket = make_ticket(core, job, kind, number);
        if (!hand_out(core, worker, job, ticket))
            core_issue_send(core, worker, ticket, 1);
        worker->is_alone = true;
        return;
    }
}

void core_sched_fill(struct core *core, struct member *worker)
{
    if (worker->state != MEMBER_ATTACHED || worker->is_leaving || worker->is_stuck ||
        core->is_stuck || core->now_ns < worker->hold_until_ns ||
        core->next_seq - core->written_seq >= CORE_JOURNAL_MAX)
        return;
    ASSERT(worker->credit <= LIMIT_CREDIT_MAX);
    if (worker->flight_count == 0)
        worker->is_alone = false;
    if (worker->flight_count >= worker->credit || core->live_count == 0 || worker->is_alone)
        return;
    if (core_suspect_wants(core, worker)) {
        if (worker->flight_count == 0)
            fill_alone(core, worker);
        return;
    }
    size_t room = worker->credit - worker->flight_count;
    struct core_ticket *tickets = NULL;
    size_t made = 0;
    size_t count = 0; /* of those that leave at once */
    size_t misses = 0;
    while (made < room && misses < core->live_count) {
        struct job *job = core->live[worker->turn++ % core->live_count]; /* jobs take turns */
        struct core_ticket ticket;
        if (!core_job_is_runnable(core, job) || !next_ticket(core, worker, job, &ticket)) {
            misses++;
            continue;
        }
        misses = 0;
        made++;
        if (hand_out(core, worker, job, &ticket))
            continue;
        if (!tickets)
            tickets = core_arena(core, room * sizeof(*tickets));
        tickets[count++] = ticket;
    }
    if (count)
        core_issue_send(core, worker, tickets, count);
}

void core_sched_fill_all(struct core *core)
{
    for (size_t i = 0; i < core->member_count; i++)
        if (core->members[i]->role == CORE_WORKER)
            core_sched_fill(core, core->members[i]);
}
