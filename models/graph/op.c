/* SPDX-License-Identifier: Apache-2.0 */
/* op: the table of operators and what can be said about a shape. */
#include "models/graph/op.h"

#include <inttypes.h>
#include <stdio.h>

#include "models/graph/op_grad.h"
#include "models/graph/op_shape.h"

/* clang-format off */
static const struct op_def ops[OP_COUNT] = {
    /* operator               name                      in    out   place  shapes                    gradient */
    [OP_CONV]              = {"Conv",                   2, 3, 1, 1, false, op_shape_conv,              op_grad_conv},
    [OP_MAX_POOL]          = {"MaxPool",                1, 1, 2, 2, false, op_shape_max_pool,          op_grad_max_pool},
    [OP_RELU]              = {"Relu",                   1, 1, 1, 1, true,  op_shape_same,              op_grad_relu},
    [OP_FLATTEN]           = {"Flatten",                1, 1, 1, 1, false, op_shape_flatten,           op_grad_reshape},
    [OP_RESHAPE]           = {"Reshape",                1, 1, 1, 1, false, op_shape_reshape,           op_grad_reshape},
    [OP_GEMM]              = {"Gemm",                   2, 3, 1, 1, false, op_shape_gemm,              op_grad_gemm},
    [OP_ADD]               = {"Add",                    2, 2, 1, 1, true,  op_shape_add,               op_grad_add},
    [OP_REDUCE_SUM]        = {"ReduceSum",              1, 1, 1, 1, false, op_shape_reduce_sum,        NULL},
    [OP_SOFTMAX]           = {"Softmax",                1, 1, 1, 1, true,  op_shape_softmax,           NULL},
    [OP_SOFTMAX_LOSS]      = {"SoftmaxCrossEntropyLoss", 2, 2, 2, 2, false, op_shape_softmax_loss,     op_grad_softmax_loss},
    [OP_CONV_GRAD_DATA]    = {"ConvGradData",           2, 2, 1, 1, false, op_shape_conv_grad_data,    NULL},
    [OP_CONV_GRAD_WEIGHTS] = {"ConvGradWeights",        2, 2, 1, 2, false, op_shape_conv_grad_weights, NULL},
    [OP_MAX_POOL_GRAD]     = {"MaxPoolGrad",            2, 2, 1, 1, false, op_shape_max_pool_grad,     NULL},
    [OP_RELU_GRAD]         = {"ReluGrad",               2, 2, 1, 1, true,  op_shape_add,               NULL},
    [OP_SOFTMAX_LOSS_GRAD] = {"SoftmaxCrossEntropyLossGrad", 2, 2, 1, 1, true, op_shape_softmax_loss_grad, NULL},
};
/* clang-format on */

const struct op_def *op_def(enum op_kind op)
{
    ASSERT(op >= 0 && op < OP_COUNT);
    return &ops[op];
}

const char *tensor_shape_text(const struct tensor_shape *shape, char *buf, size_t size)
{
    ASSERT(size >= 8);
    if (shape->dtype == DTYPE_OPAQUE || shape->rank == 0) {
        snprintf(buf, size, "%s", shape->dtype == DTYPE_OPAQUE ? "opaque" : "scalar");
        return buf;
    }
    size_t used = 0;
    buf[0] = '\0';
    for (uint32_t i = 0; i < shape->rank && used + 1 < size; i++) {
        const char *comma = i ? "," : "";
        int n = shape->dims[i] == DIM_BATCH
                    ? snprintf(buf + used, size - used, "%sN", comma)
                    : snprintf(buf + used, size - used, "%s%" PRIu64, comma, shape->dims[i]);
        used += n > 0 ? (size_t)n : 0;
    }
    return buf;
}

bool tensor_shape_equal(const struct tensor_shape *a, const struct tensor_shape *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (uint32_t i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i])
            return false;
    return true;
}

uint64_t tensor_shape_elements(const struct tensor_shape *shape, uint64_t batch)
{
    if (shape->dtype == DTYPE_OPAQUE)
        return 0;
    uint64_t elements = 1;
    for (uint32_t i = 0; i < shape->rank; i++)
        elements *= shape->dims[i] == DIM_BATCH ? batch : shape->dims[i];
    return elements;
}
