/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_server_int: what the server's files share, from the bottom up: rpc_listen.c (accepting),
 * rpc_table.c (what a call needs of its server), rpc_call.c (one call), rpc_server.c (starting,
 * draining).
 */
#ifndef COMMON_RPC_RPC_SERVER_INT_H
#define COMMON_RPC_RPC_SERVER_INT_H

#include "common/rpc/rpc_int.h"

/* ---- rpc_listen.c: a thread that accepts and hands connections to gRPC, and comes back when there
 * was no descriptor to accept with. Owner's thread; struct rpc_listener is its own. */
struct rpc_listener;
struct rpc_listener *rpc_listener_new(grpc_server *grpc);
MUST_CHECK enum err_code rpc_listener_add(struct rpc_listener *listener, const char *address,
                                          uint16_t *ret_port, struct err *err);
/* After the server's start, for gRPC takes connections only then. */
void rpc_listener_start(struct rpc_listener *listener);
/* Closes everything that gRPC has not got; any thread but its own, once after start. */
void rpc_listener_stop(struct rpc_listener *listener);
void rpc_listener_free(struct rpc_listener *listener); /* stops */
/* Who is behind a descriptor that gRPC has got, "ipv4:127.0.0.1:4711". Any thread. */
void rpc_listener_peer(struct rpc_listener *listener, int fd, char *ret_name, size_t size);

/* ---- rpc_table.c ----
 * Outlives the server for the calls that are still ending. Rows are added before
 * rpc_table_register and never change after it, so any thread may read them. */
struct rpc_table {
    struct rpc_env *env;
    grpc_server *grpc; /* rpc_server.c makes and destroys it; calls use it while they are armed */
    struct rpc_listener *listener; /* borrowed of rpc_server.c, for as long as calls arrive */
    atomic_uint refs;              /* the server's and each call's */
    struct rpc_method *methods;
    void **tags; /* gRPC's name for each method, from rpc_table_register on */
    size_t method_count;
};

struct rpc_table *rpc_table_new(struct rpc_env *env, grpc_server *grpc,
                                struct rpc_listener *listener);
struct rpc_table *rpc_table_ref(struct rpc_table *table);
void rpc_table_unref(struct rpc_table *table);
void rpc_table_add(struct rpc_table *table, const struct rpc_method *methods, size_t count);
/* The index-th service name, each once; NULL past the last. */
const char *rpc_table_service(const struct rpc_table *table, size_t index);
/* Tells gRPC of the methods; before the server starts. */
void rpc_table_register(struct rpc_table *table);

/* ---- rpc_call.c ----
 * Waits for one call of the method; when it comes, the next is armed and this one served. */
void rpc_call_arm(struct rpc_table *table, size_t method_index);
/* The same for calls of methods that are not in the table: they get UNIMPLEMENTED. */
void rpc_unknown_arm(struct rpc_table *table);

#endif
