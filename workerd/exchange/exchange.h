/* SPDX-License-Identifier: Apache-2.0 */
/* exchange: one call to each shard of a job at once, each tried again until the step's deadline.
 *
 * What pulls and pushes have in common. One part per shard of the slice map:
 *
 *          begin         part ended, PS_RETRY, time left
 *   IDLE ----------> OPEN ------------------------------> WAITING
 *    ^                |  <--------------------------------  |
 *    |                |           the timer ran out         | cancelled, or another part
 *    |                | any other end                       | failed for good
 *    |                v                                     |
 *    +-- on_done -- ENDED <---------------------------------+
 *       (all are)
 *
 * The first part that fails for good decides the outcome and cancels the rest.
 *
 * Owns    parts and timers; the user of the room embeds struct exchange and owns the calls.
 * Thread  the loop's, but for exchange_part_ended.
 * Units   deadline_ns monotonic.
 */
#ifndef WORKERD_EXCHANGE_EXCHANGE_H
#define WORKERD_EXCHANGE_EXCHANGE_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/loop/inbox.h"
#include "workerd/exchange/ps_link.h"
#include "workerd/exchange/slice_map.h"

struct exchange;
struct loop;
struct loop_timer;

/* What a room needs to call servers from the loop thread. */
struct exchange_env {
    struct loop *loop;
    struct inbox *inbox;
    const struct slice_map *map;
    struct ps_links *links;
};

enum exchange_state { EXCHANGE_IDLE, EXCHANGE_OPEN, EXCHANGE_WAITING, EXCHANGE_ENDED };

struct exchange_part {
    struct inbox_msg ended_msg;
    struct exchange *exchange;
    size_t shard_index; /* in the slice map */
    enum exchange_state state;
    uint32_t tries;
    struct loop_timer *timer;
    struct err status; /* of the call; set before exchange_part_ended */
};

struct exchange_ops {
    /* Leads to exactly one exchange_part_ended, now or later, from any thread. */
    void (*start)(struct exchange_part *part);
    /* Makes an OPEN part end soon. */
    void (*cancel)(struct exchange_part *part);
    /* The part ended: let go of the call. */
    void (*release)(struct exchange_part *part);
};

/* PS_OK, PS_RETURN (also: out of time, or cancelled) or PS_FAIL; err is set unless PS_OK. */
typedef void exchange_done_fn(void *arg, enum ps_verdict verdict, const struct err *err);

struct exchange {
    const struct exchange_env *env;
    const struct exchange_ops *ops;
    struct exchange_part *parts;
    size_t part_count;
    size_t open_count; /* parts that have not ended */
    bool is_active;
    uint64_t deadline_ns;
    enum ps_verdict verdict;
    struct err err;
    exchange_done_fn *on_done;
    void *arg;
};

void exchange_init(struct exchange *exchange, const struct exchange_env *env,
                   const struct exchange_ops *ops);
void exchange_done(struct exchange *exchange); /* not active */
/* on_done is called later, exactly once. A map without shards is done at once: do not begin. */
void exchange_begin(struct exchange *exchange, uint64_t deadline_ns, exchange_done_fn *on_done,
                    void *arg);
/* on_done still comes, as PS_RETURN with ERR_CANCELLED unless it was decided already. */
void exchange_cancel(struct exchange *exchange);
/* Any thread. status is set. */
void exchange_part_ended(struct exchange_part *part);
/* For the deadline of a call: from now to the deadline, at least 1 ms. */
uint32_t exchange_timeout_ms(const struct exchange *exchange);
static inline const struct slice_shard *exchange_shard(const struct exchange_part *part)
{
    return &part->exchange->env->map->shards[part->shard_index];
}
static inline struct ps_link *exchange_link(const struct exchange_part *part)
{
    return &part->exchange->env->links->items[exchange_shard(part)->server_index];
}

#endif
