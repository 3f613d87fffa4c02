/* SPDX-License-Identifier: Apache-2.0 */
/* base: the few words every other file uses.
 *
 * ASSERT      on in every build; for our own mistakes only. Input from a user, a peer or a disk is
 *             checked and becomes a struct err instead.
 * AUTO(x)     declares `struct x *` that x_free() ends on every way out of the scope.
 * TAKE(p)     yields p and leaves NULL behind, so that an AUTO variable gives its object away.
 * MUST_CHECK  the caller has to look at the result.
 */
#ifndef COMMON_BASE_BASE_H
#define COMMON_BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/param.h> /* MIN, MAX; uv.h brings it too, so they are not defined again here */

#define MUST_CHECK                      __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args)          __attribute__((format(printf, fmt, args)))
#define UNUSED                          __attribute__((unused))
#define ARRAY_SIZE(a)                   (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define ASSERT(cond)                                                                               \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0))                                                          \
            base_assert_failed(#cond, __FILE__, __LINE__, __func__);                               \
    } while (0)

#define AUTO(name) __attribute__((cleanup(name##_auto_free))) struct name *
#define DEFINE_AUTO(name)                                                                          \
    UNUSED static inline void name##_auto_free(struct name **p)                                    \
    {                                                                                              \
        name##_free(*p);                                                                           \
    }
#define AUTO_MEM  __attribute__((cleanup(base_free_mem)))   /* for any malloc'ed pointer */
#define AUTO_FD   __attribute__((cleanup(base_close_fd)))   /* for an int; -1 means none */
#define AUTO_FILE __attribute__((cleanup(base_close_file))) /* for a FILE * */
#define TAKE(p)                                                                                    \
    ({                                                                                             \
        __typeof__(p) taken_ = (p);                                                                \
        (p) = NULL;                                                                                \
        taken_;                                                                                    \
    })

_Noreturn void base_assert_failed(const char *cond, const char *file, int line, const char *func);
void base_free_mem(void *pp);
void base_close_fd(int *fd);
void base_close_file(void *fpp);

/* Allocation that cannot be answered sensibly when it fails (small control structures at start-up
 * or on the loop): logs and aborts. Anything sized by a user, a peer or a file uses malloc and
 * checks. */
void *base_alloc(size_t size); /* zeroed */
void *base_realloc(void *p, size_t size);
char *base_strdup(const char *s);
char *base_asprintf(const char *fmt, ...) PRINTF_LIKE(1, 2);

#endif
