/* SPDX-License-Identifier: Apache-2.0 */
/* step_ticket: what a worker is handed and what it hands back: keys, tickets and reports of steps,
 * as plain values.
 *
 * Owns    nothing; a report's text belongs to the step that it reports.
 * Thread  any.
 * Units   microseconds and milliseconds as named.
 */
#ifndef WORKERD_STEP_STEP_TICKET_H
#define WORKERD_STEP_STEP_TICKET_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/base/limits.h"

/* Tickets held without a report: the coordinator's bound, and as many revoked ones. */
#define STEP_HELD_MAX ((size_t)2 * LIMIT_CREDIT_MAX)

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

#endif
