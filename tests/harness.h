/* SPDX-License-Identifier: Apache-2.0 */
/* harness: each TEST is a sentence about behaviour and runs in a process of its own with a time limit.
 *
 *   TEST(a_gradient_for_an_applied_step_is_stale) { ... CHECK(x == 3); ... }
 *
 * The program prints one line a test, "PASS file.name", "FAIL file.name: why" or "SKIP file.name: why",
 * and exits 1 when any failed. Arguments pick tests by substring. tests/run.sh adds the lines up.
 */
#ifndef TESTS_HARNESS_H
#define TESTS_HARNESS_H

#include <math.h>
#include <string.h>

#include "common/base/base.h"
#include "common/base/err.h"

struct test_case {
    const char *name;
    const char *file;
    void (*run)(void);
    unsigned limit_s;
    struct test_case *next;
};

void test_register(struct test_case *test);
_Noreturn void test_fail(const char *file, int line, const char *fmt, ...) PRINTF_LIKE(3, 4);
_Noreturn void test_skip(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* A fresh empty directory of this test's own, removed when the test ends. Static storage. */
const char *test_dir(void);

#define TEST_LIMIT(name_, limit_)                                                                  \
    static void test_run_##name_(void);                                                            \
    __attribute__((constructor)) static void test_add_##name_(void)                                \
    {                                                                                              \
        static struct test_case test = {#name_, __FILE__, test_run_##name_, limit_, NULL};         \
        test_register(&test);                                                                      \
    }                                                                                              \
    static void test_run_##name_(void)
#define TEST(name_) TEST_LIMIT(name_, 20)

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond))                                                                               \
            test_fail(__FILE__, __LINE__, "%s", #cond);                                            \
    } while (0)
#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        enum err_code code_ = (call);                                                              \
        if (code_ != ERR_OK)                                                                       \
            test_fail(__FILE__, __LINE__, "%s: %s: %s", #call, err_name(code_), err.text);         \
    } while (0) /* wants `struct err err` in scope */
#define CHECK_STR(got, want)                                                                       \
    do {                                                                                           \
        const char *got_ = (got), *want_ = (want);                                                 \
        if (strcmp(got_, want_) != 0)                                                              \
            test_fail(__FILE__, __LINE__, "got \"%s\", want \"%s\"", got_, want_);                 \
    } while (0)
#define CHECK_U64(got, want)                                                                       \
    do {                                                                                           \
        unsigned long long got_ = (got), want_ = (want);                                           \
        if (got_ != want_)                                                                         \
            test_fail(__FILE__, __LINE__, "%s is %llu, want %llu", #got, got_, want_);             \
    } while (0)
#define CHECK_NEAR(got, want, tol)                                                                 \
    do {                                                                                           \
        double got_ = (got), want_ = (want), tol_ = (tol);                                         \
        if (!(fabs(got_ - want_) <= tol_))                                                         \
            test_fail(__FILE__, __LINE__, "%s is %.9g, want %.9g within %g", #got, got_, want_,    \
                      tol_);                                                                       \
    } while (0)

#endif
