/* SPDX-License-Identifier: Apache-2.0 */
/* ps: one parameter server: its shards, the service that workers call, and its life with the
 * coordinator.
 *
 *   ps_new -> ps_start -> serving -> ps_stop -> on_stopped -> ps_free
 *
 * Owns    server, shards, budgets, member. Borrows loop and env.
 * Thread  the loop's, for all functions. Pull and Push run on the io thread.
 * Errors  ERR_EXISTS: the address is taken. ERR_INVALID: an option.
 */
#ifndef PSD_SHELL_PS_H
#define PSD_SHELL_PS_H

#include "common/loop/loop.h"
#include "common/rpc/rpc.h"

struct ps;

struct ps_options {
    struct loop *loop;
    struct rpc_env *env;
    const char *name;        /* "ps:0" */
    const char *listen;      /* host:port, port 0 picks one */
    const char *advertise;   /* host:port for workers; NULL: listen's host with the bound port */
    const char *coordinator; /* host:port */
    const char *coordinator_name; /* "chief:0", for what is said while waiting */
    uint32_t shard_count;         /* 1 to LIMIT_SHARDS_PER_SERVER */
    uint64_t memory_bytes;        /* budget of variables and slots */
    uint64_t inflight_bytes;      /* budget of gradients being received */
    uint32_t pull_stall_ms;       /* longest pause of a pull's reader; 0: 10000 */
    /* The coordinator does not want this process under its name; the caller ends it. On the loop. */
    void (*on_fatal)(void *arg);
    void *on_fatal_arg;
};

MUST_CHECK enum err_code ps_new(const struct ps_options *options, struct ps **ret_ps,
                                struct err *err);
const char *ps_address(const struct ps *ps); /* host:port with the bound port */
const char *ps_coordinator(const struct ps *ps);
void ps_start(struct ps *ps); /* serves, and dials the coordinator */
/* Says goodbye to the coordinator, finishes the calls in flight, then on_stopped on the loop. */
void ps_stop(struct ps *ps, void (*on_stopped)(void *arg), void *arg);
void ps_free(struct ps *ps); /* stopped, or never started */
DEFINE_AUTO(ps)

#endif
