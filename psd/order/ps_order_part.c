/* SPDX-License-Identifier: Apache-2.0 */
/* ps_order_part: parts on their way between the loop, the shard threads and the file threads. */
#include <stdlib.h>

#include "psd/order/ps_order_int.h"

void ps_part_free(struct part *part)
{
    part->orders->parts_out--;
    free(part->name);
    free(part->restore_directory);
    slice_layout_free(part->layout);
    job_spec_free(part->spec);
    shard_job_free(part->made);
    free(part->directory);
    snapshot_free(part->snapshot);
    free(part->file_name);
    free(part);
}

struct part *ps_part_new(struct ps_orders *orders, struct order *order, uint32_t shard,
                         uint64_t job, uint64_t generation)
{
    struct part *part = base_alloc(sizeof(*part));
    part->orders = orders;
    orders->parts_out++;
    part->order = order;
    part->shard = orders->env.shards[shard];
    part->job = job;
    part->generation = generation;
    if (order)
        order->parts++;
    return part;
}

void ps_order_part_ended(struct ps_orders *orders, struct order *order, const struct err *err)
{
    ASSERT(order->parts > 0);
    if (err && err->code != ERR_OK && order->err.code == ERR_OK)
        order->err = *err;
    if (--order->parts > 0)
        return;
    order->is_ended = true;
    orders->turn(orders);
}

static void run_then(void *arg)
{
    struct part *part = arg;
    part->then(part);
}

void ps_part_to_loop(struct part *part, void (*then)(struct part *part))
{
    part->then = then;
    rpc_env_post(part->orders->env.rpc, run_then, part);
}

void ps_part_ended(struct part *part)
{
    if (part->order)
        ps_order_part_ended(part->orders, part->order, &part->err);
    ps_part_free(part);
}

void ps_part_to_thread(struct part *part, struct task_thread *thread,
                       void (*run)(struct task *task), void (*then)(struct part *part))
{
    part->task.run = run;
    enum err_code code = task_thread_post(thread, &part->task);
    if (code == ERR_OK)
        return;
    err_set(&part->err, code, "shard %u takes no more orders now", shard_index(part->shard));
    ps_part_to_loop(part, then);
}

/* Shard thread. */
void ps_part_drop(struct task *task)
{
    struct part *part = CONTAINER_OF(task, struct part, task);
    shard_drop(part->shard, part->job);
    ps_part_to_loop(part, ps_part_ended);
}
