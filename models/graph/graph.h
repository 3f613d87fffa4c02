/* SPDX-License-Identifier: Apache-2.0 */
/* graph: a network as data. Tensors, the nodes that make them, and the variables among them.
 *
 * Nodes stand in an order in which they can run. graph_add_node infers the shapes of what it adds
 * and refuses what does not fit, naming node and shapes. The backward half is more nodes of the
 * same kind (graph_grad.h), after the forward ones. Backends read the structs below; nothing
 * changes them once it is built.
 *
 * Owns    everything reachable from struct graph; ended by graph_free (graph_var.h).
 * Thread  the builder's; immutable afterwards, so any.
 * Shapes  dims of DIM_BATCH are the batch, filled in when a graph is compiled.
 * Errors  ERR_INVALID with node and shapes; ERR_FULL at LIMIT_GRAPH_NODES or LIMIT_VARIABLES.
 */
#ifndef MODELS_GRAPH_GRAPH_H
#define MODELS_GRAPH_GRAPH_H

#include "common/base/err.h"
#include "models/graph/graph_var.h"
#include "models/graph/op.h"

#define GRAPH_NONE SIZE_MAX /* no such tensor, node or variable */

enum tensor_kind {
    TENSOR_INPUT, /* given with every batch */
    TENSOR_VAR,   /* given by the parameter servers */
    TENSOR_VALUE, /* made by a node */
};

struct graph_tensor {
    char *name;
    enum tensor_kind kind;
    struct tensor_shape shape;
    size_t var_index; /* VAR: its variable */
    size_t producer;  /* VALUE: the node that makes it */
};

struct graph_node {
    enum op_kind op;
    char *name;
    struct op_attrs attrs; /* resolved: no auto_pad, strides set */
    size_t in[OP_IN_MAX];
    size_t in_count;
    size_t out[OP_OUT_MAX];
    size_t out_count;
};

struct graph {
    struct graph_tensor *tensors;
    size_t tensor_count, tensor_capacity;
    struct graph_node *nodes;
    size_t node_count, node_capacity;
    size_t forward_node_count; /* nodes[forward_node_count..] are the backward half */
    struct model_var *vars;
    size_t *var_tensors; /* the tensor of each variable */
    size_t *var_grads;   /* the tensor of its gradient; GRAPH_NONE: has none */
    size_t var_count, var_capacity;
    size_t images, labels; /* tensors; GRAPH_NONE in a graph without operators */
    size_t loss, log_prob; /* tensors: mean loss [], log probabilities [N,classes] */
};

struct graph *graph_new(void);

MUST_CHECK enum err_code graph_add_input(struct graph *graph, const char *name,
                                         const struct tensor_shape *shape, size_t *ret_tensor,
                                         struct err *err);
/* var's name is copied. */
MUST_CHECK enum err_code graph_add_var(struct graph *graph, const struct model_var *var,
                                       size_t *ret_tensor, struct err *err);
/* Writes the out_count tensors it makes to ret_out. attrs NULL: all defaults. */
MUST_CHECK enum err_code graph_add_node(struct graph *graph, enum op_kind op, const char *name,
                                        const struct op_attrs *attrs, const size_t *in,
                                        size_t in_count, size_t *ret_out, size_t out_count,
                                        struct err *err);
/* What a graph has to be before a device sees it: nodes only read what was made before them, every
 * name is there once, every trainable variable has a gradient of its own shape, and nothing reads
 * the loss. */
MUST_CHECK enum err_code graph_check(const struct graph *graph, struct err *err);

#endif
