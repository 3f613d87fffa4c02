/* SPDX-License-Identifier: Apache-2.0 */
/* mem_plan: places blocks that are alive at different times into one arena.
 *
 * Largest first, each at the lowest place where it overlaps no block that is alive at the same time
 * as it (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020:
 * greedy by size). Deterministic.
 *
 * Owns    nothing. Thread: any; pure.
 * Units   bytes; times are node numbers, both ends inclusive.
 * Errors  ERR_NO_MEMORY: the sum of the blocks does not fit in 63 bits.
 */
#ifndef KERNELS_PROGRAM_MEM_PLAN_H
#define KERNELS_PROGRAM_MEM_PLAN_H

#include "common/base/base.h"
#include "common/base/err.h"

struct mem_block {
    size_t bytes; /* 0: takes no place */
    size_t first;
    size_t last;
    size_t offset; /* out */
};

MUST_CHECK enum err_code mem_plan(struct mem_block *blocks, size_t count, size_t align,
                                  size_t *ret_arena_bytes, struct err *err);

#endif
