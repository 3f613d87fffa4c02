/* SPDX-License-Identifier: Apache-2.0 */
/* rpc: payloads cross unchanged, are not copied on the way out, and are given back exactly once. */
#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/limits.h"
#include "common/rpc/rpc_msg.h"
#include "tests/unit/rpc_fixture.h"

#define PAYLOAD_BYTES (5 * LIMIT_CHUNK_BYTES / 2 + 7)

static uint8_t sent[PAYLOAD_BYTES], got[PAYLOAD_BYTES];
static atomic_uint freed;
static struct rpc_view *kept[3];
static atomic_uint kept_count;

static void fill(void)
{
    uint32_t x = 42;
    for (size_t i = 0; i < sizeof(sent); i++) {
        x = x * 1664525 + 1013904223;
        sent[i] = (uint8_t)(x >> 24);
    }
}

static void on_free(void *arg)
{
    CHECK(arg == sent);
    freed++;
}

static size_t chunk_end(size_t at)
{
    return MIN(at + LIMIT_CHUNK_BYTES, PAYLOAD_BYTES);
}

TEST(a_payload_leaves_as_the_callers_own_bytes)
{
    grpc_init();
    struct rpc_blob *blob = rpc_blob_wrap(sent, sizeof(sent), on_free, sent);
    Steadfast__V1__PushChunk chunk = STEADFAST__V1__PUSH_CHUNK__INIT;
    struct rpc_out out = {&chunk.base, blob, 100, 5000};
    grpc_byte_buffer *buffer;
    size_t bytes;
    struct err err;
    CHECK_OK(rpc_msg_pack(&out, &buffer, &bytes, &err));
    const grpc_slice_buffer *slices = &buffer->data.raw.slice_buffer;
    CHECK_U64(slices->count, 2);
    CHECK(GRPC_SLICE_START_PTR(slices->slices[1]) == sent + 100);
    CHECK_U64(GRPC_SLICE_LENGTH(slices->slices[1]), 5000);
    rpc_blob_unref(blob);
    CHECK_U64(freed, 0);
    grpc_byte_buffer_destroy(buffer);
    CHECK_U64(freed, 1);
    grpc_shutdown();
}

/* ---- pull ------------------------------------------------------------------------------------ */
static void on_pull(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)request;
    (void)arg;
    struct rpc_blob *blob = rpc_blob_wrap(sent, sizeof(sent), on_free, sent);
    for (size_t at = 0; at < PAYLOAD_BYTES; at = chunk_end(at)) {
        Steadfast__V1__TensorChunk chunk = STEADFAST__V1__TENSOR_CHUNK__INIT;
        chunk.offset = at;
        chunk.total_bytes = PAYLOAD_BYTES;
        struct rpc_out out = {&chunk.base, blob, at, chunk_end(at) - at};
        CHECK(rpc_send(call, &out, NULL, NULL) == ERR_OK);
    }
    rpc_blob_unref(blob);
    rpc_finish(call);
}

static void on_chunk(struct rpc_ccall *call, const struct rpc_in *in, void *arg)
{
    if (!in)
        return;
    rpc_crecv(call, on_chunk, arg);
    const Steadfast__V1__TensorChunk *chunk = (const Steadfast__V1__TensorChunk *)in->message;
    CHECK_U64(chunk->total_bytes, PAYLOAD_BYTES);
    CHECK_U64(chunk->data.len, 0); /* it is in the view and nowhere else */
    rpc_view_copy(in->view, 0, got + chunk->offset, rpc_view_bytes(in->view));
}

static void start_pull(void (*handler)(struct rpc_call *, const struct rpc_in *, void *),
                       struct rpc_ccall **ret_call, struct answer *end)
{
    struct err err;
    fill();
    fx_new_server(300);
    rpc_server_add_method(fx.server, &ps_method_pull, handler, NULL);
    fx_start_server();
    Steadfast__V1__PullRequest request = STEADFAST__V1__PULL_REQUEST__INIT;
    struct rpc_call_options options = {
        .timeout_ms = 20000, .where = RPC_INLINE, .has_payload = true};
    CHECK_OK(rpc_open(fx.channel, &ps_method_pull, &(struct rpc_out){.message = &request.base},
                      &options, on_answer, end, ret_call, &err));
}

TEST(a_pulled_payload_is_the_same_byte_for_byte)
{
    struct answer end = {0};
    struct rpc_ccall *call;
    start_pull(on_pull, &call, &end);
    rpc_crecv(call, on_chunk, NULL);
    WAIT_UNTIL(end.is_done);
    CHECK(end.status.code == ERR_OK);
    CHECK(memcmp(sent, got, sizeof(sent)) == 0);
    rpc_ccall_unref(call);
    fx_stop();
    CHECK_U64(freed, 1);
}

/* ---- push ------------------------------------------------------------------------------------ */
static void on_push_chunk(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    if (!in) {
        Steadfast__V1__PushReply reply = STEADFAST__V1__PUSH_REPLY__INIT;
        reply.version = kept_count;
        rpc_reply(call, &(struct rpc_out){.message = &reply.base});
        return;
    }
    kept[kept_count++] = rpc_view_take(in);
    rpc_recv(call, on_push_chunk, arg);
}

static void on_push(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)request;
    rpc_recv(call, on_push_chunk, arg);
}

static void push_all(struct rpc_ccall *call)
{
    struct rpc_blob *blob = rpc_blob_wrap(sent, sizeof(sent), on_free, sent);
    for (size_t at = 0; at < PAYLOAD_BYTES; at = chunk_end(at)) {
        Steadfast__V1__PushChunk chunk = STEADFAST__V1__PUSH_CHUNK__INIT;
        chunk.offset = at;
        struct rpc_out out = {&chunk.base, blob, at, chunk_end(at) - at};
        CHECK(rpc_csend(call, &out, NULL, NULL) == ERR_OK);
    }
    rpc_blob_unref(blob);
}

TEST(a_pushed_payload_can_be_kept_beyond_its_call)
{
    struct err err;
    struct answer end = {0};
    struct rpc_ccall *call;
    fill();
    fx_new_server(300);
    rpc_server_add_method(fx.server, &ps_method_push, on_push, NULL);
    fx_start_server();
    struct rpc_call_options options = {.timeout_ms = 20000};
    CHECK_OK(rpc_open(fx.channel, &ps_method_push, NULL, &options, on_answer, &end, &call, &err));
    push_all(call);
    rpc_cclose_send(call);
    WAIT_UNTIL(end.is_done);
    CHECK_U64(end.number, 3);
    CHECK_U64(freed, 1);
    size_t at = 0;
    for (size_t i = 0; i < 3; i++) {
        rpc_view_copy(kept[i], 0, got + at, rpc_view_bytes(kept[i]));
        at += rpc_view_bytes(kept[i]);
        rpc_view_free(kept[i]);
    }
    CHECK_U64(at, PAYLOAD_BYTES);
    CHECK(memcmp(sent, got, sizeof(sent)) == 0);
    rpc_ccall_unref(call);
    fx_stop();
}

static void on_pull_nothing(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)request;
    (void)arg;
    Steadfast__V1__TensorChunk chunk = STEADFAST__V1__TENSOR_CHUNK__INIT;
    chunk.not_modified = true;
    CHECK(rpc_send(call, &(struct rpc_out){.message = &chunk.base}, NULL, NULL) == ERR_OK);
    struct rpc_blob *blob = rpc_blob_wrap(sent, 0, on_free, sent);
    CHECK(rpc_send(call, &(struct rpc_out){&chunk.base, blob, 0, 0}, NULL, NULL) == ERR_OK);
    rpc_blob_unref(blob);
    rpc_finish(call);
}

static unsigned without_view, with_view;

static void on_nothing(struct rpc_ccall *call, const struct rpc_in *in, void *arg)
{
    if (!in)
        return;
    rpc_crecv(call, on_nothing, arg);
    CHECK(((const Steadfast__V1__TensorChunk *)in->message)->not_modified);
    if (in->view) {
        CHECK_U64(rpc_view_bytes(in->view), 0);
        rpc_view_copy(in->view, 0, got, 0);
        with_view++;
    } else {
        CHECK(!rpc_view_take(in));
        without_view++;
    }
}

TEST(no_payload_and_an_empty_one_are_told_apart)
{
    struct answer end = {0};
    struct rpc_ccall *call;
    start_pull(on_pull_nothing, &call, &end);
    rpc_crecv(call, on_nothing, NULL);
    WAIT_UNTIL(end.is_done);
    CHECK_U64(without_view, 1);
    CHECK_U64(with_view, 1);
    CHECK_U64(freed, 1);
    rpc_ccall_unref(call);
    fx_stop();
}

/* ---- given back when it fails ---------------------------------------------------------------- */
static _Atomic(struct rpc_call *) stalled;

static void stall(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)request;
    (void)arg;
    rpc_call_ref(call); /* and never reads */
    stalled = call;
}

TEST(a_cancel_gives_the_senders_blob_back_once)
{
    struct err err;
    struct answer end = {0};
    struct rpc_ccall *call;
    fx_new_server(300);
    rpc_server_add_method(fx.server, &ps_method_push, stall, NULL);
    fx_start_server();
    struct rpc_call_options options = {.timeout_ms = 20000, .where = RPC_INLINE};
    CHECK_OK(rpc_open(fx.channel, &ps_method_push, NULL, &options, on_answer, &end, &call, &err));
    for (int i = 0; i < 4; i++)
        push_all(call); /* more than the window takes */
    WAIT_UNTIL(stalled != NULL);
    rpc_cancel(call);
    WAIT_UNTIL(end.is_done && freed == 4);
    CHECK(end.status.code == ERR_CANCELLED);
    rpc_ccall_unref(call);
    rpc_call_unref(stalled);
    fx_stop();
    CHECK_U64(freed, 4);
}

static void serve(int fd)
{
    struct err err;
    fx_new_server(300);
    rpc_server_add_method(fx.server, &ps_method_push, stall, NULL);
    CHECK_OK(rpc_server_listen(fx.server, "127.0.0.1:0", &fx.port, &err));
    rpc_server_start(fx.server);
    if (write(fd, &fx.port, sizeof(fx.port)) != sizeof(fx.port))
        _exit(1);
    uv_run(&fx.loop, UV_RUN_DEFAULT);
}

TEST(a_dead_peer_gives_the_senders_blob_back_once)
{
    struct err err;
    struct answer end = {0};
    struct rpc_ccall *call;
    int fds[2];
    uint16_t port;
    CHECK(pipe(fds) == 0);
    pid_t pid = fork(); /* before gRPC starts in either */
    if (pid == 0)
        serve(fds[1]);
    CHECK(read(fds[0], &port, sizeof(port)) == sizeof(port));
    fx_client_start();
    fx_connect(port);
    struct rpc_call_options options = {.timeout_ms = 20000, .where = RPC_INLINE};
    CHECK_OK(rpc_open(fx.channel, &ps_method_push, NULL, &options, on_answer, &end, &call, &err));
    for (int i = 0; i < 8; i++)
        push_all(call);
    WAIT_UNTIL(freed > 0); /* some of it crossed */
    CHECK(freed < 8);
    CHECK(kill(pid, SIGKILL) == 0);
    CHECK(waitpid(pid, NULL, 0) == pid);
    WAIT_UNTIL(end.is_done && freed == 8);
    CHECK(end.status.code == ERR_UNAVAILABLE);
    rpc_ccall_unref(call);
    fx_stop();
    CHECK_U64(freed, 8);
}
