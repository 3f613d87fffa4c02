/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_loop: operators made of the loops in cpu_kernels: a port for each float tensor, then the
 * loop. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/cpu_kernels.h"

#define PORT_MAX 3

struct loop_op {
    struct cpu_op base;
    void (*kernel)(const struct loop_op *op);
    struct cpu_port ports[PORT_MAX];
    size_t port_count;
    size_t count;      /* elementwise: floats, padding too */
    size_t rows, cols; /* of input 0, where it has rank 2 */
    struct cpu_pool pool;
    const void *in[OP_IN_MAX]; /* of the present run */
    void *out[OP_OUT_MAX];
};

static void loop_free(struct cpu_op *base)
{
    struct loop_op *op = CONTAINER_OF(base, struct loop_op, base);
    for (size_t i = 0; i < op->port_count; i++)
        cpu_port_done(&op->ports[i]);
    free(op);
}

static enum err_code loop_run(struct cpu_device *device, struct cpu_op *base,
                              const struct device_call *call, struct err *err)
{
    struct loop_op *op = CONTAINER_OF(base, struct loop_op, base);
    memcpy(op->in, call->in, sizeof(op->in));
    memcpy(op->out, call->out, sizeof(op->out));
    for (size_t i = 0; i < op->port_count; i++) {
        struct cpu_port *port = &op->ports[i];
        if (cpu_port_begin(device, port, call, err))
            return err->code;
        if (port->is_out)
            op->out[port->index] = port->address;
        else
            op->in[port->index] = port->address;
    }
    op->kernel(op);
    for (size_t i = 0; i < op->port_count; i++)
        if (cpu_port_end(device, &op->ports[i], call, err))
            return err->code;
    return ERR_OK;
}

/* An operator whose kernel wants its float tensors in layout; output 0 keeps it where it may. */
static enum err_code loop_new(const struct cpu_build *build,
                              void (*kernel)(const struct loop_op *op), uint32_t layout,
                              struct loop_op **ret_loop, struct err *err)
{
    struct loop_op *op = base_alloc(sizeof(*op));
    enum err_code code = ERR_OK;
    op->base.run = loop_run;
    op->base.free = loop_free;
    op->kernel = kernel;
    for (size_t i = 0; i < build->node->in_count && code == ERR_OK; i++)
        if (build->in[i]->shape.dtype == DTYPE_F32)
            code = cpu_port_init(build, &op->base, &op->ports[op->port_count++], false, i, layout,
                                 err);
    struct device_tensor *out = build->out[0];
    if (code == ERR_OK)
        code = cpu_tensor_set(out, layout, err);
    op->count = out->bytes / sizeof(float);
    if (code == ERR_OK && out->is_external)
        code = cpu_tensor_set(out, DEVICE_LAYOUT_CANONICAL, err);
    if (code == ERR_OK)
        code = cpu_port_init(build, &op->base, &op->ports[op->port_count++], true, 0, layout, err);
    if (code) {
        loop_free(&op->base);
        return code;
    }
    op->rows = build->in[0]->shape.dims[0];
    op->cols = build->in[0]->shape.dims[1];
    *ret_loop = op;
    return ERR_OK;
}

/* The same for those that need nothing more. */
static enum err_code plain_new(const struct cpu_build *build,
                               void (*kernel)(const struct loop_op *op), uint32_t layout,
                               struct cpu_op **ret_op, struct err *err)
{
    struct loop_op *op = NULL;
    if (loop_new(build, kernel, layout, &op, err))
        return err->code;
    *ret_op = &op->base;
    return ERR_OK;
}

static void run_relu(const struct loop_op *op)
{
    cpu_kernel_relu(op->in[0], op->out[0], op->count);
}

static void run_relu_grad(const struct loop_op *op)
{
    cpu_kernel_relu_grad(op->in[0], op->in[1], op->out[0], op->count);
}

static void run_add(const struct loop_op *op)
{
    cpu_kernel_add(op->in[0], op->in[1], op->out[0], op->count);
}

static void run_sum_rows(const struct loop_op *op)
{
    cpu_kernel_sum_rows(op->in[0], op->out[0], op->rows, op->cols);
}

static void run_max_pool(const struct loop_op *op)
{
    cpu_kernel_max_pool(&op->pool, op->in[0], op->out[0], op->out[1]);
}

static void run_max_pool_grad(const struct loop_op *op)
{
    cpu_kernel_max_pool_grad(&op->pool, op->in[0], op->in[1], op->out[0]);
}

static void run_softmax(const struct loop_op *op)
{
    cpu_kernel_softmax(op->in[0], op->out[0], op->rows, op->cols);
}

static void run_softmax_loss(const struct loop_op *op)
{
    *(float *)op->out[0] =
        cpu_kernel_softmax_loss(op->in[0], op->in[1], op->out[1], op->rows, op->cols);
}

static void run_softmax_loss_grad(const struct loop_op *op)
{
    cpu_kernel_softmax_loss_grad(op->in[0], op->in[1], op->out[0], op->rows, op->cols);
}

enum err_code cpu_relu_new(const struct cpu_build *build, struct cpu_op **ret_op, struct err *err)
{
    return plain_new(build, run_relu, build->in[0]->layout, ret_op, err);
}

/* In the layout of y: dy may come from a Reshape, whose layout is canonical, and dx goes on to what
 * made y. */
enum err_code cpu_relu_grad_new(const struct cpu_build *build, struct cpu_op **ret_op,
                                struct err *err)
{
    return plain_new(build, run_relu_grad, build->in[1]->layout, ret_op, err);
}

enum err_code cpu_add_new(const struct cpu_build *build, struct cpu_op **ret_op, struct err *err)
{
    return plain_new(build, run_add, build->in[0]->layout, ret_op, err);
}

enum err_code cpu_reduce_sum_new(const struct cpu_build *build, struct cpu_op **ret_op,
                                 struct err *err)
{
    return plain_new(build, run_sum_rows, DEVICE_LAYOUT_CANONICAL, ret_op, err);
}

enum err_code cpu_softmax_new(const struct cpu_build *build, struct cpu_op **ret_op,
                              struct err *err)
{
    return plain_new(build, run_softmax, DEVICE_LAYOUT_CANONICAL, ret_op, err);
}

enum err_code cpu_softmax_loss_new(const struct cpu_build *build, struct cpu_op **ret_op,
                                   struct err *err)
{
    if (cpu_tensor_set(build->out[1], DEVICE_LAYOUT_CANONICAL, err))
        return err->code;
    return plain_new(build, run_softmax_loss, DEVICE_LAYOUT_CANONICAL, ret_op, err);
}

enum err_code cpu_softmax_loss_grad_new(const struct cpu_build *build, struct cpu_op **ret_op,
                                        struct err *err)
{
    return plain_new(build, run_softmax_loss_grad, DEVICE_LAYOUT_CANONICAL, ret_op, err);
}

/* x is the larger side, y the smaller; both in the same layout. */
static struct cpu_pool pool_of(const struct op_attrs *attrs, const struct tensor_shape *x,
                               const struct tensor_shape *y, uint32_t layout)
{
    size_t block = layout == DEVICE_LAYOUT_CANONICAL ? 1 : layout;
    return (struct cpu_pool){
        .planes = x->dims[0] * ((x->dims[1] + block - 1) / block),
        .block = block,
        .h = x->dims[2],
        .w = x->dims[3],
        .oh = y->dims[2],
        .ow = y->dims[3],
        .kh = attrs->kernel[0],
        .kw = attrs->kernel[1],
        .sh = attrs->strides[0],
        .sw = attrs->strides[1],
        .top = attrs->pads[0],
        .left = attrs->pads[1],
    };
}

enum err_code cpu_max_pool_new(const struct cpu_build *build, struct cpu_op **ret_op,
                               struct err *err)
{
    const struct op_attrs *attrs = &build->node->attrs;
    uint32_t layout = build->in[0]->layout;
    struct loop_op *op = NULL;
    if ((uint64_t)attrs->kernel[0] * attrs->kernel[1] > CPU_POOL_WINDOW_MAX)
        return err_set(err, ERR_INVALID, "window of %ux%u: device cpu takes up to %d points",
                       attrs->kernel[0], attrs->kernel[1], CPU_POOL_WINDOW_MAX);
    if (loop_new(build, run_max_pool, layout, &op, err))
        return err->code;
    op->pool = pool_of(attrs, &build->in[0]->shape, &build->out[0]->shape, layout);
    if (build->out[1]) {
        build->out[1]->layout = layout;
        build->out[1]->bytes = op->count * sizeof(uint16_t);
    }
    *ret_op = &op->base;
    return ERR_OK;
}

enum err_code cpu_max_pool_grad_new(const struct cpu_build *build, struct cpu_op **ret_op,
                                    struct err *err)
{
    uint32_t layout = build->in[1]->layout;
    struct loop_op *op = NULL;
    if (loop_new(build, run_max_pool_grad, layout, &op, err))
        return err->code;
    op->pool = pool_of(&build->node->attrs, &build->out[0]->shape, &build->in[0]->shape, layout);
    *ret_op = &op->base;
    return ERR_OK;
}

/* Flatten and Reshape: a view of a canonical tensor; otherwise a reorder straight into the output.
 */
struct copy_op {
    struct cpu_op base;
    struct cpu_port port;
    size_t bytes;
};

static void copy_free(struct cpu_op *base)
{
    struct copy_op *op = CONTAINER_OF(base, struct copy_op, base);
    cpu_port_done(&op->port);
    free(op);
}

static enum err_code copy_run(struct cpu_device *device, struct cpu_op *base,
                              const struct device_call *call, struct err *err)
{
    struct copy_op *op = CONTAINER_OF(base, struct copy_op, base);
    if (op->port.reorder)
        return cpu_port_convert(device, &op->port, call, call->out[0], err);
    if (call->in[0] != call->out[0])
        memcpy(call->out[0], call->in[0], op->bytes);
    return ERR_OK;
}

enum err_code cpu_copy_new(const struct cpu_build *build, struct cpu_op **ret_op, struct err *err)
{
    if (cpu_tensor_set(build->out[0], DEVICE_LAYOUT_CANONICAL, err))
        return err->code;
    struct copy_op *op = base_alloc(sizeof(*op));
    op->base.run = copy_run;
    op->base.free = copy_free;
    op->bytes = build->out[0]->bytes;
    op->base.base.is_view = build->in[0]->layout == DEVICE_LAYOUT_CANONICAL;
    if (cpu_port_init(build, &op->base, &op->port, false, 0, DEVICE_LAYOUT_CANONICAL, err)) {
        copy_free(&op->base);
        return err->code;
    }
    *ret_op = &op->base;
    return ERR_OK;
}
