/* SPDX-License-Identifier: Apache-2.0 */
/* coord_status: what the core shows of a job, as the message of it. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "coordinatord/shell/coord_int.h"

static void fill_shards(const struct core_job_view *view, Steadfast__V1__JobStatus *status)
{
    status->n_shards = view->shard_count;
    status->shards = base_alloc((view->shard_count + 1) * sizeof(*status->shards));
    for (size_t i = 0; i < view->shard_count; i++) {
        Steadfast__V1__ShardStatus *shard = base_alloc(sizeof(*shard));
        steadfast__v1__shard_status__init(shard);
        shard->server = (char *)view->shards[i].server;
        shard->shard = view->shards[i].shard;
        shard->applied = view->shards[i].applied;
        shard->bytes = view->shards[i].bytes;
        status->shards[i] = shard;
    }
}

static void fill_evals(const struct core_job_view *view, Steadfast__V1__JobStatus *status)
{
    status->n_evaluations = view->eval_count;
    status->evaluations = base_alloc((view->eval_count + 1) * sizeof(*status->evaluations));
    for (size_t i = 0; i < view->eval_count; i++) {
        Steadfast__V1__Evaluation *eval = base_alloc(sizeof(*eval));
        steadfast__v1__evaluation__init(eval);
        eval->epoch = view->evals[i].epoch;
        eval->step = view->evals[i].step;
        eval->loss = view->evals[i].loss;
        eval->accuracy = view->evals[i].accuracy;
        status->evaluations[i] = eval;
    }
}

static void fill_ckpts(const struct core_job_view *view, Steadfast__V1__JobStatus *status)
{
    status->n_checkpoints = view->ckpt_count;
    status->checkpoints = base_alloc((view->ckpt_count + 1) * sizeof(*status->checkpoints));
    for (size_t i = 0; i < view->ckpt_count; i++) {
        Steadfast__V1__CheckpointInfo *info = base_alloc(sizeof(*info));
        steadfast__v1__checkpoint_info__init(info);
        info->number = view->ckpts[i].number;
        info->step = view->ckpts[i].step;
        info->path = view->ckpts[i].path;
        status->checkpoints[i] = info;
    }
}

static void fill_abandoned(const struct core_job_view *view, Steadfast__V1__JobStatus *status)
{
    status->n_abandoned_steps = view->abandoned_count;
    status->abandoned_steps =
        base_alloc((view->abandoned_count + 1) * sizeof(*status->abandoned_steps));
    for (size_t i = 0; i < view->abandoned_count; i++) {
        Steadfast__V1__AbandonedStep *step = base_alloc(sizeof(*step));
        steadfast__v1__abandoned_step__init(step);
        step->step = view->abandoned_steps[i].step;
        step->attempts = view->abandoned_steps[i].attempts;
        step->code = (char *)err_name(view->abandoned_steps[i].code);
        step->text = view->abandoned_steps[i].text;
        status->abandoned_steps[i] = step;
    }
}

static void fill_phases(const struct core_job_view *view, Steadfast__V1__JobStatus *status)
{
    Steadfast__V1__StepPhases *phases = base_alloc(sizeof(*phases));
    steadfast__v1__step_phases__init(phases);
    phases->steps = view->phase_steps;
    phases->compute_seconds = (double)view->phases.compute_us / 1e6;
    phases->serialise_seconds = (double)view->phases.serialise_us / 1e6;
    phases->copy_seconds = (double)view->phases.copy_us / 1e6;
    phases->wait_seconds = (double)view->phases.wait_us / 1e6;
    phases->apply_seconds = (double)view->phases.apply_us / 1e6;
    status->phases = phases;
}

void coord_status_fill(const struct core_job_view *view, Steadfast__V1__JobStatus *status)
{
    steadfast__v1__job_status__init(status);
    status->job = view->job;
    status->name = (char *)view->name;
    status->state = (Steadfast__V1__JobState)view->state;
    status->phase = (char *)view->phase;
    status->reason = (char *)view->reason;
    status->steps_total = view->steps_total;
    status->issued = view->issued;
    status->acknowledged = view->acknowledged;
    status->reissued = view->reissued;
    status->abandoned = view->abandoned;
    status->duplicates_refused = view->duplicates_refused;
    status->lost = view->lost;
    status->repeated = view->repeated;
    status->steps_per_second = view->steps_per_second;
    status->images_per_second = view->images_per_second;
    status->loss = view->loss;
    status->epoch = view->epoch;
    status->epochs = view->spec->epochs;
    status->generation = view->generation;
    status->workers = view->worker_count;
    status->elapsed_seconds = view->elapsed_s;
    status->accounting_final = view->is_accounting_final;
    status->staleness = view->staleness;
    status->submitted_ms = view->submitted_ms;
    fill_phases(view, status);
    if (view->steps_per_second > 0 && view->state == CORE_JOB_RUNNING)
        status->eta_seconds = (double)(view->steps_total - view->acknowledged - view->abandoned) /
                              view->steps_per_second;
    fill_shards(view, status);
    fill_evals(view, status);
    fill_ckpts(view, status);
    fill_abandoned(view, status);
    status->n_notices = view->notice_count;
    status->notices = (char **)view->notices;
}

void coord_status_done(Steadfast__V1__JobStatus *status)
{
    for (size_t i = 0; i < status->n_shards; i++)
        free(status->shards[i]);
    for (size_t i = 0; i < status->n_evaluations; i++)
        free(status->evaluations[i]);
    for (size_t i = 0; i < status->n_checkpoints; i++)
        free(status->checkpoints[i]);
    for (size_t i = 0; i < status->n_abandoned_steps; i++)
        free(status->abandoned_steps[i]);
    free(status->shards);
    free(status->evaluations);
    free(status->checkpoints);
    free(status->abandoned_steps);
    free(status->phases);
}

void coord_status_reply(struct coord *coord, struct rpc_call *call, uint64_t job)
{
    struct core_job_view view;
    if (!core_job_view(coord->core, clock_now_ns(), job, &view)) {
        rpc_fail(call, ERR_NOT_FOUND, "no such job");
        return;
    }
    Steadfast__V1__JobStatus status;
    coord_status_fill(&view, &status);
    struct rpc_out out = {.message = &status.base};
    rpc_reply(call, &out);
    coord_status_done(&status);
}
