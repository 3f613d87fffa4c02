/* SPDX-License-Identifier: Apache-2.0 */
/* device_cpu: the table of operators and the life of the device. */
#include "kernels/cpu/device_cpu.h"

#include <stdlib.h>

#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/cpu_team.h"

static enum err_code (*const kernels[OP_COUNT])(const struct cpu_build *build,
                                                struct cpu_op **ret_op, struct err *err) = {
    [OP_CONV] = cpu_conv_new,
    [OP_MAX_POOL] = cpu_max_pool_new,
    [OP_RELU] = cpu_relu_new,
    [OP_FLATTEN] = cpu_copy_new,
    [OP_RESHAPE] = cpu_copy_new,
    [OP_GEMM] = cpu_gemm_new,
    [OP_ADD] = cpu_add_new,
    [OP_REDUCE_SUM] = cpu_reduce_sum_new,
    [OP_SOFTMAX] = cpu_softmax_new,
    [OP_SOFTMAX_LOSS] = cpu_softmax_loss_new,
    [OP_CONV_GRAD_DATA] = cpu_conv_grad_data_new,
    [OP_CONV_GRAD_WEIGHTS] = cpu_conv_grad_weights_new,
    [OP_MAX_POOL_GRAD] = cpu_max_pool_grad_new,
    [OP_RELU_GRAD] = cpu_relu_grad_new,
    [OP_SOFTMAX_LOSS_GRAD] = cpu_softmax_loss_grad_new,
};

static void cpu_close(struct device *device)
{
    struct cpu_device *cpu = CONTAINER_OF(device, struct cpu_device, base);
    cpu_dnnl_close(cpu);
    free(cpu);
}

static enum err_code cpu_open(const struct device_options *options, struct device **ret_device,
                              struct err *err)
{
    struct cpu_device *cpu = base_alloc(sizeof(*cpu));
    cpu->base.ops = &device_cpu_ops;
    cpu->threads = MAX(options->threads, 1u);
    cpu_team_open(cpu->threads);
    if (cpu_dnnl_open(cpu, err)) {
        cpu_close(&cpu->base);
        return err->code;
    }
    *ret_device = &cpu->base;
    return ERR_OK;
}

static enum err_code cpu_tensor_init(struct device *device, struct device_tensor *tensor,
                                     struct err *err)
{
    (void)device;
    return cpu_tensor_set(tensor, DEVICE_LAYOUT_CANONICAL, err);
}

static enum err_code cpu_op_new(struct device *device, const struct graph_node *node,
                                struct device_tensor *const *in, struct device_tensor *const *out,
                                struct device_op **ret_op, struct err *err)
{
    if (!kernels[node->op])
        return err_set(err, ERR_INVALID, "device cpu has no kernel for it");
    struct cpu_build build = {
        .device = CONTAINER_OF(device, struct cpu_device, base),
        .node = node,
        .in = in,
        .out = out,
    };
    struct cpu_op *op = NULL;
    if (kernels[node->op](&build, &op, err))
        return err->code;
    *ret_op = &op->base;
    return ERR_OK;
}

static void cpu_op_free(struct device *device, struct device_op *op)
{
    (void)device;
    struct cpu_op *cpu = CONTAINER_OF(op, struct cpu_op, base);
    cpu->free(cpu);
}

static enum err_code cpu_op_run(struct device *device, struct device_op *op,
                                const struct device_call *call, struct err *err)
{
    struct cpu_op *cpu = CONTAINER_OF(op, struct cpu_op, base);
    return cpu->run(CONTAINER_OF(device, struct cpu_device, base), cpu, call, err);
}

const struct device_ops device_cpu_ops = {
    .name = "cpu",
    .is_host = true,
    .open = cpu_open,
    .close = cpu_close,
    .buf_new = device_host_buf_new,
    .buf_free = device_host_buf_free,
    .tensor_init = cpu_tensor_init,
    .upload = device_stub_upload,
    .download = device_stub_download,
    .op_new = cpu_op_new,
    .op_free = cpu_op_free,
    .op_run = cpu_op_run,
    .step_begin = device_step_begin_free,
    .mark = device_mark_done,
    .wait = device_wait_done,
};
