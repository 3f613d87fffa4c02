/* SPDX-License-Identifier: Apache-2.0 */
/* psd over the wire: what workers and the coordinator see of it. */
#include <sys/stat.h>

#include "common/base/peer_memory.h"
#include "common/base/rand.h"
#include "common/ckpt/ckpt_store.h"
#include "tests/unit/psd_fixture.h"

#define MIB (1ull << 20)

static float initial(const char *name, uint64_t element)
{
    return rand_truncated_normal(rand_key_name(rand_key(42, RAND_INIT, 0, 0), name), element);
}

static const Steadfast__V1__ShardState *state_after(uint64_t applied)
{
    const Steadfast__V1__ShardState *state = NULL;
    WAIT_UNTIL(fx.beat && fx.beat->heartbeat->n_shards == 1 &&
               (state = fx.beat->heartbeat->shards[0])->applied == applied);
    return state;
}

static const Steadfast__V1__OrderDone *simple_order(Steadfast__V1__ServerOrder__WhatCase what,
                                                    uint64_t value)
{
    Steadfast__V1__ServerOrder order = STEADFAST__V1__SERVER_ORDER__INIT;
    Steadfast__V1__Fence fence = STEADFAST__V1__FENCE__INIT;
    Steadfast__V1__Pin pin = STEADFAST__V1__PIN__INIT;
    Steadfast__V1__Unpin unpin = STEADFAST__V1__UNPIN__INIT;
    Steadfast__V1__Prune prune = STEADFAST__V1__PRUNE__INIT;
    Steadfast__V1__ReadMarks marks = STEADFAST__V1__READ_MARKS__INIT;
    Steadfast__V1__DropJob drop = STEADFAST__V1__DROP_JOB__INIT;
    fence.session = value;
    pin.job = unpin.job = prune.job = marks.job = drop.job = JOB;
    pin.generation = prune.generation = marks.generation = 1;
    pin.pin = unpin.pin = prune.watermark = value;
    order.what_case = what;
    switch (what) {
    case STEADFAST__V1__SERVER_ORDER__WHAT_FENCE:
        order.fence = &fence;
        break;
    case STEADFAST__V1__SERVER_ORDER__WHAT_PIN:
        order.pin = &pin;
        break;
    case STEADFAST__V1__SERVER_ORDER__WHAT_UNPIN:
        order.unpin = &unpin;
        break;
    case STEADFAST__V1__SERVER_ORDER__WHAT_PRUNE:
        order.prune = &prune;
        break;
    case STEADFAST__V1__SERVER_ORDER__WHAT_DROP:
        order.drop = &drop;
        break;
    default:
        order.marks = &marks;
    }
    return fx_order(&order);
}

TEST(a_server_says_who_it_is_and_sends_heartbeats)
{
    fx_start(3, 64 * MIB, 8 * MIB);
    const Steadfast__V1__Hello *hello = fx.hello->hello;
    CHECK(hello->role == STEADFAST__V1__ROLE__ROLE_PS);
    CHECK_STR(hello->name, "ps:0");
    CHECK_STR(hello->address, ps_address(fx.ps));
    CHECK_U64(hello->shard_count, 3);
    CHECK_U64(hello->memory_bytes, 64 * MIB);
    CHECK(hello->incarnation > 0 && hello->pid > 0);
    CHECK_U64(hello->session, 0);
    WAIT_UNTIL(fx.beats >= 3);
    fx_stop();
    CHECK(fx.leaving);
}

TEST(initial_values_do_not_depend_on_the_partitioning)
{
    fx_start(2, 64 * MIB, 8 * MIB);
    /* Shard 0 holds rows 0-1 of a and rows 3-4 of b; shard 1 the rest; the other server nothing of
     * ours. */
    const struct fx_slice slices[] = {{"a", 0, {5, 3}, 0, 2, 0, 0},
                                      {"a", 0, {5, 3}, 2, 3, 0, 1},
                                      {"b", 1, {5, 2}, 3, 2, 0, 0},
                                      {"b", 1, {5, 2}, 0, 3, 1, 0}};
    FX_CHECK_DONE(fx_create(1, SPEC(SGD), slices, 4, NULL));
    CHECK_U64(fx.done->done->n_shards, 2);
    struct fx_pull pull = fx_pull(1, 0, 0, 0);
    CHECK(pull.code == ERR_OK);
    CHECK_U64(pull.version, 1);
    CHECK_U64(pull.total, (6 + 4) * sizeof(float));
    CHECK_U64(pull.got, pull.total);
    for (uint64_t i = 0; i < 6; i++)
        CHECK(pull.values[i] == initial("a", i));
    for (uint64_t i = 0; i < 4; i++)
        CHECK(pull.values[6 + i] == initial("b", 6 + i));
    free(pull.values);
    pull = fx_pull(1, 1, 0, 0);
    for (uint64_t i = 0; i < 9; i++)
        CHECK(pull.values[i] == initial("a", 6 + i));
    free(pull.values);
    fx_stop();
}

/* ---- memory of a neighbour: the client is this process, so everybody may read everybody -------- */
struct lent_pull {
    struct rpc_ccall *call;
    bool is_ended, has_memory;
    enum err_code code;
    struct peer_ref server;
    struct peer_loan loan;
    uint64_t total, carried;
    bool is_proved; /* the server has read our secret */
};

static void on_lent_chunk(struct rpc_ccall *call, const struct rpc_in *in, void *arg)
{
    struct lent_pull *pull = arg;
    if (!in)
        return;
    const Steadfast__V1__TensorChunk *chunk =
        (const Steadfast__V1__TensorChunk *)(const void *)in->message;
    pull->total = chunk->total_bytes;
    if (chunk->process)
        pull->server = (struct peer_ref){chunk->process->pid, chunk->process->secret_address};
    pull->is_proved |= peer_memory_is_our_secret(chunk->proof.data, chunk->proof.len);
    pull->carried += in->view ? rpc_view_bytes(in->view) : 0;
    pull->has_memory |= chunk->memory != NULL;
    if (chunk->memory)
        pull->loan = (struct peer_loan){chunk->process->pid, chunk->memory->address,
                                        chunk->memory->seal_address, chunk->memory->seal};
    rpc_crecv(call, on_lent_chunk, pull);
}

static void on_lent_end(void *arg, const struct err *status, const struct rpc_in *reply)
{
    (void)reply;
    struct lent_pull *pull = arg;
    pull->code = status->code;
    pull->is_ended = true;
    rpc_ccall_unref(pull->call);
}

/* secret NULL: only says who we are. Ends, or has_memory with the call still open. */
static void lent_pull(struct lent_pull *pull, const uint8_t *secret)
{
    struct err err;
    *pull = (struct lent_pull){0};
    struct peer_ref self = peer_memory_self();
    Steadfast__V1__ProcessRef reader = STEADFAST__V1__PROCESS_REF__INIT;
    Steadfast__V1__PullRequest request = STEADFAST__V1__PULL_REQUEST__INIT;
    reader.pid = self.pid;
    reader.secret_address = self.secret_address;
    request.job = JOB;
    request.generation = 1;
    request.reader = &reader;
    if (secret)
        request.proof = (ProtobufCBinaryData){PEER_SECRET_BYTES, (uint8_t *)secret};
    struct rpc_call_options options = {
        .timeout_ms = 60000, .wait_for_ready = true, .where = RPC_ON_LOOP, .has_payload = true};
    CHECK_OK(rpc_open(fx.channel, &ps_method_pull, &(struct rpc_out){.message = &request.base},
                      &options, on_lent_end, pull, &pull->call, &err));
    rpc_crecv(pull->call, on_lent_chunk, pull);
    WAIT_UNTIL(pull->is_ended || pull->has_memory);
}

/* Skips where the system does not let a process read even itself. */
static void lent_secret(uint8_t ret_secret[PEER_SECRET_BYTES])
{
    struct lent_pull pull;
    lent_pull(&pull, NULL);
    CHECK(pull.code == ERR_OK && pull.carried == pull.total && !pull.has_memory);
    if (!peer_memory_secret_of(pull.server, ret_secret))
        test_skip("this system does not let a process read memory by process_vm_readv");
    CHECK(pull.is_proved);
}

enum { LENT_COUNT = 200000 };

TEST(values_are_lent_to_a_reader_that_proves_to_be_here_and_to_no_other)
{
    struct err err;
    struct lent_pull pull;
    uint8_t secret[PEER_SECRET_BYTES];
    fx_start(1, 64 * MIB, 8 * MIB);
    fx_create_one(LENT_COUNT / 100, 100, SPEC(SGD));
    lent_secret(secret);
    struct fx_pull plain = fx_pull(1, 0, 0, 0);
    lent_pull(&pull, secret);
    CHECK(pull.has_memory && !pull.is_ended && pull.carried == 0);
    float *copy = base_alloc(pull.total);
    struct iovec iov = {copy, pull.total};
    CHECK_OK(peer_memory_read(&pull.loan, &iov, 1, &err));
    CHECK(memcmp(copy, plain.values, pull.total) == 0);
    rpc_cancel(pull.call);
    WAIT_UNTIL(pull.is_ended);

    secret[3] ^= 1; /* a stranger's guess: it gets the values, over the network */
    lent_pull(&pull, secret);
    CHECK(pull.code == ERR_OK && !pull.has_memory && pull.carried == pull.total);
    free(copy);
    free(plain.values);
    fx_stop();
}

TEST(what_was_lent_and_given_up_is_seen_to_be_something_else_later)
{
    struct err err;
    struct lent_pull pull;
    uint8_t secret[PEER_SECRET_BYTES];
    fx_start(1, 64 * MIB, 8 * MIB);
    fx_create_one(LENT_COUNT / 100, 100, SPEC(SGD));
    lent_secret(secret);
    lent_pull(&pull, secret);
    CHECK(pull.has_memory);
    rpc_cancel(pull.call); /* from here on the server may use the buffer for later values */
    WAIT_UNTIL(pull.is_ended);
    float *grads = base_alloc(LENT_COUNT * sizeof(float));
    for (uint64_t step = 0; step < 4; step++) {
        Steadfast__V1__PushHeader header = fx_header(1, step, LENT_COUNT * sizeof(float));
        CHECK(fx_push_wait(&header, grads, LENT_COUNT * sizeof(float)).code == ERR_OK);
    }
    struct iovec iov = {grads, pull.total};
    CHECK(peer_memory_read(&pull.loan, &iov, 1, &err) == ERR_UNAVAILABLE);
    free(grads);
    fx_stop();
}

/* One push whose gradients lie here, in two chunks; the seal may be broken between them. */
static struct fx_push lent_push(uint64_t step, const float *grads, struct peer_seal *seal,
                                uint8_t *secret, bool is_broken)
{
    static struct fx_push push;
    Steadfast__V1__PushHeader header = fx_header(1, step, LENT_COUNT * sizeof(float));
    Steadfast__V1__ProcessRef process = STEADFAST__V1__PROCESS_REF__INIT;
    struct peer_ref self = peer_memory_self();
    process.pid = self.pid;
    process.secret_address = self.secret_address;
    header.process = &process;
    header.proof = (ProtobufCBinaryData){PEER_SECRET_BYTES, secret};
    header.seal_address = (uintptr_t)seal;
    header.seal = seal->value;
    if (is_broken)
        peer_seal_break(seal);
    fx_push_open(&push);
    for (size_t i = 0; i < 2; i++) {
        Steadfast__V1__PushChunk chunk = STEADFAST__V1__PUSH_CHUNK__INIT;
        chunk.header = i == 0 ? &header : NULL;
        chunk.bytes = LENT_COUNT / 2 * sizeof(float);
        chunk.offset = i * chunk.bytes;
        chunk.address = (uintptr_t)(grads + i * LENT_COUNT / 2);
        if (!push.is_ended)
            (void)!rpc_csend(push.call, &(struct rpc_out){.message = &chunk.base}, NULL, NULL);
    }
    rpc_cclose_send(push.call);
    WAIT_UNTIL(push.is_ended);
    return push;
}

TEST(gradients_are_read_where_they_lie_and_a_broken_seal_applies_nothing)
{
    uint8_t secret[PEER_SECRET_BYTES];
    struct peer_seal seal;
    fx_start(1, 64 * MIB, 8 * MIB);
    fx_create_one(LENT_COUNT / 100, 100, SPEC(SGD));
    lent_secret(secret);
    peer_seal_init(&seal);
    float *grads = base_alloc(LENT_COUNT * sizeof(float));
    for (size_t i = 0; i < LENT_COUNT; i++)
        grads[i] = (float)(i % 11);
    struct fx_pull before = fx_pull(1, 0, 0, 0);

    CHECK(lent_push(7, grads, &seal, secret, true).code == ERR_UNAVAILABLE);
    uint8_t wrong[PEER_SECRET_BYTES] = {1};
    CHECK(lent_push(7, grads, &seal, wrong, false).code == ERR_UNAVAILABLE);
    struct fx_pull same = fx_pull(1, 0, 0, 0);
    CHECK(same.version == before.version);
    CHECK(memcmp(same.values, before.values, same.total) == 0);

    struct fx_push push = lent_push(7, grads, &seal, secret, false);
    CHECK(push.code == ERR_OK && push.outcome == STEADFAST__V1__PUSH_OUTCOME__PUSH_APPLIED);
    struct fx_pull after = fx_pull(1, 0, 0, 0);
    Steadfast__V1__PushHeader header = fx_header(1, 8, LENT_COUNT * sizeof(float));
    CHECK(fx_push_wait(&header, grads, LENT_COUNT * sizeof(float)).code == ERR_OK);
    struct fx_pull twice = fx_pull(1, 0, 0, 0);
    for (size_t i = 0; i < LENT_COUNT; i++) /* both ways the same update */
        CHECK(after.values[i] - before.values[i] <= 0 &&
              fabsf((twice.values[i] - after.values[i]) - (after.values[i] - before.values[i])) <
                  1e-5f);
    CHECK(after.values[10] != before.values[10]);
    CHECK(lent_push(7, grads, &seal, secret, false).outcome ==
          STEADFAST__V1__PUSH_OUTCOME__PUSH_DONE_BEFORE);
    free(grads);
    free(before.values);
    free(same.values);
    free(after.values);
    free(twice.values);
    fx_stop();
}

TEST(a_chunk_without_bytes_whose_header_names_no_process_is_refused)
{
    fx_start(1, 64 * MIB, 8 * MIB);
    fx_create_one(LENT_COUNT / 100, 100, SPEC(SGD));
    static struct fx_push push;
    Steadfast__V1__PushHeader header = fx_header(1, 3, LENT_COUNT * sizeof(float));
    Steadfast__V1__PushChunk chunk = STEADFAST__V1__PUSH_CHUNK__INIT;
    chunk.header = &header;
    chunk.bytes = LENT_COUNT * sizeof(float);
    chunk.address = (uintptr_t)&push;
    fx_push_open(&push);
    (void)!rpc_csend(push.call, &(struct rpc_out){.message = &chunk.base}, NULL, NULL);
    rpc_cclose_send(push.call);
    WAIT_UNTIL(push.is_ended);
    CHECK(push.code == ERR_INVALID);
    fx_stop();
}

TEST(a_push_is_applied_once_and_its_repetition_changes_nothing)
{
    enum { COUNT = 600000 }; /* 2.3 MiB: three chunks */
    fx_start(1, 64 * MIB, 8 * MIB);
    fx_create_one((uint64_t)COUNT / 100, 100, SPEC(MOMENTUM));
    float *grads = base_alloc(COUNT * sizeof(float));
    for (size_t i = 0; i < COUNT; i++)
        grads[i] = (float)(i % 7);
    Steadfast__V1__PushHeader header = fx_header(1, 3, COUNT * sizeof(float));
    struct fx_push push = fx_push_wait(&header, grads, COUNT * sizeof(float));
    CHECK(push.code == ERR_OK && push.outcome == STEADFAST__V1__PUSH_OUTCOME__PUSH_APPLIED);
    CHECK_U64(push.version, 2);
    CHECK_U64(push.staleness, 0);
    push = fx_push_wait(&header, grads, COUNT * sizeof(float));
    CHECK(push.code == ERR_OK && push.outcome == STEADFAST__V1__PUSH_OUTCOME__PUSH_DONE_BEFORE);
    CHECK_U64(push.version, 2);
    header.step = 2;
    push = fx_push_wait(&header, grads, COUNT * sizeof(float));
    CHECK(push.outcome == STEADFAST__V1__PUSH_OUTCOME__PUSH_APPLIED);
    CHECK_U64(push.version, 3);
    CHECK_U64(push.staleness, 1);

    struct fx_pull pull = fx_pull(1, 0, 0, 0);
    CHECK_U64(pull.version, 3);
    for (size_t i = 0; i < COUNT; i++) {
        float m = -0.5f * grads[i], w = initial("w", i) + m;
        m = 0.5f * m - 0.5f * grads[i];
        CHECK(pull.values[i] == w + m);
    }
    free(pull.values);
    pull = fx_pull(1, 0, 3, 0);
    CHECK(pull.code == ERR_OK && pull.not_modified);
    CHECK_U64(pull.got, 0);
    free(pull.values);

    const Steadfast__V1__ShardState *state = state_after(2);
    CHECK_U64(state->duplicates_refused, 1);
    CHECK_U64(state->marked, 2);
    CHECK_U64(state->repeated_applies, 0);
    CHECK_U64(state->groups, 1);
    CHECK_U64(state->bytes, 2 * sizeof(float) * COUNT);
    FX_CHECK_DONE(simple_order(STEADFAST__V1__SERVER_ORDER__WHAT_MARKS, 0));
    CHECK_U64(fx.done->done->n_shards, 1);
    CHECK_U64(fx.done->done->shards[0]->n_marks, 1);
    CHECK_U64(fx.done->done->shards[0]->marks[0]->first, 2);
    CHECK_U64(fx.done->done->shards[0]->marks[0]->last, 3);
    free(grads);
    fx_stop();
}

TEST(pushes_of_a_fenced_session_an_old_generation_or_an_unknown_job_are_refused)
{
    float grads[4] = {1, 1, 1, 1};
    fx_start(1, 64 * MIB, 8 * MIB);
    Steadfast__V1__PushHeader header = fx_header(1, 1, sizeof(grads));
    struct fx_push push = fx_push_wait(&header, grads, sizeof(grads));
    CHECK(push.code == ERR_UNAVAILABLE);
    fx_create_one(2, 2, SPEC(SGD));
    FX_CHECK_DONE(simple_order(STEADFAST__V1__SERVER_ORDER__WHAT_FENCE, 5));
    push = fx_push_wait(&header, grads, sizeof(grads));
    CHECK(push.code == ERR_STALE);
    header.session = 6;
    header.generation = 0;
    push = fx_push_wait(&header, grads, sizeof(grads));
    CHECK(push.code == ERR_STALE);
    header.generation = 2;
    push = fx_push_wait(&header, grads, sizeof(grads));
    CHECK(push.code == ERR_UNAVAILABLE);
    header.generation = 1;
    header.shard = 1;
    push = fx_push_wait(&header, grads, sizeof(grads));
    CHECK(push.code == ERR_INVALID);
    header.shard = 0;
    push = fx_push_wait(&header, grads, sizeof(grads));
    CHECK(push.code == ERR_OK);
    CHECK_U64(state_after(1)->fenced, 2);
    CHECK(fx_pull(2, 0, 0, 0).code == ERR_UNAVAILABLE);
    CHECK(fx_pull(0, 0, 0, 0).code == ERR_STALE);
    CHECK(fx_pull(1, 9, 0, 0).code == ERR_INVALID);
    fx_stop();
}

TEST(chunks_may_come_in_any_order_but_must_cover_all_bytes_once)
{
    float grads[6] = {1, 2, 3, 4, 5, 6};
    fx_start(1, 64 * MIB, 8 * MIB);
    fx_create_one(3, 2, SPEC(SGD));
    Steadfast__V1__PushHeader header = fx_header(1, 1, sizeof(grads));
    struct fx_push push;

    fx_push_open(&push); /* backwards, cut inside a float */
    fx_push_chunk(&push, &header, 18, (char *)grads + 18, 6);
    fx_push_chunk(&push, NULL, 5, (char *)grads + 5, 13);
    fx_push_chunk(&push, NULL, 0, grads, 5);
    rpc_cclose_send(push.call);
    WAIT_UNTIL(push.is_ended);
    CHECK(push.code == ERR_OK);
    struct fx_pull pull = fx_pull(1, 0, 0, 0);
    for (size_t i = 0; i < 6; i++)
        CHECK(pull.values[i] == initial("w", i) - 0.5f * grads[i]);
    free(pull.values);

    header.step = 2;
    fx_push_open(&push);
    fx_push_chunk(&push, &header, 0, grads, 12);
    fx_push_chunk(&push, NULL, 8, grads, 16);
    WAIT_UNTIL(push.is_ended);
    CHECK(push.code == ERR_INVALID && strstr(push.text, "overlaps"));

    fx_push_open(&push);
    fx_push_chunk(&push, &header, 0, grads, 12);
    fx_push_chunk(&push, NULL, 16, grads, 8);
    rpc_cclose_send(push.call);
    WAIT_UNTIL(push.is_ended);
    CHECK(push.code == ERR_INVALID && strstr(push.text, "20 of 24"));

    fx_push_open(&push);
    fx_push_chunk(&push, &header, 16, grads, 12);
    WAIT_UNTIL(push.is_ended);
    CHECK(push.code == ERR_INVALID && strstr(push.text, "total of 24"));

    fx_push_open(&push);
    fx_push_chunk(&push, NULL, 0, grads, 24);
    WAIT_UNTIL(push.is_ended);
    CHECK(push.code == ERR_INVALID && strstr(push.text, "no header"));

    fx_push_open(&push);
    fx_push_chunk(&push, &header, 0, grads, 12);
    fx_push_chunk(&push, &header, 12, grads, 12);
    WAIT_UNTIL(push.is_ended);
    CHECK(push.code == ERR_INVALID && strstr(push.text, "second header"));

    fx_push_open(&push);
    rpc_cclose_send(push.call);
    WAIT_UNTIL(push.is_ended);
    CHECK(push.code == ERR_INVALID);

    header.total_bytes = 20;
    push = fx_push_wait(&header, grads, 20);
    CHECK(push.code == ERR_INVALID && strstr(push.text, "20") && strstr(push.text, "24"));
    header.total_bytes = 24;
    header.step = LIMIT_STEPS;
    push = fx_push_wait(&header, grads, 24);
    CHECK(push.code == ERR_INVALID);
    CHECK_U64(state_after(1)->version, 2);
    fx_stop();
}

TEST(a_client_that_dies_in_the_middle_of_a_push_leaves_the_shard_unchanged)
{
    float grads[6] = {1, 2, 3, 4, 5, 6};
    fx_start(1, 64 * MIB, 1); /* one push at a time: a leak in the gate would block the next */
    fx_create_one(3, 2, SPEC(SGD));
    Steadfast__V1__PushHeader header = fx_header(1, 1, sizeof(grads));
    for (int i = 0; i < 10; i++) {
        struct fx_push push;
        fx_push_open(&push);
        if (i > 0)
            fx_push_chunk(&push, &header, 0, grads, 12);
        rpc_cancel(push.call);
        WAIT_UNTIL(push.is_ended);
        CHECK(push.code == ERR_CANCELLED);
    }
    CHECK_U64(state_after(0)->version, 1);
    struct fx_push push = fx_push_wait(&header, grads, sizeof(grads));
    CHECK(push.code == ERR_OK && push.outcome == STEADFAST__V1__PUSH_OUTCOME__PUSH_APPLIED);
    fx_stop();
}

TEST(a_push_waits_unread_while_the_bytes_in_flight_are_spent)
{
    enum { COUNT = 1000 };
    float grads[COUNT] = {0};
    fx_start(1, 64 * MIB, 4096);
    fx_create_one(COUNT, 1, SPEC(SGD));
    Steadfast__V1__PushHeader header = fx_header(1, 1, sizeof(grads));
    struct fx_push slow, quick[3];
    fx_push_open(&slow);
    fx_push_chunk(&slow, &header, 0, grads, 2000);
    fx_push_chunk(&slow, NULL, 2000, grads, 500);
    WAIT_UNTIL(fx.beats >=
               2); /* it has reached the server by now, or it will be second: both must end well */
    for (uint64_t i = 0; i < 3; i++) {
        header.step = 2 + i;
        fx_push_begin(&quick[i], &header, grads, sizeof(grads));
    }
    uint64_t beats = fx.beats;
    WAIT_UNTIL(fx.beats >= beats + 5);
    fx_push_chunk(&slow, NULL, 2500, grads, 1500);
    rpc_cclose_send(slow.call);
    WAIT_UNTIL(slow.is_ended && quick[0].is_ended && quick[1].is_ended && quick[2].is_ended);
    CHECK(slow.code == ERR_OK && quick[0].code == ERR_OK && quick[1].code == ERR_OK &&
          quick[2].code == ERR_OK);
    CHECK_U64(state_after(4)->repeated_applies, 0);
    fx_stop();
}

TEST(a_fence_ends_the_pushes_of_its_session_that_are_still_coming_in)
{
    float grads[4] = {1, 1, 1, 1};
    fx_start(1, 64 * MIB, 1);
    fx_create_one(2, 2, SPEC(SGD));
    Steadfast__V1__PushHeader header = fx_header(1, 1, sizeof(grads));
    struct fx_push frozen, waiting, other;
    fx_push_open(&frozen);
    fx_push_chunk(&frozen, &header, 0, grads, 8);
    WAIT_UNTIL(fx.beats >= 2);
    header.step = 2;
    fx_push_begin(&waiting, &header, grads, sizeof(grads)); /* same session, behind it */
    header.session = 6;
    header.step = 3;
    fx_push_begin(&other, &header, grads, sizeof(grads));
    uint64_t beats = fx.beats;
    WAIT_UNTIL(fx.beats >= beats + 3);
    FX_CHECK_DONE(simple_order(STEADFAST__V1__SERVER_ORDER__WHAT_FENCE, 5));
    WAIT_UNTIL(frozen.is_ended && waiting.is_ended && other.is_ended);
    CHECK(frozen.code == ERR_STALE && waiting.code == ERR_STALE && other.code == ERR_OK);
    CHECK_U64(state_after(1)->version, 2);
    fx_stop();
}

TEST_LIMIT(random_repetitions_from_many_clients_are_applied_exactly_once, 60)
{
    enum { STEPS = 60, PUSHES = 240, AHEAD = 16 };
    float grads[STEPS][4];
    fx_start(1, 64 * MIB, 1 * MIB);
    fx_create_one(2, 2, SPEC(SGD));
    for (size_t i = 0; i < STEPS; i++)
        for (size_t k = 0; k < 4; k++)
            grads[i][k] = (float)(1u << (i % 8)) * (k & 1 ? 1.0f : -1.0f); /* sums are exact */
    struct fx_push *pushes = base_alloc(PUSHES * sizeof(*pushes));
    uint64_t key = rand_key(1, RAND_TEST, 0, 0);
    for (size_t i = 0; i < PUSHES; i++) {
        uint64_t step = i < STEPS ? i : rand_u64(key, i) % STEPS;
        Steadfast__V1__PushHeader header = fx_header(1, step, sizeof(grads[0]));
        if (rand_u64(key, 1000 + i) % 5 == 0 && i >= STEPS) {
            fx_push_open(&pushes[i]); /* a worker dies */
            fx_push_chunk(&pushes[i], &header, 0, grads[step], 8);
            rpc_cancel(pushes[i].call);
        } else {
            fx_push_begin(&pushes[i], &header, grads[step], sizeof(grads[0]));
        }
        if (i >= AHEAD)
            WAIT_UNTIL(pushes[i - AHEAD].is_ended);
    }
    uint64_t applied = 0, before = 0;
    for (size_t i = 0; i < PUSHES; i++) {
        WAIT_UNTIL(pushes[i].is_ended);
        if (pushes[i].code == ERR_OK)
            *(pushes[i].outcome == STEADFAST__V1__PUSH_OUTCOME__PUSH_APPLIED ? &applied
                                                                             : &before) += 1;
    }
    CHECK_U64(applied, STEPS);
    WAIT_UNTIL(state_after(STEPS)->duplicates_refused == before); /* the next heartbeat says it */
    const Steadfast__V1__ShardState *state = state_after(STEPS);
    CHECK_U64(state->version, STEPS + 1);
    CHECK_U64(state->marked, STEPS);
    CHECK_U64(state->repeated_applies, 0);
    struct fx_pull pull = fx_pull(1, 0, 0, 0);
    for (size_t k = 0; k < 4; k++) {
        double want = 0;
        for (size_t i = 0; i < STEPS; i++)
            want -= 0.5 * grads[i][k];
        CHECK_NEAR(pull.values[k], initial("w", k) + want, 1e-4);
    }
    free(pull.values);
    free(pushes);
    fx_stop();
}

TEST(a_pinned_version_stays_readable_until_it_is_unpinned)
{
    float grads[4] = {1, 1, 1, 1};
    fx_start(1, 64 * MIB, 8 * MIB);
    fx_create_one(2, 2, SPEC(SGD));
    FX_CHECK_DONE(simple_order(STEADFAST__V1__SERVER_ORDER__WHAT_PIN, 9));
    for (uint64_t step = 0; step < 5; step++) {
        Steadfast__V1__PushHeader header = fx_header(1, step, sizeof(grads));
        CHECK(fx_push_wait(&header, grads, sizeof(grads)).code == ERR_OK);
    }
    struct fx_pull pull = fx_pull(1, 0, 0, 9);
    CHECK_U64(pull.version, 1);
    CHECK(pull.values[3] == initial("w", 3));
    free(pull.values);
    pull = fx_pull(1, 0, 6, 0);
    CHECK_U64(pull.version, 6);
    free(pull.values);
    FX_CHECK_DONE(simple_order(STEADFAST__V1__SERVER_ORDER__WHAT_UNPIN, 9));
    CHECK(fx_pull(1, 0, 0, 9).code == ERR_NOT_FOUND);
    fx_stop();
}

TEST(a_step_below_the_watermark_was_done_before)
{
    float grads[4] = {1, 1, 1, 1};
    fx_start(1, 64 * MIB, 8 * MIB);
    fx_create_one(2, 2, SPEC(SGD));
    FX_CHECK_DONE(simple_order(STEADFAST__V1__SERVER_ORDER__WHAT_PRUNE, 10));
    Steadfast__V1__PushHeader header = fx_header(1, 9, sizeof(grads));
    CHECK(fx_push_wait(&header, grads, sizeof(grads)).outcome ==
          STEADFAST__V1__PUSH_OUTCOME__PUSH_DONE_BEFORE);
    header.step = 10;
    CHECK(fx_push_wait(&header, grads, sizeof(grads)).outcome ==
          STEADFAST__V1__PUSH_OUTCOME__PUSH_APPLIED);
    fx_stop();
}

TEST(a_job_beyond_the_memory_budget_is_refused_with_the_numbers)
{
    fx_start(1, 32 * MIB, 8 * MIB);
    const struct fx_slice slice = {"w", 0, {1024, 4096}, 0, 1024, 0, 0}; /* 16 MiB */
    const Steadfast__V1__OrderDone *done = fx_create(1, SPEC(SGD), &slice, 1, NULL);
    CHECK_STR(done->code, "NO_MEMORY");
    CHECK(strstr(done->text, "50331648") && strstr(done->text, "33554432"));
    CHECK(fx_pull(1, 0, 0, 0).code == ERR_UNAVAILABLE);
    /* What fits still does, and dropping it gives the memory back. */
    for (int i = 0; i < 3; i++) {
        const struct fx_slice small = {"w", 0, {512, 4096}, 0, 512, 0, 0};
        FX_CHECK_DONE(fx_create(1, SPEC(SGD), &small, 1, NULL));
        FX_CHECK_DONE(simple_order(STEADFAST__V1__SERVER_ORDER__WHAT_DROP, 0));
    }
    fx_stop();
}

TEST(absurd_sizes_are_refused_with_the_numbers_and_change_nothing)
{
    float grads[4] = {1, 1, 1, 1};
    fx_start(1, 64 * MIB, 8 * MIB);
    fx_create_one(2, 2, SPEC(SGD));
    Steadfast__V1__PushHeader header = fx_header(1, 1, UINT64_C(1) << 40); /* 1 TiB */
    struct fx_push push = fx_push_wait(&header, grads, sizeof(grads));
    CHECK(push.code == ERR_INVALID);
    CHECK(strstr(push.text, "1099511627776") && strstr(push.text, "want 16"));
    header.total_bytes = UINT64_MAX;
    push = fx_push_wait(&header, grads, sizeof(grads));
    CHECK(push.code == ERR_INVALID && strstr(push.text, "18446744073709551615"));

    const struct fx_slice huge = {"w", 0, {1u << 24, 1u << 24}, 0, 1u << 24, 0, 0}; /* 1 PiB */
    const struct fx_slice over = {"w", 0, {1u << 25, 1u << 24}, 0, 1u << 25, 0, 0};
    const Steadfast__V1__OrderDone *done = fx_create(2, SPEC(MOMENTUM), &huge, 1, NULL);
    CHECK_STR(done->code, "NO_MEMORY");
    CHECK(strstr(done->text, "1125899906842624") && strstr(done->text, "67108864"));
    done = fx_create(3, SPEC(MOMENTUM), &over, 1, NULL);
    CHECK_STR(done->code, "INVALID");
    CHECK(strstr(done->text, "2^48"));

    const struct fx_slice slice = {"w", 0, {2, 2}, 0, 2, 0, 0};
    FX_CHECK_DONE(fx_create(4, SPEC(SGD), &slice, 1, NULL));
    header = fx_header(4, 1, sizeof(grads));
    CHECK(fx_push_wait(&header, grads, sizeof(grads)).outcome ==
          STEADFAST__V1__PUSH_OUTCOME__PUSH_APPLIED);
    fx_stop();
}

TEST(the_same_order_twice_is_executed_once_and_answered_twice)
{
    float grads[4] = {1, 1, 1, 1};
    fx_start(1, 64 * MIB, 8 * MIB);
    fx_create_one(2, 2, SPEC(SGD));
    Steadfast__V1__PushHeader header = fx_header(1, 1, sizeof(grads));
    CHECK(fx_push_wait(&header, grads, sizeof(grads)).code == ERR_OK);
    fx.next_order = 0; /* the create again under its number, as after a broken stream */
    const struct fx_slice slice = {"w", 0, {2, 2}, 0, 2, 0, 0};
    steadfast__v1__member_message__free_unpacked(TAKE(fx.done), NULL);
    FX_CHECK_DONE(fx_create(1, SPEC(SGD), &slice, 1, NULL));
    CHECK_U64(state_after(1)->version, 2);
    /* Under a new number too: the generation is here. */
    fx.next_order = 50;
    FX_CHECK_DONE(fx_create(1, SPEC(SGD), &slice, 1, NULL));
    CHECK_U64(state_after(1)->version, 2);
    fx_stop();
}

TEST(a_broken_stream_changes_nothing_and_a_goodbye_drops_everything)
{
    float grads[4] = {1, 1, 1, 1};
    fx_start(1, 64 * MIB, 8 * MIB);
    fx_create_one(2, 2, SPEC(SGD));
    Steadfast__V1__PushHeader header = fx_header(1, 1, sizeof(grads));
    CHECK(fx_push_wait(&header, grads, sizeof(grads)).code == ERR_OK);
    uint64_t incarnation = fx.hello->hello->incarnation;

    rpc_fail(fx.stream, ERR_UNAVAILABLE, "the test breaks the stream");
    WAIT_UNTIL(fx.attached == 2);
    CHECK_U64(fx.hello->hello->incarnation, incarnation);
    CHECK_U64(fx.hello->hello->session, 100);
    CHECK_U64(fx.hello->hello->n_shards, 1);
    CHECK_U64(fx.hello->hello->shards[0]->n_marks, 1);
    CHECK_U64(fx.hello->hello->shards[0]->marks[0]->first, 1);
    fx_welcome(100, 1);

    Steadfast__V1__Goodbye goodbye = STEADFAST__V1__GOODBYE__INIT;
    goodbye.code = WORDS("STALE");
    goodbye.text = WORDS("given up");
    Steadfast__V1__CoordMessage message = STEADFAST__V1__COORD_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_GOODBYE;
    message.goodbye = &goodbye;
    fx_say(&message);
    WAIT_UNTIL(fx.attached == 3);
    CHECK(fx.hello->hello->incarnation > incarnation);
    CHECK_U64(fx.hello->hello->session, 0);
    CHECK_U64(fx.hello->hello->n_shards, 0);
    CHECK(fx_pull(1, 0, 0, 0).code == ERR_UNAVAILABLE);
    fx_stop();
}

TEST(a_coordinator_that_restarts_on_its_port_is_found_again)
{
    fx_start(1, 64 * MIB, 8 * MIB);
    char address[64];
    snprintf(address, sizeof(address), "%s", fx.coordinator);
    fx_stop_coordinator();
    fx_start_coordinator(address);
    WAIT_UNTIL(fx.attached == 2);
    fx_welcome(101, 2);
    uint64_t beats = fx.beats;
    WAIT_UNTIL(fx.beats > beats + 1);
    fx_stop();
}

static void snapshot(const char *directory, uint64_t generation,
                     const Steadfast__V1__OrderDone **ret_done)
{
    Steadfast__V1__Snapshot message = STEADFAST__V1__SNAPSHOT__INIT;
    message.job = JOB;
    message.generation = generation;
    message.directory = WORDS(directory);
    Steadfast__V1__ServerOrder order = STEADFAST__V1__SERVER_ORDER__INIT;
    order.what_case = STEADFAST__V1__SERVER_ORDER__WHAT_SNAPSHOT;
    order.snapshot = &message;
    *ret_done = fx_order(&order);
}

/* As the coordinator does: variables and slices from the plan, files and groups from the answer. */
static void publish(const char *dir, const Steadfast__V1__OrderDone *done,
                    const struct fx_slice *slices)
{
    struct err err;
    AUTO(ckpt_manifest) manifest = ckpt_manifest_new();
    manifest->job = base_strdup("j");
    manifest->spec_json = base_strdup(SPEC(MOMENTUM));
    manifest->number = 1;
    ckpt_manifest_add_var(manifest, "w", 2, slices[0].shape, true);
    for (size_t i = 0; i < done->n_files; i++) {
        const Steadfast__V1__CkptFile *file = done->files[i];
        uint32_t index =
            ckpt_manifest_add_file(manifest, file->name, file->bytes, file->crc32c, file->version);
        for (size_t g = 0; g < file->n_groups; g++) {
            const Steadfast__V1__CkptGroup *from = file->groups[g];
            struct ranges marks;
            ranges_init(&marks);
            for (size_t k = 0; k < from->n_marks; k++)
                ranges_add_range(&marks, from->marks[k]->first, from->marks[k]->last);
            uint32_t group = ckpt_manifest_add_group(manifest, from->applied, &marks);
            ranges_done(&marks);
            for (size_t k = 0; k < from->n_slices; k++) {
                const struct fx_slice *slice = &slices[from->slices[k]];
                ckpt_manifest_add_slice(manifest, 0, slice->row_offset, slice->rows, index, group);
            }
            for (size_t k = 0; k < from->n_pieces; k++)
                ckpt_manifest_add_slice(manifest, 0, from->pieces[k]->row_offset,
                                        from->pieces[k]->rows, index, group);
        }
    }
    CHECK_OK(ckpt_publish(dir, manifest, &err));
}

TEST(a_snapshot_restores_values_slots_and_marks_into_another_layout)
{
    struct err err;
    float grads[2][12];
    AUTO_MEM char *partial = NULL;
    fx_start(2, 64 * MIB, 8 * MIB);
    /* Rows 0-3 on shard 0, rows 4-5 on shard 1. */
    const struct fx_slice before[] = {{"w", 0, {6, 2}, 0, 4, 0, 0}, {"w", 0, {6, 2}, 4, 2, 0, 1}};
    FX_CHECK_DONE(fx_create(1, SPEC(MOMENTUM), before, 2, NULL));
    for (size_t i = 0; i < 12; i++)
        grads[0][i] = (float)i, grads[1][i] = 1.0f;
    /* Step 1 reaches both shards, step 2 only shard 0: the cut is between them. */
    Steadfast__V1__PushHeader header = fx_header(1, 1, 8 * sizeof(float));
    CHECK(fx_push_wait(&header, grads[0], 8 * sizeof(float)).code == ERR_OK);
    header.step = 2;
    CHECK(fx_push_wait(&header, grads[1], 8 * sizeof(float)).code == ERR_OK);
    header = fx_header(1, 1, 4 * sizeof(float));
    header.shard = 1;
    CHECK(fx_push_wait(&header, grads[0] + 8, 4 * sizeof(float)).code == ERR_OK);

    CHECK_OK(ckpt_begin(test_dir(), 1, &partial, &err));
    const Steadfast__V1__OrderDone *done;
    snapshot(partial, 1, &done);
    FX_CHECK_DONE(done);
    CHECK_U64(done->n_files, 2);
    publish(test_dir(), done, before);

    /* One slice over the old border, and one in front of it: 0-2 on shard 1, 3-5 on shard 0. */
    const struct fx_slice after[] = {{"w", 0, {6, 2}, 0, 3, 0, 1}, {"w", 0, {6, 2}, 3, 3, 0, 0}};
    AUTO_MEM char *folder = ckpt_path(test_dir(), 1);
    FX_CHECK_DONE(fx_create(2, SPEC(MOMENTUM), after, 2, folder));
    /* The order of the answer's states is by shard. */
    CHECK_U64(fx.done->done->n_shards, 2);
    const Steadfast__V1__ShardState *mixed = fx.done->done->shards[0];
    CHECK_U64(mixed->groups, 2);
    CHECK_U64(mixed->applied, 1);
    CHECK_U64(mixed->marked, 1);
    CHECK(mixed->version > 1000); /* no version of an older generation is met again */

    /* Step 2 again: only the rows 4 and 5 lack it. */
    header = fx_header(1, 2, 6 * sizeof(float));
    CHECK(fx_push_wait(&header, grads[1], 6 * sizeof(float)).code == ERR_STALE);
    header.generation = 2;
    CHECK(fx_push_wait(&header, grads[1], 6 * sizeof(float)).outcome ==
          STEADFAST__V1__PUSH_OUTCOME__PUSH_APPLIED);
    header.shard = 1;
    CHECK(fx_push_wait(&header, grads[1], 6 * sizeof(float)).outcome ==
          STEADFAST__V1__PUSH_OUTCOME__PUSH_DONE_BEFORE);
    for (uint32_t shard = 0; shard < 2; shard++) {
        struct fx_pull pull = fx_pull(2, shard, 0, 0);
        CHECK(pull.code == ERR_OK);
        for (size_t i = 0; i < 6; i++) {
            size_t element = shard == 1 ? i : 6 + i;
            float m = -0.5f * grads[0][element], w = initial("w", element) + m;
            m = 0.5f * m - 0.5f * 1.0f;
            CHECK(pull.values[i] == w + m);
        }
        free(pull.values);
    }
    FX_CHECK_DONE(fx_create(2, SPEC(MOMENTUM), after, 2, folder)); /* again: nothing happens */
    CHECK_U64(fx.done->done->shards[0]->groups, 1);
    CHECK_U64(fx.done->done->shards[0]->applied, 2);
    CHECK_U64(fx.done->done->shards[0]->repeated_applies, 0);
    fx_stop();
}

TEST(a_restore_from_a_damaged_checkpoint_names_the_file)
{
    struct err err;
    float grads[4] = {1, 1, 1, 1};
    AUTO_MEM char *partial = NULL;
    fx_start(1, 64 * MIB, 8 * MIB);
    const struct fx_slice slice = {"w", 0, {2, 2}, 0, 2, 0, 0};
    FX_CHECK_DONE(fx_create(1, SPEC(MOMENTUM), &slice, 1, NULL));
    Steadfast__V1__PushHeader header = fx_header(1, 1, sizeof(grads));
    CHECK(fx_push_wait(&header, grads, sizeof(grads)).code == ERR_OK);
    CHECK_OK(ckpt_begin(test_dir(), 1, &partial, &err));
    const Steadfast__V1__OrderDone *done;
    snapshot(partial, 1, &done);
    FX_CHECK_DONE(done);
    publish(test_dir(), done, &slice);
    AUTO_MEM char *folder = ckpt_path(test_dir(), 1);
    AUTO_MEM char *path = base_asprintf("%s/server0-shard0.safetensors", folder);
    AUTO_FILE FILE *file = fopen(path, "r+");
    CHECK(file && fseek(file, -1, SEEK_END) == 0 && fputc(0x55, file) == 0x55 && fflush(file) == 0);
    done = fx_create(2, SPEC(MOMENTUM), &slice, 1, folder);
    CHECK_STR(done->code, "CORRUPT");
    CHECK(strstr(done->text, "server0-shard0.safetensors"));

    snapshot("/nonexistent/folder", 1, &done);
    CHECK_STR(done->code, "STALE");
    fx_stop();
}

TEST(a_snapshot_into_a_missing_folder_is_refused_and_training_goes_on)
{
    float grads[4] = {1, 1, 1, 1};
    fx_start(1, 64 * MIB, 8 * MIB);
    fx_create_one(2, 2, SPEC(MOMENTUM));
    const Steadfast__V1__OrderDone *done;
    for (uint64_t step = 0; step < 4; step++) { /* more often than there are buffers: none leaks */
        snapshot("/nonexistent/folder", 1, &done);
        CHECK_STR(done->code, "NOT_FOUND");
        Steadfast__V1__PushHeader header = fx_header(1, step, sizeof(grads));
        CHECK(fx_push_wait(&header, grads, sizeof(grads)).code == ERR_OK);
    }
    fx_stop();
}

struct stalled {
    enum err_code ended;
    uint64_t got_bytes;
};

static void on_stalled_end(void *arg, const struct err *status, const struct rpc_in *reply)
{
    (void)reply;
    ((struct stalled *)arg)->ended = status->code;
}

static void on_stalled_chunk(struct rpc_ccall *call, const struct rpc_in *in, void *arg)
{
    if (!in)
        return;
    ((struct stalled *)arg)->got_bytes += in->view ? rpc_view_bytes(in->view) : 0;
    rpc_crecv(call, on_stalled_chunk, arg);
}

TEST(a_pull_that_nobody_reads_is_broken_off)
{
    enum { ROWS = 4096, COLS = 4096 }; /* 64 MiB: far more than a stream's window */
    fx_start(1, 1024 * MIB, 8 * MIB);
    fx_create_one(ROWS, COLS, SPEC(SGD));
    Steadfast__V1__PullRequest request = STEADFAST__V1__PULL_REQUEST__INIT;
    request.job = JOB;
    request.generation = 1;
    struct rpc_out out = {.message = &request.base};
    struct rpc_call_options options = {
        .timeout_ms = UINT32_MAX, .where = RPC_ON_LOOP, .has_payload = true};
    struct rpc_ccall *call = NULL;
    struct stalled stalled = {0};
    struct err err;
    CHECK_OK(rpc_open(fx.channel, &ps_method_pull, &out, &options, on_stalled_end, &stalled, &call,
                      &err));
    uint64_t read_ns = clock_now_ns() + 1500 * NS_PER_MS; /* five times what the server allows */
    WAIT_UNTIL(clock_now_ns() >= read_ns);
    rpc_crecv(call, on_stalled_chunk, &stalled);
    WAIT_UNTIL(stalled.ended != ERR_OK);
    CHECK(stalled.ended == ERR_TIMEOUT);
    CHECK(stalled.got_bytes < (uint64_t)ROWS * COLS * sizeof(float));
    rpc_ccall_unref(call);
    struct fx_pull pull = fx_pull(1, 0, 0, 0); /* a reader that reads gets all */
    CHECK_U64(pull.got, pull.total);
    free(pull.values);
    fx_stop();
}
