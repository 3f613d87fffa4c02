/* SPDX-License-Identifier: Apache-2.0 */
/* file: files that are there whole or not at all, and reads with a bound.
 *
 * A struct file_out writes to "<path>.tmp"; finish fsyncs it, renames it into place and fsyncs the
 * folder. Whatever goes wrong before that leaves an older file under the name untouched.
 *
 * Owns    a struct file_out owns its descriptor and its temporary file; freeing an unfinished one
 *         removes it.
 * Thread  one at a time.
 * Errors  every failed or short write, ENOSPC and EIO included, names the path and errno: err_from_errno.
 *         A missing file: ERR_NOT_FOUND. Larger than the caller's bound: ERR_CORRUPT.
 */
#ifndef COMMON_BASE_FILE_H
#define COMMON_BASE_FILE_H

#include "common/base/base.h"
#include "common/base/err.h"

struct file_out;

MUST_CHECK enum err_code file_out_new(const char *path, struct file_out **ret_out, struct err *err);
MUST_CHECK enum err_code file_out_write(struct file_out *out, const void *data, size_t bytes,
                                        struct err *err);
/* Durable under its name when this returns ERR_OK. Free it afterwards in either case. */
MUST_CHECK enum err_code file_out_finish(struct file_out *out, struct err *err);
uint64_t file_out_bytes(const struct file_out *out);  /* written so far */
uint32_t file_out_crc32c(const struct file_out *out); /* of what was written so far */
void file_out_free(struct file_out *out);
DEFINE_AUTO(file_out)

MUST_CHECK enum err_code file_write(const char *path, const void *data, size_t bytes,
                                    struct err *err);
/* The whole file, with a zero byte behind it that ret_bytes does not count; free() it. */
MUST_CHECK enum err_code file_read(const char *path, size_t max_bytes, char **ret_data,
                                   size_t *ret_bytes, struct err *err);
/* Exactly bytes at offset: the end of the file inside the range is ERR_CORRUPT with path and
 * offset. */
MUST_CHECK enum err_code file_read_at(int fd, const char *path, uint64_t offset, void *dst,
                                      size_t bytes, struct err *err);
MUST_CHECK enum err_code file_checksum(const char *path, uint64_t *ret_bytes, uint32_t *ret_crc32c,
                                       struct err *err);
MUST_CHECK enum err_code file_sync_dir(const char *path, struct err *err);
/* mkdir with its parents, 0755; what is there already is fine if it is a folder. */
MUST_CHECK enum err_code file_make_dirs(const char *path, struct err *err);
/* ERR_FULL when the process cannot have count (at most 16) more descriptors now: for libraries that
 * abort without them. what: "starting gRPC", for the text. */
MUST_CHECK enum err_code file_check_free(size_t count, const char *what, struct err *err);

#endif
