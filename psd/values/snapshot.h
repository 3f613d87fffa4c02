/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot: a consistent copy of one job on one shard.
 *
 * Values are taken by reference, since a published buffer never changes; slots change in place and
 * are copied. That copy is all that training on the shard waits for.
 *
 * Owns    its buffers and tables; nothing in it points into the shard.
 * Thread  snapshot_take on the shard's; then whoever holds it.
 * Errors  ERR_FULL: an earlier snapshot of this job still holds the memory for the slots.
 *         ERR_NO_MEMORY: the tables.
 */
#ifndef PSD_VALUES_SNAPSHOT_H
#define PSD_VALUES_SNAPSHOT_H

#include "psd/values/values.h"

struct snapshot_piece { /* one tensor a kind */
    uint32_t slice;     /* index in the job */
    char *name;         /* of the variable; in the snapshot's block */
    uint32_t rank;
    uint64_t shape[LIMIT_RANK]; /* of the whole variable */
    uint64_t row_offset;
    uint64_t rows;
    bool is_whole_slice;
    uint64_t elem_offset; /* in the buffers */
    uint64_t elem_count;
    uint32_t group;
};

struct snapshot {
    uint64_t version;
    struct buf *values;
    uint32_t slot_count;
    const char *slot_names[OPTIM_SLOTS_MAX]; /* static */
    struct buf *slots[OPTIM_SLOTS_MAX];
    struct snapshot_piece *pieces; /* in the order of the payload */
    size_t piece_count;
    char *names; /* all of them, each with its zero byte */
    struct values_group *groups;
    size_t group_count;
};

MUST_CHECK enum err_code snapshot_take(const struct values *values, struct snapshot **ret_snapshot,
                                       struct err *err);
void snapshot_free(struct snapshot *snapshot);
DEFINE_AUTO(snapshot)

#endif
