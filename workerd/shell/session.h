/* SPDX-License-Identifier: Apache-2.0 */
/* session: life with the coordinator: one stream that is dialled again for ever.
 *
 *          start          Hello sent         Welcome
 *   IDLE --------> DIALING --------> GREETED --------> ATTACHED
 *                     ^                 |                  |
 *                     | backoff         | no Welcome       | the stream broke, or Goodbye
 *                     +--- BROKEN <-----+                  |
 *                             ^----------------------------+
 *
 * When the stream broke, steps go on, and the next Hello says what is held and what was reported.
 * After a Goodbye everything is dropped, and the next Hello is a new incarnation's.
 *
 * session_leave from any state: nothing is begun any more; what was begun ends: on the device within
 * LIMIT_LEAVE_FINISH_MS, on the way to servers within LIMIT_LEAVE_PUSH_MS, or is given up at once
 * when one of them is out of reach. Then one message takes leave and names what was not done;
 * on_left after the coordinator has ended the stream, or LIMIT_LEAVE_ANSWER_MS.
 *
 * Reports are sent together, once a loop turn, and kept until they are acknowledged.
 *
 * Owns    the channel and the stream; borrows step_run.
 * Thread  the loop's.
 * Errors  none come out but on_fatal: a newer process of the same name took our place (ERR_EXISTS),
 *         or the coordinator refuses what we are (ERR_INVALID). Everything else is waited out,
 *         saying every few seconds for whom.
 */
#ifndef WORKERD_SHELL_SESSION_H
#define WORKERD_SHELL_SESSION_H

#include "common/base/base.h"
#include "common/base/err.h"

struct loop;
struct rpc_env;
struct session;
struct step_run;

struct session_options {     /* strings are borrowed */
    const char *coordinator; /* host:port */
    const char *name;        /* "worker:0" */
    const char *address;     /* host:port where this process serves */
    const char *device;      /* "cpu:0" */
    uint64_t memory_bytes;
    void (*on_fatal)(void *arg, const struct err *err);
    void (*on_left)(void *arg);
    void *arg;
};

MUST_CHECK enum err_code session_new(struct loop *loop, struct rpc_env *rpc, struct step_run *run,
                                     const struct session_options *options,
                                     struct session **ret_session, struct err *err);
void session_start(struct session *session);
/* Once a loop turn: sends the reports that wait. */
void session_flush(struct session *session);
void session_leave(struct session *session, const char *reason); /* again: does nothing */
/* Cancels the stream; on_done when nothing of ours runs any more, then free. */
void session_stop(struct session *session, void (*on_done)(void *arg), void *arg);
void session_free(struct session *session); /* NULL, never started, or stopped */

#endif
