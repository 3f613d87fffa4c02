/* SPDX-License-Identifier: Apache-2.0 */
/* values: compute into another buffer, commit with the marks in one move, merge histories that
 * became equal. */
#include "psd/values/values.h"

#include <stdlib.h>
#include <string.h>

#include "psd/optim/lr.h"
#include "psd/values/mem.h"
#include "psd/values/var_init.h"

/* Touches the buffers that the first update and the first snapshot will want, here and not while
 * training waits: a first touch costs more than the update. */
static enum err_code warm(struct values *values, struct err *err)
{
    struct buf *bufs[1 + OPTIM_SLOTS_MAX] = {0};
    enum err_code code = ERR_OK;
    for (uint32_t i = 0; i <= values->optim->slot_count && code == ERR_OK; i++) {
        code = bufpool_get(values->pool, &bufs[i], err);
        if (code == ERR_OK)
            memset(bufs[i]->data, 0, bufs[i]->bytes);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bufs); i++)
        buf_unref(bufs[i]);
    return code;
}

enum err_code values_new(struct budget *budget, const char *what, struct slice_layout *take_layout,
                         struct job_spec *take_spec, struct values **ret_values, struct err *err)
{
    AUTO(values) values = base_alloc(sizeof(*values));
    const struct optim *optim = optim_of(take_spec->optimizer.kind);
    size_t bytes = take_layout->elem_count * sizeof(float);
    enum err_code code = bufpool_new(budget, what, bytes, VALUES_BUFFERS + 2 * optim->slot_count,
                                     &values->pool, err);
    if (code == ERR_OK)
        code = bufpool_get(values->pool, &values->now, err);
    values->optim = optim;
    for (uint32_t i = 0; i < optim->slot_count && code == ERR_OK; i++)
        code = bufpool_get(values->pool, &values->slots[i], err); /* zero, as fresh memory is */
    if (code == ERR_OK)
        code = warm(values, err);
    if (code != ERR_OK)
        return code;
    values->segments = mem_table(take_layout->count, sizeof(*values->segments), "slices", err);
    if (!values->segments)
        return ERR_NO_MEMORY;

    values->version = 1;
    values->layout = take_layout;
    values->spec = take_spec;
    values->groups = base_alloc(sizeof(*values->groups));
    values->group_count = 1;
    ranges_init(&values->groups[0].marks);
    values->segment_count = take_layout->count;
    for (size_t i = 0; i < take_layout->count; i++) {
        const struct slice *slice = &take_layout->slices[i];
        values->segments[i] = (struct values_segment){.slice = (uint32_t)i,
                                                      .row_offset = slice->row_offset,
                                                      .rows = slice->rows,
                                                      .elem_offset = slice->elem_offset,
                                                      .elem_count = slice->elem_count};
    }
    *ret_values = TAKE(values);
    return ERR_OK;
}

static void free_history(struct values *values)
{
    for (size_t i = 0; i < values->group_count; i++)
        ranges_done(&values->groups[i].marks);
    free(values->groups);
    free(values->segments);
}

void values_free(struct values *values)
{
    if (!values)
        return;
    free_history(values);
    buf_unref(values->now);
    for (size_t i = 0; i < OPTIM_SLOTS_MAX; i++)
        buf_unref(values->slots[i]);
    bufpool_free(values->pool);
    slice_layout_free(values->layout);
    job_spec_free(values->spec);
    free(values);
}

void values_fill_initial(struct values *values)
{
    float *dst = values->now->data;
    for (size_t i = 0; i < values->layout->count; i++) {
        const struct slice *slice = &values->layout->slices[i];
        var_init_fill(slice, values->spec->seed, dst + slice->elem_offset);
    }
}

static bool group_lacks(const struct values_group *group, uint64_t step)
{
    return !ranges_has(&group->marks, step);
}

bool values_lacks(const struct values *values, uint64_t step)
{
    for (size_t i = 0; i < values->group_count; i++)
        if (group_lacks(&values->groups[i], step))
            return true;
    return false;
}

void values_compute(struct values *values, uint64_t step, const float *grads, float *next,
                    int64_t *ret_bad_slice)
{
    const struct optimizer_spec *spec = &values->spec->optimizer;
    const float *now = values->now->data;
    enum optim_isa isa = optim_isa_best();
    *ret_bad_slice = -1;
    for (size_t i = 0; i < values->group_count; i++)
        values->groups[i].is_updated = group_lacks(&values->groups[i], step);
    for (size_t i = 0; i < values->segment_count; i++) {
        const struct values_segment *segment = &values->segments[i];
        const struct values_group *group = &values->groups[segment->group];
        uint64_t first = segment->elem_offset;
        if (!values->layout->slices[segment->slice].is_trainable || !group->is_updated) {
            memcpy(next + first, now + first, segment->elem_count * sizeof(*next));
            continue;
        }
        struct optim_args args = {.applied = group->applied,
                                  .rate = lr_at(&spec->learning_rate, group->applied)};
        args.count = segment->elem_count;
        args.values = now + first;
        args.grads = grads + first;
        args.next = next + first;
        for (uint32_t k = 0; k < values->optim->slot_count; k++)
            args.slots[k] = (float *)values->slots[k]->data + first;
        if (values->optim->apply(spec, &args, isa))
            *ret_bad_slice = segment->slice;
    }
}

/* ---- histories ------------------------------------------------------------------------------ */
static void join_segments(struct values *values)
{
    size_t kept = 0;
    for (size_t i = 0; i < values->segment_count; i++) {
        struct values_segment *last = kept > 0 ? &values->segments[kept - 1] : NULL;
        const struct values_segment *segment = &values->segments[i];
        if (last && last->slice == segment->slice && last->group == segment->group) {
            last->rows += segment->rows;
            last->elem_count += segment->elem_count;
        } else {
            values->segments[kept++] = *segment;
        }
    }
    values->segment_count = kept;
}

static void merge_equal(struct values *values)
{
    if (values->group_count <= 1)
        return;
    bool is_changed = false;
    for (size_t i = 0; i < values->group_count; i++) {
        size_t k = i + 1;
        while (k < values->group_count) {
            struct values_group *one = &values->groups[i], *other = &values->groups[k];
            if (one->applied != other->applied || !ranges_equal(&one->marks, &other->marks)) {
                k++;
                continue;
            }
            size_t last = values->group_count - 1;
            for (size_t s = 0; s < values->segment_count; s++) {
                struct values_segment *segment = &values->segments[s];
                if (segment->group == k)
                    segment->group = (uint32_t)i;
                else if (segment->group == last)
                    segment->group = (uint32_t)k;
            }
            ranges_done(&other->marks);
            if (k != last)
                *other = values->groups[last];
            values->group_count--;
            is_changed = true;
        }
    }
    if (is_changed)
        join_segments(values);
}

void values_set_history(struct values *values, struct values_segment *take_segments,
                        size_t segment_count, struct values_group *take_groups, size_t group_count)
{
    ASSERT(group_count > 0);
    free_history(values);
    values->segments = take_segments;
    values->segment_count = segment_count;
    values->groups = take_groups;
    values->group_count = group_count;
    uint64_t at = 0;
    for (size_t i = 0; i < segment_count; i++) {
        ASSERT(take_segments[i].elem_offset == at && take_segments[i].group < group_count);
        at += take_segments[i].elem_count;
    }
    ASSERT(at == values->layout->elem_count);
    merge_equal(values);
    join_segments(values);
}

struct buf *values_commit(struct values *values, uint64_t step, struct buf *take_next)
{
    ASSERT(values_lacks(values, step));
    for (size_t i = 0; i < values->group_count; i++) {
        ranges_add(&values->groups[i].marks, step);
        values->groups[i].applied += values->groups[i].is_updated;
        values->groups[i].is_updated = false;
    }
    merge_equal(values);
    struct buf *old = values->now;
    values->now = take_next;
    values->version++;
    return old;
}

uint64_t values_bytes(const struct values *values)
{
    return values->layout->elem_count * sizeof(float);
}

uint64_t values_applied(const struct values *values)
{
    uint64_t least = values->groups[0].applied;
    for (size_t i = 1; i < values->group_count; i++)
        least = MIN(least, values->groups[i].applied);
    return least;
}

uint64_t values_repeated(const struct values *values)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < values->group_count; i++) {
        uint64_t marked = ranges_total(&values->groups[i].marks);
        if (values->groups[i].applied > marked)
            sum += values->groups[i].applied - marked;
    }
    return sum;
}

static void intersect(const struct ranges *a, const struct ranges *b, struct ranges *ret_both)
{
    size_t i = 0, k = 0;
    while (i < a->count && k < b->count) {
        uint64_t first = MAX(a->items[i].first, b->items[k].first);
        uint64_t last = MIN(a->items[i].last, b->items[k].last);
        if (first <= last)
            ranges_add_range(ret_both, first, last);
        if (a->items[i].last < b->items[k].last)
            i++;
        else
            k++;
    }
}

void values_common_marks(const struct values *values, struct ranges *ret_marks)
{
    ranges_copy(ret_marks, &values->groups[0].marks);
    for (size_t i = 1; i < values->group_count; i++) {
        struct ranges both;
        ranges_init(&both);
        intersect(ret_marks, &values->groups[i].marks, &both);
        ranges_done(ret_marks);
        *ret_marks = both;
    }
}
