/* SPDX-License-Identifier: Apache-2.0 */
/* shard: one thread, and the variables that only it changes; a second thread for its files.
 *
 * Per job: values with their history, pinned versions, the pruned watermark and the counters. What
 * the shard thread changes it changes in one move under a short lock, so a pull, a heartbeat or a
 * pin never waits for an update.
 *
 * An update is exactly once: a push of a fenced session or another generation is refused
 * (ERR_STALE, counted as fenced); a step below the watermark or marked in every group is "done
 * before" (counted); else it is applied to the groups that lack it and marked, in one move. When no
 * buffer for the next values can be had the shard waits until a reader lets one go, or the system
 * has memory again, and says so every few seconds; a fence, a drop or a newer generation ends that
 * wait, and slots are not touched before it is over.
 *
 * A gradient that is NaN or infinite is applied as it is, as tf.keras does, and said aloud with the
 * variable: refusing it on one shard but not on another would tear a step apart, and an answer that
 * depends on placement would be worse than a model whose loss says what happened.
 *
 * Owns    its threads, jobs and buffers.
 * Thread  as said at each function. Tasks posted by others run on the shard or file thread and are
 *         freed by their own run function.
 */
#ifndef PSD_SHARD_SHARD_H
#define PSD_SHARD_SHARD_H

#include "common/loop/task_thread.h"
#include "psd/values/values.h"

struct shard;
struct shard_job;

struct shard_options {
    uint32_t index;
    struct budget *values; /* memory of variables */
    struct budget *grads;  /* memory of gradients being received */
};

struct shard *shard_new(const struct shard_options *options);
/* Ends a wait for buffers, runs what is posted, joins; what is posted later is refused. */
void shard_stop(struct shard *shard);
/* Stops it, if that was not done, and drops all jobs. Posters have stopped. */
void shard_free(struct shard *shard);
DEFINE_AUTO(shard)
struct task_thread *shard_thread(struct shard *shard);
struct task_thread *shard_file_thread(struct shard *shard);
uint32_t shard_index(const struct shard *shard);

/* ---- jobs ----------------------------------------------------------------------------------- */
/* Takes values over on success. Any thread. */
MUST_CHECK enum err_code shard_job_new(struct shard *shard, uint64_t job, uint64_t generation,
                                       const char *name, struct values *take_values,
                                       struct shard_job **ret_job, struct err *err);
void shard_job_free(struct shard_job *job); /* one that was not installed */
DEFINE_AUTO(shard_job)
/* Versions rise over generations, so that no cached copy of an older one is taken for new. */
uint64_t shard_first_version(uint64_t generation);
/* Any thread: ends waits on behalf of this job's older generations, whose pushes are refused from
 * now on. */
void shard_close_job(struct shard *shard, uint64_t job, uint64_t below_generation);
/* Of the job, not of one generation: they outlive a restore. */
struct shard_counters {
    uint64_t duplicates_refused, fenced;
};
/* Shard thread: frees what is older than `generation`, so that its memory can be used for that one.
 * *ret_is_here: this generation is installed already; *ret_was_older: one was freed. ERR_STALE: a
 * newer one is. */
MUST_CHECK enum err_code shard_retire(struct shard *shard, uint64_t job, uint64_t generation,
                                      struct shard_counters *ret_counters, bool *ret_is_here,
                                      bool *ret_was_older, struct err *err);
/* Shard thread. ERR_STALE: one is here; take_job stays with the caller. */
MUST_CHECK enum err_code shard_install(struct shard *shard, struct shard_job *take_job,
                                       const struct shard_counters *counters, struct err *err);
void shard_drop(struct shard *shard, uint64_t job); /* shard thread */
/* Shard thread. NULL with ERR_STALE or ERR_UNAVAILABLE. Valid until the task that asked returns. */
struct values *shard_values(struct shard *shard, uint64_t job, uint64_t generation,
                            struct err *err);

/* ---- reading, any thread
 * ------------------------------------------------------------------------- */
/* A reference to the newest values, or to those of a pin. */
MUST_CHECK enum err_code shard_pull(struct shard *shard, uint64_t job, uint64_t generation,
                                    uint64_t pin, struct buf **ret_values, uint64_t *ret_version,
                                    struct err *err);
struct shard_state {
    uint64_t job, generation, version, applied, bytes, duplicates_refused, fenced, marked;
    uint64_t repeated_applies;
    uint32_t groups;
};
/* Fills at most max entries; returns how many jobs there are. */
size_t shard_states(struct shard *shard, struct shard_state *states, size_t max);
/* false: no such job. Initialises *ret_marks: steps that all groups have seen. */
bool shard_marks(struct shard *shard, uint64_t job, struct ranges *ret_marks);

/* ---- orders, any thread
 * ---------------------------------------------------------------------------- */
MUST_CHECK enum err_code shard_prune(struct shard *shard, uint64_t job, uint64_t generation,
                                     uint64_t watermark, struct err *err);
/* Sessions of another ledger's coordinator mean nothing to the next one. */
void shard_forget_fences(struct shard *shard);
/* Again with the same number: keeps the first. Lets go of pins of earlier coordinators (a pin's
 * upper 32 bits are the coordinator's start number). ERR_FULL: LIMIT_PINS. */
MUST_CHECK enum err_code shard_pin(struct shard *shard, uint64_t job, uint64_t generation,
                                   uint64_t pin, struct err *err);
void shard_unpin(struct shard *shard, uint64_t job, uint64_t pin);
/* From now on pushes of this session are refused. True: none is being applied. False: one is, and
 * `after` will be run on the shard thread when it is done. */
bool shard_fence(struct shard *shard, uint64_t session, struct task *after);

/* ---- pushing
 * ----------------------------------------------------------------------------------------- */
struct shard_push {
    uint64_t job, generation, step, session, pulled_version;
    const struct buf *grads;
};
struct shard_push_result {
    bool is_done_before;
    uint64_t version;
    uint64_t staleness;
    uint64_t apply_ns; /* spent in the optimizer */
};
/* Any thread: would it be refused already? Sizes: ERR_INVALID names both. Returns the job's payload
 * size. */
MUST_CHECK enum err_code shard_push_check(struct shard *shard, const struct shard_push *push,
                                          uint64_t total_bytes, struct err *err);
/* Any thread: a buffer for the gradients of a checked push. */
MUST_CHECK enum err_code shard_push_buffer(struct shard *shard, const struct shard_push *push,
                                           struct buf **ret_grads, struct err *err);
/* Shard thread. */
MUST_CHECK enum err_code shard_apply(struct shard *shard, const struct shard_push *push,
                                     struct shard_push_result *ret_result, struct err *err);

#endif
