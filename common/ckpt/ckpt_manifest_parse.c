/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_manifest_parse: the text of the file as the struct. Every field is checked, and nothing but
 * what ckpt_manifest_print.c writes is accepted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/crc32c.h"
#include "common/base/file.h"
#include "common/ckpt/ckpt_manifest.h"
#include "common/ckpt/ckpt_manifest_int.h"
#include "common/formats/json.h"

#define KEY(name_)                                                                                 \
    {                                                                                              \
        .name = name_, .variants = JSON_ANY_VARIANT                                                \
    }

static enum err_code read_u64(const struct json_at *at, const char *key, uint64_t max,
                              uint64_t *ret_value, struct err *err)
{
    struct json_at member = json_at_member(at, key);
    return json_at_u64(&member, 0, max, ret_value, err);
}

static enum err_code read_u32(const struct json_at *at, const char *key, uint32_t max,
                              uint32_t *ret_value, struct err *err)
{
    struct json_at member = json_at_member(at, key);
    return json_at_u32(&member, 0, max, ret_value, err);
}

static enum err_code read_string(const struct json_at *at, const char *key, size_t max_bytes,
                                 char **ret_string, struct err *err)
{
    struct json_at member = json_at_member(at, key);
    return json_at_string(&member, 1, max_bytes, ret_string, err);
}

static enum err_code read_crc(const struct json_at *at, uint32_t *ret_crc, struct err *err)
{
    struct json_at member = json_at_member(at, "crc32c");
    const char *text = json_at_chars(&member);
    char *end = NULL;
    unsigned long value = text ? strtoul(text, &end, 16) : 0;
    char again[9];
    snprintf(again, sizeof(again), "%08lx", value & 0xffffffff);
    if (!text || strcmp(again, text) != 0)
        return json_at_fail(&member, err, "eight hexadecimal digits");
    *ret_crc = (uint32_t)value;
    return ERR_OK;
}

static enum err_code read_ranges(const struct json_at *parent, const char *key, struct ranges *set,
                                 struct err *err)
{
    struct json_at list = json_at_member(parent, key);
    enum err_code code = json_at_array(&list, 0, LIMIT_RANGES, "step ranges", err);
    for (size_t i = 0; code == ERR_OK && i < json_at_count(&list); i++) {
        struct json_at pair = json_at_element(&list, i);
        uint64_t first = 0, last = 0;
        code = json_at_array(&pair, 2, 2, "step numbers", err);
        struct json_at a = json_at_element(&pair, 0), b = json_at_element(&pair, 1);
        if (code == ERR_OK)
            code = json_at_u64(&a, 0, LIMIT_STEPS - 1, &first, err);
        if (code == ERR_OK)
            code = json_at_u64(&b, first, LIMIT_STEPS - 1, &last, err);
        /* As we write them: rising, and never touching the one before. */
        if (code == ERR_OK && set->count > 0 && first < set->items[set->count - 1].last + 2)
            code = json_at_fail(&pair, err, "a range beyond the one before it");
        if (code == ERR_OK)
            ranges_add_range(set, first, last);
    }
    return code;
}

static enum err_code read_var(struct ckpt_manifest *manifest, const struct json_at *at,
                              struct err *err)
{
    static const struct json_key keys[] = {KEY("name"), KEY("shape"), KEY("trainable")};
    uint64_t shape[LIMIT_RANK];
    AUTO_MEM char *name = NULL;
    bool is_trainable = false;
    struct json_at dims = json_at_member(at, "shape"), flag = json_at_member(at, "trainable");
    enum err_code code = json_at_keys(at, keys, ARRAY_SIZE(keys), 1, NULL, err);
    if (code == ERR_OK)
        code = read_string(at, "name", LIMIT_NAME_BYTES, &name, err);
    if (code == ERR_OK)
        code = json_at_array(&dims, 0, LIMIT_RANK, "sizes", err);
    for (size_t i = 0; code == ERR_OK && i < json_at_count(&dims); i++) {
        struct json_at dim = json_at_element(&dims, i);
        code = json_at_u64(&dim, 1, LIMIT_TENSOR_ELEMENTS, &shape[i], err);
    }
    if (code == ERR_OK)
        code = json_at_bool(&flag, &is_trainable, err);
    if (code == ERR_OK)
        ckpt_manifest_add_var(manifest, name, (uint32_t)json_at_count(&dims), shape, is_trainable);
    return code;
}

static enum err_code read_file(struct ckpt_manifest *manifest, const struct json_at *at,
                               struct err *err)
{
    static const struct json_key keys[] = {KEY("name"), KEY("bytes"), KEY("crc32c"),
                                           KEY("version")};
    AUTO_MEM char *name = NULL;
    uint64_t bytes = 0, version = 0;
    uint32_t crc = 0;
    enum err_code code = json_at_keys(at, keys, ARRAY_SIZE(keys), 1, NULL, err);
    if (code == ERR_OK)
        code = read_string(at, "name", CKPT_FILE_NAME_BYTES, &name, err);
    if (code == ERR_OK)
        code = read_u64(at, "bytes", CKPT_VALUE_MAX, &bytes, err);
    if (code == ERR_OK)
        code = read_crc(at, &crc, err);
    if (code == ERR_OK)
        code = read_u64(at, "version", CKPT_VALUE_MAX, &version, err);
    if (code == ERR_OK)
        ckpt_manifest_add_file(manifest, name, bytes, crc, version);
    return code;
}

static enum err_code read_group(struct ckpt_manifest *manifest, const struct json_at *at,
                                struct err *err)
{
    static const struct json_key keys[] = {KEY("applied"), KEY("marks")};
    struct ranges marks;
    uint64_t applied = 0;
    ranges_init(&marks);
    enum err_code code = json_at_keys(at, keys, ARRAY_SIZE(keys), 1, NULL, err);
    if (code == ERR_OK)
        code = read_u64(at, "applied", CKPT_VALUE_MAX, &applied, err);
    if (code == ERR_OK)
        code = read_ranges(at, "marks", &marks, err);
    if (code == ERR_OK)
        ckpt_manifest_add_group(manifest, applied, &marks);
    ranges_done(&marks);
    return code;
}

static enum err_code read_slice(struct ckpt_manifest *manifest, const struct json_at *at,
                                struct err *err)
{
    static const struct json_key keys[] = {KEY("var"),  KEY("row_offset"), KEY("rows"),
                                           KEY("file"), KEY("key"),        KEY("group")};
    uint32_t var = 0, file = 0, group = 0;
    uint64_t row_offset = 0, rows = 0;
    enum err_code code = json_at_keys(at, keys, ARRAY_SIZE(keys), 1, NULL, err);
    if (code == ERR_OK)
        code = read_u32(at, "var", LIMIT_VARIABLES, &var, err);
    if (code == ERR_OK)
        code = read_u64(at, "row_offset", CKPT_VALUE_MAX, &row_offset, err);
    if (code == ERR_OK)
        code = read_u64(at, "rows", CKPT_VALUE_MAX, &rows, err);
    if (code == ERR_OK)
        code = read_u32(at, "file", UINT32_MAX, &file, err);
    if (code == ERR_OK)
        code = read_u32(at, "group", UINT32_MAX, &group, err);
    if (code != ERR_OK)
        return code;
    struct json_at key = json_at_member(at, "key");
    const char *text = json_at_chars(&key);
    if (var < manifest->var_count) {
        const struct ckpt_var *of = &manifest->vars[var];
        AUTO_MEM char *want =
            ckpt_tensor_key(of->name, ckpt_var_rows(of->rank, of->shape), row_offset, rows, NULL);
        if (!text || strcmp(text, want) != 0)
            return json_at_fail(&key, err, "\"%s\"", want);
    }
    ckpt_manifest_add_slice(manifest, var, row_offset, rows, file, group);
    return ERR_OK;
}

static enum err_code read_list(struct ckpt_manifest *manifest, const struct json_at *root,
                               const char *key, size_t max_count,
                               enum err_code (*read_one)(struct ckpt_manifest *manifest,
                                                         const struct json_at *at, struct err *err),
                               struct err *err)
{
    struct json_at list = json_at_member(root, key);
    enum err_code code = json_at_array(&list, 0, max_count, key, err);
    for (size_t i = 0; code == ERR_OK && i < json_at_count(&list); i++) {
        struct json_at at = json_at_element(&list, i);
        code = read_one(manifest, &at, err);
    }
    return code;
}

static enum err_code read_root(struct ckpt_manifest *manifest, const struct json_at *root,
                               struct err *err)
{
    static const struct json_key keys[] = {
        KEY("format"), KEY("job"),    KEY("number"), KEY("generation"), KEY("created_ms"),
        KEY("epoch"),  KEY("batch"),  KEY("acked"),  KEY("abandoned"),  KEY("vars"),
        KEY("files"),  KEY("groups"), KEY("slices"), KEY("spec"),       KEY("crc32c")};
    struct json_at format = json_at_member(root, "format");
    uint64_t number = 0;
    enum err_code code = json_at_u64(&format, CKPT_FORMAT, CKPT_FORMAT, &number, err);
    if (code == ERR_OK)
        code = json_at_keys(root, keys, ARRAY_SIZE(keys), 1, NULL, err);
    if (code == ERR_OK)
        code = read_string(root, "job", LIMIT_NAME_BYTES, &manifest->job, err);
    if (code == ERR_OK)
        code = read_u64(root, "number", LIMIT_CKPT_NUMBER, &manifest->number, err);
    if (code == ERR_OK)
        code = read_u64(root, "generation", CKPT_VALUE_MAX, &manifest->generation, err);
    if (code == ERR_OK)
        code = read_u64(root, "created_ms", CKPT_VALUE_MAX, &manifest->created_ms, err);
    if (code == ERR_OK)
        code = read_u32(root, "epoch", UINT32_MAX, &manifest->epoch, err);
    if (code == ERR_OK)
        code = read_u64(root, "batch", CKPT_VALUE_MAX, &manifest->batch, err);
    if (code == ERR_OK)
        code = read_ranges(root, "acked", &manifest->acked, err);
    if (code == ERR_OK)
        code = read_ranges(root, "abandoned", &manifest->abandoned, err);
    if (code == ERR_OK)
        code = read_list(manifest, root, "vars", LIMIT_VARIABLES, read_var, err);
    if (code == ERR_OK)
        code = read_list(manifest, root, "files", (size_t)LIMIT_SERVERS * LIMIT_SHARDS_PER_SERVER,
                         read_file, err);
    if (code == ERR_OK)
        code = read_list(manifest, root, "groups", LIMIT_SLICES, read_group, err);
    if (code == ERR_OK)
        code = read_list(manifest, root, "slices", LIMIT_MANIFEST_SLICES, read_slice, err);
    if (code == ERR_OK)
        code = read_string(root, "spec", LIMIT_SPEC_BYTES, &manifest->spec_json, err);
    return code == ERR_OK ? ckpt_manifest_check(manifest, err) : code;
}

enum err_code ckpt_manifest_parse(const char *origin, const char *text, size_t bytes,
                                  struct ckpt_manifest **ret_manifest, struct err *err)
{
    if (bytes < CKPT_TRAILER_BYTES + 2)
        return err_set(err, ERR_CORRUPT, "%s: %zu bytes are no manifest", origin, bytes);
    size_t body = bytes - CKPT_TRAILER_BYTES;
    char trailer[CKPT_TRAILER_BYTES + 1];
    snprintf(trailer, sizeof(trailer), CKPT_TRAILER_FORMAT, crc32c(0, text, body));
    if (memcmp(trailer, text + body, CKPT_TRAILER_BYTES) != 0)
        return err_set(err, ERR_CORRUPT,
                       "%s: crc32c: the last field is not the one of what is before it (%.8s)",
                       origin, trailer + sizeof(",\"crc32c\":\"") - 1);
    AUTO(json_doc) doc = NULL;
    AUTO(ckpt_manifest) manifest = ckpt_manifest_new();
    struct err why = {0};
    enum err_code code = json_doc_parse(origin, text, bytes, LIMIT_MANIFEST_BYTES, &doc, &why);
    if (code == ERR_OK) {
        struct json_at root = json_doc_root(doc);
        code = read_root(manifest, &root, &why);
        if (code != ERR_OK && strncmp(why.text, origin, strlen(origin)) != 0)
            err_prefix(&why, "%s", origin);
    }
    if (code != ERR_OK)
        return err_set(err, code == ERR_NO_MEMORY ? code : ERR_CORRUPT, "%s", why.text);
    *ret_manifest = TAKE(manifest);
    return ERR_OK;
}

enum err_code ckpt_manifest_read(const char *folder, struct ckpt_manifest **ret_manifest,
                                 struct err *err)
{
    AUTO_MEM char *path = base_asprintf("%s/" CKPT_MANIFEST_NAME, folder);
    AUTO_MEM char *text = NULL;
    size_t bytes = 0;
    enum err_code code = file_read(path, LIMIT_MANIFEST_BYTES, &text, &bytes, err);
    return code == ERR_OK ? ckpt_manifest_parse(path, text, bytes, ret_manifest, err) : code;
}
