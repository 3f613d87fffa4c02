/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_set: one f32 array per variable of a model, in one block of memory.
 *
 * Each array begins on a cache line. Blocks of 2 MiB and more ask for huge pages, because first
 * touches of small pages cost more than the transfer that fills them, and go back to the system
 * when freed.
 *
 * Owns    the block. Thread: the holder's; threads may share it when they touch different arrays.
 * Errors  ERR_NO_MEMORY names the size.
 */
#ifndef WORKERD_EXCHANGE_TENSOR_SET_H
#define WORKERD_EXCHANGE_TENSOR_SET_H

#include "common/base/base.h"
#include "common/base/err.h"

struct tensor_set {
    size_t var_count;
    float **vars; /* in graph order; inside the block */
    uint8_t *block;
    size_t block_bytes;
    void *mapping;
    size_t mapping_bytes;
};

/* All elements are 0. */
MUST_CHECK enum err_code tensor_set_new(const uint64_t *var_elements, size_t var_count,
                                        struct tensor_set **ret_set, struct err *err);
void tensor_set_free(struct tensor_set *set);
DEFINE_AUTO(tensor_set)

#endif
