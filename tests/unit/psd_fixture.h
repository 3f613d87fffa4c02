/* SPDX-License-Identifier: Apache-2.0 */
/* psd_fixture: a parameter server, a coordinator that does as the test says, and clients of Pull
 * and Push, all in one process over real RPC; for the tests of psd only. */
#ifndef TESTS_UNIT_PSD_FIXTURE_H
#define TESTS_UNIT_PSD_FIXTURE_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/loop/loop.h"
#include "common/rpc/rpc.h"
#include "proto/fleet.pb-c.h"
#include "proto/methods.h"
#include "proto/ps.pb-c.h"
#include "psd/shell/ps.h"
#include "tests/harness.h"

#define WORDS(text) ((char *)(text))
#define JOB         7

static struct {
    struct loop *loop;
    struct loop_timer *tick; /* so that a wait looks again */
    struct rpc_env *env;
    struct rpc_server *server; /* the coordinator's */
    char coordinator[64];
    struct rpc_call *stream; /* the member's, NULL: none */
    unsigned attached;       /* hellos so far */
    bool is_server_drained;
    uint64_t beats;
    Steadfast__V1__MemberMessage *hello, *beat, *done, *leaving; /* the latest of each */
    uint64_t next_order;
    struct ps *ps;
    struct rpc_channel *channel; /* to it */
    bool is_stopped;
} fx;

static uint64_t fx_seconds(uint64_t seconds)
{
    const char *scale = getenv("TEST_TIME_SCALE");
    return seconds * NS_PER_S * (scale ? (uint64_t)atoi(scale) : 1);
}

#define WAIT_UNTIL(cond)                                                                           \
    do {                                                                                           \
        uint64_t until_ = clock_now_ns() + fx_seconds(10);                                         \
        while (!(cond)) {                                                                          \
            if (clock_now_ns() > until_)                                                           \
                test_fail(__FILE__, __LINE__, "waited too long for %s", #cond);                    \
            uv_run(loop_uv(fx.loop), UV_RUN_ONCE);                                                 \
        }                                                                                          \
    } while (0)

static void fx_on_tick(void *arg)
{
    (void)arg;
}

/* ---- the coordinator ------------------------------------------------------------------------ */
static void fx_keep(Steadfast__V1__MemberMessage **at, const Steadfast__V1__MemberMessage *message)
{
    size_t bytes = steadfast__v1__member_message__get_packed_size(message);
    uint8_t *packed = base_alloc(bytes);
    steadfast__v1__member_message__pack(message, packed);
    if (*at)
        steadfast__v1__member_message__free_unpacked(*at, NULL);
    *at = steadfast__v1__member_message__unpack(NULL, bytes, packed);
    free(packed);
}

static void fx_on_member(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    if (!in) {
        rpc_finish(call);
        return;
    }
    const Steadfast__V1__MemberMessage *message =
        (const Steadfast__V1__MemberMessage *)(const void *)in->message;
    switch (message->kind_case) {
    case STEADFAST__V1__MEMBER_MESSAGE__KIND_HELLO:
        fx_keep(&fx.hello, message);
        fx.attached++;
        break;
    case STEADFAST__V1__MEMBER_MESSAGE__KIND_HEARTBEAT:
        fx_keep(&fx.beat, message);
        fx.beats++;
        break;
    case STEADFAST__V1__MEMBER_MESSAGE__KIND_DONE:
        fx_keep(&fx.done, message);
        break;
    case STEADFAST__V1__MEMBER_MESSAGE__KIND_LEAVING:
        fx_keep(&fx.leaving, message);
        break;
    default:
        CHECK(!"a message that a server sends");
    }
    rpc_recv(call, fx_on_member, arg);
}

static void fx_on_stream_end(struct rpc_call *call, bool was_cancelled, void *arg)
{
    (void)was_cancelled;
    (void)arg;
    if (fx.stream == call)
        fx.stream = NULL;
    rpc_call_unref(call);
}

static void fx_on_attach(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    (void)in;
    fx.stream = call;
    rpc_call_ref(call);
    rpc_on_end(call, fx_on_stream_end, NULL);
    rpc_recv(call, fx_on_member, arg);
}

static void fx_say(const Steadfast__V1__CoordMessage *message)
{
    CHECK(fx.stream);
    CHECK(rpc_send(fx.stream, &(struct rpc_out){.message = &message->base}, NULL, NULL) == ERR_OK);
}

static void fx_welcome(uint64_t session, uint64_t start)
{
    Steadfast__V1__Welcome welcome = STEADFAST__V1__WELCOME__INIT;
    welcome.session = session;
    welcome.start = start;
    welcome.heartbeat_ms = 20;
    welcome.lease_ms = 2000;
    Steadfast__V1__CoordMessage message = STEADFAST__V1__COORD_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_WELCOME;
    message.welcome = &welcome;
    fx_say(&message);
}

static void fx_send_order(Steadfast__V1__ServerOrder *order)
{
    Steadfast__V1__CoordMessage message = STEADFAST__V1__COORD_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_ORDER;
    message.order = order;
    fx_say(&message);
}

/* Sends it under a new number and waits for its answer. */
static const Steadfast__V1__OrderDone *fx_order(Steadfast__V1__ServerOrder *order)
{
    order->order = ++fx.next_order;
    fx_send_order(order);
    WAIT_UNTIL(fx.done && fx.done->done->order == order->order);
    return fx.done->done;
}

#define FX_CHECK_DONE(done_)                                                                       \
    do {                                                                                           \
        const Steadfast__V1__OrderDone *d_ = (done_);                                              \
        if (strcmp(d_->code, "OK") != 0)                                                           \
            test_fail(__FILE__, __LINE__, "order: %s: %s", d_->code, d_->text);                    \
    } while (0)

static void fx_start_coordinator(const char *address)
{
    struct err err;
    uint16_t port;
    CHECK_OK(rpc_server_new(fx.env, NULL, &fx.server, &err));
    rpc_server_add_method(fx.server, &fleet_method_attach, fx_on_attach, NULL);
    CHECK_OK(rpc_server_listen(fx.server, address, &port, &err));
    snprintf(fx.coordinator, sizeof(fx.coordinator), "127.0.0.1:%u", port);
    rpc_server_start(fx.server);
}

static void fx_on_drained(void *arg)
{
    (void)arg;
    fx.is_server_drained = true;
}

UNUSED static void fx_stop_coordinator(void)
{
    if (fx.stream)
        rpc_fail(fx.stream, ERR_UNAVAILABLE, "the test ends the coordinator");
    fx.is_server_drained = false;
    rpc_server_drain(fx.server, fx_on_drained, NULL);
    WAIT_UNTIL(fx.is_server_drained);
    rpc_server_free(TAKE(fx.server));
}

/* ---- the server ----------------------------------------------------------------------------- */
static void fx_start(uint32_t shards, uint64_t memory, uint64_t inflight)
{
    struct err err;
    rpc_process_init();
    CHECK_OK(loop_new(&fx.loop, &err));
    CHECK_OK(rpc_env_new(loop_uv(fx.loop), &fx.env, &err));
    fx.tick = loop_timer_new(fx.loop, fx_on_tick, NULL);
    loop_timer_every(fx.tick, 2);
    fx_start_coordinator("127.0.0.1:0");
    struct ps_options options = {.loop = fx.loop,
                                 .env = fx.env,
                                 .name = "ps:0",
                                 .listen = "127.0.0.1:0",
                                 .coordinator = fx.coordinator,
                                 .coordinator_name = "chief:0",
                                 .shard_count = shards,
                                 .memory_bytes = memory,
                                 .inflight_bytes = inflight,
                                 .pull_stall_ms = 300};
    CHECK_OK(ps_new(&options, &fx.ps, &err));
    ps_start(fx.ps);
    CHECK_OK(rpc_channel_new(fx.env, ps_address(fx.ps), NULL, &fx.channel, &err));
    WAIT_UNTIL(fx.attached == 1);
    fx_welcome(100, 1);
}

static void fx_on_stopped(void *arg)
{
    (void)arg;
    fx.is_stopped = true;
}

static void fx_stop(void)
{
    ps_stop(fx.ps, fx_on_stopped, NULL);
    WAIT_UNTIL(fx.is_stopped);
    rpc_channel_free(fx.channel);
    ps_free(fx.ps);
    if (fx.server)
        fx_stop_coordinator();
    Steadfast__V1__MemberMessage *kept[] = {fx.hello, fx.beat, fx.done, fx.leaving};
    for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
        if (kept[i])
            steadfast__v1__member_message__free_unpacked(kept[i], NULL);
    loop_timer_free(fx.tick);
    rpc_env_free(fx.env);
    loop_free(fx.loop);
}

/* ---- a job ---------------------------------------------------------------------------------- */
#define SPEC(optimizer_)                                                                           \
    "{\"name\": \"j\", \"seed\": 42, \"epochs\": 1, \"model\": {\"name\": \"softmax\","            \
    " \"num_classes\": 10}, \"dataset\": {\"source\": \"synthetic\", \"records\": 100,"            \
    " \"batch_size\": 10}, \"optimizer\": " optimizer_ "}"
#define SGD      "{\"name\": \"sgd\", \"learning_rate\": 0.5}"
#define MOMENTUM "{\"name\": \"momentum\", \"learning_rate\": 0.5, \"momentum\": 0.5}"

struct fx_slice {
    const char *name;
    uint32_t var;
    uint64_t shape[2];
    uint64_t row_offset, rows;
    uint32_t server, shard;
};

/* Truncated normals of deviation 1. */
UNUSED static const Steadfast__V1__OrderDone *fx_create(uint64_t generation, const char *spec,
                                                        const struct fx_slice *slices, size_t count,
                                                        const char *restore)
{
    Steadfast__V1__ServerRef refs[2];
    Steadfast__V1__ServerRef *ref_list[2] = {&refs[0], &refs[1]};
    for (size_t i = 0; i < 2; i++) {
        steadfast__v1__server_ref__init(&refs[i]);
        refs[i].name = WORDS(i ? "ps:1" : "ps:0");
        refs[i].address = WORDS("127.0.0.1:1");
    }
    Steadfast__V1__Slice *list = base_alloc((count + 1) * sizeof(*list));
    Steadfast__V1__Slice **pointers = base_alloc((count + 1) * sizeof(Steadfast__V1__Slice *));
    for (size_t i = 0; i < count; i++) {
        steadfast__v1__slice__init(&list[i]);
        list[i].index = (uint32_t)i;
        list[i].var = slices[i].var;
        list[i].name = WORDS(slices[i].name);
        list[i].n_shape = 2;
        list[i].shape = (uint64_t *)slices[i].shape;
        list[i].row_offset = slices[i].row_offset;
        list[i].rows = slices[i].rows;
        list[i].server = slices[i].server;
        list[i].shard = slices[i].shard;
        list[i].init = STEADFAST__V1__INIT_KIND__INIT_TRUNCATED_NORMAL;
        list[i].init_value = 1.0f;
        list[i].trainable = true;
        pointers[i] = &list[i];
    }
    Steadfast__V1__Plan plan = STEADFAST__V1__PLAN__INIT;
    plan.servers = ref_list;
    plan.n_servers = 2;
    plan.slices = pointers;
    plan.n_slices = count;
    Steadfast__V1__CreateShards create = STEADFAST__V1__CREATE_SHARDS__INIT;
    create.job = JOB;
    create.generation = generation;
    create.name = WORDS("j");
    create.spec_json = WORDS(spec);
    create.plan = &plan;
    create.restore_directory = WORDS(restore ? restore : "");
    Steadfast__V1__ServerOrder order = STEADFAST__V1__SERVER_ORDER__INIT;
    order.what_case = STEADFAST__V1__SERVER_ORDER__WHAT_CREATE;
    order.create = &create;
    const Steadfast__V1__OrderDone *done = fx_order(&order);
    free(list);
    free(pointers);
    return done;
}

/* One variable of rows x cols on shard 0. */
UNUSED static void fx_create_one(uint64_t rows, uint64_t cols, const char *spec)
{
    struct fx_slice slice = {"w", 0, {rows, cols}, 0, rows, 0, 0};
    FX_CHECK_DONE(fx_create(1, spec, &slice, 1, NULL));
}

/* ---- clients -------------------------------------------------------------------------------- */
struct fx_push {
    struct rpc_ccall *call;
    bool is_ended;
    enum err_code code;
    char text[ERR_TEXT_SIZE];
    Steadfast__V1__PushOutcome outcome;
    uint64_t version, staleness;
};

static void fx_on_push_end(void *arg, const struct err *status, const struct rpc_in *reply)
{
    struct fx_push *push = arg;
    push->code = status->code;
    snprintf(push->text, sizeof(push->text), "%s", status->text);
    if (status->code == ERR_OK) {
        const Steadfast__V1__PushReply *message =
            (const Steadfast__V1__PushReply *)(const void *)reply->message;
        push->outcome = message->outcome;
        push->version = message->version;
        push->staleness = message->staleness;
    }
    push->is_ended = true;
    rpc_ccall_unref(push->call);
}

static void fx_push_open(struct fx_push *push)
{
    struct err err;
    *push = (struct fx_push){0};
    struct rpc_call_options options = {
        .timeout_ms = 60000, .wait_for_ready = true, .where = RPC_ON_LOOP};
    CHECK_OK(rpc_open(fx.channel, &ps_method_push, NULL, &options, fx_on_push_end, push,
                      &push->call, &err));
}

static void fx_nothing(void *arg)
{
    (void)arg;
}

/* A chunk of floats (value i is base + i) with or without a header. */
static void fx_push_chunk(struct fx_push *push, Steadfast__V1__PushHeader *header, uint64_t offset,
                          const void *data, size_t bytes)
{
    Steadfast__V1__PushChunk chunk = STEADFAST__V1__PUSH_CHUNK__INIT;
    chunk.header = header;
    chunk.offset = offset;
    struct rpc_blob *blob = bytes ? rpc_blob_wrap(data, bytes, fx_nothing, NULL) : NULL;
    struct rpc_out out = {.message = &chunk.base, .blob = blob, .bytes = bytes};
    if (!push->is_ended)
        (void)!rpc_csend(push->call, &out, NULL,
                         NULL); /* an early end of the call is the test's to see */
    if (blob)
        rpc_blob_unref(blob);
}

static Steadfast__V1__PushHeader fx_header(uint64_t generation, uint64_t step, uint64_t total)
{
    Steadfast__V1__PushHeader header = STEADFAST__V1__PUSH_HEADER__INIT;
    header.job = JOB;
    header.generation = generation;
    header.step = step;
    header.session = 5;
    header.pulled_version = 1;
    header.total_bytes = total;
    return header;
}

/* All of it, in chunks; data lives until the push has ended. */
static void fx_push_begin(struct fx_push *push, const Steadfast__V1__PushHeader *from,
                          const void *data, size_t bytes)
{
    Steadfast__V1__PushHeader header = *from;
    fx_push_open(push);
    size_t at = 0;
    do {
        size_t piece = MIN(bytes - at, (size_t)LIMIT_CHUNK_BYTES);
        fx_push_chunk(push, at == 0 ? &header : NULL, at, (const char *)data + at, piece);
        at += piece;
    } while (at < bytes);
    rpc_cclose_send(push->call);
}

UNUSED static struct fx_push fx_push_wait(const Steadfast__V1__PushHeader *header, const void *data,
                                          size_t bytes)
{
    static struct fx_push push;
    fx_push_begin(&push, header, data, bytes);
    WAIT_UNTIL(push.is_ended);
    return push;
}

struct fx_pull {
    struct rpc_ccall *call;
    bool is_ended;
    enum err_code code;
    char text[ERR_TEXT_SIZE];
    uint64_t version, total, got;
    bool not_modified;
    float *values;
};

static void fx_on_chunk(struct rpc_ccall *call, const struct rpc_in *in, void *arg)
{
    struct fx_pull *pull = arg;
    if (!in)
        return;
    const Steadfast__V1__TensorChunk *chunk =
        (const Steadfast__V1__TensorChunk *)(const void *)in->message;
    pull->version = chunk->version;
    pull->total = chunk->total_bytes;
    pull->not_modified = chunk->not_modified;
    if (!pull->values)
        pull->values = base_alloc(pull->total);
    if (in->view) {
        size_t bytes = rpc_view_bytes(in->view);
        CHECK(chunk->offset + bytes <= pull->total);
        rpc_view_copy(in->view, 0, (char *)pull->values + chunk->offset, bytes);
        pull->got += bytes;
    }
    rpc_crecv(call, fx_on_chunk, pull);
}

static void fx_on_pull_end(void *arg, const struct err *status, const struct rpc_in *reply)
{
    (void)reply;
    struct fx_pull *pull = arg;
    pull->code = status->code;
    snprintf(pull->text, sizeof(pull->text), "%s", status->text);
    pull->is_ended = true;
    rpc_ccall_unref(pull->call);
}

/* values are the caller's to free. */
UNUSED static struct fx_pull fx_pull(uint64_t generation, uint32_t shard, uint64_t have,
                                     uint64_t pin)
{
    static struct fx_pull pull;
    struct err err;
    pull = (struct fx_pull){0};
    Steadfast__V1__PullRequest request = STEADFAST__V1__PULL_REQUEST__INIT;
    request.job = JOB;
    request.generation = generation;
    request.shard = shard;
    request.have_version = have;
    request.pin = pin;
    struct rpc_call_options options = {
        .timeout_ms = 60000, .wait_for_ready = true, .where = RPC_ON_LOOP, .has_payload = true};
    CHECK_OK(rpc_open(fx.channel, &ps_method_pull, &(struct rpc_out){.message = &request.base},
                      &options, fx_on_pull_end, &pull, &pull.call, &err));
    rpc_crecv(pull.call, fx_on_chunk, &pull);
    WAIT_UNTIL(pull.is_ended);
    return pull;
}

#endif
