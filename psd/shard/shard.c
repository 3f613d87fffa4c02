/* SPDX-License-Identifier: Apache-2.0 */
/* shard: its life and its threads. */
#include "psd/shard/shard.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/limits.h"
#include "psd/shard/shard_int.h"

struct shard *shard_new(const struct shard_options *options)
{
    struct shard *shard = base_alloc(sizeof(*shard));
    char name[16];
    shard->index = options->index;
    shard->values_budget = options->values;
    shard->grads_budget = options->grads;
    ranges_init(&shard->fenced);
    pthread_mutex_init(&shard->lock, NULL);
    snprintf(name, sizeof(name), "shard-%u", options->index);
    shard->thread = task_thread_new(name, LIMIT_SHARD_BOX);
    snprintf(name, sizeof(name), "file-%u", options->index);
    shard->file_thread = task_thread_new(name, LIMIT_SHARD_BOX);
    return shard;
}

void shard_stop(struct shard *shard)
{
    shard_lock(shard);
    shard->is_stopping = true;
    shard_unlock(shard);
    /* Both threads post to each other; what the second still posts to the first is refused, not
     * lost. */
    task_thread_stop(shard->thread);
    task_thread_stop(shard->file_thread);
}

void shard_free(struct shard *shard)
{
    if (!shard)
        return;
    shard_stop(shard);
    task_thread_free(shard->thread);
    task_thread_free(shard->file_thread);
    while (shard->jobs)
        shard_drop(shard, shard->jobs->job);
    ranges_done(&shard->fenced);
    pthread_mutex_destroy(&shard->lock);
    free(shard);
}

struct task_thread *shard_thread(struct shard *shard)
{
    return shard->thread;
}

struct task_thread *shard_file_thread(struct shard *shard)
{
    return shard->file_thread;
}

uint32_t shard_index(const struct shard *shard)
{
    return shard->index;
}
