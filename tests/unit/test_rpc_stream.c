/* SPDX-License-Identifier: Apache-2.0 */
/* rpc: the three kinds of streams, their order, bounds, back-pressure and ends. */
#include <pthread.h>

#include "common/base/limits.h"
#include "tests/unit/rpc_fixture.h"

/* ---- bidi: Attach, heartbeats up, acks down with the same number ----------------------------- */
static void send_ack(struct rpc_call *call, uint64_t number)
{
    Steadfast__V1__CoordMessage message = STEADFAST__V1__COORD_MESSAGE__INIT;
    Steadfast__V1__JobClose close = STEADFAST__V1__JOB_CLOSE__INIT;
    close.job = number;
    message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_CLOSE;
    message.close = &close;
    enum err_code code = rpc_send(call, &(struct rpc_out){.message = &message.base}, NULL, NULL);
    CHECK(code == ERR_OK || code == ERR_CANCELLED);
}

static enum err_code send_heartbeat(struct rpc_ccall *call, uint64_t number,
                                    void (*on_sent)(struct rpc_ccall *, bool, void *), void *arg)
{
    Steadfast__V1__MemberMessage message = STEADFAST__V1__MEMBER_MESSAGE__INIT;
    Steadfast__V1__Heartbeat beat = STEADFAST__V1__HEARTBEAT__INIT;
    beat.sequence = number;
    message.kind_case = STEADFAST__V1__MEMBER_MESSAGE__KIND_HEARTBEAT;
    message.heartbeat = &beat;
    return rpc_csend(call, &(struct rpc_out){.message = &message.base}, on_sent, arg);
}

static atomic_bool has_server_end;
static atomic_bool server_was_cancelled;
static atomic_uint server_got;

static void on_server_end(struct rpc_call *call, bool was_cancelled, void *arg)
{
    (void)call;
    (void)arg;
    CHECK(!has_server_end);
    server_was_cancelled = was_cancelled;
    has_server_end = true;
}

static void echo_next(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    if (!in) {
        rpc_finish(call);
        return;
    }
    rpc_recv(call, echo_next, arg);
    const Steadfast__V1__MemberMessage *m = (const Steadfast__V1__MemberMessage *)in->message;
    if (m->kind_case != STEADFAST__V1__MEMBER_MESSAGE__KIND_HEARTBEAT)
        return;
    server_got++;
    send_ack(call, m->heartbeat->sequence);
}

static void on_attach(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    CHECK(!request);
    CHECK(strncmp(rpc_peer(call), "ipv4:127.0.0.1:", 15) == 0);
    rpc_on_end(call, on_server_end, NULL);
    rpc_recv(call, echo_next, arg);
}

struct talk {
    struct rpc_ccall *call;
    uint64_t next; /* ack awaited */
    atomic_bool has_null;
    struct answer end;
};

static void on_ack(struct rpc_ccall *call, const struct rpc_in *in, void *arg)
{
    struct talk *talk = arg;
    CHECK(!talk->end.is_done);
    if (!in) {
        talk->has_null = true;
        return;
    }
    rpc_crecv(call, on_ack, talk);
    const Steadfast__V1__CoordMessage *m = (const Steadfast__V1__CoordMessage *)in->message;
    CHECK_U64(m->close->job, talk->next);
    talk->next++;
}

static void start_bidi(enum rpc_where where, struct talk *talk)
{
    struct err err;
    fx_new_server(300);
    struct rpc_method row = fleet_method_attach;
    row.where = where;
    rpc_server_add_method(fx.server, &row, on_attach, NULL);
    fx_start_server();
    struct rpc_call_options options = {.timeout_ms = UINT32_MAX, .where = where};
    CHECK_OK(rpc_open(fx.channel, &fleet_method_attach, NULL, &options, on_answer, &talk->end,
                      &talk->call, &err));
}

static void check_bidi(enum rpc_where where)
{
    struct talk talk = {0};
    start_bidi(where, &talk);
    rpc_crecv(talk.call, on_ack, &talk);
    for (uint64_t i = 0; i < 300; i++)
        CHECK(send_heartbeat(talk.call, i, NULL, NULL) == ERR_OK);
    rpc_cclose_send(talk.call);
    WAIT_UNTIL(talk.end.is_done && has_server_end);
    CHECK(talk.end.status.code == ERR_OK);
    CHECK(talk.has_null);
    CHECK_U64(talk.next, 300);
    CHECK(!server_was_cancelled);
    CHECK(send_heartbeat(talk.call, 0, NULL, NULL) == ERR_CANCELLED);
    rpc_ccall_unref(talk.call);
    fx_stop();
}

TEST(a_bidi_stream_on_the_loop_keeps_order_and_ends_last)
{
    check_bidi(RPC_ON_LOOP);
}

TEST(a_bidi_stream_inline_keeps_order_and_ends_last)
{
    check_bidi(RPC_INLINE);
}

TEST(a_cancelled_stream_ends_on_both_sides)
{
    struct talk talk = {0};
    start_bidi(RPC_ON_LOOP, &talk);
    rpc_crecv(talk.call, on_ack, &talk);
    CHECK(send_heartbeat(talk.call, 0, NULL, NULL) == ERR_OK);
    WAIT_UNTIL(talk.next == 1);
    rpc_cancel(talk.call);
    WAIT_UNTIL(talk.end.is_done && has_server_end);
    CHECK(talk.end.status.code == ERR_CANCELLED);
    CHECK(talk.has_null);
    CHECK(server_was_cancelled);
    rpc_ccall_unref(talk.call);
    fx_stop();
}

/* ---- many threads ---------------------------------------------------------------------------- */
#define THREADS    4
#define PER_THREAD 200

static uint64_t seen_next[THREADS];

static void on_threaded(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    if (!in) {
        rpc_finish(call);
        return;
    }
    rpc_recv(call, on_threaded, arg);
    const Steadfast__V1__MemberMessage *m = (const Steadfast__V1__MemberMessage *)in->message;
    uint64_t thread = m->heartbeat->sequence >> 32, number = m->heartbeat->sequence & 0xffffffff;
    CHECK_U64(number, seen_next[thread]);
    seen_next[thread]++;
}

static void on_attach_threaded(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)request;
    rpc_recv(call, on_threaded, arg);
}

static struct rpc_ccall *shared_call;

static void *send_many(void *arg)
{
    for (uint64_t i = 0; i < PER_THREAD; i++)
        CHECK(send_heartbeat(shared_call, *(uint32_t *)arg * (1ull << 32) + i, NULL, NULL) ==
              ERR_OK);
    return NULL;
}

TEST(many_threads_send_on_one_call_and_each_keeps_its_order)
{
    struct err err;
    struct answer end = {0};
    fx_new_server(300);
    struct rpc_method row = fleet_method_attach;
    row.where = RPC_INLINE;
    rpc_server_add_method(fx.server, &row, on_attach_threaded, NULL);
    fx_start_server();
    struct rpc_call_options options = {.timeout_ms = 20000};
    CHECK_OK(rpc_open(fx.channel, &fleet_method_attach, NULL, &options, on_answer, &end,
                      &shared_call, &err));
    pthread_t threads[THREADS];
    static uint32_t numbers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, send_many, &numbers[i]) == 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    rpc_cclose_send(shared_call);
    WAIT_UNTIL(end.is_done);
    CHECK(end.status.code == ERR_OK);
    for (size_t i = 0; i < THREADS; i++)
        CHECK_U64(seen_next[i], PER_THREAD);
    rpc_ccall_unref(shared_call);
    fx_stop();
}

/* ---- many calls, cancelled at any moment -------------------------------------------------------
 */
static atomic_uint storm_begun, storm_server_ends, storm_client_ends;

static void on_storm_end(struct rpc_call *call, bool was_cancelled, void *arg)
{
    (void)call;
    (void)was_cancelled;
    (void)arg;
    storm_server_ends++;
}

static void on_storm(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)request;
    storm_begun++;
    rpc_on_end(call, on_storm_end, NULL);
    rpc_recv(call, echo_next, arg);
}

static void on_storm_ack(struct rpc_ccall *call, const struct rpc_in *in, void *arg)
{
    if (in)
        rpc_crecv(call, on_storm_ack, arg);
}

static void on_storm_done(void *arg, const struct err *status, const struct rpc_in *reply)
{
    (void)arg;
    (void)reply;
    CHECK(status->code == ERR_OK || status->code == ERR_CANCELLED);
    storm_client_ends++;
}

static void *storm(void *arg)
{
    uint32_t x = 1 + *(uint32_t *)arg;
    for (int i = 0; i < 100; i++) {
        struct err err;
        struct rpc_ccall *call;
        struct rpc_call_options options = {.timeout_ms = 60000,
                                           .where = x & 1024 ? RPC_INLINE : RPC_ON_LOOP};
        CHECK_OK(rpc_open(fx.channel, &fleet_method_attach, NULL, &options, on_storm_done, NULL,
                          &call, &err));
        rpc_crecv(call, on_storm_ack, NULL);
        for (int n = 0; n < 8; n++) {
            x = x * 1664525 + 1013904223;
            enum err_code code = send_heartbeat(call, 0, NULL, NULL);
            CHECK(code == ERR_OK || code == ERR_CANCELLED);
            if (x >> 29 == 0)
                rpc_cancel(call);
        }
        rpc_cclose_send(call);
        rpc_ccall_unref(call);
    }
    return NULL;
}

static void check_storm(enum rpc_where where)
{
    fx_new_server(300);
    struct rpc_method row = fleet_method_attach;
    row.where = where;
    rpc_server_add_method(fx.server, &row, on_storm, NULL);
    fx_start_server();
    pthread_t threads[THREADS];
    static uint32_t numbers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, storm, &numbers[i]) == 0);
    }
    WAIT_UNTIL(storm_client_ends == THREADS * 100);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    fx_stop();
    CHECK_U64(storm_server_ends, storm_begun);
}

TEST(calls_that_threads_start_and_cancel_all_end_inline)
{
    check_storm(RPC_INLINE);
}

TEST(calls_that_threads_start_and_cancel_all_end_on_the_loop)
{
    check_storm(RPC_ON_LOOP);
}

/* ---- server stream: Pull --------------------------------------------------------------------- */
static uint8_t chunk_bytes[LIMIT_CHUNK_BYTES];
static atomic_uint blobs_freed;

static void on_blob_free(void *arg)
{
    (void)arg;
    blobs_freed++;
}

static enum err_code send_chunk(struct rpc_call *call, uint64_t number, uint64_t total)
{
    struct rpc_blob *blob = rpc_blob_wrap(chunk_bytes, sizeof(chunk_bytes), on_blob_free, NULL);
    Steadfast__V1__TensorChunk chunk = STEADFAST__V1__TENSOR_CHUNK__INIT;
    chunk.offset = number;
    chunk.total_bytes = total;
    struct rpc_out out = {&chunk.base, blob, 0, sizeof(chunk_bytes)};
    enum err_code code = rpc_send(call, &out, NULL, NULL);
    rpc_blob_unref(blob);
    return code;
}

static atomic_uint chunks_queued;
static atomic_bool was_full;

static void on_pull_all(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)arg;
    CHECK_U64(((const Steadfast__V1__PullRequest *)request->message)->shard, 3);
    while (!was_full && chunks_queued < 1000) { /* far more than fits */
        enum err_code code = send_chunk(call, chunks_queued, 1000);
        if (code == ERR_OK)
            chunks_queued++;
        else
            was_full = code == ERR_FULL;
        CHECK(code == ERR_OK || code == ERR_FULL);
    }
    rpc_finish(call);
}

static atomic_uint chunks_got;

static void on_chunk(struct rpc_ccall *call, const struct rpc_in *in, void *arg)
{
    if (!in)
        return;
    rpc_crecv(call, on_chunk, arg);
    const Steadfast__V1__TensorChunk *chunk = (const Steadfast__V1__TensorChunk *)in->message;
    CHECK_U64(chunk->offset, chunks_got);
    CHECK_U64(rpc_view_bytes(in->view), sizeof(chunk_bytes));
    chunks_got++;
}

static void open_pull(void (*on_pull)(struct rpc_call *, const struct rpc_in *, void *),
                      struct rpc_ccall **ret_call, struct answer *end)
{
    struct err err;
    fx_new_server(300);
    rpc_server_add_method(fx.server, &ps_method_pull, on_pull, NULL);
    fx_start_server();
    Steadfast__V1__PullRequest request = STEADFAST__V1__PULL_REQUEST__INIT;
    request.shard = 3;
    struct rpc_call_options options = {
        .timeout_ms = 60000, .where = RPC_INLINE, .has_payload = true};
    CHECK_OK(rpc_open(fx.channel, &ps_method_pull, &(struct rpc_out){.message = &request.base},
                      &options, on_answer, end, ret_call, &err));
}

TEST(a_full_queue_says_so_and_what_was_queued_still_arrives_in_order)
{
    struct rpc_ccall *call;
    struct answer end = {0};
    open_pull(on_pull_all, &call, &end);
    WAIT_UNTIL(was_full);
    /* In flight is one message; the rest is the bound. */
    CHECK(chunks_queued >= LIMIT_RPC_QUEUED_BYTES / LIMIT_CHUNK_BYTES - 1);
    CHECK(chunks_queued <= LIMIT_RPC_QUEUED_BYTES / LIMIT_CHUNK_BYTES + 16);
    CHECK(!end.is_done);
    rpc_crecv(call, on_chunk, NULL);
    WAIT_UNTIL(end.is_done);
    CHECK(end.status.code == ERR_OK);
    CHECK_U64(chunks_got, chunks_queued);
    rpc_ccall_unref(call);
    fx_stop();
    CHECK_U64(blobs_freed, chunks_queued + 1); /* the refused one too */
}

TEST(tiny_messages_fill_the_queue_by_what_they_cost_not_by_their_bytes)
{
    struct talk talk = {0};
    start_bidi(RPC_ON_LOOP, &talk); /* the loop does not run: nothing is received */
    /* Large ones first, more than the window takes, so that everything after them has to wait. */
    Steadfast__V1__MemberMessage message = STEADFAST__V1__MEMBER_MESSAGE__INIT;
    Steadfast__V1__Leaving leaving = STEADFAST__V1__LEAVING__INIT;
    char *reason = malloc(LIMIT_CHUNK_BYTES);
    memset(reason, 'a', LIMIT_CHUNK_BYTES);
    reason[LIMIT_CHUNK_BYTES - 1] = '\0';
    leaving.reason = reason;
    message.kind_case = STEADFAST__V1__MEMBER_MESSAGE__KIND_LEAVING;
    message.leaving = &leaving;
    for (size_t i = 0; i < 2 * LIMIT_RPC_WINDOW_BYTES / LIMIT_CHUNK_BYTES; i++)
        CHECK(rpc_csend(talk.call, &(struct rpc_out){.message = &message.base}, NULL, NULL) ==
              ERR_OK);
    free(reason);
    uint64_t count = 0;
    while (send_heartbeat(talk.call, count, NULL, NULL) == ERR_OK)
        CHECK(++count < LIMIT_RPC_QUEUED_BYTES / 512);
    CHECK(send_heartbeat(talk.call, count, NULL, NULL) == ERR_FULL);
    rpc_cancel(talk.call);
    WAIT_UNTIL(talk.end.is_done);
    rpc_ccall_unref(talk.call);
    fx_stop();
}

static void on_pull_then_fail(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)request;
    (void)arg;
    for (uint64_t i = 0; i < 3; i++)
        CHECK(send_chunk(call, i, 3) == ERR_OK);
    rpc_fail(call, ERR_STALE, "version 7 is gone");
    CHECK(send_chunk(call, 3, 3) == ERR_CANCELLED);
}

TEST(a_stream_that_fails_says_why_after_what_it_sent)
{
    struct rpc_ccall *call;
    struct answer end = {0};
    open_pull(on_pull_then_fail, &call, &end);
    rpc_crecv(call, on_chunk, NULL);
    WAIT_UNTIL(end.is_done);
    CHECK(end.status.code == ERR_STALE);
    CHECK_STR(end.status.text, "version 7 is gone");
    CHECK(chunks_got <= 3);
    rpc_ccall_unref(call);
    fx_stop();
    CHECK_U64(blobs_freed, 4);
}

/* ---- client stream: Push --------------------------------------------------------------------- */
static _Atomic(struct rpc_call *) push_call;
static atomic_uint push_got;
static atomic_bool push_may_read;

static void on_push_chunk(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    if (!in) {
        Steadfast__V1__PushReply reply = STEADFAST__V1__PUSH_REPLY__INIT;
        reply.version = push_got;
        rpc_reply(call, &(struct rpc_out){.message = &reply.base});
        return;
    }
    push_got++;
    rpc_recv(call, on_push_chunk, arg);
}

static void on_push(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    CHECK(!request);
    if (push_may_read) {
        rpc_recv(call, on_push_chunk, arg);
        return;
    }
    rpc_call_ref(call);
    push_call = call;
}

static void on_push_fail(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)request;
    (void)arg;
    rpc_fail(call, ERR_STALE, "generation 3 is over");
}

static void on_ping(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)request;
    (void)arg;
    fx_reply_submit(call, "", 0);
}

static atomic_uint sent_ok, sent_failed;

static void on_csent(struct rpc_ccall *call, bool ok, void *arg)
{
    (void)call;
    (void)arg;
    if (ok)
        sent_ok++;
    else
        sent_failed++;
}

static void open_push(void (*on_call)(struct rpc_call *, const struct rpc_in *, void *),
                      struct rpc_ccall **ret_call, struct answer *end)
{
    struct err err;
    fx_new_server(300);
    rpc_server_add_method(fx.server, &ps_method_push, on_call, NULL);
    struct rpc_method row = coord_method_submit_job;
    row.where = RPC_INLINE;
    rpc_server_add_method(fx.server, &row, on_ping, NULL);
    fx_start_server();
    struct rpc_call_options options = {.timeout_ms = 60000, .where = RPC_INLINE};
    CHECK_OK(rpc_open(fx.channel, &ps_method_push, NULL, &options, on_answer, end, ret_call, &err));
}

static enum err_code push_chunk(struct rpc_ccall *call)
{
    struct rpc_blob *blob = rpc_blob_wrap(chunk_bytes, sizeof(chunk_bytes), on_blob_free, NULL);
    Steadfast__V1__PushChunk chunk = STEADFAST__V1__PUSH_CHUNK__INIT;
    struct rpc_out out = {&chunk.base, blob, 0, sizeof(chunk_bytes)};
    enum err_code code = rpc_csend(call, &out, on_csent, NULL);
    rpc_blob_unref(blob);
    return code;
}

TEST(a_client_stream_gets_its_reply)
{
    struct rpc_ccall *call;
    struct answer end = {0};
    push_may_read = true;
    open_push(on_push, &call, &end);
    for (int i = 0; i < 20; i++)
        CHECK(push_chunk(call) == ERR_OK);
    rpc_cclose_send(call);
    WAIT_UNTIL(end.is_done);
    CHECK(end.status.code == ERR_OK);
    CHECK_U64(end.number, 20);
    CHECK_U64(sent_ok, 20);
    rpc_ccall_unref(call);
    fx_stop();
    CHECK_U64(blobs_freed, 20);
}

TEST(a_server_that_does_not_read_holds_the_sender_back)
{
    struct rpc_ccall *call;
    struct answer end = {0};
    open_push(on_push, &call, &end);
    for (int i = 0; i < 40; i++)
        CHECK(push_chunk(call) == ERR_OK);
    /* A hundred round trips on the same connection: time for whatever may move to have moved. */
    for (int i = 0; i < 100; i++) {
        struct answer ping = {0};
        fx_submit("", 5000, RPC_INLINE, &ping);
        WAIT_UNTIL(ping.is_done);
        CHECK(ping.status.code == ERR_OK);
    }
    CHECK(push_call);
    CHECK(sent_ok <= LIMIT_RPC_WINDOW_BYTES / LIMIT_CHUNK_BYTES + 4);
    CHECK_U64(push_got, 0);
    rpc_recv(push_call, on_push_chunk, NULL);
    rpc_call_unref(push_call);
    rpc_cclose_send(call);
    WAIT_UNTIL(end.is_done);
    CHECK(end.status.code == ERR_OK);
    CHECK_U64(end.number, 40);
    rpc_ccall_unref(call);
    fx_stop();
}

TEST(a_refused_push_hears_why_and_its_queue_is_given_back)
{
    struct rpc_ccall *call;
    struct answer end = {0};
    open_push(on_push_fail, &call, &end);
    unsigned accepted = 0;
    for (int i = 0; i < 40; i++)
        accepted += push_chunk(call) == ERR_OK;
    WAIT_UNTIL(end.is_done);
    CHECK(end.status.code == ERR_STALE);
    CHECK_STR(end.status.text, "generation 3 is over");
    CHECK_U64(sent_ok + sent_failed, accepted);
    CHECK(push_chunk(call) == ERR_CANCELLED);
    rpc_ccall_unref(call);
    fx_stop();
    CHECK_U64(blobs_freed, 41);
}

static void on_late(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    (void)call;
    CHECK(!in);
    *(atomic_bool *)arg = true;
}

TEST(asking_for_a_message_after_the_end_gets_the_end)
{
    struct rpc_ccall *call;
    struct answer end = {0};
    atomic_bool has_late = false;
    open_push(on_push, &call, &end);
    WAIT_UNTIL(push_call != NULL); /* written on the io thread before anything below */
    rpc_on_end(push_call, on_server_end, NULL);
    rpc_cancel(call);
    WAIT_UNTIL(end.is_done && has_server_end);
    rpc_recv(push_call, on_late, &has_late);
    WAIT_UNTIL(has_late);
    rpc_call_unref(push_call);
    rpc_ccall_unref(call);
    fx_stop();
}

/* ---- messages of the wrong type -------------------------------------------------------------- */
TEST(a_malformed_message_ends_the_stream_as_invalid)
{
    struct talk talk = {0};
    start_bidi(RPC_ON_LOOP, &talk);
    rpc_crecv(talk.call, on_ack, &talk);
    Steadfast__V1__MemberMessage message = STEADFAST__V1__MEMBER_MESSAGE__INIT;
    static uint8_t beyond[] = {0xff, 0x01}; /* a length past the end */
    ProtobufCMessageUnknownField field = {.tag = 2,
                                          .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
                                          .len = sizeof(beyond),
                                          .data = beyond};
    message.base.n_unknown_fields = 1;
    message.base.unknown_fields = &field;
    CHECK(rpc_csend(talk.call, &(struct rpc_out){.message = &message.base}, NULL, NULL) == ERR_OK);
    WAIT_UNTIL(talk.end.is_done && has_server_end);
    CHECK(talk.end.status.code == ERR_INVALID);
    CHECK_STR(talk.end.status.text, "3 bytes are no message steadfast.v1.MemberMessage");
    rpc_ccall_unref(talk.call);
    fx_stop();
}

static void on_attach_nonsense(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)request;
    (void)arg;
    Steadfast__V1__CoordMessage message = STEADFAST__V1__COORD_MESSAGE__INIT;
    static uint8_t beyond[] = {0xff, 0x01};
    ProtobufCMessageUnknownField field = {.tag = 2,
                                          .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
                                          .len = sizeof(beyond),
                                          .data = beyond};
    message.base.n_unknown_fields = 1;
    message.base.unknown_fields = &field;
    rpc_on_end(call, on_server_end, NULL);
    CHECK(rpc_send(call, &(struct rpc_out){.message = &message.base}, NULL, NULL) == ERR_OK);
    rpc_call_ref(call);
    *(struct rpc_call **)arg = call;
}

TEST(a_server_that_sends_nonsense_is_left_with_a_reason)
{
    struct err err;
    struct talk talk = {0};
    struct rpc_call *kept = NULL;
    fx_new_server(300);
    rpc_server_add_method(fx.server, &fleet_method_attach, on_attach_nonsense, &kept);
    fx_start_server();
    struct rpc_call_options options = {.timeout_ms = 10000};
    CHECK_OK(rpc_open(fx.channel, &fleet_method_attach, NULL, &options, on_answer, &talk.end,
                      &talk.call, &err));
    rpc_crecv(talk.call, on_ack, &talk);
    WAIT_UNTIL(talk.end.is_done && has_server_end);
    CHECK(talk.end.status.code == ERR_CORRUPT);
    CHECK(strstr(talk.end.status.text, fx.address));
    CHECK(strstr(talk.end.status.text, "3 bytes are no message steadfast.v1.CoordMessage"));
    CHECK(server_was_cancelled);
    rpc_call_unref(kept);
    rpc_ccall_unref(talk.call);
    fx_stop();
}
