/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_dnnl: an operator made of one primitive and a port for each of its arguments. */
#include "kernels/cpu/cpu_dnnl.h"

#include <stdlib.h>

#define ARG_MAX 6 /* batch normalisation's backward half has the most: five and the workspace */

struct dnnl_op {
    struct cpu_op base;
    dnnl_primitive_t primitive;
    size_t arg_count;
    int ids[ARG_MAX];
    struct cpu_port ports[ARG_MAX];
    dnnl_memory_t memories[ARG_MAX];
    dnnl_memory_t pad; /* NULL: needs none */
    size_t pad_offset;
};

static void op_free(struct cpu_op *base)
{
    struct dnnl_op *op = CONTAINER_OF(base, struct dnnl_op, base);
    for (size_t i = 0; i < op->arg_count; i++) {
        cpu_port_done(&op->ports[i]);
        cpu_dnnl_memory_done(op->memories[i]);
    }
    cpu_dnnl_memory_done(op->pad);
    if (op->primitive)
        ASSERT(dnnl_primitive_destroy(op->primitive) == dnnl_success);
    free(op);
}

static enum err_code op_run(struct cpu_device *device, struct cpu_op *base,
                            const struct device_call *call, struct err *err)
{
    struct dnnl_op *op = CONTAINER_OF(base, struct dnnl_op, base);
    dnnl_exec_arg_t args[ARG_MAX + 1];
    size_t count = 0;
    dnnl_status_t status = dnnl_success;
    for (size_t i = 0; i < op->arg_count && status == dnnl_success; i++) {
        if (cpu_port_begin(device, &op->ports[i], call, err))
            return err->code;
        args[count++] = (dnnl_exec_arg_t){op->ids[i], op->memories[i]};
        status = dnnl_memory_set_data_handle(op->memories[i], op->ports[i].address);
    }
    if (op->pad && status == dnnl_success) {
        args[count++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, op->pad};
        status = dnnl_memory_set_data_handle(op->pad, (char *)call->scratch + op->pad_offset);
    }
    if (status == dnnl_success)
        status = dnnl_primitive_execute(op->primitive, device->stream, (int)count, args);
    if (status == dnnl_success)
        status = dnnl_stream_wait(device->stream);
    if (cpu_dnnl_check(err, status, "execution"))
        return err->code;
    for (size_t i = 0; i < op->arg_count; i++)
        if (cpu_port_end(device, &op->ports[i], call, err))
            return err->code;
    return ERR_OK;
}

/* The layout of ours that a description is in; canonical where it is none. */
static enum err_code choose_layout(struct device_tensor *tensor, const dnnl_memory_desc_t *inner,
                                   struct err *err)
{
    static const uint32_t blocks[] = {16, 8};
    uint32_t layout = DEVICE_LAYOUT_CANONICAL;
    for (size_t i = 0; !tensor->is_external && tensor->shape.rank == 4 && i < ARRAY_SIZE(blocks);
         i++) {
        dnnl_memory_desc_t blocked;
        if (cpu_dnnl_desc(tensor, blocks[i], &blocked, err))
            return err->code;
        if (dnnl_memory_desc_equal(&blocked, inner))
            layout = blocks[i];
    }
    return cpu_tensor_set(tensor, layout, err);
}

static enum err_code add_arg(const struct cpu_build *build, struct dnnl_op *op,
                             const_dnnl_primitive_desc_t desc, const struct cpu_dnnl_arg *arg,
                             struct err *err)
{
    const dnnl_memory_desc_t *inner =
        dnnl_primitive_desc_query_md(desc, dnnl_query_exec_arg_md, arg->id);
    if (!inner)
        return err_set(err, ERR_DEVICE, "oneDNN does not know argument %d", arg->id);
    size_t i = op->arg_count++;
    op->ids[i] = arg->id;
    if ((arg->is_out && choose_layout(build->out[arg->index], inner, err)) ||
        cpu_port_init_desc(build, &op->base, &op->ports[i], arg->is_out, arg->index, inner, err))
        return err->code;
    return cpu_dnnl_check(
        err, dnnl_memory_create(&op->memories[i], inner, build->device->engine, DNNL_MEMORY_NONE),
        "memory");
}

enum err_code cpu_dnnl_op_new(const struct cpu_build *build, const_dnnl_primitive_desc_t desc,
                              const struct cpu_dnnl_arg *args, size_t arg_count,
                              struct cpu_op **ret_op, struct err *err)
{
    ASSERT(arg_count <= ARG_MAX);
    struct dnnl_op *op = base_alloc(sizeof(*op));
    op->base.run = op_run;
    op->base.free = op_free;
    enum err_code code =
        cpu_dnnl_check(err, dnnl_primitive_create(&op->primitive, desc), "primitive");
    for (size_t i = 0; i < arg_count && code == ERR_OK; i++)
        code = add_arg(build, op, desc, &args[i], err);
    const dnnl_memory_desc_t *pad = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    if (code == ERR_OK && pad && dnnl_memory_desc_get_size(pad) > 0) {
        op->pad_offset = cpu_scratch_reserve(&op->base, dnnl_memory_desc_get_size(pad));
        code = cpu_dnnl_check(
            err, dnnl_memory_create(&op->pad, pad, build->device->engine, DNNL_MEMORY_NONE),
            "scratchpad");
    }
    if (code) {
        op_free(&op->base);
        return code;
    }
    *ret_op = &op->base;
    return ERR_OK;
}
