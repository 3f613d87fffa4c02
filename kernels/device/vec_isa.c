/* SPDX-License-Identifier: Apache-2.0 */
/* vec_isa: what the processor has. */
#include "kernels/device/vec_isa.h"

#include <stdatomic.h>

static _Atomic enum vec_isa widest_allowed = VEC_ISA_COUNT;

bool vec_isa_has(enum vec_isa isa)
{
#if defined(__x86_64__)
    if (isa == VEC_ISA_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
    if (isa == VEC_ISA_AVX2)
        return __builtin_cpu_supports("avx2");
#endif
    return isa == VEC_ISA_BASE;
}

const char *vec_isa_name(enum vec_isa isa)
{
    static const char *const names[VEC_ISA_COUNT] = {"base", "avx2", "avx512"};
    ASSERT(isa < VEC_ISA_COUNT);
    return names[isa];
}

enum vec_isa vec_isa_now(void)
{
    enum vec_isa widest = atomic_load_explicit(&widest_allowed, memory_order_relaxed);
    if (widest >= VEC_ISA_AVX512 && vec_isa_has(VEC_ISA_AVX512))
        return VEC_ISA_AVX512;
    if (widest >= VEC_ISA_AVX2 && vec_isa_has(VEC_ISA_AVX2))
        return VEC_ISA_AVX2;
    return VEC_ISA_BASE;
}

void vec_isa_limit(enum vec_isa widest)
{
    atomic_store_explicit(&widest_allowed, widest, memory_order_relaxed);
}
