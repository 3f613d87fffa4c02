/* SPDX-License-Identifier: Apache-2.0 */
/* methods: the rows of our services. protobuf-c drops the `stream` keyword, so the kinds are said
 * here. */
#include "proto/methods.h"

#include <string.h>

#include "proto/coord.pb-c.h"
#include "proto/fleet.pb-c.h"
#include "proto/health.pb-c.h"
#include "proto/ps.pb-c.h"
#include "proto/reflection.pb-c.h"

#define ROW(service_, name_, kind_, where_, in_, out_)                                             \
    {                                                                                              \
        .service = "steadfast.v1." service_, .name = name_, .kind = kind_, .where = where_,        \
        .in = &steadfast__v1__##in_##__descriptor, .out = &steadfast__v1__##out_##__descriptor,    \
        .has_payload = kind_ == RPC_CLIENT_STREAM                                                  \
    }

#define PS    "ParameterServer"
#define COORD "Coordinator"

const struct rpc_method ps_method_pull =
    ROW(PS, "Pull", RPC_SERVER_STREAM, RPC_INLINE, pull_request, tensor_chunk);
const struct rpc_method ps_method_push =
    ROW(PS, "Push", RPC_CLIENT_STREAM, RPC_INLINE, push_chunk, push_reply);

const struct rpc_method fleet_method_attach =
    ROW("Fleet", "Attach", RPC_BIDI, RPC_ON_LOOP, member_message, coord_message);

const struct rpc_method coord_method_submit_job =
    ROW(COORD, "SubmitJob", RPC_UNARY, RPC_ON_LOOP, submit_request, submit_reply);
const struct rpc_method coord_method_list_jobs =
    ROW(COORD, "ListJobs", RPC_UNARY, RPC_ON_LOOP, list_request, job_list);
const struct rpc_method coord_method_get_job =
    ROW(COORD, "GetJob", RPC_UNARY, RPC_ON_LOOP, job_ref, job_status);
const struct rpc_method coord_method_watch_job =
    ROW(COORD, "WatchJob", RPC_SERVER_STREAM, RPC_ON_LOOP, watch_request, job_status);
const struct rpc_method coord_method_cancel_job =
    ROW(COORD, "CancelJob", RPC_UNARY, RPC_ON_LOOP, job_ref, job_status);
const struct rpc_method coord_method_checkpoint_job =
    ROW(COORD, "CheckpointJob", RPC_UNARY, RPC_ON_LOOP, job_ref, checkpoint_reply);
const struct rpc_method coord_method_plan_job =
    ROW(COORD, "PlanJob", RPC_UNARY, RPC_ON_LOOP, submit_request, plan_reply);
const struct rpc_method coord_method_get_cluster =
    ROW(COORD, "GetCluster", RPC_UNARY, RPC_ON_LOOP, cluster_request, cluster_status);

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
    static const struct rpc_method *const all[] = {&ps_method_pull,
                                                   &ps_method_push,
                                                   &fleet_method_attach,
                                                   &coord_method_submit_job,
                                                   &coord_method_list_jobs,
                                                   &coord_method_get_job,
                                                   &coord_method_watch_job,
                                                   &coord_method_cancel_job,
                                                   &coord_method_checkpoint_job,
                                                   &coord_method_plan_job,
                                                   &coord_method_get_cluster,
                                                   &health_check,
                                                   &health_watch,
                                                   &reflection_info};
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        if (strcmp(all[i]->service, service) == 0 && strcmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
}
