/* SPDX-License-Identifier: Apache-2.0 */
/* program: picks the nodes, compiles them in order, plans memory, runs.
 *
 * Memory: each tensor lies in a block. A view shares the block of its input, and so does the output
 * of an operator that can work in place, when nothing reads the input later. External tensors of a
 * host device have no block: their address is the caller's. */
#include "kernels/program/program.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "kernels/program/mem_plan.h"

enum { NOT_HERE = -2, EXTERNAL = -1 };

struct program_tensor {
    struct device_tensor device;
    size_t last_use; /* number of the last step that reads it; outputs: at least the one that makes
                        it */
    ptrdiff_t block; /* or NOT_HERE, EXTERNAL */
    size_t root;     /* EXTERNAL: the tensor whose host address it has */
    void *address;   /* of the present run */
    bool is_used;
    bool is_output;
};

struct program_step {
    size_t node;
    struct device_op *op;
    ptrdiff_t scratch_block; /* -1: none */
};

struct program {
    struct device *device;
    const struct graph *graph;
    uint32_t batch;
    struct program_tensor *tensors; /* by tensor number */
    struct program_step *steps;
    size_t step_count;
    struct mem_block *blocks;
    size_t block_count;
    size_t arena_bytes;
    size_t output_count;
    struct pending {
        size_t tensor;
        uint64_t mark;
    } * pending; /* outputs whose download is under way */
    uint64_t *node_ns;
};

void program_free(struct program *program)
{
    if (!program)
        return;
    for (size_t s = 0; s < program->step_count; s++)
        if (program->steps[s].op)
            program->device->ops->op_free(program->device, program->steps[s].op);
    free(program->tensors);
    free(program->steps);
    free(program->blocks);
    free(program->pending);
    free(program);
}

uint32_t program_batch(const struct program *program)
{
    return program->batch;
}

size_t program_arena_bytes(const struct program *program)
{
    return program->arena_bytes;
}

bool program_uses(const struct program *program, size_t tensor)
{
    return program->tensors[tensor].is_used;
}

void program_profile(struct program *program, uint64_t *node_ns)
{
    program->node_ns = node_ns;
}

/* Marks what the outputs need, from the end backwards, and lists it in order. */
static void pick_steps(struct program *program, const size_t *outputs, size_t output_count)
{
    const struct graph *graph = program->graph;
    for (size_t i = 0; i < output_count; i++)
        program->tensors[outputs[i]].is_used = program->tensors[outputs[i]].is_output = true;
    AUTO_MEM bool *is_needed = base_alloc(graph->node_count + 1);
    for (size_t n = graph->node_count; n-- > 0;) {
        const struct graph_node *node = &graph->nodes[n];
        for (size_t i = 0; i < node->out_count; i++)
            is_needed[n] |= program->tensors[node->out[i]].is_used;
        for (size_t i = 0; is_needed[n] && i < node->in_count; i++)
            program->tensors[node->in[i]].is_used = true;
    }
    program->steps = base_alloc((graph->node_count + 1) * sizeof(*program->steps));
    for (size_t n = 0; n < graph->node_count; n++) {
        if (!is_needed[n])
            continue;
        const struct graph_node *node = &graph->nodes[n];
        for (size_t i = 0; i < node->in_count; i++)
            program->tensors[node->in[i]].last_use = program->step_count;
        for (size_t i = 0; i < node->out_count; i++)
            program->tensors[node->out[i]].last_use = program->step_count;
        program->steps[program->step_count++] =
            (struct program_step){.node = n, .scratch_block = -1};
    }
}

static enum err_code init_tensors(struct program *program, struct err *err)
{
    for (size_t t = 0; t < program->graph->tensor_count; t++) {
        const struct graph_tensor *tensor = &program->graph->tensors[t];
        struct program_tensor *p = &program->tensors[t];
        p->block = NOT_HERE;
        p->root = t;
        p->device.name = tensor->name;
        p->device.shape = tensor->shape;
        for (uint32_t i = 0; i < tensor->shape.rank; i++)
            if (tensor->shape.dims[i] == DIM_BATCH)
                p->device.shape.dims[i] = program->batch;
        p->device.is_external = p->is_output || tensor->kind != TENSOR_VALUE;
        if (p->is_used && p->device.is_external &&
            program->device->ops->tensor_init(program->device, &p->device, err))
            return err->code;
    }
    return ERR_OK;
}

static enum err_code compile_steps(struct program *program, struct err *err)
{
    for (size_t s = 0; s < program->step_count; s++) {
        struct program_step *step = &program->steps[s];
        const struct graph_node *node = &program->graph->nodes[step->node];
        struct device_tensor *in[OP_IN_MAX] = {0};
        struct device_tensor *out[OP_OUT_MAX] = {0};
        for (size_t i = 0; i < node->in_count; i++)
            in[i] = &program->tensors[node->in[i]].device;
        for (size_t i = 0; i < node->out_count; i++) {
            struct program_tensor *p = &program->tensors[node->out[i]];
            if (p->is_used || p->device.shape.dtype != DTYPE_OPAQUE)
                out[i] = &p->device;
        }
        if (program->device->ops->op_new(program->device, node, in, out, &step->op, err))
            return err_prefix(err, "node %s (%s)", node->name, op_def(node->op)->name);
        for (size_t i = 0; i < node->out_count; i++)
            ASSERT(!out[i] || !out[i]->is_external || out[i]->layout == DEVICE_LAYOUT_CANONICAL);
    }
    return ERR_OK;
}

static ptrdiff_t new_block(struct program *program, size_t bytes, size_t first, size_t last)
{
    program->blocks[program->block_count] =
        (struct mem_block){.bytes = bytes, .first = first, .last = last};
    return (ptrdiff_t)program->block_count++;
}

/* Whether output 0 of step s may live where input 0 does. */
static bool can_share(const struct program *program, size_t s, const struct program_tensor *in,
                      const struct program_tensor *out)
{
    const struct program_step *step = &program->steps[s];
    if (in->device.bytes != out->device.bytes || in->device.layout != out->device.layout)
        return false;
    if (out->device.is_external && program->device->ops->is_host)
        return false; /* its place is the caller's */
    if (step->op->is_view)
        return true;
    return op_def(program->graph->nodes[step->node].op)->is_in_place && in->block >= 0 &&
           program->blocks[in->block].last == s;
}

static void place_step(struct program *program, size_t s)
{
    struct program_step *step = &program->steps[s];
    const struct graph_node *node = &program->graph->nodes[step->node];
    bool is_host = program->device->ops->is_host;
    for (size_t i = 0; i < node->out_count; i++) {
        struct program_tensor *out = &program->tensors[node->out[i]];
        const struct program_tensor *in = &program->tensors[node->in[0]];
        if (out->device.shape.dtype == DTYPE_OPAQUE && !out->is_used)
            continue;
        if (i == 0 && can_share(program, s, in, out)) {
            out->block = in->block;
            out->root = in->root;
            if (out->block >= 0)
                program->blocks[out->block].last =
                    MAX(program->blocks[out->block].last, out->last_use);
        } else if (out->device.is_external && is_host) {
            out->block = EXTERNAL;
        } else {
            out->block = new_block(program, out->device.bytes, s, out->last_use);
        }
    }
    if (step->op->scratch_bytes > 0)
        step->scratch_block = new_block(program, step->op->scratch_bytes, s, s);
}

static enum err_code plan_memory(struct program *program, struct err *err)
{
    const struct graph *graph = program->graph;
    program->blocks =
        base_alloc((graph->tensor_count + program->step_count + 1) * sizeof(*program->blocks));
    for (size_t t = 0; t < graph->tensor_count; t++) {
        struct program_tensor *p = &program->tensors[t];
        if (p->is_used && graph->tensors[t].kind != TENSOR_VALUE)
            p->block = program->device->ops->is_host
                           ? EXTERNAL
                           : new_block(program, p->device.bytes, 0, p->last_use);
    }
    for (size_t s = 0; s < program->step_count; s++)
        place_step(program, s);
    return mem_plan(program->blocks, program->block_count, DEVICE_ALIGN, &program->arena_bytes,
                    err);
}

enum err_code program_new(struct device *device, const struct graph *graph, uint32_t batch,
                          const size_t *outputs, size_t output_count, struct program **ret_program,
                          struct err *err)
{
    struct err local;
    err = err ? err : &local;
    ASSERT(batch > 0);
    AUTO(program) program = base_alloc(sizeof(*program));
    program->device = device;
    program->graph = graph;
    program->batch = batch;
    program->output_count = output_count;
    program->tensors = base_alloc((graph->tensor_count + 1) * sizeof(*program->tensors));
    program->pending = base_alloc((output_count + 1) * sizeof(*program->pending));
    pick_steps(program, outputs, output_count);
    if (init_tensors(program, err) || compile_steps(program, err) || plan_memory(program, err))
        return err->code;
    *ret_program = TAKE(program);
    return ERR_OK;
}

/* Addresses of this run, and the inputs sent to a device that has memory of its own. */
static enum err_code bind(struct program *program, char *arena, const struct program_io *io,
                          struct err *err)
{
    const struct device_ops *ops = program->device->ops;
    for (size_t t = 0; t < program->graph->tensor_count; t++) {
        struct program_tensor *p = &program->tensors[t];
        bool is_input = p->is_used && program->graph->tensors[t].kind != TENSOR_VALUE;
        ASSERT(!is_input || io->inputs[t]);
        ASSERT(!p->is_output || io->outputs[t]);
        if (p->block >= 0)
            p->address = arena + program->blocks[p->block].offset;
        else if (p->block == EXTERNAL)
            p->address = program->tensors[p->root].is_output ? io->outputs[p->root]
                                                             : (void *)io->inputs[p->root];
        if (is_input && !ops->is_host &&
            ops->upload(program->device, &p->device, p->address, io->inputs[t], err))
            return err_prefix(err, "tensor %s", p->device.name);
    }
    return ERR_OK;
}

static enum err_code run_step(struct program *program, const struct program_step *step, char *arena,
                              struct err *err)
{
    const struct graph_node *node = &program->graph->nodes[step->node];
    struct device_call call = {0};
    for (size_t i = 0; i < node->in_count; i++)
        call.in[i] = program->tensors[node->in[i]].address;
    for (size_t i = 0; i < node->out_count; i++)
        call.out[i] = program->tensors[node->out[i]].address;
    if (step->scratch_block >= 0)
        call.scratch = arena + program->blocks[step->scratch_block].offset;
    uint64_t start_ns = program->node_ns ? clock_now_ns() : 0;
    if (program->device->ops->op_run(program->device, step->op, &call, err))
        return err_prefix(err, "node %s (%s)", node->name, op_def(node->op)->name);
    if (program->node_ns)
        program->node_ns[step->node] += clock_now_ns() - start_ns;
    return ERR_OK;
}

/* Hands out the outputs that the step has completed, or notes the mark at which they will be. */
static enum err_code finish_step(struct program *program, const struct program_step *step,
                                 const struct program_io *io, size_t *pending_count,
                                 struct err *err)
{
    const struct device_ops *ops = program->device->ops;
    const struct graph_node *node = &program->graph->nodes[step->node];
    for (size_t i = 0; i < node->out_count; i++) {
        struct program_tensor *p = &program->tensors[node->out[i]];
        uint64_t mark = 0;
        if (!p->is_output)
            continue;
        if (!ops->is_host && (ops->download(program->device, &p->device, p->address,
                                            io->outputs[node->out[i]], err) ||
                              ops->mark(program->device, &mark, err)))
            return err_prefix(err, "tensor %s", p->device.name);
        if (mark == 0 && io->on_output)
            io->on_output(node->out[i], io->arg);
        else if (mark != 0)
            program->pending[(*pending_count)++] = (struct pending){node->out[i], mark};
    }
    return ERR_OK;
}

static enum err_code run_steps(struct program *program, char *arena, const struct program_io *io,
                               struct err *err)
{
    size_t pending_count = 0;
    if (bind(program, arena, io, err))
        return err->code;
    for (size_t s = 0; s < program->step_count; s++)
        if (run_step(program, &program->steps[s], arena, err) ||
            finish_step(program, &program->steps[s], io, &pending_count, err))
            return err->code;
    for (size_t i = 0; i < pending_count; i++) {
        if (program->device->ops->wait(program->device, program->pending[i].mark, err))
            return err_prefix(err, "tensor %s",
                              program->tensors[program->pending[i].tensor].device.name);
        if (io->on_output)
            io->on_output(program->pending[i].tensor, io->arg);
    }
    return ERR_OK;
}

enum err_code program_run(struct program *program, void *arena, const struct program_io *io,
                          struct err *err)
{
    struct err local;
    err = err ? err : &local;
    if (run_steps(program, arena, io, err) == ERR_OK)
        return ERR_OK;
    /* The loans end when this returns: what was begun before the failure is waited for. */
    uint64_t mark = 0;
    if (program->device->ops->mark(program->device, &mark, NULL) == ERR_OK && mark != 0 &&
        program->device->ops->wait(program->device, mark, NULL))
        return err->code; /* a device that cannot even wait has nothing under way any more */
    return err->code;
}
