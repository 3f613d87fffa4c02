/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_conv: convolution and its two gradients by oneDNN, in the layouts it likes best. */
#include "kernels/cpu/cpu_dnnl.h"

struct conv_shape {
    dnnl_memory_desc_t x, w, b, y;
    dnnl_dims_t strides, pad_begin, pad_end;
};

/* b NULL: without bias. */
static enum err_code conv_shape_init(struct conv_shape *s, const struct op_attrs *attrs,
                                     const struct device_tensor *x, const struct device_tensor *w,
                                     const struct device_tensor *b, const struct device_tensor *y,
                                     struct err *err)
{
    *s = (struct conv_shape){
        .strides = {attrs->strides[0], attrs->strides[1]},
        .pad_begin = {attrs->pads[0], attrs->pads[1]},
        .pad_end = {attrs->pads[2], attrs->pads[3]},
    };
    if (cpu_dnnl_desc_any(x, &s->x, err) || cpu_dnnl_desc_any(w, &s->w, err) ||
        cpu_dnnl_desc_any(y, &s->y, err))
        return err->code;
    return b ? cpu_dnnl_desc_any(b, &s->b, err) : ERR_OK;
}

static dnnl_status_t forward_desc(struct cpu_device *device, const struct conv_shape *s,
                                  bool has_bias, dnnl_primitive_desc_t *ret_desc)
{
    dnnl_convolution_desc_t op;
    dnnl_status_t status = dnnl_convolution_forward_desc_init(
        &op, dnnl_forward_training, dnnl_convolution_direct, &s->x, &s->w, has_bias ? &s->b : NULL,
        &s->y, s->strides, s->pad_begin, s->pad_end);
    if (status != dnnl_success)
        return status;
    return dnnl_primitive_desc_create(ret_desc, &op, device->attr, device->engine, NULL);
}

/* Makes the operator of desc, unless status says that there is none, and ends desc. */
static enum err_code finish(const struct cpu_build *build, dnnl_status_t status,
                            dnnl_primitive_desc_t desc, const struct cpu_dnnl_arg *args,
                            size_t arg_count, struct cpu_op **ret_op, struct err *err)
{
    enum err_code code = cpu_dnnl_check(err, status, "convolution");
    if (code == ERR_OK)
        code = cpu_dnnl_op_new(build, desc, args, arg_count, ret_op, err);
    if (desc)
        ASSERT(dnnl_primitive_desc_destroy(desc) == dnnl_success);
    return code;
}

enum err_code cpu_conv_new(const struct cpu_build *build, struct cpu_op **ret_op, struct err *err)
{
    static const struct cpu_dnnl_arg args[] = {
        {DNNL_ARG_SRC, false, 0},
        {DNNL_ARG_WEIGHTS, false, 1},
        {DNNL_ARG_DST, true, 0},
        {DNNL_ARG_BIAS, false, 2},
    };
    bool has_bias = build->node->in_count == 3;
    struct conv_shape s;
    if (conv_shape_init(&s, &build->node->attrs, build->in[0], build->in[1],
                        has_bias ? build->in[2] : NULL, build->out[0], err))
        return err->code;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t status = forward_desc(build->device, &s, has_bias, &desc);
    return finish(build, status, desc, args, has_bias ? 4 : 3, ret_op, err);
}

enum err_code cpu_conv_grad_data_new(const struct cpu_build *build, struct cpu_op **ret_op,
                                     struct err *err)
{
    static const struct cpu_dnnl_arg args[] = {
        {DNNL_ARG_WEIGHTS, false, 0},
        {DNNL_ARG_DIFF_DST, false, 1},
        {DNNL_ARG_DIFF_SRC, true, 0},
    };
    struct conv_shape s;
    if (conv_shape_init(&s, &build->node->attrs, build->out[0], build->in[0], NULL, build->in[1],
                        err))
        return err->code;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_convolution_desc_t op;
    dnnl_status_t status = forward_desc(build->device, &s, false, &hint);
    if (status == dnnl_success)
        status = dnnl_convolution_backward_data_desc_init(&op, dnnl_convolution_direct, &s.x, &s.w,
                                                          &s.y, s.strides, s.pad_begin, s.pad_end);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(&desc, &op, build->device->attr, build->device->engine,
                                            hint);
    if (hint)
        ASSERT(dnnl_primitive_desc_destroy(hint) == dnnl_success);
    return finish(build, status, desc, args, ARRAY_SIZE(args), ret_op, err);
}

enum err_code cpu_conv_grad_weights_new(const struct cpu_build *build, struct cpu_op **ret_op,
                                        struct err *err)
{
    static const struct cpu_dnnl_arg args[] = {
        {DNNL_ARG_SRC, false, 0},
        {DNNL_ARG_DIFF_DST, false, 1},
        {DNNL_ARG_DIFF_WEIGHTS, true, 0},
        {DNNL_ARG_DIFF_BIAS, true, 1},
    };
    bool has_bias = build->node->out_count == 2;
    struct conv_shape s;
    if (conv_shape_init(&s, &build->node->attrs, build->in[0], build->out[0],
                        has_bias ? build->out[1] : NULL, build->in[1], err))
        return err->code;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_convolution_desc_t op;
    dnnl_status_t status = forward_desc(build->device, &s, has_bias, &hint);
    if (status == dnnl_success)
        status = dnnl_convolution_backward_weights_desc_init(&op, dnnl_convolution_direct, &s.x,
                                                             &s.w, has_bias ? &s.b : NULL, &s.y,
                                                             s.strides, s.pad_begin, s.pad_end);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(&desc, &op, build->device->attr, build->device->engine,
                                            hint);
    if (hint)
        ASSERT(dnnl_primitive_desc_destroy(hint) == dnnl_success);
    return finish(build, status, desc, args, has_bias ? 4 : 3, ret_op, err);
}
