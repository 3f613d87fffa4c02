/* SPDX-License-Identifier: Apache-2.0 */
/* Good files load, and each way in which a file can be wrong is told by file, offset and what was
 * wanted. */
#include "common/formats/idx.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <zlib.h>

#include "common/base/rand.h"
#include "tests/harness.h"

enum { COUNT = 5, HEIGHT = 3, WIDTH = 4, DATA = COUNT * HEIGHT * WIDTH, IMAGE_FILE = 16 + DATA };

static void put_u32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 24);
    p[1] = (uint8_t)(v >> 16);
    p[2] = (uint8_t)(v >> 8);
    p[3] = (uint8_t)v;
}

static void make_images(uint8_t *file)
{
    put_u32(file, 0x803);
    put_u32(file + 4, COUNT);
    put_u32(file + 8, HEIGHT);
    put_u32(file + 12, WIDTH);
    for (int i = 0; i < DATA; i++)
        file[16 + i] = (uint8_t)(i * 7);
}

static size_t make_labels(uint8_t *file)
{
    put_u32(file, 0x801);
    put_u32(file + 4, COUNT);
    for (int i = 0; i < COUNT; i++)
        file[8 + i] = (uint8_t)i;
    return 8 + COUNT;
}

static size_t gzip(const uint8_t *plain, size_t bytes, uint8_t *out, size_t size)
{
    z_stream z = {.next_in = (Bytef *)plain,
                  .avail_in = (uInt)bytes,
                  .next_out = out,
                  .avail_out = (uInt)size};
    CHECK(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    deflateEnd(&z);
    return size - z.avail_out;
}

static const char *write_file(const uint8_t *bytes, size_t size)
{
    static char path[300];
    snprintf(path, sizeof(path), "%s/data", test_dir());
    FILE *fp = fopen(path, "wb");
    CHECK(fp != NULL && fwrite(bytes, 1, size, fp) == size && fclose(fp) == 0);
    return path;
}

/* Loads the bytes as a file and wants ERR_CORRUPT with the path and each of the words in the text.
 */
static void check_corrupt(const uint8_t *bytes, size_t size, enum idx_kind kind, const char *word,
                          const char *word2)
{
    struct err err = {0};
    struct idx_data *data = NULL;
    const char *path = write_file(bytes, size);
    enum err_code code = idx_load(path, kind, &data, &err);
    if (code != ERR_CORRUPT || !strstr(err.text, path) || !strstr(err.text, word) ||
        !strstr(err.text, word2))
        test_fail(__FILE__, __LINE__, "%s \"%s\", want CORRUPT with \"%s\" and \"%s\"",
                  err_name(code), err.text, word, word2);
    CHECK(data == NULL);
}

TEST(images_and_labels_load_plain_and_gzip)
{
    struct err err;
    uint8_t file[IMAGE_FILE];
    uint8_t packed[1024];
    make_images(file);
    for (int is_gzip = 0; is_gzip < 2; is_gzip++) {
        size_t size = is_gzip ? gzip(file, IMAGE_FILE, packed, sizeof(packed)) : IMAGE_FILE;
        const char *path = write_file(is_gzip ? packed : file, size);
        struct idx_header header;
        CHECK_OK(idx_read_header(path, IDX_IMAGES, &header, &err));
        CHECK_U64(header.count, COUNT);
        CHECK_U64(header.height, HEIGHT);
        CHECK_U64(header.width, WIDTH);
        CHECK_U64(header.record_bytes, 12);
        AUTO(idx_data) data = NULL;
        CHECK_OK(idx_load(path, IDX_IMAGES, &data, &err));
        CHECK(memcmp(&data->header, &header, sizeof(header)) == 0);
        CHECK(memcmp(data->bytes, file + 16, DATA) == 0);
    }
    size_t size = make_labels(file);
    AUTO(idx_data) labels = NULL;
    CHECK_OK(idx_load(write_file(file, size), IDX_LABELS, &labels, &err));
    CHECK_U64(labels->header.count, COUNT);
    CHECK_U64(labels->header.record_bytes, 1);
    CHECK_U64(labels->bytes[4], 4);
}

TEST(gzip_members_one_after_another_are_one_stream)
{
    struct err err;
    uint8_t file[IMAGE_FILE];
    uint8_t packed[2048];
    make_images(file);
    size_t first = gzip(file, 30, packed, sizeof(packed));
    size_t second = gzip(file + 30, IMAGE_FILE - 30, packed + first, sizeof(packed) - first);
    AUTO(idx_data) data = NULL;
    CHECK_OK(idx_load(write_file(packed, first + second), IDX_IMAGES, &data, &err));
    CHECK(memcmp(data->bytes, file + 16, DATA) == 0);
}

TEST(a_missing_file_is_not_found_by_its_path)
{
    struct err err;
    struct idx_data *data = NULL;
    struct idx_header header;
    CHECK(idx_load("/nonexistent/train.gz", IDX_IMAGES, &data, &err) == ERR_NOT_FOUND);
    CHECK(strstr(err.text, "/nonexistent/train.gz"));
    CHECK(idx_read_header("/nonexistent/train.gz", IDX_IMAGES, &header, &err) == ERR_NOT_FOUND);
    CHECK(idx_read_header("/nonexistent/train.gz", IDX_IMAGES, &header, NULL) == ERR_NOT_FOUND);
}

TEST(a_directory_is_refused)
{
    struct err err;
    struct idx_data *data = NULL;
    CHECK(idx_load(test_dir(), IDX_IMAGES, &data, &err) == ERR_INVALID);
}

TEST(a_plain_file_cut_anywhere_is_truncated)
{
    uint8_t file[IMAGE_FILE];
    make_images(file);
    for (size_t size = 0; size < IMAGE_FILE; size++) {
        const char *want = size < 4 ? "magic number" : size < 16 ? "header" : "76 bytes";
        char at[40];
        snprintf(at, sizeof(at), "ends at byte %zu", size);
        check_corrupt(file, size, IDX_IMAGES, want, at);
    }
}

TEST(a_gzip_file_cut_anywhere_is_truncated)
{
    uint8_t file[IMAGE_FILE];
    uint8_t packed[1024];
    make_images(file);
    size_t whole = gzip(file, IMAGE_FILE, packed, sizeof(packed));
    for (size_t size = 2; size < whole; size++) { /* below two bytes it is not gzip yet */
        char at[60];
        snprintf(at, sizeof(at), "compressed byte %zu", size);
        check_corrupt(packed, size, IDX_IMAGES, "truncated", at);
    }
}

TEST(a_whole_gzip_stream_of_a_short_file_is_truncated)
{
    uint8_t file[IMAGE_FILE];
    uint8_t packed[1024];
    make_images(file);
    check_corrupt(packed, gzip(file, IMAGE_FILE - 13, packed, sizeof(packed)), IDX_IMAGES,
                  "ends at byte 63 in record 3", "want 76 bytes");
    check_corrupt(packed, gzip(file, 2, packed, sizeof(packed)), IDX_IMAGES, "truncated",
                  "magic number");
    check_corrupt(packed, gzip(file, 10, packed, sizeof(packed)), IDX_IMAGES, "truncated",
                  "header");
}

TEST(a_wrong_magic_number_is_named_with_the_one_wanted)
{
    uint8_t file[IMAGE_FILE];
    uint8_t packed[1024];
    make_images(file);
    check_corrupt(file, IMAGE_FILE, IDX_LABELS, "0x00000803, want 0x00000801",
                  "this is an image file");
    put_u32(file, 0x801);
    check_corrupt(file, IMAGE_FILE, IDX_IMAGES, "0x00000801, want 0x00000803",
                  "this is a label file");
    put_u32(file, 0x0d03); /* idx of floats */
    check_corrupt(file, IMAGE_FILE, IDX_IMAGES, "byte 0", "0x00000d03");
    check_corrupt(packed, gzip(file, IMAGE_FILE, packed, sizeof(packed)), IDX_IMAGES, "byte 0",
                  "0x00000d03");
}

TEST(bytes_after_the_data_are_refused)
{
    uint8_t file[IMAGE_FILE + 3] = {0};
    uint8_t packed[1024];
    make_images(file);
    check_corrupt(file, IMAGE_FILE + 3, IDX_IMAGES, "3 bytes after the data", "byte 76");
    size_t size = gzip(file, IMAGE_FILE + 3, packed, sizeof(packed)); /* inside the stream */
    check_corrupt(packed, size, IDX_IMAGES, "data goes on at byte 76", "want the end");
    size = gzip(file, IMAGE_FILE, packed, sizeof(packed)); /* behind the stream */
    packed[size] = 'x';
    check_corrupt(packed, size + 1, IDX_IMAGES, "0x78 after the end of the gzip stream",
                  "want the end");
}

TEST(dimensions_that_cannot_be_are_refused_before_memory_is_taken)
{
    uint8_t file[IMAGE_FILE];
    uint8_t packed[1024];
    for (size_t dim = 0; dim < 3; dim++) {
        char at[20];
        snprintf(at, sizeof(at), "byte %zu", 4 + 4 * dim);
        make_images(file);
        put_u32(file + 4 + 4 * dim, 0);
        check_corrupt(file, IMAGE_FILE, IDX_IMAGES, at, "is 0, want at least 1");
    }
    make_images(file);
    for (size_t dim = 0; dim < 3; dim++)
        put_u32(file + 4 + 4 * dim, UINT32_MAX); /* the product overflows 64 bits */
    check_corrupt(file, IMAGE_FILE, IDX_IMAGES, "byte 8: dimension 1 is 4294967295",
                  "17179869184 bytes");
    make_images(file);
    put_u32(file + 4, 1u << 30);
    put_u32(file + 8, 1);
    put_u32(file + 12, 1);
    check_corrupt(file, IMAGE_FILE, IDX_IMAGES, "truncated", "ends at byte 76, want 1073741840");
    size_t size = gzip(file, IMAGE_FILE, packed, sizeof(packed));
    check_corrupt(packed, size, IDX_IMAGES, "1073741824 bytes", "compressed bytes can hold");
}

TEST(a_damaged_gzip_stream_or_checksum_is_refused)
{
    uint8_t file[IMAGE_FILE];
    uint8_t packed[1024];
    make_images(file);
    size_t size = gzip(file, IMAGE_FILE, packed, sizeof(packed));
    packed[size - 5] ^=
        1; /* the stored CRC-32 (RFC 1952: the last eight bytes are CRC and length) */
    check_corrupt(packed, size, IDX_IMAGES, "incorrect data check", "compressed byte");
    packed[size - 5] ^= 1;
    packed[size - 1] ^= 1; /* the stored length */
    check_corrupt(packed, size, IDX_IMAGES, "incorrect length check", "compressed byte");
    packed[size - 1] ^= 1;
    packed[2] = 7; /* a compression method that does not exist */
    check_corrupt(packed, size, IDX_IMAGES, "unknown compression method", "compressed byte");
}

TEST(random_damage_never_passes_for_other_data)
{
    uint8_t file[IMAGE_FILE];
    uint8_t packed[1024];
    uint8_t hurt[1024];
    make_images(file);
    size_t size = gzip(file, IMAGE_FILE, packed, sizeof(packed));
    for (uint64_t i = 0; i < 2000; i++) {
        uint64_t key = rand_key(3, RAND_TEST, i, 0);
        memcpy(hurt, packed, size);
        hurt[rand_u64(key, 0) % size] ^= (uint8_t)(1 + rand_u64(key, 1) % 255);
        AUTO(idx_data) data = NULL;
        struct err err;
        if (idx_load(write_file(hurt, size), IDX_IMAGES, &data, &err) ==
            ERR_OK) /* header fields like mtime */
            CHECK(data->header.data_bytes == DATA && memcmp(data->bytes, file + 16, DATA) == 0);
    }
}

TEST(fashion_mnist_loads_as_debian_ships_it)
{
    struct err err;
    AUTO(idx_data) images = NULL;
    enum err_code code = idx_load("/usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz",
                                  IDX_IMAGES, &images, &err);
    if (code == ERR_NOT_FOUND)
        test_skip("package dataset-fashion-mnist is not installed");
    CHECK_OK(code);
    CHECK_U64(images->header.count, 10000);
    CHECK_U64(images->header.record_bytes, 784);
    struct idx_header labels;
    CHECK_OK(idx_read_header("/usr/share/datasets/fashion-mnist/train-labels-idx1-ubyte.gz",
                             IDX_LABELS, &labels, &err));
    CHECK_U64(labels.count, 60000);
}

TEST(a_fifo_is_refused_and_not_waited_for)
{
    char path[128];
    struct idx_header header;
    struct err err;
    snprintf(path, sizeof(path), "%s/fifo", test_dir());
    CHECK(mkfifo(path, 0600) == 0);
    CHECK(idx_read_header(path, IDX_IMAGES, &header, &err) == ERR_INVALID);
    CHECK(strstr(err.text, "not a regular file"));
}
