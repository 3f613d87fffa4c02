/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels: the loops that oneDNN is not used for, on plain arrays.
 *
 * oneDNN's ReLU and pooling may drop a NaN, which would hide a diverged step; these let it through.
 * Written for the compiler's vectoriser, several instruction sets picked at run time, the same bits
 * from each.
 *
 * Owns    nothing. Thread: any. In place where input and output are one array: relu, relu_grad,
 * add, softmax_loss_grad.
 */
#ifndef KERNELS_CPU_CPU_KERNELS_H
#define KERNELS_CPU_CPU_KERNELS_H

#include "common/base/base.h"

void cpu_kernel_relu(const float *x, float *y, size_t count);
void cpu_kernel_relu_grad(const float *dy, const float *y, float *dx, size_t count);
void cpu_kernel_add(const float *a, const float *b, float *y, size_t count);
/* Columns of x[rows, cols], summed in double in the order of the rows. */
void cpu_kernel_sum_rows(const float *x, float *y, size_t rows, size_t cols);

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
/* Labels are in [0, cols). Returns the mean loss. */
float cpu_kernel_softmax_loss(const float *x, const int32_t *labels, float *log_prob, size_t rows,
                              size_t cols);
void cpu_kernel_softmax_loss_grad(const float *log_prob, const int32_t *labels, float *dx,
                                  size_t rows, size_t cols);

#endif
