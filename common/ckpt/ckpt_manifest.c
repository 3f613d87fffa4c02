/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_manifest: the struct, its checks, its text and back. */
#include "common/ckpt/ckpt_manifest.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/crc32c.h"
#include "common/base/file.h"
#include "common/formats/json.h"

/* The last field, with the end of the object: always as long as this. */
#define TRAILER_FORMAT  ",\"crc32c\":\"%08x\"}\n"
#define TRAILER_BYTES   (sizeof(",\"crc32c\":\"01234567\"}\n") - 1)
#define FILE_NAME_BYTES 64 /* "server255-shard63.safetensors" and room */
#define VALUE_MAX       ((uint64_t)INT64_MAX)

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
            strlen(name) > FILE_NAME_BYTES)
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

/* ---- text ----------------------------------------------------------------------------------- */
static json_t *json_u64(uint64_t value)
{
    return json_integer((json_int_t)MIN(value, VALUE_MAX));
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
    if (bytes + TRAILER_BYTES > LIMIT_MANIFEST_BYTES)
        return err_set(err, ERR_INVALID, "manifest of %s: %zu bytes, want at most %u",
                       manifest->job, bytes + TRAILER_BYTES, LIMIT_MANIFEST_BYTES);
    *ret_text = base_asprintf("%.*s" TRAILER_FORMAT, (int)bytes, body, crc32c(0, body, bytes));
    *ret_bytes = bytes + TRAILER_BYTES;
    return ERR_OK;
}

/* ---- and back
 * ------------------------------------------------------------------------------------ */
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
        code = read_string(at, "name", FILE_NAME_BYTES, &name, err);
    if (code == ERR_OK)
        code = read_u64(at, "bytes", VALUE_MAX, &bytes, err);
    if (code == ERR_OK)
        code = read_crc(at, &crc, err);
    if (code == ERR_OK)
        code = read_u64(at, "version", VALUE_MAX, &version, err);
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
        code = read_u64(at, "applied", VALUE_MAX, &applied, err);
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
        code = read_u64(at, "row_offset", VALUE_MAX, &row_offset, err);
    if (code == ERR_OK)
        code = read_u64(at, "rows", VALUE_MAX, &rows, err);
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
        code = read_u64(root, "generation", VALUE_MAX, &manifest->generation, err);
    if (code == ERR_OK)
        code = read_u64(root, "created_ms", VALUE_MAX, &manifest->created_ms, err);
    if (code == ERR_OK)
        code = read_u32(root, "epoch", UINT32_MAX, &manifest->epoch, err);
    if (code == ERR_OK)
        code = read_u64(root, "batch", VALUE_MAX, &manifest->batch, err);
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
    if (bytes < TRAILER_BYTES + 2)
        return err_set(err, ERR_CORRUPT, "%s: %zu bytes are no manifest", origin, bytes);
    size_t body = bytes - TRAILER_BYTES;
    char trailer[TRAILER_BYTES + 1];
    snprintf(trailer, sizeof(trailer), TRAILER_FORMAT, crc32c(0, text, body));
    if (memcmp(trailer, text + body, TRAILER_BYTES) != 0)
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
