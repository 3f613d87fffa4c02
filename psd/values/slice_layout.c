/* SPDX-License-Identifier: Apache-2.0 */
/* slice_layout: a plan, checked, and cut down to one shard. */
#include "psd/values/slice_layout.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/ckpt/ckpt_manifest.h"
#include "psd/values/mem.h"

/* A shard's payload in bytes must fit in a size_t with room for sums of several. */
#define ELEMS_MAX (UINT64_C(1) << 48)

void slice_layout_free(struct slice_layout *layout)
{
    if (!layout)
        return;
    free(layout->names);
    free(layout->slices);
    free(layout);
}

static enum err_code check_slice(const Steadfast__V1__Plan *plan, const Steadfast__V1__Slice *from,
                                 uint32_t server, uint32_t shard_count, struct slice *ret_slice,
                                 struct err *err)
{
    const char *name = from->name;
    struct slice slice = {.index = from->index,
                          .var = from->var,
                          .rank = (uint32_t)from->n_shape,
                          .row_offset = from->row_offset,
                          .rows = from->rows,
                          .init = from->init,
                          .init_value = from->init_value,
                          .is_trainable = from->trainable};
    if (name[0] == '\0' || strlen(name) > LIMIT_NAME_BYTES)
        return err_set(err, ERR_INVALID, "slice %u: name of %zu bytes, want 1 to %d", from->index,
                       strlen(name), LIMIT_NAME_BYTES);
    if (from->n_shape > LIMIT_RANK)
        return err_set(err, ERR_INVALID, "slice %u of %s: rank %zu, want at most %d", from->index,
                       name, from->n_shape, LIMIT_RANK);
    uint64_t elems = 1;
    for (size_t i = 0; i < from->n_shape; i++) {
        slice.shape[i] = from->shape[i];
        if (from->shape[i] == 0 || __builtin_mul_overflow(elems, from->shape[i], &elems) ||
            elems > ELEMS_MAX)
            return err_set(err, ERR_INVALID,
                           "slice %u of %s: shape[%zu] is %" PRIu64 ", want 1 or more and at most "
                           "2^48 elements in all",
                           from->index, name, i, from->shape[i]);
    }
    uint64_t all_rows = ckpt_var_rows(slice.rank, slice.shape);
    if (from->rows == 0 || from->row_offset >= all_rows || from->rows > all_rows - from->row_offset)
        return err_set(err, ERR_INVALID,
                       "slice %u of %s: rows %" PRIu64 " from %" PRIu64
                       ", want 1 or more inside the variable's %" PRIu64,
                       from->index, name, from->rows, from->row_offset, all_rows);
    if (from->server >= plan->n_servers)
        return err_set(err, ERR_INVALID, "slice %u of %s: server %u, the plan has %zu", from->index,
                       name, from->server, plan->n_servers);
    if (from->server == server && from->shard >= shard_count)
        return err_set(err, ERR_INVALID, "slice %u of %s: shard %u, this server has %u",
                       from->index, name, from->shard, shard_count);
    if (from->init > STEADFAST__V1__INIT_KIND__INIT_UNIFORM || !isfinite(from->init_value))
        return err_set(err, ERR_INVALID,
                       "slice %u of %s: init %d of %g, want a known kind and a number", from->index,
                       name, (int)from->init, (double)from->init_value);
    slice.row_elems = ckpt_var_row_elems(slice.rank, slice.shape);
    slice.elem_count = slice.rows * slice.row_elems;
    *ret_slice = slice;
    return ERR_OK;
}

static int by_index(const void *a, const void *b)
{
    const struct slice *x = a, *y = b;
    return x->index < y->index ? -1 : x->index > y->index;
}

enum err_code slice_layout_new(const Steadfast__V1__Plan *plan, uint32_t server, uint32_t shard,
                               uint32_t shard_count, struct slice_layout **ret_layout,
                               struct err *err)
{
    if (!plan || plan->n_slices > LIMIT_SLICES || plan->n_servers > LIMIT_SERVERS)
        return err_set(err, ERR_INVALID, "plan of %zu slices on %zu servers, want at most %d on %d",
                       plan ? plan->n_slices : 0, plan ? plan->n_servers : 0, LIMIT_SLICES,
                       LIMIT_SERVERS);
    if (server >= plan->n_servers)
        return err_set(err, ERR_INVALID, "server %u, the plan has %zu", server, plan->n_servers);
    AUTO(slice_layout) layout = base_alloc(sizeof(*layout));
    size_t count = 0, name_bytes = 0;
    for (size_t i = 0; i < plan->n_slices; i++) {
        const Steadfast__V1__Slice *from = plan->slices[i];
        if (from->server != server || from->shard != shard)
            continue;
        count++;
        name_bytes += strlen(from->name) + 1;
    }
    layout->slices = mem_table(count, sizeof(*layout->slices), "slices", err);
    layout->names = layout->slices ? mem_table(name_bytes, 1, "letters of names", err) : NULL;
    if (!layout->names)
        return ERR_NO_MEMORY;
    char *name = layout->names;
    for (size_t i = 0; i < plan->n_slices; i++) {
        const Steadfast__V1__Slice *from = plan->slices[i];
        struct slice slice;
        enum err_code code = check_slice(plan, from, server, shard_count, &slice, err);
        if (code != ERR_OK)
            return code;
        if (from->server != server || from->shard != shard)
            continue;
        slice.name = name;
        name = stpcpy(name, from->name) + 1;
        layout->slices[layout->count++] = slice;
    }
    qsort(layout->slices, layout->count, sizeof(*layout->slices), by_index);
    for (size_t i = 0; i < layout->count; i++) {
        struct slice *slice = &layout->slices[i];
        if (i > 0 && slice->index == slice[-1].index)
            return err_set(err, ERR_INVALID, "slice %u (%s and %s): index twice in the plan",
                           slice->index, slice[-1].name, slice->name);
        slice->elem_offset = layout->elem_count;
        layout->elem_count += slice->elem_count;
        if (layout->elem_count > ELEMS_MAX)
            return err_set(err, ERR_INVALID, "shard %u: more than 2^48 elements", shard);
    }
    *ret_layout = TAKE(layout);
    return ERR_OK;
}
