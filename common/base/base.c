/* SPDX-License-Identifier: Apache-2.0 */
/* base: assertion failure, scope clean-up, and allocation that ends the process when it fails. */
#include "common/base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Noreturn void base_assert_failed(const char *cond, const char *file, int line, const char *func)
{
    fprintf(stderr, "<0>level=fatal event=assert cond=\"%s\" at=%s:%d func=%s\n", cond, file, line,
            func);
    abort();
}

void base_free_mem(void *pp)
{
    void *p;
    memcpy(&p, pp, sizeof(p));
    free(p);
}

void base_close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

void base_close_file(void *fpp)
{
    FILE *fp;
    memcpy(&fp, fpp, sizeof(fp));
    if (fp)
        fclose(fp);
}

static void *check_alloc(void *p, size_t size)
{
    if (!p) {
        fprintf(stderr, "<0>level=fatal event=alloc.failed bytes=%zu\n", size);
        abort();
    }
    return p;
}

void *base_alloc(size_t size)
{
    return check_alloc(calloc(1, size ? size : 1), size);
}

void *base_realloc(void *p, size_t size)
{
    return check_alloc(realloc(p, size ? size : 1), size);
}

char *base_strdup(const char *s)
{
    size_t size = strlen(s) + 1;
    return memcpy(base_alloc(size), s, size);
}

char *base_asprintf(const char *fmt, ...)
{
    va_list ap;
    char *s = NULL;
    va_start(ap, fmt);
    int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    check_alloc(n < 0 ? NULL : s, 0);
    return s;
}
