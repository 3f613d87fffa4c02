/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_env: the io thread, the bridge to the loop thread, and gRPC's own start and stop.
 *
 * The io thread sits in the completion queue. What belongs on the loop goes through a lock-free
 * list and a uv_async that is rung when the list was empty. What another thread wants run on the io
 * thread becomes an empty batch on a call that exists only for that.
 */
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/rpc/rpc_int.h"

#define FILES_AT_START 8 /* gRPC 1.51 takes 4, and aborts when it gets none */

void rpc_process_init(void)
{
    /* A first touch of a fresh page costs more than moving its bytes through a socket: keep what
     * was freed instead of giving it back, and have one arena, because the heaps of the others
     * cannot hold large blocks. */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_ARENA_MAX, 1);
    signal(SIGPIPE, SIG_IGN);
    /* gRPC's listener does not come back from a shortage of descriptors: have all that are allowed. */
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    /* glibc's resolver: it follows what the machine's administrator configured, and c-ares leaks a
     * little with each name from the hosts file. The variable is gRPC's only switch for it. */
    setenv("GRPC_DNS_RESOLVER", "native", 0);
}

static void on_grpc_log(gpr_log_func_args *args)
{
    /* What gRPC says before it aborts is the only trace of that. */
    if (strncmp(args->message, "assertion failed", 16) == 0)
        log_error("grpc.assert", "file=%s line=%d text=\"%s\"", args->file, args->line,
                  args->message);
    else
        log_debug("grpc", "file=%s line=%d text=\"%s\"", args->file, args->line, args->message);
}

/* ---- events ---------------------------------------------------------------------------------- */
static void drain_events(struct rpc_env *env)
{
    struct rpc_ev *newest = atomic_exchange_explicit(&env->events, NULL, memory_order_acquire);
    struct rpc_ev *oldest = NULL;
    while (newest) {
        struct rpc_ev *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest) {
        struct rpc_ev *ev = oldest;
        oldest = ev->next; /* run may post ev again */
        ev->run(ev);
    }
}

static void on_async(uv_async_t *async)
{
    drain_events(async->data);
}

static void post_to_loop(struct rpc_env *env, struct rpc_ev *ev)
{
    ASSERT(env->loop);
    struct rpc_ev *head = atomic_load_explicit(&env->events, memory_order_relaxed);
    do
        ev->next = head;
    while (!atomic_compare_exchange_weak_explicit(&env->events, &head, ev, memory_order_release,
                                                  memory_order_relaxed));
    if (!head)
        uv_async_send(&env->async);
}

static void on_ev_at_io(struct rpc_op *op, bool ok)
{
    (void)ok;
    struct rpc_ev *ev = CONTAINER_OF(op, struct rpc_ev, op);
    ev->run(ev);
}

void rpc_ev_post(struct rpc_env *env, enum rpc_where where, struct rpc_ev *ev)
{
    if (where == RPC_ON_LOOP) {
        post_to_loop(env, ev);
        return;
    }
    ev->op.on_complete = on_ev_at_io;
    rpc_start_batch(env->wake_call, NULL, 0, &ev->op);
}

void rpc_ev_deliver(struct rpc_env *env, enum rpc_where where, struct rpc_ev *ev)
{
    if (where == RPC_ON_LOOP)
        post_to_loop(env, ev);
    else
        ev->run(ev);
}

bool rpc_env_is_io(const struct rpc_env *env)
{
    return pthread_equal(pthread_self(), env->io_thread);
}

void rpc_start_batch(grpc_call *call, const grpc_op *ops, size_t count, struct rpc_op *op)
{
    tsan_release(op);
    grpc_call_error error = grpc_call_start_batch(call, ops, count, op, NULL);
    ASSERT(error == GRPC_CALL_OK);
}

void rpc_env_watch(struct rpc_env *env, struct rpc_watch *watch)
{
    watch->next = env->watches;
    env->watches = watch;
}

void rpc_env_unwatch(struct rpc_env *env, struct rpc_watch *watch)
{
    struct rpc_watch **at = &env->watches;
    while (*at != watch)
        at = &(*at)->next;
    *at = watch->next;
}

/* When the first of them wants to be asked again. */
static gpr_timespec check_watches(struct rpc_env *env)
{
    gpr_timespec first = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    if (!env->watches)
        return first;
    gpr_timespec now = gpr_now(GPR_CLOCK_MONOTONIC);
    for (struct rpc_watch *watch = env->watches, *next; watch; watch = next) {
        next = watch->next; /* check may remove its own */
        gpr_timespec then = watch->check(watch, now);
        if (gpr_time_cmp(then, first) < 0)
            first = then;
    }
    return first;
}

static void *io_main(void *arg)
{
    struct rpc_env *env = arg;
    for (;;) {
        gpr_timespec deadline = check_watches(env);
        grpc_event event = grpc_completion_queue_next(env->cq, deadline, NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        if (event.type == GRPC_QUEUE_TIMEOUT)
            continue;
        tsan_acquire(event.tag);
        struct rpc_op *op = event.tag;
        op->on_complete(op, event.success);
    }
}

/* ---- start and stop -------------------------------------------------------------------------- */
enum err_code rpc_env_new(uv_loop_t *loop, struct rpc_env **ret_env, struct err *err)
{
    enum err_code code = file_check_free(FILES_AT_START, "starting gRPC", err);
    if (code != ERR_OK)
        return code;
    struct rpc_env *env = base_alloc(sizeof(*env));
    env->loop = loop;
    env->async.data = env;
    if (loop) {
        int status = uv_async_init(loop, &env->async, on_async);
        if (status != 0) {
            free(env);
            return err_from_uv(err, status, "making the bridge to the loop");
        }
    }
    /* The threads made here inherit a mask that leaves all signals to the caller's thread. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    gpr_set_log_function(on_grpc_log);
    grpc_init();
    env->cq = grpc_completion_queue_create_for_next(NULL);
    env->wake_channel = grpc_lame_client_channel_create("wake", GRPC_STATUS_UNAVAILABLE, "wake");
    env->wake_call = grpc_channel_create_call(env->wake_channel, NULL, GRPC_PROPAGATE_DEFAULTS,
                                              env->cq, grpc_slice_from_static_string("/wake/wake"),
                                              NULL, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    int errnum = pthread_create(&env->io_thread, NULL, io_main, env);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    ASSERT(errnum == 0); /* gRPC has just started a dozen */
    pthread_setname_np(env->io_thread, "rpc-io");
    *ret_env = env;
    return ERR_OK;
}

static void on_async_closed(uv_handle_t *handle)
{
    struct rpc_env *env = handle->data;
    env->is_async_closed = true;
}

void rpc_env_free(struct rpc_env *env)
{
    if (!env)
        return;
    grpc_completion_queue_shutdown(env->cq);
    pthread_join(env->io_thread, NULL);
    ASSERT(!env->watches);
    if (env->loop) {
        drain_events(env);
        uv_close((uv_handle_t *)&env->async, on_async_closed);
        while (!env->is_async_closed)
            uv_run(env->loop, UV_RUN_ONCE);
    }
    grpc_call_unref(env->wake_call);
    grpc_channel_destroy(env->wake_channel);
    grpc_completion_queue_destroy(env->cq);
    grpc_shutdown();
    free(env);
}

struct post {
    struct rpc_ev ev;
    void (*fn)(void *arg);
    void *arg;
};

static void run_post(struct rpc_ev *ev)
{
    struct post *post = CONTAINER_OF(ev, struct post, ev);
    post->fn(post->arg);
    free(post);
}

void rpc_env_post(struct rpc_env *env, void (*fn)(void *arg), void *arg)
{
    struct post *post = base_alloc(sizeof(*post));
    post->ev.run = run_post;
    post->fn = fn;
    post->arg = arg;
    rpc_ev_post(env, env->loop ? RPC_ON_LOOP : RPC_INLINE, &post->ev);
}

enum err_code rpc_address_split(const char *address, char *ret_host, size_t host_size,
                                uint16_t *ret_port, bool *ret_is_v6, struct err *err)
{
    const char *colon = strrchr(address, ':');
    const char *host = address;
    size_t len = colon ? (size_t)(colon - address) : 0;
    bool is_v6 = len >= 2 && address[0] == '[' && address[len - 1] == ']';
    if (is_v6) {
        host++;
        len -= 2;
    }
    char *end = NULL;
    long port = colon && colon[1] >= '0' && colon[1] <= '9' ? strtol(colon + 1, &end, 10) : -1;
    if (len == 0 || len >= host_size || port < 0 || port > 65535 || *end != '\0' ||
        (!is_v6 && memchr(host, ':', len)))
        return err_set(err, ERR_INVALID,
                       "address \"%.200s\", want \"host:port\" or \"[ipv6]:port\"", address);
    memcpy(ret_host, host, len);
    ret_host[len] = '\0';
    *ret_port = (uint16_t)port;
    *ret_is_v6 = is_v6;
    return ERR_OK;
}
