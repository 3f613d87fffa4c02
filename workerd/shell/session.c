/* SPDX-License-Identifier: Apache-2.0 */
/* session: the states of the stream, and messages of proto/fleet into calls of step_run and back.
 */
#include "workerd/shell/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/daemon/flags.h"
#include "common/loop/loop.h"
#include "common/rpc/rpc.h"
#include "proto/methods.h"
#include "workerd/step/step_run.h"

#define BACKOFF_MIN_MS   50u
#define BACKOFF_MAX_MS   500u
#define WELCOME_MS       5000u /* a coordinator that accepts and says nothing */
#define HEARTBEAT_MIN_MS 10u
#define LEAVE_FINISH_MS                                                                            \
    5000u                     /* a running step may take this long; preemption notices leave 30 s  \
                               */
#define LEAVE_ANSWER_MS 1000u /* one round trip and a group commit, many times over */
#define SAY_AGAIN_NS    (5 * NS_PER_S)
#define HELLO_LIST_MAX  ((size_t)4 * LIMIT_CREDIT_MAX) /* the coordinator's bound on each list */

enum session_state {
    SESSION_IDLE,
    SESSION_DIALING,
    SESSION_GREETED,
    SESSION_ATTACHED,
    SESSION_BROKEN
};
enum leave_state { LEAVE_NOT, LEAVE_FINISHING, LEAVE_ANSWER, LEAVE_DONE };

struct session {
    struct loop *loop;
    struct step_run *run;
    struct session_options options;
    struct rpc_channel *channel;
    struct rpc_ccall *call; /* NULL: no stream */
    enum session_state state;
    struct loop_timer *timer;     /* DIALING, GREETED: no Welcome; BROKEN: dial again */
    struct loop_timer *heartbeat; /* ATTACHED */
    struct loop_timer *leave_timer;
    uint64_t incarnation;
    uint64_t number; /* session of the last Welcome */
    uint64_t start;  /* of the coordinator */
    uint64_t ledger; /* whose steps we hold; 0: nobody's */
    uint64_t sequence;
    uint32_t tries;
    uint64_t silent_since_ns; /* when the wait for the coordinator began */
    struct log_limit limit;
    bool is_goodbye; /* the stream's end is expected */
    enum leave_state leave;
    const char *leave_reason;
    struct step_key *leave_keys;
    size_t leave_key_count;
    bool is_stopping;
    void (*on_stopped)(void *arg);
    void *on_stopped_arg;
    struct step_report reports[LIMIT_REPORTS_PER_MESSAGE]; /* scratch of session_flush */
    Steadfast__V1__StepReport wire[LIMIT_REPORTS_PER_MESSAGE];
    Steadfast__V1__StepReport *wire_ptrs[LIMIT_REPORTS_PER_MESSAGE];
};

static void dial(void *arg);
static void leave_if_ready(struct session *session);

static uint64_t wall_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* ---- out ----------------------------------------------------------------------------------------
 */
/* A stream that takes nothing any more is of no use: its end brings the next one. */
static bool send_message(struct session *session, const Steadfast__V1__MemberMessage *message)
{
    struct rpc_out out = {.message = &message->base};
    enum err_code code = rpc_csend(session->call, &out, NULL, NULL);
    if (code == ERR_OK)
        return true;
    if (code == ERR_FULL)
        log_warn("coordinator.slow", "address=%s the stream's queue is full; dialling again",
                 session->options.coordinator);
    rpc_cancel(session->call);
    return false;
}

static void fill_ref(Steadfast__V1__StepRef *ref, const struct step_key *key)
{
    steadfast__v1__step_ref__init(ref);
    ref->job = key->job;
    ref->step = key->step;
    ref->attempt = key->attempt;
    ref->kind =
        key->is_eval ? STEADFAST__V1__STEP_KIND__STEP_EVAL : STEADFAST__V1__STEP_KIND__STEP_TRAIN;
}

static void fill_report(Steadfast__V1__StepReport *wire, const struct step_report *report)
{
    steadfast__v1__step_report__init(wire);
    wire->job = report->key.job;
    wire->step = report->key.step;
    wire->attempt = report->key.attempt;
    wire->generation = report->generation;
    wire->kind = report->key.is_eval ? STEADFAST__V1__STEP_KIND__STEP_EVAL
                                     : STEADFAST__V1__STEP_KIND__STEP_TRAIN;
    wire->outcome = (Steadfast__V1__StepOutcome)report->outcome;
    wire->loss = report->loss;
    wire->examples = report->examples;
    wire->correct = report->correct;
    if (report->outcome != OUTCOME_DONE)
        wire->code = (char *)err_name(report->code);
    wire->text = (char *)report->text;
    wire->compute_us = report->compute_us;
    wire->exchange_us = report->exchange_us;
    wire->input_us = report->input_us;
    wire->staleness = report->staleness;
    wire->duplicate = report->is_duplicate;
}

/* An array of pointers to messages, which is how protobuf-c wants a repeated field. */
#define POINT_AT(ptrs, items, count)                                                               \
    for (size_t at_ = 0; at_ < (count); at_++)                                                     \
    (ptrs)[at_] = &(items)[at_]

static void send_hello(struct session *session)
{
    AUTO_MEM struct step_key *keys = base_alloc(HELLO_LIST_MAX * sizeof(*keys));
    AUTO_MEM struct step_report *reports = base_alloc(HELLO_LIST_MAX * sizeof(*reports));
    size_t held_count = step_run_held(session->run, keys, HELLO_LIST_MAX);
    size_t report_count = step_run_reports_for_hello(session->run, reports, HELLO_LIST_MAX);
    AUTO_MEM Steadfast__V1__StepRef *refs = base_alloc(held_count * sizeof(*refs));
    AUTO_MEM Steadfast__V1__StepRef **ref_ptrs = base_alloc(held_count * sizeof(*ref_ptrs));
    AUTO_MEM Steadfast__V1__StepReport *wire = base_alloc(report_count * sizeof(*wire));
    AUTO_MEM Steadfast__V1__StepReport **wire_ptrs = base_alloc(report_count * sizeof(*wire_ptrs));
    for (size_t i = 0; i < held_count; i++)
        fill_ref(&refs[i], &keys[i]);
    for (size_t i = 0; i < report_count; i++)
        fill_report(&wire[i], &reports[i]);
    POINT_AT(ref_ptrs, refs, held_count);
    POINT_AT(wire_ptrs, wire, report_count);

    Steadfast__V1__Device device = STEADFAST__V1__DEVICE__INIT;
    device.name = (char *)session->options.device;
    device.memory_bytes = session->options.memory_bytes;
    Steadfast__V1__Device *devices[] = {&device};
    Steadfast__V1__Hello hello = STEADFAST__V1__HELLO__INIT;
    hello.role = STEADFAST__V1__ROLE__ROLE_WORKER;
    hello.name = (char *)session->options.name;
    hello.address = (char *)session->options.address;
    hello.incarnation = session->incarnation;
    hello.session = session->number;
    hello.n_devices = ARRAY_SIZE(devices);
    hello.devices = devices;
    hello.memory_bytes = session->options.memory_bytes;
    hello.version = (char *)STEADFAST_VERSION;
    hello.n_held = held_count;
    hello.held = ref_ptrs;
    hello.n_reports = report_count;
    hello.reports = wire_ptrs;
    hello.pid = (uint64_t)getpid();
    hello.ledger = session->ledger;
    Steadfast__V1__MemberMessage message = STEADFAST__V1__MEMBER_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__MEMBER_MESSAGE__KIND_HELLO;
    message.hello = &hello;
    send_message(session, &message);
}

void session_flush(struct session *session)
{
    size_t count;
    while (session->state == SESSION_ATTACHED && session->leave != LEAVE_ANSWER &&
           (count = step_run_take_reports(session->run, session->reports,
                                          LIMIT_REPORTS_PER_MESSAGE)) > 0) {
        for (size_t i = 0; i < count; i++)
            fill_report(&session->wire[i], &session->reports[i]);
        POINT_AT(session->wire_ptrs, session->wire, count);
        Steadfast__V1__ReportBatch batch = STEADFAST__V1__REPORT_BATCH__INIT;
        batch.n_reports = count;
        batch.reports = session->wire_ptrs;
        Steadfast__V1__MemberMessage message = STEADFAST__V1__MEMBER_MESSAGE__INIT;
        message.kind_case = STEADFAST__V1__MEMBER_MESSAGE__KIND_REPORTS;
        message.reports = &batch;
        if (!send_message(session, &message))
            return; /* the next Hello says them again */
    }
    leave_if_ready(session);
}

struct down_list {
    Steadfast__V1__ServerDown items[LIMIT_SERVERS];
    Steadfast__V1__ServerDown *ptrs[LIMIT_SERVERS];
    size_t count;
};

static void add_down(void *arg, const struct ps_link *link)
{
    struct down_list *list = arg;
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].server, link->name) == 0)
            return; /* of another job */
    if (list->count == LIMIT_SERVERS)
        return;
    Steadfast__V1__ServerDown *down = &list->items[list->count];
    steadfast__v1__server_down__init(down);
    down->server = (char *)link->name;
    down->text = (char *)link->why.text;
    list->ptrs[list->count++] = down;
}

static void send_heartbeat(void *arg)
{
    struct session *session = arg;
    struct down_list down;
    down.count = 0;
    step_run_unreachable(session->run, add_down, &down);
    Steadfast__V1__Heartbeat heartbeat = STEADFAST__V1__HEARTBEAT__INIT;
    heartbeat.sequence = ++session->sequence;
    heartbeat.n_unreachable = down.count;
    heartbeat.unreachable = down.ptrs;
    Steadfast__V1__MemberMessage message = STEADFAST__V1__MEMBER_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__MEMBER_MESSAGE__KIND_HEARTBEAT;
    message.heartbeat = &heartbeat;
    if (session->state == SESSION_ATTACHED && session->leave != LEAVE_ANSWER)
        send_message(session, &message);
}

/* ---- leaving ------------------------------------------------------------------------------------
 */
static void left(struct session *session)
{
    if (session->leave == LEAVE_DONE)
        return;
    session->leave = LEAVE_DONE;
    loop_timer_stop(session->leave_timer);
    session->options.on_left(session->options.arg);
}

static void send_leaving(struct session *session)
{
    size_t count = session->leave_key_count;
    AUTO_MEM Steadfast__V1__StepRef *refs = base_alloc(count * sizeof(*refs));
    AUTO_MEM Steadfast__V1__StepRef **ptrs = base_alloc(count * sizeof(*ptrs));
    for (size_t i = 0; i < count; i++)
        fill_ref(&refs[i], &session->leave_keys[i]);
    POINT_AT(ptrs, refs, count);
    Steadfast__V1__Leaving leaving = STEADFAST__V1__LEAVING__INIT;
    leaving.n_returned = count;
    leaving.returned = ptrs;
    leaving.reason = (char *)session->leave_reason;
    Steadfast__V1__MemberMessage message = STEADFAST__V1__MEMBER_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__MEMBER_MESSAGE__KIND_LEAVING;
    message.leaving = &leaving;
    if (send_message(session, &message))
        rpc_cclose_send(
            session->call); /* the coordinator ends the stream when it has read it all */
}

/* Reports went first: session_flush calls this after it has sent them. */
static void leave_if_ready(struct session *session)
{
    if (session->leave != LEAVE_FINISHING || step_run_begun_count(session->run) > 0 ||
        session->state != SESSION_ATTACHED)
        return;
    session->leave = LEAVE_ANSWER;
    loop_timer_once(session->leave_timer, LEAVE_ANSWER_MS);
    send_leaving(session);
}

static void on_leave_timer(void *arg)
{
    struct session *session = arg;
    if (session->leave == LEAVE_FINISHING && session->state == SESSION_ATTACHED) {
        /* What still runs may be issued again: its pushes are answered "done before" where it came
         * through. */
        log_warn("leave.unfinished", "steps=%zu still run after %u ms; they are returned",
                 step_run_begun_count(session->run), LEAVE_FINISH_MS);
        session->leave_key_count +=
            step_run_held(session->run, session->leave_keys + session->leave_key_count,
                          2 * STEP_RUN_HELD_MAX - session->leave_key_count);
        session->leave = LEAVE_ANSWER;
        loop_timer_once(session->leave_timer, LEAVE_ANSWER_MS);
        send_leaving(session);
        return;
    }
    log_warn("leave.unanswered", "address=%s unacknowledged=%zu: leaving without an answer",
             session->options.coordinator, step_run_unacked_count(session->run));
    left(session);
}

void session_leave(struct session *session, const char *reason)
{
    if (session->leave != LEAVE_NOT)
        return;
    session->leave = LEAVE_FINISHING;
    session->leave_reason = reason;
    session->leave_keys = base_alloc(2 * STEP_RUN_HELD_MAX * sizeof(*session->leave_keys));
    session->leave_key_count = step_run_stop(session->run, session->leave_keys, STEP_RUN_HELD_MAX);
    log_info("leave.begin", "reason=%s returned=%zu running=%zu", reason, session->leave_key_count,
             step_run_begun_count(session->run));
    bool is_running = step_run_begun_count(session->run) > 0;
    if (session->state != SESSION_ATTACHED && !is_running && session->leave_key_count == 0 &&
        step_run_unacked_count(session->run) == 0) {
        left(session); /* there is nothing to say, and nobody who listens */
        return;
    }
    bool is_worth_waiting = session->state == SESSION_ATTACHED || is_running;
    loop_timer_once(session->leave_timer, is_worth_waiting ? LEAVE_FINISH_MS : LEAVE_ANSWER_MS);
}

/* ---- in -----------------------------------------------------------------------------------------
 */
static struct step_key key_of(const Steadfast__V1__StepRef *ref)
{
    return (struct step_key){.job = ref->job,
                             .step = ref->step,
                             .attempt = ref->attempt,
                             .is_eval = ref->kind == STEADFAST__V1__STEP_KIND__STEP_EVAL};
}

static void on_welcome(struct session *session, const Steadfast__V1__Welcome *welcome)
{
    if (session->state != SESSION_GREETED)
        return;
    uint64_t waited_ms = (clock_now_ns() - session->silent_since_ns) / NS_PER_MS;
    session->state = SESSION_ATTACHED;
    session->number = welcome->session;
    session->start = welcome->start;
    session->ledger = welcome->ledger;
    session->tries = 0;
    loop_timer_stop(session->timer);
    step_run_close_idle_jobs(session->run);
    uint32_t period_ms = welcome->heartbeat_ms ? welcome->heartbeat_ms : DEFAULT_HEARTBEAT_MS;
    loop_timer_every(session->heartbeat, MAX(period_ms, HEARTBEAT_MIN_MS));
    log_info("coordinator.attached",
             "address=%s worker=%s session=%" PRIu64 " start=%" PRIu64 " waited_ms=%" PRIu64,
             session->options.coordinator, session->options.name, session->number, session->start,
             waited_ms);
}

static void on_tickets(struct session *session, const Steadfast__V1__TicketBatch *batch)
{
    for (size_t i = 0; i < batch->n_tickets; i++) {
        const Steadfast__V1__StepTicket *from = batch->tickets[i];
        struct step_ticket ticket = {
            .key = {.job = from->job,
                    .step = from->step,
                    .attempt = from->attempt,
                    .is_eval = from->kind == STEADFAST__V1__STEP_KIND__STEP_EVAL},
            .generation = from->generation,
            .epoch = from->epoch,
            .batch = from->batch,
            .pin = from->pin,
            .deadline_ms = from->deadline_ms,
            .session = session->number,
        };
        step_run_ticket(session->run, &ticket);
    }
}

static void on_goodbye(struct session *session, const Steadfast__V1__Goodbye *goodbye)
{
    enum err_code code = err_from_name(goodbye->code);
    log_warn("coordinator.goodbye", "worker=%s session=%" PRIu64 " code=%s err=\"%s\"",
             session->options.name, session->number, goodbye->code, goodbye->text);
    session->is_goodbye = true;
    step_run_drop_all(session->run);
    session->incarnation = MAX(wall_ns(), session->incarnation + 1);
    session->number = 0;
    session->ledger = 0;
    if (session->leave == LEAVE_FINISHING)
        session->leave = LEAVE_ANSWER; /* there is nothing left to say */
    rpc_cancel(session->call);
    if (code == ERR_EXISTS || code == ERR_INVALID) {
        struct err err;
        err_set(&err, code, "the coordinator at %s refuses %s: %s", session->options.coordinator,
                session->options.name, goodbye->text);
        session->options.on_fatal(session->options.arg, &err);
    }
}

static void on_message(struct rpc_ccall *call, const struct rpc_in *in, void *arg)
{
    struct session *session = arg;
    if (!in || session->is_goodbye || session->is_stopping)
        return; /* the end follows */
    const Steadfast__V1__CoordMessage *message = (const Steadfast__V1__CoordMessage *)in->message;
    bool is_attached = session->state == SESSION_ATTACHED;
    switch (message->kind_case) {
    case STEADFAST__V1__COORD_MESSAGE__KIND_WELCOME:
        on_welcome(session, message->welcome);
        break;
    case STEADFAST__V1__COORD_MESSAGE__KIND_TICKETS:
        if (is_attached)
            on_tickets(session, message->tickets);
        break;
    case STEADFAST__V1__COORD_MESSAGE__KIND_ACKS:
        for (size_t i = 0; is_attached && i < message->acks->n_steps; i++) {
            struct step_key key = key_of(message->acks->steps[i]);
            step_run_ack(session->run, &key);
        }
        break;
    case STEADFAST__V1__COORD_MESSAGE__KIND_REVOKE:
        for (size_t i = 0; is_attached && i < message->revoke->n_steps; i++) {
            struct step_key key = key_of(message->revoke->steps[i]);
            step_run_revoke(session->run, &key);
        }
        break;
    case STEADFAST__V1__COORD_MESSAGE__KIND_OPEN:
        if (is_attached)
            step_run_open_job(session->run, message->open);
        break;
    case STEADFAST__V1__COORD_MESSAGE__KIND_CLOSE:
        if (is_attached)
            step_run_close_job(session->run, message->close->job);
        break;
    case STEADFAST__V1__COORD_MESSAGE__KIND_GOODBYE:
        on_goodbye(session, message->goodbye);
        return;
    case STEADFAST__V1__COORD_MESSAGE__KIND_ORDER:
    case STEADFAST__V1__COORD_MESSAGE__KIND__NOT_SET:
    default:
        log_debug("coordinator.odd", "kind=%d is not for a worker", (int)message->kind_case);
        break;
    }
    rpc_crecv(call, on_message, session);
}

/* ---- the stream ---------------------------------------------------------------------------------
 */
static void say_waiting(struct session *session, const char *why)
{
    uint64_t dropped;
    if (!log_limit_pass(&session->limit, SAY_AGAIN_NS, &dropped))
        return;
    log_warn("coordinator.waiting",
             "address=%s worker=%s since_ms=%" PRIu64 " held=%zu unacknowledged=%zu err=\"%s\"",
             session->options.coordinator, session->options.name,
             (uint64_t)((clock_now_ns() - session->silent_since_ns) / NS_PER_MS),
             step_run_begun_count(session->run), step_run_unacked_count(session->run), why);
    rpc_channel_log_why(session->channel, "coordinator.unreachable", "coordinator");
}

static void on_end(void *arg, const struct err *status, const struct rpc_in *reply)
{
    (void)reply;
    struct session *session = arg;
    rpc_ccall_unref(TAKE(session->call));
    loop_timer_stop(session->timer);
    loop_timer_stop(session->heartbeat);
    bool was_attached = session->state == SESSION_ATTACHED;
    session->state = SESSION_BROKEN;
    if (session->is_stopping) {
        session->on_stopped(session->on_stopped_arg);
        return;
    }
    if (session->leave == LEAVE_ANSWER) {
        left(session);
        return;
    }
    if (session->leave == LEAVE_DONE)
        return;
    if (was_attached)
        session->silent_since_ns = clock_now_ns();
    if (!session->is_goodbye)
        say_waiting(session, status->code == ERR_OK ? "it ended the stream" : status->text);
    session->is_goodbye = false;
    uint32_t wait_ms = MIN(BACKOFF_MIN_MS << MIN(session->tries, 4u), BACKOFF_MAX_MS);
    session->tries++;
    loop_timer_once(session->timer, wait_ms);
}

static void on_timer(void *arg)
{
    struct session *session = arg;
    if (session->state == SESSION_BROKEN) {
        dial(session);
        return;
    }
    log_warn("coordinator.silent", "address=%s no Welcome after %u ms; dialling again",
             session->options.coordinator, WELCOME_MS);
    rpc_cancel(session->call);
}

static void dial(void *arg)
{
    struct session *session = arg;
    session->state = SESSION_DIALING;
    struct rpc_call_options options = {.timeout_ms = UINT32_MAX, .where = RPC_ON_LOOP};
    struct err err;
    if (rpc_open(session->channel, &fleet_method_attach, NULL, &options, on_end, session,
                 &session->call, &err) != ERR_OK) {
        say_waiting(session, err.text);
        session->state = SESSION_BROKEN;
        loop_timer_once(session->timer, BACKOFF_MAX_MS);
        return;
    }
    loop_timer_once(session->timer, WELCOME_MS);
    session->state = SESSION_GREETED;
    send_hello(session);
    rpc_crecv(session->call, on_message, session);
}

enum err_code session_new(struct loop *loop, struct rpc_env *rpc, struct step_run *run,
                          const struct session_options *options, struct session **ret_session,
                          struct err *err)
{
    struct rpc_channel *channel = NULL;
    enum err_code code = rpc_channel_new(rpc, options->coordinator, NULL, &channel, err);
    if (code != ERR_OK) {
        err_prefix(err, "coordinator");
        return code;
    }
    struct session *session = base_alloc(sizeof(*session));
    session->loop = loop;
    session->run = run;
    session->options = *options;
    session->channel = channel;
    session->timer = loop_timer_new(loop, on_timer, session);
    session->heartbeat = loop_timer_new(loop, send_heartbeat, session);
    session->leave_timer = loop_timer_new(loop, on_leave_timer, session);
    session->incarnation = wall_ns();
    *ret_session = session;
    return ERR_OK;
}

void session_start(struct session *session)
{
    ASSERT(session->state == SESSION_IDLE);
    session->silent_since_ns = clock_now_ns();
    dial(session);
}

void session_stop(struct session *session, void (*on_done)(void *arg), void *arg)
{
    session->is_stopping = true;
    session->on_stopped = on_done;
    session->on_stopped_arg = arg;
    loop_timer_stop(session->timer);
    loop_timer_stop(session->heartbeat);
    loop_timer_stop(session->leave_timer);
    if (session->call)
        rpc_cancel(session->call);
    else
        on_done(arg);
}

void session_free(struct session *session)
{
    if (!session)
        return;
    ASSERT(!session->call);
    loop_timer_free(session->timer);
    loop_timer_free(session->heartbeat);
    loop_timer_free(session->leave_timer);
    rpc_channel_free(session->channel);
    free(session->leave_keys);
    free(session);
}
