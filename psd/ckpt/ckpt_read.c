/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_read: each slice of the shard is put together from the checkpoint's slices that overlap it.
 */
#include "psd/ckpt/ckpt_read.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/ckpt/ckpt_manifest.h"
#include "common/formats/safetensors.h"
#include "psd/values/mem.h"

#define NO_GROUP UINT32_MAX

struct source {
    const char *folder;
    struct ckpt_manifest *manifest;
    uint32_t *vars_by_name;            /* indices of variables */
    struct ckpt_slice *slices;         /* by variable and row */
    struct safetensors_reader **files; /* opened, and checked, when first read from */
    uint32_t *groups;                  /* of the checkpoint -> of the shard, or NO_GROUP */
};

static void source_done(struct source *source)
{
    for (size_t i = 0; source->files && i < source->manifest->file_count; i++)
        safetensors_reader_free(source->files[i]);
    free(source->files);
    free(source->vars_by_name);
    free(source->slices);
    free(source->groups);
    ckpt_manifest_free(source->manifest);
}

static int by_rows(const void *a, const void *b)
{
    const struct ckpt_slice *x = a, *y = b;
    if (x->var != y->var)
        return x->var < y->var ? -1 : 1;
    return x->row_offset < y->row_offset ? -1 : x->row_offset > y->row_offset;
}

static int by_var_name(const void *a, const void *b, void *arg)
{
    const struct ckpt_manifest *manifest = arg;
    const uint32_t *x = a, *y = b;
    return strcmp(manifest->vars[*x].name, manifest->vars[*y].name);
}

static enum err_code source_open(const char *folder, struct source *source, struct err *err)
{
    source->folder = folder;
    enum err_code code = ckpt_manifest_read(folder, &source->manifest, err);
    if (code != ERR_OK)
        return code;
    const struct ckpt_manifest *manifest = source->manifest;
    bool is_made =
        (source->files =
             mem_table(manifest->file_count, sizeof(struct safetensors_reader *), "files", err)) &&
        (source->vars_by_name =
             mem_table(manifest->var_count, sizeof(*source->vars_by_name), "variables", err)) &&
        (source->slices =
             mem_table(manifest->slice_count, sizeof(*source->slices), "slices", err)) &&
        (source->groups =
             mem_table(manifest->group_count, sizeof(*source->groups), "histories", err));
    if (!is_made)
        return ERR_NO_MEMORY;
    for (size_t i = 0; i < manifest->var_count; i++)
        source->vars_by_name[i] = (uint32_t)i;
    qsort_r(source->vars_by_name, manifest->var_count, sizeof(*source->vars_by_name), by_var_name,
            source->manifest);
    if (manifest->slice_count > 0)
        memcpy(source->slices, manifest->slices, manifest->slice_count * sizeof(*source->slices));
    qsort(source->slices, manifest->slice_count, sizeof(*source->slices), by_rows);
    for (size_t i = 0; i < manifest->group_count; i++)
        source->groups[i] = NO_GROUP;
    return ERR_OK;
}

static enum err_code file_of(struct source *source, uint32_t index,
                             const struct safetensors_reader **ret_file, struct err *err)
{
    const struct ckpt_file *file = &source->manifest->files[index];
    if (!source->files[index]) {
        AUTO_MEM char *path = base_asprintf("%s/%s", source->folder, file->name);
        uint64_t bytes = 0;
        uint32_t crc = 0;
        enum err_code code = file_checksum(path, &bytes, &crc, err);
        if (code == ERR_OK && (bytes != file->bytes || crc != file->crc32c))
            code = err_set(err, ERR_CORRUPT,
                           "%s: crc32c %08x over %" PRIu64
                           " bytes, the manifest says %08x over %" PRIu64,
                           path, crc, bytes, file->crc32c, file->bytes);
        if (code == ERR_OK)
            code = safetensors_reader_new(path, &source->files[index], err);
        if (code != ERR_OK)
            return code;
    }
    *ret_file = source->files[index];
    return ERR_OK;
}

/* The variable of that name, with the shape that the job's plan has. */
static enum err_code find_var(const struct source *source, const struct slice *slice,
                              uint32_t *ret_var, struct err *err)
{
    const struct ckpt_manifest *manifest = source->manifest;
    size_t low = 0, high = manifest->var_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        uint32_t index = source->vars_by_name[mid];
        int order = strcmp(manifest->vars[index].name, slice->name);
        if (order == 0) {
            const struct ckpt_var *var = &manifest->vars[index];
            bool is_same = var->rank == slice->rank;
            for (uint32_t i = 0; is_same && i < var->rank; i++)
                is_same = var->shape[i] == slice->shape[i];
            if (!is_same)
                return err_set(
                    err, ERR_INVALID,
                    "%s: variable %s has another shape than in the job (rank %u, %" PRIu64
                    " rows; want rank %u, %" PRIu64 " rows)",
                    source->folder, slice->name, var->rank, ckpt_var_rows(var->rank, var->shape),
                    slice->rank, ckpt_var_rows(slice->rank, slice->shape));
            *ret_var = index;
            return ERR_OK;
        }
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return err_set(err, ERR_INVALID, "%s: no variable %s among its %zu", source->folder,
                   slice->name, manifest->var_count);
}

static enum err_code read_rows(struct source *source, const struct ckpt_slice *from,
                               const struct slice *slice, uint64_t first_row, uint64_t rows,
                               const char *slot, float *dst, struct err *err)
{
    const struct safetensors_reader *file;
    enum err_code code = file_of(source, from->file, &file, err);
    if (code != ERR_OK)
        return code;
    AUTO_MEM char *key = ckpt_tensor_key(slice->name, ckpt_var_rows(slice->rank, slice->shape),
                                         from->row_offset, from->rows, slot);
    const struct safetensors_entry *entry = safetensors_find(file, key);
    uint64_t row_bytes = slice->row_elems * sizeof(float);
    if (!entry && slot)
        return err_set(err, ERR_INVALID,
                       "%s/%s: no tensor \"%s\": the checkpoint was made with another optimizer",
                       source->folder, source->manifest->files[from->file].name, key);
    if (!entry || strcmp(entry->dtype, "F32") != 0 || entry->bytes != from->rows * row_bytes)
        return err_set(
            err, ERR_CORRUPT, "%s/%s: tensor \"%s\": want it with %" PRIu64 " bytes of F32",
            source->folder, source->manifest->files[from->file].name, key, from->rows * row_bytes);
    return safetensors_read(file, entry, (first_row - from->row_offset) * row_bytes, dst,
                            rows * row_bytes, err);
}

struct history { /* being collected */
    struct values_segment *segments;
    size_t segment_count, segment_room;
    struct values_group *groups;
    size_t group_count, group_room;
};

static void history_done(struct history *history)
{
    for (size_t i = 0; i < history->group_count; i++)
        ranges_done(&history->groups[i].marks);
    free(history->groups);
    free(history->segments);
}

static enum err_code group_of(struct source *source, uint32_t group, struct history *history,
                              uint32_t *ret_group, struct err *err)
{
    if (source->groups[group] == NO_GROUP) {
        const struct ckpt_group *from = &source->manifest->groups[group];
        void *grown = mem_table_grown(history->groups, history->group_count, &history->group_room,
                                      sizeof(*history->groups), "histories", err);
        if (!grown)
            return ERR_NO_MEMORY;
        history->groups = grown;
        struct values_group *to = &history->groups[history->group_count];
        *to = (struct values_group){.applied = from->applied};
        ranges_init(&to->marks);
        ranges_copy(&to->marks, &from->marks);
        source->groups[group] = (uint32_t)history->group_count++;
    }
    *ret_group = source->groups[group];
    return ERR_OK;
}

static enum err_code add_segment(struct history *history, const struct values_segment *segment,
                                 struct err *err)
{
    void *grown = mem_table_grown(history->segments, history->segment_count, &history->segment_room,
                                  sizeof(*history->segments), "segments", err);
    if (!grown)
        return ERR_NO_MEMORY;
    history->segments = grown;
    history->segments[history->segment_count++] = *segment;
    return ERR_OK;
}

static enum err_code read_slice(struct source *source, struct values *values, uint32_t index,
                                struct history *history, struct err *err)
{
    const struct slice *slice = &values->layout->slices[index];
    const struct ckpt_manifest *manifest = source->manifest;
    uint32_t var = 0;
    enum err_code code = find_var(source, slice, &var, err);
    if (code != ERR_OK)
        return code;
    size_t low = 0, high = manifest->slice_count; /* the first that ends behind our first row */
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const struct ckpt_slice *at = &source->slices[mid];
        if (at->var < var || (at->var == var && at->row_offset + at->rows <= slice->row_offset))
            low = mid + 1;
        else
            high = mid;
    }
    uint64_t row = slice->row_offset, end = slice->row_offset + slice->rows;
    for (; row < end; low++) {
        const struct ckpt_slice *from = &source->slices[low];
        /* The manifest was checked: the slices of a variable follow one another without a gap. */
        ASSERT(low < manifest->slice_count && from->var == var && from->row_offset <= row);
        uint64_t rows = MIN(end, from->row_offset + from->rows) - row;
        uint64_t at = slice->elem_offset + (row - slice->row_offset) * slice->row_elems;
        code =
            read_rows(source, from, slice, row, rows, NULL, (float *)values->now->data + at, err);
        for (uint32_t k = 0; code == ERR_OK && k < values->optim->slot_count; k++)
            code = read_rows(source, from, slice, row, rows, values->optim->slot_names[k],
                             (float *)values->slots[k]->data + at, err);
        struct values_segment segment = {.slice = index,
                                         .row_offset = row,
                                         .rows = rows,
                                         .elem_offset = at,
                                         .elem_count = rows * slice->row_elems};
        if (code == ERR_OK)
            code = group_of(source, from->group, history, &segment.group, err);
        if (code == ERR_OK)
            code = add_segment(history, &segment, err);
        if (code != ERR_OK)
            return code;
        row += rows;
    }
    return ERR_OK;
}

enum err_code ckpt_read(const char *folder, struct values *values, struct err *err)
{
    struct source source = {0};
    struct history history = {0};
    enum err_code code = source_open(folder, &source, err);
    for (size_t i = 0; code == ERR_OK && i < values->layout->count; i++)
        code = read_slice(&source, values, (uint32_t)i, &history, err);
    source_done(&source);
    if (code != ERR_OK || history.group_count == 0) {
        history_done(&history);
        return code;
    }
    values_set_history(values, history.segments, history.segment_count, history.groups,
                       history.group_count);
    return ERR_OK;
}
