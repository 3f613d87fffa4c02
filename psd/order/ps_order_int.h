/* SPDX-License-Identifier: Apache-2.0 */
/* ps_order_int: orders, their parts and the jobs held, shared by the files of this room. From the
 * bottom up:
 *
 *   ps_order_part.c, ps_held.c, ps_wire.c                        know no kind of order
 *   ps_order_short.c, ps_order_create.c, ps_order_snapshot.c     one kind or a few; not each other
 *   ps_order.c                                                   queue, answers
 *
 * A part is what one shard does for one order. It moves between the loop, the shard thread and the
 * file thread, and belongs to one of them at a time; what it points to moves with it.
 */
#ifndef PSD_ORDER_PS_ORDER_INT_H
#define PSD_ORDER_PS_ORDER_INT_H

#include "common/base/limits.h"
#include "common/spec/job_spec.h"
#include "psd/order/ps_order.h"
#include "psd/values/snapshot.h"

#define PS_ORDER_ANSWERS 64 /* as many as a coordinator has open at once, several times over */

struct order {
    uint64_t start;
    uint64_t number;
    uint64_t job;                        /* 0: none (fence) */
    Steadfast__V1__ServerOrder *message; /* own copy */
    struct order *next;                  /* of all orders, in the order of arrival */
    bool is_begun;
    /* ps_order_part.c */
    size_t parts;   /* not ended yet; one is the beginning itself */
    struct err err; /* the first failure */
    bool is_ended;  /* to be answered */
    /* ps_order_snapshot.c */
    bool is_released; /* the next order of the job may begin */
    size_t copies;    /* not made yet */
    Steadfast__V1__CkptFile **files;
    size_t file_count;
};

struct held_job { /* what was created here and not dropped */
    uint64_t job;
    uint64_t generation;
    char *name;
    uint32_t server; /* our position in its plan */
    bool has_slices[LIMIT_SHARDS_PER_SERVER];
    struct held_job *next;
};

struct answer {
    uint64_t start;
    uint64_t number;
    void *packed;
    size_t bytes;
};

struct ps_orders {
    struct ps_order_env env;                /* fixed */
    void (*turn)(struct ps_orders *orders); /* fixed: ps_order.c; answers and begins what is due */
    struct held_job *jobs;                  /* ps_held.c; ps_order_create.c adds */
    size_t parts_out;                       /* ps_order_part.c: not freed yet */
    /* ps_order.c */
    struct order *orders;
    size_t order_count;
    bool is_turning; /* turn is at work further up */
    bool is_stopping;
    struct answer answers[PS_ORDER_ANSWERS];
    size_t next_answer;
};

struct part {
    struct task task; /* first member */
    struct ps_orders *orders;
    struct order *order; /* NULL: a drop that nobody asked for by order */
    struct shard *shard;
    void (*then)(struct part *part); /* on the loop */
    struct err err;
    uint64_t job;
    uint64_t generation;
    /* create */
    char *name;
    char *restore_directory; /* NULL: initial values */
    struct slice_layout *layout;
    struct job_spec *spec;
    struct shard_counters counters;
    bool has_retired; /* an older generation, whose memory may be held by readers still */
    struct shard_job *made;
    /* snapshot */
    char *directory;
    struct snapshot *snapshot;
    char *file_name;
    uint64_t bytes;
    uint32_t crc;
};

/* ---- ps_order_part.c ---- */
struct part *ps_part_new(struct ps_orders *orders, struct order *order, uint32_t shard,
                         uint64_t job, uint64_t generation);
void ps_part_free(struct part *part); /* loop: one that was not on its way yet */
/* Loop: the part has ended, with part->err; frees it, and with the last one its order ends. */
void ps_part_ended(struct part *part);
/* Loop: a part of the order, or its beginning, has ended; err NULL or ERR_OK: well. */
void ps_order_part_ended(struct ps_orders *orders, struct order *order, const struct err *err);
/* Any thread: goes on with then on the loop. */
void ps_part_to_loop(struct part *part, void (*then)(struct part *part));
/* Any thread: goes on with run on that thread; when that refuses (full, stopping), with then on the
 * loop, and the reason in part->err. */
void ps_part_to_thread(struct part *part, struct task_thread *thread,
                       void (*run)(struct task *task), void (*then)(struct part *part));
void ps_part_drop(struct task *task); /* run on a shard thread: drops the part's job */

/* ---- ps_held.c ---- */
struct held_job *ps_held_find(struct ps_orders *orders, uint64_t job);
/* The record of a job at a generation, or NULL with the reason. */
struct held_job *ps_held_at(struct ps_orders *orders, uint64_t job, uint64_t generation,
                            struct err *err);
void ps_held_forget(struct ps_orders *orders, uint64_t job);

/* ---- what the dispatcher begins; it ends by parts, or at once with the code returned ---- */
MUST_CHECK enum err_code ps_order_begin_create(struct ps_orders *orders, struct order *order,
                                               struct err *err);
MUST_CHECK enum err_code ps_order_begin_snapshot(struct ps_orders *orders, struct order *order,
                                                 struct err *err);
/* ps_order_short.c */
MUST_CHECK enum err_code ps_order_do_prune(struct ps_orders *orders,
                                           const Steadfast__V1__Prune *prune, struct err *err);
MUST_CHECK enum err_code ps_order_do_pin(struct ps_orders *orders, const Steadfast__V1__Pin *pin,
                                         struct err *err);
void ps_order_do_unpin(struct ps_orders *orders, uint64_t job, uint64_t pin);
/* order NULL: nobody asked for it by order. */
void ps_order_begin_drop(struct ps_orders *orders, struct order *order, uint64_t job);
void ps_order_begin_fence(struct ps_orders *orders, struct order *order, uint64_t session);

#endif
