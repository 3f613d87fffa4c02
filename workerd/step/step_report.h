/* SPDX-License-Identifier: Apache-2.0 */
/* step_report: reports of steps, from the end of the step until the coordinator has acknowledged
 * it.
 *
 * Owns    nothing of its own; the steps are step_run's. Thread: the loop's.
 * Bounds  as many as there were tickets; the coordinator bounds those without acknowledgement.
 */
#ifndef WORKERD_STEP_STEP_REPORT_H
#define WORKERD_STEP_STEP_REPORT_H

#include "common/base/base.h"
#include "workerd/step/step_ticket.h"

struct step_run;

/* Reports not taken yet, oldest first; up to max. They stay here until acknowledged, texts
 * included. */
size_t step_report_take(struct step_run *run, struct step_report *ret_reports, size_t max);
/* The newest unacknowledged reports, oldest first; up to max, and these count as taken. When there
 * are more, all are to be taken again (a report may be said twice). */
size_t step_report_take_for_hello(struct step_run *run, struct step_report *ret_reports,
                                  size_t max);
/* A step that nobody reported, or acknowledged already: does nothing. */
void step_report_ack(struct step_run *run, const struct step_key *key);
size_t step_report_unacked_count(const struct step_run *run);

#endif
