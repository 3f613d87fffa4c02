/* SPDX-License-Identifier: Apache-2.0 */
/* idx: a reader that hides whether the file is compressed, and the checks of header and length on
 * top of it.
 *
 * zlib's inflate is driven by hand instead of gzread, because gzread takes anything after the last
 * member for the end of the file and does not say where a stream broke.
 */
#include "common/formats/idx.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "common/base/limits.h"

#define MAGIC_IMAGES 0x00000803u
#define MAGIC_LABELS 0x00000801u
#define IN_BYTES     65536
/* Deflate cannot do better (zlib's technical notes: 1032:1), so a header that promises more lies.
 */
#define INFLATE_RATIO_MAX 1032

struct reader {
    const char *path;
    int fd;
    uint64_t file_bytes;
    uint64_t file_offset; /* of the first byte not read from the file yet */
    uint64_t offset;      /* in the uncompressed bytes */
    bool is_gzip;
    bool is_inflating; /* z is initialised */
    bool is_in_member; /* between the first byte of a gzip member and its checksum */
    z_stream z;
    uint8_t in[IN_BYTES];
};

static void reader_free(struct reader *reader)
{
    if (!reader)
        return;
    if (reader->is_inflating)
        inflateEnd(&reader->z);
    if (reader->fd >= 0)
        close(reader->fd);
    free(reader);
}
DEFINE_AUTO(reader)

/* Where the next compressed byte lies in the file. */
static uint64_t compressed_offset(const struct reader *reader)
{
    return reader->file_offset - reader->z.avail_in;
}

static enum err_code read_file(struct reader *reader, void *dst, size_t want, size_t *ret_got,
                               struct err *err)
{
    size_t got = 0;
    while (got < want) {
        ssize_t n = read(reader->fd, (uint8_t *)dst + got, want - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_from_errno(err, errno, "%s: cannot read at byte %" PRIu64, reader->path,
                                  reader->file_offset);
        if (n == 0)
            break;
        got += (size_t)n;
        reader->file_offset += (size_t)n;
    }
    *ret_got = got;
    return ERR_OK;
}

static enum err_code reader_open(const char *path, struct reader **ret_reader, struct err *err)
{
    AUTO(reader) reader = calloc(1, sizeof(*reader));
    if (!reader)
        return err_set(err, ERR_NO_MEMORY, "%s: no memory for a reader", path);
    reader->path = path;
    reader->fd =
        open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) /* a FIFO has no writer to wait for */;
    if (reader->fd < 0)
        return err_from_errno(err, errno, "%s: cannot open", path);
    struct stat st;
    if (fstat(reader->fd, &st) != 0)
        return err_from_errno(err, errno, "%s: cannot stat", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, "%s: not a regular file", path);
    reader->file_bytes = (uint64_t)st.st_size;
    uint8_t magic[2] = {0};
    ssize_t n = pread(reader->fd, magic, sizeof(magic), 0);
    if (n < 0)
        return err_from_errno(err, errno, "%s: cannot read at byte 0", path);
    reader->is_gzip = n == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
    if (reader->is_gzip) {
        if (inflateInit2(&reader->z, 16 + MAX_WBITS) !=
            Z_OK) /* 16: gzip framing, with its checksum */
            return err_set(err, ERR_NO_MEMORY, "%s: no memory to inflate", path);
        reader->is_inflating = true;
        reader->is_in_member = true;
    }
    *ret_reader = TAKE(reader);
    return ERR_OK;
}

/* After a member: another one, the end of the file, or bytes that do not belong there. */
static enum err_code next_member(struct reader *reader, bool *ret_is_end, struct err *err)
{
    if (reader->z.avail_in == 0 && reader->file_offset == reader->file_bytes) {
        *ret_is_end = true;
        return ERR_OK;
    }
    if (reader->z.avail_in > 0 && reader->z.next_in[0] != 0x1f)
        return err_set(err, ERR_CORRUPT,
                       "%s: compressed byte %" PRIu64
                       " is 0x%02x after the end of the gzip stream, want the end "
                       "of the file",
                       reader->path, compressed_offset(reader), reader->z.next_in[0]);
    inflateReset(&reader->z);
    reader->is_in_member = true;
    *ret_is_end = false;
    return ERR_OK;
}

static enum err_code inflate_some(struct reader *reader, void *dst, size_t want, size_t *ret_got,
                                  struct err *err)
{
    reader->z.next_out = dst;
    reader->z.avail_out = (uInt)want;
    while (reader->z.avail_out > 0) {
        if (reader->z.avail_in == 0) {
            size_t got = 0;
            enum err_code code = read_file(reader, reader->in, IN_BYTES, &got, err);
            if (code != ERR_OK)
                return code;
            reader->z.next_in = reader->in;
            reader->z.avail_in = (uInt)got;
        }
        if (!reader->is_in_member) {
            bool is_end = false;
            enum err_code code = next_member(reader, &is_end, err);
            if (code != ERR_OK)
                return code;
            if (is_end)
                break;
        }
        if (reader->z.avail_in == 0)
            return err_set(err, ERR_CORRUPT,
                           "%s: truncated: the gzip stream breaks off at compressed byte %" PRIu64
                           ", want its end and checksum",
                           reader->path, reader->file_offset);
        int rc = inflate(&reader->z, Z_NO_FLUSH);
        if (rc == Z_STREAM_END) {
            reader->is_in_member = false;
        } else if (rc == Z_MEM_ERROR) {
            return err_set(err, ERR_NO_MEMORY, "%s: no memory to inflate", reader->path);
        } else if (rc != Z_OK && rc != Z_BUF_ERROR) {
            return err_set(err, ERR_CORRUPT,
                           "%s: damaged gzip stream at compressed byte %" PRIu64
                           ": %s, want a valid stream",
                           reader->path, compressed_offset(reader),
                           reader->z.msg ? reader->z.msg : "unknown fault");
        }
    }
    *ret_got = want - reader->z.avail_out;
    return ERR_OK;
}

/* Fewer than `want` bytes only at the end. err is never NULL here. */
static enum err_code reader_read(struct reader *reader, void *dst, size_t want, size_t *ret_got,
                                 struct err *err)
{
    size_t got = 0;
    enum err_code code = reader->is_gzip ? inflate_some(reader, dst, want, &got, err)
                                         : read_file(reader, dst, want, &got, err);
    if (code != ERR_OK)
        return code;
    reader->offset += got;
    *ret_got = got;
    return ERR_OK;
}

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static enum err_code truncated(const struct reader *reader, const char *what, uint64_t want,
                               struct err *err)
{
    return err_set(err, ERR_CORRUPT,
                   "%s: truncated: ends at byte %" PRIu64 " in the %s, want %" PRIu64 " bytes",
                   reader->path, reader->offset, what, want);
}

/* Dimensions into sizes; every product is checked against a bound before it is made. */
static enum err_code check_dims(const struct reader *reader, const uint32_t *dims, uint32_t rank,
                                struct idx_header *ret_header, struct err *err)
{
    uint64_t bytes = 1;
    for (uint32_t i = 0; i < rank; i++) {
        uint64_t offset = 4 + 4 * (uint64_t)i;
        if (dims[i] == 0)
            return err_set(err, ERR_CORRUPT,
                           "%s: byte %" PRIu64 ": dimension %" PRIu32 " is 0, want at least 1",
                           reader->path, offset, i);
        if (bytes > LIMIT_IDX_BYTES / dims[i])
            return err_set(err, ERR_CORRUPT,
                           "%s: byte %" PRIu64 ": dimension %" PRIu32 " is %" PRIu32
                           ", want at most %llu bytes of data",
                           reader->path, offset, i, dims[i], (unsigned long long)LIMIT_IDX_BYTES);
        bytes *= dims[i];
    }
    *ret_header = (struct idx_header){
        .count = dims[0],
        .height = rank == 3 ? dims[1] : 1,
        .width = rank == 3 ? dims[2] : 1,
        .record_bytes = bytes / dims[0],
        .header_bytes = 4 + 4 * (uint64_t)rank,
        .data_bytes = bytes,
    };
    return ERR_OK;
}

/* What the size of the file says without reading it. */
static enum err_code check_file_size(const struct reader *reader, const struct idx_header *header,
                                     struct err *err)
{
    uint64_t want = header->header_bytes + header->data_bytes;
    if (!reader->is_gzip && reader->file_bytes < want)
        return err_set(err, ERR_CORRUPT,
                       "%s: truncated: ends at byte %" PRIu64 ", want %" PRIu64 " bytes (%" PRIu64
                       " records of %" PRIu64 ")",
                       reader->path, reader->file_bytes, want, header->count, header->record_bytes);
    if (!reader->is_gzip && reader->file_bytes > want)
        return err_set(err, ERR_CORRUPT,
                       "%s: %" PRIu64 " bytes after the data at byte %" PRIu64
                       ", want the end of the file",
                       reader->path, reader->file_bytes - want, want);
    if (reader->is_gzip && want / INFLATE_RATIO_MAX > reader->file_bytes)
        return err_set(err, ERR_CORRUPT,
                       "%s: byte 4: dimensions of %" PRIu64 " bytes, want what %" PRIu64
                       " compressed bytes can hold",
                       reader->path, header->data_bytes, reader->file_bytes);
    return ERR_OK;
}

static enum err_code read_header(struct reader *reader, enum idx_kind kind,
                                 struct idx_header *ret_header, struct err *err)
{
    uint32_t rank = kind == IDX_IMAGES ? 3 : 1;
    uint32_t want_magic = kind == IDX_IMAGES ? MAGIC_IMAGES : MAGIC_LABELS;
    uint8_t raw[16];
    size_t want = 4 + 4 * (size_t)rank;
    size_t got = 0;
    /* The magic first: a file of the wrong kind that is short as well should be told its kind. */
    enum err_code code = reader_read(reader, raw, 4, &got, err);
    if (code != ERR_OK)
        return code;
    if (got < 4)
        return truncated(reader, "magic number", 4, err);
    uint32_t magic = big_endian(raw);
    if (magic != want_magic)
        return err_set(err, ERR_CORRUPT,
                       "%s: byte 0: magic number 0x%08" PRIx32 ", want 0x%08" PRIx32 " (idx %s)%s",
                       reader->path, magic, want_magic, kind == IDX_IMAGES ? "images" : "labels",
                       magic == MAGIC_IMAGES   ? "; this is an image file"
                       : magic == MAGIC_LABELS ? "; this is a label file"
                                               : "");
    code = reader_read(reader, raw + 4, want - 4, &got, err);
    if (code != ERR_OK)
        return code;
    if (got < want - 4)
        return truncated(reader, "header", want, err);
    uint32_t dims[3];
    for (size_t i = 0; i < rank; i++)
        dims[i] = big_endian(raw + 4 + 4 * i);
    struct idx_header header = {0};
    code = check_dims(reader, dims, rank, &header, err);
    if (code != ERR_OK)
        return code;
    code = check_file_size(reader, &header, err);
    if (code != ERR_OK)
        return code;
    *ret_header = header;
    return ERR_OK;
}

static enum err_code read_data(struct reader *reader, const struct idx_header *header,
                               uint8_t *bytes, struct err *err)
{
    /* In steps, since zlib counts in 32 bits. */
    uint64_t done = 0;
    while (done < header->data_bytes) {
        size_t want = (size_t)MIN(header->data_bytes - done, (uint64_t)64 << 20);
        size_t got = 0;
        enum err_code code = reader_read(reader, bytes + done, want, &got, err);
        if (code != ERR_OK)
            return code;
        done += got;
        if (got < want)
            return err_set(err, ERR_CORRUPT,
                           "%s: truncated: ends at byte %" PRIu64 " in record %" PRIu64
                           ", want %" PRIu64 " bytes (%" PRIu64 " records of %" PRIu64 ")",
                           reader->path, reader->offset, done / header->record_bytes,
                           header->header_bytes + header->data_bytes, header->count,
                           header->record_bytes);
    }
    /* One byte more must be the end; for gzip this also reads on to the checksum. */
    uint8_t extra;
    size_t got = 0;
    enum err_code code = reader_read(reader, &extra, 1, &got, err);
    if (code != ERR_OK)
        return code;
    if (got > 0)
        return err_set(err, ERR_CORRUPT,
                       "%s: data goes on at byte %" PRIu64 ", want the end of the file",
                       reader->path, reader->offset - 1);
    return ERR_OK;
}

enum err_code idx_read_header(const char *path, enum idx_kind kind, struct idx_header *ret_header,
                              struct err *err)
{
    struct err local;
    err = err ? err : &local;
    AUTO(reader) reader = NULL;
    enum err_code code = reader_open(path, &reader, err);
    if (code != ERR_OK)
        return code;
    ASSERT(reader);
    return read_header(reader, kind, ret_header, err);
}

enum err_code idx_load(const char *path, enum idx_kind kind, struct idx_data **ret_data,
                       struct err *err)
{
    struct err local;
    err = err ? err : &local;
    AUTO(reader) reader = NULL;
    enum err_code code = reader_open(path, &reader, err);
    if (code != ERR_OK)
        return code;
    ASSERT(reader);
    AUTO(idx_data) data = calloc(1, sizeof(*data));
    if (!data)
        return err_set(err, ERR_NO_MEMORY, "%s: no memory", path);
    code = read_header(reader, kind, &data->header, err);
    if (code != ERR_OK)
        return code;
    ASSERT(data->header.data_bytes > 0);
    data->bytes = malloc(data->header.data_bytes);
    if (!data->bytes)
        return err_set(err, ERR_NO_MEMORY, "%s: no memory for %" PRIu64 " bytes of data", path,
                       data->header.data_bytes);
    code = read_data(reader, &data->header, data->bytes, err);
    if (code != ERR_OK)
        return code;
    *ret_data = TAKE(data);
    return ERR_OK;
}

void idx_data_free(struct idx_data *data)
{
    if (!data)
        return;
    free(data->bytes);
    free(data);
}
