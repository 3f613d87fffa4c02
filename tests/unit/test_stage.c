/* SPDX-License-Identifier: Apache-2.0 */
/* The stage is bounded, fills ahead on other threads, and says why it was closed. */
#include "workerd/input/stage.h"

#include <stdlib.h>
#include <uv.h>

#include "tests/harness.h"
#include "workerd/input/input.h"

static struct {
    uv_loop_t loop;
    struct inbox *inbox;
    struct input_pool *pool;
    struct input *input;
    struct stage *stage;
    int filled;
    int idle;
} rig;

static bool is_same(const void *a, const void *b, size_t bytes)
{
    return memcmp(a, b, bytes) == 0;
}

static void on_idle(void *arg)
{
    (void)arg;
    rig.idle++;
}

static void on_filled(struct stage_slot *slot, void *arg)
{
    CHECK(slot->state == STAGE_READY);
    *(int *)arg = ++rig.filled;
}

static void rig_up(uint64_t records)
{
    struct err err;
    struct dataset_spec spec = {.source = DATA_SYNTHETIC,
                                .records = records,
                                .height = 4,
                                .width = 4,
                                .channels = 1,
                                .num_classes = 2};
    CHECK(uv_loop_init(&rig.loop) == 0);
    rig.inbox = inbox_new(&rig.loop);
    rig.pool = input_pool_new(rig.inbox, 2);
    CHECK_OK(input_open(&spec, 2, 1, 0, &rig.input, &err));
    rig.stage = stage_new(rig.pool, 3, 5, 16, on_idle, NULL);
}

static void rig_down(void)
{
    stage_free(rig.stage);
    input_pool_free(rig.pool);
    input_unref(rig.input);
    inbox_free(rig.inbox);
    uv_run(&rig.loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&rig.loop) == 0);
}

static void run_until(const int *value, int want)
{
    while (*value < want) /* the test's own time limit is the deadline */
        uv_run(&rig.loop, UV_RUN_ONCE);
}

TEST(batches_are_filled_ahead_up_to_the_bound)
{
    struct err err;
    rig_up(100);
    struct stage_slot *slots[3];
    int seen[3] = {0};
    for (int i = 0; i < 3; i++) {
        CHECK_OK(stage_reserve(rig.stage, &slots[i], &err));
        for (uint64_t r = 0; r < 5; r++)
            slots[i]->records[r] = (uint64_t)i * 5 + r;
        stage_fill(slots[i], rig.input, 5, on_filled, &seen[i]);
    }
    struct stage_slot *extra = NULL;
    CHECK(stage_reserve(rig.stage, &extra, &err) == ERR_FULL && !extra);
    run_until(&rig.filled, 3);
    for (int i = 0; i < 3; i++) {
        float want[5 * 16];
        int32_t labels[5];
        CHECK(seen[i] > 0 && slots[i]->err.code == ERR_OK && slots[i]->count == 5);
        CHECK_OK(input_fill(rig.input, slots[i]->records, 5, want, labels, &err));
        CHECK(is_same(want, slots[i]->images, sizeof(want)));
        CHECK(is_same(labels, slots[i]->labels, sizeof(labels)));
    }
    stage_release(slots[1]);
    CHECK_OK(stage_reserve(rig.stage, &extra, &err));
    CHECK(extra == slots[1]); /* the buffers are used again */
    for (int i = 0; i < 3; i++)
        stage_release(slots[i]);
    CHECK(stage_is_idle(rig.stage));
    rig_down();
}

TEST(a_batch_that_cannot_be_read_carries_its_error)
{
    struct err err;
    rig_up(3);
    struct stage_slot *slot;
    int seen = 0;
    CHECK_OK(stage_reserve(rig.stage, &slot, &err));
    slot->records[0] = 3; /* one past the last */
    stage_fill(slot, rig.input, 1, on_filled, &seen);
    run_until(&rig.filled, 1);
    CHECK(slot->err.code == ERR_INVALID && strstr(slot->err.text, "record 3"));
    stage_release(slot);
    rig_down();
}

TEST(a_slot_released_while_it_is_filled_comes_back_when_the_thread_is_done)
{
    struct err err;
    rig_up(100);
    struct stage_slot *slot;
    int seen = 0;
    CHECK_OK(stage_reserve(rig.stage, &slot, &err));
    slot->records[0] = 0;
    stage_fill(slot, rig.input, 1, on_filled, &seen);
    stage_release(slot);
    CHECK(!stage_is_idle(rig.stage));
    run_until(&rig.idle, 1);
    CHECK(stage_is_idle(rig.stage) && seen == 0);
    rig_down();
}

TEST(a_closed_stage_says_why)
{
    struct err err;
    rig_up(100);
    struct stage_slot *slot = NULL;
    struct err why;
    err_set(&why, ERR_CORRUPT, "train.gz: byte 7");
    stage_close(rig.stage, &why);
    err_set(&why, ERR_IO, "later");
    stage_close(rig.stage, &why);
    CHECK(stage_reserve(rig.stage, &slot, &err) == ERR_CORRUPT && !slot);
    CHECK_STR(err.text, "train.gz: byte 7");
    rig_down();
}

TEST(a_batch_too_large_for_memory_is_refused)
{
    struct err err;
    rig_up(100);
    struct stage *huge = stage_new(rig.pool, 2, 65536, SIZE_MAX / 1000, NULL, NULL);
    struct stage_slot *slot = NULL;
    CHECK(stage_reserve(huge, &slot, &err) == ERR_NO_MEMORY && !slot);
    stage_free(huge);
    rig_down();
}
