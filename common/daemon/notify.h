/* SPDX-License-Identifier: Apache-2.0 */
/* notify: the sd_notify protocol over $NOTIFY_SOCKET, without libsystemd; does nothing when it is
 * not set.
 *
 * Thread  the loop's. Errors: none; a lost notification is not worth stopping for.
 */
#ifndef COMMON_DAEMON_NOTIFY_H
#define COMMON_DAEMON_NOTIFY_H

#include <uv.h>

#include "common/base/base.h"

void notify_ready(void);                                    /* READY=1 */
void notify_stopping(void);                                 /* STOPPING=1 */
void notify_status(const char *fmt, ...) PRINTF_LIKE(1, 2); /* STATUS=... */
void notify_extend_timeout(uint64_t ms);                    /* EXTEND_TIMEOUT_USEC */
/* Pets the watchdog at a third of $WATCHDOG_USEC from a timer of this loop, so a stuck loop is
 * noticed. */
void notify_watchdog_start(uv_loop_t *loop);
void notify_watchdog_stop(void);

#endif
