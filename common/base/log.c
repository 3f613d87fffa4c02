/* SPDX-License-Identifier: Apache-2.0 */
/* log: formats a line into a stack buffer and writes it in one call. */
#include "common/base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"

static atomic_int log_level_now = LOG_INFO;
static const char *log_name = "steadfast";

void log_set_level(enum log_level level)
{
    atomic_store(&log_level_now, level);
}

void log_set_name(const char *name)
{
    log_name = name;
}

bool log_level_from_name(const char *name, enum log_level *ret_level)
{
    static const struct {
        const char *name;
        enum log_level level;
    } names[] = {
        {"error", LOG_ERROR}, {"warn", LOG_WARN}, {"info", LOG_INFO}, {"debug", LOG_DEBUG}};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (strcmp(names[i].name, name) == 0) {
            *ret_level = names[i].level;
            return true;
        }
    }
    return false;
}

static const char *level_word(enum log_level level)
{
    return level == LOG_ERROR  ? "error"
           : level == LOG_WARN ? "warn"
           : level == LOG_INFO ? "info"
                               : "debug";
}

void log_line(enum log_level level, const char *event, const char *fmt, ...)
{
    if ((int)level > atomic_load_explicit(&log_level_now, memory_order_relaxed))
        return;
    char line[1024];
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    struct tm tm;
    gmtime_r(&ts.tv_sec, &tm);
    int n = snprintf(line, sizeof(line), "<%d>%02d:%02d:%02d.%03ld level=%s daemon=%s event=%s ",
                     (int)level, tm.tm_hour, tm.tm_min, tm.tm_sec, ts.tv_nsec / 1000000,
                     level_word(level), log_name, event);
    ASSERT(n > 0 && (size_t)n < sizeof(line) - 2);
    va_list ap;
    va_start(ap, fmt);
    int m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
    va_end(ap);
    size_t len = (size_t)n + (m < 0 ? 0 : MIN((size_t)m, sizeof(line) - (size_t)n - 2));
    for (size_t i = (size_t)n; i < len; i++)
        if (line[i] == '\n')
            line[i] = ' ';
    line[len++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, len);
    (void)written; /* nothing sensible is left to do with a log that cannot be written */
}

bool log_limit_pass(struct log_limit *limit, uint64_t period_ns, uint64_t *ret_dropped)
{
    uint64_t now = clock_now_ns();
    if (now < limit->next_ns) {
        limit->dropped++;
        return false;
    }
    *ret_dropped = limit->dropped;
    limit->dropped = 0;
    limit->next_ns = now + period_ns;
    return true;
}
