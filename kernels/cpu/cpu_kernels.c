/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels: elementwise loops and softmax (max pooling: cpu_pool.c); built with -O3
 * -ffp-contract=off. */
#include "kernels/cpu/cpu_kernels.h"

#include <math.h>

#include "kernels/device/vec_isa.h"

VEC_LOOP void relu_loop(const float *x, float *y, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] = x[i] < 0.0f ? 0.0f : x[i];
}
VEC_VARIANTS(void, cpu_kernel_relu, relu_loop, (const float *x, float *y, size_t count),
             (x, y, count))

VEC_LOOP void relu_grad_loop(const float *dy, const float *y, float *dx, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dx[i] = y[i] <= 0.0f ? 0.0f : dy[i];
}
VEC_VARIANTS(void, cpu_kernel_relu_grad, relu_grad_loop,
             (const float *dy, const float *y, float *dx, size_t count), (dy, y, dx, count))

VEC_LOOP void add_loop(const float *a, const float *b, float *y, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] = a[i] + b[i];
}
VEC_VARIANTS(void, cpu_kernel_add, add_loop,
             (const float *a, const float *b, float *y, size_t count), (a, b, y, count))

VEC_LOOP void sum_rows_loop(const float *x, float *y, size_t rows, size_t cols, size_t stride)
{
    enum { STRIP = 128 }; /* columns at a time: their sums stay in the first-level cache */
    for (size_t at = 0; at < cols; at += STRIP) {
        double sums[STRIP] = {0};
        size_t width = MIN(cols - at, (size_t)STRIP);
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < width; j++)
                sums[j] += (double)x[i * stride + at + j];
        for (size_t j = 0; j < width; j++)
            y[at + j] = (float)sums[j];
    }
}
VEC_VARIANTS(void, cpu_kernel_sum_rows, sum_rows_loop,
             (const float *x, float *y, size_t rows, size_t cols, size_t stride),
             (x, y, rows, cols, stride))

/* log of the sum of exp(x), shifted by the maximum so that nothing overflows; NaN when a score is.
 */
static float log_sum_exp(const float *x, size_t count)
{
    float max = x[0];
    for (size_t j = 1; j < count; j++)
        max = x[j] > max ? x[j] : max;
    double sum = 0;
    for (size_t j = 0; j < count; j++)
        sum += (double)expf(x[j] - max);
    return (float)((double)max + log(sum));
}

void cpu_kernel_softmax(const float *x, float *y, size_t rows, size_t cols)
{
    for (size_t i = 0; i < rows; i++) {
        float lse = log_sum_exp(x + i * cols, cols);
        for (size_t j = 0; j < cols; j++)
            y[i * cols + j] = expf(x[i * cols + j] - lse);
    }
}

void cpu_kernel_log_softmax(const float *x, float *log_prob, size_t rows, size_t cols)
{
    for (size_t i = 0; i < rows; i++) {
        float lse = log_sum_exp(x + i * cols, cols);
        for (size_t j = 0; j < cols; j++)
            log_prob[i * cols + j] = x[i * cols + j] - lse;
    }
}

float cpu_kernel_mean_loss(const float *log_prob, const int32_t *labels, size_t rows, size_t cols)
{
    double sum = 0;
    for (size_t i = 0; i < rows; i++)
        sum -= (double)log_prob[i * cols + (size_t)labels[i]];
    return (float)(sum / (double)rows);
}

void cpu_kernel_softmax_loss_grad(const float *log_prob, const int32_t *labels, float *dx,
                                  size_t rows, size_t cols, size_t loss_rows)
{
    float scale = 1.0f / (float)loss_rows;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            dx[i * cols + j] =
                (expf(log_prob[i * cols + j]) - (j == (size_t)labels[i] ? 1.0f : 0.0f)) * scale;
}
