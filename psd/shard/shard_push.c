/* SPDX-License-Identifier: Apache-2.0 */
/* shard_push: which pushes are let in, what the rule is offered to apply them with,
 * and the fences. */
#include <inttypes.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "psd/shard/shard_int.h"

#define WAIT_PIECE_NS                                                                              \
    (50 * NS_PER_MS) /* of a wait for a buffer: a fence or drop is seen within it */
#define WAIT_LOG_NS      (5 * NS_PER_S)
#define NONFINITE_LOG_NS (10 * NS_PER_S)

void shard_forget_fences(struct shard *shard)
{
    shard_lock(shard);
    ranges_clear(&shard->fenced);
    shard_unlock(shard);
}

bool shard_fence(struct shard *shard, uint64_t session, struct task *after)
{
    shard_lock(shard);
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
    shard_unlock(shard);
    return !is_applying;
}

/* Lock held. A refusal is counted here. */
static struct shard_job *admit(struct shard *shard, const struct shard_push *push, struct err *err)
{
    struct shard_job *it = shard_find_generation(shard, push->job, push->generation, err);
    if (it && ranges_has(&shard->fenced, push->session)) {
        err_set(err, ERR_STALE, "shard %u: session %" PRIu64 " was fenced: its worker was given up",
                shard->index, push->session);
        it->fenced++;
        return NULL;
    }
    if (!it && err->code == ERR_STALE) {
        struct shard_job *newer = shard_find(shard, push->job);
        if (newer)
            newer->fenced++;
    }
    return it;
}

enum err_code shard_push_check(struct shard *shard, const struct shard_push *push,
                               uint64_t total_bytes, struct err *err)
{
    struct err why = {0};
    shard_lock(shard);
    struct shard_job *it = admit(shard, push, &why);
    if (it && total_bytes != values_bytes(it->values))
        err_set(&why, ERR_INVALID,
                "shard %u: job %" PRIu64 ": gradients of %" PRIu64 " bytes, want %" PRIu64,
                shard->index, push->job, total_bytes, values_bytes(it->values));
    else if (it && push->step >= LIMIT_STEPS)
        err_set(&why, ERR_INVALID,
                "shard %u: job %" PRIu64 ": step %" PRIu64 ", want less than 2^48", shard->index,
                push->job, push->step);
    shard_unlock(shard);
    return why.code == ERR_OK ? ERR_OK : err_set(err, why.code, "%s", why.text);
}

enum err_code shard_push_buffer(struct shard *shard, const struct shard_push *push,
                                struct buf **ret_grads, struct err *err)
{
    struct err why = {0};
    shard_lock(shard);
    struct shard_job *it = shard_find_generation(shard, push->job, push->generation, &why);
    if (it)
        (void)!bufpool_get(it->grads, ret_grads, &why);
    shard_unlock(shard);
    return why.code == ERR_OK ? ERR_OK : err_set(err, why.code, "%s", why.text);
}

struct applying { /* a push that the rule works on */
    struct update update;
    struct shard *shard;
    const struct shard_push *push;
    struct shard_job *job; /* valid throughout: only this thread removes one */
    struct shard_push_result *result;
    uint64_t begun_ns; /* when the rule got its buffer */
};

/* A buffer for the next values, waiting while readers hold them all, or while the system has no
 * memory for one more. */
static enum err_code wait_for_buffer(struct applying *applying, struct buf **ret_next,
                                     struct err *err)
{
    struct shard *shard = applying->shard;
    struct bufpool *pool = applying->job->values->pool;
    uint64_t start = clock_now_ns();
    uint64_t log_at = start + WAIT_LOG_NS;
    for (;;) {
        enum err_code code = bufpool_get(pool, ret_next, err);
        if (code != ERR_FULL && code != ERR_NO_MEMORY)
            return code;
        uint64_t now = clock_now_ns();
        if (now >= log_at) {
            log_warn("update.waits",
                     "job=%s shard=%u step=%" PRIu64 " s=%.1f held=%zu pins=%zu for=%s",
                     applying->job->name, shard->index, applying->push->step,
                     (double)(now - start) / 1e9, bufpool_out_count(pool), applying->job->pin_count,
                     code == ERR_FULL ? "readers" : "memory");
            log_at = now + WAIT_LOG_NS;
        }
        bufpool_wait(pool, now + WAIT_PIECE_NS);
        struct err why = {0};
        shard_lock(shard);
        bool is_stopping = shard->is_stopping;
        bool is_admitted = admit(shard, applying->push, &why) != NULL;
        shard_unlock(shard);
        if (is_stopping)
            return err_set(err, ERR_CANCELLED, "shard %u: stopping", shard->index);
        if (!is_admitted)
            return err_set(err, why.code, "%s", why.text);
    }
}

/* update_shard.next */
static enum err_code next_buffer(struct update *update, struct buf **ret_next, struct err *err)
{
    struct applying *applying = CONTAINER_OF(update, struct applying, update);
    struct shard *shard = applying->shard;
    enum err_code code = wait_for_buffer(applying, ret_next, err);
    if (code != ERR_OK)
        return code;
    struct err why = {0};
    shard_lock(shard);
    bool is_admitted = admit(shard, applying->push, &why) == applying->job;
    if (is_admitted) {
        shard->is_applying = true;
        shard->applying_session = applying->push->session;
    }
    shard_unlock(shard);
    applying->begun_ns = clock_now_ns();
    if (is_admitted)
        return ERR_OK;
    buf_unref(TAKE(*ret_next));
    return err_set(err, why.code, "%s", why.text);
}

static void run_after_apply(struct shard *shard)
{
    shard_lock(shard);
    shard->is_applying = false;
    struct task *list = TAKE(shard->after_apply);
    shard_unlock(shard);
    while (list) {
        struct task *task = list;
        list = task->msg.next ? CONTAINER_OF(task->msg.next, struct task, msg) : NULL;
        task->run(task);
    }
}

/* update_shard.commit */
static void commit(struct update *update, struct buf *take_next)
{
    struct applying *applying = CONTAINER_OF(update, struct applying, update);
    struct values *values = update->values;
    uint64_t first = shard_first_version(applying->job->generation);
    uint64_t pulled = MAX(applying->push->pulled_version, first);
    shard_lock(applying->shard);
    uint64_t before = values->version;
    struct buf *old = values_commit(values, update->step, take_next);
    *applying->result =
        (struct shard_push_result){.version = values->version,
                                   .staleness = before > pulled ? before - pulled : 0,
                                   .apply_ns = clock_now_ns() - applying->begun_ns};
    shard_unlock(applying->shard);
    buf_unref(old);
    run_after_apply(applying->shard);
}

/* The job, or NULL with the reason, or NULL with ERR_OK: nothing is left to do. */
static struct shard_job *look(struct shard *shard, const struct shard_push *push,
                              struct shard_push_result *ret_result, struct err *ret_why)
{
    shard_lock(shard);
    struct shard_job *it = admit(shard, push, ret_why);
    if (it && (push->step < it->watermark || !values_lacks(it->values, push->step))) {
        it->duplicates_refused++;
        *ret_result =
            (struct shard_push_result){.is_done_before = true, .version = it->values->version};
        it = NULL;
    }
    shard_unlock(shard);
    return it;
}

enum err_code shard_apply(struct shard *shard, const struct shard_push *push,
                          struct shard_push_result *ret_result, struct err *err)
{
    static const struct update_shard offers = {.next = next_buffer, .commit = commit};
    struct err why = {0};
    struct shard_job *it = look(shard, push, ret_result, &why);
    if (!it)
        return why.code == ERR_OK ? ERR_OK : err_set(err, why.code, "%s", why.text);
    struct values *values = it->values;
    ASSERT(push->grads->bytes == values_bytes(values));
    for (size_t i = 0; i < values->group_count; i++)
        if (values->groups[i].marks.count >= LIMIT_RANGES)
            return err_set(err, ERR_FULL,
                           "shard %u: job %s: marks in %d ranges, the most there can be",
                           shard->index, it->name, LIMIT_RANGES);

    struct applying applying = {.update = {.shard = &offers,
                                           .values = values,
                                           .step = push->step,
                                           .grads = push->grads->data,
                                           .bad_slice = -1},
                                .shard = shard,
                                .push = push,
                                .job = it,
                                .result = ret_result};
    enum err_code code = it->rule->contribute(&applying.update, err);
    if (code != ERR_OK)
        return code;
    int64_t bad = applying.update.bad_slice;
    uint64_t dropped;
    if (bad >= 0 && log_limit_pass(&it->nonfinite_limit, NONFINITE_LOG_NS, &dropped))
        log_warn("gradient.nonfinite",
                 "job=%s shard=%u step=%" PRIu64 " var=%s applied=as_it_is more=%" PRIu64, it->name,
                 shard->index, push->step, values->layout->slices[bad].name, dropped);
    return ERR_OK;
}
