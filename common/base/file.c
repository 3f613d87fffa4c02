/* SPDX-License-Identifier: Apache-2.0 */
/* file: temporary name, fsync, rename, fsync of the folder. */
#include "common/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/crc32c.h"

#define READ_PIECE (1u << 20) /* of a checksum; large enough that the calls do not count */

struct file_out {
    char *path;
    char *tmp_path;
    int fd;
    uint64_t bytes;
    uint32_t crc;
    bool is_finished;
};

enum err_code file_out_new(const char *path, struct file_out **ret_out, struct err *err)
{
    AUTO(file_out) out = base_alloc(sizeof(*out));
    out->fd = -1;
    out->path = base_strdup(path);
    out->tmp_path = base_asprintf("%s.tmp", path);
    out->fd = open(out->tmp_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (out->fd < 0)
        return err_from_errno(err, errno, "create %s", out->tmp_path);
    *ret_out = TAKE(out);
    return ERR_OK;
}

void file_out_free(struct file_out *out)
{
    if (!out)
        return;
    if (out->fd >= 0) {
        close(out->fd);
        if (!out->is_finished)
            unlink(out->tmp_path);
    }
    free(out->path);
    free(out->tmp_path);
    free(out);
}

enum err_code file_out_write(struct file_out *out, const void *data, size_t bytes, struct err *err)
{
    ASSERT(out && !out->is_finished);
    const char *p = data;
    size_t left = bytes;
    while (left > 0) {
        ssize_t n = write(out->fd, p, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_from_errno(err, n < 0 ? errno : ENOSPC,
                                  "write %s at byte %" PRIu64 " (%zu of %zu bytes left)",
                                  out->tmp_path, out->bytes + (bytes - left), left, bytes);
        p += n;
        left -= (size_t)n;
    }
    out->crc = crc32c(out->crc, data, bytes);
    out->bytes += bytes;
    return ERR_OK;
}

static enum err_code sync_parent(const char *path, struct err *err)
{
    AUTO_MEM char *dir = base_strdup(path);
    char *slash = strrchr(dir, '/');
    if (!slash)
        return file_sync_dir(".", err);
    slash[slash == dir ? 1 : 0] = '\0';
    return file_sync_dir(dir, err);
}

enum err_code file_out_finish(struct file_out *out, struct err *err)
{
    ASSERT(!out->is_finished);
    if (fsync(out->fd) != 0)
        return err_from_errno(err, errno, "fsync %s", out->tmp_path);
    if (rename(out->tmp_path, out->path) != 0)
        return err_from_errno(err, errno, "rename %s to %s", out->tmp_path, out->path);
    out->is_finished = true;
    return sync_parent(out->path, err);
}

uint64_t file_out_bytes(const struct file_out *out)
{
    return out->bytes;
}

uint32_t file_out_crc32c(const struct file_out *out)
{
    return out->crc;
}

enum err_code file_write(const char *path, const void *data, size_t bytes, struct err *err)
{
    AUTO(file_out) out = NULL;
    enum err_code code = file_out_new(path, &out, err);
    if (code == ERR_OK)
        code = file_out_write(out, data, bytes, err);
    return code == ERR_OK ? file_out_finish(out, err) : code;
}

enum err_code file_read(const char *path, size_t max_bytes, char **ret_data, size_t *ret_bytes,
                        struct err *err)
{
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) /* a FIFO is not waited for */;
    if (fd < 0)
        return err_from_errno(err, errno, "open %s", path);
    struct stat st;
    if (fstat(fd, &st) != 0)
        return err_from_errno(err, errno, "stat %s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, "%s: not a regular file", path);
    if ((uint64_t)st.st_size > max_bytes)
        return err_set(err, ERR_CORRUPT, "%s: %lld bytes, want at most %zu", path,
                       (long long)st.st_size, max_bytes);
    size_t bytes = (size_t)st.st_size;
    AUTO_MEM char *data = malloc(bytes + 1);
    if (!data)
        return err_set(err, ERR_NO_MEMORY, "%s: no memory for its %zu bytes", path, bytes);
    enum err_code code = file_read_at(fd, path, 0, data, bytes, err);
    if (code != ERR_OK)
        return code;
    data[bytes] = '\0';
    *ret_data = TAKE(data);
    *ret_bytes = bytes;
    return ERR_OK;
}

enum err_code file_read_at(int fd, const char *path, uint64_t offset, void *dst, size_t bytes,
                           struct err *err)
{
    char *p = dst;
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = pread(fd, p + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_from_errno(err, errno, "read %s at byte %" PRIu64, path, offset + done);
        if (n == 0)
            return err_set(err, ERR_CORRUPT,
                           "%s: ends at byte %" PRIu64 ", want %zu bytes from %" PRIu64, path,
                           offset + done, bytes, offset);
        done += (size_t)n;
    }
    return ERR_OK;
}

enum err_code file_checksum(const char *path, uint64_t *ret_bytes, uint32_t *ret_crc32c,
                            struct err *err)
{
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) /* a FIFO is not waited for */;
    if (fd < 0)
        return err_from_errno(err, errno, "open %s", path);
    AUTO_MEM char *piece = base_alloc(READ_PIECE);
    uint64_t total = 0;
    uint32_t crc = 0;
    for (;;) {
        ssize_t n = read(fd, piece, READ_PIECE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_from_errno(err, errno, "read %s at byte %" PRIu64, path, total);
        if (n == 0)
            break;
        crc = crc32c(crc, piece, (size_t)n);
        total += (uint64_t)n;
    }
    *ret_bytes = total;
    *ret_crc32c = crc;
    return ERR_OK;
}

enum err_code file_sync_dir(const char *path, struct err *err)
{
    AUTO_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_from_errno(err, errno, "open folder %s", path);
    if (fsync(fd) != 0)
        return err_from_errno(err, errno, "fsync folder %s", path);
    return ERR_OK;
}

enum err_code file_make_dirs(const char *path, struct err *err)
{
    AUTO_MEM char *part = base_strdup(path);
    for (char *p = part + (part[0] == '/');; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char end = *p;
        *p = '\0';
        if (mkdir(part, 0755) != 0 && errno != EEXIST)
            return err_from_errno(err, errno, "make folder %s", part);
        *p = end;
        if (end == '\0')
            break;
    }
    struct stat st;
    if (stat(path, &st) != 0)
        return err_from_errno(err, errno, "stat %s", path);
    if (!S_ISDIR(st.st_mode))
        return err_set(err, ERR_INVALID, "%s: not a folder", path);
    return ERR_OK;
}

enum err_code file_check_free(size_t count, const char *what, struct err *err)
{
    int fds[16], errnum = 0;
    size_t had = 0;
    ASSERT(count <= ARRAY_SIZE(fds));
    for (; had < count; had++) {
        fds[had] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (fds[had] < 0) {
            errnum = errno;
            break;
        }
    }
    for (size_t i = 0; i < had; i++)
        close(fds[i]);
    if (errnum == 0)
        return ERR_OK;
    return err_from_errno(err, errnum, "%s: %zu free file descriptors, want %zu", what, had, count);
}
