/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels: elementwise loops, max pooling and softmax; built with -O3 -ffp-contract=off. */
#include "kernels/cpu/cpu_kernels.h"

#include <math.h>
#include <string.h>

#include "kernels/vec.h"

#define INLINE    static inline __attribute__((always_inline))
#define BLOCK_MAX 16

VEC_TARGETS void cpu_kernel_relu(const float *x, float *y, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

VEC_TARGETS void cpu_kernel_relu_grad(const float *dy, const float *y, float *dx, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dx[i] = y[i] <= 0.0f ? 0.0f : dy[i];
}

VEC_TARGETS void cpu_kernel_add(const float *a, const float *b, float *y, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] = a[i] + b[i];
}

VEC_TARGETS void cpu_kernel_sum_rows(const float *x, float *y, size_t rows, size_t cols)
{
    enum { STRIP = 128 }; /* columns at a time: their sums stay in the first-level cache */
    for (size_t at = 0; at < cols; at += STRIP) {
        double sums[STRIP] = {0};
        size_t width = MIN(cols - at, (size_t)STRIP);
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < width; j++)
                sums[j] += (double)x[i * cols + at + j];
        for (size_t j = 0; j < width; j++)
            y[at + j] = (float)sums[j];
    }
}

/* The part of window `out` that lies inside [0, size): kernel offsets [*first, *last). */
INLINE void clip(size_t out, size_t stride, size_t pad, size_t kernel, size_t size, size_t *first,
                 size_t *last)
{
    size_t at = out * stride; /* in padded coordinates */
    *first = at < pad ? pad - at : 0;
    *last = MIN(kernel, size + pad - at);
}

INLINE void pool_point(const float *x, size_t row_floats, size_t block, size_t kw,
                       const size_t p[2], const size_t q[2], float *y, uint16_t *winner)
{
    float best[BLOCK_MAX];
    uint16_t at[BLOCK_MAX];
    memcpy(best, x, block * sizeof(*best));
    for (size_t l = 0; l < block; l++)
        at[l] = (uint16_t)(p[0] * kw + q[0]);
    for (size_t i = p[0]; i < p[1]; i++)
        for (size_t j = q[0]; j < q[1]; j++) {
            const float *v = x + (i - p[0]) * row_floats + (j - q[0]) * block;
            uint16_t k = (uint16_t)(i * kw + j);
            for (size_t l = 0; l < block; l++) {
                /* not "at most as large": greater, or NaN while the best is a number */
                bool wins = !(v[l] <= best[l]) & (best[l] == best[l]);
                best[l] = wins ? v[l] : best[l];
                at[l] = wins ? k : at[l];
            }
        }
    memcpy(y, best, block * sizeof(*best));
    if (winner)
        memcpy(winner, at, block * sizeof(*at));
}

INLINE void pool_planes(const struct cpu_pool *p, const float *x, float *y, uint16_t *winner,
                        size_t block)
{
    for (size_t plane = 0; plane < p->planes; plane++)
        for (size_t i = 0; i < p->oh; i++) {
            size_t rows[2];
            clip(i, p->sh, p->top, p->kh, p->h, &rows[0], &rows[1]);
            size_t row = i * p->sh + rows[0] - p->top;
            for (size_t j = 0; j < p->ow; j++) {
                size_t cols[2];
                clip(j, p->sw, p->left, p->kw, p->w, &cols[0], &cols[1]);
                size_t col = j * p->sw + cols[0] - p->left;
                size_t to = ((plane * p->oh + i) * p->ow + j) * block;
                pool_point(x + ((plane * p->h + row) * p->w + col) * block, p->w * block, block,
                           p->kw, rows, cols, y + to, winner ? winner + to : NULL);
            }
        }
}

VEC_TARGETS void cpu_kernel_max_pool(const struct cpu_pool *p, const float *x, float *y,
                                     uint16_t *winner)
{
    if (p->block == 16)
        pool_planes(p, x, y, winner, 16);
    else if (p->block == 8)
        pool_planes(p, x, y, winner, 8);
    else
        pool_planes(p, x, y, winner, 1);
}

INLINE void unpool_planes(const struct cpu_pool *p, const float *dy, const uint16_t *winner,
                          float *dx, size_t block, bool adds)
{
    for (size_t plane = 0; plane < p->planes; plane++)
        for (size_t i = 0; i < p->oh; i++) {
            size_t rows[2];
            clip(i, p->sh, p->top, p->kh, p->h, &rows[0], &rows[1]);
            for (size_t j = 0; j < p->ow; j++) {
                size_t cols[2];
                clip(j, p->sw, p->left, p->kw, p->w, &cols[0], &cols[1]);
                size_t from = ((plane * p->oh + i) * p->ow + j) * block;
                for (size_t a = rows[0]; a < rows[1]; a++)
                    for (size_t b = cols[0]; b < cols[1]; b++) {
                        size_t row = i * p->sh + a - p->top;
                        size_t col = j * p->sw + b - p->left;
                        float *to = dx + ((plane * p->h + row) * p->w + col) * block;
                        uint16_t k = (uint16_t)(a * p->kw + b);
                        for (size_t l = 0; l < block; l++) {
                            float d = winner[from + l] == k ? dy[from + l] : 0.0f;
                            to[l] = adds ? to[l] + d : d;
                        }
                    }
            }
        }
}

VEC_TARGETS void cpu_kernel_max_pool_grad(const struct cpu_pool *p, const float *dy,
                                          const uint16_t *winner, float *dx)
{
    /* Windows that tile the plane write each point once; others need a clean plane to add to. */
    bool tiles = p->kh == p->sh && p->kw == p->sw && p->top == 0 && p->left == 0 &&
                 p->oh * p->kh == p->h && p->ow * p->kw == p->w;
    if (!tiles)
        memset(dx, 0, p->planes * p->h * p->w * p->block * sizeof(*dx));
    if (p->block == 16 && tiles)
        unpool_planes(p, dy, winner, dx, 16, false);
    else if (p->block == 16)
        unpool_planes(p, dy, winner, dx, 16, true);
    else if (p->block == 8)
        unpool_planes(p, dy, winner, dx, 8, !tiles);
    else
        unpool_planes(p, dy, winner, dx, 1, !tiles);
}

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

float cpu_kernel_softmax_loss(const float *x, const int32_t *labels, float *log_prob, size_t rows,
                              size_t cols)
{
    double sum = 0;
    for (size_t i = 0; i < rows; i++) {
        float lse = log_sum_exp(x + i * cols, cols);
        for (size_t j = 0; j < cols; j++)
            log_prob[i * cols + j] = x[i * cols + j] - lse;
        sum -= (double)log_prob[i * cols + (size_t)labels[i]];
    }
    return (float)(sum / (double)rows);
}

void cpu_kernel_softmax_loss_grad(const float *log_prob, const int32_t *labels, float *dx,
                                  size_t rows, size_t cols)
{
    float scale = 1.0f / (float)rows;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            dx[i * cols + j] =
                (expf(log_prob[i * cols + j]) - (j == (size_t)labels[i] ? 1.0f : 0.0f)) * scale;
}
