/* SPDX-License-Identifier: Apache-2.0 */
/* vec_isa: one loop, written once, compiled for each width of register, picked at run time.
 *
 *   VEC_LOOP void scale_loop(float *y, float a, size_t count) { ... }
 *   VEC_VARIANTS(void, scale, scale_loop, (float *y, float a, size_t count), (y, a, count))
 *
 * makes scale(), which runs the widest variant that the processor has. Picked by plain code, not by
 * the loader (target_clones): so the variants are there under every compiler and sanitizer, and a
 * test can have each of them run in the very object that is shipped (tests/parity/test_widths.c),
 * which is what guards against a compiler that is wrong for one width. All of them have to give the
 * same bits: nothing is fused (-ffp-contract=off), and the compiler may not reorder sums.
 *
 * Owns    the limit, one for the process. Thread: any.
 */
#ifndef KERNELS_DEVICE_VEC_ISA_H
#define KERNELS_DEVICE_VEC_ISA_H

#include "common/base/base.h"

enum vec_isa { VEC_ISA_BASE, VEC_ISA_AVX2, VEC_ISA_AVX512, VEC_ISA_COUNT };

bool vec_isa_has(enum vec_isa isa); /* this processor runs it */
const char *vec_isa_name(enum vec_isa isa);
enum vec_isa vec_isa_now(void); /* the widest one it has, within the limit */
/* For tests: nothing wider from now on; VEC_ISA_COUNT: no limit. */
void vec_isa_limit(enum vec_isa widest);

#define VEC_LOOP static inline __attribute__((always_inline))

#define VEC_VARIANT(ret, variant, attributes, loop, params, names)                                 \
    static __attribute__(attributes) ret variant params                                            \
    {                                                                                              \
        return loop names;                                                                         \
    }
#if defined(__x86_64__)
/* Without the preference, compilers keep to half of a 512-bit register. */
#if defined(__clang__)
#define VEC_AVX512 target("avx512f,avx512vl"), __min_vector_width__(512)
#else
#define VEC_AVX512 target("avx512f,avx512vl,prefer-vector-width=512")
#endif
#define VEC_VARIANTS(ret, name, loop, params, names)                                               \
    VEC_VARIANT(ret, name##_base, (noinline), loop, params, names)                                 \
    VEC_VARIANT(ret, name##_avx2, (noinline, target("avx2")), loop, params, names)                 \
    VEC_VARIANT(ret, name##_avx512, (noinline, VEC_AVX512), loop, params, names)                   \
    ret name params                                                                                \
    {                                                                                              \
        switch (vec_isa_now()) {                                                                   \
        case VEC_ISA_AVX512:                                                                       \
            return name##_avx512 names;                                                            \
        case VEC_ISA_AVX2:                                                                         \
            return name##_avx2 names;                                                              \
        default:                                                                                   \
            return name##_base names;                                                              \
        }                                                                                          \
    }
#else
#define VEC_VARIANTS(ret, name, loop, params, names)                                               \
    ret name params                                                                                \
    {                                                                                              \
        return loop names;                                                                         \
    }
#endif

#endif
