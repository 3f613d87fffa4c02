/* SPDX-License-Identifier: Apache-2.0 */
/* shard_int: a shard and its jobs, shared by the files of this room that work on them.
 *
 * shard_job.c is at the bottom: it owns the list. shard_read.c and shard_push.c look jobs up with it,
 * and know nothing of each other. shard.c, life and threads, is on top.
 *
 * Only the shard thread changes the list, the values and their history, and does it under the lock,
 * so it reads them without. Others change pins, watermark, closing and fences, under the lock too.
 */
#ifndef PSD_SHARD_SHARD_INT_H
#define PSD_SHARD_SHARD_INT_H

#include <pthread.h>

#include "common/base/limits.h"
#include "common/base/log.h"
#include "psd/rule/update_rule.h"
#include "psd/shard/shard.h"

struct pin {
    uint64_t pin;
    uint64_t version;
    struct buf *buf;
};

struct shard_job {
    /* shard_job.c; fixed once it is installed */
    uint64_t job;
    uint64_t generation;
    char *name;
    struct values *values; /* their content: shard_push.c */
    struct bufpool *grads;
    const struct update_rule *rule;
    bool is_closing;
    struct shard_job *next;
    /* shard_read.c */
    struct pin pins[LIMIT_PINS];
    size_t pin_count;
    uint64_t watermark; /* all steps below are acknowledged */
    /* shard_push.c; the counters come from an older generation with shard_job.c */
    uint64_t duplicates_refused;
    uint64_t fenced;
    struct log_limit nonfinite_limit; /* shard thread */
};

struct shard {
    /* shard.c; fixed */
    uint32_t index;
    struct budget *values_budget;
    struct budget *grads_budget;
    struct task_thread *thread;
    struct task_thread *file_thread;
    pthread_mutex_t lock;   /* guards all below; taken before a pool's lock, after a push's */
    bool is_stopping;       /* shard.c */
    struct shard_job *jobs; /* shard_job.c */
    /* shard_push.c */
    struct ranges fenced; /* sessions */
    bool is_applying;     /* the shard thread changes slots for applying_session */
    uint64_t applying_session;
    struct task *after_apply; /* linked by msg.next */
};

static inline void shard_lock(struct shard *shard)
{
    pthread_mutex_lock(&shard->lock);
}

static inline void shard_unlock(struct shard *shard)
{
    pthread_mutex_unlock(&shard->lock);
}

/* shard_job.c; lock held, or on the shard thread. */
struct shard_job *shard_find(struct shard *shard, uint64_t job);
/* NULL with ERR_UNAVAILABLE (not here yet) or ERR_STALE. */
struct shard_job *shard_find_generation(struct shard *shard, uint64_t job, uint64_t generation,
                                        struct err *err);

#endif
