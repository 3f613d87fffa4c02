/* SPDX-License-Identifier: Apache-2.0 */
/* core_jobs: the list of jobs; what each one is, did and has shown. Who moves a job from phase to
 * phase is core_job.c. */
#include <stdlib.h>
#include <string.h>

#include "coordinatord/core/core_base_int.h"

struct job *core_job_of(const struct core *core, uint64_t number)
{
    size_t low = 0;
    size_t high = core->job_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (core->jobs[mid]->number < number)
            low = mid + 1;
        else
            high = mid;
    }
    return low < core->job_count && core->jobs[low]->number == number ? core->jobs[low] : NULL;
}

bool core_job_is_active(const struct job *job)
{
    return job->state == CORE_JOB_QUEUED || job->state == CORE_JOB_RUNNING ||
           job->state == CORE_JOB_PAUSED;
}

bool core_job_is_runnable(const struct core *core, const struct job *job)
{
    return job->state == CORE_JOB_RUNNING &&
           (job->phase == PHASE_TRAINING || job->phase == PHASE_FINISHING) &&
           core->now_ns >= job->hold_until_ns && !job->doom.is_due;
}

const char *core_phase_name(enum phase phase)
{
    switch (phase) {
    case PHASE_QUEUED:
        return "queued";
    case PHASE_LOOKING:
        return "looking";
    case PHASE_PLANNING:
        return "planning";
    case PHASE_PLACING:
        return "placing";
    case PHASE_TRAINING:
        return "training";
    case PHASE_FINISHING:
        return "finishing";
    case PHASE_RECOVERING:
        return "recovering";
    case PHASE_WAITING:
        return "waiting";
    case PHASE_ENDED:
        return "ended";
    }
    return "unknown";
}

/* ---- life ------------------------------------------------------------------------------------ */

static void init_order(struct job *job)
{
    const struct job_spec *spec = job->spec;
    if (spec->dataset.source == DATA_NONE) {
        job->records = spec->max_steps;
        data_order_init(&job->order, spec->seed, spec->max_steps, 1, 0);
    } else {
        data_order_init(&job->order, spec->seed, job->records, spec->dataset.batch_size,
                        spec->dataset.shuffle_buffer);
    }
    job->steps_per_epoch = job->order.steps_per_epoch;
    job->steps_total = job->steps_per_epoch * spec->epochs;
    if (spec->max_steps)
        job->steps_total = MIN(job->steps_total, spec->max_steps);
}

struct job *core_job_new(struct core *core, uint64_t number, const char *name,
                         struct job_spec *take_spec, const char *spec_json, uint64_t records,
                         uint64_t eval_records, bool is_resume, uint64_t wall_ms)
{
    struct job *job = base_alloc(sizeof(*job));
    job->number = number;
    job->name = base_strdup(name);
    job->spec = take_spec;
    job->spec_json = base_strdup(spec_json);
    job->records = MAX(records, (uint64_t)1);
    job->eval_records = eval_records;
    job->is_resume = is_resume;
    job->submitted_ms = wall_ms;
    job->wants_servers = strcmp(take_spec->model.name, "noop") != 0;
    job->reason = base_strdup("");
    job->ckpt.published_step = UINT64_MAX;
    map_init(&job->steps.troubles);
    job->rule = rule_of(take_spec->consistency);
    init_order(job);
    core->jobs = base_realloc(core->jobs, (core->job_count + 1) * sizeof(struct job *));
    core->jobs[core->job_count++] = job;
    core->live = base_realloc(core->live, (core->live_count + 1) * sizeof(struct job *));
    core->live[core->live_count++] = job;
    return job;
}

void core_job_leave_live(struct core *core, const struct job *job)
{
    size_t at = 0;
    while (core->live[at] != job)
        at++;
    memmove(core->live + at, core->live + at + 1, (--core->live_count - at) * sizeof(struct job *));
}

void core_job_forget_servers(struct job *job)
{
    for (size_t i = 0; i < job->place.server_count; i++) {
        free(job->place.servers[i].name);
        free(job->place.servers[i].address);
    }
    free(job->place.servers);
    job->place.servers = NULL;
    job->place.server_count = 0;
    for (size_t i = 0; i < job->accounts.shard_count; i++)
        job->accounts.final_duplicates += job->accounts.shards[i].duplicates;
    job->accounts.shard_count = 0;
}

static void forget_troubles(struct job *job)
{
    void *trouble;
    for (size_t at = 0; (trouble = map_next(&job->steps.troubles, &at));)
        free(trouble);
    map_done(&job->steps.troubles);
    map_init(&job->steps.troubles);
}

void core_suspicion_clear(struct suspicion *suspicion)
{
    ranges_clear(&suspicion->seen);
    ranges_clear(&suspicion->suspects);
}

static void suspicion_done(struct suspicion *suspicion)
{
    ranges_done(&suspicion->seen);
    ranges_done(&suspicion->suspects);
}

/* Steps, evaluations, abandoned: as if the job had not begun. Checkpoints stay. */
void core_job_forget_progress(struct job *job)
{
    ranges_clear(&job->steps.acked);
    ranges_clear(&job->steps.finished);
    ranges_clear(&job->steps.settled);
    ranges_clear(&job->steps.abandoned);
    ranges_clear(&job->steps.issued);
    ranges_clear(&job->steps.again);
    ranges_clear(&job->steps.on_trial);
    job->verdict.answers_left = 0;
    core_suspicion_clear(&job->steps.suspicion);
    forget_troubles(job);
    job->steps.acked_count = 0;
    job->past.eval_count = 0;
    job->past.evaluated_epochs = 0;
    job->steps.pruned = 0;
    job->steps.lease_count = 0;
    for (size_t i = 0; i < job->past.abandoned_count; i++)
        free(job->past.abandoned_list[i].text);
    job->past.abandoned_count = 0;
}

void core_job_free(struct job *job)
{
    if (!job)
        return;
    core_job_forget_servers(job);
    core_job_forget_progress(job);
    map_done(&job->steps.troubles);
    struct ranges *sets[] = {&job->steps.acked,     &job->steps.finished, &job->steps.settled,
                             &job->steps.abandoned, &job->steps.issued,   &job->steps.again,
                             &job->eval.again,      &job->eval.done,      &job->ckpt.acked,
                             &job->audit.acked,     &job->steps.on_trial, &job->steps.left,
                             &job->verdict.asked,   &job->verdict.all,    &job->verdict.some};
    for (size_t i = 0; i < ARRAY_SIZE(sets); i++)
        ranges_done(sets[i]);
    suspicion_done(&job->steps.suspicion);
    suspicion_done(&job->eval.suspicion);
    for (size_t i = 0; i < job->past.ckpt_count; i++)
        free(job->past.ckpts[i].path);
    for (size_t i = 0; i < job->past.notice_count; i++)
        free(job->past.notices[i]);
    free(job->past.ckpts);
    free(job->past.evals);
    free(job->past.abandoned_list);
    free(job->accounts.shards);
    free(job->steps.leases);
    free(job->ckpt.requests);
    free(job->place.restore_directory);
    free(job->doom.reason);
    free(job->reason);
    free(job->name);
    free(job->spec_json);
    job_spec_free(job->spec);
    free(job);
}

/* What the job's rule is asked with. */
struct rule_steps core_job_rule_steps(const struct job *job)
{
    return (struct rule_steps){&job->steps.issued, &job->steps.finished, job->order.window_batches};
}

/* ---- past ------------------------------------------------------------------------------------ */

void core_job_add_eval(struct job *job, const struct core_eval *eval)
{
    job->past.evals =
        base_realloc(job->past.evals, (job->past.eval_count + 1) * sizeof(*job->past.evals));
    job->past.evals[job->past.eval_count++] = *eval;
    job->past.evaluated_epochs = MAX(job->past.evaluated_epochs, (uint64_t)eval->epoch);
}

void core_job_add_ckpt(struct job *job, uint64_t number, uint64_t step, const char *path)
{
    job->past.ckpts =
        base_realloc(job->past.ckpts, (job->past.ckpt_count + 1) * sizeof(*job->past.ckpts));
    job->past.ckpts[job->past.ckpt_count++] = (struct core_ckpt){number, step, base_strdup(path)};
    uint32_t keep = job->spec->checkpoint.max_to_keep;
    while (keep && job->past.ckpt_count > keep) { /* the sweep in the directory keeps as many */
        free(job->past.ckpts[0].path);
        memmove(job->past.ckpts, job->past.ckpts + 1,
                --job->past.ckpt_count * sizeof(*job->past.ckpts));
    }
    job->ckpt.last_number = MAX(job->ckpt.last_number, number);
}

void core_job_add_abandoned(struct job *job, uint64_t step, uint32_t attempts, enum err_code code,
                            const char *text)
{
    job->past.abandoned_list =
        base_realloc(job->past.abandoned_list,
                     (job->past.abandoned_count + 1) * sizeof(*job->past.abandoned_list));
    job->past.abandoned_list[job->past.abandoned_count++] =
        (struct core_abandoned){step, attempts, code, base_strdup(text ? text : "")};
    ranges_add(&job->steps.abandoned, step);
    ranges_add(&job->steps.finished, step);
    ranges_add(&job->steps.settled, step);
}

size_t core_job_holders(const struct job *job)
{
    size_t count = 0;
    for (size_t i = 0; i < job->place.server_count; i++)
        count += job->place.servers[i].has_slices;
    return count;
}

/* The checkpoints that are this job's past: with resume whatever the directory holds, else what it
 * wrote itself. UINT64_MAX: none. */
uint64_t core_job_first_ckpt(const struct job *job)
{
    return job->is_resume ? 0 : job->past.ckpt_count ? job->past.ckpts[0].number : UINT64_MAX;
}

/* ---- state and phase ------------------------------------------------------------------------- */

void core_job_set_state(struct core *core, struct job *job, enum core_job_state state,
                        const char *reason)
{
    bool is_change = job->state != state;
    if (!is_change && strcmp(job->reason, reason) == 0)
        return;
    char *copy = base_strdup(reason);
    free(job->reason);
    job->reason = copy;
    job->state = state;
    if (is_change) {
        uint64_t now_ms = core_wall_ms(core, core->now_ns);
        if (state == CORE_JOB_RUNNING && job->began_ms == 0)
            job->began_ms = now_ms;
        job->ended_ms = now_ms; /* so far */
        struct core_record record = {.kind = CORE_REC_STATE,
                                     .job = job->number,
                                     .number = (uint64_t)state,
                                     .number2 = job->began_ms,
                                     .wall_ms = now_ms,
                                     .text = reason};
        core_record(core, &record);
    }
    core_act_add(core, CORE_ACT_CHANGED)->job = job->number;
}

void core_job_set_phase(struct core *core, struct job *job, enum phase phase)
{
    job->phase = phase;
    job->phase_ns = core->now_ns;
    job->progress_ns = core->now_ns;
    job->stall_ns = core->now_ns + CORE_STALL_NS;
    core_arm(core, job->stall_ns);
    core_act_add(core, CORE_ACT_CHANGED)->job = job->number;
}

void core_job_doom(struct core *core, struct job *job, enum err_code code, const char *reason)
{
    if (job->doom.is_due || !core_job_is_active(job))
        return;
    job->doom = (struct doom){.is_due = true, .code = code, .reason = base_strdup(reason)};
    core->dooms_due++;
}
