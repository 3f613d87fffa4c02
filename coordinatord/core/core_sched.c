/* SPDX-License-Identifier: Apache-2.0 */
/* core_sched: which step goes to which worker, and what becomes of its report.
 *
 * A step of the epoch being issued is in one of these places:
 *
 *   window not leased --> leased window --> in flight --> reported --> durable
 *                                             |  ^        (finished)   (acked, settled)
 *           worker lost, returned, failed     v  |
 *                                            again (lowest first, before everything else)
 *
 * `issued` holds every step that left its window in this generation, so that a window skips what
 * was claimed, acknowledged or abandoned before.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinatord/core/core_int.h"

#define CREDIT_QUEUE_S 0.020 /* tickets for so many seconds of a worker's speed wait at it */
#define RETURN_HOLD_NS (50 * NS_PER_MS) /* after giving steps back a worker waits for more */

/* ---- epochs and windows ---------------------------------------------------------------------- */

static uint64_t epoch_first(const struct job *job, uint32_t epoch)
{
    return (uint64_t)epoch * job->steps_per_epoch;
}

static uint64_t epoch_end(const struct job *job, uint32_t epoch)
{
    return MIN(job->steps_total, epoch_first(job, epoch) + job->steps_per_epoch);
}

void core_sched_begin_epochs(struct job *job)
{
    uint64_t low = ranges_watermark(&job->settled);
    job->epoch = (uint32_t)(MIN(low, job->steps_total - 1) / job->steps_per_epoch);
    /* An epoch that is complete but not evaluated (a restart came between) is looked at once more:
     * all its steps are issued, so only the evaluation is left of it. */
    bool is_unevaluated = job->spec->has_eval && job->epoch > 0 &&
                          low == epoch_first(job, job->epoch) && job->evaluated_epochs < job->epoch;
    if (is_unevaluated)
        job->epoch--;
    job->evaluated_epochs = MAX(job->evaluated_epochs, (uint64_t)job->epoch);
    job->next_place = 0;
    job->lease_count = 0;
}

/* Removes exhausted leases on the way; *ret_step is a step not issued before. */
static bool lease_take(struct job *job, size_t at, uint64_t *ret_step)
{
    struct lease *lease = &job->leases[at];
    uint64_t step = ranges_next_missing(&job->issued, lease->next);
    if (step < lease->end) {
        lease->next = step + 1;
        *ret_step = step;
        return true;
    }
    *lease = job->leases[--job->lease_count];
    return false;
}

static bool lease_next_window(struct job *job, uint64_t owner)
{
    /* After a restart most of an epoch may have been issued: whole windows are passed over at once. */
    uint64_t begin = epoch_first(job, job->epoch);
    uint64_t end = epoch_end(job, job->epoch);
    uint64_t step =
        ranges_next_missing(&job->issued, begin + job->next_place * job->order.window_batches);
    if (step >= end)
        return false;
    job->next_place = (step - begin) / job->order.window_batches;
    uint64_t first = begin + job->next_place * job->order.window_batches;
    job->next_place++;
    if (job->lease_count == job->lease_capacity) {
        job->lease_capacity = MAX(job->lease_capacity * 2, (size_t)16);
        job->leases = base_realloc(job->leases, job->lease_capacity * sizeof(*job->leases));
    }
    job->leases[job->lease_count++] = (struct lease){
        .owner = owner, .next = first, .end = MIN(end, first + job->order.window_batches)};
    return true;
}

/* Own window, then a free one, then a new one, then from whoever has most left. */
static bool pick_from_windows(struct job *job, uint64_t session, uint64_t *ret_step)
{
    for (;;) {
        size_t best = job->lease_count;
        for (size_t i = 0; i < job->lease_count && best == job->lease_count; i++)
            if (job->leases[i].owner == session)
                best = i;
        for (size_t i = 0; i < job->lease_count && best == job->lease_count; i++)
            if (job->leases[i].owner == 0)
                best = i;
        if (best < job->lease_count)
            job->leases[best].owner = session;
        else if (lease_next_window(job, session))
            best = job->lease_count - 1;
        if (best == job->lease_count) {
            uint64_t most = 0;
            for (size_t i = 0; i < job->lease_count; i++) {
                if (job->leases[i].end - job->leases[i].next >= most) {
                    most = job->leases[i].end - job->leases[i].next;
                    best = i;
                }
            }
        }
        if (best == job->lease_count)
            return false;
        if (lease_take(job, best, ret_step))
            return true;
    }
}

/* The next epoch opens when nothing of this one is left to issue; with an evaluation, only after
 * its version was fixed (core_ckpt.c starts that when the epoch is settled). */
static bool next_epoch(struct job *job)
{
    if (epoch_end(job, job->epoch) >= job->steps_total)
        return false;
    if (job->spec->has_eval && job->evaluated_epochs < (uint64_t)job->epoch + 1)
        return false;
    job->epoch++;
    job->next_place = 0;
    ASSERT(job->lease_count == 0);
    return true;
}

/* Suspects are passed over: core_suspect_next issues them. */
static bool pick_again(struct job *job, uint64_t *ret_step)
{
    for (size_t i = 0; i < job->again.count; i++) {
        for (uint64_t step = job->again.items[i].first; step <= job->again.items[i].last; step++) {
            if (core_suspect_has(job, CORE_TRAIN, step) || ranges_has(&job->finished, step))
                continue;
            ranges_remove_range(&job->again, step, step);
            *ret_step = step;
            return true;
        }
    }
    return false;
}

static bool pick_step(struct job *job, uint64_t session, uint64_t *ret_step)
{
    if (pick_again(job, ret_step))
        return true;
    do {
        if (pick_from_windows(job, session, ret_step))
            return true;
    } while (next_epoch(job));
    return false;
}

/* ---- tickets --------------------------------------------------------------------------------- */

bool core_sched_is_runnable(const struct core *core, const struct job *job)
{
    return job->state == CORE_JOB_RUNNING &&
           (job->phase == PHASE_TRAINING || job->phase == PHASE_FINISHING) &&
           core->now_ns >= job->hold_until_ns;
}

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
        if (!ranges_add(&job->issued, number))
            job->reissued++;
    }
    return ticket;
}

static bool next_ticket(struct core *core, struct member *worker, struct job *job,
                        struct core_ticket *ret_ticket)
{
    uint64_t number = 0;
    if (core_eval_next(job, &number))
        *ret_ticket = make_ticket(core, job, CORE_EVAL, number);
    else if (job->phase == PHASE_TRAINING && pick_step(job, worker->session, &number))
        *ret_ticket = make_ticket(core, job, CORE_TRAIN, number);
    else
        return false;
    return true;
}

static void hand_out(struct core *core, struct member *worker, const struct job *job,
                     const struct core_ticket *ticket)
{
    send_open(core, worker, job);
    struct in_flight flight = {ticket->ref, ticket->generation, core->now_ns, ticket->deadline_ms};
    core_flight_push(worker, &flight);
}

static void send_tickets(struct core *core, struct member *worker,
                         const struct core_ticket *tickets, size_t count)
{
    struct core_act *act = core_act_add(core, CORE_ACT_TICKETS);
    act->conn = worker->conn;
    act->tickets = tickets;
    act->count = count;
    core_arm(core, core->now_ns + (tickets[0].deadline_ms + core->config.lease_ms) * NS_PER_MS);
}

/* The worker is empty: it gets one suspect and nothing else until that one is back. */
static void fill_alone(struct core *core, struct member *worker)
{
    for (size_t i = 0; i < core->live_count; i++) {
        struct job *job = core->live[i];
        enum core_step_kind kind;
        uint64_t number;
        if (!core_sched_is_runnable(core, job) || !core_suspect_next(job, &kind, &number))
            continue;
        ranges_remove_range(kind == CORE_EVAL ? &job->eval.again : &job->again, number, number);
        struct core_ticket *ticket = core_arena(core, sizeof(*ticket));
        *ticket = make_ticket(core, job, kind, number);
        hand_out(core, worker, job, ticket);
        worker->is_alone = true;
        send_tickets(core, worker, ticket, 1);
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
    size_t count = 0;
    size_t misses = 0;
    while (count < room && misses < core->live_count) {
        struct job *job = core->live[worker->turn++ % core->live_count]; /* jobs take turns */
        struct core_ticket ticket;
        if (!core_sched_is_runnable(core, job) || !next_ticket(core, worker, job, &ticket)) {
            misses++;
            continue;
        }
        misses = 0;
        if (!tickets)
            tickets = core_arena(core, room * sizeof(*tickets));
        tickets[count++] = ticket;
        hand_out(core, worker, job, &ticket);
    }
    if (count)
        send_tickets(core, worker, tickets, count);
}

void core_sched_fill_all(struct core *core)
{
    for (size_t i = 0; i < core->member_count; i++)
        if (core->members[i]->role == CORE_WORKER)
            core_sched_fill(core, core->members[i]);
}

/* ---- steps that come back -------------------------------------------------------------------- */

static struct trouble *trouble_of(struct job *job, uint64_t step)
{
    struct trouble *trouble = map_get(&job->troubles, step + 1);
    if (!trouble) {
        trouble = base_alloc(sizeof(*trouble));
        map_put(&job->troubles, step + 1, trouble);
    }
    return trouble;
}

void core_sched_abandon(struct core *core, struct job *job, uint64_t step, uint32_t attempts,
                        enum err_code code, const char *text)
{
    if (ranges_has(&job->finished, step))
        return;
    core_job_add_abandoned(job, step, attempts, code, text);
    ranges_add(&job->issued, step); /* perhaps by an earlier life of ours */
    ranges_remove_range(&job->again, step, step);
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
    if (job->abandoned_count >= LIMIT_ABANDONED)
        core_job_end(core, job, CORE_JOB_FAILED, code, "too many steps were abandoned");
}

void core_sched_give_back(struct core *core, struct job *job, const struct core_step_ref *ref,
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
    if (ranges_has(&job->finished, ref->step))
        return;
    if (is_blamed) {
        struct trouble *trouble = trouble_of(job, ref->step);
        trouble->code = ERR_UNAVAILABLE;
        snprintf(trouble->text, sizeof(trouble->text),
                 "its worker died or hung while it ran, last %s", who);
        if (++trouble->count >= job->spec->steps.max_attempts) {
            core_sched_abandon(core, job, ref->step, trouble->count, trouble->code, trouble->text);
            return;
        }
    }
    ranges_add(&job->again, ref->step);
}

void core_sched_worker_gone(struct core *core, struct member *worker, enum blame blame)
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
            core_sched_give_back(core, job, &flights[i].ref, flights[i].generation,
                                 is_sure && i == 0, worker->name);
    }
    for (size_t j = 0; j < core->live_count; j++)
        for (size_t l = 0; l < core->live[j]->lease_count; l++)
            if (core->live[j]->leases[l].owner == worker->session)
                core->live[j]->leases[l].owner = 0;
}

void core_sched_revoke_job(struct core *core, struct job *job)
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
            core_sched_give_back(core, job, &flight.ref, flight.generation, false, worker->name);
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
bool core_sched_adopt(struct core *core, struct member *worker, const struct core_step_ref *ref)
{
    struct job *job = core_job_of(core, ref->job);
    if (!job || !core_job_is_active(job) || ref->kind != CORE_TRAIN ||
        ref->step >= job->steps_total || job->phase == PHASE_LOOKING ||
        job->phase == PHASE_PLANNING || job->phase == PHASE_PLACING ||
        worker->flight_count >= LIMIT_CREDIT_MAX || !ranges_add(&job->issued, ref->step))
        return false;
    struct in_flight flight = {*ref, job->generation, core->now_ns, job->spec->steps.deadline_ms};
    core_flight_push(worker, &flight);
    core_arm(core, core->now_ns + (flight.deadline_ms + core->config.lease_ms) * NS_PER_MS);
    return true;
}

/* ---- reports --------------------------------------------------------------------------------- */

void core_sched_ack(struct core *core, struct member *worker, const struct core_step_ref *ref)
{
    (void)core;
    if (worker->ack_count == worker->ack_capacity) {
        worker->ack_capacity = MAX(worker->ack_capacity * 2, (size_t)64);
        worker->acks = base_realloc(worker->acks, worker->ack_capacity * sizeof(*worker->acks));
    }
    worker->acks[worker->ack_count++] = *ref;
}

void core_sched_flush_acks(struct core *core)
{
    for (size_t i = 0; i < core->member_count; i++) {
        struct member *worker = core->members[i];
        if (!worker->ack_count)
            continue;
        if (worker->conn != CORE_NO_CONN) {
            struct core_step_ref *refs = core_arena(core, worker->ack_count * sizeof(*refs));
            memcpy(refs, worker->acks, worker->ack_count * sizeof(*refs));
            struct core_act *act = core_act_add(core, CORE_ACT_ACKS);
            act->conn = worker->conn;
            act->refs = refs;
            act->count = worker->ack_count;
        }
        worker->ack_count = 0; /* a worker that is away reports again when it is back */
    }
}

static void pend(struct core *core, const struct pending_ack *ack)
{
    if (core->pending_count == core->pending_capacity) {
        size_t capacity = MAX(core->pending_capacity * 2, (size_t)256);
        struct pending_ack *ring = base_alloc(capacity * sizeof(*ring));
        for (size_t i = 0; i < core->pending_count; i++)
            ring[i] = core->pending[(core->pending_head + i) % core->pending_capacity];
        free(core->pending);
        core->pending = ring;
        core->pending_head = 0;
        core->pending_capacity = capacity;
    }
    core->pending[(core->pending_head + core->pending_count++) % core->pending_capacity] = *ack;
}

static void done(struct core *core, struct member *worker, struct job *job,
                 const struct core_report *report)
{
    uint64_t step = report->ref.step;
    struct pending_ack ack = {.seq = core->next_seq,
                              .ref = report->ref,
                              .generation = job->generation,
                              .session = worker->session,
                              .examples = report->examples};
    if (ranges_has(&job->acked, step) || ranges_has(&job->abandoned, step)) {
        core_sched_ack(core, worker, &report->ref);
        return;
    }
    if (!ranges_add(&job->finished, step)) {
        pend(core, &ack); /* somebody else's report of it is on its way to the disk */
        return;
    }
    job->failed_in_a_row = 0;
    ranges_add(&job->issued, step);
    ranges_remove_range(&job->again, step, step);
    core_suspect_clear(job, CORE_TRAIN, step);
    if (job->troubles.count)
        free(map_remove(&job->troubles, step + 1));
    job->loss = job->has_loss ? 0.98 * job->loss + 0.02 * report->loss : report->loss;
    job->has_loss = true;
    job->staleness = 0.98 * job->staleness + 0.02 * report->staleness;
    struct core_record record = {.kind = CORE_REC_ACKED,
                                 .job = job->number,
                                 .first = step,
                                 .last = step,
                                 .number = job->reissued,
                                 .number2 = job->images};
    ack.seq = core_record(core, &record);
    pend(core, &ack);
}

static void failed(struct core *core, struct member *worker, struct job *job,
                   const struct core_report *report)
{
    uint64_t step = report->ref.step;
    if (ranges_has(&job->finished, step))
        return;
    core_suspect_clear(job, CORE_TRAIN, step); /* it fails and does not kill */
    struct trouble *trouble = trouble_of(job, step);
    trouble->count++;
    trouble->code = report->code;
    snprintf(trouble->text, sizeof(trouble->text), "%s", report->text ? report->text : "");
    bool is_tried_out = trouble->count >= job->spec->steps.max_attempts;
    bool is_abort = job->spec->steps.on_error == STEP_ERROR_ABORT;
    if (is_abort || (is_tried_out && job->failed_in_a_row + 1 >= CORE_FAILED_IN_A_ROW)) {
        /* by policy; or it is not the step: nothing works any more */
        core_job_end(core, job, CORE_JOB_FAILED, report->code,
                     core_arena_text(core, "step %" PRIu64 " failed %u times, last on %s: %s: %s",
                                     step, trouble->count, worker->name, err_name(report->code),
                                     trouble->text));
    } else if (is_tried_out || job->spec->steps.on_error == STEP_ERROR_SKIP) {
        job->failed_in_a_row += is_tried_out;
        core_sched_abandon(core, job, step, trouble->count, trouble->code, trouble->text);
    } else {
        core_notice(core, job, "step %" PRIu64 " failed on %s (attempt %u of %u): %s: %s", step,
                    worker->name, trouble->count, job->spec->steps.max_attempts,
                    err_name(report->code), trouble->text);
        core_sched_give_back(core, job, &report->ref, report->generation, false, worker->name);
        worker->hold_until_ns = core->now_ns + RETURN_HOLD_NS;
        core_arm(core, worker->hold_until_ns);
    }
}

static void measure_rate(struct core *core, struct member *worker)
{
    worker->rate_done++;
    uint64_t span_ns = core->now_ns - worker->rate_ns;
    if (span_ns < 5 * NS_PER_MS)
        return;
    double rate = (double)worker->rate_done * 1e9 / (double)span_ns;
    worker->rate = worker->rate > 0 ? 0.7 * worker->rate + 0.3 * rate : rate;
    worker->rate_ns = core->now_ns;
    worker->rate_done = 0;
    double credit = LIMIT_CREDIT_MIN + 1 + worker->rate * CREDIT_QUEUE_S;
    worker->credit = (uint32_t)MIN(credit, (double)LIMIT_CREDIT_MAX);
}

void core_sched_report(struct core *core, struct member *worker, const struct core_report *report)
{
    struct in_flight *found = core_flight_find(worker, &report->ref);
    bool was_in_flight = found != NULL;
    struct in_flight flight = found ? *found : (struct in_flight){0};
    if (found)
        core_flight_remove(worker, found);
    worker->is_stuck = false;
    struct job *job = core_job_of(core, report->ref.job);
    bool is_known = job && core_job_is_active(job) && report->generation == job->generation &&
                    (report->ref.kind == CORE_EVAL || report->ref.step < job->steps_total);
    if (!is_known) {
        core_sched_ack(core, worker, &report->ref); /* of the past: done with, whatever it says */
        /* A ticket that was adopted after a restart may have been of an older generation. */
        if (was_in_flight && job)
            core_sched_give_back(core, job, &flight.ref, flight.generation, false, worker->name);
        return;
    }
    if (report->outcome == CORE_RETURNED) {
        if (was_in_flight)
            core_sched_give_back(core, job, &report->ref, report->generation, false, worker->name);
        worker->hold_until_ns = core->now_ns + RETURN_HOLD_NS;
        core_arm(core, worker->hold_until_ns);
        core_sched_ack(core, worker, &report->ref);
        return;
    }
    worker->steps_done++;
    measure_rate(core, worker);
    if (report->ref.kind == CORE_EVAL) {
        if (was_in_flight) /* else of an evaluation that was stopped: of other values */
            core_eval_report(core, job, report, worker->name);
        core_sched_ack(core, worker, &report->ref);
    } else if (report->outcome == CORE_DONE) {
        done(core, worker, job, report);
    } else {
        core_sched_ack(core, worker, &report->ref);
        failed(core, worker, job, report);
    }
}
