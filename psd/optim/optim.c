/* SPDX-License-Identifier: Apache-2.0 */
/* optim: which optimizer, and which instruction set. */
#include "psd/optim/optim.h"

const struct optim *optim_of(enum optimizer_kind kind)
{
    switch (kind) {
    case OPTIMIZER_SGD:
        return &optim_sgd;
    case OPTIMIZER_MOMENTUM:
        return &optim_momentum;
    case OPTIMIZER_ADAM:
        return &optim_adam;
    }
    ASSERT(!"an optimizer kind outside the enum");
    return NULL;
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
