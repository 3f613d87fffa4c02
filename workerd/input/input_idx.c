/* SPDX-License-Identifier: Apache-2.0 */
/* input_idx: images and labels from a pair of idx files, held in memory as bytes. */
#include <inttypes.h>
#include <stdlib.h>

#include "common/formats/idx.h"
#include "workerd/input/input.h"

struct idx_source {
    char *images_path;
    char *labels_path;
    uint32_t num_classes;
    uint64_t records;
    struct idx_data *images;
    struct idx_data *labels;
    float scaled[256]; /* byte / 255, so that every batch has the same bits on every machine */
};

static void close_idx(void *state)
{
    struct idx_source *source = state;
    idx_data_free(source->images);
    idx_data_free(source->labels);
    free(source->images_path);
    free(source->labels_path);
    free(source);
}

static enum err_code open_idx(const struct dataset_spec *spec, const struct input_shape *shape,
                              uint32_t num_classes, uint64_t seed, uint32_t stream,
                              void **ret_state, struct err *err)
{
    (void)seed;
    (void)stream;
    (void)err;
    struct idx_source *source = base_alloc(sizeof(*source));
    source->images_path = base_strdup(spec->images);
    source->labels_path = base_strdup(spec->labels);
    source->num_classes = num_classes;
    source->records = shape->records;
    for (int i = 0; i < 256; i++)
        source->scaled[i] = (float)i / 255.0f;
    *ret_state = source;
    return ERR_OK;
}

static enum err_code load_idx(void *state, struct err *err)
{
    struct idx_source *source = state;
    enum err_code code = idx_load(source->images_path, IDX_IMAGES, &source->images, err);
    if (code == ERR_OK)
        code = idx_load(source->labels_path, IDX_LABELS, &source->labels, err);
    /* The files may have been replaced since the headers were read. */
    if (code == ERR_OK && (source->images->header.count < source->records ||
                           source->labels->header.count < source->records))
        code = err_set(err, ERR_CORRUPT, "%s shrank while the job ran, want %" PRIu64 " records",
                       source->images_path, source->records);
    return code;
}

static enum err_code fill_idx(const void *state, const uint64_t *records, uint32_t count,
                              float *images, int32_t *labels, struct err *err)
{
    const struct idx_source *source = state;
    size_t bytes = source->images->header.record_bytes;
    for (uint32_t i = 0; i < count; i++) {
        uint8_t label = source->labels->bytes[records[i]];
        if (label >= source->num_classes)
            return err_set(
                err, ERR_CORRUPT,
                "%s: record %" PRIu64 " (byte %" PRIu64 ") has label %u, want less than %" PRIu32,
                source->labels_path, records[i], source->labels->header.header_bytes + records[i],
                label, source->num_classes);
        labels[i] = label;
        const uint8_t *from = source->images->bytes + records[i] * bytes;
        float *to = images + (size_t)i * bytes;
        for (size_t p = 0; p < bytes; p++)
            to[p] = source->scaled[from[p]];
    }
    return ERR_OK;
}

const struct input_source input_source_idx = {
    .name = "idx",
    .has_images = true,
    .open = open_idx,
    .load = load_idx,
    .fill = fill_idx,
    .close = close_idx,
};
