/* SPDX-License-Identifier: Apache-2.0 */
/* vec: written so that the compiler vectorises them; built with -O3 -ffp-contract=off. */
#include "kernels/device/vec.h"

/* Partial sums of a reduction: two AVX-512 registers of doubles hide the latency of an addition. */
#define LANES 16

VEC_TARGETS void vec_axpy(float *restrict y, float a, const float *restrict x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] += a * x[i];
}

VEC_TARGETS void vec_add(float *restrict y, const float *restrict x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] += x[i];
}

VEC_TARGETS void vec_scale(float *y, float a, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] *= a;
}

VEC_TARGETS double vec_dot(const float *x, const float *y, size_t count)
{
    double lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lanes[l] += (double)x[i + l] * (double)y[i + l];
    for (size_t l = 0; i < count; i++, l++)
        lanes[l] += (double)x[i] * (double)y[i];
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lanes[l] += lanes[l + half];
    return lanes[0];
}

double vec_sum_squares(const float *x, size_t count)
{
    return vec_dot(x, x, count);
}
