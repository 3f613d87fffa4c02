/* SPDX-License-Identifier: Apache-2.0 */
/* op_shape: shapes of outputs from shapes of inputs, with errors that name both. */
#include "models/graph/op_shape.h"

#include <inttypes.h>
#include <string.h>

#define SHAPE_TEXT_SIZE 96
#define TEXT(shape)     tensor_shape_text((shape), (char[SHAPE_TEXT_SIZE]){0}, SHAPE_TEXT_SIZE)
/* A product of kernel, stride and pad stays far from wrapping in 64 bits. */
#define WINDOW_MAX 65535

static bool is_float(const struct tensor_shape *shape)
{
    return shape->dtype == DTYPE_F32 || shape->dtype == DTYPE_F64;
}

static enum err_code want_rank(const struct op_call *call, size_t i, uint32_t rank,
                               const char *what, struct err *err)
{
    const struct tensor_shape *shape = call->in[i];
    if (!is_float(shape) || shape->dtype != call->in[0]->dtype)
        return err_set(err, ERR_INVALID, "%s is not of the floating type of input 0", what);
    if (shape->rank != rank)
        return err_set(err, ERR_INVALID, "%s has shape %s, want rank %u", what, TEXT(shape), rank);
    return ERR_OK;
}

static struct tensor_shape shape_like(const struct tensor_shape *shape, uint32_t rank, ...)
{
    struct tensor_shape out = {.dtype = shape->dtype, .rank = rank};
    __builtin_va_list ap;
    __builtin_va_start(ap, rank);
    for (uint32_t i = 0; i < rank; i++)
        out.dims[i] = __builtin_va_arg(ap, uint64_t);
    __builtin_va_end(ap);
    return out;
}

/* Output length of a window that slides over one axis; resolves auto_pad into the two pads. */
static enum err_code window_axis(const struct tensor_shape *x, int axis, struct op_attrs *attrs,
                                 uint64_t *ret_out, struct err *err)
{
    uint64_t in = x->dims[2 + axis];
    uint32_t kernel = attrs->kernel[axis];
    if (attrs->strides[axis] == 0)
        attrs->strides[axis] = 1;
    uint32_t stride = attrs->strides[axis];
    if (kernel == 0 || kernel > WINDOW_MAX || stride > WINDOW_MAX)
        return err_set(err, ERR_INVALID, "window of %u, stride %u: want 1 to %u", kernel, stride,
                       WINDOW_MAX);
    uint32_t *begin = &attrs->pads[axis];
    uint32_t *end = &attrs->pads[2 + axis];
    switch (attrs->auto_pad) {
    case AUTO_PAD_NOTSET:
        break;
    case AUTO_PAD_VALID:
        *begin = *end = 0;
        break;
    case AUTO_PAD_SAME_UPPER:
    case AUTO_PAD_SAME_LOWER: {
        uint64_t covered = ((in + stride - 1) / stride - 1) * stride + kernel;
        uint32_t total = covered > in ? (uint32_t)(covered - in) : 0;
        uint32_t small = total / 2;
        *begin = attrs->auto_pad == AUTO_PAD_SAME_UPPER ? small : total - small;
        *end = total - *begin;
        break;
    }
    }
    if (*begin >= kernel || *end >= kernel)
        return err_set(err, ERR_INVALID,
                       "pads %u and %u of a window of %u: want less than the window", *begin, *end,
                       kernel);
    uint64_t padded = in + *begin + *end;
    if (padded < kernel)
        return err_set(err, ERR_INVALID,
                       "input of shape %s, padded by %u and %u, is smaller than the "
                       "window of %u",
                       TEXT(x), *begin, *end, kernel);
    *ret_out = (padded - kernel) / stride + 1;
    return ERR_OK;
}

static enum err_code window(const struct tensor_shape *x, struct op_attrs *attrs,
                            uint64_t ret_out[2], struct err *err)
{
    for (int axis = 0; axis < 2; axis++)
        if (window_axis(x, axis, attrs, &ret_out[axis], err))
            return err->code;
    attrs->auto_pad = AUTO_PAD_NOTSET;
    return ERR_OK;
}

enum err_code op_shape_conv(struct op_call *call, struct err *err)
{
    if (want_rank(call, 0, 4, "input", err) || want_rank(call, 1, 4, "kernel", err))
        return err->code;
    const struct tensor_shape *x = call->in[0];
    const struct tensor_shape *w = call->in[1];
    if (w->dims[1] != x->dims[1])
        return err_set(err, ERR_INVALID,
                       "kernel of shape %s wants %" PRIu64 " channels, input has shape %s", TEXT(w),
                       w->dims[1], TEXT(x));
    if (w->dims[2] > WINDOW_MAX || w->dims[3] > WINDOW_MAX)
        return err_set(err, ERR_INVALID, "kernel of shape %s: want windows up to %u", TEXT(w),
                       WINDOW_MAX);
    call->attrs->kernel[0] = (uint32_t)w->dims[2];
    call->attrs->kernel[1] = (uint32_t)w->dims[3];
    if (call->in_count == 3) {
        if (want_rank(call, 2, 1, "bias", err))
            return err->code;
        if (call->in[2]->dims[0] != w->dims[0])
            return err_set(err, ERR_INVALID, "bias of shape %s, kernel of shape %s: want %" PRIu64,
                           TEXT(call->in[2]), TEXT(w), w->dims[0]);
    }
    uint64_t out[2] = {0};
    if (window(x, call->attrs, out, err))
        return err->code;
    call->out[0] = shape_like(x, 4, x->dims[0], w->dims[0], out[0], out[1]);
    return ERR_OK;
}

enum err_code op_shape_max_pool(struct op_call *call, struct err *err)
{
    if (want_rank(call, 0, 4, "input", err))
        return err->code;
    const struct tensor_shape *x = call->in[0];
    uint64_t out[2] = {0};
    if (window(x, call->attrs, out, err))
        return err->code;
    call->out[0] = shape_like(x, 4, x->dims[0], x->dims[1], out[0], out[1]);
    call->out[1] = (struct tensor_shape){.dtype = DTYPE_OPAQUE};
    return ERR_OK;
}

enum err_code op_shape_same(struct op_call *call, struct err *err)
{
    if (!is_float(call->in[0]))
        return err_set(err, ERR_INVALID, "input is not of a floating type");
    call->out[0] = *call->in[0];
    return ERR_OK;
}

enum err_code op_shape_flatten(struct op_call *call, struct err *err)
{
    const struct tensor_shape *x = call->in[0];
    if (!is_float(x) || x->rank < 1)
        return err_set(err, ERR_INVALID, "input has shape %s, want rank 1 or more", TEXT(x));
    uint64_t product = 1;
    for (uint32_t i = 1; i < x->rank; i++)
        product *= x->dims[i];
    call->out[0] = shape_like(x, 2, x->dims[0], product);
    return ERR_OK;
}

enum err_code op_shape_reshape(struct op_call *call, struct err *err)
{
    const struct tensor_shape *x = call->in[0];
    struct tensor_shape *target = &call->attrs->target;
    target->dtype = x->dtype;
    /* Two batch sizes tell whether the batch stands in both equally often. */
    if (!is_float(x) || tensor_shape_elements(x, 1) != tensor_shape_elements(target, 1) ||
        tensor_shape_elements(x, 2) != tensor_shape_elements(target, 2))
        return err_set(err, ERR_INVALID, "input of shape %s cannot become %s", TEXT(x),
                       TEXT(target));
    call->out[0] = *target;
    return ERR_OK;
}

enum err_code op_shape_gemm(struct op_call *call, struct err *err)
{
    if (want_rank(call, 0, 2, "a", err) || want_rank(call, 1, 2, "b", err))
        return err->code;
    const struct tensor_shape *a = call->in[0];
    const struct tensor_shape *b = call->in[1];
    bool ta = call->attrs->trans_a;
    bool tb = call->attrs->trans_b;
    if (a->dims[!ta] != b->dims[tb])
        return err_set(err, ERR_INVALID,
                       "a%s of shape %s times b%s of shape %s: inner sizes differ",
                       ta ? " (transposed)" : "", TEXT(a), tb ? " (transposed)" : "", TEXT(b));
    uint64_t columns = b->dims[!tb];
    if (call->in_count == 3) {
        if (want_rank(call, 2, 1, "c", err))
            return err->code;
        if (call->in[2]->dims[0] != columns)
            return err_set(err, ERR_INVALID, "c of shape %s, want %" PRIu64, TEXT(call->in[2]),
                           columns);
    }
    call->out[0] = shape_like(a, 2, a->dims[ta], columns);
    return ERR_OK;
}

enum err_code op_shape_add(struct op_call *call, struct err *err)
{
    if (!is_float(call->in[0]) || !tensor_shape_equal(call->in[0], call->in[1]))
        return err_set(err, ERR_INVALID,
                       "inputs of shapes %s and %s, want equal ones of a floating type",
                       TEXT(call->in[0]), TEXT(call->in[1]));
    call->out[0] = *call->in[0];
    return ERR_OK;
}

enum err_code op_shape_reduce_sum(struct op_call *call, struct err *err)
{
    if (want_rank(call, 0, 2, "input", err))
        return err->code;
    call->out[0] = shape_like(call->in[0], 1, call->in[0]->dims[1]);
    return ERR_OK;
}

enum err_code op_shape_softmax(struct op_call *call, struct err *err)
{
    if (want_rank(call, 0, 2, "input", err))
        return err->code;
    call->out[0] = *call->in[0];
    return ERR_OK;
}

static enum err_code want_labels(const struct tensor_shape *scores,
                                 const struct tensor_shape *labels, struct err *err)
{
    if (labels->dtype != DTYPE_I32 || labels->rank != 1 || labels->dims[0] != scores->dims[0])
        return err_set(err, ERR_INVALID,
                       "labels of shape %s for scores of shape %s, want one class a row",
                       TEXT(labels), TEXT(scores));
    return ERR_OK;
}

enum err_code op_shape_softmax_loss(struct op_call *call, struct err *err)
{
    if (want_rank(call, 0, 2, "logits", err) || want_labels(call->in[0], call->in[1], err))
        return err->code;
    call->out[0] = shape_like(call->in[0], 0);
    call->out[1] = *call->in[0];
    return ERR_OK;
}

enum err_code op_shape_softmax_loss_grad(struct op_call *call, struct err *err)
{
    if (want_rank(call, 0, 2, "log_prob", err) || want_labels(call->in[0], call->in[1], err))
        return err->code;
    call->out[0] = *call->in[0];
    return ERR_OK;
}

/* Runs the forward shape function on (x, w) and wants its output to be dy. */
static enum err_code want_conv(const struct op_call *call, const struct tensor_shape *x,
                               const struct tensor_shape *w, const struct tensor_shape *dy,
                               struct err *err)
{
    struct op_call forward = {.in = {x, w}, .in_count = 2, .out_count = 1, .attrs = call->attrs};
    if (op_shape_conv(&forward, err))
        return err->code;
    if (!tensor_shape_equal(&forward.out[0], dy))
        return err_set(err, ERR_INVALID, "dy of shape %s, want %s", TEXT(dy),
                       TEXT(&forward.out[0]));
    return ERR_OK;
}

enum err_code op_shape_conv_grad_data(struct op_call *call, struct err *err)
{
    const struct tensor_shape *x = &call->attrs->target;
    call->attrs->target.dtype = call->in[0]->dtype;
    if (want_conv(call, x, call->in[0], call->in[1], err))
        return err->code;
    call->out[0] = *x;
    return ERR_OK;
}

enum err_code op_shape_conv_grad_weights(struct op_call *call, struct err *err)
{
    const struct tensor_shape *w = &call->attrs->target;
    call->attrs->target.dtype = call->in[0]->dtype;
    if (want_conv(call, call->in[0], w, call->in[1], err))
        return err->code;
    call->out[0] = *w;
    if (call->out_count == 2)
        call->out[1] = shape_like(w, 1, w->dims[0]);
    return ERR_OK;
}

enum err_code op_shape_max_pool_grad(struct op_call *call, struct err *err)
{
    const struct tensor_shape *dy = call->in[0];
    call->attrs->target.dtype = dy->dtype;
    struct op_call forward = {
        .in = {&call->attrs->target}, .in_count = 1, .out_count = 2, .attrs = call->attrs};
    if (op_shape_max_pool(&forward, err))
        return err->code;
    if (call->in[1]->dtype != DTYPE_OPAQUE || !tensor_shape_equal(&forward.out[0], dy))
        return err_set(err, ERR_INVALID, "dy of shape %s, want %s and the workspace of MaxPool",
                       TEXT(dy), TEXT(&forward.out[0]));
    call->out[0] = call->attrs->target;
    return ERR_OK;
}
