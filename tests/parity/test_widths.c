/* SPDX-License-Identifier: Apache-2.0 */
/* Every loop of our own, in every width that run-time dispatch can choose, against the plain
 * definition compiled for no vectors, bit for bit: all short counts and tails, addresses that are
 * aligned to a float only, ties, NaN, infinities, both zeros and denormals. What it calls are the
 * very objects that the daemons are linked with, so a compiler that is wrong for one width shows
 * here on every machine that has that width; one that lacks it says so. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/rand.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/device/vec.h"
#include "kernels/device/vec_isa.h"
#include "psd/optim/optim.h"
#include "tests/harness.h"

/* The reference must not be what it judges: each of its steps goes through memory. */
#if defined(__clang__)
#define PLAIN __attribute__((optnone, noinline))
#else
#define PLAIN __attribute__((optimize("O0"), noinline))
#endif

enum { ROOM = 4096, GUARD = 16 };
static const size_t counts[] = {0,   1,   2,   3,   4,   5,   6,    7,    8,    9,
                                10,  11,  12,  13,  14,  15,  16,   17,   23,   31,
                                32,  33,  47,  63,  64,  65,  100,  127,  128,  129,
                                130, 191, 255, 256, 257, 383, 1000, 1023, 1024, 1037};

/* Some values that loops get wrong, the rest normal ones of many magnitudes or small whole numbers
 * with many ties. */
static float draw(uint64_t key, size_t i)
{
    static const float odd[] = {0.0f,    -0.0f,    NAN,     INFINITY, -INFINITY, 1e-45f,
                                -1e-45f, 1.1e-38f, -1e-39f, 3.4e38f,  -3.4e38f,  1.0f};
    uint64_t r = rand_u64(key, i);
    if (r % 8 == 0)
        return odd[(r >> 8) % ARRAY_SIZE(odd)];
    if (r % 2 == 0)
        return (float)((r >> 8) % 5) - 2.0f;
    return rand_normal(key, i) * exp2f((float)((r >> 8) % 12) - 6.0f);
}

static void fill(float *x, size_t count, uint64_t key)
{
    for (size_t i = 0; i < count; i++)
        x[i] = draw(key, i);
}

/* A NaN is a NaN: which of two comes out of a sum depends on the order of the operands, which the
 * language leaves open. All else counts to the bit. */
static bool same(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof(a)) == 0;
}

static void want_same(const float *got, const float *want, size_t count, const char *what,
                      size_t size, size_t offset)
{
    for (size_t i = 0; i < count; i++)
        if (!same(got[i], want[i]))
            test_fail(__FILE__, __LINE__,
                      "%s, %s, count %zu, offset %zu: element %zu is %a, want %a", what,
                      vec_isa_name(vec_isa_now()), size, offset, i, (double)got[i],
                      (double)want[i]);
}

/* Runs the check in the given width, or says why not. */
static void in_width(enum vec_isa isa, void (*check)(void))
{
    if (!vec_isa_has(isa))
        test_skip("this processor has no %s", vec_isa_name(isa));
    vec_isa_limit(isa);
    CHECK(vec_isa_now() == isa);
    check();
}

#define TEST_WIDTHS(name)                                                                          \
    TEST_LIMIT(name##_without_vector_extensions, 60)                                               \
    {                                                                                              \
        in_width(VEC_ISA_BASE, check_##name);                                                      \
    }                                                                                              \
    TEST_LIMIT(name##_on_avx2, 60)                                                                 \
    {                                                                                              \
        in_width(VEC_ISA_AVX2, check_##name);                                                      \
    }                                                                                              \
    TEST_LIMIT(name##_on_avx512, 60)                                                               \
    {                                                                                              \
        in_width(VEC_ISA_AVX512, check_##name);                                                    \
    }

static float a[ROOM], b[ROOM], got[ROOM], want[ROOM], slots[2][ROOM], want_slots[2][ROOM];

/* ---- flat loops ---- */
enum flat { RELU, RELU_GRAD, ADD, AXPY, VADD, SCALE, RELU_IN_PLACE, FLAT_COUNT };
static const char *const flat_names[] = {"relu",   "relu_grad", "add",          "axpy",
                                         "add to", "scale",     "relu in place"};

PLAIN static float flat_plain(enum flat f, float x, float y, float old)
{
    volatile float product;
    switch (f) {
    case RELU:
    case RELU_IN_PLACE:
        return x < 0.0f ? 0.0f : x;
    case RELU_GRAD:
        return y <= 0.0f ? 0.0f : x;
    case ADD:
        return x + y;
    case AXPY:
        product = 0.3f * x;
        return old + product;
    case VADD:
        return old + x;
    case SCALE:
        return old * 1.7f;
    case FLAT_COUNT:
        break;
    }
    return NAN;
}

static void flat_run(enum flat f, const float *x, const float *y, float *to, size_t count)
{
    switch (f) {
    case RELU:
        cpu_kernel_relu(x, to, count);
        break;
    case RELU_IN_PLACE:
        memcpy(to, x, count * sizeof(*to));
        cpu_kernel_relu(to, to, count);
        break;
    case RELU_GRAD:
        cpu_kernel_relu_grad(x, y, to, count);
        break;
    case ADD:
        cpu_kernel_add(x, y, to, count);
        break;
    case AXPY:
        vec_axpy(to, 0.3f, x, count);
        break;
    case VADD:
        vec_add(to, x, count);
        break;
    case SCALE:
        vec_scale(to, 1.7f, count);
        break;
    case FLAT_COUNT:
        break;
    }
}

static void check_flat_loops(void)
{
    for (enum flat f = 0; f < FLAT_COUNT; f++)
        for (size_t c = 0; c < ARRAY_SIZE(counts); c++)
            for (size_t offset = 0; offset < 17; offset += offset < 4 ? 1 : 4) {
                size_t count = counts[c];
                fill(a, ROOM, 100 + c);
                fill(b, ROOM, 200 + offset);
                fill(got, ROOM, 300 + c);
                memcpy(want, got, sizeof(want));
                const float *y = b + (offset * 7) % 16;
                for (size_t i = 0; i < count; i++)
                    want[offset + i] = flat_plain(f, a[offset + i], y[i], want[offset + i]);
                flat_run(f, a + offset, y, got + offset, count);
                want_same(got, want, count + offset + GUARD, flat_names[f], count, offset);
            }
}
TEST_WIDTHS(flat_loops)

/* ---- sums ---- */
PLAIN static double dot_plain(const float *x, const float *y, size_t count)
{
    double lanes[16] = {0};
    for (size_t i = 0; i < count; i++)
        lanes[i % 16] += (double)x[i] * (double)y[i];
    for (size_t half = 8; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lanes[l] += lanes[l + half];
    return lanes[0];
}

PLAIN static void sum_rows_plain(const float *x, float *y, size_t rows, size_t cols, size_t stride)
{
    for (size_t j = 0; j < cols; j++) {
        double sum = 0;
        for (size_t i = 0; i < rows; i++)
            sum += (double)x[i * stride + j];
        y[j] = (float)sum;
    }
}

static void check_sums(void)
{
    for (size_t c = 0; c < ARRAY_SIZE(counts); c++)
        for (size_t offset = 0; offset < 5; offset++)
            for (uint64_t finite = 0; finite < 2; finite++) {
                size_t count = counts[c];
                for (size_t i = 0; i < ROOM; i++) {
                    a[i] = finite ? rand_normal(1 + c, i) : draw(1 + c, i);
                    b[i] = finite ? rand_normal(2 + c, i) : draw(2 + c, i);
                }
                double is = vec_dot(a + offset, b, count);
                double should = dot_plain(a + offset, b, count);
                CHECK((isnan(is) && isnan(should)) || memcmp(&is, &should, sizeof(is)) == 0);
                for (size_t rows = 0; rows < 4 && count > 0; rows++) {
                    fill(got, ROOM, 3);
                    memcpy(want, got, sizeof(want));
                    size_t stride = MIN(count + offset, (size_t)ROOM / 4);
                    size_t cols = MIN(count, stride);
                    sum_rows_plain(a, want + offset, rows, cols, stride);
                    cpu_kernel_sum_rows(a, got + offset, rows, cols, stride);
                    want_same(got, want, cols + offset + GUARD, "sum_rows", cols, offset);
                }
            }
}
TEST_WIDTHS(sums)

/* ---- max pooling ---- */
PLAIN static void pool_plain(const struct cpu_pool *p, const float *x, float *y, uint16_t *winner,
                             const float *dy, float *dx)
{
    for (size_t i = 0; i < p->planes * p->h * p->w * p->block; i++)
        dx[i] = 0;
    for (size_t at = 0; at < p->planes * p->oh * p->ow * p->block; at++) {
        size_t lane = at % p->block;
        size_t j = at / p->block % p->ow;
        size_t i = at / p->block / p->ow % p->oh;
        size_t plane = at / p->block / p->ow / p->oh;
        size_t best = SIZE_MAX;
        for (size_t k = 0; k < p->kh * p->kw; k++) {
            size_t row = i * p->sh + k / p->kw - p->top; /* wraps in front of the plane */
            size_t col = j * p->sw + k % p->kw - p->left;
            if (row >= p->h || col >= p->w)
                continue;
            size_t from = ((plane * p->h + row) * p->w + col) * p->block + lane;
            if (best == SIZE_MAX || x[from] > x[best] || (isnan(x[from]) && !isnan(x[best]))) {
                best = from;
                winner[at] = (uint16_t)k;
            }
        }
        y[at] = x[best];
        /* -0 stays one where windows tile the plane: each point is written once */
        dx[best] = p->kh == p->sh && p->kw == p->sw && p->top + p->left == 0 &&
                           p->oh * p->kh == p->h && p->ow * p->kw == p->w
                       ? dy[at]
                       : dx[best] + dy[at];
    }
}

static void pool_case(const struct cpu_pool *p, uint64_t seed)
{
    size_t in = p->planes * p->h * p->w * p->block;
    size_t out = p->planes * p->oh * p->ow * p->block;
    float *x = base_alloc((in + 1) * sizeof(*x)); /* + 1: off the alignment of a register */
    float *dx[2] = {base_alloc((in + 1) * sizeof(*x)), base_alloc((in + 1) * sizeof(*x))};
    float *dy = base_alloc((out + 1) * sizeof(*dy));
    float *y[2] = {base_alloc((out + 1) * sizeof(*dy)), base_alloc((out + 1) * sizeof(*dy))};
    uint16_t *winner[2] = {base_alloc((out + 1) * 2), base_alloc((out + 1) * 2)};
    fill(x, in + 1, seed);
    fill(dy, out + 1, seed + 1);
    memset(dx[1], 0xff, (in + 1) * sizeof(*x)); /* NaN: a point that nobody writes shows */
    pool_plain(p, x + 1, y[0] + 1, winner[0] + 1, dy + 1, dx[0] + 1);
    cpu_kernel_max_pool(p, x + 1, y[1] + 1, winner[1] + 1);
    cpu_kernel_max_pool_grad(p, dy + 1, winner[1] + 1, dx[1] + 1);
    want_same(y[1] + 1, y[0] + 1, out, "max_pool", p->block, seed);
    CHECK(memcmp(winner[0] + 1, winner[1] + 1, out * 2) == 0);
    want_same(dx[1] + 1, dx[0] + 1, in, "max_pool_grad", p->block, seed);
    cpu_kernel_max_pool(p, x + 1, y[1] + 1, NULL);
    want_same(y[1] + 1, y[0] + 1, out, "max_pool without winners", p->block, seed);
    free(x);
    free(dy);
    for (size_t i = 0; i < 2; i++) {
        free(dx[i]);
        free(y[i]);
        free(winner[i]);
    }
}

static void check_pooling(void)
{
    static const size_t blocks[] = {1, 4, 8, 16};
    unsigned cases = 0;
    for (uint64_t seed = 0; seed < 3000; seed++) {
#define DRAW(n, k) (rand_u64(seed, (k)) % (n))
        struct cpu_pool p = {
            .planes = 1 + DRAW(3, 0),
            .block = blocks[DRAW(4, 1)],
            .h = 1 + DRAW(9, 2),
            .w = 1 + DRAW(9, 3),
            .kh = 1 + DRAW(4, 4),
            .kw = 1 + DRAW(4, 5),
            .sh = 1 + DRAW(4, 6),
            .sw = 1 + DRAW(4, 7),
        };
        bool tiles = DRAW(2, 8);
        p.sh = tiles ? p.kh : p.sh;
        p.sw = tiles ? p.kw : p.sw;
        p.top = tiles ? 0 : DRAW(p.kh, 9);
        p.left = tiles ? 0 : DRAW(p.kw, 10);
        size_t h = p.h + p.top + (tiles ? 0 : DRAW(p.kh, 11));
        size_t w = p.w + p.left + (tiles ? 0 : DRAW(p.kw, 12));
        if (h < p.kh || w < p.kw)
            continue;
        p.oh = (h - p.kh) / p.sh + 1;
        p.ow = (w - p.kw) / p.sw + 1;
        pool_case(&p, seed);
        cases++;
    }
    CHECK(cases > 1000);
}
TEST_WIDTHS(pooling)

/* ---- optimizers: the widest against one element at a time, which no register holds two of ---- */
static void optim_run(const struct optimizer_spec *spec, enum optim_isa isa, size_t at,
                      size_t count, float *next, float (*s)[ROOM])
{
    struct optim_args args = {.values = a + at,
                              .grads = b + at,
                              .next = next + at,
                              .slots = {s[0] + at, s[1] + at},
                              .count = count,
                              .applied = 3,
                              .rate = 0.01};
    (void)optim_of(spec->kind)->apply(spec, &args, isa);
}

static void check_optimizers(void)
{
    static const struct optimizer_spec specs[] = {
        {.kind = OPTIMIZER_SGD},
        {.kind = OPTIMIZER_MOMENTUM, .momentum = 0.9},
        {.kind = OPTIMIZER_MOMENTUM, .momentum = 0.9, .nesterov = true},
        {.kind = OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-7},
    };
    static const enum optim_isa isas[VEC_ISA_COUNT] = {OPTIM_ISA_BASE, OPTIM_ISA_AVX2,
                                                       OPTIM_ISA_AVX512};
    enum optim_isa isa = isas[vec_isa_now()];
    for (size_t k = 0; k < ARRAY_SIZE(specs); k++)
        for (size_t c = 0; c < ARRAY_SIZE(counts); c++)
            for (size_t offset = 0; offset < 5; offset++) {
                size_t count = counts[c];
                fill(a, ROOM, 1 + c);
                fill(b, ROOM, 2 + c);
                fill(got, ROOM, 3 + c);
                memcpy(want, got, sizeof(want));
                fill(slots[0], ROOM, 4 + c);
                for (size_t i = 0; i < ROOM; i++)
                    slots[1][i] = fabsf(draw(5 + c, i)); /* squares */
                memcpy(want_slots, slots, sizeof(slots));
                for (size_t i = 0; i < count; i++)
                    optim_run(&specs[k], OPTIM_ISA_BASE, offset + i, 1, want, want_slots);
                optim_run(&specs[k], isa, offset, count, got, slots);
                size_t seen = count + offset + GUARD;
                want_same(got, want, seen, "values", count, offset);
                want_same(slots[0], want_slots[0], seen, "slot 0", count, offset);
                want_same(slots[1], want_slots[1], seen, "slot 1", count, offset);
            }
}
TEST_WIDTHS(optimizers)
