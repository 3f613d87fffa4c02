/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_loop: operators made of the loops in cpu_kernels: a port for each float tensor, then the
 * loop, cut into units for the threads of the device. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/cpu_team.h"

#define PORT_MAX 3
/* A unit of an elementwise loop: a line of the cache, so that no two threads write one. */
#define LINE (DEVICE_ALIGN / sizeof(float))
/* An exponential takes as long as this many floats of an elementwise loop. */
#define EXP_COST 16

static size_t lines_of(size_t count)
{
    return (count + LINE - 1) / LINE;
}

struct loop_op {
    struct cpu_op base;
    void (*kernel)(const struct loop_op *op, size_t first, size_t end); /* units [first, end) */
    size_t units, unit_cost;                                            /* cpu_team.h */
    void (*finish)(const struct loop_op *op); /* after all units; NULL: nothing */
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

static void run_units(const void *arg, size_t first, size_t end)
{
    const struct loop_op *op = arg;
    op->kernel(op, first, end);
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
    cpu_team_run(device->threads, run_units, op, op->units, op->unit_cost);
    if (op->finish)
        op->finish(op);
    for (size_t i = 0; i < op->port_count; i++)
        if (cpu_port_end(device, &op->ports[i], call, err))
            return err->code;
    return ERR_OK;
}

/* An operator whose kernel wants its float tensors in layout; output 0 keeps it where it may. Its
 * units are the lines of output 0 until the caller says otherwise. */
static enum err_code loop_new(const struct cpu_build *build,
                              void (*kernel)(const struct loop_op *op, size_t first, size_t end),
                              uint32_t layout, struct loop_op **ret_loop, struct err *err)
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
    op->units = lines_of(op->count);
    op->unit_cost = LINE * (build->node->in_count + 1);
    *ret_loop = op;
    return ERR_OK;
}

/* ---- elementwise: a unit is a line ---- */
static enum err_code elementwise_new(const struct cpu_build *build,
                                     void (*kernel)(const struct loop_op *op, size_t first,
                                                    size_t end),
                                     uint32_t layout, struct cpu_op **ret_op, struct err *err)
{
    struct loop_op *op = NULL;
    if (loop_new(build, kernel, layout, &op, err))
        return err->code;
    *ret_op = &op->base;
    return ERR_OK;
}

/* Where the unit begins, in floats; that of the last one's end is the end of the loop. */
static size_t line_at(size_t line, size_t count)
{
    return MIN(line * LINE, count);
}

static void run_relu(const struct loop_op *op, size_t first, size_t end)
{
    size_t at = line_at(first, op->count);
    cpu_kernel_relu((const float *)op->in[0] + at, (float *)op->out[0] + at,
                    line_at(end, op->count) - at);
}

static void run_relu_grad(const struct loop_op *op, size_t first, size_t end)
{
    size_t at = line_at(first, op->count);
    cpu_kernel_relu_grad((const float *)op->in[0] + at, (const float *)op->in[1] + at,
                         (float *)op->out[0] + at, line_at(end, op->count) - at);
}

static void run_add(const struct loop_op *op, size_t first, size_t end)
{
    size_t at = line_at(first, op->count);
    cpu_kernel_add((const float *)op->in[0] + at, (const float *)op->in[1] + at,
                   (float *)op->out[0] + at, line_at(end, op->count) - at);
}

enum err_code cpu_relu_new(const struct cpu_build *build, struct cpu_op **ret_op, struct err *err)
{
    return elementwise_new(build, run_relu, build->in[0]->layout, ret_op, err);
}

/* In the layout of y: dy may come from a Reshape, whose layout is canonical, and dx goes on to what
 * made y. */
enum err_code cpu_relu_grad_new(const struct cpu_build *build, struct cpu_op **ret_op,
                                struct err *err)
{
    return elementwise_new(build, run_relu_grad, build->in[1]->layout, ret_op, err);
}

enum err_code cpu_add_new(const struct cpu_build *build, struct cpu_op **ret_op, struct err *err)
{
    return elementwise_new(build, run_add, build->in[0]->layout, ret_op, err);
}

/* ---- sums of columns: a unit is a line of them ---- */
static void run_sum_rows(const struct loop_op *op, size_t first, size_t end)
{
    size_t at = line_at(first, op->cols);
    cpu_kernel_sum_rows((const float *)op->in[0] + at, (float *)op->out[0] + at, op->rows,
                        line_at(end, op->cols) - at, op->cols);
}

enum err_code cpu_reduce_sum_new(const struct cpu_build *build, struct cpu_op **ret_op,
                                 struct err *err)
{
    struct loop_op *op = NULL;
    if (loop_new(build, run_sum_rows, DEVICE_LAYOUT_CANONICAL, &op, err))
        return err->code;
    op->unit_cost = LINE * op->rows;
    *ret_op = &op->base;
    return ERR_OK;
}

/* ---- softmax: a unit is a row ---- */
static enum err_code rows_new(const struct cpu_build *build,
                              void (*kernel)(const struct loop_op *op, size_t first, size_t end),
                              void (*finish)(const struct loop_op *op), struct cpu_op **ret_op,
                              struct err *err)
{
    struct loop_op *op = NULL;
    if (loop_new(build, kernel, DEVICE_LAYOUT_CANONICAL, &op, err))
        return err->code;
    op->finish = finish;
    op->units = op->rows;
    op->unit_cost = op->cols * EXP_COST;
    *ret_op = &op->base;
    return ERR_OK;
}

static void run_softmax(const struct loop_op *op, size_t first, size_t end)
{
    size_t at = first * op->cols;
    cpu_kernel_softmax((const float *)op->in[0] + at, (float *)op->out[0] + at, end - first,
                       op->cols);
}

static void run_log_softmax(const struct loop_op *op, size_t first, size_t end)
{
    size_t at = first * op->cols;
    cpu_kernel_log_softmax((const float *)op->in[0] + at, (float *)op->out[1] + at, end - first,
                           op->cols);
}

static void finish_loss(const struct loop_op *op)
{
    *(float *)op->out[0] = cpu_kernel_mean_loss(op->out[1], op->in[1], op->rows, op->cols);
}

static void run_softmax_loss_grad(const struct loop_op *op, size_t first, size_t end)
{
    size_t at = first * op->cols;
    cpu_kernel_softmax_loss_grad((const float *)op->in[0] + at, (const int32_t *)op->in[1] + first,
                                 (float *)op->out[0] + at, end - first, op->cols, op->rows);
}

enum err_code cpu_softmax_new(const struct cpu_build *build, struct cpu_op **ret_op,
                              struct err *err)
{
    return rows_new(build, run_softmax, NULL, ret_op, err);
}

enum err_code cpu_softmax_loss_new(const struct cpu_build *build, struct cpu_op **ret_op,
                                   struct err *err)
{
    if (cpu_tensor_set(build->out[1], DEVICE_LAYOUT_CANONICAL, err))
        return err->code;
    return rows_new(build, run_log_softmax, finish_loss, ret_op, err);
}

enum err_code cpu_softmax_loss_grad_new(const struct cpu_build *build, struct cpu_op **ret_op,
                                        struct err *err)
{
    return rows_new(build, run_softmax_loss_grad, NULL, ret_op, err);
}

/* ---- max pooling: a unit is a plane of blocks ---- */
static void run_max_pool(const struct loop_op *op, size_t first, size_t end)
{
    struct cpu_pool pool = op->pool;
    size_t in = first * pool.h * pool.w * pool.block;
    size_t out = first * pool.oh * pool.ow * pool.block;
    pool.planes = end - first;
    cpu_kernel_max_pool(&pool, (const float *)op->in[0] + in, (float *)op->out[0] + out,
                        op->out[1] ? (uint16_t *)op->out[1] + out : NULL);
}

static void run_max_pool_grad(const struct loop_op *op, size_t first, size_t end)
{
    struct cpu_pool pool = op->pool;
    size_t in = first * pool.h * pool.w * pool.block;
    size_t out = first * pool.oh * pool.ow * pool.block;
    pool.planes = end - first;
    cpu_kernel_max_pool_grad(&pool, (const float *)op->in[0] + out,
                             (const uint16_t *)op->in[1] + out, (float *)op->out[0] + in);
}

static void set_pool(struct loop_op *op, const struct cpu_pool *pool)
{
    op->pool = *pool;
    op->units = pool->planes;
    op->unit_cost = (pool->h * pool->w + pool->oh * pool->ow * pool->kh * pool->kw) * pool->block;
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
    struct cpu_pool pool = pool_of(attrs, &build->in[0]->shape, &build->out[0]->shape, layout);
    set_pool(op, &pool);
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
    struct cpu_pool pool =
        pool_of(&build->node->attrs, &build->out[0]->shape, &build->in[0]->shape, layout);
    set_pool(op, &pool);
    *ret_op = &op->base;
    return ERR_OK;
}

/* Flatten and Reshape: a view of a canonical tensor; otherwise a reorder straight into the output.
 */
struct copy_op {
    struct cpu_op base;
    struct cpu_port port;
    size_t count;    /* floats */
    const float *in; /* of the present run */
    float *out;
};

static void copy_free(struct cpu_op *base)
{
    struct copy_op *op = CONTAINER_OF(base, struct copy_op, base);
    cpu_port_done(&op->port);
    free(op);
}

static void run_copy(const void *arg, size_t first, size_t end)
{
    const struct copy_op *op = arg;
    size_t at = line_at(first, op->count);
    memcpy(op->out + at, op->in + at, (line_at(end, op->count) - at) * sizeof(float));
}

static enum err_code copy_run(struct cpu_device *device, struct cpu_op *base,
                              const struct device_call *call, struct err *err)
{
    struct copy_op *op = CONTAINER_OF(base, struct copy_op, base);
    if (op->port.reorder)
        return cpu_port_convert(device, &op->port, call, call->out[0], err);
    op->in = call->in[0];
    op->out = call->out[0];
    if (op->in != op->out)
        cpu_team_run(device->threads, run_copy, op, lines_of(op->count), 2 * LINE);
    return ERR_OK;
}

enum err_code cpu_copy_new(const struct cpu_build *build, struct cpu_op **ret_op, struct err *err)
{
    if (cpu_tensor_set(build->out[0], DEVICE_LAYOUT_CANONICAL, err))
        return err->code;
    struct copy_op *op = base_alloc(sizeof(*op));
    op->base.run = copy_run;
    op->base.free = copy_free;
    op->count = build->out[0]->bytes / sizeof(float);
    op->base.base.is_view = build->in[0]->layout == DEVICE_LAYOUT_CANONICAL;
    if (cpu_port_init(build, &op->base, &op->port, false, 0, DEVICE_LAYOUT_CANONICAL, err)) {
        copy_free(&op->base);
        return err->code;
    }
    *ret_op = &op->base;
    return ERR_OK;
}
