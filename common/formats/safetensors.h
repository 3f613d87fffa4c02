/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors: named tensors in one file, as the format of that name defines it
 * (https://github.com/huggingface/safetensors, "Format"): eight bytes little-endian length of the
 * header, the header as a JSON object padded with blanks to a multiple of eight, then the tensors
 * one after another.
 *
 * The writer is told all tensors first and then given their bytes in that order, in pieces of any
 * size. The reader believes nothing: lengths, types, shapes and offsets are checked against each
 * other and against the file, and tensors must follow one another without gap or overlap, as the
 * reference reader demands.
 *
 * Owns    a writer owns its unfinished file (removed when freed before finish); a reader owns its
 *         descriptor and its table; entries handed out live as long as the reader.
 * Thread  one at a time; reads of tensors from several threads are fine.
 * Units   bytes; row-major, little-endian.
 * Errors  ERR_CORRUPT names file, tensor and field; ERR_INVALID for our own caller's table;
 *         ERR_IO.
 */
#ifndef COMMON_FORMATS_SAFETENSORS_H
#define COMMON_FORMATS_SAFETENSORS_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/base/limits.h"

struct safetensors_entry {
    const char *name;
    const char *dtype; /* "F32", ... */
    uint32_t rank;
    uint64_t shape[LIMIT_RANK];
    uint64_t offset; /* of its first byte behind the header; set by writer and reader */
    uint64_t bytes;  /* likewise */
};

struct safetensors_pair { /* of __metadata__ */
    const char *key;
    const char *value;
};

struct safetensors_writer;
struct safetensors_reader;

/* Writes the header to a temporary file beside path. */
MUST_CHECK enum err_code
safetensors_writer_new(const char *path, const struct safetensors_entry *entries, size_t count,
                       const struct safetensors_pair *metadata, size_t metadata_count,
                       struct safetensors_writer **ret_writer, struct err *err);
MUST_CHECK enum err_code safetensors_write(struct safetensors_writer *writer, const void *data,
                                           size_t bytes, struct err *err);
/* ERR_INVALID when bytes are missing. Durable under its name afterwards. */
MUST_CHECK enum err_code safetensors_writer_finish(struct safetensors_writer *writer,
                                                   uint64_t *ret_bytes, uint32_t *ret_crc32c,
                                                   struct err *err);
void safetensors_writer_free(struct safetensors_writer *writer);
DEFINE_AUTO(safetensors_writer)

MUST_CHECK enum err_code
safetensors_reader_new(const char *path, struct safetensors_reader **ret_reader, struct err *err);
void safetensors_reader_free(struct safetensors_reader *reader);
DEFINE_AUTO(safetensors_reader)
size_t safetensors_count(const struct safetensors_reader *reader);
const struct safetensors_entry *safetensors_find(const struct safetensors_reader *reader,
                                                 const char *name); /* NULL: not there */
const char *safetensors_metadata(const struct safetensors_reader *reader,
                                 const char *key); /* NULL */
/* bytes of the tensor from its byte `offset` on. The range lies inside the tensor. */
MUST_CHECK enum err_code safetensors_read(const struct safetensors_reader *reader,
                                          const struct safetensors_entry *entry, uint64_t offset,
                                          void *dst, size_t bytes, struct err *err);

#endif
