/* SPDX-License-Identifier: Apache-2.0 */
/* methods: one row for every method of our own services, so that both sides of a call share it.
 *
 * A client passes a row to rpc_invoke or rpc_open as it is. A server copies the rows it serves,
 * fills in where, on_call and arg, and gives the copy to rpc_server_add.
 *
 * Thread  any; constant.
 */
#ifndef PROTO_METHODS_H
#define PROTO_METHODS_H

#include "common/rpc/rpc.h"

/* steadfast.v1.ParameterServer */
extern const struct rpc_method ps_method_pull; /* TensorChunk's data is the payload */
extern const struct rpc_method ps_method_push; /* PushChunk's data is the payload */

/* steadfast.v1.Fleet */
extern const struct rpc_method fleet_method_attach;

/* steadfast.v1.Coordinator */
extern const struct rpc_method coord_method_submit_job;
extern const struct rpc_method coord_method_list_jobs;
extern const struct rpc_method coord_method_get_job;
extern const struct rpc_method coord_method_watch_job;
extern const struct rpc_method coord_method_cancel_job;
extern const struct rpc_method coord_method_checkpoint_job;
extern const struct rpc_method coord_method_plan_job;
extern const struct rpc_method coord_method_get_cluster;

/* grpc.health.v1.Health and grpc.reflection.v1alpha.ServerReflection, which every daemon serves */
extern const struct rpc_method health_check;
extern const struct rpc_method health_watch;    /* server stream */
extern const struct rpc_method reflection_info; /* bidi */

/* ("steadfast.v1.Fleet", "Attach"); NULL: unknown. */
const struct rpc_method *methods_find(const char *service, const char *name);

#endif
