/* SPDX-License-Identifier: Apache-2.0 */
/* optim: which optimizer, and which instruction set. */
#include "psd/optim/optim.h"

const struct optim *optim_of(enum optimizer_kind kind)
{
#define ROW(KIND, name, slots) [OPTIMIZER_##KIND] = &optim_##name,
    static const struct optim *const table[] = {OPTIMIZERS(ROW)};
    ASSERT((size_t)kind < ARRAY_SIZE(table));
    return table[kind];
}

bool optim_isa_has(enum optim_isa isa)
{
#if defined(__x86_64__)
    if (isa == OPTIM_ISA_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
    if (isa == OPTIM_ISA_AVX2)
        return __builtin_cpu_supports("avx2");
#endif
    return isa == OPTIM_ISA_BASE;
}

enum optim_isa optim_isa_best(void)
{
    return optim_isa_has(OPTIM_ISA_AVX512) ? OPTIM_ISA_AVX512
           : optim_isa_has(OPTIM_ISA_AVX2) ? OPTIM_ISA_AVX2
                                           : OPTIM_ISA_BASE;
}
