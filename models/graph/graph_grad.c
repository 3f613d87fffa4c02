/* SPDX-License-Identifier: Apache-2.0 */
/* graph_grad: the reverse walk. */
#include "models/graph/graph_grad.h"

#include <stdlib.h>

struct grad_walk {
    struct graph *graph;
    bool *wants;     /* by forward tensor: a trainable variable lies behind it */
    size_t *grads;   /* by forward tensor: the gradient so far */
    uint32_t *gives; /* by forward tensor: how many contributions are in it */
};

const struct graph_node *grad_walk_node(const struct grad_walk *walk, size_t node_index)
{
    return &walk->graph->nodes[node_index];
}

const struct tensor_shape *grad_walk_shape(const struct grad_walk *walk, size_t tensor)
{
    return &walk->graph->tensors[tensor].shape;
}

size_t grad_walk_of(const struct grad_walk *walk, size_t tensor)
{
    return walk->grads[tensor];
}

bool grad_walk_wants(const struct grad_walk *walk, size_t tensor)
{
    return walk->wants[tensor];
}

enum err_code grad_walk_emit(struct grad_walk *walk, const struct graph_node *forward,
                             enum op_kind op, const char *what, const struct op_attrs *attrs,
                             const size_t *in, size_t in_count, size_t *ret_out, size_t out_count,
                             struct err *err)
{
    AUTO_MEM char *name = base_asprintf("%s/grad_%s", forward->name, what);
    return graph_add_node(walk->graph, op, name, attrs, in, in_count, ret_out, out_count, err);
}

enum err_code grad_walk_give(struct grad_walk *walk, size_t tensor, size_t grad, struct err *err)
{
    ASSERT(walk->wants[tensor]);
    uint32_t gives = walk->gives[tensor]++;
    if (gives == 0) {
        walk->grads[tensor] = grad;
        return ERR_OK;
    }
    AUTO_MEM char *name = base_asprintf("%s/grad_sum%u", walk->graph->tensors[tensor].name, gives);
    return graph_add_node(walk->graph, OP_ADD, name, NULL, (size_t[]){walk->grads[tensor], grad}, 2,
                          &walk->grads[tensor], 1, err);
}

static void mark_wanted(struct grad_walk *walk)
{
    const struct graph *graph = walk->graph;
    for (size_t v = 0; v < graph->var_count; v++)
        walk->wants[graph->var_tensors[v]] = graph->vars[v].is_trainable;
    for (size_t n = 0; n < graph->forward_node_count; n++) {
        const struct graph_node *node = &graph->nodes[n];
        bool any = false;
        for (size_t i = 0; i < node->in_count; i++)
            any |= walk->wants[node->in[i]];
        walk->wants[node->out[0]] = any;
    }
}

static enum err_code walk_back(struct grad_walk *walk, struct err *err)
{
    struct graph *graph = walk->graph;
    for (size_t n = graph->forward_node_count; n-- > 0;) {
        const struct graph_node *node = &graph->nodes[n];
        bool is_loss = node->out[0] == graph->loss;
        if (!walk->wants[node->out[0]] || (!is_loss && walk->grads[node->out[0]] == GRAPH_NONE))
            continue;
        const struct op_def *def = op_def(node->op);
        if (!def->grad)
            return err_set(err, ERR_INVALID, "node %s (%s): the operator has no gradient",
                           node->name, def->name);
        if (def->grad(walk, n, err))
            return err->code;
    }
    return ERR_OK;
}

/* Each variable's gradient leaves on its own, so each has a tensor of its own; Add gives one to
 * both its inputs. */
static enum err_code name_var_grads(struct grad_walk *walk, struct err *err)
{
    struct graph *graph = walk->graph;
    AUTO_MEM bool *is_taken = base_alloc(graph->tensor_count * sizeof(bool));
    for (size_t v = 0; v < graph->var_count; v++) {
        size_t grad = walk->grads[graph->var_tensors[v]];
        graph->var_grads[v] = grad;
        if (grad == GRAPH_NONE)
            continue;
        if (is_taken[grad]) {
            AUTO_MEM char *name = base_asprintf("%s/grad_copy", graph->vars[v].name);
            struct op_attrs attrs = {.target = graph->tensors[grad].shape};
            if (graph_add_node(graph, OP_RESHAPE, name, &attrs, &grad, 1, &graph->var_grads[v], 1,
                               err))
                return err->code;
        }
        is_taken[grad] = true;
    }
    return ERR_OK;
}

enum err_code graph_grad_add(struct graph *graph, struct err *err)
{
    struct err local;
    err = err ? err : &local;
    ASSERT(graph->loss != GRAPH_NONE && graph->node_count == graph->forward_node_count);
    size_t count = graph->tensor_count;
    struct grad_walk walk = {
        .graph = graph,
        .wants = base_alloc(count * sizeof(bool)),
        .grads = base_alloc(count * sizeof(size_t)),
        .gives = base_alloc(count * sizeof(uint32_t)),
    };
    for (size_t i = 0; i < count; i++)
        walk.grads[i] = GRAPH_NONE;
    mark_wanted(&walk);
    enum err_code code = walk_back(&walk, err);
    if (code == ERR_OK)
        code = name_var_grads(&walk, err);
    free(walk.wants);
    free(walk.grads);
    free(walk.gives);
    return code;
}
