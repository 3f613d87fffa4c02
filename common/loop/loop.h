/* SPDX-License-Identifier: Apache-2.0 */
/* loop: a daemon's loop thread: one uv loop on the thread that made it, its timers and its end.
 *
 * A daemon's main(): rpc_process_init, loop_new, build the daemon on loop_uv(), loop_on_stop,
 * notify_ready, loop_run, tear down in reverse order, loop_free, return the exit code.
 *
 *           SIGTERM or SIGINT           loop_stop(loop, exit_code)
 *   running -----------------> stopping -------------------------> stopped: loop_run returns
 *      |    on_stop(signum, arg), once |
 *      |                               +--> a second SIGTERM or SIGINT: the process exits at once
 *      |                                    with 128 + signal number
 *      +-- loop_stop: also without a signal (a fatal error of the daemon)
 *
 * From the return of loop_run on, the signals have their default action again: a tear-down that
 * hangs can be ended from outside.
 *
 * Owns    the uv loop, its signal handles, its timers until loop_timer_free. Handles that others
 *         made on loop_uv() are closed by them before loop_free.
 * Thread  everything here belongs to the thread that called loop_new; ASSERT_ON(loop) says so.
 *         Other threads reach the loop through rpc_env_post.
 * Units   ms, from now, monotonic.
 * Errors  ERR_FULL (no descriptors), ERR_IO, ERR_NO_MEMORY from loop_new only.
 */
#ifndef COMMON_LOOP_LOOP_H
#define COMMON_LOOP_LOOP_H

#include <uv.h>

#include "common/base/base.h"
#include "common/base/err.h"

struct loop;
struct loop_timer;

/* Also ignores SIGPIPE for the process: a closed log pipe is not a reason to lose state. */
MUST_CHECK enum err_code loop_new(struct loop **ret_loop, struct err *err);
/* Not running; all handles but our own are closed or closing. NULL is fine. */
void loop_free(struct loop *loop);
DEFINE_AUTO(loop)

uv_loop_t *loop_uv(struct loop *loop);
bool loop_is_here(const struct loop *loop); /* any thread: is the caller the loop's thread? */
#define ASSERT_ON(loop) ASSERT(loop_is_here(loop))

/* on_stop begins the shutdown and sees to it that loop_stop is called in the end; it runs at most
 * once. Without it a signal stops the loop with 128 + signal number. */
void loop_on_stop(struct loop *loop, void (*on_stop)(int signum, void *arg), void *arg);
/* Runs until loop_stop; returns the exit code given there. Unblocks SIGTERM and SIGINT in this
 * thread. */
int loop_run(struct loop *loop);
/* Ends loop_run after the callbacks that are due in this turn; the first exit code given stays. May
 * be called before loop_run. */
void loop_stop(struct loop *loop, int exit_code);

/* A timer is made idle. Starting it again replaces what it waited for. on_time may stop, restart or
 * free its own timer. A timer that waits does not keep a stopped loop alive. */
struct loop_timer *loop_timer_new(struct loop *loop, void (*on_time)(void *arg), void *arg);
void loop_timer_once(struct loop_timer *timer, uint64_t after_ms);
/* First after period_ms, then every period_ms (at least 1); turns that were missed are not caught
 * up. */
void loop_timer_every(struct loop_timer *timer, uint64_t period_ms);
void loop_timer_stop(struct loop_timer *timer);
bool loop_timer_is_waiting(const struct loop_timer *timer);
void loop_timer_free(struct loop_timer *timer); /* NULL is fine; before loop_free */

#endif
