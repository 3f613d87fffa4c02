/* SPDX-License-Identifier: Apache-2.0 */
/* map: from a nonzero 64-bit key to a pointer; open addressing, linear probes, backward-shift
 * deletion.
 *
 * Owns    its table, not the values. Thread: the owner's. Errors: none (base_alloc).
 */
#ifndef COMMON_BASE_MAP_H
#define COMMON_BASE_MAP_H

#include "common/base/base.h"

struct map_slot {
    uint64_t key; /* 0: empty */
    void *value;
};

struct map {
    struct map_slot *slots;
    size_t capacity; /* power of two, or 0 */
    size_t count;
};

void map_init(struct map *map);
void map_done(struct map *map);
void map_put(struct map *map, uint64_t key, void *value); /* key != 0; replaces */
void *map_get(const struct map *map, uint64_t key);       /* NULL: none */
void *map_remove(struct map *map, uint64_t key);          /* what was there */
/* Walks in table order: for (size_t i = 0; (v = map_next(map, &i));) */
void *map_next(const struct map *map, size_t *position);

#endif
