/* SPDX-License-Identifier: Apache-2.0 */
/* op: the operators a graph is made of, by their ONNX names and meaning.
 *
 * One table (op.c) has a row per operator: its name, how many tensors it takes and gives, its shape
 * function (op_shape.c) and its gradient function (op_grad.c). A new operator is a row, those two
 * functions and a kernel in each backend. Operators that ONNX lacks, because they only occur in a
 * backward half, end in "Grad".
 *
 *   Conv                        x[N,C,H,W] w[O,C,kh,kw] (b[O])      -> y[N,O,H',W']
 *   MaxPool                     x[N,C,H,W]                          -> y[N,C,H',W'] workspace
 *   Relu                        x                                   -> y
 *   Flatten (axis 1)            x[N,...]                            -> y[N,product]
 *   Reshape (attrs.dims)        x                                   -> y
 *   Gemm (trans_a, trans_b)     a[M,K] b[K,N] (c[N])                -> y[M,N]
 *   Add (equal shapes)          a b                                 -> y
 *   ReduceSum (over axis 0)     x[M,N]                              -> y[N]
 *   Softmax (over axis 1)       x[M,N]                              -> y[M,N]
 *   SoftmaxCrossEntropyLoss     logits[N,C] labels[N]               -> mean loss[], log_prob[N,C]
 *   ConvGradData                w dy                                -> dx (attrs.dims)
 *   ConvGradWeights             x dy                                -> dw (attrs.dims) (db)
 *   MaxPoolGrad                 dy workspace                        -> dx (attrs.dims)
 *   ReluGrad                    dy y                                -> dx
 *   SoftmaxCrossEntropyLossGrad log_prob labels                     -> dlogits of the mean loss
 *
 * MaxPool: the first of equal values wins, in row-major order of the window; NaN wins over
 * everything. The workspace is the backend's own record of the winners, of the backend's own size
 * (DTYPE_OPAQUE). Relu lets NaN through.
 *
 * Thread  any; const tables and pure functions.
 * Errors  ERR_INVALID with the shapes that do not fit.
 */
#ifndef MODELS_GRAPH_OP_H
#define MODELS_GRAPH_OP_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/base/limits.h"

enum op_kind {
    OP_CONV,
    OP_MAX_POOL,
    OP_RELU,
    OP_FLATTEN,
    OP_RESHAPE,
    OP_GEMM,
    OP_ADD,
    OP_REDUCE_SUM,
    OP_SOFTMAX,
    OP_SOFTMAX_LOSS,
    OP_CONV_GRAD_DATA,
    OP_CONV_GRAD_WEIGHTS,
    OP_MAX_POOL_GRAD,
    OP_RELU_GRAD,
    OP_SOFTMAX_LOSS_GRAD,
    OP_COUNT
};

#define OP_IN_MAX  8 /* a Concat of nasnet's cell joins the most */
#define OP_OUT_MAX 5 /* BatchNormalization in training has the most */

enum dtype {
    DTYPE_F32,
    DTYPE_F64, /* ref only: finite differences need it */
    DTYPE_I32,
    DTYPE_OPAQUE, /* the backend's own bytes; has no dims */
};

/* A dim of this value is the batch size, not known until a graph is compiled. */
#define DIM_BATCH 0

struct tensor_shape {
    enum dtype dtype;
    uint32_t rank;
    uint64_t dims[LIMIT_RANK];
};

enum auto_pad { /* ONNX auto_pad; shape inference turns all but NOTSET into pads */
                AUTO_PAD_NOTSET,
                AUTO_PAD_SAME_UPPER, /* output is ceil(input / stride); an odd pad goes to the end,
                                        as in TensorFlow */
                AUTO_PAD_SAME_LOWER,
                AUTO_PAD_VALID,
};

struct op_attrs {
    uint32_t kernel[2];         /* height, width; Conv takes them from its weights */
    uint32_t strides[2];        /* height, width; 0 is read as 1 */
    uint32_t pads[4];           /* top, left, bottom, right */
    enum auto_pad auto_pad;     /* NOTSET once the node is in a graph */
    bool trans_a;               /* Gemm */
    bool trans_b;               /* Gemm */
    struct tensor_shape target; /* Reshape and gradients: the shape of output 0 */
};

/* One use of an operator while its shapes are worked out. */
struct op_call {
    const struct tensor_shape *in[OP_IN_MAX];
    size_t in_count;
    size_t out_count;
    struct op_attrs *attrs; /* defaults and auto_pad are resolved in place */
    struct tensor_shape out[OP_OUT_MAX];
};

struct grad_walk; /* graph_grad.h */

struct op_def {
    const char *name;
    uint8_t in_min, in_max;
    uint8_t out_min, out_max;
    bool
        is_in_place; /* output 0 may use the memory of input 0 when nothing else reads that later */
    enum err_code (*infer)(struct op_call *call, struct err *err);
    /* Adds the nodes that turn the gradient of output 0 into those of the wanted inputs; NULL: has
     * none. */
    enum err_code (*grad)(struct grad_walk *walk, size_t node_index, struct err *err);
};

const struct op_def *op_def(enum op_kind op);

/* "N,1,28,28"; "scalar" for rank 0. */
const char *tensor_shape_text(const struct tensor_shape *shape, char *buf, size_t size);
bool tensor_shape_equal(const struct tensor_shape *a, const struct tensor_shape *b);
/* Elements with the batch filled in; dims are bounded by LIMIT_TENSOR_ELEMENTS, batch by its own 32
 * bits. */
uint64_t tensor_shape_elements(const struct tensor_shape *shape, uint64_t batch);

#endif
