/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels: the loops that oneDNN is not used for, on plain arrays.
 *
 * oneDNN's ReLU and pooling may drop a NaN, which would hide a diverged step; these let it through.
 * Compiled for several instruction sets, one picked at run time (kernels/device/vec_isa.h), the same
 * bits from each.
 *
 * Every output element comes from one call and is computed the same way whatever else the call
 * covers. So a caller may cut the work anywhere between elements, columns, rows or planes and give
 * the pieces to several threads: the bits stay.
 *
 * Owns    nothing. Thread: any. In place where input and output are one array: relu, relu_grad,
 * add, softmax, softmax_loss_grad.
 */
#ifndef KERNELS_CPU_CPU_KERNELS_H
#define KERNELS_CPU_CPU_KERNELS_H

#include "common/base/base.h"

void cpu_kernel_relu(const float *x, float *y, size_t count);
void cpu_kernel_relu_grad(const float *dy, const float *y, float *dx, size_t count);
void cpu_kernel_add(const float *a, const float *b, float *y, size_t count);
/* Columns, summed in double in the order of the rows; stride: floats from one row of x to the next.
 */
void cpu_kernel_sum_rows(const float *x, float *y, size_t rows, size_t cols, size_t stride);

/* Max pooling over planes of h*w points of `block` channels side by side: 16, 8 or 1. */
struct cpu_pool {
    size_t planes, block;
    size_t h, w, oh, ow;
    size_t kh, kw, sh, sw, top, left;
};
#define CPU_POOL_WINDOW_MAX                                                                        \
    65536 /* points of a window; a winner is kept as its number in 16 bits */

/* winner NULL: not wanted. */
void cpu_kernel_max_pool(const struct cpu_pool *p, const float *x, float *y, uint16_t *winner);
void cpu_kernel_max_pool_grad(const struct cpu_pool *p, const float *dy, const uint16_t *winner,
                              float *dx);

void cpu_kernel_softmax(const float *x, float *y, size_t rows, size_t cols);
void cpu_kernel_log_softmax(const float *x, float *log_prob, size_t rows, size_t cols);
/* Labels are in [0, cols). The mean loss, summed in the order of the rows. */
float cpu_kernel_mean_loss(const float *log_prob, const int32_t *labels, size_t rows, size_t cols);
/* Of the mean over loss_rows, these rows among them. */
void cpu_kernel_softmax_loss_grad(const float *log_prob, const int32_t *labels, float *dx,
                                  size_t rows, size_t cols, size_t loss_rows);

#endif
