/* SPDX-License-Identifier: Apache-2.0 */
/* Every system call that a checkpoint makes fails once, in turn: the checkpoint before stays the
 * newest usable one, the error names a path, and the same number can be begun again. This program's
 * own write, fsync, rename and open stand in front of the C library's. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/ckpt/ckpt_store.h"
#include "common/formats/safetensors.h"
#include "tests/harness.h"

static long fail_at = -1; /* which call fails; -1: none */
static long calls;
static bool is_torn;     /* a failing write writes half first */
static bool fails_opens; /* those for reading, too */

static bool fails_now(void)
{
    return fail_at >= 0 && calls++ == fail_at;
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    if (fd > 2 && fails_now()) {
        if (is_torn)
            (void)!syscall(SYS_write, fd, data, bytes / 2);
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_write, fd, data, bytes);
}

int fsync(int fd)
{
    if (fails_now()) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    if (fails_now()) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_rename, from, to);
}

int open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    int mode = flags & O_CREAT ? va_arg(ap, int) : 0;
    va_end(ap);
    if (fail_at >= 0 && (fails_opens || (flags & O_CREAT)) && fails_now()) {
        errno = EMFILE;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* One variable of three elements, all of them `number`. */
static enum err_code save(const char *dir, uint64_t number, struct err *err)
{
    float data[3] = {(float)number, (float)number, (float)number};
    AUTO(ckpt_manifest) manifest = ckpt_manifest_new();
    AUTO(safetensors_writer) writer = NULL;
    AUTO_MEM char *partial = NULL;
    struct ranges marks;
    ranges_init(&marks);
    manifest->job = base_strdup("j");
    manifest->spec_json = base_strdup("{}");
    manifest->number = number;
    ckpt_manifest_add_var(manifest, "w", 1, (uint64_t[]){3}, true);
    ckpt_manifest_add_file(manifest, "server0-shard0.safetensors", 0, 0, 1);
    ckpt_manifest_add_group(manifest, 0, &marks);
    ckpt_manifest_add_slice(manifest, 0, 0, 3, 0, 0);
    enum err_code code = ckpt_begin(dir, number, &partial, err);
    if (code != ERR_OK)
        return code;
    AUTO_MEM char *path = base_asprintf("%s/server0-shard0.safetensors", partial);
    struct safetensors_entry entry = {.name = "w", .dtype = "F32", .rank = 1, .shape = {3}};
    code = safetensors_writer_new(path, &entry, 1, NULL, 0, &writer, err);
    if (code == ERR_OK)
        code = safetensors_write(writer, data, sizeof(data), err);
    if (code == ERR_OK)
        code = safetensors_writer_finish(writer, &manifest->files[0].bytes,
                                         &manifest->files[0].crc32c, err);
    return code == ERR_OK ? ckpt_publish(dir, manifest, err) : code;
}

static float value_of(const char *dir, uint64_t number)
{
    struct err err;
    float value;
    AUTO_MEM char *path =
        base_asprintf("%s/ckpt-%llu/server0-shard0.safetensors", dir, (unsigned long long)number);
    AUTO(safetensors_reader) reader = NULL;
    CHECK_OK(safetensors_reader_new(path, &reader, &err));
    CHECK_OK(
        safetensors_read(reader, safetensors_find(reader, "w"), 0, &value, sizeof(value), &err));
    return value;
}

static void fail_each_in_turn(void)
{
    struct err err;
    const char *dir = test_dir();
    CHECK_OK(save(dir, 1, &err));
    uint64_t newest = 1;
    unsigned failures = 0;
    for (long n = 0;; n++) {
        AUTO(ckpt_manifest) found = NULL;
        calls = 0;
        fail_at = n;
        enum err_code code = save(dir, newest + 1, &err);
        bool was_hit = calls > n;
        fail_at = -1;
        CHECK_OK(ckpt_newest(dir, NULL, NULL, &found, &err));
        if (code != ERR_OK) {
            failures++;
            /* The last fsync, of the folder, may fail behind the rename: then the new one is there,
             * whole. */
            CHECK(found->number == newest || found->number == newest + 1);
            newest = found->number;
        } else {
            CHECK_U64(found->number, newest + 1);
            newest++;
        }
        CHECK(value_of(dir, newest) == (float)newest);
        if (!was_hit)
            break;
        CHECK(code != ERR_OK); /* no failure is passed over */
    }
    CHECK(failures >= 10); /* open, three writes, fsync, rename, fsync; open, write, fsync, ... */
}

TEST(whichever_call_fails_the_checkpoint_before_stays_usable)
{
    fail_each_in_turn();
}

TEST(a_torn_write_is_never_published)
{
    is_torn = true;
    fail_each_in_turn();
}

/* The lack of a descriptor says nothing about a checkpoint. */
TEST(a_checkpoint_that_there_is_no_descriptor_to_look_at_is_not_passed_over)
{
    struct err err;
    const char *dir = test_dir();
    CHECK_OK(save(dir, 1, &err));
    CHECK_OK(save(dir, 2, &err));
    fails_opens = true;
    unsigned failures = 0;
    for (long n = 0;; n++) {
        AUTO(ckpt_manifest) found = NULL;
        calls = 0;
        fail_at = n;
        enum err_code code = ckpt_newest(dir, NULL, NULL, &found, &err);
        bool was_hit = calls > n;
        fail_at = -1;
        if (!was_hit) {
            CHECK(code == ERR_OK && found->number == 2);
            break;
        }
        failures++;
        CHECK(code == ERR_FULL && !found && strstr(err.text, dir) != NULL);
    }
    CHECK(failures >= 2); /* the manifest, a file */
}
