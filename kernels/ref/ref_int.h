/* SPDX-License-Identifier: Apache-2.0 */
/* ref_int: one call of a reference kernel. Floats are doubles, labels int32_t, workspaces int64_t.
 */
#ifndef KERNELS_REF_REF_INT_H
#define KERNELS_REF_REF_INT_H

#include "kernels/device/device.h"

struct ref_call {
    const struct op_attrs *attrs;
    const struct tensor_shape *in_shape[OP_IN_MAX];
    const struct tensor_shape *out_shape[OP_OUT_MAX];
    const void *in[OP_IN_MAX]; /* NULL: not there */
    void *out[OP_OUT_MAX];
};

void ref_conv(const struct ref_call *c);
void ref_conv_grad_data(const struct ref_call *c);
void ref_conv_grad_weights(const struct ref_call *c);
void ref_max_pool(const struct ref_call *c);
void ref_max_pool_grad(const struct ref_call *c);
void ref_relu(const struct ref_call *c);
void ref_relu_grad(const struct ref_call *c);
void ref_add(const struct ref_call *c);
void ref_copy(const struct ref_call *c);
void ref_gemm(const struct ref_call *c);
void ref_reduce_sum(const struct ref_call *c);
void ref_softmax(const struct ref_call *c);
void ref_softmax_loss(const struct ref_call *c);
void ref_softmax_loss_grad(const struct ref_call *c);

#endif
