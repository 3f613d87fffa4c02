/* SPDX-License-Identifier: Apache-2.0 */
/* bench_bulk: 64 MiB of tensor over loopback TCP, through our RPC layer and by plain send and recv.
 *
 *   bench_bulk [ROUNDS]     default 15 of each, after two that are not counted
 *
 * Pull is a server stream, push a client stream, both in chunks of 1 MiB with the payload in
 * field 15. The twin moves the same bytes with 1 MiB send() and recv(). Both read from one 64 MiB
 * buffer and write to another, so each byte comes from and goes to memory that the caches have lost
 * since the last round. Servers are processes of their own. Rounds alternate (rpc, raw, rpc, raw,
 * ...), so that what else the machine does falls on both; medians are printed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/rpc/rpc.h"
#include "proto/methods.h"
#include "proto/ps.pb-c.h"

#define TOTAL      (64u << 20)
#define CHUNK      LIMIT_CHUNK_BYTES
#define AHEAD      2 /* chunks queued while one is in flight */
#define MAX_ROUNDS 200

static uint8_t *source;
static uint8_t *target;

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "bench_bulk: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint8_t *buffer_new(int fill)
{
    uint8_t *p = mmap(NULL, TOTAL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        die("mmap");
    madvise(p, TOTAL, MADV_HUGEPAGE);
    memset(p, fill, TOTAL);
    return p;
}

/* ---- rpc server ------------------------------------------------------------------------------ */
static void nothing(void *arg)
{
    (void)arg;
}

struct pull {
    struct rpc_blob *blob;
    uint64_t next;
};

static void send_more(struct rpc_call *call, bool ok, void *arg);

static void send_chunk(struct rpc_call *call, struct pull *pull)
{
    Steadfast__V1__TensorChunk chunk = STEADFAST__V1__TENSOR_CHUNK__INIT;
    chunk.total_bytes = TOTAL;
    chunk.offset = pull->next;
    struct rpc_out out = {&chunk.base, pull->blob, pull->next, CHUNK};
    pull->next += CHUNK;
    if (rpc_send(call, &out, send_more, pull) != ERR_OK)
        die("rpc_send");
}

static void send_more(struct rpc_call *call, bool ok, void *arg)
{
    struct pull *pull = arg;
    (void)ok;
    if (pull->next == TOTAL + CHUNK * AHEAD) { /* the last of those that were ahead */
        rpc_blob_unref(pull->blob);
        free(pull);
    } else if (pull->next >= TOTAL) {
        if (pull->next == TOTAL)
            rpc_finish(call);
        pull->next += CHUNK;
    } else {
        send_chunk(call, pull);
    }
}

static void on_pull(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)request;
    (void)arg;
    struct pull *pull = base_alloc(sizeof(*pull));
    pull->blob = rpc_blob_wrap(source, TOTAL, nothing, NULL);
    for (int i = 0; i < AHEAD + 1; i++)
        send_chunk(call, pull);
}

static void on_push_chunk(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    if (!in) {
        Steadfast__V1__PushReply reply = STEADFAST__V1__PUSH_REPLY__INIT;
        rpc_reply(call, &(struct rpc_out){.message = &reply.base});
        return;
    }
    rpc_recv(call, on_push_chunk, arg);
    const Steadfast__V1__PushChunk *chunk = (const Steadfast__V1__PushChunk *)in->message;
    rpc_view_copy(in->view, 0, target + chunk->offset, rpc_view_bytes(in->view));
}

static void on_push(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)request;
    rpc_recv(call, on_push_chunk, arg);
}

static _Noreturn void serve_rpc(int port_fd)
{
    struct rpc_env *env;
    struct rpc_server *server;
    struct err err;
    uint16_t port;
    rpc_process_init();
    if (rpc_env_new(NULL, &env, &err) != ERR_OK ||
        rpc_server_new(env, NULL, &server, &err) != ERR_OK)
        die(err.text);
    rpc_server_add_method(server, &ps_method_pull, on_pull, NULL);
    rpc_server_add_method(server, &ps_method_push, on_push, NULL);
    if (rpc_server_listen(server, "127.0.0.1:0", &port, &err) != ERR_OK)
        die(err.text);
    rpc_server_start(server);
    if (write(port_fd, &port, sizeof(port)) != sizeof(port))
        die("write");
    for (;;)
        pause();
}

/* ---- rpc client ------------------------------------------------------------------------------ */
struct wait {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool is_done;
    uint64_t next; /* push: first byte not queued */
    struct rpc_blob *blob;
};

static void on_end(void *arg, const struct err *status, const struct rpc_in *reply)
{
    (void)reply;
    struct wait *wait = arg;
    if (status->code != ERR_OK)
        die(status->text);
    pthread_mutex_lock(&wait->lock);
    wait->is_done = true;
    pthread_cond_signal(&wait->cond);
    pthread_mutex_unlock(&wait->lock);
}

static void wait_done(struct wait *wait)
{
    pthread_mutex_lock(&wait->lock);
    while (!wait->is_done)
        pthread_cond_wait(&wait->cond, &wait->lock);
    pthread_mutex_unlock(&wait->lock);
}

static void on_pull_chunk(struct rpc_ccall *call, const struct rpc_in *in, void *arg)
{
    if (!in)
        return;
    rpc_crecv(call, on_pull_chunk, arg);
    const Steadfast__V1__TensorChunk *chunk = (const Steadfast__V1__TensorChunk *)in->message;
    rpc_view_copy(in->view, 0, target + chunk->offset, rpc_view_bytes(in->view));
}

static void rpc_pull(struct rpc_channel *channel)
{
    struct wait wait = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0, NULL};
    Steadfast__V1__PullRequest request = STEADFAST__V1__PULL_REQUEST__INIT;
    struct rpc_call_options options = {
        .timeout_ms = 60000, .wait_for_ready = true, .where = RPC_INLINE, .has_payload = true};
    struct rpc_ccall *call;
    struct err err;
    if (rpc_open(channel, &ps_method_pull, &(struct rpc_out){.message = &request.base}, &options,
                 on_end, &wait, &call, &err) != ERR_OK)
        die(err.text);
    rpc_crecv(call, on_pull_chunk, NULL);
    wait_done(&wait);
    rpc_ccall_unref(call);
}

static void on_push_sent(struct rpc_ccall *call, bool ok, void *arg);

static void push_chunk(struct rpc_ccall *call, struct wait *wait)
{
    Steadfast__V1__PushChunk chunk = STEADFAST__V1__PUSH_CHUNK__INIT;
    chunk.offset = wait->next;
    struct rpc_out out = {&chunk.base, wait->blob, wait->next, CHUNK};
    wait->next += CHUNK;
    bool is_last = wait->next == TOTAL;
    if (rpc_csend(call, &out, is_last ? NULL : on_push_sent, wait) != ERR_OK)
        die("rpc_csend");
    if (is_last)
        rpc_cclose_send(call);
}

static void on_push_sent(struct rpc_ccall *call, bool ok, void *arg)
{
    struct wait *wait = arg;
    if (ok && wait->next < TOTAL)
        push_chunk(call, wait);
}

static void rpc_push(struct rpc_channel *channel)
{
    struct wait wait = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0, NULL};
    struct rpc_call_options options = {
        .timeout_ms = 60000, .wait_for_ready = true, .where = RPC_INLINE};
    struct rpc_ccall *call;
    struct err err;
    wait.blob = rpc_blob_wrap(source, TOTAL, nothing, NULL);
    if (rpc_open(channel, &ps_method_push, NULL, &options, on_end, &wait, &call, &err) != ERR_OK)
        die(err.text);
    push_chunk(call, &wait);
    wait_done(&wait);
    rpc_ccall_unref(call);
    rpc_blob_unref(wait.blob);
}

/* ---- the raw twin ---------------------------------------------------------------------------- */
static void send_all(int fd, const uint8_t *at, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = send(fd, at, MIN(bytes, CHUNK), MSG_NOSIGNAL);
        if (n <= 0)
            die("send");
        at += n;
        bytes -= (size_t)n;
    }
}

static void recv_all(int fd, uint8_t *at, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = recv(fd, at, MIN(bytes, CHUNK), 0);
        if (n <= 0)
            die("recv");
        at += n;
        bytes -= (size_t)n;
    }
}

static _Noreturn void serve_raw(int port_fd)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    if (bind(listener, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&at, &len) != 0)
        die("bind");
    uint16_t port = ntohs(at.sin_port);
    if (write(port_fd, &port, sizeof(port)) != sizeof(port))
        die("write");
    int fd = accept(listener, NULL, NULL), one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    uint8_t order;
    while (recv(fd, &order, 1, 0) == 1) {
        if (order == 'l') {
            send_all(fd, source, TOTAL);
        } else {
            recv_all(fd, target, TOTAL);
            send_all(fd, &order, 1);
        }
    }
    exit(0);
}

static void raw_pull(int fd)
{
    send_all(fd, (const uint8_t *)"l", 1);
    recv_all(fd, target, TOTAL);
}

static void raw_push(int fd)
{
    uint8_t done;
    send_all(fd, (const uint8_t *)"h", 1);
    send_all(fd, source, TOTAL);
    recv_all(fd, &done, 1);
}

/* ---- rounds ---------------------------------------------------------------------------------- */
static pid_t start(void (*serve)(int port_fd), uint16_t *ret_port)
{
    int fds[2];
    if (pipe(fds) != 0)
        die("pipe");
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        source = buffer_new('s');
        target = buffer_new(0);
        serve(fds[1]);
    }
    close(fds[1]);
    if (read(fds[0], ret_port, sizeof(*ret_port)) != sizeof(*ret_port))
        die("the server did not start");
    close(fds[0]);
    return pid;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *list, int count)
{
    qsort(list, (size_t)count, sizeof(*list), compare);
    return list[count / 2];
}

static double rate(uint64_t start_ns)
{
    return TOTAL / (double)(clock_now_ns() - start_ns);
}

static void check_target(const char *what)
{
    for (size_t i = 0; i < TOTAL; i += 4093)
        if (target[i] != 's') {
            fprintf(stderr, "bench_bulk: %s: byte %zu is wrong\n", what, i);
            exit(1);
        }
    memset(target, 0, TOTAL);
}

static void compare_both(const char *name, struct rpc_channel *channel, int fd, int rounds,
                         void (*by_rpc)(struct rpc_channel *), void (*by_raw)(int), bool is_pull)
{
    static double rpc[MAX_ROUNDS], raw[MAX_ROUNDS];
    for (int i = -2; i < rounds; i++) {
        uint64_t start_ns = clock_now_ns();
        by_rpc(channel);
        rpc[MAX(i, 0)] = rate(start_ns);
        if (is_pull)
            check_target(name);
        start_ns = clock_now_ns();
        by_raw(fd);
        raw[MAX(i, 0)] = rate(start_ns);
        if (is_pull)
            check_target(name);
    }
    double a = median(rpc, rounds), b = median(raw, rounds);
    printf("bulk %s 64 MiB: rpc %.2f GB/s, send/recv %.2f GB/s, ratio %.2f (medians of %d; rpc "
           "%.2f-%.2f, raw %.2f-%.2f)\n",
           name, a, b, a / b, rounds, rpc[0], rpc[rounds - 1], raw[0], raw[rounds - 1]);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 15;
    rounds = MAX(1, MIN(rounds, MAX_ROUNDS));
    uint16_t rpc_port, raw_port;
    pid_t rpc_pid = start(serve_rpc, &rpc_port);
    pid_t raw_pid = start(serve_raw, &raw_port);

    source = buffer_new('s');
    target = buffer_new(0);
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(raw_port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0)
        die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));

    rpc_process_init();
    struct rpc_env *env;
    struct rpc_channel *channel;
    struct err err;
    char address[32];
    snprintf(address, sizeof(address), "127.0.0.1:%u", rpc_port);
    if (rpc_env_new(NULL, &env, &err) != ERR_OK ||
        rpc_channel_new(env, address, NULL, &channel, &err) != ERR_OK)
        die(err.text);
    compare_both("pull", channel, fd, rounds, rpc_pull, raw_pull, true);
    compare_both("push", channel, fd, rounds, rpc_push, raw_push, false);

    rpc_channel_free(channel);
    rpc_env_free(env);
    close(fd);
    kill(rpc_pid, SIGKILL);
    waitpid(rpc_pid, NULL, 0);
    waitpid(raw_pid, NULL, 0);
    return 0;
}
