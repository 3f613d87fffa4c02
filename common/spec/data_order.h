/* SPDX-License-Identifier: Apache-2.0 */
/* data_order: which records make up a step. A pure function of (seed, epoch, step), so that any
 * worker that runs a step, first or again, reads the same records.
 *
 * An epoch uses each of `records` records once. Its order is cut into windows of `window` records
 * (the shuffle buffer rounded up to whole batches; all records when larger). Positions are rotated
 * by an offset drawn per epoch, so window borders move; the windows' order is permuted per epoch,
 * and records inside a window are permuted per (epoch, window). With shuffle_buffer 0 the order is
 * the file's. A batch never spans two windows; only the last batch of the last (shorter) window may
 * be short. The coordinator leases windows to workers.
 *
 * step = epoch * steps_per_epoch + batch; window of a batch = batch / window_batches, in the order
 * in which windows are handed out (the permuted order: place 0 is trained first).
 * Thread  any; no state.
 * Units:  counts of records, batches; epoch and batch from 0.
 */
#ifndef COMMON_SPEC_DATA_ORDER_H
#define COMMON_SPEC_DATA_ORDER_H

#include "common/base/base.h"

struct data_order {
    uint64_t seed;
    uint64_t records;
    uint32_t batch_size;
    bool is_shuffled;
    uint64_t window_batches; /* batches of a full window */
    uint64_t window_count;
    uint64_t steps_per_epoch; /* batches of an epoch, the short one included */
};

/* records >= 1, batch_size >= 1. */
void data_order_init(struct data_order *order, uint64_t seed, uint64_t records, uint32_t batch_size,
                     uint64_t shuffle_buffer);
/* Writes the record indices of a batch into ret_records (batch_size entries); returns how many. */
uint32_t data_order_batch(const struct data_order *order, uint32_t epoch, uint64_t batch,
                          uint64_t *ret_records);

#endif
