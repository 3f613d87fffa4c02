/* SPDX-License-Identifier: Apache-2.0 */
/* optim_adam: two slots, the running mean and the running mean of squares. */
#include "psd/optim/optim.h"
#include "psd/optim/optim_elem.h"

OPTIM_FN uint32_t adam(const float *restrict w, const float *restrict g, float *restrict m,
                       float *restrict v, float *restrict next, size_t count, float alpha,
                       float rest1, float rest2, float epsilon)
{
    uint32_t found = 0;
    for (size_t i = 0; i < count; i++) {
        found |= optim_elem_nonfinite(g[i]);
        next[i] = optim_elem_adam(w[i], g[i], &m[i], &v[i], alpha, rest1, rest2, epsilon);
    }
    return found;
}
OPTIM_VARIANTS(adam,
               (const float *restrict w, const float *restrict g, float *restrict m,
                float *restrict v, float *restrict next, size_t count, float alpha, float rest1,
                float rest2, float epsilon),
               (w, g, m, v, next, count, alpha, rest1, rest2, epsilon))

static bool apply(const struct optimizer_spec *spec, const struct optim_args *args,
                  enum optim_isa isa)
{
    double t = (double)(args->applied + 1);
    double alpha = args->rate * sqrt(1.0 - pow(spec->beta2, t)) / (1.0 - pow(spec->beta1, t));
    return OPTIM_DISPATCH(adam, isa, args->values, args->grads, args->slots[0], args->slots[1],
                          args->next, args->count, (float)alpha, (float)(1.0 - spec->beta1),
                          (float)(1.0 - spec->beta2), (float)spec->epsilon) >>
           31;
}

const struct optim optim_adam = {
    .slot_count = OPTIMIZER_SLOTS_ADAM, .slot_names = {"adam_m", "adam_v"}, .apply = apply};
