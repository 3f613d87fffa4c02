/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_stream: the send queue, the one receive and the end of a call, for both sides. */
#include <grpc/grpc.h>
#include <stdlib.h>

#include "common/base/limits.h"
#include "common/rpc/rpc_int.h"

/* What a queued message costs beside its bytes (this struct, the byte buffer, slices): without it a
 * queue of tiny messages would take far more memory than its bound says. */
#define ITEM_COST 512

struct rpc_item { /* a message to send */
    struct rpc_op op;
    struct rpc_ev ev;
    struct rpc_item *next;
    struct rpc_stream *stream; /* a reference once it is queued */
    grpc_byte_buffer *buffer;
    size_t cost;
    union rpc_sent_fn on_sent;
    bool has_on_sent;
    bool ok;
    void *arg;
};

static void on_received(struct rpc_op *op, bool ok);
static void run_message(struct rpc_ev *ev);
static void on_last_sent(struct rpc_op *op, bool ok);
static void run_end(struct rpc_ev *ev);

void rpc_stream_init(struct rpc_stream *stream, const struct rpc_side *side, struct rpc_env *env,
                     enum rpc_where where, const ProtobufCMessageDescriptor *in, bool has_payload)
{
    ASSERT(where == RPC_INLINE || env->loop);
    stream->side = side;
    stream->env = env;
    stream->where = where;
    stream->in = in;
    stream->has_payload = has_payload;
    stream->queue_tail = &stream->queue;
    stream->receive_op.on_complete = on_received;
    stream->message_ev.run = run_message;
    stream->last_op.on_complete = on_last_sent;
    stream->end_ev.run = run_end;
    atomic_init(&stream->refs, 1);
    pthread_mutex_init(&stream->lock, NULL);
}

void rpc_stream_done(struct rpc_stream *stream)
{
    ASSERT(!stream->queue && !stream->grpc);
    pthread_mutex_destroy(&stream->lock);
}

void rpc_stream_ref(struct rpc_stream *stream)
{
    atomic_fetch_add_explicit(&stream->refs, 1, memory_order_relaxed);
}

void rpc_stream_unref(struct rpc_stream *stream)
{
    if (atomic_fetch_sub_explicit(&stream->refs, 1, memory_order_acq_rel) == 1)
        stream->side->destroy(stream);
}

/* ---- the end --------------------------------------------------------------------------------- */
static void run_sent(struct rpc_ev *ev)
{
    struct rpc_item *item = CONTAINER_OF(ev, struct rpc_item, ev);
    struct rpc_stream *stream = item->stream;
    stream->side->on_sent(stream, item->on_sent, item->ok, item->arg);
    free(item);
    rpc_stream_unref(stream);
}

/* io thread: the message left, or never will. */
static void end_item(struct rpc_item *item, bool ok)
{
    struct rpc_stream *stream = item->stream;
    grpc_byte_buffer_destroy(item->buffer);
    item->ok = ok;
    if (item->has_on_sent) {
        item->ev.run = run_sent;
        rpc_ev_deliver(stream->env, stream->where, &item->ev);
    } else {
        free(item);
        rpc_stream_unref(stream);
    }
}

static void run_end(struct rpc_ev *ev)
{
    struct rpc_stream *stream = CONTAINER_OF(ev, struct rpc_stream, end_ev);
    pthread_mutex_lock(&stream->lock);
    bool has_receiver = stream->has_receiver;
    union rpc_message_fn on_message = stream->on_message;
    void *arg = stream->message_arg;
    stream->has_receiver = false;
    stream->is_end_delivered = true;
    pthread_mutex_unlock(&stream->lock);
    if (has_receiver)
        stream->side->on_message(stream, on_message, NULL, arg);
    stream->side->on_over(stream);
    rpc_stream_unref(stream);
}

/* io thread: closed and nothing outstanding makes it over. */
static void check_over(struct rpc_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    bool is_now =
        stream->is_closed && !stream->is_sending && !stream->is_receiving && !stream->is_over;
    grpc_call *grpc = NULL;
    struct rpc_item *item = NULL;
    if (is_now) {
        stream->is_over = true;
        grpc = TAKE(stream->grpc);
        item = TAKE(stream->queue);
        stream->queue_tail = &stream->queue;
        stream->queued_bytes = 0;
    }
    pthread_mutex_unlock(&stream->lock);
    if (!is_now)
        return;
    grpc_call_unref(grpc);
    rpc_stream_ref(stream); /* for run_end */
    while (item) {
        struct rpc_item *next = item->next;
        end_item(item, false);
        item = next;
    }
    rpc_ev_deliver(stream->env, stream->where, &stream->end_ev);
}

void rpc_stream_closed(struct rpc_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    stream->is_closed = true;
    pthread_mutex_unlock(&stream->lock);
    check_over(stream);
}

/* ---- sending --------------------------------------------------------------------------------- */
static void pump(struct rpc_stream *stream);

static void on_item_sent(struct rpc_op *op, bool ok)
{
    struct rpc_item *item = CONTAINER_OF(op, struct rpc_item, op);
    struct rpc_stream *stream = item->stream;
    rpc_stream_ref(stream); /* end_item lets go of the item's */
    pthread_mutex_lock(&stream->lock);
    stream->is_sending = false;
    stream->is_broken = stream->is_broken || !ok;
    pthread_mutex_unlock(&stream->lock);
    pump(stream); /* before the callback: the wire need not wait for it */
    end_item(item, ok);
    check_over(stream);
    rpc_stream_unref(stream);
}

static void on_last_sent(struct rpc_op *op, bool ok)
{
    (void)ok;
    struct rpc_stream *stream = CONTAINER_OF(op, struct rpc_stream, last_op);
    pthread_mutex_lock(&stream->lock);
    stream->is_sending = false;
    pthread_mutex_unlock(&stream->lock);
    check_over(stream);
    rpc_stream_unref(stream);
}

/* Starts the next send batch if none is outstanding. The thread that sets is_sending under the lock
 * is the one that starts the batch, so batches of one call never start at the same time. */
static void pump(struct rpc_stream *stream)
{
    struct rpc_item *item = NULL;
    bool is_last = false;
    pthread_mutex_lock(&stream->lock);
    grpc_call *grpc = stream->grpc;
    if (!stream->is_sending && !stream->is_broken && !stream->is_over) {
        if (stream->queue && !stream->drops_queue) {
            item = stream->queue;
            stream->queue = item->next;
            if (!stream->queue)
                stream->queue_tail = &stream->queue;
            stream->queued_bytes -= item->cost;
            stream->is_sending = true;
        } else if (stream->wants_last && !stream->is_last_started) {
            is_last = stream->is_last_started = stream->is_sending = true;
        }
    }
    pthread_mutex_unlock(&stream->lock);

    grpc_op ops[4] = {0};
    size_t count = 0;
    if ((item || is_last) && stream->wants_metadata) {
        ops[count++].op = GRPC_OP_SEND_INITIAL_METADATA;
        stream->wants_metadata = false;
    }
    if (item) {
        ops[count].op = GRPC_OP_SEND_MESSAGE;
        ops[count++].data.send_message.send_message = item->buffer;
        item->op.on_complete = on_item_sent;
        rpc_start_batch(grpc, ops, count, &item->op);
    } else if (is_last) {
        count += stream->side->fill_last(stream, ops + count);
        rpc_stream_ref(stream);
        rpc_start_batch(grpc, ops, count, &stream->last_op);
    }
}

enum err_code rpc_stream_send(struct rpc_stream *stream, const struct rpc_out *out,
                              union rpc_sent_fn on_sent, bool has_on_sent, void *arg)
{
    grpc_byte_buffer *buffer;
    size_t bytes;
    enum err_code code = rpc_msg_pack(out, &buffer, &bytes, NULL);
    if (code != ERR_OK)
        return code;
    struct rpc_item *item = base_alloc(sizeof(*item));
    item->stream = stream;
    item->buffer = buffer;
    item->cost = bytes + ITEM_COST;
    item->on_sent = on_sent;
    item->has_on_sent = has_on_sent;
    item->arg = arg;

    pthread_mutex_lock(&stream->lock);
    if (stream->is_closed || stream->is_broken || stream->wants_last)
        code = ERR_CANCELLED;
    else if (stream->queued_bytes + item->cost > LIMIT_RPC_QUEUED_BYTES)
        code = ERR_FULL;
    if (code == ERR_OK) {
        rpc_stream_ref(stream);
        *stream->queue_tail = item;
        stream->queue_tail = &item->next;
        stream->queued_bytes += item->cost;
    }
    pthread_mutex_unlock(&stream->lock);

    if (code == ERR_OK) {
        pump(stream);
    } else {
        grpc_byte_buffer_destroy(buffer);
        free(item);
    }
    return code;
}

void rpc_stream_send_last(struct rpc_stream *stream, bool drops_queue)
{
    pthread_mutex_lock(&stream->lock);
    stream->wants_last = true;
    stream->drops_queue = stream->drops_queue || drops_queue;
    pthread_mutex_unlock(&stream->lock);
    pump(stream);
}

/* ---- receiving ------------------------------------------------------------------------------- */
static void run_message(struct rpc_ev *ev)
{
    struct rpc_stream *stream = CONTAINER_OF(ev, struct rpc_stream, message_ev);
    pthread_mutex_lock(&stream->lock);
    union rpc_message_fn on_message = stream->on_message;
    void *arg = stream->message_arg;
    struct rpc_msg msg = stream->received;
    stream->received = (struct rpc_msg){0};
    bool has_receiver = stream->has_receiver;
    stream->has_receiver = false; /* the callback may ask for the next one */
    pthread_mutex_unlock(&stream->lock);
    if (has_receiver) {
        struct rpc_in in = {.message = msg.message, .view = msg.view};
        stream->side->on_message(stream, on_message, msg.message ? &in : NULL, arg);
    }
    rpc_msg_done(&msg);
    rpc_stream_unref(stream);
}

static void on_received(struct rpc_op *op, bool ok)
{
    (void)ok; /* without a message it is the end either way */
    struct rpc_stream *stream = CONTAINER_OF(op, struct rpc_stream, receive_op);
    struct rpc_msg msg = {0};
    struct err err;
    grpc_byte_buffer *buffer = TAKE(stream->receive_buffer);
    if (buffer && rpc_msg_unpack(stream->in, stream->has_payload, buffer, &msg, &err) != ERR_OK)
        stream->side->on_malformed(stream, &err);
    rpc_stream_ref(stream); /* run_message lets go of the receive's */
    pthread_mutex_lock(&stream->lock);
    stream->received = msg;
    stream->is_receiving = false;
    pthread_mutex_unlock(&stream->lock);
    rpc_ev_deliver(stream->env, stream->where, &stream->message_ev);
    check_over(stream);
    rpc_stream_unref(stream);
}

void rpc_stream_receive(struct rpc_stream *stream, union rpc_message_fn on_message, void *arg,
                        bool is_served_after_end)
{
    pthread_mutex_lock(&stream->lock);
    ASSERT(!stream->is_receiving && !stream->has_receiver);
    grpc_call *grpc = stream->grpc;
    bool is_over = stream->is_over;
    bool is_late = is_over && stream->is_end_delivered;
    if (!is_late || is_served_after_end) {
        stream->has_receiver = true;
        stream->on_message = on_message;
        stream->message_arg = arg;
        stream->is_receiving = !is_over;
        rpc_stream_ref(stream);
    }
    pthread_mutex_unlock(&stream->lock);
    if (!is_over) {
        grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
        op.data.recv_message.recv_message = &stream->receive_buffer;
        rpc_start_batch(grpc, &op, 1, &stream->receive_op);
    } else if (!is_late) {
        rpc_stream_unref(stream); /* run_end is on its way and serves it */
    } else if (is_served_after_end) {
        rpc_ev_post(stream->env, stream->where, &stream->message_ev);
    }
}

void rpc_stream_cancel(struct rpc_stream *stream, grpc_status_code status, const char *text)
{
    pthread_mutex_lock(&stream->lock);
    grpc_call *grpc = stream->grpc;
    if (grpc)
        grpc_call_ref(grpc);
    pthread_mutex_unlock(&stream->lock);
    if (!grpc)
        return;
    grpc_call_cancel_with_status(grpc, status, text, NULL);
    grpc_call_unref(grpc);
}
