/* SPDX-License-Identifier: Apache-2.0 */
/* exchange: the moves between the states of the parts. */
#include "workerd/exchange/exchange.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/loop/loop.h"

#define BACKOFF_MIN_MS 20u
#define BACKOFF_MAX_MS 500u

static void on_part_ended(struct inbox_msg *msg);
static void on_timer(void *arg);

void exchange_init(struct exchange *exchange, const struct exchange_env *env,
                   const struct exchange_ops *ops)
{
    *exchange = (struct exchange){.env = env, .ops = ops, .part_count = env->map->shard_count};
    exchange->parts = base_alloc(exchange->part_count * sizeof(*exchange->parts));
    for (size_t i = 0; i < exchange->part_count; i++) {
        struct exchange_part *part = &exchange->parts[i];
        part->exchange = exchange;
        part->shard_index = i;
        part->ended_msg.on_loop = on_part_ended;
        part->timer = loop_timer_new(env->loop, on_timer, part);
    }
}

void exchange_done(struct exchange *exchange)
{
    ASSERT(!exchange->is_active);
    for (size_t i = 0; i < exchange->part_count; i++)
        loop_timer_free(exchange->parts[i].timer);
    free(exchange->parts);
}

uint32_t exchange_timeout_ms(const struct exchange *exchange)
{
    uint64_t now_ns = clock_now_ns();
    if (exchange->deadline_ns <= now_ns)
        return 1;
    uint64_t ms = (exchange->deadline_ns - now_ns) / NS_PER_MS;
    return (uint32_t)MAX(MIN(ms, (uint64_t)UINT32_MAX - 1), (uint64_t)1);
}

static void start_part(struct exchange_part *part)
{
    part->state = EXCHANGE_OPEN;
    part->status.code = ERR_OK;
    part->exchange->ops->start(part);
}

void exchange_begin(struct exchange *exchange, uint64_t deadline_ns, exchange_done_fn *on_done,
                    void *arg)
{
    ASSERT(!exchange->is_active && exchange->part_count > 0);
    exchange->is_active = true;
    exchange->deadline_ns = deadline_ns;
    exchange->verdict = PS_OK;
    exchange->on_done = on_done;
    exchange->arg = arg;
    exchange->open_count = exchange->part_count;
    for (size_t i = 0; i < exchange->part_count; i++) {
        exchange->parts[i].tries = 0;
        start_part(&exchange->parts[i]);
    }
}

static void end_part(struct exchange_part *part)
{
    ASSERT(part->exchange->open_count > 0);
    part->state = EXCHANGE_ENDED;
    part->exchange->open_count--;
}

/* The outcome is known: what still runs is of no use. The caller looks at open_count afterwards. */
static void decide(struct exchange *exchange, enum ps_verdict verdict, const struct err *err)
{
    if (exchange->verdict != PS_OK)
        return;
    exchange->verdict = verdict;
    exchange->err = *err;
    for (size_t i = 0; i < exchange->part_count; i++) {
        struct exchange_part *part = &exchange->parts[i];
        if (part->state == EXCHANGE_OPEN) {
            exchange->ops->cancel(part);
        } else if (part->state == EXCHANGE_WAITING) {
            loop_timer_stop(part->timer);
            end_part(part);
        }
    }
}

static void finish_if_all_ended(struct exchange *exchange)
{
    if (exchange->open_count > 0)
        return;
    for (size_t i = 0; i < exchange->part_count; i++)
        exchange->parts[i].state = EXCHANGE_IDLE;
    exchange->is_active = false;
    exchange->on_done(exchange->arg, exchange->verdict,
                      &exchange->err); /* may begin the next one */
}

/* A deadline that nobody reached ends on the timer, so a late end here is not worth a try. */
static bool wait_and_retry(struct exchange_part *part)
{
    uint32_t wait_ms = MIN(BACKOFF_MIN_MS << MIN(part->tries, 5u), BACKOFF_MAX_MS);
    if (clock_now_ns() + wait_ms * NS_PER_MS >= part->exchange->deadline_ns)
        return false;
    part->tries++;
    part->state = EXCHANGE_WAITING;
    loop_timer_once(part->timer, wait_ms);
    return true;
}

static void on_part_ended(struct inbox_msg *msg)
{
    struct exchange_part *part = CONTAINER_OF(msg, struct exchange_part, ended_msg);
    struct exchange *exchange = part->exchange;
    ASSERT(exchange->is_active && part->state == EXCHANGE_OPEN);
    exchange->ops->release(part);
    struct ps_link *link = exchange_link(part);
    enum ps_verdict verdict = ps_judge(part->status.code);
    bool is_decided = exchange->verdict != PS_OK;
    if (!is_decided)
        ps_link_note(link, &part->status);
    if (verdict == PS_RETRY && !is_decided && wait_and_retry(part))
        return;
    end_part(part);
    if (verdict != PS_OK && !is_decided) {
        err_prefix(&part->status, "%s at %s, shard %u", link->name, link->address,
                   exchange_shard(part)->shard);
        decide(exchange, verdict == PS_FAIL ? PS_FAIL : PS_RETURN, &part->status);
    }
    finish_if_all_ended(exchange);
}

static void on_timer(void *arg)
{
    struct exchange_part *part = arg;
    ASSERT(part->state == EXCHANGE_WAITING);
    start_part(part);
}

void exchange_cancel(struct exchange *exchange)
{
    if (!exchange->is_active)
        return;
    struct err err;
    err_set(&err, ERR_CANCELLED, "the step was taken back");
    decide(exchange, PS_RETURN, &err);
    /* All parts were waiting: the end comes through a part's own message, so that on_done is never
     * called from here. */
    if (exchange->open_count == 0) {
        struct exchange_part *part = &exchange->parts[0];
        part->state = EXCHANGE_OPEN;
        exchange->open_count = 1;
        part->status = err;
        exchange_part_ended(part);
    }
}

void exchange_part_ended(struct exchange_part *part)
{
    inbox_post(part->exchange->env->inbox, &part->ended_msg);
}
