/* SPDX-License-Identifier: Apache-2.0 */
/* input: a data set as records that any step may ask for, from a table of sources.
 *
 * A batch is a pure function of the data set and the record numbers; nothing here has a position or
 * a history. Sources: idx (MNIST files, loaded whole on first use), synthetic (computed,
 * learnable), none (no data at all: images stay unset, labels are 0; for jobs that measure
 * dispatch).
 *
 * Owns    struct input is counted: the job holds one reference, tasks that outlive it hold more.
 * Thread  immutable but for the first load, which one thread does while others wait; so any.
 *         input_open reads headers, the first input_fill or input_load reads files: not on the loop
 *         thread.
 * Units   images f32 N,C,H,W in [0, 1] (byte / 255); labels class numbers; records count from 0.
 * Errors  those of common/formats/idx.h; ERR_CORRUPT: a label that the model has no class for, by file and
 *         record; ERR_INVALID: more records asked for than the files hold.
 */
#ifndef WORKERD_INPUT_INPUT_H
#define WORKERD_INPUT_INPUT_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/spec/job_spec.h"

struct input;

struct input_shape {
    uint64_t records;
    uint32_t channels;
    uint32_t height;
    uint32_t width;
    size_t example_elements; /* channels * height * width; 0 when there are no images */
};

/* stream tells apart two data sets of one job that are made from the seed (training 0, evaluation
 * 1). Copies what it needs of the spec. */
MUST_CHECK enum err_code input_open(const struct dataset_spec *spec, uint32_t num_classes,
                                    uint64_t seed, uint32_t stream, struct input **ret_input,
                                    struct err *err);
struct input *input_ref(struct input *input);
void input_unref(struct input *input); /* NULL is fine */
const struct input_shape *input_shape_of(const struct input *input);

/* Has the data in memory afterwards. The first failure stays: a job with broken files says so each
 * time. */
MUST_CHECK enum err_code input_load(struct input *input, struct err *err);
/* images: count * example_elements; labels: count. Loads when nobody did. */
MUST_CHECK enum err_code input_fill(struct input *input, const uint64_t *records, uint32_t count,
                                    float *images, int32_t *labels, struct err *err);

/* ---- for sources -------------------------------------------------------------------------------
 */
struct input_source {
    const char *name;
    bool has_images;
    /* Cheap: makes the source's state. The shape is what data_source_measure says of the spec. */
    enum err_code (*open)(const struct dataset_spec *spec, const struct input_shape *shape,
                          uint32_t num_classes, uint64_t seed, uint32_t stream, void **ret_state,
                          struct err *err);
    enum err_code (*load)(void *state, struct err *err); /* once */
    /* records[i] < shape.records */
    enum err_code (*fill)(const void *state, const uint64_t *records, uint32_t count, float *images,
                          int32_t *labels, struct err *err);
    void (*close)(void *state);
};
extern const struct input_source input_source_idx;
extern const struct input_source input_source_synthetic;
extern const struct input_source input_source_none;
/* A new one: its file, here, and a row in input.c. */

#endif
