/* SPDX-License-Identifier: Apache-2.0 */
/* op_grad: one gradient function per differentiable operator; called by the walk in graph_grad.c.
 *
 * A function finds the gradient of its node's output 0 in the walk, adds nodes, and gives the walk
 * a gradient for each input that is wanted. Gradients of variables come first, so that they can
 * leave while the rest is computed.
 * Thread  the builder's.
 * Errors  those of graph_add_node.
 */
#ifndef MODELS_GRAPH_OP_GRAD_H
#define MODELS_GRAPH_OP_GRAD_H

#include "models/graph/op.h"

MUST_CHECK enum err_code op_grad_conv(struct grad_walk *walk, size_t node_index, struct err *err);
MUST_CHECK enum err_code op_grad_max_pool(struct grad_walk *walk, size_t node_index,
                                          struct err *err);
MUST_CHECK enum err_code op_grad_relu(struct grad_walk *walk, size_t node_index, struct err *err);
MUST_CHECK enum err_code op_grad_reshape(struct grad_walk *walk, size_t node_index,
                                         struct err *err);
MUST_CHECK enum err_code op_grad_gemm(struct grad_walk *walk, size_t node_index, struct err *err);
MUST_CHECK enum err_code op_grad_add(struct grad_walk *walk, size_t node_index, struct err *err);
MUST_CHECK enum err_code op_grad_softmax_loss(struct grad_walk *walk, size_t node_index,
                                              struct err *err);

#endif
