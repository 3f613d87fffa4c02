/* SPDX-License-Identifier: Apache-2.0 */
/* var_init: zeros, a constant, or draws by element number. */
#include "psd/values/var_init.h"

#include "common/base/rand.h"

void var_init_fill(const struct slice *slice, uint64_t seed, float *dst)
{
    uint64_t key = rand_key_name(rand_key(seed, RAND_INIT, 0, 0), slice->name);
    uint64_t first = slice->row_offset * slice->row_elems;
    float value = slice->init_value;
    switch (slice->init) {
    case STEADFAST__V1__INIT_KIND__INIT_CONSTANT:
        for (uint64_t i = 0; i < slice->elem_count; i++)
            dst[i] = value;
        return;
    case STEADFAST__V1__INIT_KIND__INIT_TRUNCATED_NORMAL:
        for (uint64_t i = 0; i < slice->elem_count; i++)
            dst[i] = value * rand_truncated_normal(key, first + i);
        return;
    case STEADFAST__V1__INIT_KIND__INIT_NORMAL:
        for (uint64_t i = 0; i < slice->elem_count; i++)
            dst[i] = value * rand_normal(key, first + i);
        return;
    case STEADFAST__V1__INIT_KIND__INIT_UNIFORM:
        for (uint64_t i = 0; i < slice->elem_count; i++)
            dst[i] = (float)(value * (2.0 * rand_unit(key, first + i) - 1.0));
        return;
    case STEADFAST__V1__INIT_KIND__INIT_ZEROS:
    case _STEADFAST__V1__INIT_KIND_IS_INT_SIZE:
        break;
    }
    for (uint64_t i = 0; i < slice->elem_count; i++)
        dst[i] = 0.0f;
}
