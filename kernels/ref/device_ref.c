/* SPDX-License-Identifier: Apache-2.0 */
/* device_ref: the table of reference kernels and their memory. */
#include "kernels/ref/device_ref.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/ref/ref_int.h"

struct ref_op {
    struct device_op base;
    void (*run)(const struct ref_call *c);
    struct ref_call call; /* all but the addresses */
};

static void (*const kernels[OP_COUNT])(const struct ref_call *c) = {
    [OP_CONV] = ref_conv,
    [OP_MAX_POOL] = ref_max_pool,
    [OP_RELU] = ref_relu,
    [OP_FLATTEN] = ref_copy,
    [OP_RESHAPE] = ref_copy,
    [OP_GEMM] = ref_gemm,
    [OP_ADD] = ref_add,
    [OP_REDUCE_SUM] = ref_reduce_sum,
    [OP_SOFTMAX] = ref_softmax,
    [OP_SOFTMAX_LOSS] = ref_softmax_loss,
    [OP_CONV_GRAD_DATA] = ref_conv_grad_data,
    [OP_CONV_GRAD_WEIGHTS] = ref_conv_grad_weights,
    [OP_MAX_POOL_GRAD] = ref_max_pool_grad,
    [OP_RELU_GRAD] = ref_relu_grad,
    [OP_SOFTMAX_LOSS_GRAD] = ref_softmax_loss_grad,
};

static enum err_code ref_open(const struct device_options *options, struct device **ret_device,
                              struct err *err)
{
    (void)options;
    (void)err;
    struct device *device = base_alloc(sizeof(*device));
    device->ops = &device_ref_ops;
    *ret_device = device;
    return ERR_OK;
}

static void ref_close(struct device *device)
{
    free(device);
}

static enum err_code ref_tensor_init(struct device *device, struct device_tensor *tensor,
                                     struct err *err)
{
    (void)device;
    (void)err;
    tensor->layout = DEVICE_LAYOUT_CANONICAL;
    tensor->bytes = tensor_shape_elements(&tensor->shape, 0) *
                    (tensor->shape.dtype == DTYPE_I32 ? sizeof(int32_t) : sizeof(double));
    return ERR_OK;
}

static enum err_code ref_upload(struct device *device, const struct device_tensor *tensor,
                                void *address, const void *host, struct err *err)
{
    (void)device;
    (void)err;
    uint64_t count = tensor_shape_elements(&tensor->shape, 0);
    if (tensor->shape.dtype != DTYPE_F32) {
        memcpy(address, host, tensor->bytes);
        return ERR_OK;
    }
    for (uint64_t i = 0; i < count; i++)
        ((double *)address)[i] = (double)((const float *)host)[i];
    return ERR_OK;
}

static enum err_code ref_download(struct device *device, const struct device_tensor *tensor,
                                  const void *address, void *host, struct err *err)
{
    (void)device;
    (void)err;
    uint64_t count = tensor_shape_elements(&tensor->shape, 0);
    if (tensor->shape.dtype != DTYPE_F32) {
        memcpy(host, address, tensor->bytes);
        return ERR_OK;
    }
    for (uint64_t i = 0; i < count; i++)
        ((float *)host)[i] = (float)((const double *)address)[i];
    return ERR_OK;
}

static enum err_code ref_op_new(struct device *device, const struct graph_node *node,
                                struct device_tensor *const *in, struct device_tensor *const *out,
                                struct device_op **ret_op, struct err *err)
{
    if (!kernels[node->op])
        return err_set(err, ERR_INVALID, "device ref has no kernel for it");
    struct ref_op *op = base_alloc(sizeof(*op));
    op->base.is_view = node->op == OP_FLATTEN || node->op == OP_RESHAPE;
    op->run = kernels[node->op];
    op->call.attrs = &node->attrs;
    for (size_t i = 0; i < node->in_count; i++)
        op->call.in_shape[i] = &in[i]->shape;
    for (size_t i = 0; i < node->out_count; i++) {
        if (!out[i])
            continue;
        op->call.out_shape[i] = &out[i]->shape;
        if (out[i]->shape.dtype != DTYPE_OPAQUE) {
            if (ref_tensor_init(device, out[i], err)) {
                free(op);
                return ERR_INVALID;
            }
        } else { /* one word for each element of output 0 */
            out[i]->bytes = tensor_shape_elements(&out[0]->shape, 0) * sizeof(int64_t);
        }
    }
    *ret_op = &op->base;
    return ERR_OK;
}

static void ref_op_free(struct device *device, struct device_op *op)
{
    (void)device;
    free(op);
}

static enum err_code ref_op_run(struct device *device, struct device_op *op,
                                const struct device_call *call, struct err *err)
{
    (void)device;
    (void)err;
    struct ref_op *ref = CONTAINER_OF(op, struct ref_op, base);
    memcpy(ref->call.in, call->in, sizeof(call->in));
    memcpy(ref->call.out, call->out, sizeof(call->out));
    ref->run(&ref->call);
    return ERR_OK;
}

const struct device_ops device_ref_ops = {
    .name = "ref",
    .is_host = false,
    .open = ref_open,
    .close = ref_close,
    .buf_new = device_host_buf_new,
    .buf_free = device_host_buf_free,
    .tensor_init = ref_tensor_init,
    .upload = ref_upload,
    .download = ref_download,
    .op_new = ref_op_new,
    .op_free = ref_op_free,
    .op_run = ref_op_run,
    .step_begin = device_step_begin_free,
    .mark = device_mark_done,
    .wait = device_wait_done,
};
