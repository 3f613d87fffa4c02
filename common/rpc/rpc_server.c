/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_server: listening, and the drain.
 *
 *   new --add, listen--> new --start--> serving --drain--> draining --last call gone--> drained
 *
 * A drain refuses new calls at once, cancels what is left after grace_ms, and is done when gRPC
 * says that no call is left.
 */
#include <grpc/grpc.h>
#include <grpc/support/time.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/rpc/rpc_server_int.h"

#define DEFAULT_GRACE_MS    2000
#define DEFAULT_PING_MIN_MS 200
#define ARMED_PER_METHOD    16 /* waiting requests; a burst beyond them queues inside gRPC */
#define ARMED_UNKNOWN       4

struct rpc_server {
    struct rpc_env *env;
    grpc_server *grpc;
    struct rpc_listener *listener;
    struct rpc_table *table;
    struct rpc_server_options options;
    bool is_started;
    bool has_drain; /* drain was asked for; owner's thread */
    atomic_bool is_drained;

    /* io thread, while draining */
    struct rpc_watch grace;
    gpr_timespec grace_end;
    bool is_grace_over;

    struct rpc_ev drain_ev;
    struct rpc_op shutdown_op;
    struct rpc_ev drained_ev;
    void (*on_done)(void *arg);
    void *arg;
};

static grpc_arg int_arg(const char *key, int value)
{
    return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = value};
}

static void on_shutdown(struct rpc_op *op, bool ok);
static void start_drain(struct rpc_ev *ev);
static void run_drained(struct rpc_ev *ev);
static gpr_timespec check_grace(struct rpc_watch *watch, gpr_timespec now);

enum err_code rpc_server_new(struct rpc_env *env, const struct rpc_server_options *options,
                             struct rpc_server **ret_server, struct err *err)
{
    (void)err; /* nothing can fail today; the contract keeps the place */
    struct rpc_server *server = base_alloc(sizeof(*server));
    server->env = env;
    if (options)
        server->options = *options;
    if (!server->options.grace_ms)
        server->options.grace_ms = DEFAULT_GRACE_MS;
    if (!server->options.ping_min_ms)
        server->options.ping_min_ms = DEFAULT_PING_MIN_MS;
    server->drain_ev.run = start_drain;
    server->shutdown_op.on_complete = on_shutdown;
    server->drained_ev.run = run_drained;
    server->grace.check = check_grace;

    grpc_arg list[] = {
        int_arg(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1), /* none: no bombs */
        int_arg(GRPC_ARG_HTTP2_BDP_PROBE, 0),
        int_arg(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, LIMIT_RPC_WINDOW_BYTES),
        int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, LIMIT_RPC_MESSAGE_BYTES),
        int_arg(GRPC_ARG_MAX_CONCURRENT_STREAMS, LIMIT_RPC_STREAMS),
        /* Our own pings find a peer whose machine is gone; else its streams would never end. */
        int_arg(GRPC_ARG_KEEPALIVE_TIME_MS, DEFAULT_RPC_SERVER_PING_MS),
        int_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, DEFAULT_RPC_SERVER_PING_MS),
        /* Without these a client's keepalive ends in GOAWAY "too_many_pings". */
        int_arg(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        int_arg(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                (int)server->options.ping_min_ms),
        int_arg(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0),
        int_arg(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
    };
    grpc_channel_args args = {ARRAY_SIZE(list), list};
    server->grpc = grpc_server_create(&args, NULL);
    grpc_server_register_completion_queue(server->grpc, env->cq, NULL);
    server->listener = rpc_listener_new(server->grpc);
    server->table = rpc_table_new(env, server->grpc, server->listener);
    *ret_server = server;
    return ERR_OK;
}

void rpc_server_add(struct rpc_server *server, const struct rpc_method *methods, size_t count)
{
    ASSERT(!server->is_started);
    rpc_table_add(server->table, methods, count);
}

void rpc_server_add_method(struct rpc_server *server, const struct rpc_method *method,
                           void (*on_call)(struct rpc_call *call, const struct rpc_in *request,
                                           void *arg),
                           void *arg)
{
    struct rpc_method row = *method;
    row.on_call = on_call;
    row.arg = arg;
    rpc_server_add(server, &row, 1);
}

const char *rpc_server_service(const struct rpc_server *server, size_t index)
{
    return rpc_table_service(server->table, index);
}

enum err_code rpc_server_listen(struct rpc_server *server, const char *address, uint16_t *ret_port,
                                struct err *err)
{
    ASSERT(!server->is_started);
    return rpc_listener_add(server->listener, address, ret_port, err);
}

void rpc_server_start(struct rpc_server *server)
{
    ASSERT(!server->is_started);
    server->is_started = true;
    rpc_table_register(server->table);
    grpc_server_start(server->grpc);
    for (size_t i = 0; i < server->table->method_count; i++)
        for (int n = 0; n < ARMED_PER_METHOD; n++)
            rpc_call_arm(server->table, i);
    for (int n = 0; n < ARMED_UNKNOWN; n++)
        rpc_unknown_arm(server->table);
    rpc_listener_start(server->listener);
}

/* ---- draining -------------------------------------------------------------------------------- */
void rpc_server_drain(struct rpc_server *server, void (*on_done)(void *arg), void *arg)
{
    ASSERT(server->is_started && !server->has_drain);
    server->has_drain = true;
    server->on_done = on_done;
    server->arg = arg;
    rpc_ev_post(server->env, RPC_INLINE, &server->drain_ev);
}

/* io thread */
static void start_drain(struct rpc_ev *ev)
{
    struct rpc_server *server = CONTAINER_OF(ev, struct rpc_server, drain_ev);
    struct rpc_env *env = server->env;
    server->grace_end = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                     gpr_time_from_millis(server->options.grace_ms, GPR_TIMESPAN));
    rpc_listener_stop(server->listener);
    rpc_env_watch(env, &server->grace);
    tsan_release(&server->shutdown_op);
    grpc_server_shutdown_and_notify(server->grpc, env->cq, &server->shutdown_op);
}

/* io thread: cancels what outlived the grace period. */
static gpr_timespec check_grace(struct rpc_watch *watch, gpr_timespec now)
{
    struct rpc_server *server = CONTAINER_OF(watch, struct rpc_server, grace);
    if (!server->is_grace_over && gpr_time_cmp(now, server->grace_end) < 0)
        return server->grace_end;
    if (!server->is_grace_over)
        grpc_server_cancel_all_calls(server->grpc);
    server->is_grace_over = true;
    return gpr_inf_future(GPR_CLOCK_MONOTONIC);
}

static void on_shutdown(struct rpc_op *op, bool ok)
{
    (void)ok;
    struct rpc_server *server = CONTAINER_OF(op, struct rpc_server, shutdown_op);
    rpc_env_unwatch(server->env, &server->grace);
    rpc_ev_deliver(server->env, server->env->loop ? RPC_ON_LOOP : RPC_INLINE, &server->drained_ev);
}

static void run_drained(struct rpc_ev *ev)
{
    struct rpc_server *server = CONTAINER_OF(ev, struct rpc_server, drained_ev);
    atomic_store(&server->is_drained, true);
    if (server->on_done)
        server->on_done(server->arg);
}

struct quick_stop { /* of a server that never started: nothing to wait for but gRPC's word */
    struct rpc_op op;
    pthread_mutex_t lock; /* guards is_done */
    pthread_cond_t done;
    bool is_done;
};

static void on_quick_stop(struct rpc_op *op, bool ok)
{
    (void)ok;
    struct quick_stop *stop = CONTAINER_OF(op, struct quick_stop, op);
    pthread_mutex_lock(&stop->lock);
    stop->is_done = true;
    pthread_cond_signal(&stop->done);
    pthread_mutex_unlock(&stop->lock);
}

void rpc_server_free(struct rpc_server *server)
{
    if (!server)
        return;
    if (!server->is_started) {
        struct quick_stop stop = {.op.on_complete = on_quick_stop,
                                  .lock = PTHREAD_MUTEX_INITIALIZER,
                                  .done = PTHREAD_COND_INITIALIZER};
        tsan_release(&stop.op);
        grpc_server_shutdown_and_notify(server->grpc, server->env->cq, &stop.op);
        pthread_mutex_lock(&stop.lock);
        while (!stop.is_done)
            pthread_cond_wait(&stop.done, &stop.lock);
        pthread_mutex_unlock(&stop.lock);
    } else {
        ASSERT(atomic_load(&server->is_drained));
    }
    rpc_listener_free(server->listener);
    server->table->grpc = NULL; /* nothing is armed any more */
    grpc_server_destroy(server->grpc);
    rpc_table_unref(server->table);
    free(server);
}
