/* SPDX-License-Identifier: Apache-2.0 */
/* session_int: what the files of the session share, and which of them owns what.
 *
 *   session        the stream: dialled, greeted, attached, broken; what comes in
 *   session_leave  the end that we chose
 *   session_out    what goes out
 *
 * Each calls those below it. An owner is the only file that writes a field; the rest read it.
 */
#ifndef WORKERD_SHELL_SESSION_INT_H
#define WORKERD_SHELL_SESSION_INT_H

#include "common/base/base.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "proto/fleet.pb-c.h"
#include "workerd/shell/session.h"
#include "workerd/step/step_ticket.h"

enum session_state {
    SESSION_IDLE,
    SESSION_DIALING,
    SESSION_GREETED,
    SESSION_ATTACHED,
    SESSION_BROKEN
};
enum leave_state { LEAVE_NOT, LEAVE_FINISHING, LEAVE_ANSWER, LEAVE_DONE };

struct session {
    /* session: set once */
    struct loop *loop;
    struct step_run *run;
    struct session_options options;

    /* session: the stream */
    struct rpc_channel *channel;
    struct rpc_ccall *call; /* NULL: no stream */
    enum session_state state;
    struct loop_timer *timer;     /* DIALING, GREETED: no Welcome; BROKEN: dial again */
    struct loop_timer *heartbeat; /* ATTACHED */
    uint64_t incarnation;
    uint64_t number; /* session of the last Welcome */
    uint64_t start;  /* of the coordinator */
    uint64_t ledger; /* whose steps we hold; 0: nobody's */
    uint32_t tries;
    uint64_t silent_since_ns; /* when the wait for the coordinator began */
    struct log_limit limit;
    bool is_goodbye; /* the stream's end is expected */
    bool is_stopping;
    void (*on_stopped)(void *arg);
    void *on_stopped_arg;

    /* session_leave */
    enum leave_state leave;
    struct loop_timer *leave_timer; /* FINISHING, ANSWER */
    uint64_t leave_begin_ns;
    const char *leave_reason;
    struct step_key *leave_keys; /* what is returned */
    size_t leave_key_count;

    /* session_out */
    uint64_t sequence;                                     /* of heartbeats */
    struct step_report reports[LIMIT_REPORTS_PER_MESSAGE]; /* scratch of session_out_reports */
    Steadfast__V1__StepReport wire[LIMIT_REPORTS_PER_MESSAGE];
    Steadfast__V1__StepReport *wire_ptrs[LIMIT_REPORTS_PER_MESSAGE];
};

/* ---- session_out -------------------------------------------------------------------------------
 */
void session_out_hello(struct session *session);
void session_out_reports(struct session *session); /* those that wait, if anybody listens */
void session_out_heartbeat(void *arg);             /* arg: the session; a timer's */
void session_out_leaving(struct session *session);

/* ---- session_leave -----------------------------------------------------------------------------
 */
void session_leave_if_ready(struct session *session);   /* after a turn's reports went */
void session_leave_on_goodbye(struct session *session); /* nothing is held any more */
void session_leave_on_timer(void *arg);                 /* arg: the session */
/* The last word was said, or nobody hears it; again: does nothing. */
void session_leave_done(struct session *session);

#endif
