/* SPDX-License-Identifier: Apache-2.0 */
/* log: one event, one line, logfmt to stderr with a journal priority ("<6>") in front.
 *
 * error: an operation was lost. warn: we carry on, and how. info: a change of state an operator
 * would want. debug: the rest. Keys are the same everywhere: job step worker server shard var err.
 * Thread  any; a line is one write(2).
 */
#ifndef COMMON_BASE_LOG_H
#define COMMON_BASE_LOG_H

#include "common/base/base.h"

enum log_level { LOG_ERROR = 3, LOG_WARN = 4, LOG_INFO = 6, LOG_DEBUG = 7 };

void log_set_level(enum log_level level);                              /* default LOG_INFO */
bool log_level_from_name(const char *name, enum log_level *ret_level); /* error warn info debug */
void log_set_name(const char *name); /* daemon name, static storage */

void log_line(enum log_level level, const char *event, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Rate limit: at most one line per period and call site; the next line says how many were dropped.
 */
struct log_limit {
    uint64_t next_ns;
    uint64_t dropped;
};
bool log_limit_pass(struct log_limit *limit, uint64_t period_ns, uint64_t *ret_dropped);

#define log_error(event, ...) log_line(LOG_ERROR, event, __VA_ARGS__)
#define log_warn(event, ...)  log_line(LOG_WARN, event, __VA_ARGS__)
#define log_info(event, ...)  log_line(LOG_INFO, event, __VA_ARGS__)
#define log_debug(event, ...) log_line(LOG_DEBUG, event, __VA_ARGS__)

#endif
