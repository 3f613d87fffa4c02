/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_probe: every way in which an address does not answer, told apart. */
#include "common/rpc/rpc_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <sched.h>
#include <sys/resource.h>

#include "tests/unit/rpc_fixture.h"
#include "tests/unit/strange_peer.h"

#define LIMIT_MS 3000 /* far more than loopback takes, also when it is slow */
#define SHORT_MS 200  /* where silence is the answer */

static struct rpc_probe probe;
static char text[400];

static enum rpc_probe_kind probe_of(const char *address, uint32_t timeout_ms)
{
    rpc_probe_address(address, timeout_ms, NULL, NULL, &probe);
    rpc_probe_say(&probe, text, sizeof(text));
    return probe.kind;
}

TEST(a_port_that_nobody_listens_on_is_refused)
{
    struct strange_peer peer;
    strange_listen(&peer, 1);
    strange_stop(&peer);
    CHECK(probe_of(peer.address, LIMIT_MS) == RPC_PROBE_REFUSED);
    CHECK_STR(text, "connection refused: nobody listens there");
    CHECK(probe.errnum == ECONNREFUSED);
}

TEST(a_name_that_does_not_exist_is_told)
{
    enum rpc_probe_kind kind = probe_of("no.such.host.invalid:7000", LIMIT_MS);
    if (kind == RPC_PROBE_NO_LOOKUP)
        test_skip("no name service: %s", text);
    CHECK(kind == RPC_PROBE_NO_NAME);
    CHECK(strstr(text, "the host name is not known: "));
}

TEST(a_machine_without_a_route_is_told)
{
    struct strange_peer peer;
    strange_listen(&peer, 1);
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 && unshare(CLONE_NEWNET) != 0)
        test_skip("no network namespace of its own: %s", strerror(errno));
    CHECK(probe_of(peer.address, LIMIT_MS) == RPC_PROBE_NO_ROUTE); /* not even loopback is up */
    CHECK(probe.errnum == ENETUNREACH || probe.errnum == EADDRNOTAVAIL);
    CHECK(strstr(text, "no route to it: "));
    strange_stop(&peer);
}

TEST(an_address_that_drops_what_is_sent_is_silent_for_the_whole_time)
{
    struct strange_peer peer;
    strange_listen(&peer, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    CHECK(getsockname(peer.fd, (struct sockaddr *)&at, &size) == 0);
    for (int i = 0; i < 3; i++) { /* the queue of the kernel is full: it drops the next SYN */
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        CHECK(fd >= 0);
        CHECK(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0 || errno == EINPROGRESS);
        peer.held[peer.held_count++] = fd;
    }
    CHECK(probe_of(peer.address, SHORT_MS) == RPC_PROBE_SILENT);
    CHECK(probe.took_ms >= SHORT_MS);
    CHECK(strstr(text, "no sign of it"));
    strange_stop(&peer);
}

TEST(one_that_accepts_and_says_nothing_is_mute)
{
    struct strange_peer peer;
    strange_listen(&peer, 8);
    CHECK(probe_of(peer.address, SHORT_MS) == RPC_PROBE_MUTE);
    CHECK(probe.took_ms >= SHORT_MS);
    CHECK(strstr(text, "says nothing"));
    strange_stop(&peer);
}

TEST(one_that_closes_at_once_is_told)
{
    struct strange_peer peer;
    strange_start(&peer, NULL);
    CHECK(probe_of(peer.address, LIMIT_MS) == RPC_PROBE_CLOSED);
    CHECK(strstr(text, "closes them without a word"));
    strange_stop(&peer);
}

TEST(another_protocol_is_told_with_its_first_words)
{
    static const struct {
        const char *says, *words;
    } cases[] = {
        {"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 400 Bad Request"},
        {"SSH-2.0-OpenSSH_9.2p1 Debian\r\n", "SSH-2.0-OpenSSH_9.2p1 Debian"},
        {"220 mail \"x\" \x01\x02 ESMTP\r\n", "220 mail .x. .. ESMTP"},
        {"no\r\n", "no"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct strange_peer peer;
        strange_start(&peer, cases[i].says);
        CHECK(probe_of(peer.address, i == 3 ? SHORT_MS : LIMIT_MS) == RPC_PROBE_OTHER);
        CHECK_STR(probe.words, cases[i].words);
        CHECK(strstr(text, cases[i].words));
        strange_stop(&peer);
    }
}

static void ignore(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)request;
    (void)arg;
    rpc_fail(call, ERR_FULL, "not asked");
}

TEST(a_server_of_ours_speaks_http2_by_number_and_by_name)
{
    fx_new_server(300);
    rpc_server_add_method(fx.server, &coord_method_submit_job, ignore, NULL);
    fx_start_server();
    CHECK(probe_of(fx.address, LIMIT_MS) == RPC_PROBE_HTTP2);
    char named[64];
    snprintf(named, sizeof(named), "localhost:%u", fx.port); /* ::1 refuses, 127.0.0.1 answers */
    CHECK(probe_of(named, LIMIT_MS) == RPC_PROBE_HTTP2);
    fx_stop();
}

TEST(a_process_without_descriptors_blames_itself_with_the_limit)
{
    struct strange_peer peer;
    strange_listen(&peer, 8);
    struct rlimit all, few;
    CHECK(getrlimit(RLIMIT_NOFILE, &all) == 0);
    few = all;
    few.rlim_cur = 3;
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    CHECK(probe_of(peer.address, LIMIT_MS) == RPC_PROBE_NO_FILES);
    CHECK(probe.errnum == EMFILE);
    CHECK(strstr(text, "(limit 3): Too many open files"));
    CHECK(setrlimit(RLIMIT_NOFILE, &all) == 0);
    strange_stop(&peer);
}

static bool is_true(void *arg)
{
    return *(bool *)arg;
}

TEST(a_probe_ends_when_nobody_wants_it_any_more)
{
    struct strange_peer peer;
    bool is_over = true;
    strange_listen(&peer, 8);
    uint64_t start_ns = clock_now_ns();
    rpc_probe_address(peer.address, 60000, is_true, &is_over, &probe);
    CHECK(probe.kind == RPC_PROBE_CUT);
    CHECK(clock_now_ns() - start_ns < fx_scaled_ns(10));
    strange_stop(&peer);
}

/* ---- in the background ----------------------------------------------------------------------- */
static int count_in(int fd, const char *word)
{
    static char log[1 << 16];
    ssize_t n = pread(fd, log, sizeof(log) - 1, 0);
    CHECK(n >= 0);
    log[n] = '\0';
    int count = 0;
    for (const char *at = log; (at = strstr(at, word)); at++)
        count++;
    return count;
}

TEST(a_channel_logs_why_in_one_line_however_often_it_is_asked)
{
    struct err err;
    struct strange_peer peer;
    FILE *log = tmpfile();
    CHECK(log && dup2(fileno(log), STDERR_FILENO) == STDERR_FILENO);
    strange_start(&peer, "HTTP/1.1 400 Bad Request\r\n\r\n");
    fx_client_start();
    CHECK_OK(rpc_channel_new(fx.env, peer.address, NULL, &fx.channel, &err));
    while (count_in(fileno(log), "event=ps.why") == 0) {
        rpc_channel_log_why(fx.channel, "ps.why", "ps:0");
        uv_run(&fx.loop, UV_RUN_ONCE);
    }
    for (int i = 0; i < 100; i++)
        rpc_channel_log_why(fx.channel, "ps.why", "ps:0");
    char want[128];
    snprintf(want, sizeof(want), "event=ps.why ps:0 at %s took_ms=", peer.address);
    CHECK(count_in(fileno(log), want) == 1);
    CHECK(count_in(fileno(log), "HTTP/1.1 400 Bad Request") == 1);
    fx_stop();
    strange_stop(&peer);
}

TEST(a_channel_that_is_freed_does_not_wait_for_its_probe)
{
    struct err err;
    struct strange_peer peer;
    strange_listen(&peer, 8);
    fx_client_start();
    CHECK_OK(rpc_channel_new(fx.env, peer.address, NULL, &fx.channel, &err));
    uint64_t start_ns = clock_now_ns();
    rpc_channel_log_why(fx.channel, "ps.why", "ps:0"); /* two seconds of silence */
    fx_stop();
    CHECK(clock_now_ns() - start_ns < fx_scaled_ns(2));
    strange_stop(&peer);
}
