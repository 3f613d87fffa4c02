/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_server_int: what rpc_server.c (listening, draining) and rpc_call.c (one call) share. */
#ifndef COMMON_RPC_RPC_SERVER_INT_H
#define COMMON_RPC_RPC_SERVER_INT_H

#include "common/rpc/rpc_int.h"

struct rpc_server {
    struct rpc_env *env;
    grpc_server *grpc;
    atomic_uint refs; /* the owner's and each call's, for the method rows */
    struct rpc_method *methods;
    void **tags; /* gRPC's name for each method, from start on */
    size_t method_count;
    struct rpc_server_options options;
    bool is_started;
    bool has_drain; /* drain was asked for; owner's thread */
    atomic_bool is_drained;

    /* io thread, while draining */
    struct rpc_server *next_draining;
    gpr_timespec grace_end;
    bool is_grace_over;

    struct rpc_ev drain_ev;
    struct rpc_op shutdown_op;
    struct rpc_ev drained_ev;
    void (*on_done)(void *arg);
    void *arg;
};

void rpc_server_unref(struct rpc_server *server);
/* Waits for one call of the method; when it comes, the next is armed and this one served. */
void rpc_call_arm(struct rpc_server *server, size_t method_index);
/* The same for calls of methods that are not in the table: they get UNIMPLEMENTED. */
void rpc_unknown_arm(struct rpc_server *server);

#endif
