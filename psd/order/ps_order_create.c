/* SPDX-License-Identifier: Apache-2.0 */
/* ps_order_create: makes or restores a job's shards.
 *
 *   shard: retire the older generation -> file: initial values, or a checkpoint -> shard: install
 */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "psd/ckpt/ckpt_read.h"
#include "psd/order/ps_order_int.h"

#define MEMORY_WAIT_NS (5 * NS_PER_S) /* for readers of the old generation to let go of it */
#define MEMORY_LOOK_NS (20 * NS_PER_MS)

static void create_ended(struct part *part)
{
    struct ps_orders *orders = part->orders;
    struct held_job *held = ps_held_find(orders, part->job);
    bool is_wanted = held && held->generation == part->generation;
    if (part->err.code != ERR_OK && is_wanted)
        held->has_slices[shard_index(part->shard)] = false;
    if (!is_wanted) { /* dropped by a Goodbye meanwhile */
        struct part *drop = ps_part_new(orders, NULL, shard_index(part->shard), part->job, 0);
        ps_part_to_thread(drop, shard_thread(part->shard), ps_part_drop, ps_part_ended);
    }
    ps_part_ended(part);
}

/* Shard thread. */
static void create_install(struct task *task)
{
    struct part *part = CONTAINER_OF(task, struct part, task);
    if (shard_install(part->shard, part->made, &part->counters, &part->err) == ERR_OK)
        part->made = NULL;
    ps_part_to_loop(part, create_ended);
}

/* Memory of the older generation comes back when its last reader is gone, which is soon. */
static enum err_code make_values(struct part *part, struct values **ret_values, struct err *err)
{
    struct budget *budget = part->orders->env.values;
    AUTO_MEM char *what = base_asprintf("job %s shard %u", part->name, shard_index(part->shard));
    uint64_t deadline = clock_now_ns() + MEMORY_WAIT_NS;
    for (;;) {
        enum err_code code = values_new(budget, what, part->layout, part->spec, ret_values, err);
        if (code != ERR_NO_MEMORY || !part->has_retired || clock_now_ns() >= deadline)
            return code;
        nanosleep(&(struct timespec){.tv_nsec = (long)MEMORY_LOOK_NS}, NULL);
    }
}

/* File thread. */
static void create_make(struct task *task)
{
    struct part *part = CONTAINER_OF(task, struct part, task);
    AUTO(values) values = NULL;
    enum err_code code = make_values(part, &values, &part->err);
    if (code == ERR_OK) {
        part->layout = NULL; /* the values' own now */
        part->spec = NULL;
        values->version = shard_first_version(part->generation);
        if (part->restore_directory)
            code = ckpt_read(part->restore_directory, values, &part->err);
        else
            values_fill_initial(values);
    }
    if (code == ERR_OK)
        code = shard_job_new(part->shard, part->job, part->generation, part->name, values,
                             &part->made, &part->err);
    if (code != ERR_OK) {
        ps_part_to_loop(part, create_ended);
        return;
    }
    values = NULL;
    ps_part_to_thread(part, shard_thread(part->shard), create_install, create_ended);
}

/* Shard thread. */
static void create_retire(struct task *task)
{
    struct part *part = CONTAINER_OF(task, struct part, task);
    bool is_here = false;
    enum err_code code = shard_retire(part->shard, part->job, part->generation, &part->counters,
                                      &is_here, &part->has_retired, &part->err);
    if (code != ERR_OK || is_here || part->layout->count == 0)
        ps_part_to_loop(part, create_ended);
    else
        ps_part_to_thread(part, shard_file_thread(part->shard), create_make, create_ended);
}

enum err_code ps_order_begin_create(struct ps_orders *orders, struct order *order, struct err *err)
{
    const Steadfast__V1__CreateShards *create = order->message->create;
    const struct ps_order_env *env = &orders->env;
    if (create->generation == 0 || create->generation >= LIMIT_GENERATIONS)
        return err_set(err, ERR_INVALID, "create: generation %" PRIu64 ", want 1 to %d",
                       create->generation, LIMIT_GENERATIONS - 1);
    struct held_job *held = ps_held_find(orders, create->job);
    if (held && held->generation > create->generation)
        return err_set(err, ERR_STALE, "%s: job %" PRIu64 ": generation %" PRIu64 ", want %" PRIu64,
                       env->name, create->job, create->generation, held->generation);
    struct part *parts[LIMIT_SHARDS_PER_SERVER] = {0};
    enum err_code code = ERR_OK;
    for (uint32_t i = 0; i < env->shard_count && code == ERR_OK; i++) {
        parts[i] = ps_part_new(orders, order, i, create->job, create->generation);
        parts[i]->name = base_strdup(create->name);
        if (create->restore_directory[0])
            parts[i]->restore_directory = base_strdup(create->restore_directory);
        code = slice_layout_new(create->plan, create->server, i, env->shard_count,
                                &parts[i]->layout, err);
        if (code == ERR_OK)
            code =
                job_spec_parse(create->spec_json, strlen(create->spec_json), &parts[i]->spec, err);
    }
    if (code != ERR_OK) {
        for (uint32_t i = 0; i < env->shard_count && parts[i]; i++) {
            order->parts--;
            ps_part_free(parts[i]);
        }
        return code;
    }
    if (!held) {
        held = base_alloc(sizeof(*held));
        held->job = create->job;
        held->name = base_strdup(create->name);
        held->next = orders->jobs;
        orders->jobs = held;
    }
    bool is_again = held->generation == create->generation;
    held->generation = create->generation;
    held->server = create->server;
    for (uint32_t i = 0; i < env->shard_count; i++) {
        held->has_slices[i] = parts[i]->layout->count > 0;
        shard_close_job(env->shards[i], create->job, create->generation);
        ps_part_to_thread(parts[i], shard_thread(env->shards[i]), create_retire, create_ended);
    }
    log_info("job.create", "job=%s generation=%" PRIu64 " server=%u restore=\"%s\" again=%d",
             create->name, create->generation, create->server, create->restore_directory, is_again);
    return ERR_OK;
}
