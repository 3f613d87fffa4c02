/* SPDX-License-Identifier: Apache-2.0 */
/* rpc: a server whose process has no descriptor left to accept with, and its return. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/limits.h"
#include "common/loop/loop.h"
#include "tests/unit/rpc_fixture.h"

#define FILES 96  /* what the process under test may have open */
#define FLOOD 200 /* connections of the process that floods it */

static void on_submit(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)arg;
    const Steadfast__V1__SubmitRequest *m = (const Steadfast__V1__SubmitRequest *)request->message;
    fx_reply_submit(call, m->spec_json, 1);
}

/* ---- the process that floods ----------------------------------------------------------------- */
struct flood {
    pid_t pid;
    int to, from;
};

/* Reads a port, connects and says `opening` on every connection, answers, and holds them until the
 * pipe is closed. Forked before gRPC starts. */
static struct flood flood_fork(const char *opening, size_t opening_bytes)
{
    int to[2], from[2];
    CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
    struct flood flood = {.pid = fork(), .to = to[1], .from = from[0]};
    if (flood.pid != 0) {
        close(to[0]);
        close(from[1]);
        return flood;
    }
    close(to[1]);
    close(from[0]);
    uint16_t port;
    if (read(to[0], &port, sizeof(port)) != sizeof(port))
        _exit(1);
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < FLOOD; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0)
            _exit(2);
        ssize_t sent = send(fd, opening, opening_bytes, MSG_NOSIGNAL);
        (void)sent; /* refused already: as good */
    }
    char byte = 'f';
    if (write(from[1], &byte, 1) != 1)
        _exit(3);
    ssize_t end = read(to[0], &byte, 1);
    _exit(end == 0 ? 0 : 4);
}

static void flood_start(struct flood *flood)
{
    char byte;
    CHECK(write(flood->to, &fx.port, sizeof(fx.port)) == sizeof(fx.port));
    CHECK(read(flood->from, &byte, 1) == 1);
}

static void flood_stop(struct flood *flood)
{
    int status;
    close(flood->to);
    CHECK(waitpid(flood->pid, &status, 0) == flood->pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(flood->from);
}

/* ---- the process under test ------------------------------------------------------------------ */
static int log_fd = -1;

static void start_with_few_files(void)
{
    FILE *log = tmpfile();
    CHECK(log);
    log_fd = fileno(log);
    CHECK(dup2(log_fd, STDERR_FILENO) == STDERR_FILENO);
    struct rlimit files = {FILES, FILES};
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    fx_new_server(300);
    rpc_server_add_method(fx.server, &coord_method_submit_job, on_submit, NULL);
    fx_start_server();
}

static int count_in_log(const char *word)
{
    static char text[1 << 20];
    ssize_t n = pread(log_fd, text, sizeof(text) - 1, 0);
    CHECK(n >= 0);
    text[n] = '\0';
    int count = 0;
    for (const char *at = text; (at = strstr(at, word)); at++)
        count++;
    return count;
}

/* One call over a connection of its own. */
static enum err_code ask_anew(void)
{
    struct err err;
    struct answer answer = {0};
    struct rpc_channel *shared = fx.channel;
    struct rpc_channel_options options = {.own_connection = true};
    CHECK_OK(rpc_channel_new(fx.env, fx.address, &options, &fx.channel, &err));
    fx_submit("anew", 2000, RPC_ON_LOOP, &answer);
    WAIT_UNTIL(answer.is_done);
    rpc_channel_free(fx.channel);
    fx.channel = shared;
    CHECK(answer.status.code != ERR_OK || strcmp(answer.text, "anew") == 0);
    return answer.status.code;
}

static void ask_until_answered(void)
{
    uint64_t until_ns = clock_now_ns() + fx_scaled_ns(5);
    while (ask_anew() != ERR_OK)
        CHECK(clock_now_ns() < until_ns);
}

static const char http2_opening[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";

TEST(a_server_out_of_descriptors_refuses_says_it_once_and_comes_back)
{
    struct flood flood = flood_fork(http2_opening, sizeof(http2_opening) - 1);
    start_with_few_files();
    struct answer kept = {0};
    fx_submit("kept", 5000, RPC_ON_LOOP, &kept);
    WAIT_UNTIL(kept.is_done);
    flood_start(&flood);
    enum err_code refused = ask_anew();
    CHECK(refused == ERR_UNAVAILABLE || refused == ERR_TIMEOUT);
    kept.is_done = false; /* whoever was connected stays so, and there is room for a file */
    fx_submit("kept", 5000, RPC_ON_LOOP, &kept);
    WAIT_UNTIL(kept.is_done);
    CHECK(kept.status.code == ERR_OK);
    AUTO_FD int own = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(own >= 0);
    CHECK(count_in_log("event=rpc.accept.full") == 1);
    flood_stop(&flood);
    ask_until_answered();
    WAIT_UNTIL(count_in_log("event=rpc.accept.room") == 1);
    CHECK(count_in_log("event=rpc.accept.full") == 1);
    fx_stop();
}

TEST(a_server_whose_limit_falls_below_what_it_has_open_comes_back)
{
    struct flood flood = flood_fork("", 0);
    start_with_few_files();
    CHECK(ask_anew() == ERR_OK);
    struct rlimit none = {3, FILES}, all = {FILES, FILES};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    flood_start(&flood); /* accept fails on every one of them */
    WAIT_UNTIL(count_in_log("event=rpc.accept.full") == 1);
    CHECK(setrlimit(RLIMIT_NOFILE, &all) == 0);
    ask_until_answered();
    flood_stop(&flood);
    WAIT_UNTIL(count_in_log("event=rpc.accept.room") == 1);
    fx_stop();
}

TEST(connections_that_say_nothing_do_not_keep_callers_out)
{
    struct flood flood = flood_fork("", 0);
    start_with_few_files();
    flood_start(&flood);
    ask_until_answered();
    flood_stop(&flood);
    fx_stop();
}

TEST(a_client_out_of_descriptors_fails_its_call_and_comes_back)
{
    start_with_few_files();
    int held[FILES];
    size_t count = 0;
    while ((held[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        count++;
    CHECK(errno == EMFILE);
    enum err_code refused = ask_anew();
    CHECK(refused == ERR_UNAVAILABLE || refused == ERR_TIMEOUT);
    while (count > 0)
        close(held[--count]);
    ask_until_answered();
    fx_stop();
}

TEST(an_opening_in_pieces_is_waited_for)
{
    start_with_few_files();
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons(fx.port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    AUTO_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    for (size_t i = 0; i < sizeof(http2_opening) - 1; i++) {
        CHECK(send(fd, http2_opening + i, 1, MSG_NOSIGNAL) == 1);
        CHECK(ask_anew() == ERR_OK); /* the server has had its turn with the piece */
    }
    unsigned char frame[9];
    CHECK(recv(fd, frame, sizeof(frame), MSG_WAITALL) == sizeof(frame));
    CHECK(frame[3] == 4); /* SETTINGS */
    fx_stop();
}

TEST(a_name_that_could_not_be_resolved_for_a_while_is_asked_for_again_soon)
{
    start_with_few_files();
    snprintf(fx.address, sizeof(fx.address), "localhost:%u", fx.port);
    rpc_channel_free(fx.channel);
    struct err err;
    CHECK_OK(rpc_channel_new(fx.env, fx.address, NULL, &fx.channel, &err));
    int held[FILES];
    size_t count = 0;
    while ((held[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        count++;
    struct answer answer = {0};
    uint64_t end_ns = clock_now_ns() + 6 * NS_PER_S; /* gRPC alone would try after 9.3 s then */
    do {
        answer = (struct answer){0};
        fx_submit("by name", 100, RPC_ON_LOOP, &answer);
        WAIT_UNTIL(answer.is_done);
        CHECK(answer.status.code != ERR_OK);
        uv_run(&fx.loop, UV_RUN_ONCE);
    } while (clock_now_ns() < end_ns);
    while (count > 0)
        close(held[--count]);
    end_ns = clock_now_ns() + fx_scaled_ns(1);
    do {
        CHECK(clock_now_ns() < end_ns);
        answer = (struct answer){0};
        fx_submit("by name", 100, RPC_ON_LOOP, &answer);
        WAIT_UNTIL(answer.is_done);
        uv_run(&fx.loop, UV_RUN_ONCE);
    } while (answer.status.code != ERR_OK);
    fx_stop();
}

TEST(a_process_that_may_have_no_descriptors_is_told_at_its_start)
{
    struct rlimit few, all;
    CHECK(getrlimit(RLIMIT_NOFILE, &all) == 0);
    few = all;
    bool has_loop = false, has_env = false;
    for (few.rlim_cur = 3; !has_env; few.rlim_cur++) {
        struct err err;
        struct loop *loop;
        struct rpc_env *env;
        CHECK(few.rlim_cur < 40);
        CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
        enum err_code code = loop_new(&loop, &err);
        has_loop = code == ERR_OK;
        has_env = has_loop && (code = rpc_env_new(loop_uv(loop), &env, &err)) == ERR_OK;
        CHECK(setrlimit(RLIMIT_NOFILE, &all) == 0);
        CHECK(has_env || code == ERR_FULL); /* passes when somebody closes a file */
        CHECK(has_env || strstr(err.text, "ile")); /* "too many open files", by libuv or by libc */
        if (has_env)
            rpc_env_free(env);
        if (has_loop)
            loop_free(loop);
    }
}
