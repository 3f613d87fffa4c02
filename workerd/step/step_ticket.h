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
    const char *text;     /* "" when there is nothing to say */
    uint32_t compute_us;  /* on the device */
    uint32_t exchange_us; /* of the clock, waiting for pulls and pushes */
    uint32_t input_us;    /* of the clock, waiting for the batch; beside the pull */
    /* What the waiting consisted of. Processor time over all shards, here and on the servers, and
     * so maybe in parts beside the compute: */
    uint32_t serialise_us, copy_us, apply_us;
    uint32_t wait_us; /* the rest of it: on the way, in queues, for others */
    uint32_t staleness;
    bool is_duplicate;
};

#endif
