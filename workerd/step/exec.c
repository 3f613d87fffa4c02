/* SPDX-License-Identifier: Apache-2.0 */
/* exec: a graph's training and evaluation programs on one device, one per batch size, over one
 * arena.
 *
 * A program is compiled the first time its batch size is seen. A few are kept, the least recently
 * used goes first. */
#include "workerd/step/exec.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/program/device_table.h"
#include "kernels/program/program.h"

/* Two sizes of training batch and two of evaluation chunk are usual: full ones and the rest. */
#define PROGRAM_MAX 8
/* Examples evaluated at a time: a large evaluation batch would need many times the memory of a
 * training step. */
#define EVAL_CHUNK 128

struct exec_program {
    struct program *program; /* NULL: free */
    bool is_train;
    uint64_t used_at; /* exec's count of runs */
};

struct exec {
    const struct graph *graph;
    struct device *device;
    uint32_t max_batch;
    uint32_t class_count; /* 0: the graph has no loss */
    struct exec_program programs[PROGRAM_MAX];
    uint64_t run_count;
    void *arena;
    size_t arena_bytes;
    size_t *train_outputs; /* the loss, then the gradients */
    size_t train_output_count;
    const void **inputs; /* by tensor */
    void **outputs;      /* by tensor */
    size_t *grad_vars;   /* by tensor: the variable that it is the gradient of */
    float *log_prob;     /* EVAL_CHUNK rows */
    void (*on_grad)(size_t var_index, void *arg);
    void *on_grad_arg;
};

void exec_free(struct exec *exec)
{
    if (!exec)
        return;
    for (size_t i = 0; i < PROGRAM_MAX; i++)
        program_free(exec->programs[i].program);
    if (exec->device)
        exec->device->ops->buf_free(exec->device, exec->arena, exec->arena_bytes);
    device_close(exec->device);
    free(exec->train_outputs);
    free(exec->inputs);
    free(exec->outputs);
    free(exec->grad_vars);
    free(exec->log_prob);
    free(exec);
}

enum err_code exec_new(const struct graph *graph, const struct exec_options *options,
                       struct exec **ret_exec, struct err *err)
{
    struct err local;
    err = err ? err : &local;
    if (options->max_batch == 0)
        return err_set(err, ERR_INVALID, "max_batch: 0: want 1 or more");
    AUTO(exec) exec = base_alloc(sizeof(*exec));
    exec->graph = graph;
    exec->max_batch = options->max_batch;
    struct device_options device = {.threads = options->threads,
                                    .fake_script = options->fake_script};
    if (device_open(options->device, &device, &exec->device, err))
        return err->code;
    exec->inputs = base_alloc((graph->tensor_count + 1) * sizeof(*exec->inputs));
    exec->outputs = base_alloc((graph->tensor_count + 1) * sizeof(*exec->outputs));
    exec->grad_vars = base_alloc((graph->tensor_count + 1) * sizeof(*exec->grad_vars));
    for (size_t t = 0; t < graph->tensor_count; t++)
        exec->grad_vars[t] = GRAPH_NONE;
    exec->train_outputs = base_alloc((graph->var_count + 1) * sizeof(*exec->train_outputs));
    if (graph->loss != GRAPH_NONE) {
        exec->class_count = (uint32_t)graph->tensors[graph->log_prob].shape.dims[1];
        exec->log_prob = calloc((size_t)EVAL_CHUNK * exec->class_count, sizeof(*exec->log_prob));
        if (!exec->log_prob)
            return err_set(err, ERR_NO_MEMORY, "%d rows of %u log probabilities", EVAL_CHUNK,
                           exec->class_count);
        exec->train_outputs[exec->train_output_count++] = graph->loss;
    }
    for (size_t v = 0; v < graph->var_count; v++) {
        if (graph->var_grads[v] == GRAPH_NONE)
            continue;
        exec->grad_vars[graph->var_grads[v]] = v;
        exec->train_outputs[exec->train_output_count++] = graph->var_grads[v];
    }
    *ret_exec = TAKE(exec);
    return ERR_OK;
}

static enum err_code reserve_arena(struct exec *exec, size_t bytes, struct err *err)
{
    if (exec->arena && exec->arena_bytes >= bytes)
        return ERR_OK;
    exec->device->ops->buf_free(exec->device, exec->arena, exec->arena_bytes);
    exec->arena = NULL;
    exec->arena_bytes = 0;
    if (exec->device->ops->buf_new(exec->device, bytes, &exec->arena, err))
        return err->code;
    exec->arena_bytes = bytes;
    return ERR_OK;
}

/* The program of that size, compiled now if it is new, with the arena large enough for it. */
static enum err_code get_program(struct exec *exec, bool is_train, uint32_t batch,
                                 struct program **ret_program, struct err *err)
{
    struct exec_program *slot = &exec->programs[0];
    for (size_t i = 0; i < PROGRAM_MAX; i++) {
        struct exec_program *p = &exec->programs[i];
        if (p->program && p->is_train == is_train && program_batch(p->program) == batch) {
            slot = p;
            break;
        }
        if (slot->program && (!p->program || p->used_at < slot->used_at))
            slot = p;
    }
    if (!slot->program || slot->is_train != is_train || program_batch(slot->program) != batch) {
        struct program *program = NULL;
        if (program_new(exec->device, exec->graph, batch,
                        is_train ? exec->train_outputs : &exec->graph->log_prob,
                        is_train ? exec->train_output_count : 1, &program, err))
            return err->code;
        program_free(slot->program);
        *slot = (struct exec_program){.program = program, .is_train = is_train};
    }
    slot->used_at = ++exec->run_count;
    *ret_program = slot->program;
    return reserve_arena(exec, program_arena_bytes(slot->program), err);
}

static enum err_code check_labels(const struct exec *exec, const struct batch *batch,
                                  struct err *err)
{
    for (uint32_t i = 0; i < batch->count; i++)
        if (batch->labels[i] < 0 || (uint32_t)batch->labels[i] >= exec->class_count)
            return err_set(err, ERR_INVALID,
                           "label %" PRId32 " of example %u in the batch: want 0 to %u",
                           batch->labels[i], i, exec->class_count - 1);
    return ERR_OK;
}

static void bind_inputs(struct exec *exec, const float *images, const int32_t *labels,
                        const float *const *vars)
{
    const struct graph *graph = exec->graph;
    exec->inputs[graph->images] = images;
    exec->inputs[graph->labels] = labels;
    for (size_t v = 0; v < graph->var_count; v++)
        exec->inputs[graph->var_tensors[v]] = vars[v];
}

static void on_output(size_t tensor, void *arg)
{
    const struct exec *exec = arg;
    if (exec->grad_vars[tensor] != GRAPH_NONE)
        exec->on_grad(exec->grad_vars[tensor], exec->on_grad_arg);
}

enum err_code exec_train(struct exec *exec, uint64_t step, const struct batch *batch,
                         const float *const *vars, float *const *grads,
                         void (*on_grad)(size_t var_index, void *arg), void *arg,
                         float *ret_loss_mean, struct err *err)
{
    struct err local;
    err = err ? err : &local;
    const struct graph *graph = exec->graph;
    if (batch->count > exec->max_batch)
        return err_set(err, ERR_INVALID, "a batch of %u, want up to %u", batch->count,
                       exec->max_batch);
    if (graph->loss == GRAPH_NONE) {
        if (exec->device->ops->step_begin(exec->device, step, err))
            return err->code;
        *ret_loss_mean = 0.0f;
        return ERR_OK;
    }
    if (batch->count == 0)
        return err_set(err, ERR_INVALID, "a batch of 0, want 1 to %u", exec->max_batch);
    struct program *program = NULL;
    float loss = 0.0f;
    if (check_labels(exec, batch, err) || get_program(exec, true, batch->count, &program, err) ||
        exec->device->ops->step_begin(exec->device, step, err))
        return err->code;
    bind_inputs(exec, batch->images, batch->labels, vars);
    exec->outputs[graph->loss] = &loss;
    for (size_t v = 0; v < graph->var_count; v++)
        if (graph->var_grads[v] != GRAPH_NONE)
            exec->outputs[graph->var_grads[v]] = grads[v];
    exec->on_grad = on_grad;
    exec->on_grad_arg = arg;
    struct program_io io = {
        .inputs = exec->inputs,
        .outputs = exec->outputs,
        .on_output = on_grad ? on_output : NULL,
        .arg = exec,
    };
    if (program_run(program, exec->arena, &io, err))
        return err->code;
    *ret_loss_mean = loss;
    return ERR_OK;
}

/* Adds up one chunk; a NaN among the scores makes the sum NaN. */
static void score(const struct exec *exec, const int32_t *labels, uint32_t count, double *loss_sum,
                  uint32_t *correct)
{
    for (uint32_t i = 0; i < count; i++) {
        const float *row = exec->log_prob + (size_t)i * exec->class_count;
        uint32_t best = 0;
        for (uint32_t j = 1; j < exec->class_count; j++)
            if (row[j] > row[best])
                best = j;
        *loss_sum -= (double)row[labels[i]];
        *correct += best == (uint32_t)labels[i] && row[best] == row[best];
    }
}

enum err_code exec_eval(struct exec *exec, const struct batch *batch, const float *const *vars,
                        double *ret_loss_sum, uint32_t *ret_correct, struct err *err)
{
    struct err local;
    err = err ? err : &local;
    const struct graph *graph = exec->graph;
    double loss_sum = 0;
    uint32_t correct = 0;
    if (graph->loss != GRAPH_NONE) {
        if (check_labels(exec, batch, err))
            return err->code;
        uint64_t example = tensor_shape_elements(&graph->tensors[graph->images].shape, 1);
        struct program_io io = {.inputs = exec->inputs, .outputs = exec->outputs};
        exec->outputs[graph->log_prob] = exec->log_prob;
        for (uint32_t at = 0; at < batch->count; at += EVAL_CHUNK) {
            uint32_t count = MIN(batch->count - at, (uint32_t)EVAL_CHUNK);
            struct program *program = NULL;
            if (get_program(exec, false, count, &program, err))
                return err->code;
            bind_inputs(exec, batch->images + at * example, batch->labels + at, vars);
            if (program_run(program, exec->arena, &io, err))
                return err->code;
            score(exec, batch->labels + at, count, &loss_sum, &correct);
        }
    }
    *ret_loss_sum = loss_sum;
    *ret_correct = correct;
    return ERR_OK;
}
