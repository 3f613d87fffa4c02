/* SPDX-License-Identifier: Apache-2.0 */
/* ps_order_snapshot: a copy in memory on the shard thread, then a file by the file thread. */
#include <inttypes.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "psd/ckpt/ckpt_write.h"
#include "psd/order/ps_order_int.h"
#include "psd/order/ps_wire.h"

static void snapshot_ended(struct part *part)
{
    struct order *order = part->order;
    if (part->err.code == ERR_OK) {
        Steadfast__V1__CkptFile *file =
            ps_wire_file(part->snapshot, part->file_name, shard_index(part->shard));
        file->bytes = part->bytes;
        file->crc32c = part->crc;
        order->files =
            base_realloc(order->files, (order->file_count + 1) * sizeof(Steadfast__V1__CkptFile *));
        order->files[order->file_count++] = file;
    }
    ps_part_ended(part);
}

static void snapshot_write(struct task *task)
{
    struct part *part = CONTAINER_OF(task, struct part, task);
    uint64_t start = clock_now_ns();
    if (ckpt_write(part->snapshot, part->directory, part->file_name, part->name, &part->bytes,
                   &part->crc, &part->err) == ERR_OK)
        log_debug("snapshot.written", "file=%s bytes=%" PRIu64 " ms=%" PRIu64, part->file_name,
                  part->bytes, (uint64_t)((clock_now_ns() - start) / NS_PER_MS));
    ps_part_to_loop(part, snapshot_ended);
}

/* Loop: the copy is made, or is not to be had. */
static void snapshot_copied(struct part *part)
{
    struct order *order = part->order;
    struct ps_orders *orders = part->orders;
    if (--order->copies == 0)
        order->is_released = true;
    bool is_released = order->is_released;
    if (part->err.code == ERR_OK)
        ps_part_to_thread(part, shard_file_thread(part->shard), snapshot_write, snapshot_ended);
    else
        ps_part_ended(part);
    if (is_released)
        orders->turn(orders);
}

/* Shard thread. */
static void snapshot_copy(struct task *task)
{
    struct part *part = CONTAINER_OF(task, struct part, task);
    const struct values *values =
        shard_values(part->shard, part->job, part->generation, &part->err);
    if (values)
        (void)!snapshot_take(values, &part->snapshot, &part->err);
    ps_part_to_loop(part, snapshot_copied);
}

enum err_code ps_order_begin_snapshot(struct ps_orders *orders, struct order *order,
                                      struct err *err)
{
    const Steadfast__V1__Snapshot *snapshot = order->message->snapshot;
    struct held_job *held = ps_held_at(orders, snapshot->job, snapshot->generation, err);
    if (!held)
        return err->code;
    for (uint32_t i = 0; i < orders->env.shard_count; i++) {
        if (!held->has_slices[i])
            continue;
        struct part *part = ps_part_new(orders, order, i, snapshot->job, snapshot->generation);
        part->name = base_strdup(held->name);
        part->directory = base_strdup(snapshot->directory);
        part->file_name = base_asprintf("server%u-shard%u.safetensors", held->server, i);
        order->copies++;
        ps_part_to_thread(part, shard_thread(part->shard), snapshot_copy, snapshot_copied);
    }
    return ERR_OK;
}
