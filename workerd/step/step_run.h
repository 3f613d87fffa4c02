/* SPDX-License-Identifier: Apache-2.0 */
/* step_run: the steps of this worker, from ticket to acknowledged report.
 *
 *            batch, variables and      device done        every shard
 *   ticket   gradient arrays ready     (train)            answered
 *     |                                                                        ack
 *   WAITING ---------------> ON_DEVICE ------> PUSHING ----------> REPORTED -------> gone
 *     |                        |                 |                    ^
 *     | deadline, broken job   | evaluation,     | refused or         |
 *     | or data, refused,      | no variables,   | out of reach       |
 *     | out of reach           | failed          |                    |
 *     +------------------------+-----------------+--------------------+
 *
 *   Revoked, returned on leaving, job closed, goodbye: from any state to gone, without a report; a
 *   step that the device has begun is not revoked.
 *
 * While step s computes, the batches of s + 1 and s + 2 are staged, and the gradients of s leave as
 * they become complete. The variables of s + 1 are pulled when every shard has answered s, so that
 * a worker never computes on values that lack its own last update: late gradients cost more than
 * the transfer (measured: lenet with momentum 0.9 learns at a rate of 0.05 with gradients that are
 * no update late, 0.03 with one, 0.01 with three). With pulls_ahead they are pulled while s
 * computes, as soon as s - 1 is answered: the transfer is hidden, and each step lacks one update
 * of its own worker.
 *
 * Jobs without variables and data go from ticket to device at once, many at a time.
 *
 * Beside this door: step_jobs.h (which jobs are open), step_report.h (reports, acknowledgements).
 *
 * Owns    steps and open jobs. Thread: the loop's.
 * Units   ns monotonic. Bounds: STEP_HELD_MAX tickets; what exceeds it is returned.
 * Errors  a step's own error goes into its report; STEP_RETURNED means that it may be issued again.
 */
#ifndef WORKERD_STEP_STEP_RUN_H
#define WORKERD_STEP_STEP_RUN_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "workerd/step/open_job.h"
#include "workerd/step/step_ticket.h"

struct step_run;

/* on_change and on_unborrowed of env are filled in here. on_report: reports wait to be taken. */
struct step_run *step_run_new(const struct job_env *env, void (*on_report)(void *arg), void *arg);
/* No step and no job is left: step_run_drop_all was called and step_run_is_empty. */
void step_run_free(struct step_run *run);
DEFINE_AUTO(step_run)

void step_run_ticket(struct step_run *run, const struct step_ticket *ticket);
/* Looks at all waiting steps; to be called once a loop turn in which something changed. */
void step_run_advance(struct step_run *run);
bool step_run_has_change(const struct step_run *run);
/* Returns steps whose deadline passed while they waited. */
void step_run_check_deadlines(struct step_run *run, uint64_t now_ns);
void step_run_revoke(struct step_run *run, const struct step_key *key);
/* Goodbye: no step, report or job of the past is of interest. */
void step_run_drop_all(struct step_run *run);
bool step_run_is_empty(const struct step_run *run);

/* Leaving: nothing is begun any more. Writes the keys of what was not begun (up to max) and forgets
 * them. */
size_t step_run_stop(struct step_run *run, struct step_key *ret_keys, size_t max);
/* Leaving, again and again: gives up what cannot be finished, a step that needs a server out of
 * reach or whose gradients have waited for answers since before stuck_before_ns. Writes the keys (up
 * to max) and forgets them; what shards have applied, they answer with "done before" to whoever
 * runs the step next. */
size_t step_run_give_up(struct step_run *run, uint64_t stuck_before_ns, struct step_key *ret_keys,
                        size_t max);
size_t step_run_begun_count(const struct step_run *run); /* on the device, or being pushed */

/* What is held without a report: on its way to the shards, on the device, waiting. */
size_t step_run_held(const struct step_run *run, struct step_key *ret_keys, size_t max);

#endif
