/* SPDX-License-Identifier: Apache-2.0 */
/* ranges: sorted inclusive ranges; insertion merges with its neighbours. */
#include "common/base/ranges.h"

#include <stdlib.h>
#include <string.h>

void ranges_init(struct ranges *set)
{
    *set = (struct ranges){0};
}

void ranges_done(struct ranges *set)
{
    free(set->items);
    *set = (struct ranges){0};
}

void ranges_clear(struct ranges *set)
{
    set->count = 0;
}

/* Index of the first range whose last >= value; count when there is none. */
static size_t find(const struct ranges *set, uint64_t value)
{
    size_t low = 0;
    size_t high = set->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (set->items[mid].last < value)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void reserve(struct ranges *set, size_t count)
{
    if (count <= set->capacity)
        return;
    size_t capacity = MAX(set->capacity * 2, count);
    set->items = base_realloc(set->items, capacity * sizeof(*set->items));
    set->capacity = capacity;
}

/* Replaces `removed` ranges at `at` by the `added` ones (at most two). */
static void splice(struct ranges *set, size_t at, size_t removed, const struct range *added,
                   size_t added_count)
{
    ASSERT(at + removed <= set->count);
    reserve(set, set->count + added_count - MIN(removed, added_count));
    memmove(set->items + at + added_count, set->items + at + removed,
            (set->count - at - removed) * sizeof(*set->items));
    if (added_count)
        memcpy(set->items + at, added, added_count * sizeof(*added));
    set->count = set->count + added_count - removed;
}

bool ranges_has(const struct ranges *set, uint64_t value)
{
    size_t i = find(set, value);
    return i < set->count && set->items[i].first <= value;
}

uint64_t ranges_add_range(struct ranges *set, uint64_t first, uint64_t last)
{
    ASSERT(first <= last && last < UINT64_MAX);
    size_t at = find(set, first ? first - 1 : 0); /* a left neighbour that touches is merged too */
    struct range merged = {first, last};
    uint64_t had = 0;
    size_t end = at;
    while (end < set->count && set->items[end].first <= last + 1) {
        const struct range *r = &set->items[end];
        uint64_t low = MAX(r->first, first);
        uint64_t high = MIN(r->last, last);
        if (low <= high)
            had += high - low + 1;
        merged.first = MIN(merged.first, r->first);
        merged.last = MAX(merged.last, r->last);
        end++;
    }
    splice(set, at, end - at, &merged, 1);
    return last - first + 1 - had;
}

bool ranges_add(struct ranges *set, uint64_t value)
{
    return ranges_add_range(set, value, value) == 1;
}

void ranges_remove_range(struct ranges *set, uint64_t first, uint64_t last)
{
    ASSERT(first <= last);
    size_t at = find(set, first);
    size_t end = at;
    struct range left[2];
    size_t left_count = 0;
    while (end < set->count && set->items[end].first <= last) {
        struct range r = set->items[end];
        if (r.first < first)
            left[left_count++] = (struct range){r.first, first - 1};
        if (r.last > last)
            left[left_count++] = (struct range){last + 1, r.last};
        end++;
    }
    if (end > at)
        splice(set, at, end - at, left, left_count);
}

uint64_t ranges_total(const struct ranges *set)
{
    uint64_t total = 0;
    for (size_t i = 0; i < set->count; i++)
        total += set->items[i].last - set->items[i].first + 1;
    return total;
}

uint64_t ranges_watermark(const struct ranges *set)
{
    return set->count && set->items[0].first == 0 ? set->items[0].last + 1 : 0;
}

uint64_t ranges_next_missing(const struct ranges *set, uint64_t value)
{
    size_t i = find(set, value);
    bool is_in = i < set->count && set->items[i].first <= value;
    return is_in ? set->items[i].last + 1 : value; /* ranges never touch */
}

bool ranges_equal(const struct ranges *a, const struct ranges *b)
{
    return a->count == b->count &&
           (a->count == 0 || memcmp(a->items, b->items, a->count * sizeof(*a->items)) == 0);
}

uint64_t ranges_missing(const struct ranges *have, const struct ranges *want)
{
    uint64_t missing = 0;
    for (size_t i = 0; i < want->count; i++) {
        struct range w = want->items[i];
        uint64_t covered = 0;
        for (size_t j = find(have, w.first); j < have->count && have->items[j].first <= w.last; j++)
            covered += MIN(have->items[j].last, w.last) - MAX(have->items[j].first, w.first) + 1;
        missing += w.last - w.first + 1 - covered;
    }
    return missing;
}

void ranges_copy(struct ranges *dst, const struct ranges *src)
{
    reserve(dst, src->count);
    if (src->count)
        memcpy(dst->items, src->items, src->count * sizeof(*src->items));
    dst->count = src->count;
}
