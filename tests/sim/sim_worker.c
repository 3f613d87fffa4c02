/* SPDX-License-Identifier: Apache-2.0 */
/* sim_worker: runs tickets in the order in which they came, a few at a time: computes, pushes to
 * every slot of the plan (again when an answer does not come), reports, and keeps the report until
 * it is acknowledged.
 *
 *   WAITING --lane free--> COMPUTING --> PUSHING --every slot answered--> OVER (report DONE)
 *      | revoked: dropped      | fails: FAILED   | refused, deadline: RETURNED
 */
#include <string.h>

#include "tests/sim/sim_int.h"

#define ANSWER_NS (30 * NS_PER_MS) /* a push without an answer for so long is tried again */

struct push {
    struct sim_attempt *attempt;
    uint32_t slot;
    uint32_t try;
    uint64_t session;
    struct sim_server *server;
    uint64_t server_life;
};

static void pump(struct sim *sim, struct sim_worker *worker);
static void send_push(struct sim *sim, struct sim_attempt *attempt, uint32_t slot);

static bool same_ref(const struct core_step_ref *a, const struct core_step_ref *b)
{
    return a->job == b->job && a->step == b->step && a->attempt == b->attempt && a->kind == b->kind;
}

void sim_worker_forget(struct sim_worker *worker)
{
    for (size_t i = 0; i < worker->held_count; i++)
        worker->held[i]->phase = SIM_OVER;
    worker->held_count = 0;
    worker->kept_count = 0;
    worker->opened_count = 0;
    worker->is_flush_due = false;
}

void sim_worker_hello(struct sim *sim, struct sim_worker *worker, struct core_hello *hello)
{
    (void)sim;
    struct core_step_ref *held = sim_alloc((worker->held_count + 1) * sizeof(*held));
    for (size_t i = 0; i < worker->held_count; i++)
        held[i] = worker->held[i]->ticket.ref;
    struct core_report *reports = sim_alloc((worker->kept_count + 1) * sizeof(*reports));
    for (size_t i = 0; i < worker->kept_count; i++) {
        reports[i] = worker->kept[i].report;
        worker->kept[i].is_sent = true;
    }
    hello->held = held;
    hello->held_count = worker->held_count;
    hello->reports = reports;
    hello->report_count = worker->kept_count;
}

/* ---- reports --------------------------------------------------------------------------------- */

static void flush(struct sim *sim, const struct sim_event *event)
{
    struct sim_worker *worker = event->p;
    if (!worker->m.is_up || worker->m.life != event->a || sim_defer(sim, &worker->m, event))
        return;
    worker->is_flush_due = false;
    if (!worker->m.conn || !worker->m.is_welcomed)
        return; /* the next welcome flushes */
    size_t count = 0;
    for (size_t i = 0; i < worker->kept_count; i++)
        count += !worker->kept[i].is_sent;
    while (count) {
        size_t part = MIN(count, (size_t)LIMIT_REPORTS_PER_MESSAGE);
        struct core_report *reports = sim_alloc(part * sizeof(*reports));
        size_t filled = 0;
        for (size_t i = 0; i < worker->kept_count && filled < part; i++) {
            if (worker->kept[i].is_sent)
                continue;
            worker->kept[i].is_sent = true;
            reports[filled++] = worker->kept[i].report;
        }
        struct sim_msg msg = {.kind = SIM_UP_REPORTS, .reports = reports, .count = part};
        sim_send_up(sim, worker->m.conn, &msg);
        count -= part;
    }
}

static void flush_soon(struct sim *sim, struct sim_worker *worker)
{
    if (worker->is_flush_due)
        return;
    worker->is_flush_due = true;
    sim_at(sim, sim->now_ns + sim_below(sim, 300) * NS_PER_US, flush, worker, NULL, worker->m.life,
           0);
}

static void report(struct sim *sim, struct sim_attempt *attempt, enum core_outcome outcome,
                   enum err_code code, const char *text)
{
    struct sim_worker *worker = attempt->worker;
    const struct core_ticket *ticket = &attempt->ticket;
    ASSERT(attempt->phase != SIM_OVER);
    attempt->phase = SIM_OVER;
    if (sim->options.bug == SIM_BUG_WORKER_NEVER_REPORTS && sim_chance(sim, 20))
        return; /* still among the held */
    for (size_t i = 0; i < worker->held_count; i++) {
        if (worker->held[i] == attempt) {
            memmove(worker->held + i, worker->held + i + 1,
                    (--worker->held_count - i) * sizeof(worker->held[0]));
            break;
        }
    }
    if (worker->kept_count == worker->kept_capacity) {
        size_t capacity = MAX(worker->kept_capacity * 2, (size_t)64);
        struct sim_kept *kept = sim_alloc(capacity * sizeof(*kept));
        if (worker->kept_count)
            memcpy(kept, worker->kept, worker->kept_count * sizeof(*kept));
        worker->kept = kept;
        worker->kept_capacity = capacity;
    }
    struct core_report made = {.ref = ticket->ref,
                               .generation = ticket->generation,
                               .outcome = outcome,
                               .code = code,
                               .text = text,
                               .is_duplicate = attempt->is_duplicate};
    struct sim_job *job = attempt->plan ? attempt->plan->job : NULL;
    if (outcome == CORE_DONE && ticket->ref.kind == CORE_EVAL && job) {
        uint64_t first = ticket->ref.step * job->eval_batch;
        made.examples = (uint32_t)MIN((uint64_t)job->eval_batch, job->eval_records - first);
        made.correct =
            (made.examples + ticket->epoch) / 2 % (made.examples + 1); /* of this epoch only */
        made.loss = made.examples;
    } else if (outcome == CORE_DONE) {
        made.examples = 1;
        made.loss = 0.5;
    }
    worker->kept[worker->kept_count++] = (struct sim_kept){made, false};
    sim_trace(sim, "%s reports %s step %llu of job %llu attempt %llx generation %llu outcome %d %s",
              worker->m.name, ticket->ref.kind ? "eval" : "train",
              (unsigned long long)ticket->ref.step, (unsigned long long)ticket->ref.job,
              (unsigned long long)ticket->ref.attempt, (unsigned long long)ticket->generation,
              (int)outcome, text ? text : "");
    flush_soon(sim, worker);
    pump(sim, worker);
}

/* ---- attempts -------------------------------------------------------------------------------- */

static bool is_past(const struct sim_attempt *attempt)
{
    return attempt->phase == SIM_OVER || !attempt->worker->m.is_up ||
           attempt->worker->m.life != attempt->life;
}

static bool is_overdue(const struct sim *sim, const struct sim_attempt *attempt)
{
    return sim->now_ns > attempt->got_ns + attempt->ticket.deadline_ms * NS_PER_MS;
}

static void push_arrives(struct sim *sim, const struct sim_event *event)
{
    struct push *push = event->p;
    if (push->server->m.is_up && push->server->m.life == push->server_life &&
        sim_defer(sim, &push->server->m, event))
        return;
    sim_server_push(sim, push->server, push->server_life, push->attempt, push->slot, push->try,
                    push->session);
}

/* No answer: the outcome is unknown, so the same push goes again, until the ticket's deadline. */
static void push_over(struct sim *sim, const struct sim_event *event)
{
    struct push *push = event->p;
    struct sim_attempt *attempt = push->attempt;
    if (is_past(attempt) || sim_defer(sim, &attempt->worker->m, event))
        return;
    if (!(attempt->slots_left & (1u << push->slot)) || attempt->tries[push->slot] != push->try)
        return;
    if (is_overdue(sim, attempt))
        report(sim, attempt, CORE_RETURNED, ERR_TIMEOUT, "a shard did not answer in time");
    else
        send_push(sim, attempt, push->slot);
}

static void send_push(struct sim *sim, struct sim_attempt *attempt, uint32_t slot)
{
    const struct sim_plan *plan = attempt->plan;
    struct push *push = sim_alloc(sizeof(*push));
    struct sim_server *server = &sim->servers[plan->servers[plan->slots[slot].server]];
    *push = (struct push){
        attempt, slot, ++attempt->tries[slot], attempt->worker->m.session, server, server->m.life};
    uint64_t delay = sim_net_delay(sim);
    if (!sim->is_healed && sim_chance(sim, sim->rates.push_late))
        delay +=
            sim_below(sim, 3ull * sim->config.lease_ms) * NS_PER_MS; /* after a fence, perhaps */
    if (sim->is_healed || !sim_chance(sim, sim->rates.push_lost))
        sim_at(sim, sim->now_ns + delay, push_arrives, push, NULL, 0, 0);
    sim_at(sim, sim->now_ns + ANSWER_NS, push_over, push, NULL, 0, 0);
}

/* Its step kills here: so many shards have answered. */
static bool is_poisoned(const struct sim_attempt *attempt)
{
    const struct sim_job *job = attempt->plan->job;
    const struct core_step_ref *ref = &attempt->ticket.ref;
    return ref->kind == CORE_TRAIN && ref->step == job->poison_step &&
           attempt->answers == MIN(job->poison_pushes, attempt->plan->slot_count);
}

static void die_of(struct sim *sim, struct sim_attempt *attempt)
{
    sim_trace(sim, "%s dies of step %llu", attempt->worker->m.name,
              (unsigned long long)attempt->ticket.ref.step);
    sim->result.losses++;
    sim_member_crash(sim, &attempt->worker->m);
}

void sim_worker_push_answer(struct sim *sim, struct sim_attempt *attempt, uint32_t slot,
                            uint32_t try, enum err_code code, bool is_duplicate)
{
    if (is_past(attempt) || !(attempt->slots_left & (1u << slot)) || attempt->tries[slot] != try)
        return;
    if (code == ERR_STALE) {
        report(sim, attempt, CORE_RETURNED, ERR_STALE, "a shard refused the push");
        return;
    }
    if (code != ERR_OK)
        return; /* not ready: tried again when the answer is overdue */
    attempt->is_duplicate = attempt->is_duplicate || is_duplicate;
    attempt->slots_left &= ~(1u << slot);
    attempt->answers++;
    if (is_poisoned(attempt)) {
        die_of(sim, attempt);
        return;
    }
    if (sim->options.bug == SIM_BUG_WORKER_REPORTS_EARLY && sim_chance(sim, 100))
        attempt->slots_left = 0;
    if (attempt->slots_left == 0)
        report(sim, attempt, CORE_DONE, ERR_OK, NULL);
}

static void computed(struct sim *sim, const struct sim_event *event)
{
    struct sim_attempt *attempt = event->p;
    struct sim_worker *worker = attempt->worker;
    if (is_past(attempt) || sim_defer(sim, &worker->m, event))
        return;
    const struct core_ticket *ticket = &attempt->ticket;
    struct sim_job *job = attempt->plan->job;
    if (ticket->ref.kind == CORE_EVAL) {
        if (sim_server_has_pin(sim, attempt->plan, ticket->pin))
            report(sim, attempt, CORE_DONE, ERR_OK, NULL);
        else
            report(sim, attempt, CORE_RETURNED, ERR_UNAVAILABLE,
                   "the pinned version cannot be read now");
    } else if (is_poisoned(attempt)) {
        die_of(sim, attempt);
    } else if (ticket->ref.step == job->fail_step && job->failed_times < job->fail_times) {
        job->failed_times++;
        report(sim, attempt, CORE_FAILED, ERR_IO, "the record cannot be read");
    } else {
        attempt->phase = SIM_PUSHING;
        attempt->slots_left = (1u << attempt->plan->slot_count) - 1;
        if (attempt->slots_left == 0)
            report(sim, attempt, CORE_DONE, ERR_OK, NULL);
        for (uint32_t slot = 0; slot < attempt->plan->slot_count && attempt->phase == SIM_PUSHING;
             slot++)
            send_push(sim, attempt, slot);
    }
}

static struct sim_plan *opened_plan(struct sim_worker *worker, uint64_t job)
{
    for (size_t i = 0; i < worker->opened_count; i++)
        if (worker->opened[i]->number == job)
            return worker->opened[i];
    return NULL;
}

static void pump(struct sim *sim, struct sim_worker *worker)
{
    size_t busy = 0;
    for (size_t i = 0; i < worker->held_count; i++)
        busy += worker->held[i]->phase != SIM_WAITING && worker->held[i]->phase != SIM_OVER;
    for (size_t i = 0; i < worker->held_count && busy < worker->lanes; i++) {
        struct sim_attempt *attempt = worker->held[i];
        if (attempt->phase != SIM_WAITING)
            continue;
        attempt->plan = opened_plan(worker, attempt->ticket.ref.job);
        if (!attempt->plan || attempt->plan->generation != attempt->ticket.generation) {
            report(sim, attempt, CORE_RETURNED, ERR_STALE,
                   "the job is not open in this generation");
            return; /* report pumped on */
        }
        attempt->phase = SIM_COMPUTING;
        busy++;
        uint64_t mean = attempt->plan->job->compute_ns;
        sim_at(sim, sim->now_ns + mean / 2 + sim_below(sim, mean), computed, attempt, NULL, 0, 0);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

static void take_tickets(struct sim *sim, struct sim_worker *worker, const struct sim_msg *msg)
{
    for (size_t i = 0; i < msg->count; i++) {
        if (worker->held_count == SIM_HELD_MAX)
            sim_fail(sim, "%s holds %d tickets and gets more", worker->m.name, SIM_HELD_MAX);
        struct sim_attempt *attempt = sim_alloc(sizeof(*attempt));
        attempt->ticket = msg->tickets[i];
        attempt->worker = worker;
        attempt->life = worker->m.life;
        attempt->got_ns = sim->now_ns;
        struct sim_plan *plan = opened_plan(worker, attempt->ticket.ref.job);
        if (!plan || plan->generation != attempt->ticket.generation)
            sim_fail(sim,
                     "%s gets a ticket of job %llu, which is not open to it in generation %llu",
                     worker->m.name, (unsigned long long)attempt->ticket.ref.job,
                     (unsigned long long)attempt->ticket.generation);
        worker->held[worker->held_count++] = attempt;
        if (worker->m.is_leaving) {
            attempt->plan = plan;
            report(sim, attempt, CORE_RETURNED, ERR_CANCELLED, "the worker is leaving");
        }
    }
    pump(sim, worker);
}

static void take_acks(struct sim_worker *worker, const struct sim_msg *msg)
{
    for (size_t a = 0; a < msg->count; a++) {
        for (size_t i = 0; i < worker->kept_count; i++) {
            if (!same_ref(&worker->kept[i].report.ref, &msg->refs[a]))
                continue;
            memmove(worker->kept + i, worker->kept + i + 1,
                    (--worker->kept_count - i) * sizeof(worker->kept[0]));
            break;
        }
    }
}

static void take_revoke(struct sim *sim, struct sim_worker *worker, const struct sim_msg *msg)
{
    for (size_t r = 0; r < msg->count; r++) {
        for (size_t i = 0; i < worker->held_count; i++) {
            struct sim_attempt *attempt = worker->held[i];
            if (!same_ref(&attempt->ticket.ref, &msg->refs[r]))
                continue;
            if (attempt->phase != SIM_WAITING)
                break; /* begun: it is finished, and its report says so */
            attempt->phase = SIM_OVER;
            memmove(worker->held + i, worker->held + i + 1,
                    (--worker->held_count - i) * sizeof(worker->held[0]));
            break;
        }
    }
    pump(sim, worker);
}

static void open_job(struct sim *sim, struct sim_worker *worker, struct sim_plan *plan)
{
    for (size_t i = 0; i < worker->opened_count; i++) {
        if (worker->opened[i]->number == plan->number) {
            worker->opened[i] = plan;
            return;
        }
    }
    if (worker->opened_count == ARRAY_SIZE(worker->opened))
        sim_fail(sim, "%s has %zu jobs open and gets one more", worker->m.name,
                 worker->opened_count);
    worker->opened[worker->opened_count++] = plan;
}

static void close_job(struct sim_worker *worker, uint64_t job)
{
    for (size_t i = 0; i < worker->opened_count; i++)
        if (worker->opened[i]->number == job)
            worker->opened[i--] = worker->opened[--worker->opened_count];
}

void sim_worker_message(struct sim *sim, struct sim_worker *worker, const struct sim_msg *msg)
{
    switch (msg->kind) {
    case SIM_DOWN_WELCOME:
        flush_soon(sim, worker);
        break;
    case SIM_DOWN_TICKETS:
        take_tickets(sim, worker, msg);
        break;
    case SIM_DOWN_ACKS:
        take_acks(worker, msg);
        break;
    case SIM_DOWN_REVOKE:
        take_revoke(sim, worker, msg);
        break;
    case SIM_DOWN_OPEN:
        open_job(sim, worker, msg->plan);
        break;
    case SIM_DOWN_CLOSE:
        close_job(worker, msg->job);
        break;
    default:
        sim_fail(sim, "%s got message %d, which is not for a worker", worker->m.name,
                 (int)msg->kind);
    }
}

/* ---- leaving --------------------------------------------------------------------------------- */

static void last_words(struct sim *sim, const struct sim_event *event)
{
    struct sim_worker *worker = event->p;
    if (!worker->m.is_up || worker->m.life != event->a || sim_defer(sim, &worker->m, event))
        return;
    if ((worker->held_count || worker->kept_count) && sim->now_ns < event->b && worker->m.conn) {
        sim_again(sim, event, sim->now_ns + 5 * NS_PER_MS);
        return;
    }
    if (worker->m.conn) {
        struct sim_msg msg = {.kind = SIM_UP_END};
        sim_send_up(sim, worker->m.conn, &msg);
        worker->m.conn = NULL; /* closed in order: what was sent arrives */
    }
    sim_member_crash(sim, &worker->m);
}

/* SIGTERM: gives back what it has not begun, finishes the rest, waits for acknowledgements, goes.
 */
void sim_worker_leave(struct sim *sim, struct sim_worker *worker)
{
    if (!worker->m.is_up || worker->m.is_leaving || !worker->m.conn || !worker->m.is_welcomed)
        return;
    worker->m.is_leaving = true;
    struct core_step_ref *refs = sim_alloc((worker->held_count + 1) * sizeof(*refs));
    size_t count = 0;
    size_t kept = 0;
    for (size_t i = 0; i < worker->held_count; i++) {
        if (worker->held[i]->phase == SIM_WAITING) {
            refs[count++] = worker->held[i]->ticket.ref;
            worker->held[i]->phase = SIM_OVER;
        } else {
            worker->held[kept++] = worker->held[i];
        }
    }
    worker->held_count = kept;
    sim_trace(sim, "%s leaves, gives back %zu", worker->m.name, count);
    struct sim_msg msg = {.kind = SIM_UP_LEAVING, .refs = refs, .count = count};
    sim_send_up(sim, worker->m.conn, &msg);
    sim_at(sim, sim->now_ns + NS_PER_MS, last_words, worker, NULL, worker->m.life,
           sim->now_ns + 500 * NS_PER_MS);
}
