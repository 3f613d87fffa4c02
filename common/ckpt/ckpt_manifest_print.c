/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_manifest_print: the struct as the text of the file. A field added here is read in
 * ckpt_manifest_parse.c. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/base/crc32c.h"
#include "common/ckpt/ckpt_manifest.h"
#include "common/ckpt/ckpt_manifest_int.h"

static json_t *json_u64(uint64_t value)
{
    return json_integer((json_int_t)MIN(value, CKPT_VALUE_MAX));
}

static json_t *print_ranges(const struct ranges *set)
{
    json_t *list = json_array();
    for (size_t i = 0; i < set->count; i++)
        json_array_append_new(
            list, json_pack("[o,o]", json_u64(set->items[i].first), json_u64(set->items[i].last)));
    return list;
}

static json_t *print_vars(const struct ckpt_manifest *manifest)
{
    json_t *list = json_array();
    for (size_t i = 0; i < manifest->var_count; i++) {
        const struct ckpt_var *var = &manifest->vars[i];
        json_t *shape = json_array();
        for (uint32_t k = 0; k < var->rank; k++)
            json_array_append_new(shape, json_u64(var->shape[k]));
        json_array_append_new(list, json_pack("{s:s,s:o,s:b}", "name", var->name, "shape", shape,
                                              "trainable", var->is_trainable));
    }
    return list;
}

static json_t *print_files(const struct ckpt_manifest *manifest)
{
    json_t *list = json_array();
    for (size_t i = 0; i < manifest->file_count; i++) {
        const struct ckpt_file *file = &manifest->files[i];
        char crc[9];
        snprintf(crc, sizeof(crc), "%08x", file->crc32c);
        json_array_append_new(list, json_pack("{s:s,s:o,s:s,s:o}", "name", file->name, "bytes",
                                              json_u64(file->bytes), "crc32c", crc, "version",
                                              json_u64(file->version)));
    }
    return list;
}

static json_t *print_groups(const struct ckpt_manifest *manifest)
{
    json_t *list = json_array();
    for (size_t i = 0; i < manifest->group_count; i++)
        json_array_append_new(list, json_pack("{s:o,s:o}", "applied",
                                              json_u64(manifest->groups[i].applied), "marks",
                                              print_ranges(&manifest->groups[i].marks)));
    return list;
}

static json_t *print_slices(const struct ckpt_manifest *manifest)
{
    json_t *list = json_array();
    for (size_t i = 0; i < manifest->slice_count; i++) {
        const struct ckpt_slice *slice = &manifest->slices[i];
        const struct ckpt_var *var = &manifest->vars[slice->var];
        AUTO_MEM char *key = ckpt_tensor_key(var->name, ckpt_var_rows(var->rank, var->shape),
                                             slice->row_offset, slice->rows, NULL);
        json_array_append_new(
            list, json_pack("{s:o,s:o,s:o,s:o,s:s,s:o}", "var", json_u64(slice->var), "row_offset",
                            json_u64(slice->row_offset), "rows", json_u64(slice->rows), "file",
                            json_u64(slice->file), "key", key, "group", json_u64(slice->group)));
    }
    return list;
}

enum err_code ckpt_manifest_print(const struct ckpt_manifest *manifest, char **ret_text,
                                  size_t *ret_bytes, struct err *err)
{
    enum err_code code = ckpt_manifest_check(manifest, err);
    if (code != ERR_OK)
        return code;
    json_t *root = json_pack(
        "{s:i,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:s}", "format", CKPT_FORMAT, "job",
        manifest->job, "number", json_u64(manifest->number), "generation",
        json_u64(manifest->generation), "created_ms", json_u64(manifest->created_ms), "epoch",
        json_u64(manifest->epoch), "batch", json_u64(manifest->batch), "acked",
        print_ranges(&manifest->acked), "abandoned", print_ranges(&manifest->abandoned), "vars",
        print_vars(manifest), "files", print_files(manifest), "groups", print_groups(manifest),
        "slices", print_slices(manifest), "spec", manifest->spec_json);
    if (!root)
        return err_set(err, ERR_INVALID, "manifest of %s: a name or the spec is not UTF-8",
                       manifest->job);
    AUTO_MEM char *body = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (!body)
        return err_set(err, ERR_NO_MEMORY, "manifest of %s: no memory for its text", manifest->job);
    size_t bytes = strlen(body) - 1; /* the closing brace comes with the trailer */
    if (bytes + CKPT_TRAILER_BYTES > LIMIT_MANIFEST_BYTES)
        return err_set(err, ERR_INVALID, "manifest of %s: %zu bytes, want at most %u",
                       manifest->job, bytes + CKPT_TRAILER_BYTES, LIMIT_MANIFEST_BYTES);
    *ret_text = base_asprintf("%.*s" CKPT_TRAILER_FORMAT, (int)bytes, body, crc32c(0, body, bytes));
    *ret_bytes = bytes + CKPT_TRAILER_BYTES;
    return ERR_OK;
}
