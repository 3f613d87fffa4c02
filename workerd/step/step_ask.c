/* SPDX-License-Identifier: Apache-2.0 */
/* step_ask: what a waiting step needs before the device can have it. */
#include "common/base/clock.h"
#include "workerd/exchange/pull.h"
#include "workerd/exchange/slice_map.h"
#include "workerd/input/stage.h"
#include "workerd/step/step_int.h"

/* ---- the batch ---------------------------------------------------------------------------------
 */
static void on_filled(struct stage_slot *slot, void *arg)
{
    struct step *step = arg;
    step->run->is_changed = true;
    step->has_input = true;
    step->input_ns = clock_now_ns();
    if (slot->err.code != ERR_OK) {
        struct err err = slot->err;
        step_end_finish(step, OUTCOME_FAILED, &err);
    }
}

bool step_ask_batch(struct step *step)
{
    struct open_job *job = step->job;
    bool is_eval = step->ticket.key.is_eval;
    if (!is_eval && job->no_labels) {
        step->report.examples = job->spec->dataset.batch_size;
        step->input_ns = step->received_ns;
        step->has_input = true;
        return true;
    }
    if (!stage_has_free(job->stage))
        return true;
    struct err err;
    uint32_t count = 0;
    enum err_code code = stage_reserve(job->stage, &step->slot, &err);
    if (code == ERR_OK)
        code = is_eval
                   ? open_job_eval_batch(job, step->ticket.batch, step->slot->records, &count, &err)
                   : open_job_train_batch(job, step->ticket.epoch, step->ticket.batch,
                                          step->slot->records, &count, &err);
    if (code != ERR_OK) {
        step_end_finish(step, OUTCOME_FAILED, &err);
        return false;
    }
    stage_fill(step->slot, is_eval ? job->eval : job->train, count, on_filled, step);
    return true;
}

/* ---- the variables -----------------------------------------------------------------------------
 */
static void vars_are_there(struct step *step)
{
    step->has_vars = true;
    step->vars_ns = clock_now_ns();
}

static void on_copy_pulled(void *arg, enum ps_verdict verdict, const struct err *err)
{
    struct job_copy *copy = arg;
    struct step *step = copy->user;
    struct open_job *job = copy->job;
    job->env->on_change(job->env->arg);
    if (step && verdict == PS_OK) {
        step->report.copy_us += (uint32_t)(pull_copy_ns(copy->pull) / NS_PER_US);
        vars_are_there(step);
    } else if (step)
        step_end_by_verdict(step, verdict, err);
    if (job->is_closing)
        job->env->on_unborrowed(job, job->env->arg);
}

static void ask_train_vars(struct step *step)
{
    struct open_job *job = step->job;
    if (job->pushing_count > 0) /* those updates are to be in what we pull */
        return;
    for (size_t i = 0; i < JOB_COPIES && !job->env->pulls_ahead; i++)
        if (job->copies[i].user) /* and that one's, too */
            return;
    for (size_t i = 0; i < JOB_COPIES; i++) {
        struct job_copy *copy = &job->copies[i];
        if (copy->user || pull_is_active(copy->pull))
            continue;
        struct pull_request request = {
            .job = job->job, .generation = job->generation, .deadline_ns = step->deadline_ns};
        copy->user = step;
        step->copy = copy;
        pull_start(copy->pull, &request, on_copy_pulled, copy);
        return;
    }
}

static void on_pinned_pulled(void *arg, enum ps_verdict verdict, const struct err *err)
{
    struct open_job *job = arg;
    struct step_run *run = job->env->arg;
    run->is_changed = true;
    job->pinned.is_ready = verdict == PS_OK;
    struct step *next = NULL;
    for (struct step *step = run->lists[STEP_WAITING].first; step && verdict != PS_OK;
         step = next) {
        next = step->next;
        if (step->job == job && step->ticket.key.is_eval && step->ticket.pin == job->pinned.pin)
            step_end_by_verdict(step, verdict, err);
    }
    if (job->is_closing)
        job->env->on_unborrowed(job, run);
}

static bool ask_eval_vars(struct step *step)
{
    struct open_job *job = step->job;
    struct job_pinned *pinned = &job->pinned;
    struct err err;
    if (pinned->is_ready && pinned->pin == step->ticket.pin) {
        vars_are_there(step);
        return true;
    }
    if (open_job_have_pinned(job, &err) != ERR_OK) {
        step_end_finish(step, OUTCOME_FAILED, &err);
        return false;
    }
    if (pull_is_active(pinned->pull) || pinned->reader_count > 0)
        return true;
    pinned->is_ready = false;
    pinned->pin = step->ticket.pin;
    struct pull_request request = {.job = job->job,
                                   .generation = job->generation,
                                   .pin = step->ticket.pin,
                                   .deadline_ns = step->deadline_ns};
    pull_start(pinned->pull, &request, on_pinned_pulled, job);
    return true;
}

bool step_ask_vars(struct step *step)
{
    if (step->job->map->shard_count == 0) {
        step->has_vars = true;
        step->vars_ns = step->received_ns;
        return true;
    }
    if (step->ticket.key.is_eval)
        return ask_eval_vars(step);
    if (!step->copy)
        ask_train_vars(step);
    return true;
}
