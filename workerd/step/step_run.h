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
 * Owns    steps and open jobs. Thread: the loop's.
 * Units   ns monotonic. Bounds: STEP_RUN_HELD_MAX tickets; what exceeds it is returned.
 * Errors  a step's own error goes into its report; STEP_RETURNED means that it may be issued again.
 */
#ifndef WORKERD_STEP_STEP_RUN_H
#define WORKERD_STEP_STEP_RUN_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/base/limits.h"
#include "proto/fleet.pb-c.h"
#include "workerd/step/open_job.h"

#define STEP_RUN_HELD_MAX                                                                          \
    ((size_t)2 * LIMIT_CREDIT_MAX) /* the coordinator's bound, and as many revoked ones */

struct step_run;

struct step_key {
    uint64_t job;
    uint64_t step;
    uint64_t attempt;
    bool is_eval;
};

struct step_ticket {
    struct step_key key;
    uint64_t generation;
    uint32_t epoch;
    uint64_t batch;
    uint64_t pin;
    uint32_t deadline_ms; /* from now */
    uint64_t session;     /* of the Welcome under which it came; its pushes carry it */
};

enum step_outcome {
    OUTCOME_DONE,
    OUTCOME_FAILED,
    OUTCOME_RETURNED
}; /* numbers of proto StepOutcome */

struct step_report {
    struct step_key key;
    uint64_t generation;
    enum step_outcome outcome;
    float loss;
    uint32_t examples;
    uint32_t correct;
    enum err_code code;
    const char *text; /* "" when there is nothing to say */
    uint32_t compute_us;
    uint32_t exchange_us;
    uint32_t input_us;
    uint32_t staleness;
    bool is_duplicate;
};

/* on_change and on_unborrowed of env are filled in here. on_report: reports wait to be taken. */
struct step_run *step_run_new(const struct job_env *env, void (*on_report)(void *arg), void *arg);
/* No step and no job is left: step_run_drop_all was called and step_run_is_empty. */
void step_run_free(struct step_run *run);
DEFINE_AUTO(step_run)

void step_run_open_job(struct step_run *run, const Steadfast__V1__JobOpen *message);
void step_run_close_job(struct step_run *run, uint64_t job);
/* On a new stream: a job without steps may have been closed on the old one. The coordinator opens a
 * job again before its next ticket. */
void step_run_close_idle_jobs(struct step_run *run);
void step_run_ticket(struct step_run *run, const struct step_ticket *ticket);
/* Looks at all waiting steps; to be called once a loop turn in which something changed. */
void step_run_advance(struct step_run *run);
bool step_run_has_change(const struct step_run *run);
/* Returns steps whose deadline passed while they waited. */
void step_run_check_deadlines(struct step_run *run, uint64_t now_ns);
void step_run_revoke(struct step_run *run, const struct step_key *key);
void step_run_ack(struct step_run *run, const struct step_key *key);
/* Goodbye: no step, report or job of the past is of interest. */
void step_run_drop_all(struct step_run *run);
bool step_run_is_empty(const struct step_run *run);

/* Leaving: nothing is begun any more. Writes the keys of what was not begun (up to max) and forgets
 * them. */
size_t step_run_stop(struct step_run *run, struct step_key *ret_keys, size_t max);
size_t step_run_begun_count(const struct step_run *run); /* on the device, or being pushed */

/* Reports not taken yet, oldest first; up to max. They stay here until acknowledged, texts
 * included. */
size_t step_run_take_reports(struct step_run *run, struct step_report *ret_reports, size_t max);
/* The newest unacknowledged reports, oldest first; up to max, and these count as taken. When there
 * are more, all are to be taken again (a report may be said twice). */
size_t step_run_reports_for_hello(struct step_run *run, struct step_report *ret_reports,
                                  size_t max);
/* What is held without a report: on its way to the shards, on the device, waiting. */
size_t step_run_held(const struct step_run *run, struct step_key *ret_keys, size_t max);
size_t step_run_unacked_count(const struct step_run *run);

/* Calls on_server for each server that some open job cannot reach now. */
void step_run_unreachable(const struct step_run *run,
                          void (*on_server)(void *arg, const struct ps_link *link), void *arg);

#endif
