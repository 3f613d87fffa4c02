/* SPDX-License-Identifier: Apache-2.0 */
/* vec: loops over flat arrays in host memory, for psd and the workers.
 *
 * Compiled for several instruction sets (vec_isa.h), one picked at run time. Every set gives the
 * same bits: nothing is fused or reordered, and sums go through a fixed number of partial sums,
 * joined in a fixed order.
 *
 * Owns    nothing. Thread: any. Any alignment. What is written overlaps nothing else; what is only
 *         read may.
 */
#ifndef KERNELS_DEVICE_VEC_H
#define KERNELS_DEVICE_VEC_H

#include "common/base/base.h"

void vec_axpy(float *y, float a, const float *x, size_t count); /* y += a x */
void vec_add(float *y, const float *x, size_t count);           /* y += x */
void vec_scale(float *y, float a, size_t count);                /* y *= a */
double vec_dot(const float *x, const float *y, size_t count);   /* products and sums in double */
double vec_sum_squares(const float *x, size_t count);

#endif
