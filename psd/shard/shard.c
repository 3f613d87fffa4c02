/* SPDX-License-Identifier: Apache-2.0 */
/* shard: the jobs of one shard thread, and the lock under which others look at them.
 *
 *   shard_job_new -> shard_install -> (shard_apply)* -> shard_drop,
 *   or replaced by a newer generation
 *
 * Only the shard thread changes the list, the values and their history, and does it under the lock,
 * so it reads them without. Others change pins, watermark, closing and fences, under the lock too.
 */
#include "psd/shard/shard.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#define WAIT_PIECE_NS                                                                              \
    (50 * NS_PER_MS) /* of a wait for a buffer: a fence or drop is seen within it */
#define WAIT_LOG_NS      (5 * NS_PER_S)
#define NONFINITE_LOG_NS (10 * NS_PER_S)

struct pin {
    uint64_t pin;
    uint64_t version;
    struct buf *buf;
};

struct shard_job {
    uint64_t job;
    uint64_t generation;
    char *name;
    struct values *values;
    struct bufpool *grads;
    struct pin pins[LIMIT_PINS];
    size_t pin_count;
    uint64_t watermark; /* all steps below are acknowledged */
    uint64_t duplicates_refused;
    uint64_t fenced;
    bool is_closing;
    struct log_limit nonfinite_limit; /* shard thread */
    struct shard_job *next;
};

struct shard {
    uint32_t index;
    struct budget *values_budget;
    struct budget *grads_budget;
    pthread_mutex_t lock; /* guards all below; taken before a pool's lock, after a push's */
    struct shard_job *jobs;
    struct ranges fenced; /* sessions */
    bool is_applying;     /* the shard thread changes slots for applying_session */
    uint64_t applying_session;
    struct task *after_apply; /* linked by msg.next */
    bool is_stopping;
    struct task_thread *thread;
    struct task_thread *file_thread;
};

static void lock(struct shard *shard)
{
    pthread_mutex_lock(&shard->lock);
}

static void unlock(struct shard *shard)
{
    pthread_mutex_unlock(&shard->lock);
}

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
    lock(shard);
    shard->is_stopping = true;
    unlock(shard);
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

/* ---- jobs ----------------------------------------------------------------------------------- */
static struct shard_job *find(struct shard *shard, uint64_t job)
{
    struct shard_job *it = shard->jobs;
    while (it && it->job != job)
        it = it->next;
    return it;
}

/* Lock held, or on the shard thread. NULL with the reason. */
static struct shard_job *find_generation(struct shard *shard, uint64_t job, uint64_t generation,
                                         struct err *err)
{
    struct shard_job *it = find(shard, job);
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
    lock(shard);
    struct shard_job *it = find(shard, job);
    if (it && it->generation < below_generation)
        it->is_closing = true;
    unlock(shard);
}

/* Shard thread. */
static struct shard_job *unlink_job(struct shard *shard, uint64_t job)
{
    lock(shard);
    struct shard_job **at = &shard->jobs;
    while (*at && (*at)->job != job)
        at = &(*at)->next;
    struct shard_job *it = *at;
    if (it)
        *at = it->next;
    unlock(shard);
    return it;
}

enum err_code shard_retire(struct shard *shard, uint64_t job, uint64_t generation,
                           struct shard_counters *ret_counters, bool *ret_is_here,
                           bool *ret_was_older, struct err *err)
{
    struct shard_job *old = find(shard, job);
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
    const struct shard_job *old = find(shard, take_job->job);
    if (old)
        return err_set(err, ERR_STALE,
                       "shard %u: job %" PRIu64 ": generation %" PRIu64
                       " is here, not replaced by %" PRIu64,
                       shard->index, take_job->job, old->generation, take_job->generation);
    take_job->fenced = counters->fenced;
    take_job->duplicates_refused = counters->duplicates_refused;
    lock(shard);
    take_job->next = shard->jobs;
    shard->jobs = take_job;
    unlock(shard);
    return ERR_OK;
}

void shard_drop(struct shard *shard, uint64_t job)
{
    shard_job_free(unlink_job(shard, job));
}

struct values *shard_values(struct shard *shard, uint64_t job, uint64_t generation, struct err *err)
{
    lock(shard);
    struct shard_job *it = find_generation(shard, job, generation, err);
    unlock(shard);
    return it ? it->values : NULL;
}

/* ---- reading -------------------------------------------------------------------------------- */
enum err_code shard_pull(struct shard *shard, uint64_t job, uint64_t generation, uint64_t pin,
                         struct buf **ret_values, uint64_t *ret_version, struct err *err)
{
    struct err why = {0};
    lock(shard);
    struct shard_job *it = find_generation(shard, job, generation, &why);
    if (it && pin == 0) {
        *ret_values = buf_ref(it->values->now);
        *ret_version = it->values->version;
    } else if (it) {
        size_t i = 0;
        while (i < it->pin_count && it->pins[i].pin != pin)
            i++;
        if (i < it->pin_count) {
            *ret_values = buf_ref(it->pins[i].buf);
            *ret_version = it->pins[i].version;
        } else {
            err_set(&why, ERR_NOT_FOUND, "shard %u: job %" PRIu64 " has no pin %" PRIu64,
                    shard->index, job, pin);
        }
    }
    unlock(shard);
    return why.code == ERR_OK ? ERR_OK : err_set(err, why.code, "%s", why.text);
}

size_t shard_states(struct shard *shard, struct shard_state *states, size_t max)
{
    size_t count = 0;
    lock(shard);
    for (struct shard_job *it = shard->jobs; it; it = it->next, count++) {
        if (count >= max)
            continue;
        const struct values *values = it->values;
        struct ranges marks;
        ranges_init(&marks);
        values_common_marks(values, &marks);
        states[count] =
            (struct shard_state){.job = it->job,
                                 .generation = it->generation,
                                 .version = values->version,
                                 .applied = values_applied(values),
                                 .bytes = values_bytes(values) * (1 + values->optim->slot_count),
                                 .duplicates_refused = it->duplicates_refused,
                                 .fenced = it->fenced,
                                 .marked = ranges_total(&marks),
                                 .repeated_applies = values_repeated(values),
                                 .groups = (uint32_t)values->group_count};
        ranges_done(&marks);
    }
    unlock(shard);
    return count;
}

bool shard_marks(struct shard *shard, uint64_t job, struct ranges *ret_marks)
{
    lock(shard);
    struct shard_job *it = find(shard, job);
    if (it) {
        ranges_init(ret_marks);
        values_common_marks(it->values, ret_marks);
    }
    unlock(shard);
    return it != NULL;
}

/* ---- orders --------------------------------------------------------------------------------- */
enum err_code shard_prune(struct shard *shard, uint64_t job, uint64_t generation,
                          uint64_t watermark, struct err *err)
{
    struct err why = {0};
    lock(shard);
    struct shard_job *it = find_generation(shard, job, generation, &why);
    if (it)
        it->watermark = MAX(it->watermark, watermark);
    unlock(shard);
    return it ? ERR_OK : err_set(err, why.code, "%s", why.text);
}

/* Pins of a coordinator that died: nobody will let go of them. Its start number is a pin's upper
 * half. */
static size_t take_dead_pins(struct shard_job *it, uint64_t pin, struct buf **ret_dead)
{
    size_t dead = 0;
    for (size_t i = it->pin_count; i-- > 0;) {
        if (it->pins[i].pin >> 32 >= pin >> 32)
            continue;
        ret_dead[dead++] = it->pins[i].buf;
        it->pins[i] = it->pins[--it->pin_count];
    }
    return dead;
}

enum err_code shard_pin(struct shard *shard, uint64_t job, uint64_t generation, uint64_t pin,
                        struct err *err)
{
    struct err why = {0};
    struct buf *dead[LIMIT_PINS];
    size_t dead_count = 0;
    if (pin == 0)
        return err_set(err, ERR_INVALID, "pin 0, want 1 or more (0 reads the newest)");
    lock(shard);
    struct shard_job *it = find_generation(shard, job, generation, &why);
    if (it) {
        dead_count = take_dead_pins(it, pin, dead);
        size_t i = 0;
        while (i < it->pin_count && it->pins[i].pin != pin)
            i++;
        if (i == LIMIT_PINS)
            err_set(&why, ERR_FULL, "shard %u: job %" PRIu64 " has %d pins, the most there can be",
                    shard->index, job, LIMIT_PINS);
        else if (i == it->pin_count)
            it->pins[it->pin_count++] = (struct pin){
                .pin = pin, .version = it->values->version, .buf = buf_ref(it->values->now)};
    }
    unlock(shard);
    while (dead_count > 0)
        buf_unref(dead[--dead_count]);
    return why.code == ERR_OK ? ERR_OK : err_set(err, why.code, "%s", why.text);
}

void shard_unpin(struct shard *shard, uint64_t job, uint64_t pin)
{
    struct buf *buf = NULL;
    lock(shard);
    struct shard_job *it = find(shard, job);
    for (size_t i = 0; it && i < it->pin_count; i++) {
        if (it->pins[i].pin == pin) {
            buf = it->pins[i].buf;
            it->pins[i] = it->pins[--it->pin_count];
            break;
        }
    }
    unlock(shard);
    buf_unref(buf);
}

void shard_forget_fences(struct shard *shard)
{
    lock(shard);
    ranges_clear(&shard->fenced);
    unlock(shard);
}

bool shard_fence(struct shard *shard, uint64_t session, struct task *after)
{
    lock(shard);
    ranges_add(&shard->fenced, session);
    if (shard->fenced.count > LIMIT_RANGES) { /* sessions rise: the lowest are long gone */
        shard->fenced.items[1].first = shard->fenced.items[0].first;
        ranges_add_range(&shard->fenced, shard->fenced.items[0].first, shard->fenced.items[1].last);
    }
    bool is_applying = shard->is_applying && shard->applying_session == session;
    if (is_applying) {
        after->msg.next = shard->after_apply ? &shard->after_apply->msg : NULL;
        shard->after_apply = after;
    }
    unlock(shard);
    return !is_applying;
}

/* ---- pushing -------------------------------------------------------------------------------- */
/* Lock held. A refusal is counted here. */
static struct shard_job *admit(struct shard *shard, const struct shard_push *push, struct err *err)
{
    struct shard_job *it = find_generation(shard, push->job, push->generation, err);
    if (it && ranges_has(&shard->fenced, push->session)) {
        err_set(err, ERR_STALE, "shard %u: session %" PRIu64 " was fenced: its worker was given up",
                shard->index, push->session);
        it->fenced++;
        return NULL;
    }
    if (!it && err->code == ERR_STALE) {
        struct shard_job *newer = find(shard, push->job);
        if (newer)
            newer->fenced++;
    }
    return it;
}

enum err_code shard_push_check(struct shard *shard, const struct shard_push *push,
                               uint64_t total_bytes, struct err *err)
{
    struct err why = {0};
    lock(shard);
    struct shard_job *it = admit(shard, push, &why);
    if (it && total_bytes != values_bytes(it->values))
        err_set(&why, ERR_INVALID,
                "shard %u: job %" PRIu64 ": gradients of %" PRIu64 " bytes, want %" PRIu64,
                shard->index, push->job, total_bytes, values_bytes(it->values));
    else if (it && push->step >= LIMIT_STEPS)
        err_set(&why, ERR_INVALID,
                "shard %u: job %" PRIu64 ": step %" PRIu64 ", want less than 2^48", shard->index,
                push->job, push->step);
    unlock(shard);
    return why.code == ERR_OK ? ERR_OK : err_set(err, why.code, "%s", why.text);
}

enum err_code shard_push_buffer(struct shard *shard, const struct shard_push *push,
                                struct buf **ret_grads, struct err *err)
{
    struct err why = {0};
    lock(shard);
    struct shard_job *it = find_generation(shard, push->job, push->generation, &why);
    if (it)
        (void)!bufpool_get(it->grads, ret_grads, &why);
    unlock(shard);
    return why.code == ERR_OK ? ERR_OK : err_set(err, why.code, "%s", why.text);
}

/* A buffer for the next values, waiting while readers hold them all. The job stays valid: only this
 * thread removes one. */
static enum err_code next_buffer(struct shard *shard, const struct shard_push *push,
                                 struct shard_job *it, struct buf **ret_next, struct err *err)
{
    uint64_t start = clock_now_ns();
    uint64_t log_at = start + WAIT_LOG_NS;
    for (;;) {
        enum err_code code = bufpool_get(it->values->pool, ret_next, err);
        if (code != ERR_FULL)
            return code;
        uint64_t now = clock_now_ns();
        if (now >= log_at) {
            log_warn("update.waits",
                     "job=%s shard=%u step=%" PRIu64 " s=%.1f held=%zu pins=%zu for=readers",
                     it->name, shard->index, push->step, (double)(now - start) / 1e9,
                     bufpool_out_count(it->values->pool), it->pin_count);
            log_at = now + WAIT_LOG_NS;
        }
        bufpool_wait(it->values->pool, now + WAIT_PIECE_NS);
        struct err why = {0};
        lock(shard);
        bool is_stopping = shard->is_stopping;
        bool is_admitted = admit(shard, push, &why) != NULL;
        unlock(shard);
        if (is_stopping)
            return err_set(err, ERR_CANCELLED, "shard %u: stopping", shard->index);
        if (!is_admitted)
            return err_set(err, why.code, "%s", why.text);
    }
}

static void run_after_apply(struct shard *shard)
{
    lock(shard);
    shard->is_applying = false;
    struct task *list = TAKE(shard->after_apply);
    unlock(shard);
    while (list) {
        struct task *task = list;
        list = task->msg.next ? CONTAINER_OF(task->msg.next, struct task, msg) : NULL;
        task->run(task);
    }
}

enum err_code shard_apply(struct shard *shard, const struct shard_push *push,
                          struct shard_push_result *ret_result, struct err *err)
{
    struct err why = {0};
    lock(shard);
    struct shard_job *it = admit(shard, push, &why);
    struct values *values = it ? it->values : NULL;
    bool is_done = it && (push->step < it->watermark || !values_lacks(values, push->step));
    if (is_done) {
        it->duplicates_refused++;
        *ret_result =
            (struct shard_push_result){.is_done_before = true, .version = values->version};
    }
    unlock(shard);
    if (!it)
        return err_set(err, why.code, "%s", why.text);
    if (is_done)
        return ERR_OK;
    ASSERT(push->grads->bytes == values_bytes(values));
    for (size_t i = 0; i < values->group_count; i++)
        if (values->groups[i].marks.count >= LIMIT_RANGES)
            return err_set(err, ERR_FULL,
                           "shard %u: job %s: marks in %d ranges, the most there can be",
                           shard->index, it->name, LIMIT_RANGES);

    struct buf *next = NULL;
    enum err_code code = next_buffer(shard, push, it, &next, err);
    if (code != ERR_OK)
        return code;
    lock(shard);
    bool is_admitted = admit(shard, push, &why) == it;
    if (is_admitted) {
        shard->is_applying = true;
        shard->applying_session = push->session;
    }
    unlock(shard);
    if (!is_admitted) {
        buf_unref(next);
        return err_set(err, why.code, "%s", why.text);
    }

    int64_t bad_slice;
    values_compute(values, push->step, push->grads->data, next->data, &bad_slice);
    lock(shard);
    uint64_t before = values->version;
    uint64_t pulled = MAX(push->pulled_version, shard_first_version(it->generation));
    struct buf *old = values_commit(values, push->step, next);
    *ret_result = (struct shard_push_result){.version = values->version,
                                             .staleness = before > pulled ? before - pulled : 0};
    unlock(shard);
    buf_unref(old);
    run_after_apply(shard);

    uint64_t dropped;
    if (bad_slice >= 0 && log_limit_pass(&it->nonfinite_limit, NONFINITE_LOG_NS, &dropped))
        log_warn("gradient.nonfinite",
                 "job=%s shard=%u step=%" PRIu64 " var=%s applied=as_it_is more=%" PRIu64, it->name,
                 shard->index, push->step, values->layout->slices[bad_slice].name, dropped);
    return ERR_OK;
}
