/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_client: channels and the client side of calls. */
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/rpc/rpc_int.h"
#include "common/rpc/rpc_probe.h"

#define DEFAULT_KEEPALIVE_MS   2000
#define DEFAULT_BACKOFF_MIN_MS 50
#define DEFAULT_BACKOFF_MAX_MS 500
#define RESOLVE_AGAIN_MS       500

struct rpc_channel {
    struct rpc_env *env;
    struct rpc_channel_options options;
    char uri[LIMIT_ADDRESS_BYTES + 32]; /* gRPC's word for target */
    bool is_named;                      /* uri holds a name: gRPC has a resolver to ask */
    pthread_mutex_t lock; /* guards the two below; a leaf, but for gRPC's making of a call */
    grpc_channel *grpc;
    uint64_t made_ns;
    struct rpc_prober *prober;
    atomic_uint refs; /* the owner's and each call's, for the address in their error texts */
    char target[LIMIT_ADDRESS_BYTES];
};

struct rpc_ccall {
    struct rpc_stream stream; /* first: side functions cast */
    struct rpc_channel *channel;
    const struct rpc_method *method;
    bool has_reply; /* one message comes with the status */
    bool *ret_is_unknown;
    rpc_done_fn *on_done;
    void *arg;

    struct rpc_op status_op;
    grpc_metadata_array initial;
    grpc_metadata_array trailing;
    grpc_status_code code;
    grpc_slice details;
    grpc_byte_buffer *request;
    grpc_byte_buffer *reply;
    struct rpc_msg reply_msg;
    atomic_bool is_cancelled; /* by the caller */
    struct err malformed;     /* set on the io thread: why we cancelled it ourselves */
    struct err status;
};

/* ---- channels -------------------------------------------------------------------------------- */
static void channel_unref(struct rpc_channel *channel)
{
    if (atomic_fetch_sub_explicit(&channel->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&channel->lock);
    free(channel);
}

static grpc_arg int_arg(const char *key, int value)
{
    return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = value};
}

/* gRPC's word for the target: numeric addresses need no resolver. */
static void grpc_target(const char *host, uint16_t port, bool is_v6, char *ret_uri, size_t size)
{
    bool is_v4 = host[strspn(host, "0123456789.")] == '\0';
    if (is_v6)
        snprintf(ret_uri, size, "ipv6:%%5B%s%%5D:%u", host, port);
    else if (is_v4)
        snprintf(ret_uri, size, "ipv4:%s:%u", host, port);
    else
        snprintf(ret_uri, size, "dns:///%s:%u", host, port);
}

static grpc_channel *make_grpc_channel(const struct rpc_channel *channel)
{
    const struct rpc_channel_options *o = &channel->options;
    int backoff_min = o->backoff_min_ms ? (int)o->backoff_min_ms : DEFAULT_BACKOFF_MIN_MS;
    int backoff_max = o->backoff_max_ms ? (int)o->backoff_max_ms : DEFAULT_BACKOFF_MAX_MS;
    grpc_arg list[] = {
        int_arg(GRPC_ARG_ENABLE_HTTP_PROXY, 0),
        int_arg(GRPC_ARG_ENABLE_RETRIES, 0), /* would keep copies of what was sent */
        int_arg(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1),
        int_arg(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1), /* none: no bombs */
        int_arg(GRPC_ARG_HTTP2_BDP_PROBE, 0),
        int_arg(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, LIMIT_RPC_WINDOW_BYTES),
        int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, LIMIT_RPC_MESSAGE_BYTES),
        int_arg(GRPC_ARG_KEEPALIVE_TIME_MS,
                o->keepalive_ms ? (int)o->keepalive_ms : DEFAULT_KEEPALIVE_MS),
        int_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                o->keepalive_timeout_ms ? (int)o->keepalive_timeout_ms : DEFAULT_KEEPALIVE_MS),
        int_arg(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        int_arg(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
        int_arg(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, backoff_min),
        /* The connect's time limit, too. */
        int_arg(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, backoff_max),
        int_arg(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, backoff_max),
        int_arg(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, RESOLVE_AGAIN_MS),
        int_arg(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, o->own_connection),
    };
    grpc_channel_args args = {ARRAY_SIZE(list), list};
    grpc_channel_credentials *creds = grpc_insecure_credentials_create();
    grpc_channel *grpc = grpc_channel_create(channel->uri, creds, &args);
    grpc_channel_credentials_release(creds);
    ASSERT(grpc); /* a bad one comes back lame, never NULL */
    return grpc;
}

enum err_code rpc_channel_new(struct rpc_env *env, const char *target,
                              const struct rpc_channel_options *options,
                              struct rpc_channel **ret_channel, struct err *err)
{
    char host[LIMIT_ADDRESS_BYTES];
    uint16_t port;
    bool is_v6;
    enum err_code code = rpc_address_split(target, host, sizeof(host), &port, &is_v6, err);
    if (code != ERR_OK)
        return code;
    if (port == 0 || strlen(target) >= LIMIT_ADDRESS_BYTES)
        return err_set(err, ERR_INVALID, "target \"%.200s\", want a port from 1 to 65535", target);
    struct rpc_channel *channel = base_alloc(sizeof(*channel));
    channel->env = env;
    if (options)
        channel->options = *options;
    atomic_init(&channel->refs, 1);
    pthread_mutex_init(&channel->lock, NULL);
    snprintf(channel->target, sizeof(channel->target), "%s", target);
    grpc_target(host, port, is_v6, channel->uri, sizeof(channel->uri));
    channel->is_named = strncmp(channel->uri, "dns:", 4) == 0;
    channel->grpc = make_grpc_channel(channel);
    channel->made_ns = clock_now_ns();
    channel->prober = rpc_prober_new(target);
    *ret_channel = channel;
    return ERR_OK;
}

void rpc_channel_free(struct rpc_channel *channel)
{
    if (!channel)
        return;
    rpc_prober_free(TAKE(channel->prober));
    grpc_channel_destroy(TAKE(channel->grpc));
    channel_unref(channel);
}

void rpc_channel_log_why(struct rpc_channel *channel, const char *event, const char *who)
{
    rpc_prober_log(channel->prober, event, who);
}

/* gRPC waits longer and longer, up to two minutes, before it asks again for a name that it could
 * not resolve (no descriptor, no network), and nothing but a new channel makes it ask. Whoever calls
 * again wants to know sooner. */
static void ask_name_again(struct rpc_channel *channel)
{
    uint64_t now_ns = clock_now_ns();
    if (!channel->is_named || now_ns < channel->made_ns + RESOLVE_AGAIN_MS * NS_PER_MS ||
        grpc_channel_check_connectivity_state(channel->grpc, 0) != GRPC_CHANNEL_TRANSIENT_FAILURE)
        return;
    grpc_channel_destroy(channel->grpc);
    channel->grpc = make_grpc_channel(channel);
    channel->made_ns = now_ns;
}

static grpc_call *make_grpc_call(struct rpc_channel *channel, const char *path,
                                 gpr_timespec deadline)
{
    grpc_slice slice = grpc_slice_from_copied_string(path);
    pthread_mutex_lock(&channel->lock);
    ask_name_again(channel);
    grpc_call *call = grpc_channel_create_call(channel->grpc, NULL, GRPC_PROPAGATE_DEFAULTS,
                                               channel->env->cq, slice, NULL, deadline, NULL);
    pthread_mutex_unlock(&channel->lock);
    grpc_slice_unref(slice);
    return call;
}

/* ---- the side functions ---------------------------------------------------------------------- */
static void client_message(struct rpc_stream *stream, union rpc_message_fn fn,
                           const struct rpc_in *in, void *arg)
{
    fn.client((struct rpc_ccall *)stream, in, arg);
}

static void client_sent(struct rpc_stream *stream, union rpc_sent_fn fn, bool ok, void *arg)
{
    fn.client((struct rpc_ccall *)stream, ok, arg);
}

static void client_malformed(struct rpc_stream *stream, const struct err *err)
{
    struct rpc_ccall *call = (struct rpc_ccall *)stream;
    err_set(&call->malformed, ERR_CORRUPT, "%s %s/%s: %s", call->channel->target,
            call->method->service, call->method->name, err->text);
    rpc_stream_cancel(stream, GRPC_STATUS_INTERNAL, err->text);
}

static size_t client_last(struct rpc_stream *stream, grpc_op *ops)
{
    (void)stream;
    ops[0].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    return 1;
}

static void client_over(struct rpc_stream *stream)
{
    struct rpc_ccall *call = (struct rpc_ccall *)stream;
    struct rpc_in in = {.message = call->reply_msg.message, .view = call->reply_msg.view};
    call->on_done(call->arg, &call->status, call->status.code == ERR_OK && in.message ? &in : NULL);
    rpc_msg_done(&call->reply_msg);
}

static void client_destroy(struct rpc_stream *stream)
{
    struct rpc_ccall *call = (struct rpc_ccall *)stream;
    rpc_msg_done(&call->reply_msg);
    channel_unref(call->channel);
    rpc_stream_done(stream);
    free(call);
}

static const struct rpc_side client_side = {client_message, client_sent, client_malformed,
                                            client_last,    client_over, client_destroy};

/* ---- status ---------------------------------------------------------------------------------- */
static bool find_error_name(const grpc_metadata_array *trailing, char *ret_name, size_t size)
{
    for (size_t i = 0; i < trailing->count; i++) {
        const grpc_slice *value = &trailing->metadata[i].value;
        if (grpc_slice_str_cmp(trailing->metadata[i].key, RPC_ERROR_KEY) != 0)
            continue;
        size_t len = GRPC_SLICE_LENGTH(*value);
        if (len >= size)
            return false;
        memcpy(ret_name, GRPC_SLICE_START_PTR(*value), len);
        ret_name[len] = '\0';
        return true;
    }
    return false;
}

static void read_status(struct rpc_ccall *call)
{
    char name[32];
    int len = (int)MIN(GRPC_SLICE_LENGTH(call->details), (size_t)ERR_TEXT_SIZE);
    const char *text = (const char *)GRPC_SLICE_START_PTR(call->details);
    if (call->ret_is_unknown)
        *call->ret_is_unknown = call->code == GRPC_STATUS_UNIMPLEMENTED;
    if (call->malformed.code != ERR_OK)
        call->status = call->malformed;
    else if (call->code == GRPC_STATUS_OK)
        call->status.code = ERR_OK;
    else if (find_error_name(&call->trailing, name, sizeof(name)) && err_from_name(name) != ERR_OK)
        err_set(&call->status, err_from_name(name), "%.*s", len, text);
    else {
        /* A server that shuts down drops what just came in as CANCELLED, without a word of ours. To
         * the caller that is a peer that went away. */
        enum err_code code = err_from_grpc((int)call->code);
        if (code == ERR_CANCELLED && !atomic_load(&call->is_cancelled))
            code = ERR_UNAVAILABLE;
        err_set(&call->status, code, "%s %s/%s: %.*s (gRPC status %d)", call->channel->target,
                call->method->service, call->method->name, len, text, (int)call->code);
    }
}

static void on_status(struct rpc_op *op, bool ok)
{
    (void)ok; /* RECV_STATUS always succeeds */
    struct rpc_ccall *call = CONTAINER_OF(op, struct rpc_ccall, status_op);
    read_status(call);
    if (call->status.code == ERR_OK && call->has_reply) {
        struct err err;
        if (!call->reply)
            err_set(&call->status, ERR_CORRUPT, "%s %s/%s: ended well without a reply",
                    call->channel->target, call->method->service, call->method->name);
        else if (rpc_msg_unpack(call->method->out, call->stream.has_payload, TAKE(call->reply),
                                &call->reply_msg, &err) != ERR_OK)
            err_set(&call->status, ERR_CORRUPT, "%s %s/%s: %s", call->channel->target,
                    call->method->service, call->method->name, err.text);
    }
    if (call->reply)
        grpc_byte_buffer_destroy(TAKE(call->reply));
    if (call->request)
        grpc_byte_buffer_destroy(TAKE(call->request));
    grpc_slice_unref(call->details);
    grpc_metadata_array_destroy(&call->initial);
    grpc_metadata_array_destroy(&call->trailing);
    rpc_stream_closed(&call->stream);
    rpc_stream_unref(&call->stream);
}

/* ---- starting -------------------------------------------------------------------------------- */
static gpr_timespec deadline_in(uint32_t timeout_ms)
{
    if (timeout_ms == UINT32_MAX)
        return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                        gpr_time_from_millis(timeout_ms, GPR_TIMESPAN));
}

/* One batch for the first and the last thing of a call: nothing in between needs to know when the
 * metadata arrived. */
static enum err_code start(struct rpc_channel *channel, const struct rpc_method *method,
                           const struct rpc_out *request, const struct rpc_call_options *options,
                           rpc_done_fn *on_done, void *arg, struct rpc_ccall **ret_call,
                           struct err *err)
{
    ASSERT(options->timeout_ms > 0);
    bool is_single = method->kind == RPC_UNARY || method->kind == RPC_SERVER_STREAM;
    ASSERT(is_single == (request != NULL));
    grpc_byte_buffer *buffer = NULL;
    size_t bytes;
    if (request) {
        enum err_code code = rpc_msg_pack(request, &buffer, &bytes, err);
        if (code != ERR_OK)
            return code;
    }
    struct rpc_ccall *call = base_alloc(sizeof(*call));
    rpc_stream_init(&call->stream, &client_side, channel->env, options->where, method->out,
                    options->has_payload);
    call->channel = channel;
    atomic_fetch_add_explicit(&channel->refs, 1, memory_order_relaxed);
    call->method = method;
    call->has_reply = method->kind == RPC_UNARY || method->kind == RPC_CLIENT_STREAM;
    call->on_done = on_done;
    call->ret_is_unknown = options->ret_is_unknown;
    call->arg = arg;
    call->request = buffer;
    call->status_op.on_complete = on_status;

    char path[2 * LIMIT_NAME_BYTES];
    snprintf(path, sizeof(path), "/%s/%s", method->service, method->name);
    call->stream.grpc = make_grpc_call(channel, path, deadline_in(options->timeout_ms));

    grpc_op ops[6] = {0};
    size_t count = 0;
    ops[count].op = GRPC_OP_SEND_INITIAL_METADATA;
    ops[count++].flags = options->wait_for_ready
                             ? GRPC_INITIAL_METADATA_WAIT_FOR_READY |
                                   GRPC_INITIAL_METADATA_WAIT_FOR_READY_EXPLICITLY_SET
                             : 0;
    if (request) {
        ops[count].op = GRPC_OP_SEND_MESSAGE;
        ops[count++].data.send_message.send_message = buffer;
        ops[count++].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
        call->stream.wants_last = call->stream.is_last_started = true;
    }
    ops[count].op = GRPC_OP_RECV_INITIAL_METADATA;
    ops[count++].data.recv_initial_metadata.recv_initial_metadata = &call->initial;
    if (call->has_reply) {
        ops[count].op = GRPC_OP_RECV_MESSAGE;
        ops[count++].data.recv_message.recv_message = &call->reply;
    }
    ops[count].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
    ops[count].data.recv_status_on_client.trailing_metadata = &call->trailing;
    ops[count].data.recv_status_on_client.status = &call->code;
    ops[count++].data.recv_status_on_client.status_details = &call->details;

    rpc_stream_ref(&call->stream); /* the status's */
    if (ret_call)
        *ret_call = call; /* before the start: on_done may come at once */
    rpc_start_batch(call->stream.grpc, ops, count, &call->status_op);
    if (!ret_call)
        rpc_stream_unref(&call->stream);
    return ERR_OK;
}

enum err_code rpc_invoke(struct rpc_channel *channel, const struct rpc_method *method,
                         const struct rpc_out *request, const struct rpc_call_options *options,
                         rpc_done_fn *on_done, void *arg, struct err *err)
{
    ASSERT(method->kind == RPC_UNARY && options->timeout_ms != UINT32_MAX);
    return start(channel, method, request, options, on_done, arg, NULL, err);
}

enum err_code rpc_open(struct rpc_channel *channel, const struct rpc_method *method,
                       const struct rpc_out *request, const struct rpc_call_options *options,
                       rpc_done_fn *on_end, void *arg, struct rpc_ccall **ret_call, struct err *err)
{
    ASSERT(method->kind != RPC_UNARY);
    return start(channel, method, request, options, on_end, arg, ret_call, err);
}

/* ---- synchronous ----------------------------------------------------------------------------- */
struct sync_call {
    pthread_mutex_t lock; /* guards is_done */
    pthread_cond_t done;
    bool is_done;
    ProtobufCMessage *reply;
    struct err status;
};

/* io thread. The arena goes when this returns, so the reply is copied by packing it once more. */
static void on_sync_done(void *arg, const struct err *status, const struct rpc_in *reply)
{
    struct sync_call *sync = arg;
    sync->status = *status;
    if (reply) {
        size_t bytes = protobuf_c_message_get_packed_size(reply->message);
        AUTO_MEM uint8_t *buf = malloc(bytes + 1);
        if (buf) {
            protobuf_c_message_pack(reply->message, buf);
            sync->reply = protobuf_c_message_unpack(reply->message->descriptor, NULL, bytes, buf);
        }
        if (!sync->reply)
            err_set(&sync->status, ERR_NO_MEMORY, "no memory for a reply of %zu bytes", bytes);
    }
    pthread_mutex_lock(&sync->lock);
    sync->is_done = true;
    pthread_cond_signal(&sync->done);
    pthread_mutex_unlock(&sync->lock);
}

enum err_code rpc_invoke_sync(struct rpc_channel *channel, const struct rpc_method *method,
                              const struct rpc_out *request, uint32_t timeout_ms,
                              ProtobufCMessage **ret_reply, struct err *err)
{
    ASSERT(!rpc_env_is_io(channel->env));
    struct sync_call sync = {.lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};
    struct rpc_call_options options = {.timeout_ms = timeout_ms, .where = RPC_INLINE};
    enum err_code code = rpc_invoke(channel, method, request, &options, on_sync_done, &sync, err);
    if (code != ERR_OK)
        return code;
    pthread_mutex_lock(&sync.lock);
    while (!sync.is_done) /* the call's own deadline ends this */
        pthread_cond_wait(&sync.done, &sync.lock);
    pthread_mutex_unlock(&sync.lock);
    if (sync.status.code != ERR_OK)
        return err_set(err, sync.status.code, "%s", sync.status.text);
    *ret_reply = sync.reply;
    return ERR_OK;
}

/* ---- streams --------------------------------------------------------------------------------- */
enum err_code rpc_csend(struct rpc_ccall *call, const struct rpc_out *out,
                        void (*on_sent)(struct rpc_ccall *call, bool ok, void *arg), void *arg)
{
    return rpc_stream_send(&call->stream, out, (union rpc_sent_fn){.client = on_sent},
                           on_sent != NULL, arg);
}

void rpc_cclose_send(struct rpc_ccall *call)
{
    rpc_stream_send_last(&call->stream, false);
}

void rpc_crecv(struct rpc_ccall *call,
               void (*on_message)(struct rpc_ccall *call, const struct rpc_in *in, void *arg),
               void *arg)
{
    ASSERT(!call->has_reply);
    rpc_stream_receive(&call->stream, (union rpc_message_fn){.client = on_message}, arg, false);
}

void rpc_cancel(struct rpc_ccall *call)
{
    atomic_store(&call->is_cancelled, true);
    rpc_stream_cancel(&call->stream, GRPC_STATUS_CANCELLED, "cancelled by the caller");
}

void rpc_ccall_ref(struct rpc_ccall *call)
{
    rpc_stream_ref(&call->stream);
}

void rpc_ccall_unref(struct rpc_ccall *call)
{
    if (call)
        rpc_stream_unref(&call->stream);
}
