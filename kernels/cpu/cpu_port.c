/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_port: layouts as oneDNN describes them, and reorders between them. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu_dnnl.h"

enum err_code cpu_dnnl_check(struct err *err, dnnl_status_t status, const char *what)
{
    const char *name = "an unknown status";
    switch (status) {
    case dnnl_success:
        return ERR_OK;
    case dnnl_out_of_memory:
        return err_set(err, ERR_NO_MEMORY, "%s: oneDNN says out_of_memory", what);
    case dnnl_invalid_arguments:
        name = "invalid_arguments";
        break;
    case dnnl_unimplemented:
        name = "unimplemented";
        break;
    case dnnl_iterator_ends:
        name = "iterator_ends";
        break;
    case dnnl_runtime_error:
        name = "runtime_error";
        break;
    case dnnl_not_required:
        name = "not_required";
        break;
    }
    return err_set(err, ERR_DEVICE, "%s: oneDNN says %s", what, name);
}

enum err_code cpu_dnnl_open(struct cpu_device *device, struct err *err)
{
    dnnl_status_t status = dnnl_engine_create(&device->engine, dnnl_cpu, 0);
    if (status == dnnl_success)
        status = dnnl_stream_create(&device->stream, device->engine, dnnl_stream_default_flags);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_create(&device->attr);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(device->attr, dnnl_scratchpad_mode_user);
    return cpu_dnnl_check(err, status, "device cpu: engine and stream");
}

/* Destroying what was created does not fail. */
void cpu_dnnl_close(struct cpu_device *device)
{
    if (device->attr)
        ASSERT(dnnl_primitive_attr_destroy(device->attr) == dnnl_success);
    if (device->stream)
        ASSERT(dnnl_stream_destroy(device->stream) == dnnl_success);
    if (device->engine)
        ASSERT(dnnl_engine_destroy(device->engine) == dnnl_success);
}

void cpu_dnnl_memory_done(dnnl_memory_t memory)
{
    if (memory)
        ASSERT(dnnl_memory_destroy(memory) == dnnl_success);
}

static enum err_code desc_with_tag(const struct device_tensor *tensor, dnnl_format_tag_t tag,
                                   dnnl_memory_desc_t *ret_desc, struct err *err)
{
    if (tensor->shape.dtype != DTYPE_F32)
        return err_set(err, ERR_INVALID, "tensor %s: device cpu computes in f32 only",
                       tensor->name);
    dnnl_dims_t dims = {1}; /* a scalar is one element of rank 1 */
    for (uint32_t i = 0; i < tensor->shape.rank; i++)
        dims[i] = (dnnl_dim_t)tensor->shape.dims[i];
    dnnl_status_t status = dnnl_memory_desc_init_by_tag(ret_desc, (int)MAX(tensor->shape.rank, 1u),
                                                        dims, dnnl_f32, tag);
    return cpu_dnnl_check(err, status, "memory description");
}

enum err_code cpu_dnnl_desc(const struct device_tensor *tensor, uint32_t layout,
                            dnnl_memory_desc_t *ret_desc, struct err *err)
{
    static const dnnl_format_tag_t canonical[] = {dnnl_a,   dnnl_a,    dnnl_ab,
                                                  dnnl_abc, dnnl_abcd, dnnl_abcde};
    if (tensor->shape.rank >= ARRAY_SIZE(canonical))
        return err_set(err, ERR_INVALID, "tensor %s: rank %u: device cpu takes ranks up to 5",
                       tensor->name, tensor->shape.rank);
    dnnl_format_tag_t tag = canonical[tensor->shape.rank];
    if (layout != DEVICE_LAYOUT_CANONICAL) {
        ASSERT(tensor->shape.rank == 4 && (layout == 16 || layout == 8));
        tag = layout == 16 ? dnnl_nChw16c : dnnl_nChw8c;
    }
    return desc_with_tag(tensor, tag, ret_desc, err);
}

enum err_code cpu_dnnl_desc_any(const struct device_tensor *tensor, dnnl_memory_desc_t *ret_desc,
                                struct err *err)
{
    return desc_with_tag(tensor, dnnl_format_tag_any, ret_desc, err);
}

enum err_code cpu_tensor_set(struct device_tensor *tensor, uint32_t layout, struct err *err)
{
    if (tensor->shape.dtype == DTYPE_I32) {
        tensor->layout = DEVICE_LAYOUT_CANONICAL;
        tensor->bytes = tensor_shape_elements(&tensor->shape, 0) * sizeof(int32_t);
        return ERR_OK;
    }
    dnnl_memory_desc_t desc;
    if (cpu_dnnl_desc(tensor, layout, &desc, err))
        return err->code;
    tensor->layout = layout;
    tensor->bytes = dnnl_memory_desc_get_size(&desc);
    return ERR_OK;
}

size_t cpu_scratch_reserve(struct cpu_op *op, size_t bytes)
{
    size_t offset = op->base.scratch_bytes;
    op->base.scratch_bytes += (bytes + DEVICE_ALIGN - 1) / DEVICE_ALIGN * DEVICE_ALIGN;
    return offset;
}

static enum err_code add_reorder(struct cpu_device *device, struct cpu_op *op,
                                 struct cpu_port *port, const dnnl_memory_desc_t *outer,
                                 const dnnl_memory_desc_t *inner, struct err *err)
{
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t status = dnnl_reorder_primitive_desc_create(
        &desc, port->is_out ? inner : outer, device->engine, port->is_out ? outer : inner,
        device->engine, device->attr);
    if (status == dnnl_success)
        status = dnnl_primitive_create(&port->reorder, desc);
    if (status == dnnl_success)
        status = dnnl_memory_create(&port->outer, outer, device->engine, DNNL_MEMORY_NONE);
    if (status == dnnl_success)
        status = dnnl_memory_create(&port->inner, inner, device->engine, DNNL_MEMORY_NONE);
    const dnnl_memory_desc_t *pad =
        status == dnnl_success ? dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0)
                               : NULL;
    if (pad && dnnl_memory_desc_get_size(pad) > 0) {
        port->pad_offset = cpu_scratch_reserve(op, dnnl_memory_desc_get_size(pad));
        status = dnnl_memory_create(&port->pad, pad, device->engine, DNNL_MEMORY_NONE);
    }
    if (desc && dnnl_primitive_desc_destroy(desc) != dnnl_success && status == dnnl_success)
        status = dnnl_runtime_error;
    port->inner_offset = cpu_scratch_reserve(op, dnnl_memory_desc_get_size(inner));
    return cpu_dnnl_check(err, status, "reorder");
}

enum err_code cpu_port_init_desc(const struct cpu_build *build, struct cpu_op *op,
                                 struct cpu_port *port, bool is_out, size_t index,
                                 const dnnl_memory_desc_t *inner, struct err *err)
{
    const struct device_tensor *tensor = is_out ? build->out[index] : build->in[index];
    *port = (struct cpu_port){.is_out = is_out, .index = index};
    dnnl_memory_desc_t outer;
    if (cpu_dnnl_desc(tensor, tensor->layout, &outer, err))
        return err->code;
    if (dnnl_memory_desc_equal(&outer, inner))
        return ERR_OK;
    return add_reorder(build->device, op, port, &outer, inner, err);
}

enum err_code cpu_port_init(const struct cpu_build *build, struct cpu_op *op, struct cpu_port *port,
                            bool is_out, size_t index, uint32_t layout, struct err *err)
{
    dnnl_memory_desc_t inner;
    if (cpu_dnnl_desc(is_out ? build->out[index] : build->in[index], layout, &inner, err))
        return err->code;
    return cpu_port_init_desc(build, op, port, is_out, index, &inner, err);
}

void cpu_port_done(struct cpu_port *port)
{
    if (port->reorder)
        ASSERT(dnnl_primitive_destroy(port->reorder) == dnnl_success);
    cpu_dnnl_memory_done(port->outer);
    cpu_dnnl_memory_done(port->inner);
    cpu_dnnl_memory_done(port->pad);
}

static enum err_code run_reorder(struct cpu_device *device, struct cpu_port *port, void *outer,
                                 const struct device_call *call, struct err *err)
{
    dnnl_exec_arg_t args[3] = {
        {DNNL_ARG_FROM, port->is_out ? port->inner : port->outer},
        {DNNL_ARG_TO, port->is_out ? port->outer : port->inner},
        {DNNL_ARG_SCRATCHPAD, port->pad},
    };
    dnnl_status_t status = dnnl_memory_set_data_handle(port->outer, outer);
    if (status == dnnl_success)
        status = dnnl_memory_set_data_handle(port->inner, port->address);
    if (status == dnnl_success && port->pad)
        status = dnnl_memory_set_data_handle(port->pad, (char *)call->scratch + port->pad_offset);
    if (status == dnnl_success)
        status = dnnl_primitive_execute(port->reorder, device->stream, port->pad ? 3 : 2, args);
    return cpu_dnnl_check(err, status, "reorder");
}

enum err_code cpu_port_begin(struct cpu_device *device, struct cpu_port *port,
                             const struct device_call *call, struct err *err)
{
    void *outer = port->is_out ? call->out[port->index] : (void *)call->in[port->index];
    port->address = port->reorder ? (char *)call->scratch + port->inner_offset : outer;
    if (!port->is_out && port->reorder)
        return run_reorder(device, port, outer, call, err);
    return ERR_OK;
}

enum err_code cpu_port_convert(struct cpu_device *device, struct cpu_port *port,
                               const struct device_call *call, void *to, struct err *err)
{
    ASSERT(!port->is_out && port->reorder);
    port->address = to;
    return run_reorder(device, port, (void *)call->in[port->index], call, err);
}

enum err_code cpu_port_end(struct cpu_device *device, struct cpu_port *port,
                           const struct device_call *call, struct err *err)
{
    if (port->is_out && port->reorder)
        return run_reorder(device, port, call->out[port->index], call, err);
    return ERR_OK;
}
