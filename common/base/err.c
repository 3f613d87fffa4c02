/* SPDX-License-Identifier: Apache-2.0 */
/* err: texts, names and the two-way mapping to gRPC status codes. */
#include "common/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

PRINTF_LIKE(3, 0)
static enum err_code set_va(struct err *err, enum err_code code, const char *fmt, va_list ap)
{
    if (err) {
        err->code = code;
        vsnprintf(err->text, sizeof(err->text), fmt, ap);
    }
    return code;
}

enum err_code err_set(struct err *err, enum err_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    set_va(err, code, fmt, ap);
    va_end(ap);
    return code;
}

enum err_code err_prefix(struct err *err, const char *fmt, ...)
{
    if (!err)
        return ERR_OK;
    char old[ERR_TEXT_SIZE];
    memcpy(old, err->text, sizeof(old));
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof(err->text))
        snprintf(err->text + n, sizeof(err->text) - (size_t)n, ": %s", old);
    return err->code;
}

static void append_reason(struct err *err, const char *reason)
{
    if (!err)
        return;
    size_t n = strnlen(err->text, sizeof(err->text));
    snprintf(err->text + n, sizeof(err->text) - n, ": %s", reason);
}

/* Space or descriptors: there are some again when others give theirs back. */
static bool is_used_up(int errnum)
{
    return errnum == ENOSPC || errnum == EDQUOT || errnum == EMFILE || errnum == ENFILE;
}

bool err_passes(enum err_code code)
{
    return code == ERR_FULL || code == ERR_NO_MEMORY;
}

enum err_code err_from_errno(struct err *err, int errnum, const char *fmt, ...)
{
    enum err_code code = errnum == ENOENT     ? ERR_NOT_FOUND
                         : errnum == EEXIST   ? ERR_EXISTS
                         : errnum == ENOMEM   ? ERR_NO_MEMORY
                         : is_used_up(errnum) ? ERR_FULL
                                              : ERR_IO;
    va_list ap;
    va_start(ap, fmt);
    set_va(err, code, fmt, ap);
    va_end(ap);
    char buf[128];
    append_reason(err, strerror_r(errnum, buf, sizeof(buf)));
    return code;
}

enum err_code err_from_uv(struct err *err, int status, const char *fmt, ...)
{
    int errnum = -status;
    enum err_code code = errnum == ETIMEDOUT      ? ERR_TIMEOUT
                         : errnum == ECANCELED    ? ERR_CANCELLED
                         : errnum == ENOMEM       ? ERR_NO_MEMORY
                         : errnum == ENOENT       ? ERR_NOT_FOUND
                         : errnum == ECONNREFUSED ? ERR_UNAVAILABLE
                         : is_used_up(errnum)     ? ERR_FULL
                                                  : ERR_IO;
    va_list ap;
    va_start(ap, fmt);
    set_va(err, code, fmt, ap);
    va_end(ap);
    char buf[128];
    append_reason(err, strerror_r(errnum, buf, sizeof(buf)));
    return code;
}

const char *err_name(enum err_code code)
{
    switch (code) {
    case ERR_OK:
        return "OK";
    case ERR_INVALID:
        return "INVALID";
    case ERR_NOT_FOUND:
        return "NOT_FOUND";
    case ERR_EXISTS:
        return "EXISTS";
    case ERR_STALE:
        return "STALE";
    case ERR_FULL:
        return "FULL";
    case ERR_UNAVAILABLE:
        return "UNAVAILABLE";
    case ERR_TIMEOUT:
        return "TIMEOUT";
    case ERR_CANCELLED:
        return "CANCELLED";
    case ERR_CORRUPT:
        return "CORRUPT";
    case ERR_IO:
        return "IO";
    case ERR_DEVICE:
        return "DEVICE";
    case ERR_NO_MEMORY:
        return "NO_MEMORY";
    case ERR_CODE_COUNT:
        break;
    }
    return "INVALID";
}

enum err_code err_from_name(const char *name)
{
    for (int code = 0; code < ERR_CODE_COUNT; code++)
        if (strcmp(name, err_name((enum err_code)code)) == 0)
            return (enum err_code)code;
    return ERR_INVALID;
}

/* Numbers: grpc/status.h; repeated here so that common needs no gRPC header for two tables. */
int err_to_grpc(enum err_code code)
{
    static const int grpc[ERR_CODE_COUNT] = {
        [ERR_OK] = 0,        [ERR_INVALID] = 3,  [ERR_NOT_FOUND] = 5,    [ERR_EXISTS] = 6,
        [ERR_STALE] = 9,     [ERR_FULL] = 8,     [ERR_UNAVAILABLE] = 14, [ERR_TIMEOUT] = 4,
        [ERR_CANCELLED] = 1, [ERR_CORRUPT] = 15, [ERR_IO] = 13,          [ERR_DEVICE] = 13,
        [ERR_NO_MEMORY] = 8,
    };
    return code >= 0 && code < ERR_CODE_COUNT ? grpc[code] : 2;
}

enum err_code err_from_grpc(int grpc_status)
{
    switch (grpc_status) {
    case 0:
        return ERR_OK;
    case 1:
        return ERR_CANCELLED;
    case 4:
        return ERR_TIMEOUT;
    case 5:
        return ERR_NOT_FOUND;
    case 6:
        return ERR_EXISTS;
    case 8:
        return ERR_FULL;
    case 9:
    case 10:
        return ERR_STALE;
    case 13:
        return ERR_IO;
    case 14:
        return ERR_UNAVAILABLE;
    case 15:
        return ERR_CORRUPT;
    default:
        return ERR_INVALID;
    }
}
