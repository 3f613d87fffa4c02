/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_msg: protobuf-c messages into gRPC byte buffers and back, with field 15 left where it is.
 *
 * Sending: the message without its payload is packed into one slice; tag, length and the blob's own
 * bytes (a counted slice, not copied) follow, so the wire is ordinary protobuf. Receiving: the
 * top-level fields are walked over the slices that gRPC read, field 15 becomes a view of them, and
 * only the rest is unpacked.
 *
 * Owns    a struct rpc_msg owns its arena and one reference to its view.
 * Limits  what is unpacked lives in an arena of at most LIMIT_RPC_ARENA_BYTES; past that a message
 *         counts as malformed. Group fields are refused, so hostile nesting costs no stack.
 */
#ifndef COMMON_RPC_RPC_MSG_H
#define COMMON_RPC_RPC_MSG_H

#include <grpc/byte_buffer.h>

#include "common/rpc/rpc.h"

#define RPC_PAYLOAD_FIELD 15

struct rpc_block;
struct rpc_msg {
    ProtobufCMessage *message; /* NULL: nothing here */
    struct rpc_view *view;
    struct rpc_block *blocks;
};

/* ERR_INVALID: larger than LIMIT_RPC_MESSAGE_BYTES. */
MUST_CHECK enum err_code rpc_msg_pack(const struct rpc_out *out, grpc_byte_buffer **ret_buffer,
                                      size_t *ret_bytes, struct err *err);
/* Takes the buffer over in every case. ERR_INVALID: malformed, or beyond the arena. */
MUST_CHECK enum err_code rpc_msg_unpack(const ProtobufCMessageDescriptor *desc, bool has_payload,
                                        grpc_byte_buffer *take_buffer, struct rpc_msg *ret_msg,
                                        struct err *err);
void rpc_msg_done(struct rpc_msg *msg);

#endif
