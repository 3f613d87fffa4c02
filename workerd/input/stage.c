/* SPDX-License-Identifier: Apache-2.0 */
/* stage: slots and the moves between their states. */
#include "workerd/input/stage.h"

#include <stdlib.h>

#include "workerd/input/input.h"

struct stage {
    struct input_pool *pool;
    uint32_t max_batch;
    size_t example_elements;
    void (*on_idle)(void *arg);
    void *arg;
    bool is_closed;
    struct err why;
    uint32_t slot_count;
    struct stage_slot slots[];
};

struct stage *stage_new(struct input_pool *pool, uint32_t slot_count, uint32_t max_batch,
                        size_t example_elements, void (*on_idle)(void *arg), void *arg)
{
    ASSERT(slot_count >= 2 && max_batch >= 1);
    struct stage *stage = base_alloc(sizeof(*stage) + slot_count * sizeof(stage->slots[0]));
    stage->pool = pool;
    stage->max_batch = max_batch;
    stage->example_elements = example_elements;
    stage->on_idle = on_idle;
    stage->arg = arg;
    stage->slot_count = slot_count;
    for (uint32_t i = 0; i < slot_count; i++)
        stage->slots[i].stage = stage;
    return stage;
}

void stage_free(struct stage *stage)
{
    if (!stage)
        return;
    ASSERT(stage_is_idle(stage));
    for (uint32_t i = 0; i < stage->slot_count; i++) {
        free(stage->slots[i].records);
        free(stage->slots[i].images);
        free(stage->slots[i].labels);
    }
    free(stage);
}

bool stage_is_idle(const struct stage *stage)
{
    for (uint32_t i = 0; i < stage->slot_count; i++)
        if (stage->slots[i].state != STAGE_FREE)
            return false;
    return true;
}

bool stage_has_free(const struct stage *stage)
{
    for (uint32_t i = 0; i < stage->slot_count; i++)
        if (stage->slots[i].state == STAGE_FREE)
            return true;
    return stage->is_closed; /* it has something else to say */
}

/* Sizes come from the job, so they are checked, not trusted. */
static enum err_code have_buffers(struct stage *stage, struct stage_slot *slot, struct err *err)
{
    size_t count = stage->max_batch;
    if (!slot->records)
        slot->records = calloc(count, sizeof(*slot->records));
    if (!slot->labels)
        slot->labels = calloc(count, sizeof(*slot->labels));
    if (!slot->images && stage->example_elements > 0) {
        size_t bytes;
        if (!__builtin_mul_overflow(count * sizeof(float), stage->example_elements, &bytes) &&
            bytes <= SIZE_MAX - 63)
            slot->images =
                aligned_alloc(64, (bytes + 63) / 64 * 64); /* a cache line, for vector loads */
    }
    if (!slot->records || !slot->labels || (stage->example_elements > 0 && !slot->images))
        return err_set(err, ERR_NO_MEMORY, "no memory for a batch of %zu examples of %zu elements",
                       count, stage->example_elements);
    return ERR_OK;
}

enum err_code stage_reserve(struct stage *stage, struct stage_slot **ret_slot, struct err *err)
{
    if (stage->is_closed) {
        if (err)
            *err = stage->why;
        return stage->why.code;
    }
    for (uint32_t i = 0; i < stage->slot_count; i++) {
        struct stage_slot *slot = &stage->slots[i];
        if (slot->state != STAGE_FREE)
            continue;
        enum err_code code = have_buffers(stage, slot, err);
        if (code != ERR_OK)
            return code;
        slot->state = STAGE_RESERVED;
        slot->count = 0;
        slot->err.code = ERR_OK;
        *ret_slot = slot;
        return ERR_OK;
    }
    return err_set(err, ERR_FULL, "all %u staged batches are in use", stage->slot_count);
}

static void run_fill(struct input_task *task)
{
    struct stage_slot *slot = (struct stage_slot *)task;
    slot->err.code =
        input_fill(slot->input, slot->records, slot->count, slot->images, slot->labels, &slot->err);
}

static void on_fill_done(struct input_task *task)
{
    struct stage_slot *slot = (struct stage_slot *)task;
    input_unref(TAKE(slot->input));
    if (slot->state == STAGE_ABANDONED) {
        slot->state = STAGE_FREE;
        if (slot->stage->on_idle)
            slot->stage->on_idle(slot->stage->arg);
        return;
    }
    ASSERT(slot->state == STAGE_FILLING);
    slot->state = STAGE_READY;
    slot->on_filled(slot, slot->arg);
}

void stage_fill(struct stage_slot *slot, struct input *input, uint32_t count,
                void (*on_filled)(struct stage_slot *slot, void *arg), void *arg)
{
    ASSERT(slot->state == STAGE_RESERVED);
    ASSERT(count >= 1 && count <= slot->stage->max_batch);
    slot->state = STAGE_FILLING;
    slot->count = count;
    slot->input = input_ref(input);
    slot->on_filled = on_filled;
    slot->arg = arg;
    slot->task.run = run_fill;
    slot->task.on_done = on_fill_done;
    input_pool_submit(slot->stage->pool, &slot->task);
}

void stage_release(struct stage_slot *slot)
{
    ASSERT(slot->state != STAGE_FREE && slot->state != STAGE_ABANDONED);
    slot->state = slot->state == STAGE_FILLING ? STAGE_ABANDONED : STAGE_FREE;
}

void stage_close(struct stage *stage, const struct err *why)
{
    ASSERT(why->code != ERR_OK);
    if (stage->is_closed)
        return;
    stage->is_closed = true;
    stage->why = *why;
}
