/* SPDX-License-Identifier: Apache-2.0 */
/* values: one job's slices on one shard: published values, optimizer slots, and which steps they
 * have seen.
 *
 * Values live in counted buffers. An update reads the published one and writes another, which
 * becomes the published one in a commit; readers keep what they hold. Slots change in place.
 *
 * A segment is a row range of a slice whose rows share a history; a group is such a history: the
 * marks (steps applied) and their count. A new job has one group. A restore may bring several,
 * which become one as soon as their marks and counts are equal. The learning rate and adam's t are
 * those of the segment's group.
 *
 * Owns    everything below it. Borrows gradients.
 * Thread  values_compute: the shard's. The others too, and under the shard's lock where another
 *         thread may look (values_commit; reads of now, version, groups).
 * Units   elements of f32; steps count from 0.
 * Memory  charged to the budget when made: VALUES_BUFFERS times the values (published, next, one
 *         pinned) and twice the slots (live, and a copy while a snapshot is written).
 */
#ifndef PSD_VALUES_VALUES_H
#define PSD_VALUES_VALUES_H

#include "common/base/ranges.h"
#include "common/spec/job_spec.h"
#include "psd/optim/optim.h"
#include "psd/values/bufpool.h"
#include "psd/values/slice_layout.h"

#define VALUES_BUFFERS 3

struct values_segment {
    uint32_t slice; /* position in the layout */
    uint64_t row_offset;
    uint64_t rows;
    uint64_t elem_offset; /* in the payload */
    uint64_t elem_count;
    uint32_t group;
};

struct values_group {
    struct ranges marks;
    uint64_t applied; /* updates computed: counted apart from the marks, to check them by */
    bool is_updated;  /* between compute and commit */
};

struct values {
    struct slice_layout *layout;
    struct job_spec *spec;
    const struct optim *optim;
    struct bufpool *pool; /* of buffers with the payload's size */
    uint64_t version;
    struct buf *now;
    struct buf *slots[OPTIM_SLOTS_MAX];
    struct values_segment *segments; /* in the order of the payload, covering it */
    size_t segment_count;
    struct values_group *groups;
    size_t group_count;
};

/* Takes layout and spec over on success. Values and slots are zero; one group without marks;
 * version 1. */
MUST_CHECK enum err_code values_new(struct budget *budget, const char *what,
                                    struct slice_layout *take_layout, struct job_spec *take_spec,
                                    struct values **ret_values, struct err *err);
void values_free(struct values *values);
DEFINE_AUTO(values)
void values_fill_initial(struct values *values);
/* Replaces segments and groups (a restore); takes the arrays and what the groups own. Merges what
 * is equal. */
void values_set_history(struct values *values, struct values_segment *take_segments,
                        size_t segment_count, struct values_group *take_groups, size_t group_count);

bool values_lacks(const struct values *values, uint64_t step); /* some group has not seen it */
/* Writes the values after `step` into next: updated where the group lacks the step, copied
 * elsewhere and where the variable is not trainable. Slots of the updated elements change.
 * *ret_bad_slice is the position of a slice whose gradient has an element that is no finite number,
 * or -1. */
void values_compute(struct values *values, uint64_t step, const float *grads, float *next,
                    int64_t *ret_bad_slice);
/* Marks the step where it was lacking and publishes next (taken over); returns the old buffer, to
 * be let go by the caller outside its lock. */
struct buf *values_commit(struct values *values, uint64_t step, struct buf *take_next);

uint64_t values_bytes(const struct values *values);   /* of the payload */
uint64_t values_applied(const struct values *values); /* the least of the groups' */
uint64_t
values_repeated(const struct values *values); /* applied minus marked where positive, summed */
void values_common_marks(const struct values *values,
                         struct ranges *ret_marks); /* seen by all groups */

#endif
