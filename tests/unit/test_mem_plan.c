/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/program/mem_plan.h"

#include "common/base/rand.h"
#include "tests/harness.h"

static struct err err;

TEST(blocks_alive_together_never_overlap)
{
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct mem_block blocks[40] = {0};
        uint64_t key = rand_key(seed, RAND_TEST, 0, 0);
        size_t count = 1 + rand_u64(key, 0) % ARRAY_SIZE(blocks);
        size_t arena = 0;
        for (size_t i = 0; i < count; i++) {
            blocks[i].bytes = rand_u64(key, 3 * i + 1) % 1000;
            blocks[i].first = rand_u64(key, 3 * i + 2) % 30;
            blocks[i].last = blocks[i].first + rand_u64(key, 3 * i + 3) % 10;
        }
        CHECK_OK(mem_plan(blocks, count, 64, &arena, &err));
        size_t busiest = 0;
        for (size_t time = 0; time < 40; time++) {
            size_t sum = 0;
            for (size_t i = 0; i < count; i++)
                sum += blocks[i].first <= time && time <= blocks[i].last ? blocks[i].bytes : 0;
            busiest = MAX(busiest, sum);
        }
        CHECK(arena >= busiest && arena <= 2 * busiest + 64);
        for (size_t i = 0; i < count; i++) {
            CHECK(blocks[i].offset % 64 == 0 && blocks[i].offset + blocks[i].bytes <= arena);
            for (size_t j = 0; j < i; j++) {
                bool in_time =
                    blocks[i].first <= blocks[j].last && blocks[j].first <= blocks[i].last;
                bool in_space = blocks[i].offset < blocks[j].offset + blocks[j].bytes &&
                                blocks[j].offset < blocks[i].offset + blocks[i].bytes;
                CHECK(!(in_time && in_space));
            }
        }
    }
}

TEST(a_chain_reuses_two_places)
{
    struct mem_block blocks[10] = {0};
    size_t arena = 0;
    for (size_t i = 0; i < 10; i++)
        blocks[i] = (struct mem_block){.bytes = 640, .first = i, .last = i + 1};
    CHECK_OK(mem_plan(blocks, 10, 64, &arena, &err));
    CHECK_U64(arena, 1280);
}

TEST(blocks_that_cannot_be_added_up_are_refused)
{
    struct mem_block blocks[2] = {{.bytes = SIZE_MAX / 3}, {.bytes = SIZE_MAX / 3}};
    size_t arena = 0;
    CHECK(mem_plan(blocks, 2, 64, &arena, &err) == ERR_NO_MEMORY);
}
