/* SPDX-License-Identifier: Apache-2.0 */
/* var_init: initial values as a pure function of (seed, variable name, element of the whole
 * variable), so that partitioning, placement and the number of servers never change them.
 *
 * Thread  any. Shapes: dst holds slice->elem_count floats.
 */
#ifndef PSD_VALUES_VAR_INIT_H
#define PSD_VALUES_VAR_INIT_H

#include "psd/values/slice_layout.h"

void var_init_fill(const struct slice *slice, uint64_t seed, float *dst);

#endif
