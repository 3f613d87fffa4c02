/* SPDX-License-Identifier: Apache-2.0 */
/* session: the states of the stream, and what the coordinator says into calls of step_run. */
#include "workerd/shell/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/loop/loop.h"
#include "common/rpc/rpc.h"
#include "proto/methods.h"
#include "workerd/shell/session_int.h"
#include "workerd/shell/step_wire.h"
#include "workerd/step/step_jobs.h"
#include "workerd/step/step_report.h"
#include "workerd/step/step_run.h"

#define BACKOFF_MIN_MS   50u
#define BACKOFF_MAX_MS   500u
#define WELCOME_MS       5000u /* a coordinator that accepts and says nothing */
#define HEARTBEAT_MIN_MS 10u
#define SAY_AGAIN_NS     (5 * NS_PER_S)

static void dial(void *arg);

static uint64_t wall_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* ---- in -----------------------------------------------------------------------------------------
 */
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
    step_jobs_close_idle(session->run);
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
        struct step_ticket ticket = step_wire_ticket(batch->tickets[i], session->number);
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
    session_leave_on_goodbye(session);
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
            struct step_key key = step_wire_key(message->acks->steps[i]);
            step_report_ack(session->run, &key);
        }
        break;
    case STEADFAST__V1__COORD_MESSAGE__KIND_REVOKE:
        for (size_t i = 0; is_attached && i < message->revoke->n_steps; i++) {
            struct step_key key = step_wire_key(message->revoke->steps[i]);
            step_run_revoke(session->run, &key);
        }
        break;
    case STEADFAST__V1__COORD_MESSAGE__KIND_OPEN:
        if (is_attached)
            step_jobs_open(session->run, message->open);
        break;
    case STEADFAST__V1__COORD_MESSAGE__KIND_CLOSE:
        if (is_attached)
            step_jobs_close(session->run, message->close->job);
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
             step_run_begun_count(session->run), step_report_unacked_count(session->run), why);
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
        session_leave_done(session);
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
    session_out_hello(session);
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
    session->heartbeat = loop_timer_new(loop, session_out_heartbeat, session);
    session->leave_timer = loop_timer_new(loop, session_leave_on_timer, session);
    session->incarnation = wall_ns();
    *ret_session = session;
    return ERR_OK;
}

void session_flush(struct session *session)
{
    session_out_reports(session);
    session_leave_if_ready(session);
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
