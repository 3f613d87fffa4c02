/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_manifest: the struct and its checks. */
#include "common/ckpt/ckpt_manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/ckpt/ckpt_manifest_int.h"

struct ckpt_manifest *ckpt_manifest_new(void)
{
    struct ckpt_manifest *manifest = base_alloc(sizeof(*manifest));
    ranges_init(&manifest->acked);
    ranges_init(&manifest->abandoned);
    return manifest;
}

void ckpt_manifest_free(struct ckpt_manifest *manifest)
{
    if (!manifest)
        return;
    free(manifest->job);
    free(manifest->spec_json);
    for (size_t i = 0; i < manifest->var_count; i++)
        free(manifest->vars[i].name);
    for (size_t i = 0; i < manifest->file_count; i++)
        free(manifest->files[i].name);
    for (size_t i = 0; i < manifest->group_count; i++)
        ranges_done(&manifest->groups[i].marks);
    free(manifest->vars);
    free(manifest->files);
    free(manifest->groups);
    free(manifest->slices);
    ranges_done(&manifest->acked);
    ranges_done(&manifest->abandoned);
    free(manifest);
}

/* Room for one more; the array grows at powers of two, so that its count is all it needs. */
static void *grow(void *items, size_t count, size_t item_bytes)
{
    if (count & (count - 1))
        return items;
    return base_realloc(items, (count ? 2 * count : 1) * item_bytes);
}

uint32_t ckpt_manifest_add_var(struct ckpt_manifest *manifest, const char *name, uint32_t rank,
                               const uint64_t *shape, bool is_trainable)
{
    ASSERT(rank <= LIMIT_RANK);
    manifest->vars = grow(manifest->vars, manifest->var_count, sizeof(*manifest->vars));
    struct ckpt_var *var = &manifest->vars[manifest->var_count];
    *var = (struct ckpt_var){.name = base_strdup(name), .rank = rank, .is_trainable = is_trainable};
    for (uint32_t i = 0; i < rank; i++)
        var->shape[i] = shape[i];
    return (uint32_t)manifest->var_count++;
}

uint32_t ckpt_manifest_add_file(struct ckpt_manifest *manifest, const char *name, uint64_t bytes,
                                uint32_t crc, uint64_t version)
{
    manifest->files = grow(manifest->files, manifest->file_count, sizeof(*manifest->files));
    manifest->files[manifest->file_count] = (struct ckpt_file){
        .name = base_strdup(name), .bytes = bytes, .crc32c = crc, .version = version};
    return (uint32_t)manifest->file_count++;
}

uint32_t ckpt_manifest_add_group(struct ckpt_manifest *manifest, uint64_t applied,
                                 const struct ranges *marks)
{
    manifest->groups = grow(manifest->groups, manifest->group_count, sizeof(*manifest->groups));
    struct ckpt_group *group = &manifest->groups[manifest->group_count];
    group->applied = applied;
    ranges_init(&group->marks);
    ranges_copy(&group->marks, marks);
    return (uint32_t)manifest->group_count++;
}

void ckpt_manifest_add_slice(struct ckpt_manifest *manifest, uint32_t var, uint64_t row_offset,
                             uint64_t rows, uint32_t file, uint32_t group)
{
    manifest->slices = grow(manifest->slices, manifest->slice_count, sizeof(*manifest->slices));
    manifest->slices[manifest->slice_count++] = (struct ckpt_slice){
        .var = var, .row_offset = row_offset, .rows = rows, .file = file, .group = group};
}

uint64_t ckpt_var_rows(uint32_t rank, const uint64_t *shape)
{
    return rank == 0 ? 1 : shape[0];
}

uint64_t ckpt_var_row_elems(uint32_t rank, const uint64_t *shape)
{
    uint64_t elems = 1;
    for (uint32_t i = 1; i < rank; i++)
        elems *= shape[i];
    return elems;
}

char *ckpt_tensor_key(const char *name, uint64_t all_rows, uint64_t row_offset, uint64_t rows,
                      const char *slot_or_null)
{
    const char *hash = slot_or_null ? "#" : "";
    const char *slot = slot_or_null ? slot_or_null : "";
    if (rows == all_rows)
        return base_asprintf("%s%s%s", name, hash, slot);
    return base_asprintf("%s[%" PRIu64 ":%" PRIu64 "]%s%s", name, row_offset, row_offset + rows,
                         hash, slot);
}

/* ---- checks --------------------------------------------------------------------------------- */
static int by_name(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

static enum err_code check_names(const struct ckpt_manifest *manifest, struct err *err)
{
    size_t count = MAX(manifest->var_count, manifest->file_count);
    AUTO_MEM const char **names = base_alloc((count + 1) * sizeof(*names));
    for (int pass = 0; pass < 2; pass++) {
        size_t n = pass ? manifest->file_count : manifest->var_count;
        for (size_t i = 0; i < n; i++)
            names[i] = pass ? manifest->files[i].name : manifest->vars[i].name;
        if (n > 0)
            qsort(names, n, sizeof(*names), by_name);
        for (size_t i = 1; i < n; i++)
            if (strcmp(names[i], names[i - 1]) == 0)
                return err_set(err, ERR_INVALID, "%s: \"%s\" twice", pass ? "files" : "vars",
                               names[i]);
    }
    return ERR_OK;
}

static int by_rows(const void *a, const void *b)
{
    const struct ckpt_slice *x = a, *y = b;
    if (x->var != y->var)
        return x->var < y->var ? -1 : 1;
    return x->row_offset < y->row_offset ? -1 : x->row_offset > y->row_offset;
}

/* Every row of every variable once. */
static enum err_code check_cover(const struct ckpt_manifest *manifest, struct err *err)
{
    size_t count = manifest->slice_count;
    AUTO_MEM struct ckpt_slice *slices = base_alloc((count + 1) * sizeof(*slices));
    if (count > 0) {
        memcpy(slices, manifest->slices, count * sizeof(*slices));
        qsort(slices, count, sizeof(*slices), by_rows);
    }
    size_t at = 0;
    for (size_t v = 0; v < manifest->var_count; v++) {
        const struct ckpt_var *var = &manifest->vars[v];
        uint64_t row = 0, all = ckpt_var_rows(var->rank, var->shape);
        for (; at < count && slices[at].var == v; at++) {
            if (slices[at].row_offset != row || slices[at].rows > all - row)
                return err_set(err, ERR_INVALID,
                               "slices of %s: rows %" PRIu64 " from %" PRIu64
                               ", want them from %" PRIu64 " inside %" PRIu64,
                               var->name, slices[at].rows, slices[at].row_offset, row, all);
            row += slices[at].rows;
        }
        if (row != all)
            return err_set(err, ERR_INVALID, "slices of %s: %" PRIu64 " of its %" PRIu64 " rows",
                           var->name, row, all);
    }
    ASSERT(at == count);
    return ERR_OK;
}

enum err_code ckpt_manifest_check(const struct ckpt_manifest *manifest, struct err *err)
{
    if (!manifest->job || !manifest->spec_json)
        return err_set(err, ERR_INVALID, "manifest without %s", manifest->job ? "spec" : "job");
    if (manifest->number > LIMIT_CKPT_NUMBER)
        return err_set(err, ERR_INVALID, "number: %" PRIu64 ", want at most 2^53",
                       manifest->number);
    for (size_t i = 0; i < manifest->var_count; i++) {
        const struct ckpt_var *var = &manifest->vars[i];
        uint64_t elems = 1;
        if (var->name[0] == '\0')
            return err_set(err, ERR_INVALID, "vars[%zu]: name: \"\", want one", i);
        for (uint32_t k = 0; k < var->rank; k++)
            if (var->shape[k] == 0 || __builtin_mul_overflow(elems, var->shape[k], &elems) ||
                elems > LIMIT_TENSOR_ELEMENTS)
                return err_set(err, ERR_INVALID,
                               "vars[%zu]: shape[%u]: %" PRIu64
                               ", want 1 or more and at most 2^40 elements",
                               i, k, var->shape[k]);
    }
    for (size_t i = 0; i < manifest->file_count; i++) {
        const char *name = manifest->files[i].name;
        if (name[0] == '\0' || name[0] == '.' || strchr(name, '/') ||
            strlen(name) > CKPT_FILE_NAME_BYTES)
            return err_set(err, ERR_INVALID,
                           "files[%zu]: name: \"%.80s\", want one without / or leading dot", i,
                           name);
    }
    for (size_t i = 0; i < manifest->slice_count; i++) {
        const struct ckpt_slice *slice = &manifest->slices[i];
        if (slice->var >= manifest->var_count || slice->file >= manifest->file_count ||
            slice->group >= manifest->group_count || slice->rows == 0)
            return err_set(err, ERR_INVALID,
                           "slices[%zu]: var %u, file %u, group %u, rows %" PRIu64
                           ", want indices below %zu, %zu, %zu and a row",
                           i, slice->var, slice->file, slice->group, slice->rows,
                           manifest->var_count, manifest->file_count, manifest->group_count);
    }
    enum err_code code = check_names(manifest, err);
    return code == ERR_OK ? check_cover(manifest, err) : code;
}
