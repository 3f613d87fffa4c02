/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/crc32c.h"
#include "common/base/file.h"
#include "tests/harness.h"

static size_t entries(const char *path)
{
    DIR *dir = opendir(path);
    CHECK(dir);
    size_t count = 0;
    while (readdir(dir))
        count++;
    closedir(dir);
    return count - 2;
}

TEST(a_file_is_there_whole_after_finish_and_not_at_all_before)
{
    struct err err;
    AUTO_MEM char *path = base_asprintf("%s/x", test_dir());
    AUTO_MEM char *data = NULL;
    size_t bytes = 0;
    struct file_out *out;
    CHECK_OK(file_out_new(path, &out, &err));
    CHECK_OK(file_out_write(out, "hello ", 6, &err));
    CHECK_OK(file_out_write(out, "world", 5, &err));
    CHECK(file_read(path, 100, &data, &bytes, &err) == ERR_NOT_FOUND);
    CHECK(strstr(err.text, path));
    CHECK_OK(file_out_finish(out, &err));
    CHECK_U64(file_out_bytes(out), 11);
    CHECK_U64(file_out_crc32c(out), crc32c(0, "hello world", 11));
    file_out_free(out);
    CHECK_OK(file_read(path, 11, &data, &bytes, &err));
    CHECK_U64(bytes, 11);
    CHECK_STR(data, "hello world");
    CHECK_U64(entries(test_dir()), 1);
    uint64_t size;
    uint32_t crc;
    CHECK_OK(file_checksum(path, &size, &crc, &err));
    CHECK_U64(size, 11);
    CHECK_U64(crc, crc32c(0, "hello world", 11));
}

TEST(an_unfinished_file_is_removed_and_the_old_one_stays)
{
    struct err err;
    AUTO_MEM char *path = base_asprintf("%s/x", test_dir());
    AUTO_MEM char *data = NULL;
    size_t bytes;
    CHECK_OK(file_write(path, "old", 3, &err));
    struct file_out *out;
    CHECK_OK(file_out_new(path, &out, &err));
    CHECK_OK(file_out_write(out, "new", 3, &err));
    file_out_free(out);
    CHECK_OK(file_read(path, 10, &data, &bytes, &err));
    CHECK_STR(data, "old");
    CHECK_U64(entries(test_dir()), 1);
}

TEST(a_file_larger_than_the_bound_is_refused_unread)
{
    struct err err;
    AUTO_MEM char *path = base_asprintf("%s/x", test_dir());
    char *data = NULL;
    size_t bytes;
    CHECK_OK(file_write(path, "12345", 5, &err));
    CHECK(file_read(path, 4, &data, &bytes, &err) == ERR_CORRUPT);
    CHECK(strstr(err.text, path) && strstr(err.text, "5"));
    CHECK(file_read(test_dir(), 100, &data, &bytes, &err) == ERR_INVALID);
}

TEST(a_full_disk_is_an_error_with_path_and_reason)
{
    struct err err;
    AUTO_MEM char *path = base_asprintf("%s/x", test_dir());
    AUTO_MEM char *piece = base_alloc(65536);
    AUTO_MEM char *data = NULL;
    size_t bytes;
    CHECK_OK(file_write(path, "old", 3, &err));
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {.rlim_cur = 100000, .rlim_max = 100000};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    AUTO(file_out) out = NULL;
    CHECK_OK(file_out_new(path, &out, &err));
    CHECK_OK(file_out_write(out, piece, 65536, &err));
    CHECK(file_out_write(out, piece, 65536, &err) == ERR_IO);
    CHECK(strstr(err.text, path) && strstr(err.text, "File too large"));
    CHECK_OK(file_read(path, 10, &data, &bytes, &err));
    CHECK_STR(data, "old");
}

TEST(folders_are_made_with_their_parents)
{
    struct err err;
    struct stat st;
    AUTO_MEM char *path = base_asprintf("%s/a/b/c", test_dir());
    CHECK_OK(file_make_dirs(path, &err));
    CHECK_OK(file_make_dirs(path, &err));
    CHECK(stat(path, &st) == 0 && S_ISDIR(st.st_mode));
    AUTO_MEM char *file = base_asprintf("%s/a/f", test_dir());
    CHECK_OK(file_write(file, "", 0, &err));
    CHECK(file_make_dirs(file, &err) == ERR_INVALID);
    AUTO_MEM char *below = base_asprintf("%s/a/f/g", test_dir());
    CHECK(file_make_dirs(below, &err) == ERR_IO);
}

TEST(a_range_beyond_the_end_is_corrupt_with_its_offset)
{
    struct err err;
    char data[10];
    AUTO_MEM char *path = base_asprintf("%s/x", test_dir());
    CHECK_OK(file_write(path, "12345", 5, &err));
    AUTO_FILE FILE *file = fopen(path, "r");
    CHECK_OK(file_read_at(fileno(file), path, 1, data, 4, &err));
    CHECK(memcmp(data, "2345", 4) == 0);
    CHECK(file_read_at(fileno(file), path, 1, data, 5, &err) == ERR_CORRUPT);
    CHECK(strstr(err.text, "byte 5"));
}
