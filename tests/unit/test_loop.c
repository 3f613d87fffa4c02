/* SPDX-License-Identifier: Apache-2.0 */
/* loop: signals, stopping, timers and thread identity, each with a real loop. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/loop/loop.h"
#include "tests/harness.h"

struct seen {
    struct loop *loop;
    struct loop_timer *timer;
    int count;
    int signum;
    uint64_t first_ns;
};

static void on_stop_count(int signum, void *arg)
{
    struct seen *seen = arg;
    seen->count++;
    seen->signum = signum;
    loop_stop(seen->loop, 7);
}

static void raise_term(void *arg)
{
    (void)arg;
    kill(getpid(), SIGTERM);
}

static void raise_int(void *arg)
{
    (void)arg;
    kill(getpid(), SIGINT);
}

static void check_signal(void (*raise_it)(void *arg), int signum)
{
    struct err err;
    AUTO(loop) loop = NULL;
    CHECK_OK(loop_new(&loop, &err));
    struct seen seen = {.loop = loop};
    loop_on_stop(loop, on_stop_count, &seen);
    struct loop_timer *timer = loop_timer_new(loop, raise_it, NULL);
    loop_timer_once(timer, 0);
    CHECK(loop_run(loop) == 7);
    CHECK(seen.count == 1 && seen.signum == signum);
    loop_timer_free(timer);
}

TEST(a_term_signal_calls_on_stop_once_and_the_exit_code_is_what_loop_stop_said)
{
    check_signal(raise_term, SIGTERM);
}

TEST(an_interrupt_does_the_same_as_a_term_signal)
{
    check_signal(raise_int, SIGINT);
}

TEST(a_signal_that_was_blocked_before_loop_run_is_still_delivered)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    check_signal(raise_term, SIGTERM);
}

TEST(without_on_stop_a_signal_stops_the_loop_with_128_plus_its_number)
{
    struct err err;
    AUTO(loop) loop = NULL;
    CHECK_OK(loop_new(&loop, &err));
    struct loop_timer *timer = loop_timer_new(loop, raise_term, NULL);
    loop_timer_once(timer, 0);
    CHECK(loop_run(loop) == 143);
    loop_timer_free(timer);
}

static void on_stop_raise_again(int signum, void *arg)
{
    (void)arg;
    kill(getpid(), signum); /* and never calls loop_stop: only the second signal can end this */
}

TEST(a_second_signal_ends_a_process_whose_shutdown_never_ends)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct loop *loop = NULL;
        if (loop_new(&loop, NULL) != ERR_OK)
            _exit(1);
        loop_on_stop(loop, on_stop_raise_again, loop);
        struct loop_timer *timer = loop_timer_new(loop, raise_term, NULL);
        loop_timer_once(timer, 0);
        loop_run(loop);
        _exit(2); /* loop_run must not return */
    }
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 143);
}

TEST(after_loop_run_a_signal_has_its_default_action_again)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct loop *loop = NULL;
        if (loop_new(&loop, NULL) != ERR_OK)
            _exit(1);
        loop_stop(loop, 0);
        if (loop_run(loop) != 0)
            _exit(2);
        raise(SIGTERM);
        _exit(3);
    }
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

TEST(a_stop_before_loop_run_makes_it_return_and_the_first_exit_code_stays)
{
    struct err err;
    AUTO(loop) loop = NULL;
    CHECK_OK(loop_new(&loop, &err));
    loop_stop(loop, 3);
    loop_stop(loop, 4);
    CHECK(loop_run(loop) == 3);
}

static void on_once(void *arg)
{
    struct seen *seen = arg;
    seen->count++;
    seen->first_ns = clock_now_ns();
    loop_stop(seen->loop, 0);
}

TEST(a_one_shot_timer_fires_once_and_not_early)
{
    struct err err;
    AUTO(loop) loop = NULL;
    CHECK_OK(loop_new(&loop, &err));
    struct seen seen = {.loop = loop};
    struct loop_timer *timer = loop_timer_new(loop, on_once, &seen);
    CHECK(!loop_timer_is_waiting(timer));
    uint64_t start_ns = clock_now_ns();
    loop_timer_once(timer, 30);
    CHECK(loop_timer_is_waiting(timer));
    CHECK(loop_run(loop) == 0);
    CHECK(seen.count == 1);
    CHECK(!loop_timer_is_waiting(timer));
    CHECK(seen.first_ns - start_ns >= 29 * NS_PER_MS); /* uv counts whole milliseconds */
    loop_timer_free(timer);
}

static void on_fifth(void *arg)
{
    struct seen *seen = arg;
    if (++seen->count == 5) {
        loop_timer_free(seen->timer); /* from inside its own callback */
        loop_stop(seen->loop, 0);
    }
}

TEST(a_periodic_timer_goes_on_until_it_is_freed_in_its_own_callback)
{
    struct err err;
    AUTO(loop) loop = NULL;
    CHECK_OK(loop_new(&loop, &err));
    struct seen seen = {.loop = loop};
    seen.timer = loop_timer_new(loop, on_fifth, &seen);
    loop_timer_every(seen.timer, 1);
    CHECK(loop_run(loop) == 0);
    CHECK(seen.count == 5);
}

static void on_never(void *arg)
{
    struct seen *seen = arg;
    seen->signum = -1;
}

TEST(a_stopped_timer_does_not_fire)
{
    struct err err;
    AUTO(loop) loop = NULL;
    CHECK_OK(loop_new(&loop, &err));
    struct seen seen = {.loop = loop};
    struct loop_timer *stopped = loop_timer_new(loop, on_never, &seen);
    struct loop_timer *end = loop_timer_new(loop, on_once, &seen);
    loop_timer_every(stopped, 1);
    loop_timer_stop(stopped);
    loop_timer_once(end, 20);
    CHECK(loop_run(loop) == 0);
    CHECK(seen.signum == 0 && seen.count == 1);
    loop_timer_free(stopped);
    loop_timer_free(end);
}

static void *ask_identity(void *arg)
{
    return loop_is_here(arg) ? arg : NULL;
}

TEST(only_the_thread_that_made_the_loop_is_on_it)
{
    struct err err;
    AUTO(loop) loop = NULL;
    CHECK_OK(loop_new(&loop, &err));
    CHECK(loop_is_here(loop));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, ask_identity, loop) == 0);
    void *answer = loop;
    CHECK(pthread_join(thread, &answer) == 0);
    CHECK(answer == NULL);
}
