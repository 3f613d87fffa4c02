/* SPDX-License-Identifier: Apache-2.0 */
/* step_end: how a step leaves, with a report or without one. */
#include <inttypes.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "workerd/exchange/pull.h"
#include "workerd/exchange/push.h"
#include "workerd/input/stage.h"
#include "workerd/step/step_int.h"

/* ---- letting go --------------------------------------------------------------------------------
 */
static void release_slot(struct step *step)
{
    if (step->slot)
        stage_release(TAKE(step->slot));
}

/* A copy that is being pulled stays busy until the pull has ended. */
static void release_copy(struct step *step)
{
    if (!step->copy)
        return;
    pull_cancel(step->copy->pull);
    step->copy->user = NULL;
    step->copy = NULL;
}

/* Gradients that are still on their way keep the arrays busy until they are back. */
static void release_push(struct step *step)
{
    if (!step->push)
        return;
    push_cancel(step->push->push);
    step->push->user = NULL;
    step->push = NULL;
}

void step_end_release_inputs(struct step *step)
{
    release_slot(step);
    release_copy(step);
}

/* After this the step borrows nothing of its job. */
static void release_all(struct step *step)
{
    ASSERT(step->state != STEP_ON_DEVICE || step->request.ended_ns > 0 ||
           atomic_load(&step->request.claim) == DEVICE_TAKEN_BACK);
    step_end_release_inputs(step);
    release_push(step);
    if (step->is_pinned_reader)
        step->job->pinned.reader_count--;
    step->is_pinned_reader = false;
    if (step->state == STEP_PUSHING)
        step->job->pushing_count--;
    if (step->job)
        step->job->step_count--;
    step->job = NULL;
    step->run->is_changed = true;
}

void step_end_dropped(struct step *step)
{
    release_all(step);
    step_table_forget(step);
}

void step_end_drop(struct step *step)
{
    if (step->state == STEP_ON_DEVICE) {
        device_request_take_back(&step->request);
        step->is_dropped = true;
        return;
    }
    step_end_dropped(step);
}

/* ---- the report --------------------------------------------------------------------------------
 */
static uint32_t us_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (uint32_t)MIN((to_ns - from_ns) / NS_PER_US, (uint64_t)UINT32_MAX) : 0;
}

static void fill_times(struct step *step)
{
    struct step_report *report = &step->report;
    uint64_t able_ns =
        MAX(step->received_ns, step->free_ns); /* when the device could have begun it */
    report->input_us = us_between(able_ns, step->input_ns);
    report->compute_us = us_between(step->request.begun_ns, step->request.ended_ns);
    uint32_t vars_us = us_between(able_ns, step->vars_ns), tail_us = 0;
    if (step->state == STEP_PUSHING)
        tail_us = us_between(step->request.ended_ns, clock_now_ns());
    report->exchange_us = vars_us + tail_us;
    uint64_t idle_us = (uint64_t)MAX(report->input_us, vars_us) + tail_us;
    uint64_t work_us = (uint64_t)report->serialise_us + report->copy_us + report->apply_us;
    report->wait_us =
        idle_us > work_us ? (uint32_t)MIN(idle_us - work_us, (uint64_t)UINT32_MAX) : 0;
}

static void fill_error(struct step *step, const struct err *err)
{
    struct step_report *report = &step->report;
    bool is_failed = report->outcome == OUTCOME_FAILED;
    report->code = err->code;
    step->text = base_strdup(err->text);
    report->text = step->text;
    log_line(is_failed ? LOG_ERROR : LOG_INFO, is_failed ? "step.failed" : "step.returned",
             "job=%" PRIu64 " step=%" PRIu64 " code=%s err=\"%s\"", report->key.job,
             report->key.step, err_name(err->code), err->text);
}

void step_end_finish(struct step *step, enum step_outcome outcome, const struct err *err)
{
    struct step_report *report = &step->report;
    report->key = step->ticket.key;
    report->generation = step->ticket.generation;
    report->outcome = outcome;
    report->code = ERR_OK;
    report->text = "";
    if (outcome != OUTCOME_DONE)
        fill_error(step, err);
    fill_times(step);
    release_all(step);
    step_report_add(step);
}

void step_end_by_verdict(struct step *step, enum ps_verdict verdict, const struct err *err)
{
    ASSERT(verdict != PS_RETRY);
    step_end_finish(step,
                    verdict == PS_OK     ? OUTCOME_DONE
                    : verdict == PS_FAIL ? OUTCOME_FAILED
                                         : OUTCOME_RETURNED,
                    err);
}
