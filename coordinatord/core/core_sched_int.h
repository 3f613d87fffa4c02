/* SPDX-License-Identifier: Apache-2.0 */
/* core_sched_int: which step goes to which worker, and how it comes back. */
#ifndef COORDINATORD_CORE_CORE_SCHED_INT_H
#define COORDINATORD_CORE_CORE_SCHED_INT_H

#include "coordinatord/core/core_beside_int.h"

/* core_window.c */
void core_window_begin(struct job *job);
/* A step for that session: one that goes again, else the next of its window. */
bool core_window_pick(struct job *job, uint64_t session, uint64_t *ret_step);

/* core_step.c */
/* The step is done: to be acknowledged when the record of that number is durable. */
uint64_t core_step_finish(struct core *core, struct job *job, uint64_t step, uint32_t examples);
/* What the step did so far; made when there is nothing yet. */
struct trouble *core_trouble_of(struct job *job, uint64_t step);
enum blame { BLAME_NONE, BLAME_HUNG, BLAME_DEATH };
/* The attempt ended without a result: the step (or evaluation batch) goes back. blame: it may be
 * why. */
void core_step_give_back(struct core *core, struct job *job, const struct in_flight *flight,
                         enum blame blame, const char *who);
void core_step_abandon(struct core *core, struct job *job, uint64_t step, uint32_t attempts,
                       enum err_code code, const char *text);
/* HUNG: its oldest ticket is to blame; DEATH: the only one, or see core_suspect.c. */
void core_step_worker_gone(struct core *core, struct member *worker, enum blame blame,
                           uint64_t gone_ns);
void core_step_revoke_job(struct core *core, struct job *job);
bool core_step_adopt(struct core *core, struct member *worker, const struct core_step_ref *ref);

/* core_issue.c */
/* The ticket is in flight and leaves when it is written. */
void core_issue_add(struct core *core, struct member *worker, struct job *job,
                    const struct core_ticket *ticket);
/* It comes back; nothing when it had left. */
void core_issue_cancel(struct core *core, struct job *job, const struct in_flight *flight);
void core_issue_written(struct core *core); /* those that were written leave */
void core_issue_send(struct core *core, const struct member *worker,
                     const struct core_ticket *tickets, size_t count);
/* Tickets beyond the first of their step, as the ledger has to have it. */
uint64_t core_issue_again_count(const struct job *job);

/* core_verdict.c */
void core_verdict_advance(struct core *core, struct job *job);
void core_verdict_answer(struct core *core, struct job *job, const struct order *order,
                         enum err_code code, const struct core_shard_state *shards, size_t count);

/* core_sched.c */
void core_sched_fill(struct core *core, struct member *worker);
void core_sched_fill_all(struct core *core);

#endif
