/* SPDX-License-Identifier: Apache-2.0 */
/* ps_wire: states and checkpoint files. */
#include "psd/order/ps_wire.h"

#include <stdlib.h>

static Steadfast__V1__Range **ranges_message(const struct ranges *set, size_t *ret_count)
{
    Steadfast__V1__Range **list = base_alloc((set->count + 1) * sizeof(Steadfast__V1__Range *));
    for (size_t i = 0; i < set->count; i++) {
        Steadfast__V1__Range *range = base_alloc(sizeof(*range));
        steadfast__v1__range__init(range);
        range->first = set->items[i].first;
        range->last = set->items[i].last;
        list[i] = range;
    }
    *ret_count = set->count;
    return list;
}

Steadfast__V1__ShardState *ps_wire_state(const struct shard_state *state, uint32_t server,
                                         uint32_t shard, const struct ranges *marks_or_null)
{
    Steadfast__V1__ShardState *to = base_alloc(sizeof(*to));
    steadfast__v1__shard_state__init(to);
    to->job = state->job;
    to->generation = state->generation;
    to->server = server;
    to->shard = shard;
    to->version = state->version;
    to->applied = state->applied;
    to->bytes = state->bytes;
    to->duplicates_refused = state->duplicates_refused;
    to->fenced = state->fenced;
    to->marked = state->marked;
    to->repeated_applies = state->repeated_applies;
    to->groups = state->groups;
    if (marks_or_null)
        to->marks = ranges_message(marks_or_null, &to->n_marks);
    return to;
}

void ps_wire_states_free(Steadfast__V1__ShardState **states, size_t count)
{
    for (size_t i = 0; i < count; i++)
        steadfast__v1__shard_state__free_unpacked(states[i], NULL);
    free(states);
}

static Steadfast__V1__CkptGroup *group_message(const struct snapshot *snapshot, uint32_t group)
{
    const struct values_group *from = &snapshot->groups[group];
    Steadfast__V1__CkptGroup *to = base_alloc(sizeof(*to));
    size_t count = 0;
    steadfast__v1__ckpt_group__init(to);
    to->applied = from->applied;
    to->marks = ranges_message(&from->marks, &to->n_marks);
    for (size_t i = 0; i < snapshot->piece_count; i++)
        count += snapshot->pieces[i].group == group;
    to->slices = base_alloc((count + 1) * sizeof(*to->slices));
    to->pieces = base_alloc((count + 1) * sizeof(Steadfast__V1__CkptPiece *));
    for (size_t i = 0; i < snapshot->piece_count; i++) {
        const struct snapshot_piece *piece = &snapshot->pieces[i];
        if (piece->group != group)
            continue;
        if (piece->is_whole_slice) {
            to->slices[to->n_slices++] = piece->slice;
            continue;
        }
        Steadfast__V1__CkptPiece *part = base_alloc(sizeof(*part));
        steadfast__v1__ckpt_piece__init(part);
        part->slice = piece->slice;
        part->row_offset = piece->row_offset;
        part->rows = piece->rows;
        to->pieces[to->n_pieces++] = part;
    }
    return to;
}

Steadfast__V1__CkptFile *ps_wire_file(const struct snapshot *snapshot, const char *name,
                                      uint32_t shard)
{
    Steadfast__V1__CkptFile *file = base_alloc(sizeof(*file));
    steadfast__v1__ckpt_file__init(file);
    file->name = base_strdup(name);
    file->shard = shard;
    file->version = snapshot->version;
    file->groups = base_alloc((snapshot->group_count + 1) * sizeof(Steadfast__V1__CkptGroup *));
    for (uint32_t i = 0; i < snapshot->group_count; i++)
        file->groups[file->n_groups++] = group_message(snapshot, i);
    return file;
}
