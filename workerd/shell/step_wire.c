/* SPDX-License-Identifier: Apache-2.0 */
/* step_wire: field by field. */
#include "workerd/shell/step_wire.h"

static Steadfast__V1__StepKind kind_of(const struct step_key *key)
{
    return key->is_eval ? STEADFAST__V1__STEP_KIND__STEP_EVAL
                        : STEADFAST__V1__STEP_KIND__STEP_TRAIN;
}

void step_wire_put_key(const struct step_key *key, Steadfast__V1__StepRef *ret_wire)
{
    steadfast__v1__step_ref__init(ret_wire);
    ret_wire->job = key->job;
    ret_wire->step = key->step;
    ret_wire->attempt = key->attempt;
    ret_wire->kind = kind_of(key);
}

void step_wire_put_report(const struct step_report *report, Steadfast__V1__StepReport *ret_wire)
{
    steadfast__v1__step_report__init(ret_wire);
    ret_wire->job = report->key.job;
    ret_wire->step = report->key.step;
    ret_wire->attempt = report->key.attempt;
    ret_wire->generation = report->generation;
    ret_wire->kind = kind_of(&report->key);
    ret_wire->outcome = (Steadfast__V1__StepOutcome)report->outcome;
    ret_wire->loss = report->loss;
    ret_wire->examples = report->examples;
    ret_wire->correct = report->correct;
    if (report->outcome != OUTCOME_DONE)
        ret_wire->code = (char *)err_name(report->code);
    ret_wire->text = (char *)report->text;
    ret_wire->compute_us = report->compute_us;
    ret_wire->exchange_us = report->exchange_us;
    ret_wire->input_us = report->input_us;
    ret_wire->serialise_us = report->serialise_us;
    ret_wire->copy_us = report->copy_us;
    ret_wire->apply_us = report->apply_us;
    ret_wire->wait_us = report->wait_us;
    ret_wire->staleness = report->staleness;
    ret_wire->duplicate = report->is_duplicate;
}

struct step_key step_wire_key(const Steadfast__V1__StepRef *wire)
{
    return (struct step_key){.job = wire->job,
                             .step = wire->step,
                             .attempt = wire->attempt,
                             .is_eval = wire->kind == STEADFAST__V1__STEP_KIND__STEP_EVAL};
}

struct step_ticket step_wire_ticket(const Steadfast__V1__StepTicket *wire, uint64_t session)
{
    return (struct step_ticket){
        .key = {.job = wire->job,
                .step = wire->step,
                .attempt = wire->attempt,
                .is_eval = wire->kind == STEADFAST__V1__STEP_KIND__STEP_EVAL},
        .generation = wire->generation,
        .epoch = wire->epoch,
        .batch = wire->batch,
        .pin = wire->pin,
        .deadline_ms = wire->deadline_ms,
        .session = session,
    };
}
