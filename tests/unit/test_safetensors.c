/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/file.h"
#include "common/formats/safetensors.h"
#include "tests/harness.h"

static char *in_dir(const char *name)
{
    return base_asprintf("%s/%s", test_dir(), name);
}

/* A file with this header, padded or not as it stands, and so many bytes behind it. */
static enum err_code read_with(const char *header, uint64_t length, size_t data_bytes,
                               struct err *err)
{
    AUTO_MEM char *path = in_dir("hostile");
    size_t header_bytes = strlen(header);
    AUTO_MEM char *all = base_alloc(8 + header_bytes + data_bytes + 1);
    memcpy(all, &length, 8);
    snprintf(all + 8, header_bytes + 1, "%s", header);
    CHECK(file_write(path, all, 8 + header_bytes + data_bytes, err) == ERR_OK);
    AUTO(safetensors_reader) reader = NULL;
    return safetensors_reader_new(path, &reader, err);
}

TEST(what_is_written_in_pieces_is_read_back)
{
    struct err err;
    AUTO_MEM char *path = in_dir("x.safetensors");
    float data[10];
    for (int i = 0; i < 10; i++)
        data[i] = (float)i;
    struct safetensors_entry entries[] = {
        {.name = "b/weights", .dtype = "F32", .rank = 2, .shape = {2, 3}},
        {.name = "a \"quoted\" \xc3\xa9", .dtype = "F32", .rank = 0},
        {.name = "c", .dtype = "F32", .rank = 1, .shape = {3}}};
    struct safetensors_pair metadata[] = {{"format", "pt"}, {"k", "v"}};
    uint64_t bytes, real_bytes;
    uint32_t crc, real_crc;
    AUTO(safetensors_writer) writer = NULL;
    CHECK_OK(safetensors_writer_new(path, entries, 3, metadata, 2, &writer, &err));
    CHECK_OK(safetensors_write(writer, data, 10, &err));
    CHECK(safetensors_writer_finish(writer, &bytes, &crc, &err) == ERR_INVALID);
    CHECK_OK(safetensors_write(writer, (char *)data + 10, 30, &err));
    CHECK(safetensors_write(writer, data, 1, &err) == ERR_INVALID);
    CHECK_OK(safetensors_writer_finish(writer, &bytes, &crc, &err));
    CHECK_OK(file_checksum(path, &real_bytes, &real_crc, &err));
    CHECK_U64(bytes, real_bytes);
    CHECK_U64(crc, real_crc);
    CHECK_U64((bytes - 40) % 8, 0); /* the header is padded */

    AUTO(safetensors_reader) reader = NULL;
    CHECK_OK(safetensors_reader_new(path, &reader, &err));
    CHECK_U64(safetensors_count(reader), 3);
    CHECK_STR(safetensors_metadata(reader, "format"), "pt");
    CHECK(!safetensors_metadata(reader, "absent") && !safetensors_find(reader, "absent"));
    for (int i = 0; i < 3; i++) {
        const struct safetensors_entry *entry = safetensors_find(reader, entries[i].name);
        CHECK(entry && entry->rank == entries[i].rank);
        CHECK_STR(entry->dtype, "F32");
    }
    float back[3];
    const struct safetensors_entry *entry = safetensors_find(reader, "b/weights");
    CHECK_U64(entry->bytes, 24);
    CHECK_OK(safetensors_read(reader, entry, 12, back, 12, &err));
    CHECK(back[0] == 3 && back[2] == 5);
    CHECK_OK(safetensors_read(reader, safetensors_find(reader, "c"), 0, back, 12, &err));
    CHECK(back[0] == 7 && back[2] == 9);
}

TEST(a_table_that_cannot_be_written_is_refused)
{
    struct err err;
    AUTO_MEM char *path = in_dir("x");
    struct safetensors_writer *writer;
    struct safetensors_entry twice[] = {{.name = "a", .dtype = "F32"},
                                        {.name = "a", .dtype = "F32"}};
    CHECK(safetensors_writer_new(path, twice, 2, NULL, 0, &writer, &err) == ERR_INVALID);
    struct safetensors_entry odd[] = {{.name = "a", .dtype = "F33"}};
    CHECK(safetensors_writer_new(path, odd, 1, NULL, 0, &writer, &err) == ERR_INVALID);
    struct safetensors_entry latin[] = {{.name = "\xe9", .dtype = "F32"}};
    CHECK(safetensors_writer_new(path, latin, 1, NULL, 0, &writer, &err) == ERR_INVALID);
    struct safetensors_entry huge[] = {
        {.name = "a", .dtype = "F32", .rank = 2, .shape = {1ull << 40, 1ull << 40}}};
    CHECK(safetensors_writer_new(path, huge, 1, NULL, 0, &writer, &err) == ERR_INVALID);
}

TEST(hostile_headers_are_refused_with_the_tensor_and_the_field)
{
    struct err err;
#define A(fields) "{\"a\":{" fields "}}"
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *says;
    } cases[] = {
        {"", 0, "begin with {"},
        {"[]", 0, "begin with {"},
        {" {}", 0, "begin with {"},
        {"{", 0, "header byte"},
        {"{} x", 0, "header byte"},
        {"{\"a\":1,\"a\":2}", 0, "header byte"},
        {"{\"a\":1}", 0, "\"a\""},
        {"{\"a\":{}}", 0, "\"a\""},
        {A("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1"), 4, "\"a\""},
        {A("\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]"), 4, "dtype"},
        {A("\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]"), 4, "dtype"},
        {A("\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]"), 4, "shape"},
        {A("\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]"), 4, "shape[0]"},
        {A("\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]"), 4, "shape[0]"},
        {A("\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]"), 4, "shape"},
        {A("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]"), 4, "dtype and shape"},
        {A("\"dtype\":\"F32\",\"shape\":[4611686018427387904,8],\"data_offsets\":[0,4]"), 4,
         "dtype and shape"},
        {A("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]"), 4, "data_offsets"},
        {A("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]"), 4, "data_offsets"},
        {A("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]"), 4, "data_offsets"},
        {A("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]"), 4, "data_offsets"},
        {A("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]"), 8, "no gap"},
        {A("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"), 8, "8 bytes behind"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
         12, "no gap, no overlap"},
        {"{\"__metadata__\":1}", 0, "__metadata__"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__.a"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        if (read_with(cases[i].header, strlen(cases[i].header), cases[i].data_bytes, &err) !=
                ERR_CORRUPT ||
            !strstr(err.text, cases[i].says) || !strstr(err.text, "hostile"))
            test_fail(__FILE__, __LINE__, "%s: %s", cases[i].header, err.text);
    }
    CHECK_OK(read_with("{}      ", 8, 0, &err));
    const char *empty = A("\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]");
    CHECK_OK(read_with(empty, strlen(empty), 0, &err));
}

TEST(header_lengths_that_lie_are_refused)
{
    struct err err;
    CHECK(read_with("{}", 3, 0, &err) == ERR_CORRUPT);
    CHECK(read_with("{}", UINT64_MAX, 0, &err) == ERR_CORRUPT);
    CHECK(read_with("{}", 1ull << 63, 0, &err) == ERR_CORRUPT);
    CHECK(read_with("{}", 1, 0, &err) == ERR_CORRUPT);
    CHECK(read_with("{}", 0, 0, &err) == ERR_CORRUPT);
    AUTO_MEM char *path = in_dir("short");
    AUTO(safetensors_reader) reader = NULL;
    CHECK_OK(file_write(path, "1234567", 7, &err));
    CHECK(safetensors_reader_new(path, &reader, &err) == ERR_CORRUPT);
    AUTO_MEM char *absent = in_dir("absent");
    CHECK(safetensors_reader_new(absent, &reader, &err) == ERR_NOT_FOUND);
}
