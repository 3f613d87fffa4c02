/* SPDX-License-Identifier: Apache-2.0 */
/* ps_order_short: what needs no file: prune, pin, unpin, drop, fence. */
#include <inttypes.h>

#include "common/base/log.h"
#include "psd/order/ps_order_int.h"

enum err_code ps_order_do_prune(struct ps_orders *orders, const Steadfast__V1__Prune *prune,
                                struct err *err)
{
    struct held_job *held = ps_held_at(orders, prune->job, prune->generation, err);
    if (!held)
        return err->code;
    enum err_code code = ERR_OK;
    for (uint32_t i = 0; i < orders->env.shard_count && code == ERR_OK; i++)
        if (held->has_slices[i])
            code = shard_prune(orders->env.shards[i], prune->job, prune->generation,
                               prune->watermark, err);
    return code;
}

void ps_order_do_unpin(struct ps_orders *orders, uint64_t job, uint64_t pin)
{
    for (uint32_t i = 0; i < orders->env.shard_count; i++)
        shard_unpin(orders->env.shards[i], job, pin);
}

enum err_code ps_order_do_pin(struct ps_orders *orders, const Steadfast__V1__Pin *pin,
                              struct err *err)
{
    struct held_job *held = ps_held_at(orders, pin->job, pin->generation, err);
    if (!held)
        return err->code;
    enum err_code code = ERR_OK;
    for (uint32_t i = 0; i < orders->env.shard_count && code == ERR_OK; i++)
        if (held->has_slices[i])
            code = shard_pin(orders->env.shards[i], pin->job, pin->generation, pin->pin, err);
    if (code != ERR_OK)
        ps_order_do_unpin(orders, pin->job, pin->pin);
    return code;
}

void ps_order_begin_drop(struct ps_orders *orders, struct order *order, uint64_t job)
{
    for (uint32_t i = 0; i < orders->env.shard_count; i++) {
        struct part *part = ps_part_new(orders, order, i, job, 0);
        shard_close_job(part->shard, job, UINT64_MAX);
        ps_part_to_thread(part, shard_thread(part->shard), ps_part_drop, ps_part_ended);
    }
    if (ps_held_find(orders, job))
        log_info("job.drop", "job=%" PRIu64, job);
    ps_held_forget(orders, job);
}

/* Shard thread. */
static void fence_run(struct task *task)
{
    ps_part_to_loop(CONTAINER_OF(task, struct part, task), ps_part_ended);
}

void ps_order_begin_fence(struct ps_orders *orders, struct order *order, uint64_t session)
{
    for (uint32_t i = 0; i < orders->env.shard_count; i++) {
        struct part *part = ps_part_new(orders, order, i, 0, 0);
        part->task.run = fence_run;
        if (shard_fence(part->shard, session, &part->task))
            ps_part_to_loop(part, ps_part_ended);
    }
    orders->env.end_session(session, orders->env.arg);
    log_info("session.fenced", "session=%" PRIu64, session);
}
