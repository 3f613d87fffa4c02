/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_export: slices of all shards, joined into whole variables under their canonical names. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/ckpt/ckpt_store.h"
#include "common/formats/safetensors.h"

#define PIECE_BYTES (1u << 20) /* copied at a time */

static int by_rows(const void *a, const void *b)
{
    const struct ckpt_slice *x = a, *y = b;
    if (x->var != y->var)
        return x->var < y->var ? -1 : 1;
    return x->row_offset < y->row_offset ? -1 : x->row_offset > y->row_offset;
}

static enum err_code open_files(const char *folder, const struct ckpt_manifest *manifest,
                                struct safetensors_reader **readers, struct err *err)
{
    for (size_t i = 0; i < manifest->file_count; i++) {
        const struct ckpt_file *file = &manifest->files[i];
        AUTO_MEM char *path = base_asprintf("%s/%s", folder, file->name);
        uint64_t bytes = 0;
        uint32_t crc = 0;
        enum err_code code = file_checksum(path, &bytes, &crc, err);
        if (code == ERR_OK && (bytes != file->bytes || crc != file->crc32c))
            code = err_set(err, ERR_CORRUPT,
                           "%s: crc32c %08x over %" PRIu64
                           " bytes, the manifest says %08x over %" PRIu64,
                           path, crc, bytes, file->crc32c, file->bytes);
        if (code == ERR_OK)
            code = safetensors_reader_new(path, &readers[i], err);
        if (code != ERR_OK)
            return code;
    }
    return ERR_OK;
}

static enum err_code copy_slice(const struct ckpt_manifest *manifest,
                                const struct ckpt_slice *slice,
                                const struct safetensors_reader *reader, void *piece,
                                struct safetensors_writer *writer, struct err *err)
{
    const struct ckpt_var *var = &manifest->vars[slice->var];
    AUTO_MEM char *key = ckpt_tensor_key(var->name, ckpt_var_rows(var->rank, var->shape),
                                         slice->row_offset, slice->rows, NULL);
    uint64_t want = slice->rows * ckpt_var_row_elems(var->rank, var->shape) * sizeof(float);
    const struct safetensors_entry *entry = safetensors_find(reader, key);
    if (!entry || strcmp(entry->dtype, "F32") != 0 || entry->bytes != want)
        return err_set(err, ERR_CORRUPT, "%s: tensor \"%s\": want it with %" PRIu64 " bytes of F32",
                       manifest->files[slice->file].name, key, want);
    for (uint64_t done = 0; done < want;) {
        size_t bytes = MIN(want - done, (uint64_t)PIECE_BYTES);
        enum err_code code = safetensors_read(reader, entry, done, piece, bytes, err);
        if (code == ERR_OK)
            code = safetensors_write(writer, piece, bytes, err);
        if (code != ERR_OK)
            return code;
        done += bytes;
    }
    return ERR_OK;
}

static enum err_code write_all(const struct ckpt_manifest *manifest,
                               struct safetensors_reader *const *readers, const char *path,
                               struct err *err)
{
    size_t count = manifest->slice_count;
    AUTO_MEM struct ckpt_slice *slices = base_alloc((count + 1) * sizeof(*slices));
    AUTO_MEM struct safetensors_entry *entries =
        base_alloc((manifest->var_count + 1) * sizeof(*entries));
    AUTO_MEM void *piece = base_alloc(PIECE_BYTES);
    if (count > 0) {
        memcpy(slices, manifest->slices, count * sizeof(*slices));
        qsort(slices, count, sizeof(*slices), by_rows);
    }
    for (size_t i = 0; i < manifest->var_count; i++) {
        const struct ckpt_var *var = &manifest->vars[i];
        entries[i] =
            (struct safetensors_entry){.name = var->name, .dtype = "F32", .rank = var->rank};
        memcpy(entries[i].shape, var->shape, sizeof(var->shape));
    }
    const struct safetensors_pair metadata[] = {{"format", "pt"}, {"job", manifest->job}};
    AUTO(safetensors_writer) writer = NULL;
    enum err_code code = safetensors_writer_new(path, entries, manifest->var_count, metadata,
                                                ARRAY_SIZE(metadata), &writer, err);
    for (size_t i = 0; code == ERR_OK && i < count; i++)
        code = copy_slice(manifest, &slices[i], readers[slices[i].file], piece, writer, err);
    uint64_t bytes;
    uint32_t crc;
    return code == ERR_OK ? safetensors_writer_finish(writer, &bytes, &crc, err) : code;
}

enum err_code ckpt_export(const char *folder, const char *path, struct err *err)
{
    AUTO(ckpt_manifest) manifest = NULL;
    enum err_code code = ckpt_manifest_read(folder, &manifest, err);
    if (code != ERR_OK)
        return code;
    AUTO_MEM struct safetensors_reader **readers =
        base_alloc((manifest->file_count + 1) * sizeof(struct safetensors_reader *));
    code = open_files(folder, manifest, readers, err);
    if (code == ERR_OK)
        code = write_all(manifest, readers, path, err);
    for (size_t i = 0; i < manifest->file_count; i++)
        safetensors_reader_free(readers[i]);
    return code;
}
