/* SPDX-License-Identifier: Apache-2.0 */
/* pull: a server stream per shard, each chunk checked and copied on the io thread.
 *
 * From a server on this machine comes one message that says where the values lie; they are read
 * from its memory straight into the variables. The call is kept open meanwhile, since it is what
 * keeps the values where they are, and ended from here. */
#include "workerd/exchange/pull.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/rpc/rpc.h"
#include "proto/methods.h"
#include "proto/ps.pb-c.h"
#include "workerd/exchange/tensor_set.h"

struct pull_shard {
    struct rpc_ccall *call; /* the loop's */
    /* The io thread's while the call runs: */
    uint64_t version;     /* of this shard's part of the copy; 0: none */
    uint64_t new_version; /* of the chunks that arrive; 0: none yet */
    uint64_t received;    /* bytes */
    bool is_same;         /* the shard said "not modified" */
    struct err bad;       /* code not OK: what we cancelled the call for */
    uint64_t copy_ns;     /* spent on putting values in place */
    bool is_from_memory;  /* all of it was read where it lay; we end the call */
    bool has_failed_memory;
    bool has_secret; /* the server's, just found out */
    bool is_read;    /* the server has read ours */
    uint8_t secret[PEER_SECRET_BYTES];
    /* Loop: */
    bool wants_secret;
    struct iovec *pieces; /* where the payload belongs, run after run */
};

struct pull {
    struct exchange exchange;
    struct tensor_set *copy;
    struct pull_request request;
    struct pull_shard shards[];
};

static struct pull_shard *shard_of(struct exchange_part *part)
{
    struct pull *pull = CONTAINER_OF(part->exchange, struct pull, exchange);
    return &pull->shards[part->shard_index];
}

/* ---- io thread ---------------------------------------------------------------------------------
 */
struct copy_to {
    float *const *vars;
    const struct rpc_view *view;
};

static void copy_run(void *arg, uint32_t var_index, uint64_t var_byte, uint64_t in_range,
                     size_t bytes)
{
    const struct copy_to *to = arg;
    rpc_view_copy(to->view, in_range, (uint8_t *)to->vars[var_index] + var_byte, bytes);
}

/* The first message may say who the server is, for a pull to come, and that it can read us. */
static void meet(struct pull_shard *state, const Steadfast__V1__TensorChunk *chunk)
{
    if (!chunk->process)
        return;
    struct peer_ref server = {.pid = chunk->process->pid,
                              .secret_address = chunk->process->secret_address};
    if (state->wants_secret)
        state->has_secret = peer_memory_secret_of(server, state->secret);
    state->is_read = peer_memory_is_our_secret(chunk->proof.data, chunk->proof.len);
}

static enum err_code take_memory(struct exchange_part *part,
                                 const Steadfast__V1__TensorChunk *chunk, struct err *err)
{
    struct pull_shard *state = shard_of(part);
    struct peer_loan loan = {.pid = chunk->process ? chunk->process->pid : 0,
                             .address = chunk->memory->address,
                             .seal_address = chunk->memory->seal_address,
                             .seal = chunk->memory->seal};
    enum err_code code =
        peer_memory_read(&loan, state->pieces, exchange_shard(part)->piece_count, err);
    state->has_failed_memory = code != ERR_OK;
    state->is_from_memory = code == ERR_OK;
    return code;
}

static enum err_code take_chunk(struct exchange_part *part, const Steadfast__V1__TensorChunk *chunk,
                                const struct rpc_view *view, struct err *err)
{
    struct pull *pull = CONTAINER_OF(part->exchange, struct pull, exchange);
    struct pull_shard *state = shard_of(part);
    const struct slice_shard *shard = exchange_shard(part);
    if (chunk->not_modified) {
        if (state->version == 0 || chunk->version != state->version || state->received > 0)
            return err_set(err, ERR_INVALID,
                           "version %" PRIu64
                           " is said to be unmodified, want that of version %" PRIu64,
                           chunk->version, state->version);
        state->is_same = true;
        return ERR_OK;
    }
    size_t bytes = chunk->memory ? shard->payload_bytes : view ? rpc_view_bytes(view) : 0;
    if (chunk->total_bytes != shard->payload_bytes)
        return err_set(err, ERR_INVALID,
                       "payload of %" PRIu64 " bytes, want %" PRIu64 " as planned",
                       chunk->total_bytes, shard->payload_bytes);
    if (bytes == 0 || chunk->offset != state->received ||
        bytes > shard->payload_bytes - state->received)
        return err_set(err, ERR_INVALID,
                       "chunk of %zu bytes at %" PRIu64 ", want some at %" PRIu64 " of %" PRIu64,
                       bytes, chunk->offset, state->received, shard->payload_bytes);
    if (chunk->version == 0 || (state->new_version && chunk->version != state->new_version))
        return err_set(err, ERR_INVALID, "chunk of version %" PRIu64 ", want %" PRIu64,
                       chunk->version, state->new_version);
    state->new_version = chunk->version;
    state->version = 0; /* until all of it is here, this shard's part is of two versions */
    uint64_t begin_ns = clock_now_ns();
    enum err_code code = ERR_OK;
    if (chunk->memory) {
        code = take_memory(part, chunk, err);
    } else {
        struct copy_to to = {.vars = pull->copy->vars, .view = view};
        slice_map_walk(shard, state->received, bytes, copy_run, &to);
    }
    state->copy_ns += clock_now_ns() - begin_ns;
    if (code == ERR_OK)
        state->received += bytes;
    return code;
}

static void on_chunk(struct rpc_ccall *call, const struct rpc_in *in, void *arg)
{
    struct exchange_part *part = arg;
    struct pull_shard *state = shard_of(part);
    if (!in)
        return; /* on_end follows */
    const Steadfast__V1__TensorChunk *chunk = (const Steadfast__V1__TensorChunk *)in->message;
    meet(state, chunk);
    state->bad.code = take_chunk(part, chunk, in->view, &state->bad);
    if (state->bad.code != ERR_OK || state->is_from_memory)
        rpc_cancel(call);
    else
        rpc_crecv(call, on_chunk, part);
}

static void on_end(void *arg, const struct err *status, const struct rpc_in *reply)
{
    (void)reply;
    struct exchange_part *part = arg;
    struct pull_shard *state = shard_of(part);
    part->status = state->bad.code != ERR_OK ? state->bad : *status;
    if (state->is_from_memory)
        part->status.code = ERR_OK; /* it is here, and only we know */
    if (part->status.code == ERR_OK && !state->is_same) {
        uint64_t want = exchange_shard(part)->payload_bytes;
        if (state->received == want)
            state->version = state->new_version;
        else
            err_set(&part->status, ERR_INVALID,
                    "the stream ended after %" PRIu64 " bytes, want %" PRIu64, state->received,
                    want);
    }
    exchange_part_ended(part);
}

/* ---- loop thread -------------------------------------------------------------------------------
 */
static void start_part(struct exchange_part *part)
{
    struct pull *pull = CONTAINER_OF(part->exchange, struct pull, exchange);
    struct pull_shard *state = shard_of(part);
    state->new_version = 0;
    state->received = 0;
    state->is_same = false;
    state->bad.code = ERR_OK;
    state->copy_ns = 0;
    state->is_from_memory = false;
    state->has_failed_memory = false;
    state->has_secret = false;
    state->is_read = false;
    struct ps_link *link = exchange_link(part);
    struct peer_ref self = peer_memory_self();
    Steadfast__V1__ProcessRef reader = STEADFAST__V1__PROCESS_REF__INIT;
    Steadfast__V1__PullRequest request = STEADFAST__V1__PULL_REQUEST__INIT;
    request.job = pull->request.job;
    request.generation = pull->request.generation;
    request.shard = exchange_shard(part)->shard;
    request.have_version = state->version;
    request.pin = pull->request.pin;
    if (self.pid && link->memory_failures < LINK_MEMORY_FAILURES) {
        reader.pid = self.pid;
        reader.secret_address = self.secret_address;
        request.reader = &reader;
        state->wants_secret = !link->can_read;
        if (link->can_read)
            request.proof =
                (ProtobufCBinaryData){.data = link->secret, .len = sizeof(link->secret)};
    }
    struct rpc_out out = {.message = &request.base};
    struct rpc_call_options options = {.timeout_ms = exchange_timeout_ms(part->exchange),
                                       .where = RPC_INLINE,
                                       .has_payload = true};
    if (rpc_open(link->channel, &ps_method_pull, &out, &options, on_end, part, &state->call,
                 &part->status) != ERR_OK) {
        exchange_part_ended(part);
        return;
    }
    rpc_crecv(state->call, on_chunk, part);
}

static void cancel_part(struct exchange_part *part)
{
    struct pull_shard *state = shard_of(part);
    if (state->call)
        rpc_cancel(state->call);
}

static void release_part(struct exchange_part *part)
{
    struct pull_shard *state = shard_of(part);
    struct ps_link *link = exchange_link(part);
    rpc_ccall_unref(TAKE(state->call));
    if (state->has_failed_memory) {
        ps_link_memory_failed(link, &part->status);
    } else if (part->status.code == ERR_OK) {
        if (state->has_secret && !link->can_read) {
            memcpy(link->secret, state->secret, sizeof(link->secret));
            link->can_read = true;
            log_info("ps.memory", "server=%s address=%s: values%s are read where they lie",
                     link->name, link->address, state->is_read ? " and gradients" : "");
        }
        link->is_read = state->is_read || (link->is_read && state->is_same);
    }
}

static const struct exchange_ops pull_ops = {
    .start = start_part, .cancel = cancel_part, .release = release_part};

enum err_code pull_new(const struct exchange_env *env, struct pull **ret_pull, struct err *err)
{
    struct tensor_set *copy = NULL;
    enum err_code code = tensor_set_new(env->map->var_elements, env->map->var_count, &copy, err);
    if (code != ERR_OK)
        return code;
    struct pull *pull = base_alloc(sizeof(*pull) + env->map->shard_count * sizeof(pull->shards[0]));
    pull->copy = copy;
    for (size_t i = 0; i < env->map->shard_count; i++) {
        const struct slice_shard *shard = &env->map->shards[i];
        pull->shards[i].pieces = base_alloc(shard->piece_count * sizeof(struct iovec));
        for (size_t k = 0; k < shard->piece_count; k++)
            pull->shards[i].pieces[k] = (struct iovec){
                .iov_base = copy->vars[shard->pieces[k].var_index] + shard->pieces[k].var_offset,
                .iov_len = shard->pieces[k].element_count * sizeof(float)};
    }
    exchange_init(&pull->exchange, env, &pull_ops);
    *ret_pull = pull;
    return ERR_OK;
}

void pull_free(struct pull *pull)
{
    if (!pull)
        return;
    for (size_t i = 0; i < pull->exchange.part_count; i++)
        free(pull->shards[i].pieces);
    exchange_done(&pull->exchange);
    tensor_set_free(pull->copy);
    free(pull);
}

void pull_start(struct pull *pull, const struct pull_request *request, exchange_done_fn *on_done,
                void *arg)
{
    pull->request = *request;
    exchange_begin(&pull->exchange, request->deadline_ns, on_done, arg);
}

void pull_cancel(struct pull *pull)
{
    exchange_cancel(&pull->exchange);
}

bool pull_is_active(const struct pull *pull)
{
    return pull->exchange.is_active;
}

const float *const *pull_vars(const struct pull *pull)
{
    return (const float *const *)pull->copy->vars;
}

uint64_t pull_copy_ns(const struct pull *pull)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < pull->exchange.part_count; i++)
        sum += pull->shards[i].copy_ns;
    return sum;
}

uint64_t pull_version(const struct pull *pull, size_t shard_index)
{
    return pull->shards[shard_index].version;
}
