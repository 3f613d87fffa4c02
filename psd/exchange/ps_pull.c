/* SPDX-License-Identifier: Apache-2.0 */
/* ps_pull: a pull takes a reference to published values and sends them as borrowed slices, a few
 * chunks ahead of the wire. One whose reader takes nothing for stall_ms is broken off: the values it
 * holds are those that the next update may be waiting for.
 *
 * A reader that proves to be on this machine is told where the values lie instead; they stay until
 * it ends the call, or is broken off.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "proto/ps.pb-c.h"
#include "psd/exchange/ps_exchange_int.h"
#include "psd/values/bufpool.h"

#define PULL_AHEAD    4 /* chunks in the send queue: the wire never waits for us */
#define PULL_STALL_MS 10000u

struct ps_pulls {
    const struct ps_target *target;
    uint32_t stall_ms;
    struct loop_timer *timer;
    pthread_mutex_t lock; /* guards the list and its members' last_ns; a leaf */
    struct pull *first;   /* all that are being sent */
};

struct pull {
    struct pull *next;
    struct pull **link; /* that points to us; NULL: off the list */
    struct ps_pulls *pulls;
    struct rpc_call *call;
    uint64_t last_ns; /* when the reader last took something */
    struct rpc_blob *blob;
    const struct buf *values; /* blob's */
    uint64_t version;
    uint64_t total;
    uint64_t offset;  /* of the next chunk */
    size_t queued;    /* chunks whose on_sent is to come */
    bool is_finished; /* rpc_finish was called, or the call is over */
    bool is_ended;
    bool is_from_memory; /* by the reader; it ends the call */
    bool has_reader;     /* it said who it is */
    uint8_t reader_secret[PEER_SECRET_BYTES];
    size_t reader_secret_bytes; /* 0: we cannot read it */
};

static void on_blob_free(void *arg)
{
    buf_unref(arg);
}

static void pull_free_if_done(struct pull *pull)
{
    if (!pull->is_ended || pull->queued > 0)
        return;
    rpc_blob_unref(pull->blob);
    free(pull);
}

static void on_chunk_sent(struct rpc_call *call, bool ok, void *arg);

/* Who we are, and that we can read the reader: for its next calls. */
static void introduce(struct pull *pull, Steadfast__V1__TensorChunk *chunk,
                      Steadfast__V1__ProcessRef *process)
{
    struct peer_ref self = peer_memory_self();
    process->pid = self.pid;
    process->secret_address = self.secret_address;
    chunk->process = process;
    chunk->proof =
        (ProtobufCBinaryData){.data = pull->reader_secret, .len = pull->reader_secret_bytes};
}

static void meet_reader(struct pull *pull, const Steadfast__V1__PullRequest *request)
{
    if (!request->reader)
        return;
    struct peer_ref reader = {.pid = request->reader->pid,
                              .secret_address = request->reader->secret_address};
    pull->has_reader = peer_memory_self().pid != 0;
    if (peer_memory_secret_of(reader, pull->reader_secret))
        pull->reader_secret_bytes = sizeof(pull->reader_secret);
    pull->is_from_memory = pull->total >= PEER_MEMORY_MIN_BYTES &&
                           peer_memory_is_our_secret(request->proof.data, request->proof.len);
}

/* io thread. Chunks until PULL_AHEAD wait; after the last, the end. */
static void pull_more(struct rpc_call *call, struct pull *pull)
{
    while (!pull->is_finished && pull->queued < PULL_AHEAD) {
        Steadfast__V1__TensorChunk chunk = STEADFAST__V1__TENSOR_CHUNK__INIT;
        uint64_t bytes = MIN(pull->total - pull->offset, (uint64_t)LIMIT_CHUNK_BYTES);
        chunk.version = pull->version;
        chunk.total_bytes = pull->total;
        chunk.offset = pull->offset;
        struct rpc_out out = {.message = &chunk.base};
        Steadfast__V1__ProcessRef process = STEADFAST__V1__PROCESS_REF__INIT;
        Steadfast__V1__MemoryRef memory = STEADFAST__V1__MEMORY_REF__INIT;
        if (pull->has_reader && pull->offset == 0)
            introduce(pull, &chunk, &process);
        if (pull->is_from_memory) {
            memory.address = (uintptr_t)pull->values->data;
            memory.seal_address = (uintptr_t)&pull->values->seal;
            memory.seal = pull->values->seal.value;
            chunk.memory = &memory;
            bytes = pull->total;
        } else if (bytes > 0) {
            out.blob = pull->blob;
            out.offset = pull->offset;
            out.bytes = bytes;
        }
        if (rpc_send(call, &out, on_chunk_sent, pull) != ERR_OK) {
            pull->is_finished = true; /* the call is over; its end is on the way */
            return;
        }
        pull->queued++;
        pull->offset += bytes;
        if (pull->offset == pull->total) {
            pull->is_finished = true;
            if (!pull->is_from_memory)
                rpc_finish(call);
        }
    }
}

static void on_chunk_sent(struct rpc_call *call, bool ok, void *arg)
{
    struct pull *pull = arg;
    pthread_mutex_lock(&pull->pulls->lock);
    pull->last_ns = clock_now_ns();
    pthread_mutex_unlock(&pull->pulls->lock);
    pull->queued--;
    if (ok && !pull->is_ended)
        pull_more(call, pull);
    pull_free_if_done(pull);
}

static void on_pull_end(struct rpc_call *call, bool was_cancelled, void *arg)
{
    (void)was_cancelled;
    struct pull *pull = arg;
    pull->is_ended = pull->is_finished = true;
    pthread_mutex_lock(&pull->pulls->lock);
    *pull->link = pull->next;
    if (pull->next)
        pull->next->link = pull->link;
    pthread_mutex_unlock(&pull->pulls->lock);
    if (pull->is_from_memory)
        rpc_call_unref(call);
    pull_free_if_done(pull);
}

static void pull_add(struct ps_pulls *pulls, struct pull *pull, struct rpc_call *call)
{
    pull->pulls = pulls;
    pull->call = call;
    pull->last_ns = clock_now_ns();
    pthread_mutex_lock(&pulls->lock);
    pull->next = pulls->first;
    pull->link = &pulls->first;
    if (pull->next)
        pull->next->link = &pull->next;
    pulls->first = pull;
    pthread_mutex_unlock(&pulls->lock);
}

/* Loop, by the timer. Breaks off pulls whose readers do not read. */
static void check_stalled(void *arg)
{
    struct ps_pulls *pulls = arg;
    for (;;) { /* one at a time: breaking one off changes the list */
        struct rpc_call *stalled = NULL;
        uint64_t now_ns = clock_now_ns();
        pthread_mutex_lock(&pulls->lock);
        for (struct pull *pull = pulls->first; pull && !stalled; pull = pull->next) {
            if (now_ns < pull->last_ns + pulls->stall_ms * NS_PER_MS)
                continue;
            pull->last_ns = UINT64_MAX / 2; /* once */
            stalled = pull->call;
            rpc_call_ref(stalled); /* on the list its end has not been told, so it is there */
        }
        pthread_mutex_unlock(&pulls->lock);
        if (!stalled)
            return;
        log_warn("pull.stalled", "%s took nothing for %u ms; its pull is broken off",
                 rpc_peer(stalled), pulls->stall_ms);
        rpc_abort(stalled, ERR_TIMEOUT, "the reader of this pull took nothing for too long");
        rpc_call_unref(stalled);
    }
}

void ps_pull_on_call(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    struct ps_pulls *pulls = arg;
    const Steadfast__V1__PullRequest *request =
        (const Steadfast__V1__PullRequest *)(const void *)in->message;
    struct err err = {0};
    struct buf *values = NULL;
    uint64_t version = 0;
    struct shard *shard = ps_target_shard(pulls->target, request->shard, &err);
    if (!shard || shard_pull(shard, request->job, request->generation, request->pin, &values,
                             &version, &err) != ERR_OK) {
        rpc_fail(call, err.code, err.text);
        return;
    }
    if (version == request->have_version) {
        Steadfast__V1__TensorChunk chunk = STEADFAST__V1__TENSOR_CHUNK__INIT;
        chunk.version = version;
        chunk.total_bytes = values->bytes;
        chunk.not_modified = true;
        buf_unref(values);
        if (rpc_send(call, &(struct rpc_out){.message = &chunk.base}, NULL, NULL) == ERR_OK)
            rpc_finish(call);
        else
            rpc_fail(call, ERR_CANCELLED, "the call is over");
        return;
    }
    struct pull *pull = base_alloc(sizeof(*pull));
    pull->version = version;
    pull->total = values->bytes;
    pull->values = values;
    pull->blob = rpc_blob_wrap(values->data, values->bytes, on_blob_free, values);
    meet_reader(pull, request);
    pull_add(pulls, pull, call);
    if (pull->is_from_memory)
        rpc_call_ref(call); /* nothing of ours is under way while the reader reads */
    rpc_on_end(call, on_pull_end, pull);
    pull_more(call, pull);
}

struct ps_pulls *ps_pulls_new(const struct ps_target *target, struct loop *loop, uint32_t stall_ms)
{
    struct ps_pulls *pulls = base_alloc(sizeof(*pulls));
    pulls->target = target;
    pulls->stall_ms = stall_ms ? stall_ms : PULL_STALL_MS;
    pulls->timer = loop_timer_new(loop, check_stalled, pulls);
    pthread_mutex_init(&pulls->lock, NULL);
    return pulls;
}

void ps_pulls_watch(struct ps_pulls *pulls)
{
    loop_timer_every(pulls->timer, MAX(pulls->stall_ms / 4, 1u));
}

void ps_pulls_free(struct ps_pulls *pulls)
{
    loop_timer_free(pulls->timer);
    pthread_mutex_destroy(&pulls->lock);
    free(pulls);
}
