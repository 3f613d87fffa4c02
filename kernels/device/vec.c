/* SPDX-License-Identifier: Apache-2.0 */
/* vec: written so that the compiler vectorises them; built with -O3 -ffp-contract=off. */
#include "kernels/device/vec.h"

#include "kernels/device/vec_isa.h"

/* Partial sums of a reduction: two AVX-512 registers of doubles hide the latency of an addition. */
#define LANES 16

VEC_LOOP void axpy_loop(float *restrict y, float a, const float *restrict x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] += a * x[i];
}
VEC_VARIANTS(void, vec_axpy, axpy_loop, (float *y, float a, const float *x, size_t count),
             (y, a, x, count))

VEC_LOOP void add_loop(float *restrict y, const float *restrict x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] += x[i];
}
VEC_VARIANTS(void, vec_add, add_loop, (float *y, const float *x, size_t count), (y, x, count))

VEC_LOOP void scale_loop(float *y, float a, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] *= a;
}
VEC_VARIANTS(void, vec_scale, scale_loop, (float *y, float a, size_t count), (y, a, count))

VEC_LOOP double dot_loop(const float *x, const float *y, size_t count)
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
VEC_VARIANTS(double, vec_dot, dot_loop, (const float *x, const float *y, size_t count),
             (x, y, count))

double vec_sum_squares(const float *x, size_t count)
{
    return vec_dot(x, x, count);
}
