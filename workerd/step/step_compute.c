/* SPDX-License-Identifier: Apache-2.0 */
/* step_compute: a step on the device and its gradients on their way, which end in either order. */
#include "common/base/clock.h"
#include "workerd/exchange/pull.h"
#include "workerd/exchange/push.h"
#include "workerd/exchange/slice_map.h"
#include "workerd/input/stage.h"
#include "workerd/step/step_int.h"

/* ---- what came of it ---------------------------------------------------------------------------
 */
static void on_push_done(void *arg, enum ps_verdict verdict, const struct err *err)
{
    struct job_push *slot = arg;
    struct step *step = slot->user;
    slot->job->env->on_change(slot->job->env->arg);
    if (!step)
        return; /* dropped; on_idle sees to the job */
    step->is_answered = true;
    step->verdict = verdict;
    if (verdict == PS_OK) {
        struct push_result result = push_result_of(slot->push);
        step->report.is_duplicate = result.is_duplicate;
        step->report.staleness = (uint32_t)MIN(result.staleness, (uint64_t)UINT32_MAX);
        step->report.serialise_us = (uint32_t)(result.serialise_ns / NS_PER_US);
        step->report.copy_us += (uint32_t)(result.copy_ns / NS_PER_US);
        step->report.apply_us = (uint32_t)(result.apply_ns / NS_PER_US);
    } else {
        slot->err = *err;
    }
    if (step->state == STEP_PUSHING)
        step_end_by_verdict(step, verdict, err);
}

/* The device has computed the step, and somebody still wants to know. */
static void computed(struct step *step)
{
    const struct device_request *request = &step->request;
    if (step->is_answered && step->verdict != PS_OK) {
        step_end_by_verdict(step, step->verdict, &step->push->err);
    } else if (request->err.code != ERR_OK) {
        step_end_finish(step, OUTCOME_FAILED, &request->err);
    } else if (step->ticket.key.is_eval) {
        step->report.loss = (float)request->loss_sum;
        step->report.correct = request->correct;
        step_end_finish(step, OUTCOME_DONE, NULL);
    } else {
        step->report.loss = request->loss_mean;
        if (!step->push || step->is_answered) {
            step_end_finish(step, OUTCOME_DONE, NULL);
        } else {
            step_table_move(step, STEP_PUSHING);
            step->job->pushing_count++;
        }
    }
}

static void on_device_done(struct device_request *request)
{
    struct step *step = CONTAINER_OF(request, struct step, request);
    struct step_run *run = step->run;
    struct open_job *job = step->job;
    bool was_run = request->begun_ns > 0;
    if (was_run) {
        step->free_ns = run->device_free_ns;
        run->device_free_ns = request->ended_ns;
    }
    if (step->is_dropped) {
        step_end_dropped(step);
        if (job->is_closing)
            job->env->on_unborrowed(job, run);
        return;
    }
    ASSERT(was_run); /* only dropped steps are taken back */
    step_end_release_inputs(step);
    computed(step);
}

/* ---- begin -------------------------------------------------------------------------------------
 */
static void hand_to_device(struct step *step)
{
    struct open_job *job = step->job;
    struct device_request *request = &step->request;
    request->op = step->ticket.key.is_eval ? DEVICE_EVAL : DEVICE_TRAIN;
    request->model = &job->model;
    request->step = step->ticket.key.step;
    request->on_done = on_device_done;
    request->push = NULL;
    request->vars = NULL;
    request->grads = NULL;
    if (step->slot) {
        request->batch = (struct batch){
            .count = step->slot->count, .images = step->slot->images, .labels = step->slot->labels};
    } else {
        request->batch = (struct batch){.count = step->report.examples, .labels = job->no_labels};
    }
    if (step->is_pinned_reader)
        request->vars = pull_vars(job->pinned.pull);
    if (step->copy)
        request->vars = pull_vars(step->copy->pull);
    if (step->push) {
        request->grads = push_grads(step->push->push);
        request->push = step->push->push;
    }
    step->report.examples = request->batch.count;
    step_table_move(step, STEP_ON_DEVICE);
    device_thread_post(job->env->device, request);
}

/* Takes a free set of gradients and readies its push; false: none is free. */
static bool begin_push(struct step *step)
{
    struct open_job *job = step->job;
    struct job_push *slot = NULL;
    for (size_t i = 0; i < JOB_COPIES && !slot; i++)
        if (!job->pushes[i].user && push_is_idle(job->pushes[i].push))
            slot = &job->pushes[i];
    if (!slot)
        return false;
    size_t shard_count = job->map->shard_count;
    AUTO_MEM uint64_t *versions = base_alloc(shard_count * sizeof(*versions));
    for (size_t i = 0; i < shard_count; i++)
        versions[i] = pull_version(step->copy->pull, i);
    struct push_request request = {
        .job = job->job,
        .generation = job->generation,
        .step = step->ticket.key.step,
        .attempt = step->ticket.key.attempt,
        .session = step->ticket.session,
        .pulled_versions = versions,
        .deadline_ns = step->deadline_ns,
    };
    slot->user = step;
    step->push = slot;
    push_begin(slot->push, &request, on_push_done, slot);
    return true;
}

void step_compute_begin(struct step *step)
{
    struct open_job *job = step->job;
    if (step->ticket.key.is_eval && job->map->shard_count > 0) {
        if (!job->pinned.is_ready || job->pinned.pin != step->ticket.pin) {
            step->has_vars = false; /* another pin's tickets came between */
            return;
        }
        step->is_pinned_reader = true;
        job->pinned.reader_count++;
    } else if (step->copy && !begin_push(step)) {
        return;
    }
    hand_to_device(step);
}
