/* SPDX-License-Identifier: Apache-2.0 */
/* open_job: opening on an input thread, resources on the loop, and the careful end. */
#include "workerd/step/open_job.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/rpc/rpc.h"
#include "models/zoo/model.h"
#include "workerd/exchange/pull.h"
#include "workerd/exchange/push.h"
#include "workerd/input/input.h"
#include "workerd/input/stage.h"

enum { STREAM_TRAIN, STREAM_EVAL };

/* ---- input thread ------------------------------------------------------------------------------
 */
static enum err_code open_data(struct open_job *job, struct err *err)
{
    const struct job_spec *spec = job->spec;
    enum err_code code = input_open(&spec->dataset, spec->model.num_classes, spec->seed,
                                    STREAM_TRAIN, &job->train, err);
    if (code == ERR_OK && spec->has_eval)
        code = input_open(&spec->eval_dataset, spec->model.num_classes, spec->seed, STREAM_EVAL,
                          &job->eval, err);
    if (code != ERR_OK)
        return code;
    const struct input_shape *train = input_shape_of(job->train);
    job->max_batch = spec->dataset.batch_size;
    if (job->eval) {
        const struct input_shape *eval = input_shape_of(job->eval);
        if (eval->channels != train->channels || eval->height != train->height ||
            eval->width != train->width)
            return err_set(err, ERR_INVALID,
                           "eval_dataset: examples of %ux%ux%u, want %ux%ux%u as in dataset "
                           "(channels, height, width)",
                           eval->channels, eval->height, eval->width, train->channels,
                           train->height, train->width);
        job->max_batch = MAX(job->max_batch, spec->eval_dataset.batch_size);
    }
    data_order_init(&job->order, spec->seed, train->records, spec->dataset.batch_size,
                    spec->dataset.shuffle_buffer);
    return ERR_OK;
}

static enum err_code map_slices(struct open_job *job, struct err *err)
{
    size_t count = graph_var_count(job->graph);
    AUTO_MEM struct slice_var *vars = base_alloc(count * sizeof(*vars));
    job->is_trainable = base_alloc(count * sizeof(*job->is_trainable));
    for (size_t v = 0; v < count; v++) {
        const struct model_var *var = graph_var(job->graph, v);
        vars[v] = (struct slice_var){.name = var->name, .rank = var->rank, .shape = var->shape};
        job->is_trainable[v] = var->is_trainable;
    }
    return slice_map_new(job->plan, vars, count, &job->map, err);
}

static enum err_code open_parts(struct open_job *job, struct err *err)
{
    enum err_code code = job_spec_parse(job->spec_json, strlen(job->spec_json), &job->spec, err);
    if (code == ERR_OK)
        code = open_data(job, err);
    if (code != ERR_OK)
        return code;
    const struct input_shape *shape = input_shape_of(job->train);
    code = model_build(&job->spec->model, shape->channels, shape->height, shape->width, &job->graph,
                       err);
    if (code == ERR_OK)
        code = map_slices(job, err);
    return code;
}

static void run_open(struct input_task *task)
{
    struct open_job *job = CONTAINER_OF(task, struct open_job, open_task);
    job->err.code = open_parts(job, &job->err);
}

static void run_load(struct input_task *task)
{
    struct open_job *job = CONTAINER_OF(task, struct open_job, open_task);
    /* A failure stays in the data set and is told to each step that asks for a batch. */
    if (input_load(job->train, NULL) == ERR_OK && job->eval &&
        input_load(job->eval, NULL) != ERR_OK)
        log_debug("job.eval_data", "job=%" PRIu64 " the evaluation data cannot be loaded",
                  job->job);
}

/* ---- loop thread -------------------------------------------------------------------------------
 */
static void unborrowed(void *arg)
{
    struct open_job *job = arg;
    if (job->is_closing)
        job->env->on_unborrowed(job, job->env->arg);
    else
        job->env->on_change(job->env->arg);
}

static enum err_code make_resources(struct open_job *job, struct err *err)
{
    const struct job_env *env = job->env;
    enum err_code code = ps_links_new(env->rpc, job->map, &job->links, err);
    if (code != ERR_OK)
        return code;
    job->exchange_env = (struct exchange_env){
        .loop = env->loop, .inbox = env->inbox, .map = job->map, .links = job->links};
    if (job->spec->dataset.source == DATA_NONE)
        job->no_labels = base_alloc(job->max_batch * sizeof(*job->no_labels));
    job->stage = stage_new(env->pool, JOB_STAGED, job->max_batch,
                           input_shape_of(job->train)->example_elements, unborrowed, job);
    for (size_t i = 0; i < JOB_COPIES && job->map->shard_count > 0; i++) {
        job->copies[i].job = job;
        job->pushes[i].job = job;
        code = pull_new(&job->exchange_env, &job->copies[i].pull, err);
        if (code == ERR_OK)
            code = push_new(&job->exchange_env, job->is_trainable, env->hook, unborrowed, job,
                            &job->pushes[i].push, err);
        if (code != ERR_OK)
            return code;
    }
    job->model.graph = job->graph;
    job->model.max_batch = job->max_batch;
    return ERR_OK;
}

static void on_loaded(struct input_task *task)
{
    struct open_job *job = CONTAINER_OF(task, struct open_job, open_task);
    job->is_task_active = false;
    unborrowed(job);
}

static void on_opened(struct input_task *task)
{
    struct open_job *job = CONTAINER_OF(task, struct open_job, open_task);
    job->is_task_active = false;
    free(TAKE(job->spec_json));
    steadfast__v1__plan__free_unpacked(TAKE(job->plan), NULL);
    if (job->err.code == ERR_OK && !job->is_closing)
        job->err.code = make_resources(job, &job->err);
    if (job->err.code != ERR_OK) {
        job->state = JOB_BROKEN;
        log_error("job.broken", "job=%" PRIu64 " name=%s code=%s err=\"%s\"", job->job, job->name,
                  err_name(job->err.code), job->err.text);
    } else if (!job->is_closing) {
        job->state = JOB_READY;
        log_info("job.open",
                 "job=%" PRIu64 " name=%s generation=%" PRIu64 " variables=%zu shards=%zu",
                 job->job, job->name, job->generation, job->map->var_count, job->map->shard_count);
        job->open_task.run = run_load; /* ahead of the first step */
        job->open_task.on_done = on_loaded;
        job->is_task_active = true;
        input_pool_submit(job->env->pool, &job->open_task);
    }
    unborrowed(job);
}

static Steadfast__V1__Plan *copy_plan(const Steadfast__V1__Plan *plan)
{
    static const Steadfast__V1__Plan empty = STEADFAST__V1__PLAN__INIT;
    plan = plan ? plan : &empty;
    size_t bytes = steadfast__v1__plan__get_packed_size(plan);
    AUTO_MEM uint8_t *packed = base_alloc(bytes);
    steadfast__v1__plan__pack(plan, packed);
    Steadfast__V1__Plan *copy = steadfast__v1__plan__unpack(NULL, bytes, packed);
    ASSERT(copy);
    return copy;
}

struct open_job *open_job_new(const struct job_env *env, const Steadfast__V1__JobOpen *message)
{
    struct open_job *job = base_alloc(sizeof(*job));
    job->job = message->job;
    job->generation = message->generation;
    job->name = base_strdup(message->name);
    job->env = env;
    job->spec_json = base_strdup(message->spec_json);
    job->plan = copy_plan(message->plan);
    job->open_task.run = run_open;
    job->open_task.on_done = on_opened;
    job->is_task_active = true;
    input_pool_submit(env->pool, &job->open_task);
    return job;
}

void open_job_close(struct open_job *job)
{
    if (job->is_closing)
        return;
    job->is_closing = true;
    log_info("job.close", "job=%" PRIu64 " name=%s generation=%" PRIu64, job->job, job->name,
             job->generation);
    struct err why;
    err_set(&why, ERR_CANCELLED, "job %" PRIu64 " was closed", job->job);
    if (job->stage)
        stage_close(job->stage, &why);
    for (size_t i = 0; i < JOB_COPIES; i++) {
        if (job->copies[i].pull)
            pull_cancel(job->copies[i].pull);
        if (job->pushes[i].push)
            push_cancel(job->pushes[i].push);
    }
    if (job->pinned.pull)
        pull_cancel(job->pinned.pull);
}

static bool is_borrowed(const struct open_job *job)
{
    if (job->step_count > 0 || job->is_task_active || (job->stage && !stage_is_idle(job->stage)))
        return true;
    for (size_t i = 0; i < JOB_COPIES; i++)
        if ((job->copies[i].pull && pull_is_active(job->copies[i].pull)) ||
            (job->pushes[i].push && !push_is_idle(job->pushes[i].push)))
            return true;
    return job->pinned.pull && pull_is_active(job->pinned.pull);
}

static void on_device_closed(struct device_request *request)
{
    struct open_job *job = CONTAINER_OF(request, struct open_job, close_request);
    job->is_device_closed = true;
    unborrowed(job);
}

bool open_job_try_free(struct open_job *job)
{
    ASSERT(job->is_closing);
    if (is_borrowed(job))
        return false;
    if (!job->is_device_closed) { /* last: no step can reach the device any more */
        if (!job->is_device_closing) {
            job->is_device_closing = true;
            job->close_request = (struct device_request){
                .op = DEVICE_CLOSE, .model = &job->model, .on_done = on_device_closed};
            device_thread_post(job->env->device, &job->close_request);
        }
        return false;
    }
    for (size_t i = 0; i < JOB_COPIES; i++) {
        pull_free(job->copies[i].pull);
        push_free(job->pushes[i].push);
    }
    pull_free(job->pinned.pull);
    stage_free(job->stage);
    ps_links_free(job->links);
    slice_map_free(job->map);
    free(job->is_trainable);
    free(job->no_labels);
    input_unref(job->train);
    input_unref(job->eval);
    graph_free(job->graph);
    job_spec_free(job->spec);
    free(job->name);
    free(job);
    return true;
}

/* ---- batches -----------------------------------------------------------------------------------
 */
enum err_code open_job_train_batch(const struct open_job *job, uint32_t epoch, uint64_t batch,
                                   uint64_t *records, uint32_t *ret_count, struct err *err)
{
    if (batch >= job->order.steps_per_epoch)
        return err_set(err, ERR_INVALID,
                       "ticket for batch %" PRIu64 ", want one of %" PRIu64 " of an epoch", batch,
                       job->order.steps_per_epoch);
    *ret_count = data_order_batch(&job->order, epoch, batch, records);
    return ERR_OK;
}

enum err_code open_job_eval_batch(const struct open_job *job, uint64_t batch, uint64_t *records,
                                  uint32_t *ret_count, struct err *err)
{
    if (!job->eval)
        return err_set(err, ERR_INVALID,
                       "ticket for an evaluation, but the job has no eval_dataset");
    uint64_t size = job->spec->eval_dataset.batch_size;
    uint64_t count = input_shape_of(job->eval)->records;
    if (batch > (count - 1) / size)
        return err_set(err, ERR_INVALID,
                       "ticket for evaluation batch %" PRIu64 ", want one of %" PRIu64, batch,
                       (count - 1) / size + 1);
    uint64_t first = batch * size;
    *ret_count = (uint32_t)MIN(size, count - first);
    for (uint32_t i = 0; i < *ret_count; i++)
        records[i] = first + i;
    return ERR_OK;
}

enum err_code open_job_have_pinned(struct open_job *job, struct err *err)
{
    return job->pinned.pull ? ERR_OK : pull_new(&job->exchange_env, &job->pinned.pull, err);
}
