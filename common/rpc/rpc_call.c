/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_call: the server side of one call, from the moment it is armed.
 *
 *   armed --(a call comes)--> handed to on_call --reply, fail, finish--> ended --RECV_CLOSE--> over
 *
 * Two counts: stream.refs keeps the memory, users is what handlers hold (and what a callback that
 * is still to come holds for them). When the last user goes and nobody has ended the call, it is
 * failed here, so no client waits for a handler that forgot it.
 */
#include <grpc/grpc.h>
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/rpc/rpc_server_int.h"

struct rpc_call {
    struct rpc_stream stream; /* first: side functions cast */
    struct rpc_table *table;
    const struct rpc_method *method;
    size_t method_index;
    atomic_uint users;
    char *peer;

    struct rpc_op new_op;
    struct rpc_op close_op;
    struct rpc_ev call_ev;
    grpc_metadata_array metadata;
    gpr_timespec deadline;
    grpc_byte_buffer *payload;
    struct rpc_msg request;
    int was_cancelled;

    /* under stream.lock until the last batch starts */
    bool is_ended; /* by reply, fail, finish or us */
    enum err_code end_code;
    char *end_text;
    grpc_byte_buffer *reply;
    void (*on_end)(struct rpc_call *call, bool was_cancelled, void *arg);
    void *on_end_arg;
    grpc_metadata trailing; /* gRPC reads it until the batch is done */
    grpc_slice details;
};

/* ---- ending ---------------------------------------------------------------------------------- */
/* How much of text fits LIMIT_RPC_DETAILS_BYTES once gRPC has percent-encoded it. */
static size_t details_length(const char *text)
{
    size_t len = 0, cost = 0;
    for (; text[len]; len++) {
        unsigned char c = (unsigned char)text[len];
        cost += c >= 0x20 && c < 0x7f && c != '%' ? 1 : 3;
        if (cost > LIMIT_RPC_DETAILS_BYTES)
            break;
    }
    if (text[len])
        while (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80) /* not inside a character */
            len--;
    return len;
}

/* Takes reply over. The first end counts: a handler's may cross the peer's, or another one of ours (a goodbye and the
 * half-close that answers it). */
static void end_call(struct rpc_call *call, enum err_code code, const char *text,
                     grpc_byte_buffer *take_reply)
{
    struct rpc_stream *stream = &call->stream;
    pthread_mutex_lock(&stream->lock);
    bool is_first = !call->is_ended;
    if (is_first) {
        call->is_ended = true;
        call->end_code = code;
        call->end_text = text ? base_strdup(text) : NULL;
        call->reply = TAKE(take_reply);
    }
    pthread_mutex_unlock(&stream->lock);
    if (take_reply)
        grpc_byte_buffer_destroy(take_reply);
    if (is_first)
        rpc_stream_send_last(stream, code != ERR_OK);
}

static size_t server_last(struct rpc_stream *stream, grpc_op *ops)
{
    struct rpc_call *call = (struct rpc_call *)stream;
    size_t count = 0;
    if (call->reply) {
        ops[count].op = GRPC_OP_SEND_MESSAGE;
        ops[count++].data.send_message.send_message = call->reply;
    }
    ops[count].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
    ops[count].data.send_status_from_server.status = (grpc_status_code)err_to_grpc(call->end_code);
    if (call->end_code != ERR_OK) {
        call->trailing.key = grpc_slice_from_static_string(RPC_ERROR_KEY);
        call->trailing.value = grpc_slice_from_static_string(err_name(call->end_code));
        ops[count].data.send_status_from_server.trailing_metadata_count = 1;
        ops[count].data.send_status_from_server.trailing_metadata = &call->trailing;
    }
    const char *text = call->end_text ? call->end_text : "";
    call->details = grpc_slice_from_copied_buffer(text, details_length(text));
    ops[count++].data.send_status_from_server.status_details = &call->details;
    return count;
}

/* ---- users ----------------------------------------------------------------------------------- */
void rpc_call_ref(struct rpc_call *call)
{
    atomic_fetch_add_explicit(&call->users, 1, memory_order_relaxed);
    rpc_stream_ref(&call->stream);
}

void rpc_call_unref(struct rpc_call *call)
{
    if (!call)
        return;
    if (atomic_fetch_sub_explicit(&call->users, 1, memory_order_acq_rel) == 1)
        end_call(call, ERR_CANCELLED, "the call was dropped without an answer", NULL);
    rpc_stream_unref(&call->stream);
}

void rpc_abort(struct rpc_call *call, enum err_code code, const char *text)
{
    rpc_stream_cancel(&call->stream, (grpc_status_code)err_to_grpc(code), text);
}

/* ---- the side functions ---------------------------------------------------------------------- */
static void server_message(struct rpc_stream *stream, union rpc_message_fn fn,
                           const struct rpc_in *in, void *arg)
{
    struct rpc_call *call = (struct rpc_call *)stream;
    fn.server(call, in, arg);
    rpc_call_unref(call); /* rpc_recv's */
}

static void server_sent(struct rpc_stream *stream, union rpc_sent_fn fn, bool ok, void *arg)
{
    struct rpc_call *call = (struct rpc_call *)stream;
    fn.server(call, ok, arg);
    rpc_call_unref(call); /* rpc_send's */
}

static void server_malformed(struct rpc_stream *stream, const struct err *err)
{
    end_call((struct rpc_call *)stream, err->code, err->text, NULL);
}

static void server_over(struct rpc_stream *stream)
{
    struct rpc_call *call = (struct rpc_call *)stream;
    pthread_mutex_lock(&stream->lock);
    __typeof__(call->on_end) on_end = call->on_end;
    void *arg = call->on_end_arg;
    call->on_end = NULL;
    pthread_mutex_unlock(&stream->lock);
    if (on_end)
        on_end(call, call->was_cancelled, arg);
}

static void server_destroy(struct rpc_stream *stream)
{
    struct rpc_call *call = (struct rpc_call *)stream;
    rpc_stream_done(stream);
    rpc_msg_done(&call->request);
    if (call->payload)
        grpc_byte_buffer_destroy(call->payload);
    if (call->reply)
        grpc_byte_buffer_destroy(call->reply);
    grpc_metadata_array_destroy(&call->metadata);
    grpc_slice_unref(call->details);
    free(call->peer);
    free(call->end_text);
    rpc_table_unref(call->table);
    free(call);
}

static const struct rpc_side server_side = {server_message, server_sent, server_malformed,
                                            server_last,    server_over, server_destroy};

/* ---- arrival --------------------------------------------------------------------------------- */
static void on_closed(struct rpc_op *op, bool ok)
{
    (void)ok; /* RECV_CLOSE always succeeds */
    struct rpc_call *call = CONTAINER_OF(op, struct rpc_call, close_op);
    rpc_stream_closed(&call->stream);
    rpc_stream_unref(&call->stream);
}

static void run_call(struct rpc_ev *ev)
{
    struct rpc_call *call = CONTAINER_OF(ev, struct rpc_call, call_ev);
    const struct rpc_method *method = call->method;
    struct rpc_in in = {.message = call->request.message, .view = call->request.view};
    method->on_call(call, in.message ? &in : NULL, method->arg);
    rpc_msg_done(&call->request);
    rpc_call_unref(call);
}

/* The request of a unary or server stream call came with it. */
static enum err_code read_request(struct rpc_call *call, struct err *err)
{
    const struct rpc_method *method = call->method;
    if (method->kind != RPC_UNARY && method->kind != RPC_SERVER_STREAM)
        return ERR_OK;
    if (!call->payload)
        return err_set(err, ERR_INVALID, "%s/%s without a request message", method->service,
                       method->name);
    return rpc_msg_unpack(method->in, method->has_payload, TAKE(call->payload), &call->request,
                          err);
}

/* gRPC knows a connection that it was handed as "fd:17". */
static char *peer_of(struct rpc_call *call)
{
    char *name = grpc_call_get_peer(call->stream.grpc), text[96];
    bool is_fd = strncmp(name, "fd:", 3) == 0;
    if (is_fd)
        rpc_listener_peer(call->table->listener, (int)strtol(name + 3, NULL, 10), text,
                          sizeof(text));
    char *peer = base_strdup(is_fd ? text : name);
    gpr_free(name);
    return peer;
}

static void on_new(struct rpc_op *op, bool ok)
{
    struct rpc_call *call = CONTAINER_OF(op, struct rpc_call, new_op);
    struct rpc_stream *stream = &call->stream;
    if (!ok) { /* the server shuts down */
        rpc_stream_unref(stream);
        return;
    }
    rpc_call_arm(call->table, call->method_index);
    call->peer = peer_of(call);
    grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    close.data.recv_close_on_server.cancelled = &call->was_cancelled;
    rpc_stream_ref(stream);
    rpc_start_batch(stream->grpc, &close, 1, &call->close_op);

    struct err err;
    if (read_request(call, &err) != ERR_OK) {
        end_call(call, err.code, err.text, NULL);
        rpc_stream_unref(stream);
        return;
    }
    rpc_ev_deliver(stream->env, stream->where, &call->call_ev);
}

void rpc_call_arm(struct rpc_table *table, size_t method_index)
{
    const struct rpc_method *method = &table->methods[method_index];
    struct rpc_call *call = base_alloc(sizeof(*call));
    rpc_stream_init(&call->stream, &server_side, table->env, method->where, method->in,
                    method->has_payload);
    call->stream.wants_metadata = true;
    call->table = rpc_table_ref(table);
    call->method = method;
    call->method_index = method_index;
    call->new_op.on_complete = on_new;
    call->close_op.on_complete = on_closed;
    call->call_ev.run = run_call;
    atomic_init(&call->users, 1); /* run_call's, with the stream's first reference */
    bool has_request = method->kind == RPC_UNARY || method->kind == RPC_SERVER_STREAM;
    tsan_release(&call->new_op);
    grpc_call_error error = grpc_server_request_registered_call(
        table->grpc, table->tags[method_index], &call->stream.grpc, &call->deadline,
        &call->metadata, has_request ? &call->payload : NULL, table->env->cq, table->env->cq,
        &call->new_op);
    ASSERT(error == GRPC_CALL_OK); /* a server that shuts down answers through the queue */
}

/* ---- what handlers say ----------------------------------------------------------------------- */
void rpc_reply(struct rpc_call *call, const struct rpc_out *out)
{
    ASSERT(call->method->kind == RPC_UNARY || call->method->kind == RPC_CLIENT_STREAM);
    ASSERT(out->message->descriptor == call->method->out);
    grpc_byte_buffer *buffer;
    size_t bytes;
    struct err err;
    if (rpc_msg_pack(out, &buffer, &bytes, &err) == ERR_OK)
        end_call(call, ERR_OK, NULL, buffer);
    else
        end_call(call, err.code, err.text, NULL);
}

void rpc_fail(struct rpc_call *call, enum err_code code, const char *text)
{
    ASSERT(code != ERR_OK);
    end_call(call, code, text, NULL);
}

void rpc_finish(struct rpc_call *call)
{
    ASSERT(call->method->kind == RPC_SERVER_STREAM || call->method->kind == RPC_BIDI);
    end_call(call, ERR_OK, NULL, NULL);
}

enum err_code rpc_send(struct rpc_call *call, const struct rpc_out *out,
                       void (*on_sent)(struct rpc_call *call, bool ok, void *arg), void *arg)
{
    ASSERT(call->method->kind == RPC_SERVER_STREAM || call->method->kind == RPC_BIDI);
    ASSERT(out->message->descriptor == call->method->out);
    if (on_sent)
        rpc_call_ref(call); /* until on_sent was called */
    enum err_code code = rpc_stream_send(&call->stream, out, (union rpc_sent_fn){.server = on_sent},
                                         on_sent != NULL, arg);
    if (code != ERR_OK && on_sent)
        rpc_call_unref(call);
    return code;
}

void rpc_recv(struct rpc_call *call,
              void (*on_message)(struct rpc_call *call, const struct rpc_in *in, void *arg),
              void *arg)
{
    ASSERT(call->method->kind == RPC_CLIENT_STREAM || call->method->kind == RPC_BIDI);
    rpc_call_ref(call); /* until on_message was called */
    rpc_stream_receive(&call->stream, (union rpc_message_fn){.server = on_message}, arg, true);
}

void rpc_on_end(struct rpc_call *call,
                void (*on_end)(struct rpc_call *call, bool was_cancelled, void *arg), void *arg)
{
    pthread_mutex_lock(&call->stream.lock);
    call->on_end = on_end;
    call->on_end_arg = arg;
    pthread_mutex_unlock(&call->stream.lock);
}

const char *rpc_peer(const struct rpc_call *call)
{
    return call->peer;
}

/* ---- methods that nobody registered ---------------------------------------------------------- */
struct unknown {
    struct rpc_op new_op;
    struct rpc_op end_op;
    struct rpc_table *table;
    grpc_call *grpc;
    grpc_call_details details;
    grpc_metadata_array metadata;
    grpc_slice text;
    int was_cancelled;
};

static void unknown_free(struct unknown *unknown)
{
    if (unknown->grpc)
        grpc_call_unref(unknown->grpc);
    grpc_slice_unref(unknown->text);
    grpc_call_details_destroy(&unknown->details);
    grpc_metadata_array_destroy(&unknown->metadata);
    rpc_table_unref(unknown->table);
    free(unknown);
}

static void on_unknown_end(struct rpc_op *op, bool ok)
{
    (void)ok;
    unknown_free(CONTAINER_OF(op, struct unknown, end_op));
}

static void on_unknown(struct rpc_op *op, bool ok)
{
    struct unknown *unknown = CONTAINER_OF(op, struct unknown, new_op);
    if (!ok) {
        unknown_free(unknown);
        return;
    }
    rpc_unknown_arm(unknown->table);
    char text[2 * LIMIT_NAME_BYTES];
    int len = (int)MIN(GRPC_SLICE_LENGTH(unknown->details.method), (size_t)LIMIT_NAME_BYTES);
    snprintf(text, sizeof(text), "no method %.*s here", len,
             (const char *)GRPC_SLICE_START_PTR(unknown->details.method));
    unknown->text = grpc_slice_from_copied_string(text);
    grpc_op ops[3] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_SEND_STATUS_FROM_SERVER},
                      {.op = GRPC_OP_RECV_CLOSE_ON_SERVER}};
    ops[1].data.send_status_from_server.status = GRPC_STATUS_UNIMPLEMENTED;
    ops[1].data.send_status_from_server.status_details = &unknown->text;
    ops[2].data.recv_close_on_server.cancelled = &unknown->was_cancelled;
    rpc_start_batch(unknown->grpc, ops, ARRAY_SIZE(ops), &unknown->end_op);
}

void rpc_unknown_arm(struct rpc_table *table)
{
    struct unknown *unknown = base_alloc(sizeof(*unknown));
    unknown->new_op.on_complete = on_unknown;
    unknown->end_op.on_complete = on_unknown_end;
    unknown->table = rpc_table_ref(table);
    grpc_call_details_init(&unknown->details);
    tsan_release(&unknown->new_op);
    grpc_call_error error =
        grpc_server_request_call(table->grpc, &unknown->grpc, &unknown->details, &unknown->metadata,
                                 table->env->cq, table->env->cq, &unknown->new_op);
    ASSERT(error == GRPC_CALL_OK);
}
