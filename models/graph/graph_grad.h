/* SPDX-License-Identifier: Apache-2.0 */
/* graph_grad: derives the backward half of a graph.
 *
 * Walks the forward nodes from the loss back and lets each operator's gradient function (op_grad.h)
 * add the nodes it needs. A tensor that several nodes read gets the sum of their gradients (Add
 * nodes). What leads to no trainable variable gets no gradient: the input images have none.
 *
 * Owns    nothing; the walk lives for the length of graph_grad_add.
 * Thread  the builder's.
 * Errors  ERR_INVALID: an operator on the way has no gradient.
 */
#ifndef MODELS_GRAPH_GRAPH_GRAD_H
#define MODELS_GRAPH_GRAPH_GRAD_H

#include "models/graph/graph.h"

/* graph->loss is set; fills graph->var_grads. Once per graph. */
MUST_CHECK enum err_code graph_grad_add(struct graph *graph, struct err *err);

/* ---- for the gradient functions ---- */
const struct graph_node *grad_walk_node(const struct grad_walk *walk, size_t node_index);
const struct tensor_shape *grad_walk_shape(const struct grad_walk *walk, size_t tensor);
/* The gradient of a node's output, complete by now; GRAPH_NONE for the loss. */
size_t grad_walk_of(const struct grad_walk *walk, size_t tensor);
bool grad_walk_wants(const struct grad_walk *walk, size_t tensor);
/* Adds node "<forward name>/grad_<what>". */
MUST_CHECK enum err_code grad_walk_emit(struct grad_walk *walk, const struct graph_node *forward,
                                        enum op_kind op, const char *what,
                                        const struct op_attrs *attrs, const size_t *in,
                                        size_t in_count, size_t *ret_out, size_t out_count,
                                        struct err *err);
/* One contribution to the gradient of tensor. */
MUST_CHECK enum err_code grad_walk_give(struct grad_walk *walk, size_t tensor, size_t grad,
                                        struct err *err);

#endif
