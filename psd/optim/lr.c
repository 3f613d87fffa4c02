/* SPDX-License-Identifier: Apache-2.0 */
/* lr: constant and piecewise constant. */
#include "psd/optim/lr.h"

double lr_at(const struct rate_spec *rate, uint64_t applied)
{
    if (rate->count == 0)
        return rate->constant;
    size_t i = 0;
    while (i < rate->count && applied > rate->boundaries[i])
        i++;
    return rate->values[i];
}
