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

/* The table: variable, service, method, kind, thread, request, reply (C names of the messages
 * without "__descriptor"). protobuf-c drops the `stream` keyword, so the kinds are said here. The
 * bytes of TensorChunk and PushChunk are payloads. Health is on the loop, so that a daemon whose
 * loop is stuck does not call itself healthy; reflection reads constants only. */
#define METHODS(X)                                                                                 \
    X(ps_method_pull, "steadfast.v1.ParameterServer", "Pull", RPC_SERVER_STREAM, RPC_INLINE,       \
      steadfast__v1__pull_request, steadfast__v1__tensor_chunk)                                    \
    X(ps_method_push, "steadfast.v1.ParameterServer", "Push", RPC_CLIENT_STREAM, RPC_INLINE,       \
      steadfast__v1__push_chunk, steadfast__v1__push_reply)                                        \
    X(fleet_method_attach, "steadfast.v1.Fleet", "Attach", RPC_BIDI, RPC_ON_LOOP,                  \
      steadfast__v1__member_message, steadfast__v1__coord_message)                                 \
    X(coord_method_submit_job, "steadfast.v1.Coordinator", "SubmitJob", RPC_UNARY, RPC_ON_LOOP,    \
      steadfast__v1__submit_request, steadfast__v1__submit_reply)                                  \
    X(coord_method_list_jobs, "steadfast.v1.Coordinator", "ListJobs", RPC_UNARY, RPC_ON_LOOP,      \
      steadfast__v1__list_request, steadfast__v1__job_list)                                        \
    X(coord_method_get_job, "steadfast.v1.Coordinator", "GetJob", RPC_UNARY, RPC_ON_LOOP,          \
      steadfast__v1__job_ref, steadfast__v1__job_status)                                           \
    X(coord_method_watch_job, "steadfast.v1.Coordinator", "WatchJob", RPC_SERVER_STREAM,           \
      RPC_ON_LOOP, steadfast__v1__watch_request, steadfast__v1__job_status)                        \
    X(coord_method_cancel_job, "steadfast.v1.Coordinator", "CancelJob", RPC_UNARY, RPC_ON_LOOP,    \
      steadfast__v1__job_ref, steadfast__v1__job_status)                                           \
    X(coord_method_checkpoint_job, "steadfast.v1.Coordinator", "CheckpointJob", RPC_UNARY,         \
      RPC_ON_LOOP, steadfast__v1__job_ref, steadfast__v1__checkpoint_reply)                        \
    X(coord_method_plan_job, "steadfast.v1.Coordinator", "PlanJob", RPC_UNARY, RPC_ON_LOOP,        \
      steadfast__v1__submit_request, steadfast__v1__plan_reply)                                    \
    X(coord_method_get_cluster, "steadfast.v1.Coordinator", "GetCluster", RPC_UNARY, RPC_ON_LOOP,  \
      steadfast__v1__cluster_request, steadfast__v1__cluster_status)                               \
    X(health_check, "grpc.health.v1.Health", "Check", RPC_UNARY, RPC_ON_LOOP,                      \
      grpc__health__v1__health_check_request, grpc__health__v1__health_check_response)             \
    X(health_watch, "grpc.health.v1.Health", "Watch", RPC_SERVER_STREAM, RPC_ON_LOOP,              \
      grpc__health__v1__health_check_request, grpc__health__v1__health_check_response)             \
    X(reflection_info, "grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo",         \
      RPC_BIDI, RPC_INLINE, grpc__reflection__v1alpha__server_reflection_request,                  \
      grpc__reflection__v1alpha__server_reflection_response)

#define METHODS_DECLARE(variable_, service_, name_, kind_, where_, in_, out_)                      \
    extern const struct rpc_method variable_;
METHODS(METHODS_DECLARE)
#undef METHODS_DECLARE

/* Row by row; NULL past the last. */
const struct rpc_method *methods_at(size_t index);
/* ("steadfast.v1.Fleet", "Attach"); NULL: unknown. */
const struct rpc_method *methods_find(const char *service, const char *name);

#endif
