/* SPDX-License-Identifier: Apache-2.0 */
/* bufpool: counted buffers of one size, and the memory budget that all pools of a daemon share.
 *
 * A buffer is anonymous memory, in huge pages from 2 MiB on (a first touch of a small page costs
 * microseconds, so what was touched once is kept). A pool reserves some buffers when it is made:
 * those can always be had. More are made while the budget has room; idle ones beyond the
 * reservation go back when another pool is short.
 *
 * Owns    the holder of a reference to a struct buf may read it; who holds the only one may write
 *         it. A pool lives until its owner and every buffer let go of it.
 * Thread  any. Locks: budget, then pool; both are leaves for everybody else.
 * Units   bytes; what is charged is the rounded size.
 * Errors  ERR_NO_MEMORY from bufpool_new: needed, used and budget are in the text. ERR_FULL from
 *         bufpool_get: all buffers are held and the budget is spent; bufpool_wait sleeps until one
 *         comes back.
 */
#ifndef PSD_VALUES_BUFPOOL_H
#define PSD_VALUES_BUFPOOL_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/base/peer_memory.h"

struct budget;
struct bufpool;

struct buf {
    void *data;            /* 64-byte aligned, never NULL */
    size_t bytes;          /* as asked for */
    struct peer_seal seal; /* broken when the buffer goes to its next user */
};

/* A soft budget never refuses: over the limit it only takes idle buffers back, because who uses it
 * is bounded elsewhere (push_gate). */
struct budget *budget_new(uint64_t limit_bytes, bool is_soft);
/* All pools are freed; waits for the buffers that are still out (gRPC lets go of them a little
 * later than of their call). */
void budget_free(struct budget *budget);
DEFINE_AUTO(budget)
uint64_t budget_used(struct budget *budget);
uint64_t budget_limit(const struct budget *budget);

/* what names the pool in errors ("job 7 shard 0"). */
MUST_CHECK enum err_code bufpool_new(struct budget *budget, const char *what, size_t bytes,
                                     size_t reserved_count, struct bufpool **ret_pool,
                                     struct err *err);
void bufpool_free(struct bufpool *pool); /* the owner lets go; buffers may be out still */
DEFINE_AUTO(bufpool)
MUST_CHECK enum err_code bufpool_get(struct bufpool *pool, struct buf **ret_buf, struct err *err);
/* Until a buffer comes back to this pool, or deadline_ns. */
void bufpool_wait(struct bufpool *pool, uint64_t deadline_ns);
size_t bufpool_out_count(struct bufpool *pool); /* buffers that somebody holds */

size_t bufpool_charge(size_t bytes); /* what one buffer of that size costs */

struct buf *buf_ref(struct buf *buf);
void buf_unref(struct buf *buf); /* NULL is fine; never blocks for long; any thread */

#endif
