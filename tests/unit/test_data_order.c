/* SPDX-License-Identifier: Apache-2.0 */
#include "common/spec/data_order.h"

#include <stdlib.h>

#include "tests/harness.h"

static void check_once(uint64_t records, uint32_t batch, uint64_t buffer)
{
    struct data_order order;
    data_order_init(&order, 3, records, batch, buffer);
    uint64_t *got = base_alloc(batch * sizeof(*got));
    for (uint32_t epoch = 0; epoch < 3; epoch++) {
        uint8_t *seen = base_alloc(records);
        uint64_t total = 0;
        for (uint64_t b = 0; b < order.steps_per_epoch; b++) {
            uint32_t count = data_order_batch(&order, epoch, b, got);
            CHECK(count == batch || b + 1 == order.steps_per_epoch);
            for (uint32_t i = 0; i < count; i++) {
                CHECK(got[i] < records && !seen[got[i]]);
                seen[got[i]] = 1;
                total++;
            }
        }
        CHECK_U64(total, records);
        free(seen);
    }
    free(got);
}

TEST(each_record_is_used_once_an_epoch_whatever_the_sizes)
{
    check_once(60000, 64, 10000);
    for (uint64_t records = 1; records < 60; records += 7)
        for (uint32_t batch = 1; batch < 9; batch += 3)
            for (uint64_t buffer = 0; buffer < 70; buffer += 11)
                check_once(records, batch, buffer);
}

TEST(without_a_shuffle_buffer_the_order_is_the_files)
{
    struct data_order order;
    data_order_init(&order, 3, 1000, 10, 0);
    uint64_t got[10];
    for (uint64_t b = 0; b < 100; b++) {
        CHECK_U64(data_order_batch(&order, 5, b, got), 10);
        for (uint64_t i = 0; i < 10; i++)
            CHECK_U64(got[i], b * 10 + i);
    }
}

TEST(epochs_and_seeds_differ_and_repeat_exactly)
{
    struct data_order a;
    struct data_order b;
    uint64_t x[64];
    uint64_t y[64];
    data_order_init(&a, 1, 60000, 64, 10000);
    data_order_init(&b, 2, 60000, 64, 10000);
    data_order_batch(&a, 0, 5, x);
    data_order_batch(&a, 0, 5, y);
    CHECK(memcmp(x, y, sizeof(x)) == 0);
    data_order_batch(&a, 1, 5, y);
    CHECK(memcmp(x, y, sizeof(x)) != 0);
    data_order_batch(&b, 0, 5, y);
    CHECK(memcmp(x, y, sizeof(x)) != 0);
}
