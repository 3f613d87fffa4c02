/* SPDX-License-Identifier: Apache-2.0 */
/* session_leave: the end that this worker chose itself.
 *
 *   NOT --session_leave--> FINISHING --nothing runs any more--> ANSWER --the stream ended--> DONE
 *                              |    or LEAVE_FINISH_MS             or LEAVE_ANSWER_MS          ^
 *                              +--- nobody listens, nothing to say ----------------------------+
 */
#include "common/base/log.h"
#include "common/loop/loop.h"
#include "workerd/shell/session_int.h"
#include "workerd/step/step_report.h"
#include "workerd/step/step_run.h"

#define LEAVE_FINISH_MS 5000u /* a running step may take this long; preemption notices leave 30 s */
#define LEAVE_ANSWER_MS 1000u /* one round trip and a group commit, many times over */

void session_leave_done(struct session *session)
{
    if (session->leave == LEAVE_DONE)
        return;
    session->leave = LEAVE_DONE;
    loop_timer_stop(session->leave_timer);
    session->options.on_left(session->options.arg);
}

void session_leave_if_ready(struct session *session)
{
    if (session->leave != LEAVE_FINISHING || step_run_begun_count(session->run) > 0 ||
        session->state != SESSION_ATTACHED)
        return;
    session->leave = LEAVE_ANSWER;
    loop_timer_once(session->leave_timer, LEAVE_ANSWER_MS);
    session_out_leaving(session);
}

void session_leave_on_goodbye(struct session *session)
{
    if (session->leave == LEAVE_FINISHING)
        session->leave = LEAVE_ANSWER; /* there is nothing left to say */
}

void session_leave_on_timer(void *arg)
{
    struct session *session = arg;
    if (session->leave == LEAVE_FINISHING && session->state == SESSION_ATTACHED) {
        /* What still runs may be issued again: its pushes are answered "done before" where it came
         * through. */
        log_warn("leave.unfinished", "steps=%zu still run after %u ms; they are returned",
                 step_run_begun_count(session->run), LEAVE_FINISH_MS);
        session->leave_key_count +=
            step_run_held(session->run, session->leave_keys + session->leave_key_count,
                          2 * STEP_HELD_MAX - session->leave_key_count);
        session->leave = LEAVE_ANSWER;
        loop_timer_once(session->leave_timer, LEAVE_ANSWER_MS);
        session_out_leaving(session);
        return;
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
    bool is_worth_waiting = session->state == SESSION_ATTACHED || is_running;
    loop_timer_once(session->leave_timer, is_worth_waiting ? LEAVE_FINISH_MS : LEAVE_ANSWER_MS);
}
