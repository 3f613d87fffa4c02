/* SPDX-License-Identifier: Apache-2.0 */
/* methods: the tables. */
#include "proto/methods.h"

#include <string.h>

#include "proto/coord.pb-c.h"
#include "proto/fleet.pb-c.h"
#include "proto/health.pb-c.h"
#include "proto/ps.pb-c.h"
#include "proto/reflection.pb-c.h"

#define COORDINATOR(name_, kind_, in_, out_)                                                       \
    {                                                                                              \
        .service = "steadfast.v1.Coordinator", .name = name_, .kind = kind_, .where = RPC_ON_LOOP, \
        .in = &steadfast__v1__##in_##__descriptor, .out = &steadfast__v1__##out_##__descriptor     \
    }

const struct rpc_method coordinator_methods[COORDINATOR_METHOD_COUNT] = {
    [COORDINATOR_SUBMIT_JOB] = COORDINATOR("SubmitJob", RPC_UNARY, submit_request, submit_reply),
    [COORDINATOR_LIST_JOBS] = COORDINATOR("ListJobs", RPC_UNARY, list_request, job_list),
    [COORDINATOR_GET_JOB] = COORDINATOR("GetJob", RPC_UNARY, job_ref, job_status),
    [COORDINATOR_WATCH_JOB] = COORDINATOR("WatchJob", RPC_SERVER_STREAM, watch_request, job_status),
    [COORDINATOR_CANCEL_JOB] = COORDINATOR("CancelJob", RPC_UNARY, job_ref, job_status),
    [COORDINATOR_CHECKPOINT_JOB] =
        COORDINATOR("CheckpointJob", RPC_UNARY, job_ref, checkpoint_reply),
    [COORDINATOR_PLAN_JOB] = COORDINATOR("PlanJob", RPC_UNARY, submit_request, plan_reply),
    [COORDINATOR_GET_CLUSTER] =
        COORDINATOR("GetCluster", RPC_UNARY, cluster_request, cluster_status),
};

const struct rpc_method fleet_attach = {
    .service = "steadfast.v1.Fleet",
    .name = "Attach",
    .kind = RPC_BIDI,
    .where = RPC_ON_LOOP,
    .in = &steadfast__v1__member_message__descriptor,
    .out = &steadfast__v1__coord_message__descriptor,
};

const struct rpc_method ps_pull = {
    .service = "steadfast.v1.ParameterServer",
    .name = "Pull",
    .kind = RPC_SERVER_STREAM,
    .where = RPC_INLINE,
    .in = &steadfast__v1__pull_request__descriptor,
    .out = &steadfast__v1__tensor_chunk__descriptor,
};

const struct rpc_method ps_push = {
    .service = "steadfast.v1.ParameterServer",
    .name = "Push",
    .kind = RPC_CLIENT_STREAM,
    .where = RPC_INLINE,
    .in = &steadfast__v1__push_chunk__descriptor,
    .out = &steadfast__v1__push_reply__descriptor,
    .has_payload = true,
};

const struct rpc_method health_check = {
    .service = "grpc.health.v1.Health",
    .name = "Check",
    .kind = RPC_UNARY,
    .where = RPC_ON_LOOP, /* a daemon whose loop is stuck does not answer */
    .in = &grpc__health__v1__health_check_request__descriptor,
    .out = &grpc__health__v1__health_check_response__descriptor,
};

const struct rpc_method health_watch = {
    .service = "grpc.health.v1.Health",
    .name = "Watch",
    .kind = RPC_SERVER_STREAM,
    .where = RPC_ON_LOOP,
    .in = &grpc__health__v1__health_check_request__descriptor,
    .out = &grpc__health__v1__health_check_response__descriptor,
};

const struct rpc_method reflection_info = {
    .service = "grpc.reflection.v1alpha.ServerReflection",
    .name = "ServerReflectionInfo",
    .kind = RPC_BIDI,
    .where = RPC_INLINE, /* reads constants only */
    .in = &grpc__reflection__v1alpha__server_reflection_request__descriptor,
    .out = &grpc__reflection__v1alpha__server_reflection_response__descriptor,
};

const struct rpc_method *methods_find(const char *service, const char *name)
{
    const struct rpc_method *others[] = {&fleet_attach, &ps_pull,      &ps_push,
                                         &health_check, &health_watch, &reflection_info};
    for (size_t i = 0; i < COORDINATOR_METHOD_COUNT + ARRAY_SIZE(others); i++) {
        const struct rpc_method *method = i < COORDINATOR_METHOD_COUNT
                                              ? &coordinator_methods[i]
                                              : others[i - COORDINATOR_METHOD_COUNT];
        if (strcmp(method->service, service) == 0 && strcmp(method->name, name) == 0)
            return method;
    }
    return NULL;
}
