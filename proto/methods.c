/* SPDX-License-Identifier: Apache-2.0 */
/* methods: the rows of our services. protobuf-c drops the `stream` keyword, so the kinds are said here. */
#include "proto/methods.h"

#include "proto/coord.pb-c.h"
#include "proto/fleet.pb-c.h"
#include "proto/ps.pb-c.h"

#define ROW(service_, name_, kind_, in_, out_, payload_)                                           \
    {.service = "steadfast.v1." service_,                                                          \
     .name = name_,                                                                                \
     .kind = kind_,                                                                                \
     .where = RPC_ON_LOOP,                                                                         \
     .in = &steadfast__v1__##in_##__descriptor,                                                    \
     .out = &steadfast__v1__##out_##__descriptor,                                                  \
     .has_payload = payload_}

#define PS "ParameterServer"
#define COORD "Coordinator"

const struct rpc_method ps_method_pull =
    ROW(PS, "Pull", RPC_SERVER_STREAM, pull_request, tensor_chunk, false);
const struct rpc_method ps_method_push =
    ROW(PS, "Push", RPC_CLIENT_STREAM, push_chunk, push_reply, true);

const struct rpc_method fleet_method_attach =
    ROW("Fleet", "Attach", RPC_BIDI, member_message, coord_message, false);

const struct rpc_method coord_method_submit_job =
    ROW(COORD, "SubmitJob", RPC_UNARY, submit_request, submit_reply, false);
const struct rpc_method coord_method_list_jobs =
    ROW(COORD, "ListJobs", RPC_UNARY, list_request, job_list, false);
const struct rpc_method coord_method_get_job =
    ROW(COORD, "GetJob", RPC_UNARY, job_ref, job_status, false);
const struct rpc_method coord_method_watch_job =
    ROW(COORD, "WatchJob", RPC_SERVER_STREAM, watch_request, job_status, false);
const struct rpc_method coord_method_cancel_job =
    ROW(COORD, "CancelJob", RPC_UNARY, job_ref, job_status, false);
const struct rpc_method coord_method_checkpoint_job =
    ROW(COORD, "CheckpointJob", RPC_UNARY, job_ref, checkpoint_reply, false);
const struct rpc_method coord_method_plan_job =
    ROW(COORD, "PlanJob", RPC_UNARY, submit_request, plan_reply, false);
const struct rpc_method coord_method_get_cluster =
    ROW(COORD, "GetCluster", RPC_UNARY, cluster_request, cluster_status, false);
