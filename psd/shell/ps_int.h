/* SPDX-License-Identifier: Apache-2.0 */
/* ps_int: the state of a parameter server, shared by ps.c, ps_api.c, ps_order.c and member.c. */
#ifndef PSD_SHELL_PS_INT_H
#define PSD_SHELL_PS_INT_H

#include <pthread.h>

#include "common/loop/loop.h"
#include "common/rpc/rpc.h"
#include "proto/fleet.pb-c.h"
#include "psd/exchange/push_gate.h"
#include "psd/shard/bufpool.h"
#include "psd/shard/shard.h"

struct health_service;
struct push;
struct member;
struct ps_orders;

struct ps {
    struct loop *loop;
    struct rpc_env *env;
    char *name;
    char *address;
    char *coordinator;
    char *coordinator_name;
    struct budget *values; /* memory of variables */
    struct budget *grads;  /* memory of gradients on their way in */
    struct push_gate *gate;
    struct shard **shards;
    uint32_t shard_count;
    struct rpc_server *server;
    struct health_service *health;
    struct ps_orders *orders;
    struct member *member;
    bool is_started;
    void (*on_fatal)(void *arg);
    void *on_fatal_arg;
    void (*on_stopped)(void *arg);
    void *on_stopped_arg;

    uint32_t pull_stall_ms; /* a pull whose reader takes nothing for so long is broken off */
    struct loop_timer *pull_timer;
    pthread_mutex_t pull_lock; /* guards pulls and their last_ns; a leaf */
    struct pull *pulls;        /* all that are being sent */

    pthread_mutex_t push_lock; /* guards pushes; before a push's own lock */
    struct push *pushes;       /* all that are being received */
};

/* ps_api.c */
void ps_api_add(struct ps *ps); /* Pull and Push to the server */
/* Breaks off pulls whose readers do not read: they hold values that updates wait for. Loop. */
void ps_api_check_pulls(void *ps);
/* Ends the pushes of a session that are still being received. Loop. */
void ps_api_end_session(struct ps *ps, uint64_t session);

#endif
