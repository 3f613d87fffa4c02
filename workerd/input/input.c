/* SPDX-License-Identifier: Apache-2.0 */
/* input: picks the source, counts references and sees to it that a data set is loaded once. */
#include "workerd/input/input.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/spec/data_source.h"

struct input {
    const struct input_source *source;
    void *state;
    struct input_shape shape;
    atomic_uint refs;
    pthread_mutex_t lock; /* guards the load; a leaf, held while files are read */
    bool is_loaded;
    struct err load_err;
};

static const struct input_source *const sources[DATA_SOURCE_COUNT] = {
    [DATA_IDX] = &input_source_idx,
    [DATA_SYNTHETIC] = &input_source_synthetic,
    [DATA_NONE] = &input_source_none,
};

enum err_code input_open(const struct dataset_spec *spec, uint32_t num_classes, uint64_t seed,
                         uint32_t stream, struct input **ret_input, struct err *err)
{
    const struct input_source *source = sources[spec->source];
    ASSERT(source); /* each source has a row */
    struct data_shape size;
    void *state = NULL;
    enum err_code code =
        data_source_measure(spec, stream == 0 ? "dataset" : "eval_dataset", &size, err);
    if (code != ERR_OK)
        return code;
    struct input_shape shape = {
        .records = size.records,
        .channels = size.channels,
        .height = size.height,
        .width = size.width,
        .example_elements =
            source->has_images ? (size_t)size.channels * size.height * size.width : 0,
    };
    code = source->open(spec, &shape, num_classes, seed, stream, &state, err);
    if (code != ERR_OK)
        return code;
    ASSERT(shape.records > 0);
    struct input *input = base_alloc(sizeof(*input));
    input->source = source;
    input->state = state;
    input->shape = shape;
    atomic_init(&input->refs, 1);
    pthread_mutex_init(&input->lock, NULL);
    *ret_input = input;
    return ERR_OK;
}

struct input *input_ref(struct input *input)
{
    atomic_fetch_add(&input->refs, 1);
    return input;
}

void input_unref(struct input *input)
{
    if (!input || atomic_fetch_sub(&input->refs, 1) != 1)
        return;
    input->source->close(input->state);
    pthread_mutex_destroy(&input->lock);
    free(input);
}

const struct input_shape *input_shape_of(const struct input *input)
{
    return &input->shape;
}

enum err_code input_load(struct input *input, struct err *err)
{
    pthread_mutex_lock(&input->lock);
    if (!input->is_loaded) {
        if (input->source->load(input->state, &input->load_err) == ERR_OK)
            input->load_err.code = ERR_OK;
        input->is_loaded = true;
    }
    enum err_code code = input->load_err.code;
    if (code != ERR_OK && err)
        *err = input->load_err;
    pthread_mutex_unlock(&input->lock);
    return code;
}

enum err_code input_fill(struct input *input, const uint64_t *records, uint32_t count,
                         float *images, int32_t *labels, struct err *err)
{
    enum err_code code = input_load(input, err);
    if (code != ERR_OK)
        return code;
    for (uint32_t i = 0; i < count; i++)
        if (records[i] >= input->shape.records)
            return err_set(err, ERR_INVALID, "record %" PRIu64 ", want one of %" PRIu64, records[i],
                           input->shape.records);
    return input->source->fill(input->state, records, count, images, labels, err);
}
