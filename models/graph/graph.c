/* SPDX-License-Identifier: Apache-2.0 */
/* graph: adding to one, checking it, and freeing it. */
#include "models/graph/graph.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TEXT(shape) tensor_shape_text((shape), (char[96]){0}, 96)

struct graph *graph_new(void)
{
    struct graph *graph = base_alloc(sizeof(*graph));
    graph->images = graph->labels = graph->loss = graph->log_prob = GRAPH_NONE;
    return graph;
}

void graph_free(struct graph *graph)
{
    if (!graph)
        return;
    for (size_t i = 0; i < graph->tensor_count; i++)
        free(graph->tensors[i].name);
    for (size_t i = 0; i < graph->node_count; i++)
        free(graph->nodes[i].name);
    for (size_t i = 0; i < graph->var_count; i++)
        free(graph->vars[i].name);
    free(graph->tensors);
    free(graph->nodes);
    free(graph->vars);
    free(graph->var_tensors);
    free(graph->var_grads);
    free(graph);
}

size_t graph_var_count(const struct graph *graph)
{
    return graph->var_count;
}

const struct model_var *graph_var(const struct graph *graph, size_t var_index)
{
    ASSERT(var_index < graph->var_count);
    return &graph->vars[var_index];
}

uint64_t model_var_elements(const struct model_var *var)
{
    uint64_t elements = 1;
    for (uint32_t i = 0; i < var->rank; i++)
        elements *= var->shape[i];
    return elements;
}

static enum err_code check_size(const struct tensor_shape *shape, struct err *err)
{
    uint64_t elements = 1;
    for (uint32_t i = 0; i < shape->rank; i++) {
        uint64_t dim = shape->dims[i] == DIM_BATCH ? 1 : shape->dims[i];
        if (__builtin_mul_overflow(elements, dim, &elements) || elements > LIMIT_TENSOR_ELEMENTS)
            return err_set(err, ERR_INVALID, "shape %s has over %" PRIu64 " elements an example",
                           TEXT(shape), (uint64_t)LIMIT_TENSOR_ELEMENTS);
    }
    return ERR_OK;
}

static size_t add_tensor(struct graph *graph, const char *name, enum tensor_kind kind,
                         const struct tensor_shape *shape)
{
    if (graph->tensor_count == graph->tensor_capacity) {
        graph->tensor_capacity = graph->tensor_capacity ? 2 * graph->tensor_capacity : 32;
        graph->tensors =
            base_realloc(graph->tensors, graph->tensor_capacity * sizeof(*graph->tensors));
    }
    graph->tensors[graph->tensor_count] = (struct graph_tensor){
        .name = base_strdup(name),
        .kind = kind,
        .shape = *shape,
        .var_index = GRAPH_NONE,
        .producer = GRAPH_NONE,
    };
    return graph->tensor_count++;
}

enum err_code graph_add_input(struct graph *graph, const char *name,
                              const struct tensor_shape *shape, size_t *ret_tensor, struct err *err)
{
    if (check_size(shape, err))
        return err_prefix(err, "input %s", name);
    *ret_tensor = add_tensor(graph, name, TENSOR_INPUT, shape);
    return ERR_OK;
}

enum err_code graph_add_var(struct graph *graph, const struct model_var *var, size_t *ret_tensor,
                            struct err *err)
{
    if (graph->var_count == LIMIT_VARIABLES)
        return err_set(err, ERR_FULL, "variable %s: there are %u already", var->name,
                       LIMIT_VARIABLES);
    struct tensor_shape shape = {.dtype = DTYPE_F32, .rank = var->rank};
    for (uint32_t i = 0; i < var->rank; i++) {
        shape.dims[i] = var->shape[i];
        if (var->shape[i] == 0)
            return err_set(err, ERR_INVALID, "variable %s: dimension %u is 0, want 1 or more",
                           var->name, i);
    }
    if (check_size(&shape, err))
        return err_prefix(err, "variable %s", var->name);
    if (graph->var_count == graph->var_capacity) {
        graph->var_capacity = graph->var_capacity ? 2 * graph->var_capacity : 16;
        size_t n = graph->var_capacity;
        graph->vars = base_realloc(graph->vars, n * sizeof(*graph->vars));
        graph->var_tensors = base_realloc(graph->var_tensors, n * sizeof(*graph->var_tensors));
        graph->var_grads = base_realloc(graph->var_grads, n * sizeof(*graph->var_grads));
    }
    size_t tensor = add_tensor(graph, var->name, TENSOR_VAR, &shape);
    size_t index = graph->var_count++;
    graph->tensors[tensor].var_index = index;
    graph->vars[index] = *var;
    graph->vars[index].name = base_strdup(var->name);
    graph->var_tensors[index] = tensor;
    graph->var_grads[index] = GRAPH_NONE;
    *ret_tensor = tensor;
    return ERR_OK;
}

static enum err_code infer(const struct graph *graph, const struct op_def *def,
                           struct op_call *call, const size_t *in, struct err *err)
{
    if (call->in_count < def->in_min || call->in_count > def->in_max)
        return err_set(err, ERR_INVALID, "%zu inputs, want %u to %u", call->in_count, def->in_min,
                       def->in_max);
    if (call->out_count < def->out_min || call->out_count > def->out_max)
        return err_set(err, ERR_INVALID, "%zu outputs, want %u to %u", call->out_count,
                       def->out_min, def->out_max);
    for (size_t i = 0; i < call->in_count; i++) {
        if (in[i] >= graph->tensor_count)
            return err_set(err, ERR_INVALID, "input %zu is tensor %zu of %zu", i, in[i],
                           graph->tensor_count);
        call->in[i] = &graph->tensors[in[i]].shape;
    }
    if (def->infer(call, err))
        return err->code;
    for (size_t i = 0; i < call->out_count; i++)
        if (check_size(&call->out[i], err))
            return err->code;
    return ERR_OK;
}

enum err_code graph_add_node(struct graph *graph, enum op_kind op, const char *name,
                             const struct op_attrs *attrs, const size_t *in, size_t in_count,
                             size_t *ret_out, size_t out_count, struct err *err)
{
    struct err local; /* the shape functions read back what they wrote */
    err = err ? err : &local;
    const struct op_def *def = op_def(op);
    if (graph->node_count == LIMIT_GRAPH_NODES)
        return err_set(err, ERR_FULL, "node %s (%s): there are %u already", name, def->name,
                       LIMIT_GRAPH_NODES);
    struct graph_node node = {.op = op, .in_count = in_count, .out_count = out_count};
    if (attrs)
        node.attrs = *attrs;
    struct op_call call = {.in_count = in_count, .out_count = out_count, .attrs = &node.attrs};
    if (infer(graph, def, &call, in, err))
        return err_prefix(err, "node %s (%s)", name, def->name);
    memcpy(node.in, in, in_count * sizeof(*in));
    for (size_t i = 0; i < out_count; i++) {
        AUTO_MEM char *out_name = i ? base_asprintf("%s:%zu", name, i) : base_strdup(name);
        node.out[i] = add_tensor(graph, out_name, TENSOR_VALUE, &call.out[i]);
        graph->tensors[node.out[i]].producer = graph->node_count;
        ret_out[i] = node.out[i];
    }
    node.name = base_strdup(name);
    if (graph->node_count == graph->node_capacity) {
        graph->node_capacity = graph->node_capacity ? 2 * graph->node_capacity : 32;
        graph->nodes = base_realloc(graph->nodes, graph->node_capacity * sizeof(*graph->nodes));
    }
    graph->nodes[graph->node_count++] = node;
    return ERR_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum err_code check_names(const struct graph *graph, struct err *err)
{
    if (graph->tensor_count == 0)
        return ERR_OK;
    AUTO_MEM const char **names = base_alloc(graph->tensor_count * sizeof(*names));
    for (size_t i = 0; i < graph->tensor_count; i++)
        names[i] = graph->tensors[i].name;
    qsort(names, graph->tensor_count, sizeof(*names), compare_names);
    for (size_t i = 1; i < graph->tensor_count; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            return err_set(err, ERR_INVALID, "two tensors are named %s", names[i]);
    return ERR_OK;
}

static enum err_code check_order(const struct graph *graph, struct err *err)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        const struct graph_node *node = &graph->nodes[n];
        for (size_t i = 0; i < node->in_count; i++) {
            const struct graph_tensor *in = &graph->tensors[node->in[i]];
            if (in->kind == TENSOR_VALUE && in->producer >= n)
                return err_set(err, ERR_INVALID,
                               "node %s (%s): input %zu, %s of shape %s, is made after it",
                               node->name, op_def(node->op)->name, i, in->name, TEXT(&in->shape));
            if (graph->loss != GRAPH_NONE && node->in[i] == graph->loss)
                return err_set(err, ERR_INVALID,
                               "node %s (%s): input %zu is the loss, which ends a graph",
                               node->name, op_def(node->op)->name, i);
        }
    }
    return ERR_OK;
}

enum err_code graph_check(const struct graph *graph, struct err *err)
{
    struct err local;
    err = err ? err : &local;
    if (check_names(graph, err) || check_order(graph, err))
        return err->code;
    for (size_t v = 0; v < graph->var_count; v++) {
        const struct graph_tensor *var = &graph->tensors[graph->var_tensors[v]];
        if (!graph->vars[v].is_trainable)
            continue;
        if (graph->var_grads[v] == GRAPH_NONE)
            return err_set(
                err, ERR_INVALID,
                "variable %s of shape %s is trainable, but the loss does not depend on it",
                var->name, TEXT(&var->shape));
        const struct graph_tensor *grad = &graph->tensors[graph->var_grads[v]];
        if (!tensor_shape_equal(&var->shape, &grad->shape))
            return err_set(err, ERR_INVALID,
                           "variable %s of shape %s has a gradient %s of shape %s", var->name,
                           TEXT(&var->shape), grad->name, TEXT(&grad->shape));
    }
    return ERR_OK;
}
