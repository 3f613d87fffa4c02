/* SPDX-License-Identifier: Apache-2.0 */
/* session_leave: the end that this worker chose itself.
 *
 *   NOT --session_leave--> FINISHING --nothing runs any more--> ANSWER --the stream ended--> DONE
 *                              |   or LIMIT_LEAVE_FINISH_MS       or LIMIT_LEAVE_ANSWER_MS      ^
 *                              +--- nobody listens, nothing to say, or not for long ------------+
 *
 * Steps leave FINISHING by being done, or by being given up: they are returned, and run again
 * elsewhere.
 */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/loop/loop.h"
#include "workerd/shell/session_int.h"
#include "workerd/step/step_report.h"
#include "workerd/step/step_run.h"

#define LOOK_MS 100u /* how late it may be noticed that time is up */

void session_leave_done(struct session *session)
{
    if (session->leave == LEAVE_DONE)
        return;
    session->leave = LEAVE_DONE;
    loop_timer_stop(session->leave_timer);
    session->options.on_left(session->options.arg);
}

static uint64_t leaving_ms(const struct session *session)
{
    return (clock_now_ns() - session->leave_begin_ns) / NS_PER_MS;
}

static void take_leave(struct session *session)
{
    session->leave = LEAVE_ANSWER;
    loop_timer_once(session->leave_timer, LIMIT_LEAVE_ANSWER_MS);
    session_out_leaving(session);
}

static void give_up_hopeless(struct session *session)
{
    uint64_t stuck_before_ns = leaving_ms(session) < LIMIT_LEAVE_PUSH_MS
                                   ? 0
                                   : clock_now_ns() - LIMIT_LEAVE_PUSH_MS * NS_PER_MS;
    size_t count = step_run_give_up(session->run, stuck_before_ns,
                                    session->leave_keys + session->leave_key_count,
                                    2 * STEP_HELD_MAX - session->leave_key_count);
    session->leave_key_count += count;
    if (count > 0)
        log_info("leave.given_up", "steps=%zu %s; they are returned", count,
                 stuck_before_ns ? "have waited too long for servers"
                                 : "need servers out of reach");
}

void session_leave_if_ready(struct session *session)
{
    if (session->leave != LEAVE_FINISHING)
        return;
    give_up_hopeless(session);
    if (step_run_begun_count(session->run) == 0 && session->state == SESSION_ATTACHED)
        take_leave(session);
}

void session_leave_on_goodbye(struct session *session)
{
    if (session->leave != LEAVE_FINISHING)
        return;
    session->leave = LEAVE_ANSWER; /* there is nothing left to say */
    loop_timer_once(session->leave_timer, LIMIT_LEAVE_ANSWER_MS);
}

void session_leave_on_timer(void *arg)
{
    struct session *session = arg;
    bool is_attached = session->state == SESSION_ATTACHED;
    if (session->leave == LEAVE_FINISHING) {
        session_leave_if_ready(session);
        if (session->leave != LEAVE_FINISHING)
            return;
        size_t begun_count = step_run_begun_count(session->run);
        uint32_t limit_ms =
            begun_count > 0 || is_attached ? LIMIT_LEAVE_FINISH_MS : LIMIT_LEAVE_ANSWER_MS;
        if (leaving_ms(session) < limit_ms)
            return;
        if (is_attached) {
            /* What still runs may be issued again: its pushes are answered "done before" where it
             * came through. */
            log_warn("leave.unfinished", "steps=%zu still run after %d ms; they are returned",
                     begun_count, LIMIT_LEAVE_FINISH_MS);
            session->leave_key_count +=
                step_run_held(session->run, session->leave_keys + session->leave_key_count,
                              2 * STEP_HELD_MAX - session->leave_key_count);
            take_leave(session);
            return;
        }
    }
    log_warn("leave.unanswered", "address=%s unacknowledged=%zu: leaving without an answer",
             session->options.coordinator, step_report_unacked_count(session->run));
    session_leave_done(session);
}

void session_leave(struct session *session, const char *reason)
{
    if (session->leave != LEAVE_NOT)
        return;
    session->leave = LEAVE_FINISHING;
    session->leave_begin_ns = clock_now_ns();
    session->leave_reason = reason;
    session->leave_keys = base_alloc(2 * STEP_HELD_MAX * sizeof(*session->leave_keys));
    session->leave_key_count = step_run_stop(session->run, session->leave_keys, STEP_HELD_MAX);
    log_info("leave.begin", "reason=%s returned=%zu running=%zu", reason, session->leave_key_count,
             step_run_begun_count(session->run));
    bool is_running = step_run_begun_count(session->run) > 0;
    if (session->state != SESSION_ATTACHED && !is_running && session->leave_key_count == 0 &&
        step_report_unacked_count(session->run) == 0) {
        session_leave_done(session); /* there is nothing to say, and nobody who listens */
        return;
    }
    loop_timer_every(session->leave_timer, LOOK_MS);
}
