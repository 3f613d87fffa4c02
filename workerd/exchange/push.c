/* SPDX-License-Identifier: Apache-2.0 */
/* push: a client stream per shard, fed from the list of complete gradients under one lock.
 *
 * The list grows at its end only, and each shard has a cursor into it: (place in the list, piece of
 * the shard, byte of the piece). To try again is to set the cursor back.
 *
 * To a server that can read our memory a chunk says where the bytes lie instead of carrying them.
 * The seal of the arrays is broken before they are filled anew, so that a server which is late with
 * a push that we gave up takes nothing of the next one for it.
 */
#include "workerd/exchange/push.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/rpc/rpc.h"
#include "proto/methods.h"
#include "proto/ps.pb-c.h"
#include "workerd/exchange/fault_hook.h"
#include "workerd/exchange/tensor_set.h"

#define PUSH_MEMORY_CHUNK_BYTES                                                                    \
    ((uint64_t)4 << 20) /* read at once: copying begins while more comes */
#define PUSH_WINDOW_CHUNKS                                                                         \
    16 /* of a shard: 16 MiB at most, a few times what a connection holds                          \
        */

struct push_shard {
    struct rpc_ccall *call; /* NULL: not opened yet, or released */
    bool is_started;        /* between start and the end of a try */
    bool is_ended;          /* the end of this try was posted */
    bool is_closed;         /* all was sent and the sending side is closed */
    bool has_header;        /* the first message of the call has left */
    bool is_read;           /* this try: the server reads our memory, and this is its secret */
    uint8_t secret[PEER_SECRET_BYTES];
    size_t ready_at;        /* cursor: place in the list of complete gradients */
    size_t piece_at;        /* cursor: piece of the shard, by index */
    uint64_t byte_at;       /* cursor: byte of the piece */
    uint64_t sent_bytes;    /* given to the call */
    uint32_t window_chunks; /* given to the call and not sent yet */
    uint64_t pulled_version;
    Steadfast__V1__PushOutcome outcome;
    uint64_t staleness;
    uint32_t copy_us, apply_us; /* of the server */
};

struct push {
    struct exchange exchange;
    struct tensor_set *grads;
    struct peer_seal seal; /* of grads */
    const bool *is_trainable;
    struct fault_hook *hook;
    void (*on_idle)(void *arg);
    void *on_idle_arg;
    exchange_done_fn *on_done;
    void *on_done_arg;
    bool is_borrowed; /* the loop's: the blob of the last step is not gone yet */
    struct inbox_msg returned_msg;

    pthread_mutex_t lock; /* guards all below and the shards; leaf but for gRPC's own locks */
    struct push_request request;
    struct rpc_blob *blob; /* of all gradients; NULL: no gradient is taken any more */
    uint32_t *ready;       /* variables in the order in which their gradients became complete */
    size_t ready_count;
    size_t answered_count;
    uint64_t serialise_ns; /* spent on packing and handing over, this step */
    struct push_shard shards[];
};

static struct push *push_of(struct exchange_part *part)
{
    return CONTAINER_OF(part->exchange, struct push, exchange);
}

/* ---- sending: under the lock --------------------------------------------------------------------
 */
static void pump(struct push *push, struct exchange_part *part);

static void end_try(struct push_shard *shard, struct exchange_part *part)
{
    ASSERT(shard->is_started && !shard->is_ended);
    shard->is_ended = true;
    exchange_part_ended(part);
}

static void on_sent_one(struct rpc_ccall *call, bool ok, void *arg);
static void on_end(void *arg, const struct err *status, const struct rpc_in *reply);

/* The next run of bytes of the shard whose gradient is complete; false: none now. */
static bool find_next(const struct push *push, struct push_shard *shard,
                      const struct slice_shard *plan)
{
    for (; shard->ready_at < push->ready_count; shard->ready_at++, shard->piece_at = 0) {
        for (; shard->piece_at < plan->piece_count; shard->piece_at++, shard->byte_at = 0) {
            const struct slice_piece *piece = &plan->pieces[shard->piece_at];
            if (piece->var_index == push->ready[shard->ready_at] &&
                shard->byte_at < piece->element_count * sizeof(float))
                return true;
        }
    }
    return false;
}

static bool is_all_ready(const struct push *push)
{
    return push->ready_count == push->grads->var_count;
}

/* The last chunk of a shard is held back until another shard has answered: see fault_hook.h. */
static bool is_held_back(const struct push *push, const struct exchange_part *part, uint64_t bytes)
{
    return part->shard_index > 0 && push->answered_count == 0 &&
           push->shards[part->shard_index].sent_bytes + bytes ==
               exchange_shard(part)->payload_bytes &&
           fault_hook_is_armed(push->hook, FAULT_DURING_PUSH, push->request.step);
}

static enum err_code open_call(struct push *push, struct push_shard *shard,
                               struct exchange_part *part)
{
    fault_hook_hit(push->hook, FAULT_BEFORE_PUSH, push->request.step);
    fault_hook_hit(push->hook, FAULT_STOP_BEFORE_PUSH, push->request.step);
    struct rpc_call_options options = {.timeout_ms = exchange_timeout_ms(&push->exchange),
                                       .where = RPC_INLINE};
    shard->has_header = false;
    return rpc_open(exchange_link(part)->channel, &ps_method_push, NULL, &options, on_end, part,
                    &shard->call, &part->status);
}

static enum err_code send_chunk(struct push *push, struct push_shard *shard,
                                struct exchange_part *part, const struct slice_piece *piece)
{
    bool is_read = shard->is_read;
    size_t bytes = (size_t)MIN(piece->element_count * sizeof(float) - shard->byte_at,
                               is_read ? PUSH_MEMORY_CHUNK_BYTES : (uint64_t)LIMIT_CHUNK_BYTES);
    if (is_held_back(push, part, bytes))
        return ERR_FULL;
    const uint8_t *from =
        (const uint8_t *)(push->grads->vars[piece->var_index] + piece->var_offset) + shard->byte_at;
    Steadfast__V1__ProcessRef process = STEADFAST__V1__PROCESS_REF__INIT;
    Steadfast__V1__PushHeader header = STEADFAST__V1__PUSH_HEADER__INIT;
    Steadfast__V1__PushChunk chunk = STEADFAST__V1__PUSH_CHUNK__INIT;
    if (!shard->has_header) {
        header.job = push->request.job;
        header.generation = push->request.generation;
        header.shard = exchange_shard(part)->shard;
        header.step = push->request.step;
        header.attempt = push->request.attempt;
        header.session = push->request.session;
        header.pulled_version = shard->pulled_version;
        header.total_bytes = exchange_shard(part)->payload_bytes;
        if (is_read) {
            struct peer_ref self = peer_memory_self();
            process.pid = self.pid;
            process.secret_address = self.secret_address;
            header.process = &process;
            header.proof =
                (ProtobufCBinaryData){.data = shard->secret, .len = sizeof(shard->secret)};
            header.seal_address = (uintptr_t)&push->seal;
            header.seal = push->seal.value;
        }
        chunk.header = &header;
    }
    chunk.offset = piece->payload_offset + shard->byte_at;
    struct rpc_out out = {.message = &chunk.base};
    if (is_read) {
        chunk.address = (uintptr_t)from;
        chunk.bytes = bytes;
    } else {
        out.blob = push->blob;
        out.offset = (size_t)(from - push->grads->block);
        out.bytes = bytes;
    }
    uint64_t begin_ns = clock_now_ns();
    enum err_code code = rpc_csend(shard->call, &out, on_sent_one, part);
    push->serialise_ns += clock_now_ns() - begin_ns;
    if (code != ERR_OK)
        return code;
    shard->has_header = true;
    shard->byte_at += bytes;
    shard->sent_bytes += bytes;
    shard->window_chunks++;
    return ERR_OK;
}

static void pump(struct push *push, struct exchange_part *part)
{
    struct push_shard *shard = &push->shards[part->shard_index];
    const struct slice_shard *plan = exchange_shard(part);
    if (!push->blob || !shard->is_started || shard->is_ended || shard->is_closed)
        return;
    while (shard->window_chunks < PUSH_WINDOW_CHUNKS && find_next(push, shard, plan)) {
        if (!shard->call && open_call(push, shard, part) != ERR_OK) {
            end_try(shard, part); /* there is no call whose end would say so */
            return;
        }
        /* A call that is over, or a queue that is full although our window is smaller, takes
         * nothing: the end of the call, or of what is queued, brings us back. */
        if (send_chunk(push, shard, part, &plan->pieces[shard->piece_at]) != ERR_OK)
            return;
    }
    if (shard->call && is_all_ready(push) && !find_next(push, shard, plan)) {
        shard->is_closed = true;
        rpc_cclose_send(shard->call);
    }
}

/* ---- io thread ---------------------------------------------------------------------------------
 */
static void on_sent_one(struct rpc_ccall *call, bool ok, void *arg)
{
    struct exchange_part *part = arg;
    struct push *push = push_of(part);
    pthread_mutex_lock(&push->lock);
    struct push_shard *shard = &push->shards[part->shard_index];
    ASSERT(shard->call == call &&
           shard->window_chunks > 0); /* the end of a call is the last that it says */
    shard->window_chunks--;
    if (ok)
        pump(push, part);
    pthread_mutex_unlock(&push->lock);
}

static void on_end(void *arg, const struct err *status, const struct rpc_in *reply)
{
    struct exchange_part *part = arg;
    struct push *push = push_of(part);
    pthread_mutex_lock(&push->lock);
    struct push_shard *shard = &push->shards[part->shard_index];
    part->status = *status;
    if (status->code == ERR_OK) {
        const Steadfast__V1__PushReply *answer = (const Steadfast__V1__PushReply *)reply->message;
        shard->outcome = answer->outcome;
        shard->staleness = answer->staleness;
        shard->copy_us = answer->copy_us;
        shard->apply_us = answer->apply_us;
        push->answered_count++;
        fault_hook_hit(push->hook, FAULT_DURING_PUSH, push->request.step);
    }
    end_try(shard, part);
    pthread_mutex_unlock(&push->lock);
}

static void on_blob_gone(void *arg)
{
    struct push *push = arg;
    inbox_post(push->exchange.env->inbox, &push->returned_msg);
}

/* ---- device thread -----------------------------------------------------------------------------
 */
void push_ready(struct push *push, size_t var_index)
{
    pthread_mutex_lock(&push->lock);
    if (push->blob) {
        ASSERT(push->ready_count < push->grads->var_count);
        push->ready[push->ready_count++] = (uint32_t)var_index;
        for (size_t i = 0; i < push->exchange.part_count; i++)
            pump(push, &push->exchange.parts[i]);
    }
    pthread_mutex_unlock(&push->lock);
}

/* ---- loop thread -------------------------------------------------------------------------------
 */
static void start_part(struct exchange_part *part)
{
    struct push *push = push_of(part);
    pthread_mutex_lock(&push->lock);
    struct push_shard *shard = &push->shards[part->shard_index];
    shard->is_started = true;
    shard->is_ended = false;
    shard->is_closed = false;
    shard->ready_at = 0;
    shard->piece_at = 0;
    shard->byte_at = 0;
    shard->sent_bytes = 0;
    shard->window_chunks = 0;
    const struct ps_link *link = exchange_link(part);
    shard->is_read = link->can_read && link->is_read &&
                     exchange_shard(part)->payload_bytes >= PEER_MEMORY_MIN_BYTES;
    memcpy(shard->secret, link->secret, sizeof(shard->secret));
    pump(push, part);
    pthread_mutex_unlock(&push->lock);
}

static void cancel_part(struct exchange_part *part)
{
    struct push *push = push_of(part);
    pthread_mutex_lock(&push->lock);
    struct push_shard *shard = &push->shards[part->shard_index];
    if (shard->call) {
        rpc_cancel(shard->call);
    } else if (!shard->is_ended) {
        err_set(&part->status, ERR_CANCELLED, "the step was taken back");
        end_try(shard, part);
    }
    pthread_mutex_unlock(&push->lock);
}

static void release_part(struct exchange_part *part)
{
    struct push *push = push_of(part);
    pthread_mutex_lock(&push->lock);
    struct push_shard *shard = &push->shards[part->shard_index];
    struct rpc_ccall *call = TAKE(shard->call);
    shard->is_started = false;
    pthread_mutex_unlock(&push->lock);
    rpc_ccall_unref(call);
    if (shard->is_read && part->status.code == ERR_UNAVAILABLE)
        ps_link_memory_failed(exchange_link(part), &part->status);
}

static const struct exchange_ops push_ops = {
    .start = start_part, .cancel = cancel_part, .release = release_part};

static void on_returned(struct inbox_msg *msg)
{
    struct push *push = CONTAINER_OF(msg, struct push, returned_msg);
    push->is_borrowed = false;
    if (push_is_idle(push))
        push->on_idle(push->on_idle_arg);
}

/* Ends the lending: the arrays come back when the last slice that is on its way is gone. */
static void drop_blob(struct push *push)
{
    pthread_mutex_lock(&push->lock);
    struct rpc_blob *blob = TAKE(push->blob);
    pthread_mutex_unlock(&push->lock);
    rpc_blob_unref(blob);
}

static void on_exchange_done(void *arg, enum ps_verdict verdict, const struct err *err)
{
    struct push *push = arg;
    if (push->blob)
        drop_blob(push);
    if (verdict == PS_OK)
        fault_hook_hit(push->hook, FAULT_AFTER_PUSH, push->request.step);
    push->on_done(push->on_done_arg, verdict, err);
    if (push_is_idle(push))
        push->on_idle(push->on_idle_arg);
}

enum err_code push_new(const struct exchange_env *env, const bool *is_trainable,
                       struct fault_hook *hook, void (*on_idle)(void *arg), void *arg,
                       struct push **ret_push, struct err *err)
{
    struct tensor_set *grads = NULL;
    enum err_code code = tensor_set_new(env->map->var_elements, env->map->var_count, &grads, err);
    if (code != ERR_OK)
        return code;
    struct push *push = base_alloc(sizeof(*push) + env->map->shard_count * sizeof(push->shards[0]));
    push->grads = grads;
    peer_seal_init(&push->seal);
    push->is_trainable = is_trainable;
    push->hook = hook;
    push->on_idle = on_idle;
    push->on_idle_arg = arg;
    push->returned_msg.on_loop = on_returned;
    push->ready = base_alloc(env->map->var_count * sizeof(*push->ready));
    pthread_mutex_init(&push->lock, NULL);
    exchange_init(&push->exchange, env, &push_ops);
    *ret_push = push;
    return ERR_OK;
}

void push_free(struct push *push)
{
    if (!push)
        return;
    ASSERT(push_is_idle(push));
    exchange_done(&push->exchange);
    peer_seal_end(&push->seal);
    tensor_set_free(push->grads);
    pthread_mutex_destroy(&push->lock);
    free(push->ready);
    free(push);
}

float *const *push_grads(const struct push *push)
{
    return push->grads->vars;
}

bool push_is_idle(const struct push *push)
{
    return !push->exchange.is_active && !push->is_borrowed;
}

void push_begin(struct push *push, const struct push_request *request, exchange_done_fn *on_done,
                void *arg)
{
    ASSERT(push_is_idle(push));
    peer_seal_break(&push->seal); /* the device fills them after this */
    pthread_mutex_lock(&push->lock);
    push->request = *request;
    push->on_done = on_done;
    push->on_done_arg = arg;
    push->is_borrowed = true;
    push->blob = rpc_blob_wrap(push->grads->block, push->grads->block_bytes, on_blob_gone, push);
    push->ready_count = 0;
    push->answered_count = 0;
    push->serialise_ns = 0;
    for (size_t v = 0; v < push->grads->var_count; v++)
        if (!push->is_trainable[v])
            push->ready[push->ready_count++] = (uint32_t)v;
    for (size_t i = 0; i < push->exchange.part_count; i++)
        push->shards[i].pulled_version = request->pulled_versions[i];
    pthread_mutex_unlock(&push->lock);
    exchange_begin(&push->exchange, request->deadline_ns, on_exchange_done, push);
}

void push_cancel(struct push *push)
{
    if (!push->exchange.is_active)
        return;
    drop_blob(push);
    exchange_cancel(&push->exchange);
}

struct push_result push_result_of(const struct push *push)
{
    struct push_result result = {.serialise_ns = push->serialise_ns};
    for (size_t i = 0; i < push->exchange.part_count; i++) {
        result.is_duplicate =
            result.is_duplicate ||
            push->shards[i].outcome == STEADFAST__V1__PUSH_OUTCOME__PUSH_DONE_BEFORE;
        result.staleness = MAX(result.staleness, push->shards[i].staleness);
        result.copy_ns += push->shards[i].copy_us * NS_PER_US;
        result.apply_ns += push->shards[i].apply_us * NS_PER_US;
    }
    return result;
}
