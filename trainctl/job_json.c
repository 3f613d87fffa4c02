/* SPDX-License-Identifier: Apache-2.0 */
/* job_json: structs of the client library into jansson objects. */
#include "trainctl/job_json.h"

#include <math.h>
#include <stdlib.h>

/* json_pack answers NULL for a string that is not UTF-8; a peer's text must not take the whole
 * output away. */
static json_t *string(const char *text)
{
    json_t *json = json_string(text);
    return json ? json : json_string("(not UTF-8)");
}

static json_t *count(uint64_t value)
{
    return json_integer((json_int_t)value);
}

json_t *job_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* Takes a new reference; our keys are ASCII and the objects are small, so only memory can fail. */
static void set(json_t *object, const char *key, json_t *take_value)
{
    int rc = json_object_set_new(object, key, take_value);
    ASSERT(rc == 0);
}

static void append(json_t *array, json_t *take_value)
{
    int rc = json_array_append_new(array, take_value);
    ASSERT(rc == 0);
}

static json_t *strings(const char *const *texts, size_t text_count)
{
    json_t *array = json_array();
    for (size_t i = 0; i < text_count; i++)
        append(array, string(texts[i]));
    return array;
}

static json_t *steps_json(const struct steadfast_job *job)
{
    json_t *steps = json_object();
    set(steps, "total", count(job->steps_total));
    set(steps, "issued", count(job->issued));
    set(steps, "acknowledged", count(job->acknowledged));
    set(steps, "reissued", count(job->reissued));
    set(steps, "abandoned", count(job->abandoned));
    return steps;
}

static json_t *shards_json(const struct steadfast_job *job)
{
    json_t *array = json_array();
    for (size_t i = 0; i < job->shard_count; i++) {
        json_t *shard = json_object();
        set(shard, "server", string(job->shards[i].server));
        set(shard, "shard", count(job->shards[i].shard));
        set(shard, "applied", count(job->shards[i].applied));
        set(shard, "bytes", count(job->shards[i].bytes));
        append(array, shard);
    }
    return array;
}

static json_t *evaluations_json(const struct steadfast_job *job)
{
    json_t *array = json_array();
    for (size_t i = 0; i < job->evaluation_count; i++) {
        json_t *evaluation = json_object();
        set(evaluation, "epoch", count(job->evaluations[i].epoch));
        set(evaluation, "step", count(job->evaluations[i].step));
        set(evaluation, "loss", job_json_number(job->evaluations[i].loss));
        set(evaluation, "accuracy", job_json_number(job->evaluations[i].accuracy));
        append(array, evaluation);
    }
    return array;
}

static json_t *checkpoints_json(const struct steadfast_job *job)
{
    json_t *array = json_array();
    for (size_t i = 0; i < job->checkpoint_count; i++) {
        json_t *checkpoint = json_object();
        set(checkpoint, "number", count(job->checkpoints[i].number));
        set(checkpoint, "step", count(job->checkpoints[i].step));
        set(checkpoint, "path", string(job->checkpoints[i].path));
        append(array, checkpoint);
    }
    return array;
}

static json_t *abandoned_json(const struct steadfast_job *job)
{
    json_t *array = json_array();
    for (size_t i = 0; i < job->abandoned_step_count; i++) {
        json_t *step = json_object();
        set(step, "step", count(job->abandoned_steps[i].step));
        set(step, "attempts", count(job->abandoned_steps[i].attempts));
        set(step, "code", string(job->abandoned_steps[i].code));
        set(step, "text", string(job->abandoned_steps[i].text));
        append(array, step);
    }
    return array;
}

json_t *job_json(const struct steadfast_job *job)
{
    json_t *json = json_object();
    set(json, "job", count(job->id));
    set(json, "name", string(job->name));
    set(json, "state", string(steadfast_job_state_name(job->state)));
    set(json, "phase", string(job->phase));
    set(json, "reason", string(job->reason));
    set(json, "epoch", count(job->epoch));
    set(json, "epochs", count(job->epochs));
    set(json, "steps", steps_json(job));
    set(json, "duplicates_refused", count(job->duplicates_refused));
    set(json, "lost", count(job->lost));
    set(json, "repeated", count(job->repeated));
    set(json, "accounting_final", json_boolean(job->is_accounting_final));
    set(json, "shards", shards_json(job));
    set(json, "evaluations", evaluations_json(job));
    json_t *rates = json_object();
    set(rates, "steps_per_second", job_json_number(job->steps_per_second));
    set(rates, "images_per_second", job_json_number(job->images_per_second));
    set(json, "rates", rates);
    json_t *phases = json_object();
    set(phases, "steps", count(job->phase_steps));
    set(phases, "compute_seconds", job_json_number(job->compute_seconds));
    set(phases, "serialise_seconds", job_json_number(job->serialise_seconds));
    set(phases, "copy_seconds", job_json_number(job->copy_seconds));
    set(phases, "wait_seconds", job_json_number(job->wait_seconds));
    set(phases, "apply_seconds", job_json_number(job->apply_seconds));
    set(json, "phases", phases);
    set(json, "loss", job_json_number(job->loss));
    set(json, "staleness", job_json_number(job->staleness));
    set(json, "eta_seconds", job_json_number(job->eta_seconds));
    set(json, "elapsed_seconds", job_json_number(job->elapsed_seconds));
    set(json, "generation", count(job->generation));
    set(json, "workers", count(job->workers));
    set(json, "checkpoints", checkpoints_json(job));
    set(json, "abandoned_steps", abandoned_json(job));
    set(json, "notices", strings(job->notices, job->notice_count));
    set(json, "submitted_ms", count(job->submitted_ms));
    return json;
}

json_t *job_json_list(const struct steadfast_job_list *list)
{
    json_t *jobs = json_array();
    for (size_t i = 0; i < list->count; i++)
        append(jobs, job_json(list->jobs[i]));
    json_t *json = json_object();
    set(json, "jobs", jobs);
    return json;
}

json_t *job_json_plan(const struct steadfast_plan *plan)
{
    json_t *slices = json_array();
    for (size_t i = 0; i < plan->slice_count; i++) {
        const struct steadfast_slice *from = &plan->slices[i];
        json_t *shape = json_array();
        for (size_t d = 0; d < from->rank; d++)
            append(shape, count(from->shape[d]));
        json_t *slice = json_object();
        set(slice, "variable", string(from->variable));
        set(slice, "shape", shape);
        set(slice, "row_offset", count(from->row_offset));
        set(slice, "rows", count(from->rows));
        set(slice, "server", string(from->server));
        set(slice, "shard", count(from->shard));
        set(slice, "trainable", json_boolean(from->is_trainable));
        append(slices, slice);
    }
    json_t *shard_bytes = json_array();
    for (size_t i = 0; i < plan->shard_bytes_count; i++)
        append(shard_bytes, count(plan->shard_bytes[i]));
    json_t *json = json_object();
    set(json, "parameters", count(plan->parameters));
    set(json, "steps_per_epoch", count(plan->steps_per_epoch));
    set(json, "steps_total", count(plan->steps_total));
    set(json, "servers", strings(plan->servers, plan->server_count));
    set(json, "shards_per_server", count(plan->shards_per_server));
    set(json, "shard_bytes", shard_bytes);
    set(json, "slices", slices);
    return json;
}

json_t *job_json_cluster(const struct steadfast_cluster *cluster)
{
    json_t *members = json_array();
    for (size_t i = 0; i < cluster->member_count; i++) {
        const struct steadfast_member *from = &cluster->members[i];
        json_t *member = json_object();
        set(member, "name", string(from->name));
        set(member, "role", string(from->role));
        set(member, "address", string(from->address));
        set(member, "state", string(from->state));
        set(member, "incarnation", count(from->incarnation));
        set(member, "session", count(from->session));
        set(member, "devices", strings(from->devices, from->device_count));
        set(member, "memory_bytes", count(from->memory_bytes));
        set(member, "held_bytes", count(from->held_bytes));
        set(member, "pid", count(from->pid));
        set(member, "in_flight", count(from->in_flight));
        set(member, "steps_done", count(from->steps_done));
        set(member, "seconds_silent", job_json_number(from->seconds_silent));
        append(members, member);
    }
    json_t *json = json_object();
    set(json, "members", members);
    set(json, "missing", strings(cluster->missing, cluster->missing_count));
    set(json, "start", count(cluster->start));
    set(json, "version", string(cluster->version));
    return json;
}

void job_json_print(json_t *take_json, bool is_line, FILE *out)
{
    char *text =
        json_dumps(take_json, (is_line ? JSON_COMPACT : JSON_INDENT(2)) | JSON_REAL_PRECISION(12));
    ASSERT(text);
    fprintf(out, "%s\n", text);
    fflush(out);
    free(text);
    json_decref(take_json);
}
