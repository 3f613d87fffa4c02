/* SPDX-License-Identifier: Apache-2.0 */
/* loop: uv_run between two signals. uv restores a signal's default action when its handle stops,
 * which is how a hanging tear-down stays killable. */
#include "common/loop/loop.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/log.h"

/* Turns that loop_free grants for the close callbacks that are already due; each turn runs all of
 * them, and a close callback may close one more handle. A handle still open after that was
 * forgotten by its owner. */
#define CLOSE_TURNS 100

#define FILES_AT_START 8 /* libuv 1.44 takes 6; for two of them it aborts when it gets none */

struct loop {
    uv_loop_t uv;
    pthread_t thread;
    uv_signal_t term;
    uv_signal_t interrupt;
    void (*on_stop)(int signum, void *arg); /* NULL: a signal stops the loop */
    void *on_stop_arg;
    bool is_stopping; /* one signal was seen */
    bool is_stopped;  /* loop_stop was called */
    bool is_running;
    int exit_code; /* valid when is_stopped */
};

struct loop_timer {
    uv_timer_t uv; /* first: uv_close hands the handle back */
    struct loop *loop;
    void (*on_time)(void *arg);
    void *arg;
};

MUST_CHECK enum err_code loop_new(struct loop **ret_loop, struct err *err)
{
    signal(SIGPIPE, SIG_IGN);
    enum err_code code = file_check_free(FILES_AT_START, "making the event loop", err);
    if (code != ERR_OK)
        return code;
    struct loop *loop = base_alloc(sizeof(*loop));
    int rc = uv_loop_init(&loop->uv);
    if (rc != 0) {
        free(loop);
        return err_from_uv(err, rc, "cannot make the event loop");
    }
    loop->thread = pthread_self();
    rc = uv_signal_init(&loop->uv, &loop->term);
    if (rc == 0)
        rc = uv_signal_init(&loop->uv, &loop->interrupt);
    if (rc != 0) { /* the first signal handle of a loop makes a pipe */
        uv_run(&loop->uv, UV_RUN_NOWAIT);
        uv_loop_close(&loop->uv);
        free(loop);
        return err_from_uv(err, rc, "cannot make the event loop: signals");
    }
    loop->term.data = loop;
    loop->interrupt.data = loop;
    *ret_loop = loop;
    return ERR_OK;
}

void loop_free(struct loop *loop)
{
    if (!loop)
        return;
    ASSERT_ON(loop);
    ASSERT(!loop->is_running);
    uv_close((uv_handle_t *)&loop->term, NULL);
    uv_close((uv_handle_t *)&loop->interrupt, NULL);
    int rc = UV_EBUSY;
    for (int turn = 0; turn < CLOSE_TURNS && rc == UV_EBUSY; turn++) {
        uv_run(&loop->uv, UV_RUN_NOWAIT);
        rc = uv_loop_close(&loop->uv);
    }
    ASSERT(rc == 0 && "a handle on this loop was not closed by its owner");
    free(loop);
}

uv_loop_t *loop_uv(struct loop *loop)
{
    return &loop->uv;
}

bool loop_is_here(const struct loop *loop)
{
    return pthread_equal(loop->thread, pthread_self()) != 0;
}

void loop_on_stop(struct loop *loop, void (*on_stop)(int signum, void *arg), void *arg)
{
    ASSERT_ON(loop);
    loop->on_stop = on_stop;
    loop->on_stop_arg = arg;
}

static void on_signal(uv_signal_t *handle, int signum)
{
    struct loop *loop = handle->data;
    ASSERT_ON(loop);
    if (loop->is_stopping) {
        log_warn("stop.forced", "signal=%d", signum);
        _exit(128 + signum);
    }
    loop->is_stopping = true;
    log_info("stop.asked", "signal=%d", signum);
    if (loop->on_stop)
        loop->on_stop(signum, loop->on_stop_arg);
    else
        loop_stop(loop, 128 + signum);
}

int loop_run(struct loop *loop)
{
    ASSERT_ON(loop);
    ASSERT(!loop->is_running);
    loop->is_running = true;
    int rc = uv_signal_start(&loop->term, on_signal, SIGTERM);
    if (rc == 0)
        rc = uv_signal_start(&loop->interrupt, on_signal, SIGINT);
    ASSERT(rc == 0); /* both signals exist and may be caught */
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGINT);
    pthread_sigmask(SIG_UNBLOCK, &wanted, NULL);

    while (!loop->is_stopped)
        uv_run(&loop->uv, UV_RUN_DEFAULT); /* ends at uv_stop: the signal handles keep it alive */

    uv_signal_stop(&loop->term);
    uv_signal_stop(&loop->interrupt);
    loop->is_running = false;
    return loop->exit_code;
}

void loop_stop(struct loop *loop, int exit_code)
{
    ASSERT_ON(loop);
    if (loop->is_stopped)
        return;
    loop->is_stopped = true;
    loop->exit_code = exit_code;
    if (loop->is_running)
        uv_stop(&loop->uv);
}

/* ---- timers ------------------------------------------------------------------------------------
 */
static void on_timer(uv_timer_t *handle)
{
    struct loop_timer *timer = (struct loop_timer *)handle;
    timer->on_time(timer->arg);
}

struct loop_timer *loop_timer_new(struct loop *loop, void (*on_time)(void *arg), void *arg)
{
    ASSERT_ON(loop);
    ASSERT(on_time);
    struct loop_timer *timer = base_alloc(sizeof(*timer));
    timer->loop = loop;
    timer->on_time = on_time;
    timer->arg = arg;
    uv_timer_init(&loop->uv, &timer->uv); /* cannot fail */
    return timer;
}

static void start(struct loop_timer *timer, uint64_t after_ms, uint64_t period_ms)
{
    ASSERT_ON(timer->loop);
    ASSERT(!uv_is_closing((uv_handle_t *)&timer->uv));
    uv_update_time(
        &timer->loop->uv); /* uv counts from the start of the turn, which may be long ago */
    int rc = uv_timer_start(&timer->uv, on_timer, after_ms, period_ms);
    ASSERT(rc == 0);
}

void loop_timer_once(struct loop_timer *timer, uint64_t after_ms)
{
    start(timer, after_ms, 0);
}

void loop_timer_every(struct loop_timer *timer, uint64_t period_ms)
{
    uint64_t period = MAX(period_ms, 1u);
    start(timer, period, period);
}

void loop_timer_stop(struct loop_timer *timer)
{
    ASSERT_ON(timer->loop);
    uv_timer_stop(&timer->uv);
}

bool loop_timer_is_waiting(const struct loop_timer *timer)
{
    ASSERT_ON(timer->loop);
    return uv_is_active((const uv_handle_t *)&timer->uv) != 0;
}

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle);
}

void loop_timer_free(struct loop_timer *timer)
{
    if (!timer)
        return;
    ASSERT_ON(timer->loop);
    uv_close((uv_handle_t *)&timer->uv, on_timer_closed);
}
