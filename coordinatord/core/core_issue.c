/* SPDX-License-Identifier: Apache-2.0 */
/* core_issue: tickets are written ahead: one leaves when the ledger holds, durably, that it was
 * issued, so that no coordinator that comes after this one counts fewer steps, or fewer tickets of a
 * step, than left.
 *
 *   made (in flight at its worker, behind its record) --durable--> left
 *        | the worker is gone, or the ticket was taken back before
 *        v
 *      cancelled: it is as if it had not been made
 *
 * The record is a range of steps and the number of tickets that were not the first of their step,
 * those that still wait included; it rides in the commit of the acknowledgements beside it. What was
 * written and did not leave when the coordinator died counts as left. */
#include <stdlib.h>

#include "coordinatord/core/core_sched_int.h"

uint64_t core_issue_again_count(const struct job *job)
{
    return job->steps.reissued + job->steps.reissues_waiting;
}

/* Steps that go out one after the other are one record. */
static uint64_t record(struct core *core, const struct job *job, uint64_t step)
{
    struct core_act *tail = core->act_count ? &core->acts[core->act_count - 1] : NULL;
    if (tail && tail->kind == CORE_ACT_JOURNAL && tail->record.kind == CORE_REC_ISSUED &&
        tail->record.job == job->number && tail->record.last + 1 == step) {
        tail->record.last = step;
        tail->record.number = core_issue_again_count(job);
        return tail->record.seq;
    }
    struct core_record record = {.kind = CORE_REC_ISSUED,
                                 .job = job->number,
                                 .first = step,
                                 .last = step,
                                 .number = core_issue_again_count(job),
                                 .number2 = job->steps.images};
    return core_record(core, &record);
}

/* To the back of the ring. */
static void wait_for(struct core *core, const struct waiting_ticket *waiting)
{
    if (core->waiting_count == core->waiting_capacity) {
        size_t capacity = MAX(core->waiting_capacity * 2, (size_t)256);
        struct waiting_ticket *ring = base_alloc(capacity * sizeof(*ring));
        for (size_t i = 0; i < core->waiting_count; i++)
            ring[i] = core->waiting[(core->waiting_head + i) % core->waiting_capacity];
        free(core->waiting);
        core->waiting = ring;
        core->waiting_head = 0;
        core->waiting_capacity = capacity;
    }
    core->waiting[(core->waiting_head + core->waiting_count++) % core->waiting_capacity] = *waiting;
}

void core_issue_add(struct core *core, struct member *worker, struct job *job,
                    const struct core_ticket *ticket)
{
    struct in_flight flight = {.ref = ticket->ref,
                               .generation = ticket->generation,
                               .sent_ns = core->now_ns,
                               .deadline_ms = ticket->deadline_ms,
                               .is_waiting = true};
    flight.is_again = ranges_has(&job->steps.left, ticket->ref.step);
    job->steps.reissues_waiting += flight.is_again;
    struct waiting_ticket waiting = {
        .seq = record(core, job, ticket->ref.step), .session = worker->session, .ticket = *ticket};
    core_flight_push(worker, &flight);
    wait_for(core, &waiting);
}

void core_issue_cancel(struct core *core, struct job *job, const struct in_flight *flight)
{
    if (!flight->is_waiting)
        return;
    job->steps.reissues_waiting -= flight->is_again;
    if (flight->is_again && core_job_is_active(job))
        record(core, job, flight->ref.step); /* the ledger has counted one too many */
}

/* False: it was taken back meanwhile, or will be: its worker is away. */
static bool leave(struct core *core, const struct waiting_ticket *waiting)
{
    struct member *worker = core_member_of_session(core, waiting->session);
    struct in_flight *flight = worker ? core_flight_find(worker, &waiting->ticket.ref) : NULL;
    struct job *job = core_job_of(core, waiting->ticket.ref.job);
    if (!flight || !job || worker->conn == CORE_NO_CONN)
        return false;
    flight->is_waiting = false;
    flight->sent_ns = core->now_ns;
    job->steps.reissues_waiting -= flight->is_again;
    job->steps.reissued += flight->is_again;
    ranges_add(&job->steps.left, waiting->ticket.ref.step);
    worker->leaving_count++;
    return true;
}

/* One message a worker, in the order in which its tickets were made. */
static void send_to(struct core *core, struct member *worker, const struct core_ticket *tickets,
                    const struct member *const *workers, size_t count)
{
    struct core_ticket *own = core_arena(core, worker->leaving_count * sizeof(*own));
    size_t own_count = 0;
    for (size_t i = 0; i < count; i++)
        if (workers[i] == worker)
            own[own_count++] = tickets[i];
    worker->leaving_count = 0;
    core_issue_send(core, worker, own, own_count);
}

void core_issue_send(struct core *core, const struct member *worker,
                     const struct core_ticket *tickets, size_t count)
{
    struct core_act *act = core_act_add(core, CORE_ACT_TICKETS);
    act->conn = worker->conn;
    act->tickets = tickets;
    act->count = count;
    core_arm(core, core->now_ns + (tickets[0].deadline_ms + core->config.lease_ms) * NS_PER_MS);
}

void core_issue_written(struct core *core)
{
    size_t due = 0;
    while (due < core->waiting_count &&
           core->waiting[(core->waiting_head + due) % core->waiting_capacity].seq <=
               core->written_seq)
        due++;
    if (!due)
        return;
    struct core_ticket *tickets = core_arena(core, due * sizeof(*tickets));
    const struct member **workers = core_arena(core, due * sizeof(*workers));
    size_t count = 0;
    for (; due; due--) {
        const struct waiting_ticket *waiting = &core->waiting[core->waiting_head];
        if (leave(core, waiting)) {
            tickets[count] = waiting->ticket;
            workers[count++] = core_member_of_session(core, waiting->session);
        }
        core->waiting_head = (core->waiting_head + 1) % core->waiting_capacity;
        core->waiting_count--;
    }
    for (size_t i = 0; i < core->member_count; i++)
        if (core->members[i]->leaving_count)
            send_to(core, core->members[i], tickets, workers, count);
}
