/* SPDX-License-Identifier: Apache-2.0 */
/* slice_layout: which rows of which variables one shard holds, and where in its payload.
 *
 * The payload is the slices' elements, one after another in the order of their index. Pull and
 * push, values, gradients and optimizer slots all have this layout.
 *
 * Owns    names and arrays. Thread: immutable once built.
 * Errors  ERR_INVALID names the slice and the field of the plan. ERR_NO_MEMORY: the tables.
 */
#ifndef PSD_VALUES_SLICE_LAYOUT_H
#define PSD_VALUES_SLICE_LAYOUT_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/base/limits.h"
#include "proto/common.pb-c.h"

struct slice {
    uint32_t index; /* in the job */
    uint32_t var;
    char *name; /* of the whole variable; in the layout's block */
    uint32_t rank;
    uint64_t shape[LIMIT_RANK];
    uint64_t row_offset;
    uint64_t rows;
    uint64_t row_elems;
    uint64_t elem_offset; /* in the payload */
    uint64_t elem_count;
    Steadfast__V1__InitKind init;
    float init_value;
    bool is_trainable;
};

struct slice_layout {
    struct slice *slices; /* by rising index */
    size_t count;
    uint64_t elem_count;
    char *names; /* all of them, each with its zero byte */
};

/* The slices of (server, shard); checks the whole plan, shard numbers of this server against
 * shard_count too. */
MUST_CHECK enum err_code slice_layout_new(const Steadfast__V1__Plan *plan, uint32_t server,
                                          uint32_t shard, uint32_t shard_count,
                                          struct slice_layout **ret_layout, struct err *err);
void slice_layout_free(struct slice_layout *layout);
DEFINE_AUTO(slice_layout)

#endif
