/* SPDX-License-Identifier: Apache-2.0 */
/* mem_plan: greedy placement by size. */
#include "kernels/program/mem_plan.h"

#include <stdlib.h>

static int larger_first(const void *a, const void *b)
{
    const struct mem_block *x = *(const struct mem_block *const *)a;
    const struct mem_block *y = *(const struct mem_block *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x < y ? -1 : x > y; /* one order for equal sizes, so that a plan repeats */
}

/* Lowest offset at which block is clear of placed[0..count), which are in order of offset. */
static size_t lowest_free(const struct mem_block *block, struct mem_block *const *placed,
                          size_t count)
{
    size_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        const struct mem_block *p = placed[i];
        if (p->last < block->first || block->last < p->first)
            continue;
        if (offset + block->bytes <= p->offset)
            break;
        offset = MAX(offset, p->offset + p->bytes);
    }
    return offset;
}

enum err_code mem_plan(struct mem_block *blocks, size_t count, size_t align,
                       size_t *ret_arena_bytes, struct err *err)
{
    *ret_arena_bytes = 0;
    if (count == 0)
        return ERR_OK;
    AUTO_MEM struct mem_block **order = base_alloc(count * sizeof(void *));
    AUTO_MEM struct mem_block **placed = base_alloc(count * sizeof(void *));
    size_t placed_count = 0;
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        order[i] = &blocks[i];
        if (__builtin_add_overflow(total, blocks[i].bytes, &total) ||
            total > SIZE_MAX / 2 - align * count)
            return err_set(err, ERR_NO_MEMORY, "the tensors of the graph are too large together");
        blocks[i].bytes = (blocks[i].bytes + align - 1) / align * align;
    }
    qsort(order, count, sizeof(void *), larger_first);
    for (size_t i = 0; i < count && order[i]->bytes > 0; i++) {
        struct mem_block *block = order[i];
        ASSERT(block->first <= block->last);
        block->offset = lowest_free(block, placed, placed_count);
        *ret_arena_bytes = MAX(*ret_arena_bytes, block->offset + block->bytes);
        size_t at = placed_count++;
        for (; at > 0 && placed[at - 1]->offset > block->offset; at--)
            placed[at] = placed[at - 1];
        placed[at] = block;
    }
    return ERR_OK;
}
