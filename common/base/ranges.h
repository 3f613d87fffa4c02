/* SPDX-License-Identifier: Apache-2.0 */
/* ranges: a set of step numbers kept as sorted, disjoint, non-adjacent inclusive ranges.
 *
 * The ledger, the marks of a shard and the data position are all such sets. Steps arrive nearly in
 * order, so the number of ranges stays close to the number of workers. A lookup is a binary search.
 *
 * Owns    its array. Thread: the owner's; nothing here locks.
 * Errors  none: growth uses base_realloc (bounded by LIMIT_RANGES in the caller's checks on input).
 */
#ifndef COMMON_BASE_RANGES_H
#define COMMON_BASE_RANGES_H

#include "common/base/base.h"

struct range {
    uint64_t first;
    uint64_t last; /* inclusive */
};

struct ranges {
    struct range *items;
    size_t count;
    size_t capacity;
};

void ranges_init(struct ranges *set);
void ranges_done(struct ranges *set);
bool ranges_has(const struct ranges *set, uint64_t value);
bool ranges_add(struct ranges *set, uint64_t value); /* false: was in already */
uint64_t ranges_add_range(struct ranges *set, uint64_t first,
                          uint64_t last); /* how many were new */
void ranges_remove_range(struct ranges *set, uint64_t first, uint64_t last);
uint64_t ranges_total(const struct ranges *set);     /* number of values */
uint64_t ranges_watermark(const struct ranges *set); /* lowest value not in the set */
uint64_t ranges_next_missing(const struct ranges *set,
                             uint64_t value); /* lowest >= value not in it */
bool ranges_equal(const struct ranges *a, const struct ranges *b);
uint64_t ranges_missing(const struct ranges *have, const struct ranges *want); /* |want \ have| */
void ranges_copy(struct ranges *dst, const struct ranges *src); /* dst is initialised */
void ranges_clear(struct ranges *set);

#endif
