/* SPDX-License-Identifier: Apache-2.0 */
/* reply: each result is a box of the public struct, its arrays and the message that its strings
 * point into. */
#include "client/reply.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static_assert((int)STEADFAST_JOB_SUCCEEDED == (int)STEADFAST__V1__JOB_STATE__JOB_SUCCEEDED,
              "states");
static_assert((int)STEADFAST_JOB_CANCELLED == (int)STEADFAST__V1__JOB_STATE__JOB_CANCELLED,
              "states");

struct job_box {
    struct steadfast_job job; /* its arrays are owned here, its strings by message */
    Steadfast__V1__JobStatus *message;
};

struct list_box {
    struct steadfast_job_list list;
    struct steadfast_job **jobs; /* what list.jobs points at */
};

struct plan_box {
    struct steadfast_plan plan;
    struct steadfast_slice *slices;
    const char **servers;
    Steadfast__V1__PlanReply *message;
};

struct cluster_box {
    struct steadfast_cluster cluster;
    struct steadfast_member *members;
    Steadfast__V1__ClusterStatus *message;
};

static void free_message(ProtobufCMessage *message)
{
    protobuf_c_message_free_unpacked(message, NULL);
}

/* A zeroed array; one element at least, so that NULL always means no memory. */
static void *new_array(size_t count, size_t elem_size)
{
    return calloc(count ? count : 1, elem_size);
}

/* ---- jobs --------------------------------------------------------------------------------------
 */
const char *steadfast_job_state_name(enum steadfast_job_state state)
{
    switch (state) {
    case STEADFAST_JOB_QUEUED:
        return "queued";
    case STEADFAST_JOB_RUNNING:
        return "running";
    case STEADFAST_JOB_PAUSED:
        return "paused";
    case STEADFAST_JOB_SUCCEEDED:
        return "succeeded";
    case STEADFAST_JOB_FAILED:
        return "failed";
    case STEADFAST_JOB_CANCELLED:
        return "cancelled";
    }
    return "unknown";
}

bool steadfast_job_has_ended(enum steadfast_job_state state)
{
    return state >= STEADFAST_JOB_SUCCEEDED;
}

void steadfast_job_free(struct steadfast_job *job)
{
    if (!job)
        return;
    struct job_box *box = CONTAINER_OF(job, struct job_box, job);
    free((void *)job->shards);
    free((void *)job->evaluations);
    free((void *)job->checkpoints);
    free((void *)job->abandoned_steps);
    free_message((ProtobufCMessage *)box->message);
    free(box);
}

/* The wire says 0 for what is not known. */
static void copy_times(const Steadfast__V1__JobStatus *m, struct steadfast_job *job)
{
    bool has_ended = steadfast_job_has_ended(job->state);
    bool is_of_past_start = has_ended && m->elapsed_seconds <= 0;
    job->steps_per_second = is_of_past_start ? NAN : m->steps_per_second;
    job->images_per_second = is_of_past_start ? NAN : m->images_per_second;
    job->elapsed_seconds = is_of_past_start ? NAN : m->elapsed_seconds;
    bool is_training = job->state == STEADFAST_JOB_RUNNING && strcmp(job->phase, "training") == 0;
    bool has_eta = is_training && m->acknowledged > 0 && m->steps_per_second > 0;
    job->eta_seconds = has_eta ? m->eta_seconds : NAN;
}

static void copy_phases(const Steadfast__V1__StepPhases *m, struct steadfast_job *job)
{
    double steps = m ? (double)m->steps : 0.0;
    job->phase_steps = m ? m->steps : 0;
    job->compute_seconds = steps > 0 ? m->compute_seconds / steps : (double)NAN;
    job->serialise_seconds = steps > 0 ? m->serialise_seconds / steps : (double)NAN;
    job->copy_seconds = steps > 0 ? m->copy_seconds / steps : (double)NAN;
    job->wait_seconds = steps > 0 ? m->wait_seconds / steps : (double)NAN;
    job->apply_seconds = steps > 0 ? m->apply_seconds / steps : (double)NAN;
}

static void copy_scalars(const Steadfast__V1__JobStatus *m, struct steadfast_job *job)
{
    job->id = m->job;
    job->name = m->name;
    job->state = (enum steadfast_job_state)m->state;
    job->phase = m->phase;
    job->reason = m->reason;
    job->steps_total = m->steps_total;
    job->issued = m->issued;
    job->acknowledged = m->acknowledged;
    job->reissued = m->reissued;
    job->abandoned = m->abandoned;
    job->duplicates_refused = m->duplicates_refused;
    job->lost = m->lost;
    job->repeated = m->repeated;
    job->is_accounting_final = m->accounting_final;
    job->loss = m->loss;
    job->staleness = m->staleness;
    copy_phases(m->phases, job);
    job->epoch = m->epoch;
    job->epochs = m->epochs;
    copy_times(m, job);
    job->generation = m->generation;
    job->workers = m->workers;
    job->submitted_ms = m->submitted_ms;
    job->notices = (const char *const *)m->notices;
    job->notice_count = m->n_notices;
}

static bool copy_arrays(const Steadfast__V1__JobStatus *m, struct steadfast_job *job)
{
    struct steadfast_shard *shards = new_array(m->n_shards, sizeof(*shards));
    struct steadfast_evaluation *evaluations = new_array(m->n_evaluations, sizeof(*evaluations));
    struct steadfast_checkpoint *checkpoints = new_array(m->n_checkpoints, sizeof(*checkpoints));
    struct steadfast_abandoned *abandoned = new_array(m->n_abandoned_steps, sizeof(*abandoned));
    job->shards = shards;
    job->evaluations = evaluations;
    job->checkpoints = checkpoints;
    job->abandoned_steps = abandoned;
    if (!shards || !evaluations || !checkpoints || !abandoned)
        return false;
    for (size_t i = 0; i < m->n_shards; i++) {
        const Steadfast__V1__ShardStatus *from = m->shards[i];
        shards[i] = (struct steadfast_shard){from->server, from->shard, from->applied, from->bytes};
    }
    for (size_t i = 0; i < m->n_evaluations; i++) {
        const Steadfast__V1__Evaluation *from = m->evaluations[i];
        evaluations[i] =
            (struct steadfast_evaluation){from->epoch, from->step, from->loss, from->accuracy};
    }
    for (size_t i = 0; i < m->n_checkpoints; i++) {
        const Steadfast__V1__CheckpointInfo *from = m->checkpoints[i];
        checkpoints[i] = (struct steadfast_checkpoint){from->number, from->step, from->path};
    }
    for (size_t i = 0; i < m->n_abandoned_steps; i++) {
        const Steadfast__V1__AbandonedStep *from = m->abandoned_steps[i];
        abandoned[i] =
            (struct steadfast_abandoned){from->step, from->attempts, from->code, from->text};
    }
    job->shard_count = m->n_shards;
    job->evaluation_count = m->n_evaluations;
    job->checkpoint_count = m->n_checkpoints;
    job->abandoned_step_count = m->n_abandoned_steps;
    return true;
}

enum err_code reply_to_job(Steadfast__V1__JobStatus *take_message, struct steadfast_job **ret_job,
                           struct err *err)
{
    int state = (int)take_message->state;
    if (state < STEADFAST_JOB_QUEUED || state > STEADFAST_JOB_CANCELLED) {
        free_message((ProtobufCMessage *)take_message);
        return err_set(err, ERR_CORRUPT, "job state %d: want 0 to %d; is the coordinator newer?",
                       state, STEADFAST_JOB_CANCELLED);
    }
    struct job_box *box = calloc(1, sizeof(*box));
    if (!box) {
        free_message((ProtobufCMessage *)take_message);
        return err_set(err, ERR_NO_MEMORY, "no memory for a job status");
    }
    box->message = take_message;
    copy_scalars(take_message, &box->job);
    if (!copy_arrays(take_message, &box->job)) {
        steadfast_job_free(&box->job);
        return err_set(err, ERR_NO_MEMORY, "no memory for a job status");
    }
    *ret_job = &box->job;
    return ERR_OK;
}

void steadfast_job_list_free(struct steadfast_job_list *list)
{
    if (!list)
        return;
    struct list_box *box = CONTAINER_OF(list, struct list_box, list);
    for (size_t i = 0; i < list->count; i++)
        steadfast_job_free(box->jobs[i]);
    free(box->jobs);
    free(box);
}

enum err_code reply_to_job_list(Steadfast__V1__JobList *take_message,
                                struct steadfast_job_list **ret_list, struct err *err)
{
    struct list_box *box = calloc(1, sizeof(*box));
    struct steadfast_job **jobs = new_array(take_message->n_jobs, sizeof(struct steadfast_job *));
    if (!box || !jobs) {
        free(box);
        free(jobs);
        free_message((ProtobufCMessage *)take_message);
        return err_set(err, ERR_NO_MEMORY, "no memory for a list of jobs");
    }
    box->jobs = jobs;
    box->list.jobs = jobs;
    enum err_code code = ERR_OK;
    for (size_t i = 0; i < take_message->n_jobs && code == ERR_OK; i++) {
        /* The job's message leaves the list's, which is freed below without it. */
        code = reply_to_job(TAKE(take_message->jobs[i]), &jobs[i], err);
        if (code == ERR_OK)
            box->list.count++;
    }
    free_message((ProtobufCMessage *)take_message);
    if (code != ERR_OK) {
        steadfast_job_list_free(&box->list);
        return code;
    }
    *ret_list = &box->list;
    return ERR_OK;
}

/* ---- plan --------------------------------------------------------------------------------------
 */
void steadfast_plan_free(struct steadfast_plan *plan)
{
    if (!plan)
        return;
    struct plan_box *box = CONTAINER_OF(plan, struct plan_box, plan);
    free(box->slices);
    free(box->servers);
    free_message((ProtobufCMessage *)box->message);
    free(box);
}

static enum err_code fill_plan(const Steadfast__V1__PlanReply *m, struct plan_box *box,
                               struct err *err)
{
    if (!m->plan)
        return err_set(err, ERR_CORRUPT, "the coordinator's answer has no plan");
    const Steadfast__V1__Plan *plan = m->plan;
    box->slices = new_array(plan->n_slices, sizeof(*box->slices));
    box->servers = new_array(plan->n_servers, sizeof(*box->servers));
    if (!box->slices || !box->servers)
        return err_set(err, ERR_NO_MEMORY, "no memory for a plan");
    for (size_t i = 0; i < plan->n_servers; i++)
        box->servers[i] = plan->servers[i]->name;
    for (size_t i = 0; i < plan->n_slices; i++) {
        const Steadfast__V1__Slice *from = plan->slices[i];
        if (from->server >= plan->n_servers)
            return err_set(err, ERR_CORRUPT, "slice %zu on server %u: want less than %zu", i,
                           from->server, plan->n_servers);
        box->slices[i] = (struct steadfast_slice){
            .variable = from->name,
            .shape = from->shape,
            .rank = from->n_shape,
            .row_offset = from->row_offset,
            .rows = from->rows,
            .server = box->servers[from->server],
            .shard = from->shard,
            .is_trainable = from->trainable,
        };
    }
    box->plan = (struct steadfast_plan){
        .slices = box->slices,
        .slice_count = plan->n_slices,
        .servers = box->servers,
        .server_count = plan->n_servers,
        .shards_per_server = m->shards_per_server,
        .shard_bytes = m->shard_bytes,
        .shard_bytes_count = m->n_shard_bytes,
        .parameters = m->parameters,
        .steps_per_epoch = m->steps_per_epoch,
        .steps_total = m->steps_total,
    };
    return ERR_OK;
}

enum err_code reply_to_plan(Steadfast__V1__PlanReply *take_message,
                            struct steadfast_plan **ret_plan, struct err *err)
{
    struct plan_box *box = calloc(1, sizeof(*box));
    if (!box) {
        free_message((ProtobufCMessage *)take_message);
        return err_set(err, ERR_NO_MEMORY, "no memory for a plan");
    }
    box->message = take_message;
    enum err_code code = fill_plan(take_message, box, err);
    if (code != ERR_OK) {
        steadfast_plan_free(&box->plan);
        return code;
    }
    *ret_plan = &box->plan;
    return ERR_OK;
}

/* ---- cluster -----------------------------------------------------------------------------------
 */
void steadfast_cluster_free(struct steadfast_cluster *cluster)
{
    if (!cluster)
        return;
    struct cluster_box *box = CONTAINER_OF(cluster, struct cluster_box, cluster);
    free(box->members);
    free_message((ProtobufCMessage *)box->message);
    free(box);
}

enum err_code reply_to_cluster(Steadfast__V1__ClusterStatus *take_message,
                               struct steadfast_cluster **ret_cluster, struct err *err)
{
    struct cluster_box *box = calloc(1, sizeof(*box));
    struct steadfast_member *members = new_array(take_message->n_members, sizeof(*members));
    if (!box || !members) {
        free(box);
        free(members);
        free_message((ProtobufCMessage *)take_message);
        return err_set(err, ERR_NO_MEMORY, "no memory for the members of the cluster");
    }
    for (size_t i = 0; i < take_message->n_members; i++) {
        const Steadfast__V1__MemberStatus *from = take_message->members[i];
        members[i] = (struct steadfast_member){
            .name = from->name,
            .role = from->role,
            .address = from->address,
            .state = from->state,
            .incarnation = from->incarnation,
            .session = from->session,
            .devices = (const char *const *)from->devices,
            .device_count = from->n_devices,
            .memory_bytes = from->memory_bytes,
            .held_bytes = from->held_bytes,
            .pid = from->pid,
            .in_flight = from->in_flight,
            .steps_done = from->steps_done,
            .seconds_silent = from->seconds_silent,
        };
    }
    box->message = take_message;
    box->members = members;
    box->cluster = (struct steadfast_cluster){
        .members = members,
        .member_count = take_message->n_members,
        .missing = (const char *const *)take_message->missing,
        .missing_count = take_message->n_missing,
        .start = take_message->start,
        .version = take_message->version,
    };
    *ret_cluster = &box->cluster;
    return ERR_OK;
}
