/* SPDX-License-Identifier: Apache-2.0 */
/* notify: datagrams of "KEY=value" lines to the service manager's socket, as sd_notify(3)
 * describes. */
#include "common/daemon/notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* One datagram; a status line longer than this is cut. */
#define NOTIFY_TEXT_SIZE 512

static uv_timer_t watchdog_timer;
static bool has_watchdog;

static void notify_send(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    if (!path || (path[0] != '/' && path[0] != '@') || path[1] == '\0')
        return;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    if (length >= sizeof(address.sun_path))
        return;
    memcpy(address.sun_path, path, length);
    if (path[0] == '@')
        address.sun_path[0] = '\0'; /* the abstract name space */
    AUTO_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    ssize_t n;
    do
        n = sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&address, size);
    while (n < 0 && errno == EINTR);
}

void notify_ready(void)
{
    notify_send("READY=1");
}

void notify_stopping(void)
{
    notify_send("STOPPING=1");
}

void notify_status(const char *fmt, ...)
{
    char text[NOTIFY_TEXT_SIZE];
    int used = snprintf(text, sizeof(text), "STATUS=");
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text + used, sizeof(text) - (size_t)used, fmt, ap);
    va_end(ap);
    for (char *p = text; *p; p++)
        if (*p == '\n') /* a line is one assignment */
            *p = ' ';
    notify_send(text);
}

void notify_extend_timeout(uint64_t ms)
{
    char text[64];
    snprintf(text, sizeof(text), "EXTEND_TIMEOUT_USEC=%" PRIu64, ms * 1000);
    notify_send(text);
}

static void on_watchdog(uv_timer_t *timer)
{
    (void)timer;
    notify_send("WATCHDOG=1");
}

/* 0: no watchdog was asked for, or it was asked of another process (we inherited its environment).
 */
static uint64_t watchdog_period_us(void)
{
    const char *text = getenv("WATCHDOG_USEC");
    const char *pid = getenv("WATCHDOG_PID");
    if (!text || !getenv("NOTIFY_SOCKET"))
        return 0;
    if (pid && strtoll(pid, NULL, 10) != (long long)getpid())
        return 0;
    char *end = NULL;
    errno = 0;
    unsigned long long us = strtoull(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' ? us : 0;
}

void notify_watchdog_start(uv_loop_t *loop)
{
    uint64_t us = watchdog_period_us();
    if (us == 0 || has_watchdog)
        return;
    uint64_t period_ms = MAX(us / 3 / 1000, 1u);
    uv_timer_init(loop, &watchdog_timer);
    uv_timer_start(&watchdog_timer, on_watchdog, 0, period_ms);
    uv_unref((uv_handle_t *)&watchdog_timer);
    has_watchdog = true;
}

void notify_watchdog_stop(void)
{
    if (!has_watchdog)
        return;
    has_watchdog = false;
    uv_close((uv_handle_t *)&watchdog_timer, NULL);
}
