/* SPDX-License-Identifier: Apache-2.0 */
/* input_none: no data. Batches have a size but no images, for jobs that measure everything else. */
#include "workerd/input/input.h"

static enum err_code open_none(const struct dataset_spec *spec, const struct input_shape *shape,
                               uint32_t num_classes, uint64_t seed, uint32_t stream,
                               void **ret_state, struct err *err)
{
    (void)spec;
    (void)shape;
    (void)num_classes;
    (void)seed;
    (void)stream;
    (void)err;
    *ret_state = NULL;
    return ERR_OK;
}

static enum err_code load_none(void *state, struct err *err)
{
    (void)state;
    (void)err;
    return ERR_OK;
}

static enum err_code fill_none(const void *state, const uint64_t *records, uint32_t count,
                               float *images, int32_t *labels, struct err *err)
{
    (void)state;
    (void)records;
    (void)images;
    (void)err;
    for (uint32_t i = 0; i < count; i++)
        labels[i] = 0;
    return ERR_OK;
}

static void close_none(void *state)
{
    (void)state;
}

const struct input_source input_source_none = {
    .name = "none",
    .open = open_none,
    .load = load_none,
    .fill = fill_none,
    .close = close_none,
};
