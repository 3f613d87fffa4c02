/* SPDX-License-Identifier: Apache-2.0 */
/* map: a hash table kept at most half full. */
#include "common/base/map.h"

#include <stdlib.h>

#include "common/base/rand.h"

void map_init(struct map *map)
{
    *map = (struct map){0};
}

void map_done(struct map *map)
{
    free(map->slots);
    *map = (struct map){0};
}

static size_t home(const struct map *map, uint64_t key)
{
    return (size_t)rand_u64(0, key) & (map->capacity - 1);
}

static size_t find(const struct map *map, uint64_t key)
{
    size_t at = home(map, key);
    while (map->slots[at].key && map->slots[at].key != key)
        at = (at + 1) & (map->capacity - 1);
    return at;
}

static void grow(struct map *map)
{
    struct map old = *map;
    map->capacity = old.capacity ? old.capacity * 2 : 16;
    map->slots = base_alloc(map->capacity * sizeof(*map->slots));
    for (size_t i = 0; i < old.capacity; i++)
        if (old.slots[i].key)
            map->slots[find(map, old.slots[i].key)] = old.slots[i];
    free(old.slots);
}

void map_put(struct map *map, uint64_t key, void *value)
{
    ASSERT(key != 0);
    if (map->count * 2 >= map->capacity)
        grow(map);
    size_t at = find(map, key);
    if (!map->slots[at].key)
        map->count++;
    map->slots[at] = (struct map_slot){key, value};
}

void *map_get(const struct map *map, uint64_t key)
{
    return map->count && key ? map->slots[find(map, key)].value : NULL;
}

void *map_remove(struct map *map, uint64_t key)
{
    if (!map->count || !key)
        return NULL;
    size_t mask = map->capacity - 1;
    size_t hole = find(map, key);
    if (!map->slots[hole].key)
        return NULL;
    void *value = map->slots[hole].value;
    map->count--;
    for (size_t at = (hole + 1) & mask; map->slots[at].key; at = (at + 1) & mask) {
        size_t want = home(map, map->slots[at].key);
        if (((at - want) & mask) >= ((at - hole) & mask)) {
            map->slots[hole] = map->slots[at];
            hole = at;
        }
    }
    map->slots[hole] = (struct map_slot){0};
    return value;
}

void *map_next(const struct map *map, size_t *position)
{
    while (*position < map->capacity) {
        const struct map_slot *slot = &map->slots[(*position)++];
        if (slot->key)
            return slot->value;
    }
    return NULL;
}
