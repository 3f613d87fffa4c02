/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_write: the table of tensors, then their bytes straight from the snapshot's buffers. */
#include "psd/ckpt/ckpt_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/ckpt/ckpt_manifest.h"
#include "common/formats/safetensors.h"
#include "psd/values/mem.h"

static void describe(const struct snapshot_piece *piece, const char *slot,
                     struct safetensors_entry *ret_entry)
{
    struct safetensors_entry entry = {.dtype = "F32", .rank = piece->rank};
    entry.name = ckpt_tensor_key(piece->name, ckpt_var_rows(piece->rank, piece->shape),
                                 piece->row_offset, piece->rows, slot);
    for (uint32_t i = 0; i < piece->rank; i++)
        entry.shape[i] = i == 0 ? piece->rows : piece->shape[i];
    *ret_entry = entry;
}

static void free_entries(struct safetensors_entry *entries, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free((char *)entries[i].name);
    free(entries);
}

enum err_code ckpt_write(const struct snapshot *snapshot, const char *directory,
                         const char *file_name, const char *job, uint64_t *ret_bytes,
                         uint32_t *ret_crc32c, struct err *err)
{
    AUTO_MEM char *path = base_asprintf("%s/%s", directory, file_name);
    size_t kinds = 1 + snapshot->slot_count;
    size_t count = snapshot->piece_count * kinds;
    struct safetensors_entry *entries = mem_table(count, sizeof(*entries), "tensors", err);
    if (!entries)
        return ERR_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        size_t kind = i / snapshot->piece_count;
        describe(&snapshot->pieces[i % snapshot->piece_count],
                 kind == 0 ? NULL : snapshot->slot_names[kind - 1], &entries[i]);
    }
    char version[24];
    snprintf(version, sizeof(version), "%" PRIu64, snapshot->version);
    const struct safetensors_pair metadata[] = {
        {"format", "steadfast-shard-1"}, {"job", job}, {"version", version}};

    AUTO(safetensors_writer) writer = NULL;
    enum err_code code =
        safetensors_writer_new(path, entries, count, metadata, ARRAY_SIZE(metadata), &writer, err);
    free_entries(entries, count);
    /* The pieces follow one another in the payload, so a kind is one write. */
    if (code == ERR_OK)
        code = safetensors_write(writer, snapshot->values->data, snapshot->values->bytes, err);
    for (uint32_t i = 0; i < snapshot->slot_count && code == ERR_OK; i++)
        code = safetensors_write(writer, snapshot->slots[i]->data, snapshot->slots[i]->bytes, err);
    return code == ERR_OK ? safetensors_writer_finish(writer, ret_bytes, ret_crc32c, err) : code;
}
