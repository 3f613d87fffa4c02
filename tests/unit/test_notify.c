/* SPDX-License-Identifier: Apache-2.0 */
/* notify: against a socket of the test's own, as the service manager would hold it. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/daemon/notify.h"
#include "common/loop/loop.h"
#include "tests/harness.h"

/* Binds `name` ('@' first: abstract) and puts it into the environment. */
static int open_manager(const char *name)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", name);
    if (name[0] == '@')
        address.sun_path[0] = '\0';
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    CHECK(bind(fd, (struct sockaddr *)&address, size) == 0);
    setenv("NOTIFY_SOCKET", name, 1);
    return fd;
}

static int open_manager_in_dir(void)
{
    char path[100];
    snprintf(path, sizeof(path), "%s/notify", test_dir());
    return open_manager(path);
}

/* The next datagram within timeout_ms, or "". Static storage. */
static const char *next_text(int fd, int timeout_ms)
{
    static char text[1024];
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    text[0] = '\0';
    if (poll(&poll_fd, 1, timeout_ms) == 1) {
        ssize_t n = recv(fd, text, sizeof(text) - 1, 0);
        text[n > 0 ? n : 0] = '\0';
    }
    return text;
}

TEST(ready_stopping_and_extension_are_the_words_of_sd_notify)
{
    AUTO_FD int fd = open_manager_in_dir();
    notify_ready();
    CHECK_STR(next_text(fd, 1000), "READY=1");
    notify_stopping();
    CHECK_STR(next_text(fd, 1000), "STOPPING=1");
    notify_extend_timeout(1500);
    CHECK_STR(next_text(fd, 1000), "EXTEND_TIMEOUT_USEC=1500000");
}

TEST(a_status_with_a_line_break_stays_one_assignment)
{
    AUTO_FD int fd = open_manager_in_dir();
    notify_status("%d jobs\nREADY=1", 2);
    CHECK_STR(next_text(fd, 1000), "STATUS=2 jobs READY=1");
}

TEST(a_status_too_long_for_a_datagram_is_cut)
{
    AUTO_FD int fd = open_manager_in_dir();
    char text[5000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    notify_status("%s", text);
    const char *got = next_text(fd, 1000);
    CHECK(strncmp(got, "STATUS=xxxx", 11) == 0);
    CHECK(strlen(got) < 1000);
}

TEST(an_abstract_socket_is_reached_too)
{
    char name[64];
    snprintf(name, sizeof(name), "@steadfast-test-%d", (int)getpid());
    AUTO_FD int fd = open_manager(name);
    notify_ready();
    CHECK_STR(next_text(fd, 1000), "READY=1");
}

TEST(no_socket_or_a_dead_one_is_not_an_error)
{
    unsetenv("NOTIFY_SOCKET");
    notify_ready();
    setenv("NOTIFY_SOCKET", "/nonexistent/notify", 1);
    notify_ready();
    setenv("NOTIFY_SOCKET", "relative", 1);
    notify_ready();
}

struct watch {
    struct loop *loop;
    int fd;
    int pets;
    uint64_t stuck_ms; /* how long the loop is blocked once */
};

static void on_end(void *arg)
{
    struct watch *watch = arg;
    loop_stop(watch->loop, 0);
}

static int count_pets(int fd)
{
    int pets = 0;
    const char *text;
    while (*(text = next_text(fd, 0))) {
        CHECK_STR(text, "WATCHDOG=1");
        pets++;
    }
    return pets;
}

static void on_count(void *arg)
{
    struct watch *watch = arg;
    watch->pets += count_pets(watch->fd);
    if (watch->pets >= 6)
        loop_stop(watch->loop, 0);
}

TEST(the_watchdog_is_petted_at_a_third_of_its_interval)
{
    struct err err;
    AUTO_FD int fd = open_manager_in_dir();
    AUTO(loop) loop = NULL;
    CHECK_OK(loop_new(&loop, &err));
    struct watch watch = {.loop = loop, .fd = fd};
    setenv("WATCHDOG_USEC", "60000", 1); /* 60 ms: a pet at once, then every 20 ms */
    unsetenv("WATCHDOG_PID");
    struct loop_timer *count = loop_timer_new(loop, on_count, &watch);
    uint64_t start_ns = clock_now_ns();
    notify_watchdog_start(loop_uv(loop));
    loop_timer_every(count, 5);
    CHECK(loop_run(loop) == 0); /* the test's own limit ends it when no pet comes */
    uint64_t elapsed_ms = (clock_now_ns() - start_ns) / NS_PER_MS;
    notify_watchdog_stop();
    CHECK((uint64_t)watch.pets <=
          elapsed_ms / 20 + 2); /* one at once, one for uv's whole milliseconds */
    loop_timer_free(count);
}

static void on_stuck(void *arg)
{
    struct watch *watch = arg;
    count_pets(watch->fd); /* what came before */
    uint64_t until_ns = clock_now_ns() + watch->stuck_ms * NS_PER_MS;
    while (clock_now_ns() < until_ns)
        ; /* a loop that never returns to its timers */
    watch->pets = count_pets(watch->fd);
    loop_stop(watch->loop, 0);
}

TEST(a_stuck_loop_does_not_pet_the_watchdog)
{
    struct err err;
    AUTO_FD int fd = open_manager_in_dir();
    AUTO(loop) loop = NULL;
    CHECK_OK(loop_new(&loop, &err));
    struct watch watch = {.loop = loop, .fd = fd, .pets = -1, .stuck_ms = 150};
    setenv("WATCHDOG_USEC", "30000", 1);
    unsetenv("WATCHDOG_PID");
    struct loop_timer *stuck = loop_timer_new(loop, on_stuck, &watch);
    notify_watchdog_start(loop_uv(loop));
    loop_timer_once(stuck, 30);
    CHECK(loop_run(loop) == 0);
    CHECK(watch.pets == 0);
    notify_watchdog_stop();
    loop_timer_free(stuck);
}

static void check_no_pets(void)
{
    struct err err;
    AUTO_FD int fd = open_manager_in_dir();
    AUTO(loop) loop = NULL;
    CHECK_OK(loop_new(&loop, &err));
    struct watch watch = {.loop = loop};
    struct loop_timer *end = loop_timer_new(loop, on_end, &watch);
    notify_watchdog_start(loop_uv(loop));
    loop_timer_once(end, 30);
    CHECK(loop_run(loop) == 0);
    CHECK(count_pets(fd) == 0);
    notify_watchdog_stop();
    loop_timer_free(end);
}

TEST(a_watchdog_meant_for_another_process_is_left_alone)
{
    setenv("WATCHDOG_USEC", "3000", 1);
    setenv("WATCHDOG_PID", "1", 1);
    check_no_pets();
}

TEST(a_watchdog_interval_that_is_not_a_number_is_ignored)
{
    setenv("WATCHDOG_USEC", "3000x", 1);
    unsetenv("WATCHDOG_PID");
    check_no_pets();
}
