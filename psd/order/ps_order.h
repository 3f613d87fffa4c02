/* SPDX-License-Identifier: Apache-2.0 */
/* ps_order: executes the coordinator's orders.
 *
 * Orders of one job run one after another in the order of arrival; a snapshot lets the next one
 * begin as soon as the copy in memory is made. An order is answered once it is done, under its
 * number; the same number again, from the same start of the coordinator, gets the same answer and
 * is not executed twice.
 *
 * Owns    the orders being executed and the latest answers. Thread: the loop's.
 */
#ifndef PSD_ORDER_PS_ORDER_H
#define PSD_ORDER_PS_ORDER_H

#include "common/base/base.h"
#include "common/rpc/rpc.h"
#include "proto/fleet.pb-c.h"
#include "psd/shard/shard.h"

struct ps_orders;

/* What orders are carried out on; all of it is borrowed for the life of ps_orders. */
struct ps_order_env {
    struct rpc_env *rpc; /* the way back to the loop */
    const char *name;    /* the server's, for errors */
    struct shard *const *shards;
    uint32_t shard_count;
    struct budget *values; /* memory of variables */
    /* Loop: an answer, borrowed for the call. */
    void (*on_done)(const Steadfast__V1__OrderDone *done, void *arg);
    /* Loop: a session was fenced; its pushes that are still coming in are to end. */
    void (*end_session)(uint64_t session, void *arg);
    void *arg;
};

struct ps_orders *ps_orders_new(const struct ps_order_env *env);
/* Begins nothing more. True: no part is on its way any more; else ask again after the loop has
 * turned. The shards' threads are stopped. */
bool ps_orders_stop(struct ps_orders *orders);
void ps_orders_free(struct ps_orders *orders);
void ps_orders_execute(struct ps_orders *orders, uint64_t start,
                       const Steadfast__V1__ServerOrder *order);
/* Drops all jobs of all shards, soon (after a Goodbye). Orders not begun are forgotten. */
void ps_orders_drop_all(struct ps_orders *orders);

/* What the shards say of all jobs (job 0) or of one, with the server's position in the plan;
 * ps_wire_states_free. */
Steadfast__V1__ShardState **ps_orders_states(struct ps_orders *orders, uint64_t job,
                                             bool with_marks, size_t *ret_count);

#endif
