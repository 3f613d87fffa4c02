/* SPDX-License-Identifier: Apache-2.0 */
/* member: life with the coordinator.
 *
 *   waiting --dial, Hello--> greeting --Welcome--> attached --stream ends--> waiting
 *                                                     |                 (keeps all state)
 *                                  Goodbye: drops all jobs, takes a new incarnation -> waiting
 *
 * While it waits it says every few seconds for whom. While attached it sends heartbeats and
 * executes orders.
 *
 * Owns    the channel, the stream and the timers. Thread: the loop's.
 */
#ifndef PSD_SHELL_MEMBER_H
#define PSD_SHELL_MEMBER_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "proto/fleet.pb-c.h"

struct ps;
struct member;

MUST_CHECK enum err_code member_new(struct ps *ps, struct member **ret_member, struct err *err);
void member_start(struct member *member);
/* Says that it leaves, then on_stopped; within a second. */
void member_stop(struct member *member, void (*on_stopped)(void *arg), void *arg);
void member_free(struct member *member); /* stopped, or never started */
/* Sends an answer if attached; else it is lost here, and the order comes again. */
void member_answer(struct member *member, const Steadfast__V1__OrderDone *done);

#endif
