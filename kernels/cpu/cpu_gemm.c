/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_gemm: matrix product by dnnl_sgemm on plain row-major arrays, so that weights need no reorder
 * on their way from and to the parameter servers. */
#include <stdlib.h>

#include "kernels/cpu/cpu_dnnl.h"
#include "kernels/cpu/cpu_team.h"
#include "kernels/device/vec.h"

struct gemm_op {
    struct cpu_op base;
    bool trans_a, trans_b, has_bias;
    dnnl_dim_t rows, cols, inner;
    float *y;          /* of the present run */
    const float *bias; /* likewise */
};

static void add_bias(const void *arg, size_t first, size_t end)
{
    const struct gemm_op *op = arg;
    size_t cols = (size_t)op->cols;
    for (size_t i = first; i < end; i++)
        vec_add(op->y + i * cols, op->bias, cols);
}

static enum err_code gemm_run(struct cpu_device *device, struct cpu_op *base,
                              const struct device_call *call, struct err *err)
{
    struct gemm_op *op = CONTAINER_OF(base, struct gemm_op, base);
    op->y = call->out[0];
    op->bias = call->in[2];
    dnnl_status_t status =
        dnnl_sgemm(op->trans_a ? 'T' : 'N', op->trans_b ? 'T' : 'N', op->rows, op->cols, op->inner,
                   1.0f, call->in[0], op->trans_a ? op->rows : op->inner, call->in[1],
                   op->trans_b ? op->inner : op->cols, 0.0f, op->y, op->cols);
    if (cpu_dnnl_check(err, status, "dnnl_sgemm"))
        return err->code;
    if (op->has_bias)
        cpu_team_run(device->threads, add_bias, op, (size_t)op->rows, 2 * (size_t)op->cols);
    return ERR_OK;
}

static void gemm_free(struct cpu_op *base)
{
    free(CONTAINER_OF(base, struct gemm_op, base));
}

enum err_code cpu_gemm_new(const struct cpu_build *build, struct cpu_op **ret_op, struct err *err)
{
    const struct op_attrs *attrs = &build->node->attrs;
    if (cpu_tensor_set(build->out[0], DEVICE_LAYOUT_CANONICAL, err))
        return err->code;
    struct gemm_op *op = base_alloc(sizeof(*op));
    op->base.run = gemm_run;
    op->base.free = gemm_free;
    op->trans_a = attrs->trans_a;
    op->trans_b = attrs->trans_b;
    op->has_bias = build->node->in_count == 3;
    op->rows = (dnnl_dim_t)build->out[0]->shape.dims[0];
    op->cols = (dnnl_dim_t)build->out[0]->shape.dims[1];
    op->inner = (dnnl_dim_t)build->in[0]->shape.dims[!attrs->trans_a];
    *ret_op = &op->base;
    return ERR_OK;
}
