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
#include "proto/fleet.pb-c.h"

struct ps;
struct ps_orders;

/* on_done gets each answer, borrowed for the call. */
struct ps_orders *ps_orders_new(struct ps *ps,
                                void (*on_done)(const Steadfast__V1__OrderDone *done, void *arg),
                                void *arg);
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
