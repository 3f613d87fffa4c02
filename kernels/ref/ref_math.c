/* SPDX-License-Identifier: Apache-2.0 */
/* ref_math: elementwise operators, matrix product and sum. */
#include "kernels/ref/ref_int.h"

#include <string.h>

static uint64_t count_of(const struct ref_call *c)
{
    return tensor_shape_elements(c->out_shape[0], 0);
}

void ref_relu(const struct ref_call *c)
{
    const double *x = c->in[0];
    double *y = c->out[0];
    for (uint64_t i = 0; i < count_of(c); i++)
        y[i] = x[i] < 0 ? 0 : x[i];
}

void ref_relu_grad(const struct ref_call *c)
{
    const double *dy = c->in[0];
    const double *y = c->in[1];
    double *dx = c->out[0];
    for (uint64_t i = 0; i < count_of(c); i++)
        dx[i] = y[i] <= 0 ? 0 : dy[i];
}

void ref_add(const struct ref_call *c)
{
    const double *a = c->in[0];
    const double *b = c->in[1];
    double *y = c->out[0];
    for (uint64_t i = 0; i < count_of(c); i++)
        y[i] = a[i] + b[i];
}

void ref_copy(const struct ref_call *c)
{
    if (c->out[0] != c->in[0])
        memcpy(c->out[0], c->in[0], count_of(c) * sizeof(double));
}

void ref_gemm(const struct ref_call *c)
{
    const bool ta = c->attrs->trans_a;
    const bool tb = c->attrs->trans_b;
    const uint64_t rows = c->out_shape[0]->dims[0];
    const uint64_t cols = c->out_shape[0]->dims[1];
    const uint64_t inner = c->in_shape[0]->dims[!ta];
    const double *a = c->in[0];
    const double *b = c->in[1];
    const double *bias = c->in[2];
    double *y = c->out[0];
    for (uint64_t i = 0; i < rows; i++)
        for (uint64_t j = 0; j < cols; j++) {
            double sum = bias ? bias[j] : 0.0;
            for (uint64_t k = 0; k < inner; k++)
                sum += a[ta ? k * rows + i : i * inner + k] * b[tb ? j * inner + k : k * cols + j];
            y[i * cols + j] = sum;
        }
}

void ref_reduce_sum(const struct ref_call *c)
{
    const uint64_t rows = c->in_shape[0]->dims[0];
    const uint64_t cols = c->in_shape[0]->dims[1];
    const double *x = c->in[0];
    double *y = c->out[0];
    for (uint64_t j = 0; j < cols; j++) {
        y[j] = 0;
        for (uint64_t i = 0; i < rows; i++)
            y[j] += x[i * cols + j];
    }
}
