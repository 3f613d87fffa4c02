/* SPDX-License-Identifier: Apache-2.0 */
/* optim_momentum: one slot, the velocity; classical or Nesterov. */
#include "psd/optim.h"
#include "psd/optim_elem.h"

OPTIM_FN void classical(const float *restrict w, const float *restrict g, float *restrict m,
                        float *restrict next, size_t count, float lr, float momentum)
{
    for (size_t i = 0; i < count; i++)
        next[i] = optim_elem_momentum(w[i], g[i], &m[i], lr, momentum);
}
OPTIM_VARIANTS(classical,
               (const float *restrict w, const float *restrict g, float *restrict m,
                float *restrict next, size_t count, float lr, float momentum),
               (w, g, m, next, count, lr, momentum))

OPTIM_FN void nesterov(const float *restrict w, const float *restrict g, float *restrict m,
                       float *restrict next, size_t count, float lr, float momentum)
{
    for (size_t i = 0; i < count; i++)
        next[i] = optim_elem_nesterov(w[i], g[i], &m[i], lr, momentum);
}
OPTIM_VARIANTS(nesterov,
               (const float *restrict w, const float *restrict g, float *restrict m,
                float *restrict next, size_t count, float lr, float momentum),
               (w, g, m, next, count, lr, momentum))

static void apply(const struct optimizer_spec *spec, const struct optim_args *args,
                  enum optim_isa isa)
{
    if (spec->nesterov)
        OPTIM_DISPATCH(nesterov, isa, args->values, args->grads, args->slots[0], args->next,
                       args->count, (float)args->rate, (float)spec->momentum);
    else
        OPTIM_DISPATCH(classical, isa, args->values, args->grads, args->slots[0], args->next,
                       args->count, (float)args->rate, (float)spec->momentum);
}

const struct optim optim_momentum = {
    .kind = OPTIMIZER_MOMENTUM, .slot_count = 1, .slot_names = {"momentum"}, .apply = apply};
