/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_int: what the rpc_*.c files share; nobody else includes it.
 *
 * struct rpc_op     a gRPC tag: the io thread calls on_complete when its batch is done.
 * struct rpc_ev     something to run on the thread that a call asked for (loop or io).
 * struct rpc_watch  something that the io thread looks after by the clock.
 * struct rpc_stream the half of a call that both sides have in common: the send queue, the one
 *                   outstanding receive, and the moment when all of it is over.
 *
 * From the bottom up, each file using only those before it; the fields of a struct are changed by
 * its file alone, but for what the comments at the fields say:
 *
 *   rpc_msg.c     bytes and messages; knows neither calls nor threads
 *   rpc_env.c     struct rpc_env: the io thread, the bridge to the loop, watches
 *   rpc_stream.c  struct rpc_stream; what differs between the two sides comes as struct rpc_side
 *   rpc_probe.c   rpc_probe.h; only the address's parts are of this room
 *   rpc_client.c  struct rpc_channel, rpc_ccall
 *   rpc_table.c   struct rpc_table (rpc_server_int.h): a server's methods, counted for its calls
 *   rpc_call.c    struct rpc_call
 *   rpc_server.c  struct rpc_server: listening and draining
 *
 * Life of a stream, all moves on the io thread unless said otherwise:
 *
 *   open --(last event of gRPC: RECV_CLOSE or RECV_STATUS)--> closed
 *   closed --(no batch outstanding any more)--> over: grpc call released, queue dropped, ok false
 *   over --(end event on the call's own thread)--> a waiting receive gets NULL, then on_over
 *
 * Because one thread makes these moves and the bridge to the loop keeps the order, the end is the
 * last thing that a call hears.
 */
#ifndef COMMON_RPC_RPC_INT_H
#define COMMON_RPC_RPC_INT_H

#include <grpc/grpc.h>
#include <pthread.h>
#include <stdatomic.h>

#include "common/base/tsan.h"
#include "common/rpc/rpc.h"
#include "common/rpc/rpc_msg.h"

#define RPC_ERROR_KEY "steadfast-error"

struct rpc_op {
    void (*on_complete)(struct rpc_op *op, bool ok);
};

struct rpc_ev {
    struct rpc_op op; /* when it goes to the io thread */
    struct rpc_ev *next;
    void (*run)(struct rpc_ev *ev);
};

/* Embedded in what is looked after. check says when it wants to be asked next, which is the io
 * thread's own time limit; it may remove its own watch. */
struct rpc_watch {
    struct rpc_watch *next;
    gpr_timespec (*check)(struct rpc_watch *watch, gpr_timespec now);
};

struct rpc_env {
    uv_loop_t *loop; /* NULL: none */
    uv_async_t async;
    bool is_async_closed;
    _Atomic(struct rpc_ev *) events; /* newest first; the loop turns it round */
    grpc_completion_queue *cq;
    grpc_channel *wake_channel; /* lame; only carries wake_call */
    grpc_call *wake_call;       /* an empty batch on it puts a tag into the queue at once */
    pthread_t io_thread;
    struct rpc_watch *watches; /* io thread */
};

/* Starts a batch whose end comes back as op->on_complete on the io thread. */
void rpc_start_batch(grpc_call *call, const grpc_op *ops, size_t count, struct rpc_op *op);
/* Runs ev->run on the thread `where`: always later, from any thread. */
void rpc_ev_post(struct rpc_env *env, enum rpc_where where, struct rpc_ev *ev);
/* Same from the io thread, where an INLINE event runs at once. */
void rpc_ev_deliver(struct rpc_env *env, enum rpc_where where, struct rpc_ev *ev);
bool rpc_env_is_io(const struct rpc_env *env);

/* io thread */
void rpc_env_watch(struct rpc_env *env, struct rpc_watch *watch);
void rpc_env_unwatch(struct rpc_env *env, struct rpc_watch *watch);

/* "host:port" or "[v6]:port" into its parts (brackets removed). */
MUST_CHECK enum err_code rpc_address_split(const char *address, char *ret_host, size_t host_size,
                                           uint16_t *ret_port, bool *ret_is_v6, struct err *err);

union rpc_message_fn {
    void (*server)(struct rpc_call *call, const struct rpc_in *in, void *arg);
    void (*client)(struct rpc_ccall *call, const struct rpc_in *in, void *arg);
};
union rpc_sent_fn {
    void (*server)(struct rpc_call *call, bool ok, void *arg);
    void (*client)(struct rpc_ccall *call, bool ok, void *arg);
};

struct rpc_stream;
struct rpc_side { /* what differs between the two sides */
    void (*on_message)(struct rpc_stream *stream, union rpc_message_fn fn, const struct rpc_in *in,
                       void *arg);
    void (*on_sent)(struct rpc_stream *stream, union rpc_sent_fn fn, bool ok, void *arg);
    /* io thread: a message that is no protobuf of the right type. */
    void (*on_malformed)(struct rpc_stream *stream, const struct err *err);
    /* Fills in the batch that ends the sending side; at most 3 ops. */
    size_t (*fill_last)(struct rpc_stream *stream, grpc_op *ops);
    void (*on_over)(struct rpc_stream *stream); /* on the call's thread */
    void (*destroy)(struct rpc_stream *stream);
};

struct rpc_item;
struct rpc_stream { /* grpc, wants_metadata, wants_last, is_last_started: also set by the two sides
                       before the first batch starts */
    const struct rpc_side *side;
    struct rpc_env *env;
    enum rpc_where where;
    atomic_uint refs;
    const ProtobufCMessageDescriptor *in; /* of received messages */
    bool has_payload;                     /* of received messages */
    bool wants_metadata; /* initial metadata still to be sent; touched by the sender in turn only */

    pthread_mutex_t lock; /* guards all below; a leaf: no gRPC call and no callback under it */
    grpc_call *grpc;      /* NULL once over */
    struct rpc_item *queue;
    struct rpc_item **queue_tail;
    size_t queued_bytes;
    bool is_sending;  /* a send batch is outstanding */
    bool is_broken;   /* a send failed: the last event of gRPC is on its way */
    bool wants_last;  /* end the sending side when the queue is empty */
    bool drops_queue; /* ... without sending what waits */
    bool is_last_started;
    bool is_receiving; /* a receive batch is outstanding */
    bool has_receiver; /* on_message waits to be called */
    bool is_closed;    /* the last event of gRPC has come */
    bool is_over;
    bool is_end_delivered;
    union rpc_message_fn on_message;
    void *message_arg;
    struct rpc_msg received; /* between the io thread and the call's own */

    grpc_byte_buffer *receive_buffer; /* owned by the outstanding receive */
    struct rpc_op receive_op;
    struct rpc_ev message_ev;
    struct rpc_op last_op;
    struct rpc_ev end_ev;
};

void rpc_stream_init(struct rpc_stream *stream, const struct rpc_side *side, struct rpc_env *env,
                     enum rpc_where where, const ProtobufCMessageDescriptor *in, bool has_payload);
void rpc_stream_done(struct rpc_stream *stream); /* from side->destroy */
void rpc_stream_ref(struct rpc_stream *stream);
void rpc_stream_unref(struct rpc_stream *stream);
MUST_CHECK enum err_code rpc_stream_send(struct rpc_stream *stream, const struct rpc_out *out,
                                         union rpc_sent_fn on_sent, bool has_on_sent, void *arg);
/* Ends the sending side after the queue, or instead of it. */
void rpc_stream_send_last(struct rpc_stream *stream, bool drops_queue);
void rpc_stream_receive(struct rpc_stream *stream, union rpc_message_fn on_message, void *arg,
                        bool is_served_after_end);
/* io thread: the last event of gRPC came. */
void rpc_stream_closed(struct rpc_stream *stream);
/* Any thread; does nothing when the call is over. */
void rpc_stream_cancel(struct rpc_stream *stream, grpc_status_code status, const char *text);

#endif
