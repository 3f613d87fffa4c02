/* SPDX-License-Identifier: Apache-2.0 */
/* rule: update rules, which say how far workers may be apart and what makes an update. One row a
 * rule; a new rule is one file with its row, named in rule_table.c and in the words of
 * common/spec/job_spec.c.
 *
 * The coordinator's side of a rule decides three things, and the core asks at three places:
 *
 *   may_issue    may a ticket for this step leave now?         core_window.c, before a step is taken
 *   version      which version its gradients are made of       core_sched.c, into the ticket's pin
 *   is_complete  does this report complete the step's update?  core_report.c, before it is recorded
 *
 * What the next rules will decide, with what the core hands over already:
 *   bounded staleness (k)     may_issue holds a step back that is k or more beyond the lowest
 *                             unfinished one (ranges_watermark(finished)); a step held back is asked
 *                             about again at the next event, since every end of a step fills workers.
 *   sync (R replicas, b more) may_issue opens the next group of R + b steps when the one before it is
 *                             complete; version names the version that the last group made; a step's
 *                             update is complete with R reports of its group, so is_complete will
 *                             need the count of reports, kept in struct rule_steps. A report that
 *                             does not complete its step is kept by its worker, unacknowledged.
 *
 * Owns    nothing: rules are constants, what they are asked about is the caller's.
 * Thread  any.
 * Errors  none.
 */
#ifndef COORDINATORD_RULE_RULE_H
#define COORDINATORD_RULE_RULE_H

#include "common/base/ranges.h"
#include "common/spec/job_spec.h"

#define RULE_NEWEST 0u /* version: whatever is newest when the worker asks */

struct rule_steps { /* of one job in its present generation */
    const struct ranges *issued;
    const struct ranges *finished; /* reported by a worker, or abandoned */
    uint64_t window;               /* steps that one worker leases at a time */
};

struct rule {
    bool (*may_issue)(const struct rule_steps *steps, uint64_t step);
    uint64_t (*version)(const struct rule_steps *steps, uint64_t step);
    bool (*is_complete)(const struct rule_steps *steps, uint64_t step);
};

const struct rule *rule_of(enum consistency_mode mode);

#endif
