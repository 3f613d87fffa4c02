/* SPDX-License-Identifier: Apache-2.0 */
/* ps_held: the records of the jobs that were created here, and what the shards say of those. */
#include <inttypes.h>
#include <stdlib.h>

#include "psd/order/ps_order_int.h"
#include "psd/order/ps_wire.h"

struct held_job *ps_held_find(struct ps_orders *orders, uint64_t job)
{
    struct held_job *held = orders->jobs;
    while (held && held->job != job)
        held = held->next;
    return held;
}

void ps_held_forget(struct ps_orders *orders, uint64_t job)
{
    struct held_job **at = &orders->jobs;
    while (*at && (*at)->job != job)
        at = &(*at)->next;
    struct held_job *held = *at;
    if (!held)
        return;
    *at = held->next;
    free(held->name);
    free(held);
}

struct held_job *ps_held_at(struct ps_orders *orders, uint64_t job, uint64_t generation,
                            struct err *err)
{
    struct held_job *held = ps_held_find(orders, job);
    if (!held || held->generation < generation)
        err_set(err, ERR_UNAVAILABLE, "%s: job %" PRIu64 " generation %" PRIu64 " is not here",
                orders->env.name, job, generation);
    else if (held->generation > generation)
        err_set(err, ERR_STALE, "%s: job %" PRIu64 ": generation %" PRIu64 ", want %" PRIu64,
                orders->env.name, job, generation, held->generation);
    else
        return held;
    return NULL;
}

Steadfast__V1__ShardState **ps_orders_states(struct ps_orders *orders, uint64_t job,
                                             bool with_marks, size_t *ret_count)
{
    const struct ps_order_env *env = &orders->env;
    Steadfast__V1__ShardState **states = NULL;
    size_t count = 0;
    for (uint32_t s = 0; s < env->shard_count; s++) {
        struct shard_state list[LIMIT_JOBS_ACTIVE];
        size_t found =
            MIN(shard_states(env->shards[s], list, LIMIT_JOBS_ACTIVE), (size_t)LIMIT_JOBS_ACTIVE);
        states = base_realloc(states, (count + found + 1) * sizeof(Steadfast__V1__ShardState *));
        for (size_t i = 0; i < found; i++) {
            const struct held_job *held = ps_held_find(orders, list[i].job);
            if (!held || held->generation != list[i].generation || (job && job != list[i].job))
                continue;
            struct ranges marks;
            bool has_marks = with_marks && shard_marks(env->shards[s], list[i].job, &marks);
            states[count++] = ps_wire_state(&list[i], held->server, s, has_marks ? &marks : NULL);
            if (has_marks)
                ranges_done(&marks);
        }
    }
    *ret_count = count;
    return states;
}
