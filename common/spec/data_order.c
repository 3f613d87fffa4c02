/* SPDX-License-Identifier: Apache-2.0 */
/* data_order: windows, their order and the order inside them, all by rand_permute.
 *
 * The short window (records not a multiple of the window) is always the last place of the epoch, so
 * that batch numbers map to places by a division; which records fall into it changes with the
 * rotation.
 */
#include "common/spec/data_order.h"

#include "common/base/rand.h"

void data_order_init(struct data_order *order, uint64_t seed, uint64_t records, uint32_t batch_size,
                     uint64_t shuffle_buffer)
{
    ASSERT(records >= 1 && batch_size >= 1);
    uint64_t batches = (records + batch_size - 1) / batch_size;
    uint64_t window = shuffle_buffer ? (shuffle_buffer + batch_size - 1) / batch_size : 128;
    *order = (struct data_order){
        .seed = seed,
        .records = records,
        .batch_size = batch_size,
        .is_shuffled = shuffle_buffer > 0,
        .window_batches = MIN(window, batches),
        .steps_per_epoch = batches,
    };
    order->window_count = (batches + order->window_batches - 1) / order->window_batches;
}

uint32_t data_order_batch(const struct data_order *order, uint32_t epoch, uint64_t batch,
                          uint64_t *ret_records)
{
    ASSERT(batch < order->steps_per_epoch);
    uint64_t window_records = order->window_batches * order->batch_size;
    uint64_t place = batch / order->window_batches;
    uint64_t in_window = (batch % order->window_batches) * order->batch_size;
    uint64_t window = place;
    uint64_t size = MIN(window_records, order->records - place * window_records);
    uint64_t rotation = 0;
    uint64_t shuffle_key = 0;
    if (order->is_shuffled) {
        uint64_t key = rand_key(order->seed, RAND_WINDOW, epoch, 0);
        uint64_t full_count = order->records / window_records;
        if (place < full_count)
            window = rand_permute(key, place, full_count);
        rotation = rand_u64(key, 1) % order->records;
        shuffle_key = rand_key(order->seed, RAND_SHUFFLE, epoch, window);
    }
    uint32_t count = (uint32_t)MIN((uint64_t)order->batch_size, size - in_window);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = in_window + i;
        if (order->is_shuffled)
            at = rand_permute(shuffle_key, at, size);
        ret_records[i] = (window * window_records + at + rotation) % order->records;
    }
    return count;
}
