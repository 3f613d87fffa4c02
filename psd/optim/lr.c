/* SPDX-License-Identifier: Apache-2.0 */
/* lr: one function a schedule. */
#include "psd/optim/lr.h"

static double lr_constant(const struct rate_spec *rate, uint64_t applied)
{
    (void)applied;
    return rate->constant;
}

static double lr_piecewise(const struct rate_spec *rate, uint64_t applied)
{
    size_t i = 0;
    while (i < rate->count && applied > rate->boundaries[i])
        i++;
    return rate->values[i];
}

double lr_at(const struct rate_spec *rate, uint64_t applied)
{
#define ROW(KIND, name) [RATE_##KIND] = lr_##name,
    static double (*const table[])(const struct rate_spec *, uint64_t) = {RATES(ROW)};
    ASSERT((size_t)rate->kind < ARRAY_SIZE(table));
    return table[rate->kind](rate, applied);
}
