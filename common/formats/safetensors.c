/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors: writer and strict reader. */
#include "common/formats/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"

static const struct {
    const char *name;
    uint32_t bytes;
} dtypes[] = {{"F32", 4}, {"F64", 8}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I32", 4}, {"I16", 2},
              {"I8", 1},  {"U64", 8}, {"U32", 4}, {"U16", 2},  {"U8", 1},  {"BOOL", 1}};

static uint32_t dtype_bytes(const char *name, const char **ret_static_name)
{
    for (size_t i = 0; i < ARRAY_SIZE(dtypes); i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            *ret_static_name = dtypes[i].name;
            return dtypes[i].bytes;
        }
    }
    return 0;
}

/* False when the product does not fit; a rank of 0 is one element. */
static bool shape_bytes(const uint64_t *shape, uint32_t rank, uint64_t elem_bytes,
                        uint64_t *ret_bytes)
{
    uint64_t total = elem_bytes;
    for (uint32_t i = 0; i < rank; i++)
        if (__builtin_mul_overflow(total, shape[i], &total))
            return false;
    *ret_bytes = total;
    return true;
}

/* ---- writer --------------------------------------------------------------------------------- */
struct safetensors_writer {
    char *path;
    struct file_out *out;
    uint64_t data_bytes; /* promised by the header */
    uint64_t written;
};

void safetensors_writer_free(struct safetensors_writer *writer)
{
    if (!writer)
        return;
    file_out_free(writer->out);
    free(writer->path);
    free(writer);
}

static json_t *header_of(const struct safetensors_entry *entries, size_t count,
                         const struct safetensors_pair *metadata, size_t metadata_count,
                         uint64_t *ret_data_bytes, const char *path, struct err *err)
{
    json_t *root = json_object();
    json_t *pairs = json_object();
    uint64_t offset = 0;
    for (size_t i = 0; i < metadata_count; i++)
        json_object_set_new(pairs, metadata[i].key, json_string(metadata[i].value));
    if (metadata_count > 0)
        json_object_set(root, "__metadata__", pairs);
    json_decref(pairs);
    for (size_t i = 0; i < count; i++) {
        const struct safetensors_entry *entry = &entries[i];
        const char *dtype = NULL;
        uint64_t bytes = 0;
        uint32_t elem_bytes = dtype_bytes(entry->dtype, &dtype);
        if (elem_bytes == 0 || entry->rank > LIMIT_RANK ||
            !shape_bytes(entry->shape, entry->rank, elem_bytes, &bytes) ||
            bytes > UINT64_MAX / 2 - offset) {
            err_set(err, ERR_INVALID, "%s: tensor \"%s\": dtype %s of rank %u cannot be written",
                    path, entry->name, entry->dtype, entry->rank);
            goto fail;
        }
        if (json_object_get(root, entry->name)) {
            err_set(err, ERR_INVALID, "%s: tensor \"%s\" twice, want names that differ", path,
                    entry->name);
            goto fail;
        }
        uint64_t end = offset + bytes;
        json_t *shape = json_array();
        for (uint32_t k = 0; k < entry->rank; k++)
            json_array_append_new(shape, json_integer((json_int_t)entry->shape[k]));
        json_t *item = json_pack("{s:s, s:o, s:[I,I]}", "dtype", dtype, "shape", shape,
                                 "data_offsets", (json_int_t)offset, (json_int_t)end);
        if (!item || json_object_set_new(root, entry->name, item) != 0) {
            err_set(err, ERR_INVALID, "%s: tensor name number %zu is not UTF-8", path, i);
            goto fail;
        }
        offset = end;
    }
    *ret_data_bytes = offset;
    return root;
fail:
    json_decref(root);
    return NULL;
}

enum err_code safetensors_writer_new(const char *path, const struct safetensors_entry *entries,
                                     size_t count, const struct safetensors_pair *metadata,
                                     size_t metadata_count, struct safetensors_writer **ret_writer,
                                     struct err *err)
{
    AUTO(safetensors_writer) writer = base_alloc(sizeof(*writer));
    writer->path = base_strdup(path);
    struct err first = {0};
    json_t *root =
        header_of(entries, count, metadata, metadata_count, &writer->data_bytes, path, &first);
    if (!root)
        return err_set(err, first.code, "%s", first.text);
    AUTO_MEM char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (!text)
        return err_set(err, ERR_NO_MEMORY, "%s: no memory for the header", path);
    size_t bytes = strlen(text);
    size_t padded = (bytes + 7) & ~(size_t)7;
    if (padded > LIMIT_SAFETENSORS_HEADER_BYTES)
        return err_set(err, ERR_INVALID, "%s: header of %zu bytes, want at most %u", path, padded,
                       LIMIT_SAFETENSORS_HEADER_BYTES);
    uint64_t prefix = padded; /* little-endian */
    enum err_code code = file_out_new(path, &writer->out, err);
    if (code == ERR_OK)
        code = file_out_write(writer->out, &prefix, sizeof(prefix), err);
    if (code == ERR_OK)
        code = file_out_write(writer->out, text, bytes, err);
    if (code == ERR_OK)
        code = file_out_write(writer->out, "       ", padded - bytes, err);
    if (code != ERR_OK)
        return code;
    *ret_writer = TAKE(writer);
    return ERR_OK;
}

enum err_code safetensors_write(struct safetensors_writer *writer, const void *data, size_t bytes,
                                struct err *err)
{
    if (bytes > writer->data_bytes - writer->written)
        return err_set(err, ERR_INVALID,
                       "%s: %" PRIu64 " bytes of tensors, the header says %" PRIu64, writer->path,
                       writer->written + bytes, writer->data_bytes);
    enum err_code code = file_out_write(writer->out, data, bytes, err);
    if (code == ERR_OK)
        writer->written += bytes;
    return code;
}

enum err_code safetensors_writer_finish(struct safetensors_writer *writer, uint64_t *ret_bytes,
                                        uint32_t *ret_crc32c, struct err *err)
{
    if (writer->written != writer->data_bytes)
        return err_set(err, ERR_INVALID,
                       "%s: %" PRIu64 " bytes of tensors, the header says %" PRIu64, writer->path,
                       writer->written, writer->data_bytes);
    enum err_code code = file_out_finish(writer->out, err);
    if (code != ERR_OK)
        return code;
    *ret_bytes = file_out_bytes(writer->out);
    *ret_crc32c = file_out_crc32c(writer->out);
    return ERR_OK;
}

/* ---- reader --------------------------------------------------------------------------------- */
struct safetensors_reader {
    char *path;
    int fd;
    uint64_t data_start;
    uint64_t data_bytes;
    json_t *root;                      /* owns the names */
    struct safetensors_entry *entries; /* by name */
    size_t count;
};

void safetensors_reader_free(struct safetensors_reader *reader)
{
    if (!reader)
        return;
    if (reader->fd >= 0)
        close(reader->fd);
    json_decref(reader->root);
    free(reader->entries);
    free(reader->path);
    free(reader);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct safetensors_entry *)a)->name,
                  ((const struct safetensors_entry *)b)->name);
}

static int by_offset(const void *a, const void *b)
{
    const struct safetensors_entry *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static bool as_u64(const json_t *value, uint64_t *ret)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *ret = (uint64_t)json_integer_value(value);
    return true;
}

static enum err_code parse_entry(const struct safetensors_reader *reader, const char *name,
                                 json_t *item, struct safetensors_entry *ret_entry, struct err *err)
{
    const char *path = reader->path;
    struct safetensors_entry entry = {.name = name};
    json_t *dtype = json_object_get(item, "dtype");
    json_t *shape = json_object_get(item, "shape");
    json_t *offsets = json_object_get(item, "data_offsets");
    if (!json_is_object(item) || json_object_size(item) != 3 || !dtype || !shape || !offsets)
        return err_set(err, ERR_CORRUPT,
                       "%s: tensor \"%s\": want an object of dtype, shape and data_offsets", path,
                       name);
    uint32_t elem_bytes =
        json_is_string(dtype) ? dtype_bytes(json_string_value(dtype), &entry.dtype) : 0;
    if (elem_bytes == 0)
        return err_set(err, ERR_CORRUPT, "%s: tensor \"%s\": dtype: \"%.20s\" is not known", path,
                       name, json_is_string(dtype) ? json_string_value(dtype) : "?");
    if (!json_is_array(shape) || json_array_size(shape) > LIMIT_RANK)
        return err_set(err, ERR_CORRUPT,
                       "%s: tensor \"%s\": shape: want an array of at most %d sizes", path, name,
                       LIMIT_RANK);
    entry.rank = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < entry.rank; i++)
        if (!as_u64(json_array_get(shape, i), &entry.shape[i]))
            return err_set(err, ERR_CORRUPT, "%s: tensor \"%s\": shape[%u]: want a size", path,
                           name, i);
    uint64_t begin, end, want;
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !as_u64(json_array_get(offsets, 0), &begin) || !as_u64(json_array_get(offsets, 1), &end) ||
        begin > end || end > reader->data_bytes)
        return err_set(err, ERR_CORRUPT,
                       "%s: tensor \"%s\": data_offsets: want [begin, end] inside the %" PRIu64
                       " bytes behind the header",
                       path, name, reader->data_bytes);
    if (!shape_bytes(entry.shape, entry.rank, elem_bytes, &want) || want != end - begin)
        return err_set(err, ERR_CORRUPT,
                       "%s: tensor \"%s\": data_offsets span %" PRIu64
                       " bytes, not what dtype and shape need",
                       path, name, end - begin);
    entry.offset = begin;
    entry.bytes = want;
    *ret_entry = entry;
    return ERR_OK;
}

static enum err_code parse_header(struct safetensors_reader *reader, const char *text, size_t bytes,
                                  struct err *err)
{
    json_error_t where;
    if (bytes == 0 || text[0] != '{')
        return err_set(err, ERR_CORRUPT, "%s: the header does not begin with {", reader->path);
    reader->root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    if (!json_is_object(reader->root))
        return err_set(err, ERR_CORRUPT, "%s: header byte %d: %s", reader->path, where.position,
                       where.text);
    reader->entries = calloc(json_object_size(reader->root) + 1, sizeof(*reader->entries));
    if (!reader->entries)
        return err_set(err, ERR_NO_MEMORY, "%s: no memory for %zu tensors", reader->path,
                       json_object_size(reader->root));
    const char *name;
    json_t *item;
    json_object_foreach(reader->root, name, item)
    {
        if (strcmp(name, "__metadata__") == 0) {
            const char *key;
            json_t *value;
            if (!json_is_object(item))
                return err_set(err, ERR_CORRUPT, "%s: __metadata__: want an object", reader->path);
            json_object_foreach(item, key, value)
            {
                if (!json_is_string(value))
                    return err_set(err, ERR_CORRUPT, "%s: __metadata__.%s: want a string",
                                   reader->path, key);
            }
            continue;
        }
        enum err_code code = parse_entry(reader, name, item, &reader->entries[reader->count], err);
        if (code != ERR_OK)
            return code;
        reader->count++;
    }
    uint64_t end = 0;
    if (reader->count > 0)
        qsort(reader->entries, reader->count, sizeof(*reader->entries), by_offset);
    for (size_t i = 0; i < reader->count; i++) {
        const struct safetensors_entry *entry = &reader->entries[i];
        if (entry->offset != end)
            return err_set(err, ERR_CORRUPT,
                           "%s: tensor \"%s\": data_offsets begin at %" PRIu64 ", want %" PRIu64
                           " (no gap, no overlap)",
                           reader->path, entry->name, entry->offset, end);
        end += entry->bytes;
    }
    if (end != reader->data_bytes)
        return err_set(err, ERR_CORRUPT,
                       "%s: %" PRIu64 " bytes behind the header, the tensors are %" PRIu64,
                       reader->path, reader->data_bytes, end);
    if (reader->count > 0)
        qsort(reader->entries, reader->count, sizeof(*reader->entries), by_name);
    return ERR_OK;
}

enum err_code safetensors_reader_new(const char *path, struct safetensors_reader **ret_reader,
                                     struct err *err)
{
    AUTO(safetensors_reader) reader = base_alloc(sizeof(*reader));
    reader->path = base_strdup(path);
    reader->fd =
        open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) /* a FIFO has no writer to wait for */;
    if (reader->fd < 0)
        return err_from_errno(err, errno, "open %s", path);
    struct stat st;
    if (fstat(reader->fd, &st) != 0)
        return err_from_errno(err, errno, "stat %s", path);
    uint64_t file_bytes = (uint64_t)st.st_size;
    uint64_t header_bytes = 0;
    enum err_code code =
        file_read_at(reader->fd, path, 0, &header_bytes, sizeof(header_bytes), err);
    if (code != ERR_OK)
        return code;
    if (header_bytes > LIMIT_SAFETENSORS_HEADER_BYTES || header_bytes > file_bytes - 8)
        return err_set(err, ERR_CORRUPT,
                       "%s: header length %" PRIu64 ", want at most %" PRIu64 " (the file) and %u",
                       path, header_bytes, file_bytes - 8, LIMIT_SAFETENSORS_HEADER_BYTES);
    AUTO_MEM char *text = malloc(header_bytes + 1);
    if (!text)
        return err_set(err, ERR_NO_MEMORY, "%s: no memory for a header of %" PRIu64 " bytes", path,
                       header_bytes);
    code = file_read_at(reader->fd, path, 8, text, header_bytes, err);
    if (code != ERR_OK)
        return code;
    reader->data_start = 8 + header_bytes;
    reader->data_bytes = file_bytes - reader->data_start;
    code = parse_header(reader, text, header_bytes, err);
    if (code != ERR_OK)
        return code;
    *ret_reader = TAKE(reader);
    return ERR_OK;
}

size_t safetensors_count(const struct safetensors_reader *reader)
{
    return reader->count;
}

const struct safetensors_entry *safetensors_find(const struct safetensors_reader *reader,
                                                 const char *name)
{
    struct safetensors_entry key = {.name = name};
    return reader->count == 0 ? NULL
                              : bsearch(&key, reader->entries, reader->count, sizeof(key), by_name);
}

const char *safetensors_metadata(const struct safetensors_reader *reader, const char *key)
{
    return json_string_value(json_object_get(json_object_get(reader->root, "__metadata__"), key));
}

enum err_code safetensors_read(const struct safetensors_reader *reader,
                               const struct safetensors_entry *entry, uint64_t offset, void *dst,
                               size_t bytes, struct err *err)
{
    ASSERT(offset <= entry->bytes && bytes <= entry->bytes - offset);
    return file_read_at(reader->fd, reader->path, reader->data_start + entry->offset + offset, dst,
                        bytes, err);
}
