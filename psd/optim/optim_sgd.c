/* SPDX-License-Identifier: Apache-2.0 */
/* optim_sgd: plain gradient descent, no slots. */
#include "psd/optim/optim.h"
#include "psd/optim/optim_elem.h"

OPTIM_FN uint32_t sgd(const float *restrict w, const float *restrict g, float *restrict next,
                      size_t count, float lr)
{
    uint32_t found = 0;
    for (size_t i = 0; i < count; i++) {
        found |= optim_elem_nonfinite(g[i]);
        next[i] = optim_elem_sgd(w[i], g[i], lr);
    }
    return found;
}
OPTIM_VARIANTS(sgd,
               (const float *restrict w, const float *restrict g, float *restrict next,
                size_t count, float lr),
               (w, g, next, count, lr))

static bool apply(const struct optimizer_spec *spec, const struct optim_args *args,
                  enum optim_isa isa)
{
    (void)spec;
    return OPTIM_DISPATCH(sgd, isa, args->values, args->grads, args->next, args->count,
                          (float)args->rate) >>
           31;
}

const struct optim optim_sgd = {.slot_count = OPTIMIZER_SLOTS_SGD, .apply = apply};
