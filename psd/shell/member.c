/* SPDX-License-Identifier: Apache-2.0 */
/* member: one attachment at a time; what an older one still says is not heard. */
#include "psd/shell/member.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/daemon/flags.h"
#include "common/daemon/notify.h"
#include "proto/methods.h"
#include "psd/order/ps_wire.h"
#include "psd/shell/ps_int.h"

#define REDIAL_MIN_MS 50
#define REDIAL_MAX_MS 1000
#define GOODBYE_MS                                                                                 \
    1000 /* so that two processes of one name do not chase each other in a tight loop */
#define WELCOME_MS                                                                                 \
    10000 /* a coordinator that takes the stream but says nothing is dialled anew                  \
           */
#define WAIT_LOG_MS 3000
#define LEAVE_MS    500 /* for the coordinator to end the stream after our Leaving */

struct attachment {
    struct member *member; /* NULL: not the current one any more */
    struct rpc_ccall *call;
};

struct member {
    struct ps *ps;
    struct rpc_channel *channel;
    struct attachment *now;
    uint64_t incarnation;
    uint64_t session; /* of the last Welcome, 0 for none */
    uint64_t start;   /* the coordinator's */
    uint64_t ledger;  /* whose jobs we hold; 0: nobody's */
    uint64_t sequence;
    uint32_t heartbeat_ms;
    uint64_t redial_ms;
    bool is_welcome;
    bool is_started;
    bool is_stopping;
    uint64_t waiting_since_ns;
    struct err last_err;           /* why it is not attached */
    struct loop_timer *dial_timer; /* the next dial, or the end of the wait for a Welcome */
    struct loop_timer
        *heartbeat_timer; /* or, when stopping, the end of the wait for the stream's end */
    struct loop_timer *log_timer;
    void (*on_stopped)(void *arg);
    void *on_stopped_arg;
};

static void dial(void *arg);

static uint64_t wall_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void send_message(struct member *member, const Steadfast__V1__MemberMessage *message)
{
    if (!member->now)
        return;
    /* A queue that is full or a stream that is over ends in a new attachment, which begins with a
     * Hello. */
    enum err_code code =
        rpc_csend(member->now->call, &(struct rpc_out){.message = &message->base}, NULL, NULL);
    if (code != ERR_OK)
        log_debug("coordinator.send", "code=%s", err_name(code));
}

static void send_hello(struct member *member)
{
    struct ps *ps = member->ps;
    Steadfast__V1__Hello hello = STEADFAST__V1__HELLO__INIT;
    hello.role = STEADFAST__V1__ROLE__ROLE_PS;
    hello.name = ps->name;
    hello.address = ps->address;
    hello.incarnation = member->incarnation;
    hello.session = member->session;
    hello.memory_bytes = budget_limit(ps->values);
    hello.shard_count = ps->shard_count;
    hello.version = (char *)STEADFAST_VERSION;
    hello.pid = (uint64_t)getpid();
    hello.ledger = member->ledger;
    hello.shards = ps_orders_states(ps->orders, 0, true, &hello.n_shards);
    Steadfast__V1__MemberMessage message = STEADFAST__V1__MEMBER_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__MEMBER_MESSAGE__KIND_HELLO;
    message.hello = &hello;
    send_message(member, &message);
    ps_wire_states_free(hello.shards, hello.n_shards);
}

static void on_heartbeat(void *arg)
{
    struct member *member = arg;
    Steadfast__V1__Heartbeat beat = STEADFAST__V1__HEARTBEAT__INIT;
    beat.sequence = ++member->sequence;
    beat.shards = ps_orders_states(member->ps->orders, 0, false, &beat.n_shards);
    Steadfast__V1__MemberMessage message = STEADFAST__V1__MEMBER_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__MEMBER_MESSAGE__KIND_HEARTBEAT;
    message.heartbeat = &beat;
    send_message(member, &message);
    ps_wire_states_free(beat.shards, beat.n_shards);
}

void member_answer(struct member *member, const Steadfast__V1__OrderDone *done)
{
    if (!member || !member->is_welcome || member->is_stopping)
        return;
    Steadfast__V1__MemberMessage message = STEADFAST__V1__MEMBER_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__MEMBER_MESSAGE__KIND_DONE;
    message.done = (Steadfast__V1__OrderDone *)done;
    send_message(member, &message);
}

/* ---- coming and going
 * ------------------------------------------------------------------------------ */
static void on_wait_log(void *arg)
{
    struct member *member = arg;
    struct ps *ps = member->ps;
    if (member->is_welcome)
        return;
    log_info("coordinator.wait", "waiting for %s at %s s=%.1f err=\"%s\"", ps->coordinator_name,
             ps->coordinator, (double)(clock_now_ns() - member->waiting_since_ns) / 1e9,
             member->last_err.text);
    rpc_channel_log_why(member->channel, "coordinator.unreachable", ps->coordinator_name);
    notify_status("waiting for %s at %s", ps->coordinator_name, ps->coordinator);
}

/* The current attachment is not heard from now on; its own end frees it. */
static void let_go(struct member *member)
{
    struct attachment *attachment = TAKE(member->now);
    if (attachment) {
        attachment->member = NULL;
        rpc_cancel(attachment->call);
    }
    if (member->is_welcome) {
        member->is_welcome = false;
        member->waiting_since_ns = clock_now_ns();
    }
    loop_timer_stop(member->heartbeat_timer);
}

static void dial_later(struct member *member, uint64_t ms)
{
    if (!member->is_stopping)
        loop_timer_once(member->dial_timer, ms);
}

static void redial(struct member *member)
{
    let_go(member);
    dial_later(member, member->redial_ms);
    member->redial_ms = MIN(member->redial_ms * 2, (uint64_t)REDIAL_MAX_MS);
}

static void finish_stop(struct member *member)
{
    if (!member->on_stopped)
        return;
    void (*on_stopped)(void *arg) = TAKE(member->on_stopped);
    loop_timer_stop(member->heartbeat_timer);
    on_stopped(member->on_stopped_arg);
}

static void on_stream_end(void *arg, const struct err *status, const struct rpc_in *reply)
{
    (void)reply;
    struct attachment *attachment = arg;
    struct member *member = attachment->member;
    if (member) {
        bool was_welcome = member->is_welcome;
        member->last_err = *status;
        if (status->code == ERR_OK)
            err_set(&member->last_err, ERR_UNAVAILABLE, "the coordinator ended the stream");
        if (was_welcome && !member->is_stopping)
            log_warn("coordinator.lost", "%s at %s code=%s err=\"%s\"",
                     member->ps->coordinator_name, member->ps->coordinator,
                     err_name(member->last_err.code), member->last_err.text);
        redial(member);
        if (member->is_stopping)
            finish_stop(member);
    }
    rpc_ccall_unref(attachment->call);
    free(attachment);
}

static void on_welcome(struct member *member, const Steadfast__V1__Welcome *welcome)
{
    member->session = welcome->session;
    member->start = welcome->start;
    member->ledger = welcome->ledger;
    member->heartbeat_ms = welcome->heartbeat_ms ? welcome->heartbeat_ms : DEFAULT_HEARTBEAT_MS;
    member->redial_ms = REDIAL_MIN_MS;
    member->is_welcome = true;
    loop_timer_stop(member->dial_timer);
    loop_timer_every(member->heartbeat_timer, member->heartbeat_ms);
    log_info("coordinator.attached", "%s at %s session=%" PRIu64 " start=%" PRIu64,
             member->ps->coordinator_name, member->ps->coordinator, member->session, member->start);
    notify_status("attached to %s at %s", member->ps->coordinator_name, member->ps->coordinator);
}

static void on_goodbye(struct member *member, const Steadfast__V1__Goodbye *goodbye)
{
    log_warn("coordinator.goodbye", "%s says %s: %s", member->ps->coordinator_name, goodbye->code,
             goodbye->text);
    err_set(&member->last_err, err_from_name(goodbye->code), "%s", goodbye->text);
    let_go(member);
    if (member->last_err.code == ERR_EXISTS || member->last_err.code == ERR_INVALID) {
        /* Coming back under this name would throw out the process that has it, and so on for ever. */
        if (member->ps->on_fatal)
            member->ps->on_fatal(member->ps->on_fatal_arg);
        return;
    }
    ps_orders_drop_all(member->ps->orders);
    for (uint32_t i = 0; i < member->ps->shard_count; i++)
        shard_forget_fences(member->ps->shards[i]);
    member->incarnation = MAX(wall_ns(), member->incarnation + 1);
    member->session = 0;
    member->ledger = 0;
    dial_later(member, GOODBYE_MS);
}

static void on_message(struct rpc_ccall *call, const struct rpc_in *in, void *arg)
{
    struct attachment *attachment = arg;
    struct member *member = attachment->member;
    if (!in || !member)
        return; /* on_stream_end follows */
    const Steadfast__V1__CoordMessage *message =
        (const Steadfast__V1__CoordMessage *)(const void *)in->message;
    switch (message->kind_case) {
    case STEADFAST__V1__COORD_MESSAGE__KIND_WELCOME:
        on_welcome(member, message->welcome);
        break;
    case STEADFAST__V1__COORD_MESSAGE__KIND_ORDER:
        if (member->is_welcome && !member->is_stopping)
            ps_orders_execute(member->ps->orders, member->start, message->order);
        break;
    case STEADFAST__V1__COORD_MESSAGE__KIND_GOODBYE:
        on_goodbye(member, message->goodbye);
        break;
    default: /* for workers */
        break;
    }
    if (attachment->member)
        rpc_crecv(call, on_message, attachment);
}

static void on_dial_time(void *arg)
{
    struct member *member = arg;
    if (member->now) {
        err_set(&member->last_err, ERR_TIMEOUT, "no Welcome within %d ms", WELCOME_MS);
        let_go(member);
    }
    dial(member);
}

static void dial(void *arg)
{
    struct member *member = arg;
    ASSERT(!member->now);
    struct attachment *attachment = base_alloc(sizeof(*attachment));
    struct rpc_call_options options = {.timeout_ms = UINT32_MAX, .where = RPC_ON_LOOP};
    attachment->member = member;
    enum err_code code = rpc_open(member->channel, &fleet_method_attach, NULL, &options,
                                  on_stream_end, attachment, &attachment->call, &member->last_err);
    if (code != ERR_OK) {
        free(attachment);
        redial(member);
        return;
    }
    member->now = attachment;
    send_hello(member);
    rpc_crecv(attachment->call, on_message, attachment);
    loop_timer_once(member->dial_timer, WELCOME_MS);
}

/* ---- life
 * ---------------------------------------------------------------------------------------- */
enum err_code member_new(struct ps *ps, struct member **ret_member, struct err *err)
{
    struct member *member = base_alloc(sizeof(*member));
    member->ps = ps;
    member->incarnation = wall_ns();
    member->redial_ms = REDIAL_MIN_MS;
    enum err_code code = rpc_channel_new(ps->env, ps->coordinator, NULL, &member->channel, err);
    if (code != ERR_OK) {
        free(member);
        return code;
    }
    member->dial_timer = loop_timer_new(ps->loop, on_dial_time, member);
    member->heartbeat_timer = loop_timer_new(ps->loop, on_heartbeat, member);
    member->log_timer = loop_timer_new(ps->loop, on_wait_log, member);
    *ret_member = member;
    return ERR_OK;
}

void member_start(struct member *member)
{
    member->is_started = true;
    member->waiting_since_ns = clock_now_ns();
    loop_timer_every(member->log_timer, WAIT_LOG_MS);
    dial(member);
}

/* The coordinator did not end the stream after our Leaving. */
static void on_leave_time(void *arg)
{
    struct member *member = arg;
    let_go(member);
    finish_stop(member);
}

void member_stop(struct member *member, void (*on_stopped)(void *arg), void *arg)
{
    ASSERT(member->is_started && !member->is_stopping);
    member->is_stopping = true;
    member->on_stopped = on_stopped;
    member->on_stopped_arg = arg;
    loop_timer_stop(member->dial_timer);
    loop_timer_stop(member->log_timer);
    loop_timer_free(member->heartbeat_timer);
    member->heartbeat_timer = loop_timer_new(member->ps->loop, on_leave_time, member);
    if (!member->is_welcome) {
        let_go(member);
        finish_stop(member);
        return;
    }
    Steadfast__V1__Leaving leaving = STEADFAST__V1__LEAVING__INIT;
    leaving.reason = (char *)"stopped";
    Steadfast__V1__MemberMessage message = STEADFAST__V1__MEMBER_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__MEMBER_MESSAGE__KIND_LEAVING;
    message.leaving = &leaving;
    send_message(member, &message);
    rpc_cclose_send(member->now->call);
    loop_timer_once(member->heartbeat_timer, LEAVE_MS);
}

void member_free(struct member *member)
{
    if (!member)
        return;
    ASSERT(!member->now);
    loop_timer_free(member->dial_timer);
    loop_timer_free(member->heartbeat_timer);
    loop_timer_free(member->log_timer);
    rpc_channel_free(member->channel);
    free(member);
}
