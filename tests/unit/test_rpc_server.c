/* SPDX-License-Identifier: Apache-2.0 */
/* rpc: listening, draining, strangers at the port, and peers that die. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/limits.h"
#include "tests/unit/rpc_fixture.h"

static void on_submit(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)arg;
    const Steadfast__V1__SubmitRequest *m = (const Steadfast__V1__SubmitRequest *)request->message;
    fx_reply_submit(call, m->spec_json, 1);
}

static struct rpc_call *held;
static atomic_bool has_ended, was_cancelled_seen;

static void on_end(struct rpc_call *call, bool was_cancelled, void *arg)
{
    (void)call;
    (void)arg;
    was_cancelled_seen = was_cancelled;
    has_ended = true;
}

static void hold(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)request;
    (void)arg;
    if (held) {
        rpc_fail(call, ERR_FULL, "one is held already");
        return;
    }
    rpc_call_ref(call);
    rpc_on_end(call, on_end, NULL);
    held = call;
}

static void start_with(uint32_t grace_ms,
                       void (*on_call)(struct rpc_call *, const struct rpc_in *, void *))
{
    fx_new_server(grace_ms);
    rpc_server_add_method(fx.server, &coord_method_submit_job, on_call, NULL);
    fx_start_server();
}

static void check_answers(const char *text)
{
    struct answer answer = {0};
    fx_submit(text, 5000, RPC_ON_LOOP, &answer);
    WAIT_UNTIL(answer.is_done);
    CHECK(answer.status.code == ERR_OK);
    CHECK_STR(answer.text, text);
}

/* ---- listening ------------------------------------------------------------------------------- */
TEST(a_port_in_use_is_refused_with_the_address)
{
    struct err err;
    start_with(300, on_submit);
    struct rpc_server *second;
    CHECK_OK(rpc_server_new(fx.env, NULL, &second, &err));
    CHECK(rpc_server_listen(second, fx.address, NULL, &err) == ERR_EXISTS);
    char want[128];
    snprintf(want, sizeof(want), "listening on %s: the address is in use", fx.address);
    CHECK_STR(err.text, want);
    rpc_server_free(second);
    check_answers("still here");
    fx_stop();
}

TEST(an_address_that_is_not_ours_is_refused_with_the_reason)
{
    struct err err;
    fx_new_server(300);
    CHECK(rpc_server_listen(fx.server, "192.0.2.1:7000", NULL, &err) == ERR_IO);
    CHECK_STR(err.text, "listening on 192.0.2.1:7000: Cannot assign requested address");
    CHECK(rpc_server_listen(fx.server, "7000", NULL, &err) == ERR_INVALID);
    CHECK_STR(err.text, "address \"7000\", want \"host:port\" or \"[ipv6]:port\"");
    CHECK(rpc_server_listen(fx.server, "no.such.host.invalid:7000", NULL, &err) == ERR_INVALID);
    CHECK(strstr(err.text, "listening on no.such.host.invalid:7000: "));
    rpc_server_free(fx.server);
    fx.server = NULL;
    fx_stop();
}

/* ---- draining -------------------------------------------------------------------------------- */
TEST(a_drain_lets_a_call_in_flight_finish_and_refuses_new_ones)
{
    start_with(20000, hold);
    struct answer answer = {0}, second = {0};
    fx_submit("x", 15000, RPC_ON_LOOP, &answer);
    WAIT_UNTIL(held != NULL);
    bool is_drained = false;
    rpc_server_drain(fx.server, fx_set_flag, &is_drained);
    /* Refused once the client has heard of it, and the call in flight stays. */
    do {
        second = (struct answer){0};
        fx_submit("y", 5000, RPC_ON_LOOP, &second);
        WAIT_UNTIL(second.is_done);
    } while (second.status.code == ERR_FULL); /* came in before the drain had begun */
    CHECK(second.status.code == ERR_UNAVAILABLE);
    CHECK(!is_drained && !answer.is_done);
    fx_reply_submit(held, "finished", 1);
    rpc_call_unref(held);
    WAIT_UNTIL(answer.is_done && is_drained);
    CHECK(answer.status.code == ERR_OK);
    CHECK_STR(answer.text, "finished");
    rpc_server_free(fx.server);
    fx.server = NULL;
    fx_stop();
}

TEST(a_drain_cancels_what_outlives_the_grace)
{
    start_with(100, hold);
    struct answer answer = {0};
    fx_submit("x", 15000, RPC_ON_LOOP, &answer);
    WAIT_UNTIL(held != NULL);
    uint64_t start = clock_now_ns();
    bool is_drained = false;
    rpc_server_drain(fx.server, fx_set_flag, &is_drained);
    WAIT_UNTIL(answer.is_done && is_drained && has_ended);
    CHECK(answer.status.code == ERR_UNAVAILABLE);
    CHECK(was_cancelled_seen);
    CHECK(clock_now_ns() - start >= 95 * NS_PER_MS);
    rpc_call_unref(held);
    rpc_server_free(fx.server);
    fx.server = NULL;
    fx_stop();
}

static void close_fd(void *arg)
{
    close(*(int *)arg);
}

TEST(an_env_without_a_loop_serves_and_stops)
{
    struct err err;
    rpc_process_init();
    CHECK_OK(rpc_env_new(NULL, &fx.env, &err));
    CHECK_OK(rpc_server_new(fx.env, NULL, &fx.server, &err));
    struct rpc_method row = coord_method_submit_job;
    row.where = RPC_INLINE;
    rpc_server_add_method(fx.server, &row, on_submit, NULL);
    fx_start_server();
    Steadfast__V1__SubmitRequest request = STEADFAST__V1__SUBMIT_REQUEST__INIT;
    request.spec_json = (char *)"no loop";
    ProtobufCMessage *reply;
    CHECK_OK(rpc_invoke_sync(fx.channel, &row, &(struct rpc_out){.message = &request.base}, 5000,
                             &reply, &err));
    CHECK_STR(((Steadfast__V1__SubmitReply *)reply)->name, "no loop");
    protobuf_c_message_free_unpacked(reply, NULL);
    rpc_channel_free(fx.channel);
    int fds[2];
    CHECK(pipe(fds) == 0);
    rpc_server_drain(fx.server, close_fd, &fds[1]);
    char byte;
    CHECK(read(fds[0], &byte, 1) == 0); /* the drain closed the other end */
    rpc_server_free(fx.server);
    rpc_env_free(fx.env);
}

/* ---- strangers ------------------------------------------------------------------------------- */
static int dial(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(fx.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
    return fd;
}

static bool is_closed_by_peer(int fd)
{
    char buf[4096];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, 0) > 0) {
        ssize_t n = read(fd, buf, sizeof(buf));
        if (n <= 0)
            return true;
    }
    return false;
}

TEST(random_bytes_at_the_port_close_that_connection_and_nothing_else)
{
    static const char *const openings[] = {
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nthis is no frame at all, not even close ........",
        "SSH-2.0-OpenSSH_9.2p1\r\n"};
    start_with(300, on_submit);
    check_answers("before");
    uint32_t seed = 99;
    for (size_t i = 0; i < ARRAY_SIZE(openings) + 20; i++) {
        char junk[512];
        size_t len = sizeof(junk);
        for (size_t j = 0; j < sizeof(junk); j++) {
            seed = seed * 1664525 + 1013904223;
            junk[j] = (char)(seed >> 24);
        }
        if (i < ARRAY_SIZE(openings)) {
            len = MAX(strlen(openings[i]), 11);
            memcpy(junk, openings[i], len);
        }
        AUTO_FD int fd = dial();
        CHECK(send(fd, junk, len, MSG_NOSIGNAL) == (ssize_t)len);
        WAIT_UNTIL(is_closed_by_peer(fd));
    }
    check_answers("after");
    fx_stop();
}

static struct answer ask_raw(uint8_t *bytes, size_t len, uint32_t tag, ProtobufCWireType type)
{
    struct err err;
    struct answer answer = {0};
    Steadfast__V1__SubmitRequest request = STEADFAST__V1__SUBMIT_REQUEST__INIT;
    ProtobufCMessageUnknownField field = {tag, type, len, bytes};
    request.base.n_unknown_fields = 1;
    request.base.unknown_fields = &field;
    struct rpc_call_options options = {.timeout_ms = 10000};
    CHECK_OK(rpc_invoke(fx.channel, &coord_method_submit_job,
                        &(struct rpc_out){.message = &request.base}, &options, on_answer, &answer,
                        &err));
    WAIT_UNTIL(answer.is_done);
    return answer;
}

TEST(hostile_messages_are_refused_and_the_server_goes_on)
{
    start_with(300, on_submit);
    static uint8_t groups[20000], beyond[] = {0xff, 0xff, 0xff, 0xff, 0x0f};
    for (size_t i = 0; i < sizeof(groups); i += 2) {
        groups[i] = 0xa3; /* start of group 20 */
        groups[i + 1] = 0x01;
    }
    CHECK(ask_raw(groups, sizeof(groups), 20, 3).status.code == ERR_INVALID);
    CHECK(ask_raw(beyond, sizeof(beyond), 1, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED).status.code ==
          ERR_INVALID);
    /* Two million unknown fields of two bytes: each would become 24 bytes and an allocation. */
    size_t len = LIMIT_RPC_MESSAGE_BYTES - 100;
    uint8_t *many = calloc(1, len);
    for (size_t i = 1; i + 1 < len; i += 2)
        many[i] = 4 << 3; /* field 4, varint; the zero after it is its value */
    struct answer answer = ask_raw(many, len, 4, PROTOBUF_C_WIRE_TYPE_VARINT);
    CHECK(answer.status.code == ERR_INVALID);
    CHECK(strstr(answer.status.text, "SubmitRequest"));
    free(many);
    check_answers("after");
    fx_stop();
}

/* ---- peers that die -------------------------------------------------------------------------- */
static pid_t start_child(void (*body)(int fd), int *ret_fd)
{
    int fds[2];
    CHECK(pipe(fds) == 0);
    pid_t pid = fork(); /* before gRPC starts in either */
    if (pid == 0) {
        close(fds[0]);
        body(fds[1]);
        _exit(0);
    }
    close(fds[1]);
    *ret_fd = fds[0];
    return pid;
}

static uint16_t wanted_port;

static void serve_held(int fd)
{
    struct err err;
    fx_new_server(300);
    rpc_server_add_method(fx.server, &coord_method_submit_job, wanted_port ? on_submit : hold,
                          NULL);
    char address[64];
    snprintf(address, sizeof(address), "127.0.0.1:%u", wanted_port);
    CHECK_OK(rpc_server_listen(fx.server, address, &fx.port, &err));
    rpc_server_start(fx.server);
    if (write(fd, &fx.port, sizeof(fx.port)) != sizeof(fx.port))
        _exit(1);
    WAIT_UNTIL(held != NULL);
    if (write(fd, "h", 1) != 1)
        _exit(1);
    uv_run(&fx.loop, UV_RUN_DEFAULT);
}

TEST(a_killed_server_is_unavailable_and_its_successor_is_found_within_a_second)
{
    int fd;
    pid_t pid = start_child(serve_held, &fd);
    uint16_t port;
    CHECK(read(fd, &port, sizeof(port)) == sizeof(port));
    /* The successor waits for its turn in a process of its own, forked before gRPC starts here. */
    int go[2];
    CHECK(pipe(go) == 0);
    pid_t pid2 = fork();
    if (pid2 == 0) {
        char byte;
        if (read(go[0], &byte, 1) != 1)
            _exit(1);
        wanted_port = port;
        serve_held(go[1]); /* its own write end: nobody reads it */
        _exit(0);
    }
    fx_client_start();
    fx_connect(port);
    struct answer answer = {0};
    fx_submit("x", 15000, RPC_ON_LOOP, &answer);
    char byte;
    CHECK(read(fd, &byte, 1) == 1); /* the call is in its handler */
    CHECK(kill(pid, SIGKILL) == 0);
    CHECK(waitpid(pid, NULL, 0) == pid);
    uint64_t killed_ns = clock_now_ns();
    WAIT_UNTIL(answer.is_done);
    CHECK(answer.status.code == ERR_UNAVAILABLE);
    CHECK(clock_now_ns() - killed_ns < fx_scaled_ns(1));

    CHECK(write(go[1], "g", 1) == 1);
    uint64_t start_ns = clock_now_ns();
    for (;;) {
        struct answer again = {0};
        fx_submit("again", 100, RPC_ON_LOOP, &again);
        WAIT_UNTIL(again.is_done);
        if (again.status.code == ERR_OK)
            break;
        CHECK(again.status.code == ERR_UNAVAILABLE || again.status.code == ERR_TIMEOUT);
        CHECK(clock_now_ns() - start_ns < fx_scaled_ns(1));
    }
    kill(pid2, SIGKILL);
    waitpid(pid2, NULL, 0);
    fx_stop();
}

TEST(a_frozen_server_is_noticed_by_keepalive)
{
    struct err err;
    int fd;
    pid_t pid = start_child(serve_held, &fd);
    uint16_t port;
    char byte;
    CHECK(read(fd, &port, sizeof(port)) == sizeof(port));
    fx_client_start();
    snprintf(fx.address, sizeof(fx.address), "127.0.0.1:%u", port);
    struct rpc_channel_options options = {.keepalive_ms = 200, .keepalive_timeout_ms = 200};
    CHECK_OK(rpc_channel_new(fx.env, fx.address, &options, &fx.channel, &err));
    struct answer answer = {0};
    fx_submit("x", 60000, RPC_ON_LOOP, &answer);
    CHECK(read(fd, &byte, 1) == 1); /* the call is in its handler */
    CHECK(kill(pid, SIGSTOP) == 0);
    WAIT_UNTIL(answer.is_done); /* far before its deadline */
    CHECK(answer.status.code == ERR_UNAVAILABLE);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    fx_stop();
}

static void on_attach(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)request;
    (void)arg;
    hold(call, NULL, NULL);
}

static void attach_and_wait(int fd)
{
    (void)fd;
    struct err err;
    struct rpc_ccall *call;
    struct answer end = {0};
    uint16_t port;
    CHECK(read(STDIN_FILENO, &port, sizeof(port)) == sizeof(port));
    fx_client_start();
    fx_connect(port);
    struct rpc_call_options options = {.timeout_ms = UINT32_MAX};
    CHECK_OK(
        rpc_open(fx.channel, &fleet_method_attach, NULL, &options, on_answer, &end, &call, &err));
    uv_run(&fx.loop, UV_RUN_DEFAULT);
}

TEST(a_killed_client_ends_its_stream_at_the_server)
{
    int to_child[2], fd;
    CHECK(pipe(to_child) == 0);
    CHECK(dup2(to_child[0], STDIN_FILENO) == STDIN_FILENO);
    pid_t pid = start_child(attach_and_wait, &fd);
    fx_new_server(300);
    rpc_server_add_method(fx.server, &fleet_method_attach, on_attach, NULL);
    fx_start_server();
    CHECK(write(to_child[1], &fx.port, sizeof(fx.port)) == sizeof(fx.port));
    WAIT_UNTIL(held != NULL);
    CHECK(!has_ended);
    CHECK(kill(pid, SIGKILL) == 0);
    CHECK(waitpid(pid, NULL, 0) == pid);
    WAIT_UNTIL(has_ended);
    CHECK(was_cancelled_seen);
    rpc_call_unref(held);
    fx_stop();
}
