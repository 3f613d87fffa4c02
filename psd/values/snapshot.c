/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot: references, copies of slots, and the tables. */
#include "psd/values/snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "psd/values/mem.h"

enum err_code snapshot_take(const struct values *values, struct snapshot **ret_snapshot,
                            struct err *err)
{
    AUTO(snapshot) snapshot = base_alloc(sizeof(*snapshot));
    snapshot->version = values->version;
    snapshot->values = buf_ref(values->now);
    snapshot->slot_count = values->optim->slot_count;
    for (uint32_t i = 0; i < snapshot->slot_count; i++) {
        enum err_code code = bufpool_get(values->pool, &snapshot->slots[i], err);
        if (code != ERR_OK)
            return code;
        memcpy(snapshot->slots[i]->data, values->slots[i]->data, values->slots[i]->bytes);
        snapshot->slot_names[i] = values->optim->slot_names[i];
    }
    size_t name_bytes = 0;
    for (size_t i = 0; i < values->segment_count; i++)
        name_bytes += strlen(values->layout->slices[values->segments[i].slice].name) + 1;
    snapshot->pieces = mem_table(values->segment_count, sizeof(*snapshot->pieces), "pieces", err);
    snapshot->names = snapshot->pieces ? mem_table(name_bytes, 1, "letters of names", err) : NULL;
    snapshot->groups = snapshot->names ? mem_table(values->group_count, sizeof(*snapshot->groups),
                                                   "histories", err)
                                       : NULL;
    if (!snapshot->groups)
        return ERR_NO_MEMORY;
    char *name = snapshot->names;
    snapshot->piece_count = values->segment_count;
    for (size_t i = 0; i < values->segment_count; i++) {
        const struct values_segment *segment = &values->segments[i];
        const struct slice *slice = &values->layout->slices[segment->slice];
        struct snapshot_piece *piece = &snapshot->pieces[i];
        *piece = (struct snapshot_piece){.slice = slice->index,
                                         .name = name,
                                         .rank = slice->rank,
                                         .row_offset = segment->row_offset,
                                         .rows = segment->rows,
                                         .is_whole_slice = segment->rows == slice->rows,
                                         .elem_offset = segment->elem_offset,
                                         .elem_count = segment->elem_count,
                                         .group = segment->group};
        memcpy(piece->shape, slice->shape, sizeof(piece->shape));
        name = stpcpy(name, slice->name) + 1;
    }
    snapshot->group_count = values->group_count;
    for (size_t i = 0; i < values->group_count; i++) {
        snapshot->groups[i].applied = values->groups[i].applied;
        ranges_init(&snapshot->groups[i].marks);
        ranges_copy(&snapshot->groups[i].marks, &values->groups[i].marks);
    }
    *ret_snapshot = TAKE(snapshot);
    return ERR_OK;
}

void snapshot_free(struct snapshot *snapshot)
{
    if (!snapshot)
        return;
    buf_unref(snapshot->values);
    for (size_t i = 0; i < OPTIM_SLOTS_MAX; i++)
        buf_unref(snapshot->slots[i]);
    free(snapshot->names);
    free(snapshot->pieces);
    for (size_t i = 0; i < snapshot->group_count; i++)
        ranges_done(&snapshot->groups[i].marks);
    free(snapshot->groups);
    free(snapshot);
}
