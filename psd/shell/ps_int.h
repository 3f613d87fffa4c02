/* SPDX-License-Identifier: Apache-2.0 */
/* ps_int: a parameter server as ps.c makes it and member.c, its life with the coordinator, sees it.
 * ps.c writes all fields; member.c reads them, and calls the orders and the shards. */
#ifndef PSD_SHELL_PS_INT_H
#define PSD_SHELL_PS_INT_H

#include "common/loop/loop.h"
#include "common/rpc/rpc.h"
#include "psd/order/ps_order.h"
#include "psd/shard/shard.h"
#include "psd/values/bufpool.h"

struct health_service;
struct member;
struct ps_exchange;

struct ps {
    struct loop *loop;
    struct rpc_env *env;
    char *name;
    char *address;
    char *coordinator;
    char *coordinator_name;
    struct budget *values; /* memory of variables */
    struct budget *grads;  /* memory of gradients on their way in */
    struct shard **shards;
    uint32_t shard_count;
    struct rpc_server *server;
    struct health_service *health;
    struct ps_exchange *exchange;
    struct ps_orders *orders;
    struct member *member;
    bool is_started;
    void (*on_fatal)(void *arg);
    void *on_fatal_arg;
    void (*on_stopped)(void *arg);
    void *on_stopped_arg;
};

#endif
