/* SPDX-License-Identifier: Apache-2.0 */
/* vec: loops over flat arrays in host memory, for psd and the workers.
 *
 * Compiled for several instruction sets, one picked at run time. Every set gives the same bits:
 * nothing is fused or reordered, and sums go through a fixed number of partial sums, joined in a
 * fixed order.
 *
 * Owns    nothing. Thread: any. Arrays do not overlap unless they are the same; any alignment.
 */
#ifndef KERNELS_DEVICE_VEC_H
#define KERNELS_DEVICE_VEC_H

#include "common/base/base.h"

/* In front of a function definition: compiles it for each set. Not under sanitizers, which are not
 * ready when the dynamic linker picks, nor with Clang 14, which names the result differently. */
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&                \
    !defined(__SANITIZE_THREAD__)
#define VEC_TARGETS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VEC_TARGETS
#endif

void vec_axpy(float *y, float a, const float *x, size_t count); /* y += a x */
void vec_add(float *y, const float *x, size_t count);           /* y += x */
void vec_scale(float *y, float a, size_t count);                /* y *= a */
double vec_dot(const float *x, const float *y, size_t count);   /* products and sums in double */
double vec_sum_squares(const float *x, size_t count);

#endif
