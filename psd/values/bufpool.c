/* SPDX-License-Identifier: Apache-2.0 */
/* bufpool: one free list a pool; what is mapped beyond a reservation is charged to the budget. */
#include "psd/values/bufpool.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "common/base/clock.h"

#define HUGE_PAGE     ((size_t)2 << 20)
#define SMALL_PAGE    ((size_t)4096)
#define LAST_BUFFER_S 10 /* far beyond the deadline of any slice */

struct budget {
    pthread_mutex_t lock; /* guards used and the list; before any pool's lock */
    uint64_t limit;
    bool is_soft;
    uint64_t used;
    struct bufpool *pools;
    pthread_cond_t emptied; /* of pools */
};

struct pool_buf {
    struct buf buf; /* first: a struct buf * is one of these */
    struct bufpool *pool;
    struct pool_buf *next; /* in the free list */
    uint32_t refs;         /* atomic */
    void *mapping;
    size_t mapping_bytes;
};

struct bufpool {
    struct budget *budget;
    struct bufpool *prev_in_budget, *next_in_budget;
    char *what;
    size_t bytes;
    size_t charge;        /* of one buffer */
    size_t reserved;      /* buffers paid for since the beginning */
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t released;
    struct pool_buf *idle;
    size_t mapped; /* idle and out */
    size_t out;
    size_t holders; /* the owner, and each buffer that is out */
    bool is_owned;
};

/* ---- budget --------------------------------------------------------------------------------- */
struct budget *budget_new(uint64_t limit_bytes, bool is_soft)
{
    struct budget *budget = base_alloc(sizeof(*budget));
    budget->limit = limit_bytes;
    budget->is_soft = is_soft;
    pthread_mutex_init(&budget->lock, NULL);
    pthread_cond_init(&budget->emptied, NULL);
    return budget;
}

void budget_free(struct budget *budget)
{
    if (!budget)
        return;
    pthread_mutex_lock(&budget->lock);
    while (budget->pools)
        if (pthread_cond_timedwait(&budget->emptied, &budget->lock,
                                   &(struct timespec){.tv_sec = time(NULL) + LAST_BUFFER_S}) != 0)
            break;
    ASSERT(!budget->pools); /* somebody forgot a reference */
    pthread_mutex_unlock(&budget->lock);
    pthread_cond_destroy(&budget->emptied);
    pthread_mutex_destroy(&budget->lock);
    free(budget);
}

uint64_t budget_limit(const struct budget *budget)
{
    return budget->limit;
}

uint64_t budget_used(struct budget *budget)
{
    pthread_mutex_lock(&budget->lock);
    uint64_t used = budget->used;
    pthread_mutex_unlock(&budget->lock);
    return used;
}

static void unmap(struct pool_buf *buf)
{
    peer_seal_end(&buf->buf.seal); /* a reader whose pull we gave up may still look here */
    munmap(buf->mapping, buf->mapping_bytes);
    free(buf);
}

/* Gives back idle buffers beyond the pools' reservations until `need` fits. Budget lock held. */
static void trim(struct budget *budget, uint64_t need)
{
    for (struct bufpool *pool = budget->pools; pool; pool = pool->next_in_budget) {
        pthread_mutex_lock(&pool->lock);
        while (pool->idle && pool->mapped > pool->reserved &&
               (budget->used > budget->limit || need > budget->limit - budget->used)) {
            struct pool_buf *buf = pool->idle;
            pool->idle = buf->next;
            pool->mapped--;
            budget->used -= pool->charge;
            unmap(buf);
        }
        pthread_mutex_unlock(&pool->lock);
    }
}

static bool take(struct budget *budget, uint64_t need)
{
    if (budget->used > budget->limit || need > budget->limit - budget->used)
        trim(budget, need);
    if (!budget->is_soft && (budget->used > budget->limit || need > budget->limit - budget->used))
        return false;
    budget->used += need;
    return true;
}

/* 0 when it does not fit. */
size_t bufpool_charge(size_t bytes)
{
    size_t page = bytes >= HUGE_PAGE ? HUGE_PAGE : SMALL_PAGE;
    size_t charge;
    if (__builtin_add_overflow(bytes ? bytes : 1, page - 1, &charge))
        return 0;
    return charge & ~(page - 1);
}

/* ---- pool ----------------------------------------------------------------------------------- */
enum err_code bufpool_new(struct budget *budget, const char *what, size_t bytes,
                          size_t reserved_count, struct bufpool **ret_pool, struct err *err)
{
    size_t charge = bufpool_charge(bytes);
    size_t total;
    if (charge == 0 || __builtin_mul_overflow(charge, reserved_count, &total))
        return err_set(err, ERR_NO_MEMORY, "%s: %zu buffers of %zu bytes", what, reserved_count,
                       bytes);

    pthread_mutex_lock(&budget->lock);
    if (!take(budget, total)) {
        uint64_t used = budget->used;
        pthread_mutex_unlock(&budget->lock);
        return err_set(err, ERR_NO_MEMORY,
                       "%s: memory budget: needed %zu bytes (%zu buffers of %zu), used %" PRIu64
                       " of %" PRIu64,
                       what, total, reserved_count, bytes, used, budget->limit);
    }
    struct bufpool *pool = base_alloc(sizeof(*pool));
    pool->budget = budget;
    pool->what = base_strdup(what);
    pool->bytes = bytes;
    pool->charge = charge;
    pool->reserved = reserved_count;
    pool->holders = 1;
    pool->is_owned = true;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&pool->released, &attr);
    pthread_condattr_destroy(&attr);
    pool->next_in_budget = budget->pools;
    if (budget->pools)
        budget->pools->prev_in_budget = pool;
    budget->pools = pool;
    pthread_mutex_unlock(&budget->lock);
    *ret_pool = pool;
    return ERR_OK;
}

/* The last holder is gone: nobody else can reach the pool but through the budget's list. */
static void pool_end(struct bufpool *pool)
{
    struct budget *budget = pool->budget;
    pthread_mutex_lock(&budget->lock);
    if (pool->prev_in_budget)
        pool->prev_in_budget->next_in_budget = pool->next_in_budget;
    else
        budget->pools = pool->next_in_budget;
    if (pool->next_in_budget)
        pool->next_in_budget->prev_in_budget = pool->prev_in_budget;
    budget->used -= MAX(pool->mapped, pool->reserved) * pool->charge;
    while (pool->idle) { /* before the budget says that there is room */
        struct pool_buf *buf = pool->idle;
        pool->idle = buf->next;
        unmap(buf);
    }
    if (!budget->pools)
        pthread_cond_signal(&budget->emptied);
    pthread_mutex_unlock(&budget->lock);
    pthread_cond_destroy(&pool->released);
    pthread_mutex_destroy(&pool->lock);
    free(pool->what);
    free(pool);
}

void bufpool_free(struct bufpool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    ASSERT(pool->is_owned);
    pool->is_owned = false;
    bool is_last = --pool->holders == 0;
    pthread_mutex_unlock(&pool->lock);
    if (is_last)
        pool_end(pool);
}

static enum err_code map_new(struct bufpool *pool, struct pool_buf **ret_buf, struct err *err)
{
    bool is_huge = pool->charge >= HUGE_PAGE;
    size_t mapping_bytes = pool->charge + (is_huge ? HUGE_PAGE : 0); /* room to align */
    void *mapping =
        mmap(NULL, mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED)
        return err_from_errno(err, errno, "%s: map %zu bytes", pool->what, mapping_bytes);
    struct pool_buf *buf = base_alloc(sizeof(*buf));
    buf->pool = pool;
    buf->mapping = mapping;
    buf->mapping_bytes = mapping_bytes;
    char *start = mapping;
    if (is_huge) {
        start += -(uintptr_t)mapping & (HUGE_PAGE - 1); /* to the next border */
        madvise(start, pool->charge, MADV_HUGEPAGE);    /* a wish; small pages work too */
    }
    buf->buf.data = start;
    buf->buf.bytes = pool->bytes;
    peer_seal_init(&buf->buf.seal);
    *ret_buf = buf;
    return ERR_OK;
}

enum err_code bufpool_get(struct bufpool *pool, struct buf **ret_buf, struct err *err)
{
    struct pool_buf *buf = NULL;
    pthread_mutex_lock(&pool->lock);
    bool is_paid = pool->mapped < pool->reserved;
    if (pool->idle) {
        buf = pool->idle;
        pool->idle = buf->next;
    } else if (is_paid) {
        pool->mapped++;
    }
    pool->out++;
    pool->holders++;
    pthread_mutex_unlock(&pool->lock);

    enum err_code code = ERR_OK;
    if (!buf) {
        if (!is_paid) {
            struct budget *budget = pool->budget;
            pthread_mutex_lock(&budget->lock);
            bool is_taken = take(budget, pool->charge);
            if (is_taken) {
                pthread_mutex_lock(&pool->lock);
                pool->mapped++;
                pthread_mutex_unlock(&pool->lock);
            }
            pthread_mutex_unlock(&budget->lock);
            if (!is_taken)
                code = err_set(err, ERR_FULL,
                               "%s: all buffers of %zu bytes are held and the budget of %" PRIu64
                               " bytes is spent",
                               pool->what, pool->bytes, budget->limit);
        }
        if (code == ERR_OK) {
            code = map_new(pool, &buf, err);
            if (code != ERR_OK) {
                struct budget *budget = pool->budget;
                pthread_mutex_lock(&budget->lock);
                pthread_mutex_lock(&pool->lock);
                if (pool->mapped-- > pool->reserved)
                    budget->used -= pool->charge;
                pthread_mutex_unlock(&pool->lock);
                pthread_mutex_unlock(&budget->lock);
            }
        }
        if (code != ERR_OK) {
            pthread_mutex_lock(&pool->lock);
            pool->out--;
            pool->holders--; /* the owner is calling, so this is not the last */
            pthread_mutex_unlock(&pool->lock);
            return code;
        }
    }
    peer_seal_break(&buf->buf.seal); /* the caller writes */
    __atomic_store_n(&buf->refs, 1, __ATOMIC_RELAXED);
    *ret_buf = &buf->buf;
    return ERR_OK;
}

void bufpool_wait(struct bufpool *pool, uint64_t deadline_ns)
{
    struct timespec ts = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
                          .tv_nsec = (long)(deadline_ns % NS_PER_S)};
    pthread_mutex_lock(&pool->lock);
    while (!pool->idle)
        if (pthread_cond_timedwait(&pool->released, &pool->lock, &ts) != 0)
            break;
    pthread_mutex_unlock(&pool->lock);
}

size_t bufpool_out_count(struct bufpool *pool)
{
    pthread_mutex_lock(&pool->lock);
    size_t out = pool->out;
    pthread_mutex_unlock(&pool->lock);
    return out;
}

/* ---- buffers -------------------------------------------------------------------------------- */
struct buf *buf_ref(struct buf *buf)
{
    __atomic_add_fetch(&((struct pool_buf *)buf)->refs, 1, __ATOMIC_RELAXED);
    return buf;
}

void buf_unref(struct buf *ref)
{
    if (!ref)
        return;
    struct pool_buf *buf = (struct pool_buf *)ref;
    if (__atomic_sub_fetch(&buf->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    struct bufpool *pool = buf->pool;
    pthread_mutex_lock(&pool->lock);
    buf->next = pool->idle;
    pool->idle = buf;
    pool->out--;
    bool is_last = --pool->holders == 0;
    pthread_cond_signal(&pool->released);
    pthread_mutex_unlock(&pool->lock);
    if (is_last)
        pool_end(pool);
}
