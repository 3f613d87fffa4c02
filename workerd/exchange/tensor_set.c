/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_set: an anonymous mapping cut into arrays. */
#include "workerd/exchange/tensor_set.h"

#include <stdlib.h>
#include <sys/mman.h>

#define LINE      ((size_t)64)
#define HUGE_PAGE ((size_t)2 << 20)

static size_t round_up(size_t value, size_t unit)
{
    return (value + unit - 1) / unit * unit;
}

enum err_code tensor_set_new(const uint64_t *var_elements, size_t var_count,
                             struct tensor_set **ret_set, struct err *err)
{
    size_t bytes = 0;
    for (size_t v = 0; v < var_count; v++) {
        size_t var_bytes;
        if (__builtin_mul_overflow(var_elements[v], sizeof(float), &var_bytes) ||
            var_bytes > SIZE_MAX / 2 - LINE - HUGE_PAGE - bytes)
            return err_set(err, ERR_NO_MEMORY,
                           "variable %zu has %llu elements, want what fits into memory", v,
                           (unsigned long long)var_elements[v]);
        bytes += round_up(var_bytes, LINE);
    }
    AUTO(tensor_set) set = base_alloc(sizeof(*set));
    set->var_count = var_count;
    set->vars = base_alloc(var_count * sizeof(*set->vars));
    if (bytes > 0) {
        bool is_huge = bytes >= HUGE_PAGE;
        size_t mapping_bytes = bytes + (is_huge ? HUGE_PAGE : 0);
        void *mapping =
            mmap(NULL, mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapping == MAP_FAILED)
            return err_set(err, ERR_NO_MEMORY, "no memory for variables of %zu bytes", bytes);
        set->mapping = mapping;
        set->mapping_bytes = mapping_bytes;
        set->block = mapping;
        if (is_huge)
            set->block += round_up((size_t)mapping, HUGE_PAGE) - (size_t)mapping;
        set->block_bytes = bytes;
        if (is_huge)
            madvise(set->block, bytes,
                    MADV_HUGEPAGE); /* a wish: without huge pages it is only slower */
    }
    uint8_t *at = set->block;
    for (size_t v = 0; v < var_count; v++) {
        set->vars[v] = (float *)(void *)at;
        at += round_up(var_elements[v] * sizeof(float), LINE);
    }
    *ret_set = TAKE(set);
    return ERR_OK;
}

void tensor_set_free(struct tensor_set *set)
{
    if (!set)
        return;
    if (set->mapping)
        munmap(set->mapping, set->mapping_bytes);
    free(set->vars);
    free(set);
}
