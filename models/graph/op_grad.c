/* SPDX-License-Identifier: Apache-2.0 */
/* op_grad: the chain rule, operator by operator. */
#include "models/graph/op_grad.h"

#include "models/graph/graph.h"
#include "models/graph/graph_grad.h"

enum err_code op_grad_conv(struct grad_walk *walk, size_t node_index, struct err *err)
{
    const struct graph_node node =
        *grad_walk_node(walk, node_index); /* nodes move as the graph grows */
    size_t dy = grad_walk_of(walk, node.out[0]);
    size_t x = node.in[0];
    size_t w = node.in[1];
    bool wants_bias = node.in_count == 3 && grad_walk_wants(walk, node.in[2]);
    if (grad_walk_wants(walk, w) || wants_bias) {
        struct op_attrs attrs = node.attrs;
        attrs.target = *grad_walk_shape(walk, w);
        size_t out[2];
        if (grad_walk_emit(walk, &node, OP_CONV_GRAD_WEIGHTS, "weights", &attrs, (size_t[]){x, dy},
                           2, out, wants_bias ? 2 : 1, err) ||
            (wants_bias && grad_walk_give(walk, node.in[2], out[1], err)) ||
            (grad_walk_wants(walk, w) && grad_walk_give(walk, w, out[0], err)))
            return err->code;
    }
    if (!grad_walk_wants(walk, x))
        return ERR_OK;
    struct op_attrs attrs = node.attrs;
    attrs.target = *grad_walk_shape(walk, x);
    size_t dx;
    if (grad_walk_emit(walk, &node, OP_CONV_GRAD_DATA, "data", &attrs, (size_t[]){w, dy}, 2, &dx, 1,
                       err))
        return err->code;
    return grad_walk_give(walk, x, dx, err);
}

enum err_code op_grad_max_pool(struct grad_walk *walk, size_t node_index, struct err *err)
{
    const struct graph_node node = *grad_walk_node(walk, node_index);
    struct op_attrs attrs = node.attrs;
    attrs.target = *grad_walk_shape(walk, node.in[0]);
    size_t dx;
    if (grad_walk_emit(walk, &node, OP_MAX_POOL_GRAD, "data", &attrs,
                       (size_t[]){grad_walk_of(walk, node.out[0]), node.out[1]}, 2, &dx, 1, err))
        return err->code;
    return grad_walk_give(walk, node.in[0], dx, err);
}

/* From the output, not the input: so Relu can run in place. */
enum err_code op_grad_relu(struct grad_walk *walk, size_t node_index, struct err *err)
{
    const struct graph_node node = *grad_walk_node(walk, node_index);
    size_t dx;
    if (grad_walk_emit(walk, &node, OP_RELU_GRAD, "data", NULL,
                       (size_t[]){grad_walk_of(walk, node.out[0]), node.out[0]}, 2, &dx, 1, err))
        return err->code;
    return grad_walk_give(walk, node.in[0], dx, err);
}

enum err_code op_grad_reshape(struct grad_walk *walk, size_t node_index, struct err *err)
{
    const struct graph_node node = *grad_walk_node(walk, node_index);
    struct op_attrs attrs = {.target = *grad_walk_shape(walk, node.in[0])};
    size_t dx;
    if (grad_walk_emit(walk, &node, OP_RESHAPE, "data", &attrs,
                       (size_t[]){grad_walk_of(walk, node.out[0])}, 1, &dx, 1, err))
        return err->code;
    return grad_walk_give(walk, node.in[0], dx, err);
}

/* y = op(a) op(b) + c. With no transposes: db = aT dy, da = dy bT; a transposed operand's gradient
 * is transposed too, which swaps the factors. */
enum err_code op_grad_gemm(struct grad_walk *walk, size_t node_index, struct err *err)
{
    const struct graph_node node = *grad_walk_node(walk, node_index);
    size_t dy = grad_walk_of(walk, node.out[0]);
    size_t a = node.in[0];
    size_t b = node.in[1];
    bool ta = node.attrs.trans_a;
    bool tb = node.attrs.trans_b;
    size_t d;
    if (node.in_count == 3 && grad_walk_wants(walk, node.in[2])) {
        if (grad_walk_emit(walk, &node, OP_REDUCE_SUM, "bias", NULL, (size_t[]){dy}, 1, &d, 1,
                           err) ||
            grad_walk_give(walk, node.in[2], d, err))
            return err->code;
    }
    if (grad_walk_wants(walk, b)) {
        struct op_attrs attrs = {.trans_a = tb || !ta, .trans_b = tb && ta};
        if (grad_walk_emit(walk, &node, OP_GEMM, "weights", &attrs,
                           tb ? (size_t[]){dy, a} : (size_t[]){a, dy}, 2, &d, 1, err) ||
            grad_walk_give(walk, b, d, err))
            return err->code;
    }
    if (grad_walk_wants(walk, a)) {
        struct op_attrs attrs = {.trans_a = ta && tb, .trans_b = ta || !tb};
        if (grad_walk_emit(walk, &node, OP_GEMM, "data", &attrs,
                           ta ? (size_t[]){b, dy} : (size_t[]){dy, b}, 2, &d, 1, err) ||
            grad_walk_give(walk, a, d, err))
            return err->code;
    }
    return ERR_OK;
}

/* Both inputs get the very gradient of the sum: no node at all. */
enum err_code op_grad_add(struct grad_walk *walk, size_t node_index, struct err *err)
{
    const struct graph_node node = *grad_walk_node(walk, node_index);
    size_t dy = grad_walk_of(walk, node.out[0]);
    for (size_t i = 0; i < 2; i++)
        if (grad_walk_wants(walk, node.in[i]) && grad_walk_give(walk, node.in[i], dy, err))
            return err->code;
    return ERR_OK;
}

/* The loss is where the walk starts: its own gradient is 1. */
enum err_code op_grad_softmax_loss(struct grad_walk *walk, size_t node_index, struct err *err)
{
    const struct graph_node node = *grad_walk_node(walk, node_index);
    size_t dx;
    if (grad_walk_emit(walk, &node, OP_SOFTMAX_LOSS_GRAD, "data", NULL,
                       (size_t[]){node.out[1], node.in[1]}, 2, &dx, 1, err))
        return err->code;
    return grad_walk_give(walk, node.in[0], dx, err);
}
