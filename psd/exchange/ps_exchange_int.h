/* SPDX-License-Identifier: Apache-2.0 */
/* ps_exchange_int: what ps_exchange.c puts together from ps_pull.c and ps_push.c, which know nothing
 * of each other. The state of each is its own file's. */
#ifndef PSD_EXCHANGE_PS_EXCHANGE_INT_H
#define PSD_EXCHANGE_PS_EXCHANGE_INT_H

#include "psd/exchange/ps_exchange.h"

struct ps_target { /* whom calls are for; ps_exchange.c fills it, nothing changes it */
    const char *name;
    struct shard *const *shards;
    uint32_t shard_count;
};

/* NULL with ERR_INVALID. */
static inline struct shard *ps_target_shard(const struct ps_target *target, uint32_t index,
                                            struct err *err)
{
    if (index < target->shard_count)
        return target->shards[index];
    err_set(err, ERR_INVALID, "shard %u, %s has %u", index, target->name, target->shard_count);
    return NULL;
}

/* ps_pull.c */
struct ps_pulls;
struct ps_pulls *ps_pulls_new(const struct ps_target *target, struct loop *loop, uint32_t stall_ms);
void ps_pulls_watch(struct ps_pulls *pulls);
void ps_pulls_free(struct ps_pulls *pulls);
void ps_pull_on_call(struct rpc_call *call, const struct rpc_in *in, void *pulls); /* io thread */

/* ps_push.c */
struct ps_pushes;
struct ps_pushes *ps_pushes_new(const struct ps_target *target, uint64_t inflight_bytes);
void ps_pushes_end_session(struct ps_pushes *pushes, uint64_t session);
void ps_pushes_free(struct ps_pushes *pushes);
void ps_push_on_call(struct rpc_call *call, const struct rpc_in *in, void *pushes); /* io thread */

#endif
