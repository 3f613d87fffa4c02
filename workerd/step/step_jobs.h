/* SPDX-License-Identifier: Apache-2.0 */
/* step_jobs: which jobs are open on this worker.
 *
 * Owns    the open jobs, and the closing ones until nobody borrows of them. Thread: the loop's.
 * Errors  none; a job that cannot be opened fails its steps with the reason.
 */
#ifndef WORKERD_STEP_STEP_JOBS_H
#define WORKERD_STEP_STEP_JOBS_H

#include "common/base/base.h"
#include "proto/fleet.pb-c.h"
#include "workerd/exchange/ps_link.h"

struct step_run;

/* Said again, or late: does nothing. Of a newer generation: closes the older one. */
void step_jobs_open(struct step_run *run, const Steadfast__V1__JobOpen *message);
/* Its steps are dropped. */
void step_jobs_close(struct step_run *run, uint64_t number);
/* On a new stream: a job without steps may have been closed on the old one. The coordinator opens a
 * job again before its next ticket. */
void step_jobs_close_idle(struct step_run *run);
/* Calls on_server for each server that some open job cannot reach now. */
void step_jobs_unreachable(const struct step_run *run,
                           void (*on_server)(void *arg, const struct ps_link *link), void *arg);

#endif
