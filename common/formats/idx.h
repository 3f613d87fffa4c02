/* SPDX-License-Identifier: Apache-2.0 */
/* idx: files of the MNIST family, plain or gzip: a big-endian magic number, big-endian dimensions,
 * then bytes.
 *
 *   images: 00 00 08 03, count, height, width, then count * height * width bytes, row-major
 *   labels: 00 00 08 01, count, then count bytes
 *
 * (Format: http://yann.lecun.com/exdb/mnist; byte 2 of the magic is the element type, 08 = unsigned
 * byte, byte 3 the number of dimensions.) A file is gzip when it begins with 1f 8b, whatever its
 * name; several gzip members one after another are one stream (RFC 1952, 2.2).
 *
 * Owns    struct idx_data owns its bytes; free with idx_data_free.
 * Thread  any.
 * Units   counts of records, bytes. Offsets in errors count from 0, in the uncompressed bytes
 *         unless the text says "compressed byte".
 * Errors  ERR_NOT_FOUND with the path. ERR_CORRUPT naming file, offset and what was wanted: wrong
 *         magic, truncated, bytes after the end, dimensions that are 0 or exceed LIMIT_IDX_BYTES or
 *         the file, damaged gzip stream or checksum. ERR_IO, ERR_NO_MEMORY.
 */
#ifndef COMMON_FORMATS_IDX_H
#define COMMON_FORMATS_IDX_H

#include "common/base/base.h"
#include "common/base/err.h"

enum idx_kind { IDX_IMAGES, IDX_LABELS };

struct idx_header {
    uint64_t count;        /* records; at least 1 */
    uint32_t height;       /* images; 1 for labels */
    uint32_t width;        /* images; 1 for labels */
    uint64_t record_bytes; /* height * width */
    uint64_t header_bytes; /* 16 for images, 8 for labels */
    uint64_t data_bytes;   /* count * record_bytes */
};

struct idx_data {
    struct idx_header header;
    uint8_t *bytes; /* header.data_bytes */
};

/* Reads the header only (and, of a plain file, compares its size); cheap. */
MUST_CHECK enum err_code idx_read_header(const char *path, enum idx_kind kind,
                                         struct idx_header *ret_header, struct err *err);
/* Reads and checks the whole file. */
MUST_CHECK enum err_code idx_load(const char *path, enum idx_kind kind, struct idx_data **ret_data,
                                  struct err *err);
void idx_data_free(struct idx_data *data);
DEFINE_AUTO(idx_data)

#endif
