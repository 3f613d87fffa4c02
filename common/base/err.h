/* SPDX-License-Identifier: Apache-2.0 */
/* err: the closed set of failures, and the words that go with one.
 *
 * A code is chosen by what the caller does next; the text is for people and no decision is made
 * from it. The function that first knows fills the struct in, those above pass it on, and the one
 * that decides what to do logs it, once. On the wire the code picks the gRPC status and travels by
 * name in the trailing metadata key "steadfast-error".
 *
 * Owns    nothing: the caller owns the struct err. A NULL err is allowed everywhere.
 * Thread  any.
 */
#ifndef COMMON_BASE_ERR_H
#define COMMON_BASE_ERR_H

#include "common/base/base.h"

enum err_code {
    ERR_OK = 0,
    ERR_INVALID,     /* the request itself is wrong: give up, tell its author */
    ERR_NOT_FOUND,   /* no such thing: give up or create it */
    ERR_EXISTS,      /* there already: give up or use that one */
    ERR_STALE,       /* of a past generation, session or version: refetch, never repeat as it is */
    ERR_FULL,        /* a bound is reached: keep it and try again later */
    ERR_UNAVAILABLE, /* the peer cannot be reached or is not ready: retry, maybe elsewhere */
    ERR_TIMEOUT,     /* the deadline passed: the outcome is unknown */
    ERR_CANCELLED,   /* the caller or a shutdown took it back */
    ERR_CORRUPT,   /* bytes that cannot be right (checksum, magic, truncation): use another copy */
    ERR_IO,        /* the operating system refused: errno is in the text */
    ERR_DEVICE,    /* a compute device or its library failed */
    ERR_NO_MEMORY, /* an allocation or a memory budget failed */
    ERR_CODE_COUNT
};

#define ERR_TEXT_SIZE 400

struct err {
    enum err_code code;
    char text[ERR_TEXT_SIZE];
};

/* Fills *err (NULL is fine) and returns code, so that `return err_set(...)` reads well. */
enum err_code err_set(struct err *err, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Puts "fmt: " before the text that is there; returns err->code (ERR_OK for NULL). */
enum err_code err_prefix(struct err *err, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Something is used up that others may give back: the same call is worth trying again. */
bool err_passes(enum err_code code);
/* errno into ours: ENOENT -> NOT_FOUND, EEXIST -> EXISTS, ENOMEM -> NO_MEMORY; no space or
 * descriptors left (ENOSPC, EDQUOT, EMFILE, ENFILE) -> FULL; the rest -> IO.
 * The text ends in ": <strerror>". */
enum err_code err_from_errno(struct err *err, int errnum, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* A libuv status (negative errno) into ours; EADDRINUSE etc. keep their words. */
enum err_code err_from_uv(struct err *err, int status, const char *fmt, ...) PRINTF_LIKE(3, 4);

const char *err_name(enum err_code code);      /* "STALE", ...; "OK" for ERR_OK */
enum err_code err_from_name(const char *name); /* unknown names: ERR_INVALID */
int err_to_grpc(enum err_code code);           /* grpc_status_code */
enum err_code err_from_grpc(int grpc_status);  /* when no name came along */

#endif
