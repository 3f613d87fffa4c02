/* SPDX-License-Identifier: Apache-2.0 */
/* shard_job: the jobs of a shard.
 *
 *   shard_job_new -> shard_install -> (shard_apply)* -> shard_drop,
 *   or replaced by a newer generation
 */
#include <inttypes.h>
#include <stdlib.h>

#include "psd/shard/shard_int.h"

struct shard_job *shard_find(struct shard *shard, uint64_t job)
{
    struct shard_job *it = shard->jobs;
    while (it && it->job != job)
        it = it->next;
    return it;
}

struct shard_job *shard_find_generation(struct shard *shard, uint64_t job, uint64_t generation,
                                        struct err *err)
{
    struct shard_job *it = shard_find(shard, job);
    if (!it || it->generation < generation) {
        err_set(err, ERR_UNAVAILABLE,
                "shard %u: job %" PRIu64 " generation %" PRIu64 " is not here yet", shard->index,
                job, generation);
        return NULL;
    }
    if (it->generation > generation || it->is_closing) {
        err_set(err, ERR_STALE, "shard %u: job %" PRIu64 ": generation %" PRIu64 ", want %" PRIu64,
                shard->index, job, generation, it->generation + (it->is_closing ? 1 : 0));
        return NULL;
    }
    return it;
}

enum err_code shard_job_new(struct shard *shard, uint64_t job, uint64_t generation,
                            const char *name, struct values *take_values,
                            struct shard_job **ret_job, struct err *err)
{
    struct bufpool *grads = NULL;
    AUTO_MEM char *what = base_asprintf("job %s shard %u gradients", name, shard->index);
    enum err_code code =
        bufpool_new(shard->grads_budget, what, values_bytes(take_values), 0, &grads, err);
    if (code != ERR_OK)
        return code;
    struct shard_job *it = base_alloc(sizeof(*it));
    it->job = job;
    it->generation = generation;
    it->name = base_strdup(name);
    it->values = take_values;
    it->rule = update_rule_of(take_values->spec->consistency);
    it->grads = grads;
    *ret_job = it;
    return ERR_OK;
}

void shard_job_free(struct shard_job *job)
{
    if (!job)
        return;
    for (size_t i = 0; i < job->pin_count; i++)
        buf_unref(job->pins[i].buf);
    values_free(job->values);
    bufpool_free(job->grads);
    free(job->name);
    free(job);
}

uint64_t shard_first_version(uint64_t generation)
{
    return ((generation - 1) << 36) + 1;
}

void shard_close_job(struct shard *shard, uint64_t job, uint64_t below_generation)
{
    shard_lock(shard);
    struct shard_job *it = shard_find(shard, job);
    if (it && it->generation < below_generation)
        it->is_closing = true;
    shard_unlock(shard);
}

/* Shard thread. */
static struct shard_job *unlink_job(struct shard *shard, uint64_t job)
{
    shard_lock(shard);
    struct shard_job **at = &shard->jobs;
    while (*at && (*at)->job != job)
        at = &(*at)->next;
    struct shard_job *it = *at;
    if (it)
        *at = it->next;
    shard_unlock(shard);
    return it;
}

enum err_code shard_retire(struct shard *shard, uint64_t job, uint64_t generation,
                           struct shard_counters *ret_counters, bool *ret_is_here,
                           bool *ret_was_older, struct err *err)
{
    struct shard_job *old = shard_find(shard, job);
    if (old && old->generation > generation)
        return err_set(err, ERR_STALE,
                       "shard %u: job %" PRIu64 ": generation %" PRIu64
                       " is here, not replaced by %" PRIu64,
                       shard->index, job, old->generation, generation);
    *ret_is_here = old && old->generation == generation;
    *ret_was_older = old && !*ret_is_here;
    if (!old || *ret_is_here)
        return ERR_OK;
    *ret_counters = (struct shard_counters){.duplicates_refused = old->duplicates_refused,
                                            .fenced = old->fenced};
    shard_drop(shard, job);
    return ERR_OK;
}

enum err_code shard_install(struct shard *shard, struct shard_job *take_job,
                            const struct shard_counters *counters, struct err *err)
{
    const struct shard_job *old = shard_find(shard, take_job->job);
    if (old)
        return err_set(err, ERR_STALE,
                       "shard %u: job %" PRIu64 ": generation %" PRIu64
                       " is here, not replaced by %" PRIu64,
                       shard->index, take_job->job, old->generation, take_job->generation);
    take_job->fenced = counters->fenced;
    take_job->duplicates_refused = counters->duplicates_refused;
    shard_lock(shard);
    take_job->next = shard->jobs;
    shard->jobs = take_job;
    shard_unlock(shard);
    return ERR_OK;
}

void shard_drop(struct shard *shard, uint64_t job)
{
    shard_job_free(unlink_job(shard, job));
}

struct values *shard_values(struct shard *shard, uint64_t job, uint64_t generation, struct err *err)
{
    shard_lock(shard);
    struct shard_job *it = shard_find_generation(shard, job, generation, err);
    shard_unlock(shard);
    return it ? it->values : NULL;
}
