/* SPDX-License-Identifier: Apache-2.0 */
/* optim_momentum: one slot, the velocity; classical or Nesterov. */
#include "psd/optim/optim.h"
#include "psd/optim/optim_elem.h"

OPTIM_FN uint32_t classical(const float *restrict w, const float *restrict g, float *restrict m,
                            float *restrict next, size_t count, float lr, float momentum)
{
    uint32_t found = 0;
    for (size_t i = 0; i < count; i++) {
        found |= optim_elem_nonfinite(g[i]);
        next[i] = optim_elem_momentum(w[i], g[i], &m[i], lr, momentum);
    }
    return found;
}
OPTIM_VARIANTS(classical,
               (const float *restrict w, const float *restrict g, float *restrict m,
                float *restrict next, size_t count, float lr, float momentum),
               (w, g, m, next, count, lr, momentum))

OPTIM_FN uint32_t nesterov(const float *restrict w, const float *restrict g, float *restrict m,
                           float *restrict next, size_t count, float lr, float momentum)
{
    uint32_t found = 0;
    for (size_t i = 0; i < count; i++) {
        found |= optim_elem_nonfinite(g[i]);
        next[i] = optim_elem_nesterov(w[i], g[i], &m[i], lr, momentum);
    }
    return found;
}
OPTIM_VARIANTS(nesterov,
               (const float *restrict w, const float *restrict g, float *restrict m,
                float *restrict next, size_t count, float lr, float momentum),
               (w, g, m, next, count, lr, momentum))

static bool apply(const struct optimizer_spec *spec, const struct optim_args *args,
                  enum optim_isa isa)
{
    uint32_t found =
        spec->nesterov
            ? OPTIM_DISPATCH(nesterov, isa, args->values, args->grads, args->slots[0], args->next,
                             args->count, (float)args->rate, (float)spec->momentum)
            : OPTIM_DISPATCH(classical, isa, args->values, args->grads, args->slots[0], args->next,
                             args->count, (float)args->rate, (float)spec->momentum);
    return found >> 31;
}

const struct optim optim_momentum = {
    .slot_count = OPTIMIZER_SLOTS_MOMENTUM, .slot_names = {"momentum"}, .apply = apply};
