/* SPDX-License-Identifier: Apache-2.0 */
/* rpc: calls over gRPC C core, in the words of this project.
 *
 * One struct rpc_env a process: a completion queue with one io thread, which accepts, receives,
 * unpacks and cleans up, and a uv_async bridge to the loop thread. A handler or callback runs where
 * it was asked to: RPC_ON_LOOP (one hop; control) or RPC_INLINE (on the io thread; data plane; must
 * never block). Events of one call reach it one after another, in order, on that thread.
 *
 * Messages are protobuf-c structs. A message may carry one large `bytes` field with number 15: it
 * is sent as a borrowed slice (struct rpc_blob, neither packed nor copied) and received as a struct
 * rpc_view over the slices that gRPC read. The rest of a received message lives in a capped arena.
 *
 * Owns    rpc_call and rpc_ccall are counted; the holder of a reference may use it from any thread,
 *         and sends of several threads on one call are put in order inside.
 * Errors  every failure is an enum err_code with a text; a peer's code arrives by name in the
 *         trailing metadata "steadfast-error"; without that name the gRPC status is mapped
 *         (err_from_grpc) and the text names target and method. A CANCELLED that the caller did not
 *         ask for is ERR_UNAVAILABLE: a stopping peer dropped the call.
 * Limits  LIMIT_RPC_MESSAGE_BYTES a message, details cut at LIMIT_RPC_DETAILS_BYTES.
 */
#ifndef COMMON_RPC_RPC_H
#define COMMON_RPC_RPC_H

#include <protobuf-c/protobuf-c.h>
#include <sys/uio.h>
#include <uv.h>

#include "common/base/base.h"
#include "common/base/err.h"

struct rpc_env;
struct rpc_server;
struct rpc_call;    /* server side of one call */
struct rpc_channel; /* client side of one peer */
struct rpc_ccall;   /* client side of one call */
struct rpc_blob;    /* counted immutable bytes to send */
struct rpc_view;    /* received large payload */

/* First thing in main(), before any thread: the mallopt lines of a process that moves tensors,
 * SIGPIPE ignored. (The threads that rpc_env_new makes leave all signals to the others.) Fork
 * before rpc_env_new or not at all; posix_spawn is fine at any time. */
void rpc_process_init(void);

/* loop may be NULL (tools and tests that only use rpc_invoke_sync and INLINE callbacks). */
MUST_CHECK enum err_code rpc_env_new(uv_loop_t *loop, struct rpc_env **ret_env, struct err *err);
/* All servers and channels are freed and all calls ended before this; joins the io thread, drains
 * the bridge. The loop must still be runnable: the function runs it until the bridge is closed. */
void rpc_env_free(struct rpc_env *env);
/* Runs fn(arg) on the loop thread, soon. Any thread. */
void rpc_env_post(struct rpc_env *env, void (*fn)(void *arg), void *arg);

/* ---- payloads -------------------------------------------------------------------------------- */
/* free_any runs when the last slice is gone, on ANY thread; it must not block. */
struct rpc_blob *rpc_blob_wrap(const void *data, size_t bytes, void (*free_any)(void *arg),
                               void *arg);
struct rpc_blob *rpc_blob_ref(struct rpc_blob *blob);
void rpc_blob_unref(struct rpc_blob *blob); /* any thread */

size_t rpc_view_bytes(const struct rpc_view *view);
/* Copies [offset, offset + bytes) out; the range is inside the view. */
void rpc_view_copy(const struct rpc_view *view, size_t offset, void *dst, size_t bytes);

struct rpc_out {
    const ProtobufCMessage *message;
    struct rpc_blob *blob; /* field 15 is blob's [offset, offset + bytes); NULL: none */
    size_t offset;
    size_t bytes; /* when blob is set, message's own field 15 is left empty */
};
struct rpc_in {
    const ProtobufCMessage *message; /* lives until the callback returns */
    const struct rpc_view *view; /* field 15; NULL when absent; lives until the callback returns */
};
/* Keeps the payload beyond the callback. Free it from any thread. */
struct rpc_view *rpc_view_take(const struct rpc_in *in);
void rpc_view_free(struct rpc_view *view);

/* ---- server ---------------------------------------------------------------------------------- */
enum rpc_kind { RPC_UNARY, RPC_CLIENT_STREAM, RPC_SERVER_STREAM, RPC_BIDI };
enum rpc_where { RPC_ON_LOOP, RPC_INLINE };

struct rpc_method {
    const char *service; /* "steadfast.v1.Coordinator" */
    const char *name;    /* "SubmitJob" */
    enum rpc_kind kind;
    enum rpc_where where;
    const ProtobufCMessageDescriptor *in;
    const ProtobufCMessageDescriptor *out;
    bool has_payload; /* in's field 15 comes as a view */
    /* UNARY and SERVER_STREAM: request is there. Streams from the client: request is NULL. */
    void (*on_call)(struct rpc_call *call, const struct rpc_in *request, void *arg);
    void *arg;
};

struct rpc_server_options {
    uint32_t grace_ms;    /* how long a shutdown waits for calls in flight; 0: 2000 */
    uint32_t ping_min_ms; /* smallest keepalive interval allowed to clients; 0: 200 */
};
MUST_CHECK enum err_code rpc_server_new(struct rpc_env *env,
                                        const struct rpc_server_options *options,
                                        struct rpc_server **ret_server, struct err *err);
/* Before start. The rows are copied; the strings and descriptors in them are static storage. */
void rpc_server_add(struct rpc_server *server, const struct rpc_method *methods, size_t count);
/* One row of a const table (proto/methods.h) with the handler filled in. */
void rpc_server_add_method(struct rpc_server *server, const struct rpc_method *method,
                           void (*on_call)(struct rpc_call *call, const struct rpc_in *request,
                                           void *arg),
                           void *arg);
/* Names of the services added, in that order, each once; NULL past the last. */
const char *rpc_server_service(const struct rpc_server *server, size_t index);
/* address "host:port"; port 0 picks one. A port in use: ERR_EXISTS naming the address. */
MUST_CHECK enum err_code rpc_server_listen(struct rpc_server *server, const char *address,
                                           uint16_t *ret_port, struct err *err);
void rpc_server_start(struct rpc_server *server);
/* Refuses new calls, waits grace_ms, cancels the rest, then on_done on the loop (or io thread
 * without a loop). Free the server after that. */
void rpc_server_drain(struct rpc_server *server, void (*on_done)(void *arg), void *arg);
void rpc_server_free(struct rpc_server *server); /* drained, or never started */

void rpc_call_ref(struct rpc_call *call);
void rpc_call_unref(struct rpc_call *call);
/* The handler's call is borrowed; ref it to keep it past on_call. Each call is ended exactly once,
 * by reply, fail or finish (the first counts, a later one does nothing); a call whose last reference
 * goes without that fails with ERR_CANCELLED.
 * A callback that is still to come (on_sent, on_message) holds a reference of its own. What is said
 * to a call that is over already does nothing. */
void rpc_reply(struct rpc_call *call, const struct rpc_out *out); /* unary, client stream */
/* A message in flight still leaves; what waits is dropped (on_sent with ok = false). */
void rpc_fail(struct rpc_call *call, enum err_code code, const char *text);
/* Breaks the call off, also when its peer does not read: what is in flight is dropped and its blobs are let go. The peer
 * sees a cancelled stream; rpc_on_end's callback follows. Any thread. */
void rpc_abort(struct rpc_call *call, enum err_code code, const char *text);
void rpc_finish(struct rpc_call *call); /* server stream, bidi: OK */
/* Queues a message on a stream; messages leave in order. on_sent(call, ok, arg) when gRPC took it
 * (not when the peer has it); may be NULL. ERR_FULL: LIMIT_RPC_QUEUED_BYTES wait already, nothing
 * was queued. ERR_CANCELLED: the call is over. ERR_INVALID: over LIMIT_RPC_MESSAGE_BYTES. Any
 * thread. */
MUST_CHECK enum err_code rpc_send(struct rpc_call *call, const struct rpc_out *out,
                                  void (*on_sent)(struct rpc_call *call, bool ok, void *arg),
                                  void *arg);
/* Asks for the next message of the client; on_message(call, NULL, arg) is its half-close or the end
 * of the call (NULL alone does not say that the client finished cleanly: let messages carry their
 * total). A message of the wrong type ends the call with ERR_INVALID and comes as NULL. One
 * outstanding at a time: not asking is back-pressure. A fast handler asks for the next first thing
 * in on_message. */
void rpc_recv(struct rpc_call *call,
              void (*on_message)(struct rpc_call *call, const struct rpc_in *in, void *arg),
              void *arg);
/* Called once, after every on_sent and on_message that was due, when the call is over for any
 * reason (peer gone, cancelled, finished). Set it in on_call. */
void rpc_on_end(struct rpc_call *call,
                void (*on_end)(struct rpc_call *call, bool was_cancelled, void *arg), void *arg);
const char *rpc_peer(const struct rpc_call *call); /* "ipv4:127.0.0.1:4711" */

/* ---- client ---------------------------------------------------------------------------------- */
struct rpc_channel_options {
    uint32_t keepalive_ms;         /* 0: 2000 */
    uint32_t keepalive_timeout_ms; /* 0: 2000 */
    uint32_t backoff_min_ms;       /* 0: 50 */
    uint32_t backoff_max_ms;       /* 0: 500 */
    bool own_connection;           /* do not share a TCP connection with an equal channel */
};
/* Does not connect yet. target "host:port". */
MUST_CHECK enum err_code rpc_channel_new(struct rpc_env *env, const char *target,
                                         const struct rpc_channel_options *options,
                                         struct rpc_channel **ret_channel, struct err *err);
void rpc_channel_free(struct rpc_channel *channel); /* calls on it may still be ending */
DEFINE_AUTO(rpc_channel)
/* For a caller that has waited for an answer in vain: finds out in the background why the target
 * does not answer, and logs one line; see rpc_prober_log (rpc_probe.h). Costs nothing when called
 * often. Any thread. */
void rpc_channel_log_why(struct rpc_channel *channel, const char *event, const char *who);

struct rpc_call_options {
    uint32_t timeout_ms; /* every call has a deadline; UINT32_MAX: a stream without one */
    bool wait_for_ready; /* wait for the connection up to the deadline */
    enum rpc_where where;
    bool has_payload; /* the reply's field 15 comes as a view */
    /* Set before on_done: the answer is that of a gRPC server without this method. May be NULL. */
    bool *ret_is_unknown;
};
/* reply is NULL when status->code is not ERR_OK. Called exactly once. */
typedef void rpc_done_fn(void *arg, const struct err *status, const struct rpc_in *reply);

/* method is the server's row for the call (on_call is not used): both sides share one table. */
MUST_CHECK enum err_code rpc_invoke(struct rpc_channel *channel, const struct rpc_method *method,
                                    const struct rpc_out *request,
                                    const struct rpc_call_options *options, rpc_done_fn *on_done,
                                    void *arg, struct err *err);
/* Blocks the calling thread (never the loop or io thread). ret_reply is unpacked with the system
 * allocator; free it with protobuf_c_message_free_unpacked(reply, NULL). */
MUST_CHECK enum err_code rpc_invoke_sync(struct rpc_channel *channel,
                                         const struct rpc_method *method,
                                         const struct rpc_out *request, uint32_t timeout_ms,
                                         ProtobufCMessage **ret_reply, struct err *err);
/* Opens a stream. on_end is called exactly once, last, with the final status (and, for a client
 * stream, the reply); it may come on the io thread before this returns, but after *ret_call was
 * set. A clean end waits behind messages that were not asked for: receive until NULL, or cancel.
 * The returned call holds a reference for the caller: rpc_ccall_unref when done. */
MUST_CHECK enum err_code
rpc_open(struct rpc_channel *channel, const struct rpc_method *method,
         const struct rpc_out *request /* server stream: the request; else NULL */,
         const struct rpc_call_options *options, rpc_done_fn *on_end, void *arg,
         struct rpc_ccall **ret_call, struct err *err);
MUST_CHECK enum err_code rpc_csend(struct rpc_ccall *call, const struct rpc_out *out,
                                   void (*on_sent)(struct rpc_ccall *call, bool ok, void *arg),
                                   void *arg);
void rpc_cclose_send(struct rpc_ccall *call); /* half-close, after what was queued */
/* As rpc_recv; NULL is the end, and on_end says which. After on_end it does nothing. */
void rpc_crecv(struct rpc_ccall *call,
               void (*on_message)(struct rpc_ccall *call, const struct rpc_in *in, void *arg),
               void *arg);
void rpc_cancel(struct rpc_ccall *call); /* any thread; on_end still comes */
void rpc_ccall_ref(struct rpc_ccall *call);
void rpc_ccall_unref(struct rpc_ccall *call);

#endif
