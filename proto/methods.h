/* SPDX-License-Identifier: Apache-2.0 */
/* methods: the rows of our own services, shared by servers and clients. on_call is not set; a
 * server gives a row its handler with rpc_server_add_method().
 *
 * Where they run: control on the loop; Pull and Push on the io thread, because their handlers only
 * post to a shard. A client of Pull sets has_payload in its call options, since the payload is in
 * the reply.
 */
#ifndef PROTO_METHODS_H
#define PROTO_METHODS_H

#include "common/rpc.h"

enum coordinator_method {
    COORDINATOR_SUBMIT_JOB,
    COORDINATOR_LIST_JOBS,
    COORDINATOR_GET_JOB,
    COORDINATOR_WATCH_JOB, /* server stream */
    COORDINATOR_CANCEL_JOB,
    COORDINATOR_CHECKPOINT_JOB,
    COORDINATOR_PLAN_JOB,
    COORDINATOR_GET_CLUSTER,
    COORDINATOR_METHOD_COUNT
};
extern const struct rpc_method coordinator_methods[COORDINATOR_METHOD_COUNT];

extern const struct rpc_method fleet_attach; /* bidi */

extern const struct rpc_method ps_pull; /* server stream of TensorChunk */
extern const struct rpc_method ps_push; /* client stream of PushChunk */

/* ("steadfast.v1.Fleet", "Attach"); NULL: unknown. Health and reflection are known too. */
const struct rpc_method *methods_find(const char *service, const char *name);

extern const struct rpc_method health_check;
extern const struct rpc_method health_watch;    /* server stream */
extern const struct rpc_method reflection_info; /* bidi */

#endif
