/* SPDX-License-Identifier: Apache-2.0 */
/* input_synthetic: records computed from (seed, stream, record), with classes that can be learned.
 *
 * Each class has a pattern of dark (0.3) and bright (0.7) elements drawn from the seed alone, the
 * same for training and evaluation; a record is its class's pattern plus noise, uniform in [-0.3,
 * 0.3). One element says little (the two levels overlap), all together decide, so a linear model
 * learns them within an epoch.
 */
#include <stdlib.h>

#include "common/base/rand.h"
#include "workerd/input/input.h"

#define LEVEL_DARK   0.3f
#define LEVEL_BRIGHT 0.7f
#define NOISE        0.3f

struct synthetic {
    uint64_t seed;
    uint32_t stream;
    uint32_t num_classes;
    size_t elements;
};

static enum err_code open_synthetic(const struct dataset_spec *spec,
                                    const struct input_shape *shape, uint32_t num_classes,
                                    uint64_t seed, uint32_t stream, void **ret_state,
                                    struct err *err)
{
    uint32_t classes = spec->num_classes ? spec->num_classes : num_classes;
    if (classes == 0 || classes > num_classes)
        return err_set(err, ERR_INVALID, "dataset.num_classes: %u: want 1 to the model's %u",
                       classes, num_classes);
    struct synthetic *source = base_alloc(sizeof(*source));
    source->seed = seed;
    source->stream = stream;
    source->num_classes = classes;
    source->elements = shape->example_elements;
    *ret_state = source;
    return ERR_OK;
}

static enum err_code load_synthetic(void *state, struct err *err)
{
    (void)state;
    (void)err;
    return ERR_OK;
}

/* 64 elements share a draw for their levels, 4 a draw for their noise. */
static void fill_one(const struct synthetic *source, uint64_t record_key, uint64_t class_key,
                     float *image)
{
    uint64_t levels = 0;
    uint64_t noise = 0;
    for (size_t p = 0; p < source->elements; p++) {
        if (p % 64 == 0)
            levels = rand_u64(class_key, p / 64);
        if (p % 4 == 0)
            noise = rand_u64(record_key, 1 + p / 4);
        float base = levels & 1 ? LEVEL_BRIGHT : LEVEL_DARK;
        float unit = (float)(noise & 0xffff) * (1.0f / 65536.0f);
        image[p] = base + NOISE * (2.0f * unit - 1.0f);
        levels >>= 1;
        noise >>= 16;
    }
}

static enum err_code fill_synthetic(const void *state, const uint64_t *records, uint32_t count,
                                    float *images, int32_t *labels, struct err *err)
{
    (void)err;
    const struct synthetic *source = state;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t key = rand_key(source->seed, RAND_DATA, 1 + (uint64_t)source->stream, records[i]);
        uint32_t label = (uint32_t)(rand_u64(key, 0) % source->num_classes);
        labels[i] = (int32_t)label;
        fill_one(source, key, rand_key(source->seed, RAND_DATA, 0, label),
                 images + (size_t)i * source->elements);
    }
    return ERR_OK;
}

const struct input_source input_source_synthetic = {
    .name = "synthetic",
    .has_images = true,
    .open = open_synthetic,
    .load = load_synthetic,
    .fill = fill_synthetic,
    .close = free,
};
