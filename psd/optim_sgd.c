/* SPDX-License-Identifier: Apache-2.0 */
/* optim_sgd: plain gradient descent, no slots. */
#include "psd/optim.h"
#include "psd/optim_elem.h"

OPTIM_FN void sgd(const float *restrict w, const float *restrict g, float *restrict next,
                  size_t count, float lr)
{
    for (size_t i = 0; i < count; i++)
        next[i] = optim_elem_sgd(w[i], g[i], lr);
}
OPTIM_VARIANTS(sgd,
               (const float *restrict w, const float *restrict g, float *restrict next,
                size_t count, float lr),
               (w, g, next, count, lr))

static void apply(const struct optimizer_spec *spec, const struct optim_args *args,
                  enum optim_isa isa)
{
    (void)spec;
    OPTIM_DISPATCH(sgd, isa, args->values, args->grads, args->next, args->count, (float)args->rate);
}

const struct optim optim_sgd = {.kind = OPTIMIZER_SGD, .slot_count = 0, .apply = apply};
