/* SPDX-License-Identifier: Apache-2.0 */
/* ps_order_int: an order and its parts, shared by ps_order.c, ps_order_create.c and
 * ps_order_snapshot.c.
 *
 * A part is what one shard does for one order. It moves between the loop, the shard thread and the
 * file thread, and belongs to one of them at a time; what it points to moves with it.
 */
#ifndef PSD_ORDER_PS_ORDER_INT_H
#define PSD_ORDER_PS_ORDER_INT_H

#include "common/base/limits.h"
#include "common/spec/job_spec.h"
#include "psd/order/ps_order.h"
#include "psd/shard/snapshot.h"
#include "psd/shell/ps_int.h"

#define PS_ORDER_ANSWERS 64 /* as many as a coordinator has open at once, several times over */

struct order {
    uint64_t start;
    uint64_t number;
    uint64_t job;                        /* 0: none (fence) */
    Steadfast__V1__ServerOrder *message; /* own copy */
    struct order *next;                  /* of all orders, in the order of arrival */
    bool is_begun;
    bool is_released; /* the next order of the job may begin */
    size_t parts;     /* not ended yet; one is the beginning itself */
    size_t copies;    /* snapshot: not made yet */
    struct err err;   /* the first failure */
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
    struct ps *ps;
    void (*on_done)(const Steadfast__V1__OrderDone *done, void *arg);
    void *arg;
    struct order *orders;
    size_t order_count;
    struct held_job *jobs;
    bool is_beginning; /* begin_ready is at work further up */
    bool is_stopping;
    size_t parts_out; /* not freed yet */
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

struct part *ps_part_new(struct ps_orders *orders, struct order *order, uint32_t shard,
                         uint64_t job, uint64_t generation);
void ps_part_free(struct part *part); /* loop: one that was not on its way yet */
/* Loop: the part has ended, with part->err; frees it, and answers its order if it was the last. */
void ps_part_ended(struct part *part);
/* Any thread: goes on with then on the loop. */
void ps_part_to_loop(struct part *part, void (*then)(struct part *part));
/* Any thread: goes on with run on that thread; when that refuses (full, stopping), with then on the
 * loop, and the reason in part->err. */
void ps_part_to_thread(struct part *part, struct task_thread *thread,
                       void (*run)(struct task *task), void (*then)(struct part *part));
void ps_part_drop(struct task *task); /* run on a shard thread: drops the part's job */

struct held_job *ps_held_find(struct ps_orders *orders, uint64_t job);
/* The record of a job at a generation, or NULL with the reason. */
struct held_job *ps_held_at(struct ps_orders *orders, uint64_t job, uint64_t generation,
                            struct err *err);
void ps_orders_begin_ready(struct ps_orders *orders); /* loop: begins what may begin */

/* ps_order_create.c, ps_order_snapshot.c */
MUST_CHECK enum err_code ps_order_begin_create(struct ps_orders *orders, struct order *order,
                                               struct err *err);
MUST_CHECK enum err_code ps_order_begin_snapshot(struct ps_orders *orders, struct order *order,
                                                 struct err *err);

#endif
