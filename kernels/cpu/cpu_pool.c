/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_pool: max pooling over channels side by side, with the vector types of GCC and Clang.
 *
 * One body, stamped out for 16, 8 and 4 channels at a time and the instruction set that has
 * registers of that size, and for one channel, for canonical layout. Every width gives the same
 * bits: values are only chosen, and sums keep their order. Lanes are written out so that the width
 * does not hang on what an autovectoriser makes of a block (docs/compilers.md). */
#include "kernels/cpu/cpu_kernels.h"

#include <string.h>

#include "kernels/device/vec_isa.h"

/* The part of the window of output `out` that lies inside [0, size): its offsets [*first, *last).
 */
static inline __attribute__((always_inline)) void
clip(size_t out, size_t stride, size_t pad, size_t kernel, size_t size, size_t *first, size_t *last)
{
    size_t at = out * stride; /* in padded coordinates */
    *first = at < pad ? pad - at : 0;
    *last = MIN(kernel, size + pad - at);
}

/* Runs body for `width` channels of every window: rows[] and cols[] are its offsets inside the
 * plane, `in` the float offset of its first point, `at` that of the output. */
#define FOR_EACH_WINDOW(p, width, ...)                                                             \
    for (size_t plane = 0; plane < (p)->planes; plane++)                                           \
        for (size_t i = 0; i < (p)->oh; i++) {                                                     \
            size_t rows[2];                                                                        \
            clip(i, (p)->sh, (p)->top, (p)->kh, (p)->h, &rows[0], &rows[1]);                       \
            for (size_t j = 0; j < (p)->ow; j++) {                                                 \
                size_t cols[2];                                                                    \
                clip(j, (p)->sw, (p)->left, (p)->kw, (p)->w, &cols[0], &cols[1]);                  \
                size_t row = plane * (p)->h + i * (p)->sh + rows[0] - (p)->top;                    \
                size_t col = j * (p)->sw + cols[0] - (p)->left;                                    \
                for (size_t c = 0; c < (p)->block; c += (width)) {                                 \
                    size_t in = (row * (p)->w + col) * (p)->block + c;                             \
                    size_t at = ((plane * (p)->oh + i) * (p)->ow + j) * (p)->block + c;            \
                    __VA_ARGS__                                                                    \
                }                                                                                  \
            }                                                                                      \
        }

/* Float offset of window point (a, b) from the window's first. */
#define POINT(p, a, b) (((a)-rows[0]) * (p)->w + (b)-cols[0]) * (p)->block

#define DEFINE_POOL(width, attribute)                                                              \
    typedef float f32x##width __attribute__((vector_size(4 * (width))));                           \
    typedef int32_t i32x##width __attribute__((vector_size(4 * (width))));                         \
    typedef uint16_t u16x##width __attribute__((vector_size(2 * (width))));                        \
                                                                                                   \
    attribute static void pool_##width(const struct cpu_pool *p, const float *x, float *y,         \
                                       uint16_t *winner){FOR_EACH_WINDOW(                          \
        p, width,                                                                                  \
        {                                                                                          \
            f32x##width best;                                                                      \
            i32x##width won = (i32x##width){0} + (int32_t)(rows[0] * p->kw + cols[0]);             \
            memcpy(&best, x + in, sizeof(best));                                                   \
            for (size_t a = rows[0]; a < rows[1]; a++)                                             \
                for (size_t b = cols[0]; b < cols[1]; b++) {                                       \
                    f32x##width v;                                                                 \
                    memcpy(&v, x + in + POINT(p, a, b), sizeof(v));                                \
                    /* greater, or NaN while the best is a number */                               \
                    i32x##width wins = ~(v <= best) & (best == best);                              \
                    best = (f32x##width)(((i32x##width)v & wins) | ((i32x##width)best & ~wins));   \
                    won = ((int32_t)(a * p->kw + b) & wins) | (won & ~wins);                       \
                }                                                                                  \
            memcpy(y + at, &best, sizeof(best));                                                   \
            if (winner) {                                                                          \
                u16x##width narrow = __builtin_convertvector(won, u16x##width);                    \
                memcpy(winner + at, &narrow, sizeof(narrow));                                      \
            }                                                                                      \
        })}                                                                                        \
                                                                                                   \
    attribute static void unpool_##width(const struct cpu_pool *p, const float *dy,                \
                                         const uint16_t *winner, float *dx, bool adds)             \
    {                                                                                              \
        FOR_EACH_WINDOW(p, width, {                                                                \
            f32x##width d;                                                                         \
            u16x##width narrow;                                                                    \
            memcpy(&d, dy + at, sizeof(d));                                                        \
            memcpy(&narrow, winner + at, sizeof(narrow));                                          \
            i32x##width won = __builtin_convertvector(narrow, i32x##width);                        \
            for (size_t a = rows[0]; a < rows[1]; a++)                                             \
                for (size_t b = cols[0]; b < cols[1]; b++) {                                       \
                    float *to = dx + in + POINT(p, a, b);                                          \
                    i32x##width is_winner = won == (int32_t)(a * p->kw + b);                       \
                    f32x##width sum = (f32x##width)((i32x##width)d & is_winner);                   \
                    if (adds) {                                                                    \
                        f32x##width old;                                                           \
                        memcpy(&old, to, sizeof(old));                                             \
                        sum += old;                                                                \
                    }                                                                              \
                    memcpy(to, &sum, sizeof(sum));                                                 \
                }                                                                                  \
        })                                                                                         \
    }

#if defined(__x86_64__)
DEFINE_POOL(16, __attribute__((target("avx512f"))))
DEFINE_POOL(8, __attribute__((target("avx2"))))
#endif
DEFINE_POOL(4, )
DEFINE_POOL(1, )

/* Channels at a time: as many as the block has and a register holds. */
static size_t width_for(size_t block)
{
    enum vec_isa isa = vec_isa_now();
    if (block % 16 == 0 && isa == VEC_ISA_AVX512)
        return 16;
    if (block % 8 == 0 && isa >= VEC_ISA_AVX2)
        return 8;
    return block % 4 == 0 ? 4 : 1;
}

void cpu_kernel_max_pool(const struct cpu_pool *p, const float *x, float *y, uint16_t *winner)
{
    switch (width_for(p->block)) {
#if defined(__x86_64__)
    case 16:
        pool_16(p, x, y, winner);
        break;
    case 8:
        pool_8(p, x, y, winner);
        break;
#endif
    case 4:
        pool_4(p, x, y, winner);
        break;
    default:
        pool_1(p, x, y, winner);
    }
}

void cpu_kernel_max_pool_grad(const struct cpu_pool *p, const float *dy, const uint16_t *winner,
                              float *dx)
{
    /* Windows that tile the plane write each point once; others need a clean plane to add to. */
    bool tiles = p->kh == p->sh && p->kw == p->sw && p->top == 0 && p->left == 0 &&
                 p->oh * p->kh == p->h && p->ow * p->kw == p->w;
    if (!tiles)
        memset(dx, 0, p->planes * p->h * p->w * p->block * sizeof(*dx));
    switch (width_for(p->block)) {
#if defined(__x86_64__)
    case 16:
        unpool_16(p, dy, winner, dx, !tiles);
        break;
    case 8:
        unpool_8(p, dy, winner, dx, !tiles);
        break;
#endif
    case 4:
        unpool_4(p, dy, winner, dx, !tiles);
        break;
    default:
        unpool_1(p, dy, winner, dx, !tiles);
    }
}
