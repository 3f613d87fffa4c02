/* SPDX-License-Identifier: Apache-2.0 */
/* core_order_int: orders to servers. */
#ifndef COORDINATORD_CORE_CORE_ORDER_INT_H
#define COORDINATORD_CORE_CORE_ORDER_INT_H

#include "coordinatord/core/core_base_int.h"

struct order *core_order_add(struct core *core, enum order_kind kind, struct member *server,
                             struct job *job, uint64_t value, size_t server_index);
/* The job may be one that nobody knows any more. */
void core_order_drop(struct core *core, struct member *server, uint64_t job);
/* To every server that holds slices of the job and is here; returns how many. */
size_t core_order_all(struct core *core, enum order_kind kind, struct job *job, uint64_t value);
/* The same process attached again. */
void core_order_resend(struct core *core, const struct member *server);
/* Taken off the list, the caller's to free, linked by next: the one of that number if it was that
 * server's; all of a server; all whose deadline has passed. */
struct order *core_order_take(struct core *core, const struct member *server, uint64_t number);
struct order *core_order_take_server(struct core *core, const struct member *server);
struct order *core_order_take_overdue(struct core *core);
void core_order_forget_job(struct core *core, const struct job *job);

#endif
