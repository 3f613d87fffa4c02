/* SPDX-License-Identifier: Apache-2.0 */
/* ps_push: a push on its way in.
 *
 *             header checked            gate full
 *   READING ------------------> in <-----------------> WAITING (nothing is read: back-pressure)
 *      |  all bytes, then half-close
 *      v
 *   APPLYING (on the shard) ----> DONE: answered. READING or WAITING ----> DONE too, when the
 *      client goes, sends what does not fit, or its session is fenced; the shard never hears of it.
 *
 * A push that lost its client after its last byte is applied: it is complete, and marked like any
 * other.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/peer_memory.h"
#include "proto/ps.pb-c.h"
#include "psd/exchange/ps_exchange_int.h"
#include "psd/exchange/push_gate.h"
#include "psd/values/bufpool.h"

struct ps_pushes {
    const struct ps_target *target;
    struct push_gate *gate;
    pthread_mutex_t lock; /* guards the list; before a push's own lock */
    struct push *first;   /* all that are being received */
};

enum push_state { PUSH_READING, PUSH_WAITING, PUSH_APPLYING, PUSH_ENDED };

struct push {
    struct task task; /* to the shard; first member */
    struct ps_pushes *pushes;
    struct rpc_call *call;
    uint32_t refs; /* atomic: the call's end, the work, and who looks at it from the list */
    struct push *prev, *next;
    struct push_waiter waiter;
    struct shard *shard;
    struct shard_push what;
    uint64_t total;

    pthread_mutex_t lock; /* guards all below; before the shard's and the gate's lock */
    enum push_state state;
    bool has_header;
    bool is_in_gate;
    struct buf *grads;
    struct ranges covered;   /* bytes that have come */
    struct rpc_view *parked; /* the first chunk's payload, kept while waiting */
    uint64_t parked_offset;
    uint64_t parked_address; /* of it, when it lies in the client's memory */
    uint64_t parked_bytes;
    struct peer_loan loan; /* pid 0: the client sends; else each chunk says where it lies */
    uint64_t copy_ns;      /* spent on putting gradients in place */
    uint64_t complete_ns;  /* when the last byte was here */
};

static void push_unref(struct push *push)
{
    if (__atomic_sub_fetch(&push->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    ranges_done(&push->covered);
    pthread_mutex_destroy(&push->lock);
    free(push);
}

/* The work on the push is over; whoever set PUSH_ENDED calls this once, without its lock. */
static void push_end_work(struct push *push)
{
    struct ps_pushes *pushes = push->pushes;
    pthread_mutex_lock(&pushes->lock);
    if (push->prev)
        push->prev->next = push->next;
    else
        pushes->first = push->next;
    if (push->next)
        push->next->prev = push->prev;
    pthread_mutex_unlock(&pushes->lock);
    buf_unref(TAKE(push->grads));
    rpc_view_free(TAKE(push->parked));
    rpc_call_unref(push->call);
    if (push->is_in_gate)
        push_gate_leave(pushes->gate, push->waiter.bytes);
    push_unref(push);
}

/* Gives up a push that is READING or WAITING; text NULL: the call is over, nobody to tell. Does
 * nothing when it is APPLYING or ENDED already. */
static void push_give_up(struct push *push, enum err_code code, const char *text)
{
    bool was_in_line = false;
    pthread_mutex_lock(&push->lock);
    bool is_mine = push->state == PUSH_READING || push->state == PUSH_WAITING;
    if (push->state == PUSH_WAITING) {
        was_in_line = push_gate_cancel(push->pushes->gate, &push->waiter);
        push->is_in_gate = !was_in_line; /* it was let in just now; on_open will see the end */
    }
    if (is_mine)
        push->state = PUSH_ENDED;
    pthread_mutex_unlock(&push->lock);
    if (!is_mine)
        return;
    if (was_in_line)
        push_unref(push); /* the waiter's */
    if (text)
        rpc_fail(push->call, code, text);
    push_end_work(push);
}

struct push_bytes { /* of one chunk: in a message, or in the client's memory */
    const struct rpc_view *view;
    uint64_t address, bytes;
};

/* Lock held. */
static enum err_code take_bytes(struct push *push, const struct push_bytes *from, uint64_t offset,
                                struct err *err)
{
    uint64_t bytes = from->view ? rpc_view_bytes(from->view) : from->bytes;
    if (bytes == 0)
        return ERR_OK;
    if (offset > push->total || bytes > push->total - offset)
        return err_set(err, ERR_INVALID,
                       "push of step %" PRIu64 ": chunk of %" PRIu64 " bytes at %" PRIu64
                       " leaves the total of %" PRIu64,
                       push->what.step, bytes, offset, push->total);
    if (ranges_add_range(&push->covered, offset, offset + bytes - 1) != bytes)
        return err_set(err, ERR_INVALID,
                       "push of step %" PRIu64 ": chunk of %" PRIu64 " bytes at %" PRIu64
                       " overlaps an earlier one",
                       push->what.step, bytes, offset);
    if (push->covered.count > LIMIT_PUSH_HOLES)
        return err_set(err, ERR_INVALID,
                       "push of step %" PRIu64 ": more than %d holes between its chunks",
                       push->what.step, LIMIT_PUSH_HOLES);
    if (!from->view && push->loan.pid == 0)
        return err_set(err, ERR_INVALID,
                       "push of step %" PRIu64 ": a chunk lies in the memory of a process that the "
                       "header does not name",
                       push->what.step);
    uint64_t begin_ns = clock_now_ns();
    enum err_code code = ERR_OK;
    char *to = (char *)push->grads->data + offset;
    if (from->view) {
        rpc_view_copy(from->view, 0, to, bytes);
    } else {
        push->loan.address = from->address;
        code = peer_memory_read(&push->loan, &(struct iovec){.iov_base = to, .iov_len = bytes}, 1,
                                err);
    }
    push->copy_ns += clock_now_ns() - begin_ns;
    return code;
}

/* Lock held; the push is in the gate. */
static enum err_code open_buffer(struct push *push, struct err *err)
{
    push->is_in_gate = true;
    enum err_code code = shard_push_buffer(push->shard, &push->what, &push->grads, err);
    push->what.grads = push->grads;
    if (code == ERR_OK && push->grads->bytes != push->total)
        code =
            err_set(err, ERR_STALE, "push of step %" PRIu64 ": the job changed its size meanwhile",
                    push->what.step);
    return code;
}

static void on_chunk(struct rpc_call *call, const struct rpc_in *in, void *arg);

/* Any thread: the gate lets a waiting push in. */
static void on_open(struct push_waiter *waiter)
{
    struct push *push = CONTAINER_OF(waiter, struct push, waiter);
    struct err err = {0};
    enum err_code code = ERR_OK;
    pthread_mutex_lock(&push->lock);
    bool is_wanted = push->state == PUSH_WAITING;
    if (is_wanted) {
        push->state = PUSH_READING;
        code = open_buffer(push, &err);
        if (code == ERR_OK)
            code = take_bytes(push,
                              &(struct push_bytes){.view = push->parked,
                                                   .address = push->parked_address,
                                                   .bytes = push->parked_bytes},
                              push->parked_offset, &err);
        rpc_view_free(TAKE(push->parked));
    }
    pthread_mutex_unlock(&push->lock);
    if (is_wanted && code == ERR_OK)
        rpc_recv(push->call, on_chunk, push);
    else if (is_wanted)
        push_give_up(push, code, err.text);
    push_unref(push); /* the waiter's */
}

/* Lock held; the first message. */
static enum err_code take_header(struct push *push, const Steadfast__V1__PushChunk *chunk,
                                 const struct rpc_in *in, struct err *err)
{
    const Steadfast__V1__PushHeader *header = chunk->header;
    if (!header)
        return err_set(err, ERR_INVALID, "the first message of a push has no header");
    push->has_header = true;
    push->shard = ps_target_shard(push->pushes->target, header->shard, err);
    if (!push->shard)
        return err->code;
    push->what = (struct shard_push){.job = header->job,
                                     .generation = header->generation,
                                     .step = header->step,
                                     .session = header->session,
                                     .pulled_version = header->pulled_version};
    push->total = header->total_bytes;
    if (header->process) {
        /* The secret of a process that was here before us, or of nobody: the client asks anew. */
        if (!peer_memory_is_our_secret(header->proof.data, header->proof.len))
            return err_set(err, ERR_UNAVAILABLE, "push of step %" PRIu64 ": not our secret",
                           push->what.step);
        push->loan = (struct peer_loan){.pid = header->process->pid,
                                        .seal_address = header->seal_address,
                                        .seal = header->seal};
    }
    enum err_code code = shard_push_check(push->shard, &push->what, push->total, err);
    if (code != ERR_OK)
        return code;
    push->waiter.bytes = bufpool_charge(push->total);
    push->waiter.on_open = on_open;
    push->state = PUSH_WAITING;
    push->parked_offset = chunk->offset;
    push->parked_address = chunk->address;
    push->parked_bytes = in->view ? 0 : chunk->bytes;
    __atomic_add_fetch(&push->refs, 1, __ATOMIC_RELAXED); /* the waiter's */
    bool is_in = false;
    code = push_gate_enter(push->pushes->gate, &push->waiter, &is_in, err);
    if (code == ERR_OK && !is_in) {
        push->parked = in->view ? rpc_view_take(in) : NULL; /* on_open waits for our lock */
        return ERR_OK;
    }
    push->state = PUSH_READING;
    __atomic_sub_fetch(&push->refs, 1, __ATOMIC_RELAXED);
    return code == ERR_OK ? open_buffer(push, err) : code;
}

static void run_push(struct task *task);

/* Lock held: the client has said all. */
static enum err_code take_end(struct push *push, struct err *err)
{
    uint64_t got = ranges_total(&push->covered);
    if (!push->has_header)
        return err_set(err, ERR_INVALID, "a push ended without a message");
    if (got != push->total)
        return err_set(err, ERR_INVALID,
                       "push of step %" PRIu64 " ended after %" PRIu64 " of %" PRIu64 " bytes",
                       push->what.step, got, push->total);
    push->task.run = run_push;
    push->complete_ns = clock_now_ns();
    enum err_code code = task_thread_post(shard_thread(push->shard), &push->task);
    if (code != ERR_OK)
        return err_set(err, code, "shard %u takes no more pushes now", shard_index(push->shard));
    push->state = PUSH_APPLYING;
    return ERR_OK;
}

static void on_chunk(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    struct push *push = arg;
    struct err err = {0};
    enum err_code code = ERR_OK;
    __atomic_add_fetch(&push->refs, 1,
                       __ATOMIC_RELAXED); /* it may end on the shard while we look */
    pthread_mutex_lock(&push->lock);
    bool is_wanted = push->state == PUSH_READING;
    if (is_wanted && !in) {
        code = take_end(push, &err);
    } else if (is_wanted) {
        const Steadfast__V1__PushChunk *chunk =
            (const Steadfast__V1__PushChunk *)(const void *)in->message;
        if (!push->has_header)
            code = take_header(push, chunk, in, &err);
        else if (chunk->header)
            code = err_set(&err, ERR_INVALID, "push of step %" PRIu64 ": a second header",
                           push->what.step);
        if (code == ERR_OK && push->state == PUSH_READING)
            code =
                take_bytes(push,
                           &(struct push_bytes){
                               .view = in->view, .address = chunk->address, .bytes = chunk->bytes},
                           chunk->offset, &err);
    }
    bool reads_on = in && code == ERR_OK && push->state == PUSH_READING;
    pthread_mutex_unlock(&push->lock);
    if (code != ERR_OK)
        push_give_up(push, code, err.text);
    else if (reads_on)
        rpc_recv(call, on_chunk, push);
    push_unref(push);
}

/* Shard thread. */
static void run_push(struct task *task)
{
    struct push *push = CONTAINER_OF(task, struct push, task);
    struct shard_push_result result = {0};
    struct err err = {0};
    enum err_code code = shard_apply(push->shard, &push->what, &result, &err);
    pthread_mutex_lock(&push->lock);
    ASSERT(push->state == PUSH_APPLYING);
    push->state = PUSH_ENDED;
    pthread_mutex_unlock(&push->lock);
    if (code == ERR_OK) {
        Steadfast__V1__PushReply reply = STEADFAST__V1__PUSH_REPLY__INIT;
        reply.outcome = result.is_done_before ? STEADFAST__V1__PUSH_OUTCOME__PUSH_DONE_BEFORE
                                              : STEADFAST__V1__PUSH_OUTCOME__PUSH_APPLIED;
        reply.version = result.version;
        reply.staleness = result.staleness;
        reply.copy_us = (uint32_t)(push->copy_ns / 1000);
        reply.apply_us = (uint32_t)(result.apply_ns / 1000);
        reply.wait_us = (uint32_t)((clock_now_ns() - push->complete_ns - result.apply_ns) / 1000);
        rpc_reply(push->call, &(struct rpc_out){.message = &reply.base});
    } else {
        rpc_fail(push->call, code, err.text);
    }
    push_end_work(push);
}

static void on_push_end(struct rpc_call *call, bool was_cancelled, void *arg)
{
    (void)call;
    (void)was_cancelled;
    struct push *push = arg;
    push_give_up(push, ERR_CANCELLED, NULL);
    push_unref(push);
}

void ps_push_on_call(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    (void)in; /* a client stream: nothing has come yet */
    struct ps_pushes *pushes = arg;
    struct push *push = base_alloc(sizeof(*push));
    push->pushes = pushes;
    push->call = call;
    push->refs = 2;
    push->state = PUSH_READING;
    ranges_init(&push->covered);
    pthread_mutex_init(&push->lock, NULL);
    rpc_call_ref(call);
    pthread_mutex_lock(&pushes->lock);
    push->next = pushes->first;
    if (push->next)
        push->next->prev = push;
    pushes->first = push;
    pthread_mutex_unlock(&pushes->lock);
    rpc_on_end(call, on_push_end, push);
    rpc_recv(call, on_chunk, push);
}

void ps_pushes_end_session(struct ps_pushes *pushes, uint64_t session)
{
    for (;;) { /* one at a time: ending one changes the list */
        struct push *found = NULL;
        pthread_mutex_lock(&pushes->lock);
        for (struct push *push = pushes->first; push && !found; push = push->next) {
            pthread_mutex_lock(&push->lock);
            if (push->has_header && push->what.session == session &&
                (push->state == PUSH_READING || push->state == PUSH_WAITING)) {
                found = push;
                __atomic_add_fetch(&push->refs, 1, __ATOMIC_RELAXED);
            }
            pthread_mutex_unlock(&push->lock);
        }
        pthread_mutex_unlock(&pushes->lock);
        if (!found)
            return;
        char text[100];
        snprintf(text, sizeof(text), "session %" PRIu64 " was fenced: its worker was given up",
                 session);
        push_give_up(found, ERR_STALE, text);
        push_unref(found);
    }
}

struct ps_pushes *ps_pushes_new(const struct ps_target *target, uint64_t inflight_bytes)
{
    struct ps_pushes *pushes = base_alloc(sizeof(*pushes));
    pushes->target = target;
    pushes->gate = push_gate_new(inflight_bytes, LIMIT_PUSHES_ADMITTED, LIMIT_PUSHES_WAITING);
    pthread_mutex_init(&pushes->lock, NULL);
    return pushes;
}

void ps_pushes_free(struct ps_pushes *pushes)
{
    push_gate_free(pushes->gate);
    pthread_mutex_destroy(&pushes->lock);
    free(pushes);
}
