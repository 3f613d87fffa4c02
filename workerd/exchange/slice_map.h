/* SPDX-License-Identifier: Apache-2.0 */
/* slice_map: where each byte of a shard's payload lies in the variables, from a plan that was
 * checked.
 *
 * A slice is rows of a variable, so it is one run of elements in the variable's array and one run
 * of bytes in its shard's payload; a payload is its slices' runs in the order of the slices' index
 * (proto Plan).
 *
 *   payload of a shard:  | slice 0     | slice 3 | slice 4            |
 *   variables:             var 0 rows     var 1     var 2 rows 100..199
 *
 * Owns    copies of all it needs from the plan.
 * Thread  immutable once made, so any.
 * Units   elements are f32; payload offsets are bytes.
 * Errors  ERR_INVALID names the slice, the value and what was wanted: the slices of each variable
 *         must cover its rows once, and their shapes be the model's.
 */
#ifndef WORKERD_EXCHANGE_SLICE_MAP_H
#define WORKERD_EXCHANGE_SLICE_MAP_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "proto/common.pb-c.h"

/* What the model says of a variable. */
struct slice_var {
    const char *name;
    uint32_t rank;
    const uint64_t *shape;
};

struct slice_piece {
    uint32_t var_index;
    uint64_t var_offset; /* elements, from the variable's first */
    uint64_t element_count;
    uint64_t payload_offset; /* bytes */
};

struct slice_shard {
    uint32_t server_index; /* in the plan */
    uint32_t shard;        /* thread on that server */
    uint64_t payload_bytes;
    struct slice_piece *pieces; /* by rising payload_offset, without gaps */
    size_t piece_count;
};

struct slice_server {
    char *name;
    char *address;
};

struct slice_map {
    struct slice_server *servers;
    size_t server_count;
    struct slice_shard *shards; /* only those that hold slices, by (server, shard) */
    size_t shard_count;
    struct slice_piece *pieces; /* all shards' */
    uint64_t *var_elements;
    size_t var_count;
};

MUST_CHECK enum err_code slice_map_new(const Steadfast__V1__Plan *plan,
                                       const struct slice_var *vars, size_t var_count,
                                       struct slice_map **ret_map, struct err *err);
void slice_map_free(struct slice_map *map);
DEFINE_AUTO(slice_map)

/* Calls on_run for each run of bytes of the payload's [offset, offset + bytes) that lies in one
 * variable, in order. in_range counts from `offset`, var_byte from the variable's first byte. The
 * range is inside the payload. */
void slice_map_walk(const struct slice_shard *shard, uint64_t offset, uint64_t bytes,
                    void (*on_run)(void *arg, uint32_t var_index, uint64_t var_byte,
                                   uint64_t in_range, size_t run_bytes),
                    void *arg);

#endif
