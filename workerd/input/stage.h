/* SPDX-License-Identifier: Apache-2.0 */
/* stage: a few batches of one job, filled ahead by input threads for the tickets that wait.
 *
 *             stage_reserve          stage_fill            an input thread is done
 *   FREE ----------------> RESERVED ----------> FILLING ------------------------> READY: on_filled
 *     ^                       |                    | stage_release                  |
 *     +-----------------------+                    v                                |
 *     +<------------------------------------- ABANDONED (until the thread is done)  |
 *     +<----------------------------------------------------------------------------+ stage_release
 *
 * Owns    its slots and their buffers, which are allocated on first use and kept.
 * Thread  the loop's; while a slot is FILLING or ABANDONED its buffers are an input thread's, while
 *         it is READY they may be lent to a device thread.
 * Errors  ERR_FULL: every slot is in use, ask again after a release. After stage_close: what it was
 *         closed with. ERR_NO_MEMORY for the buffers. What a fill failed with is in slot->err.
 */
#ifndef WORKERD_INPUT_STAGE_H
#define WORKERD_INPUT_STAGE_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "workerd/input/input_pool.h"

struct input;
struct stage;

enum stage_state { STAGE_FREE, STAGE_RESERVED, STAGE_FILLING, STAGE_ABANDONED, STAGE_READY };

struct stage_slot {
    struct input_task task; /* first member */
    struct stage *stage;
    enum stage_state state;
    uint64_t *records; /* to be set by the holder before stage_fill */
    uint32_t count;
    float *images;
    int32_t *labels;
    struct input *input; /* referenced while a thread fills */
    struct err err;      /* READY: code ERR_OK when the batch is there */
    void (*on_filled)(struct stage_slot *slot, void *arg);
    void *arg;
};

/* slot_count >= 2, so that one is filled while one is used. on_idle (may be NULL) is called when an
 * ABANDONED slot became FREE. */
struct stage *stage_new(struct input_pool *pool, uint32_t slot_count, uint32_t max_batch,
                        size_t example_elements, void (*on_idle)(void *arg), void *arg);
void stage_free(struct stage *stage); /* idle */
DEFINE_AUTO(stage)

bool stage_has_free(const struct stage *stage); /* stage_reserve would not say ERR_FULL */
MUST_CHECK enum err_code stage_reserve(struct stage *stage, struct stage_slot **ret_slot,
                                       struct err *err);
/* records[0, count) are set, count <= max_batch. */
void stage_fill(struct stage_slot *slot, struct input *input, uint32_t count,
                void (*on_filled)(struct stage_slot *slot, void *arg), void *arg);
/* From any state but FREE; on_filled will not be called any more. */
void stage_release(struct stage_slot *slot);
/* No slot is given out any more; those that are out stay valid. The first reason stays. */
void stage_close(struct stage *stage, const struct err *why);
bool stage_is_idle(const struct stage *stage); /* every slot is FREE */

#endif
