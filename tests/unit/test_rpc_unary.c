/* SPDX-License-Identifier: Apache-2.0 */
/* rpc: unary calls, on the loop and on the io thread, and how they fail. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/limits.h"
#include "tests/unit/rpc_fixture.h"

static pthread_t handler_thread;

static void echo(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    CHECK(arg == &handler_thread);
    handler_thread = pthread_self();
    const Steadfast__V1__SubmitRequest *m = (const Steadfast__V1__SubmitRequest *)request->message;
    fx_reply_submit(call, m->spec_json, strlen(m->spec_json));
}

static void start_with(enum rpc_where where,
                       void (*on_call)(struct rpc_call *, const struct rpc_in *, void *), void *arg)
{
    fx_new_server(300);
    struct rpc_method row = coord_method_submit_job;
    row.where = where;
    rpc_server_add_method(fx.server, &row, on_call, arg);
    fx_start_server();
}

TEST(a_unary_call_on_the_loop_is_answered_on_the_loop)
{
    start_with(RPC_ON_LOOP, echo, &handler_thread);
    struct answer answer = {0};
    fx_submit("hello", 5000, RPC_ON_LOOP, &answer);
    WAIT_UNTIL(answer.is_done);
    CHECK(answer.status.code == ERR_OK);
    CHECK_STR(answer.text, "hello");
    CHECK_U64(answer.number, 5);
    CHECK(pthread_equal(handler_thread, pthread_self()));
    CHECK(pthread_equal(answer.thread, pthread_self()));
    fx_stop();
}

TEST(a_unary_call_inline_never_touches_the_loop)
{
    start_with(RPC_INLINE, echo, &handler_thread);
    struct answer answer = {0};
    fx_submit("inline", 5000, RPC_INLINE, &answer);
    WAIT_UNTIL(answer.is_done);
    CHECK(answer.status.code == ERR_OK);
    CHECK_STR(answer.text, "inline");
    CHECK(!pthread_equal(handler_thread, pthread_self()));
    CHECK(pthread_equal(answer.thread, handler_thread));
    fx_stop();
}

TEST(a_thousand_calls_at_once_are_all_answered)
{
    static struct answer answers[1000];
    start_with(RPC_INLINE, echo, &handler_thread);
    char text[16];
    for (int i = 0; i < 1000; i++) {
        snprintf(text, sizeof(text), "call %d", i);
        fx_submit(text, 20000, RPC_ON_LOOP, &answers[i]);
    }
    for (int i = 0; i < 1000; i++) {
        WAIT_UNTIL(answers[i].is_done);
        snprintf(text, sizeof(text), "call %d", i);
        CHECK_STR(answers[i].text, text);
    }
    fx_stop();
}

static void fail_by_name(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)arg;
    const Steadfast__V1__SubmitRequest *m = (const Steadfast__V1__SubmitRequest *)request->message;
    char text[64];
    snprintf(text, sizeof(text),
             "gr\xc3\xbc\xc3\x9f"
             "e from %s",
             m->spec_json);
    rpc_fail(call, err_from_name(m->spec_json), text);
}

TEST(every_error_code_arrives_by_name_with_its_text)
{
    start_with(RPC_ON_LOOP, fail_by_name, NULL);
    for (int code = 1; code < ERR_CODE_COUNT; code++) {
        struct answer answer = {0};
        fx_submit(err_name((enum err_code)code), 5000, RPC_ON_LOOP, &answer);
        WAIT_UNTIL(answer.is_done);
        CHECK_STR(err_name(answer.status.code), err_name((enum err_code)code));
        char want[64];
        snprintf(want, sizeof(want),
                 "gr\xc3\xbc\xc3\x9f"
                 "e from %s",
                 err_name((enum err_code)code));
        CHECK_STR(answer.status.text, want);
    }
    fx_stop();
}

static void fail_at_length(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)request;
    rpc_fail(call, ERR_STALE, arg);
}

TEST(an_error_text_of_any_length_and_alphabet_arrives_cut_not_replaced)
{
    static char text[60001]; /* two bytes a character, three on the wire for each byte */
    for (int i = 0; i < 30000; i++)
        memcpy(text + 2 * (size_t)i, "\xc3\xa9", 2);
    start_with(RPC_INLINE, fail_at_length, text);
    struct answer answer = {0};
    fx_submit("x", 5000, RPC_ON_LOOP, &answer);
    WAIT_UNTIL(answer.is_done);
    CHECK_STR(err_name(answer.status.code), "STALE");
    CHECK(strncmp(answer.status.text, text, 300) == 0);
    fx_stop();
}

static struct rpc_call *held;
static atomic_bool has_ended;
static atomic_bool was_cancelled_seen;

static void on_held_end(struct rpc_call *call, bool was_cancelled, void *arg)
{
    CHECK(call == arg);
    CHECK(!has_ended);
    was_cancelled_seen = was_cancelled;
    has_ended = true;
}

static void hold(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)request;
    (void)arg;
    held = call;
    rpc_call_ref(call);
    rpc_on_end(call, on_held_end, call);
}

TEST(a_deadline_ends_the_call_on_both_sides)
{
    start_with(RPC_ON_LOOP, hold, NULL);
    struct answer answer = {0};
    uint64_t start = clock_now_ns();
    fx_submit("x", 200, RPC_ON_LOOP, &answer);
    WAIT_UNTIL(answer.is_done && has_ended);
    CHECK(answer.status.code == ERR_TIMEOUT);
    CHECK(clock_now_ns() - start >= 190 * NS_PER_MS);
    CHECK(was_cancelled_seen);
    fx_reply_submit(held, "too late", 1); /* ignored */
    rpc_call_unref(held);
    fx_stop();
}

static void drop(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)call;
    (void)request;
    (void)arg;
}

TEST(a_handler_that_forgets_its_call_fails_it)
{
    start_with(RPC_ON_LOOP, drop, NULL);
    struct answer answer = {0};
    fx_submit("x", 5000, RPC_ON_LOOP, &answer);
    WAIT_UNTIL(answer.is_done);
    CHECK(answer.status.code == ERR_CANCELLED);
    CHECK_STR(answer.status.text, "the call was dropped without an answer");
    fx_stop();
}

static void *reply_elsewhere(void *arg)
{
    fx_reply_submit(arg, "from a thread", 7);
    rpc_call_unref(arg);
    return NULL;
}

static pthread_t replier;

static void hand_off(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)request;
    (void)arg;
    rpc_call_ref(call);
    CHECK(pthread_create(&replier, NULL, reply_elsewhere, call) == 0);
}

TEST(any_thread_may_reply)
{
    start_with(RPC_INLINE, hand_off, NULL);
    struct answer answer = {0};
    fx_submit("x", 5000, RPC_ON_LOOP, &answer);
    WAIT_UNTIL(answer.is_done);
    CHECK_STR(answer.text, "from a thread");
    pthread_join(replier, NULL);
    fx_stop();
}

TEST(an_unknown_method_is_refused_by_its_name)
{
    start_with(RPC_ON_LOOP, echo, &handler_thread);
    struct err err;
    Steadfast__V1__JobRef ref = STEADFAST__V1__JOB_REF__INIT;
    ProtobufCMessage *reply = NULL;
    CHECK(rpc_invoke_sync(fx.channel, &coord_method_get_job,
                          &(struct rpc_out){.message = &ref.base}, 5000, &reply,
                          &err) == ERR_INVALID);
    CHECK(!reply);
    CHECK(strstr(err.text, "no method /steadfast.v1.Coordinator/GetJob here"));
    CHECK(strstr(err.text, "gRPC status 12"));
    fx_stop();
}

TEST(a_synchronous_call_returns_a_reply_of_its_own)
{
    start_with(RPC_INLINE, echo, &handler_thread);
    struct err err;
    Steadfast__V1__SubmitRequest request = STEADFAST__V1__SUBMIT_REQUEST__INIT;
    request.spec_json = (char *)"sync";
    ProtobufCMessage *reply = NULL;
    CHECK_OK(rpc_invoke_sync(fx.channel, &coord_method_submit_job,
                             &(struct rpc_out){.message = &request.base}, 5000, &reply, &err));
    CHECK_STR(((Steadfast__V1__SubmitReply *)reply)->name, "sync");
    protobuf_c_message_free_unpacked(reply, NULL);
    fx_stop();
}

static void count_bytes(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)arg;
    const Steadfast__V1__SubmitRequest *m = (const Steadfast__V1__SubmitRequest *)request->message;
    fx_reply_submit(call, "", strlen(m->spec_json));
}

TEST(a_message_beyond_the_limit_is_refused_before_it_leaves)
{
    start_with(RPC_INLINE, count_bytes, NULL);
    char *text = malloc(LIMIT_RPC_MESSAGE_BYTES + 1);
    memset(text, 'a', LIMIT_RPC_MESSAGE_BYTES);
    text[LIMIT_RPC_MESSAGE_BYTES] = '\0';
    struct err err;
    Steadfast__V1__SubmitRequest request = STEADFAST__V1__SUBMIT_REQUEST__INIT;
    request.spec_json = text;
    ProtobufCMessage *reply = NULL;
    CHECK(rpc_invoke_sync(fx.channel, &coord_method_submit_job,
                          &(struct rpc_out){.message = &request.base}, 5000, &reply,
                          &err) == ERR_INVALID);
    CHECK(strstr(err.text, "SubmitRequest of 4194309 bytes, want at most 4194304"));
    text[LIMIT_RPC_MESSAGE_BYTES - 5] = '\0'; /* tag and length take five */
    CHECK_OK(rpc_invoke_sync(fx.channel, &coord_method_submit_job,
                             &(struct rpc_out){.message = &request.base}, 5000, &reply, &err));
    CHECK_U64(((Steadfast__V1__SubmitReply *)reply)->job, LIMIT_RPC_MESSAGE_BYTES - 5);
    protobuf_c_message_free_unpacked(reply, NULL);
    free(text);
    fx_stop();
}

TEST(nobody_listening_is_unavailable_and_names_the_address)
{
    fx_client_start();
    fx_connect(1); /* nobody serves tcpmux */
    struct answer answer = {0};
    fx_submit("x", 3000, RPC_ON_LOOP, &answer);
    WAIT_UNTIL(answer.is_done);
    CHECK(answer.status.code == ERR_UNAVAILABLE);
    CHECK(strstr(answer.status.text, "127.0.0.1:1 steadfast.v1.Coordinator/SubmitJob"));
    fx_stop();
}

TEST(bad_targets_are_refused_with_the_value)
{
    fx_client_start();
    static const char *const bad[] = {"",       "host",       "host:",   ":80",
                                      "host:0", "host:65536", "a:b:80",  "host:80x",
                                      "[::1]",  "host:-1",    "host: 80"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct err err = {0};
        struct rpc_channel *channel = NULL;
        if (rpc_channel_new(fx.env, bad[i], NULL, &channel, &err) != ERR_INVALID)
            test_fail(__FILE__, __LINE__, "\"%s\" was taken", bad[i]);
        char quoted[64];
        snprintf(quoted, sizeof(quoted), "\"%s\"", bad[i]);
        CHECK(strstr(err.text, quoted));
    }
    fx_stop();
}

TEST(names_and_ipv6_are_dialled_too)
{
    struct err err;
    fx_new_server(300);
    struct rpc_method row = coord_method_submit_job;
    rpc_server_add_method(fx.server, &row, echo, &handler_thread);
    fx_start_server();
    rpc_channel_free(fx.channel);
    snprintf(fx.address, sizeof(fx.address), "localhost:%u", fx.port);
    CHECK_OK(rpc_channel_new(fx.env, fx.address, NULL, &fx.channel, &err));
    struct answer answer = {0};
    fx_submit("by name", 5000, RPC_ON_LOOP, &answer);
    WAIT_UNTIL(answer.is_done);
    CHECK_STR(answer.text, "by name");

    struct rpc_server *six = NULL;
    uint16_t port = 0;
    CHECK_OK(rpc_server_new(fx.env, NULL, &six, &err));
    if (rpc_server_listen(six, "[::1]:0", &port, &err) == ERR_OK) {
        rpc_server_add_method(six, &row, echo, &handler_thread);
        rpc_server_start(six);
        struct rpc_channel *old = fx.channel;
        snprintf(fx.address, sizeof(fx.address), "[::1]:%u", port);
        CHECK_OK(rpc_channel_new(fx.env, fx.address, NULL, &fx.channel, &err));
        struct answer second = {0};
        fx_submit("by six", 5000, RPC_ON_LOOP, &second);
        WAIT_UNTIL(second.is_done);
        CHECK_STR(second.text, "by six");
        rpc_channel_free(old);
        bool is_drained = false;
        rpc_server_drain(six, fx_set_flag, &is_drained);
        WAIT_UNTIL(is_drained);
    }
    rpc_server_free(six);
    fx_stop();
}
