/* SPDX-License-Identifier: Apache-2.0 */
/* job_data: what a job is trained and evaluated on. */
#include <inttypes.h>

#include "common/formats/json.h"
#include "common/spec/job_fields.h"
#include "common/spec/job_parts_int.h"

/* What the tables cannot say of a synthetic set. */
static enum err_code check_synthetic(const struct json_at *at, const struct model_spec *model,
                                     struct dataset_spec *spec, struct err *err)
{
    spec->num_classes = model->num_classes;
    struct json_at classes = json_at_member(at, "num_classes");
    if (classes.value)
        TRY(json_at_u32(&classes, 2, LIMIT_CLASSES, &spec->num_classes, err));
    if (spec->num_classes > model->num_classes)
        return json_at_fail(&classes, err, "at most model.num_classes, which is %" PRIu32,
                            model->num_classes);
    /* 2^14 * 2^14 * 2^10 * 2^16 * 4 at most: no overflow. */
    uint64_t bytes = 4ull * spec->batch_size * spec->channels * spec->height * spec->width;
    if (bytes > LIMIT_BATCH_BYTES)
        return json_at_refuse(at, err, "a batch of %" PRIu64 " bytes; want at most %llu", bytes,
                              LIMIT_BATCH_BYTES);
    return ERR_OK;
}

/* dataset and eval_dataset, at being either; present. */
static enum err_code read_dataset(const struct json_at *at, bool is_eval,
                                  const struct model_spec *model, struct dataset_spec *spec,
                                  struct err *err)
{
    int source = 0;
    TRY(job_fields_check(at, FIELDS_DATASET, &source, err));
    spec->source = (enum data_source)source;
    struct json_at source_at = json_at_member(at, "source");
    if (source == DATA_NONE && is_eval)
        return json_at_fail(&source_at, err,
                            "idx or synthetic: there must be something to evaluate");
    struct json_at shuffle = json_at_member(at, "shuffle_buffer");
    if (is_eval && shuffle.value)
        return json_at_refuse(&shuffle, err,
                              "does not belong to an eval_dataset; evaluation reads every record "
                              "once, in the order of the file");
    TRY(job_fields_read(at, FIELDS_DATASET, source, spec, err));
    return source == DATA_SYNTHETIC ? check_synthetic(at, model, spec, err) : ERR_OK;
}

/* A job without data: max_steps alone says how long it is. */
static enum err_code read_noop_data(const struct json_at *job, struct job_spec *spec,
                                    struct err *err)
{
    struct json_at epochs = json_at_member(job, "epochs");
    if (epochs.value && spec->epochs != 1)
        return json_at_fail(&epochs, err,
                            "1 or nothing with model noop; max_steps says how long it runs");
    struct json_at eval = json_at_member(job, "eval_dataset");
    if (eval.value)
        return json_at_refuse(&eval, err,
                              "does not belong to model noop; it has nothing to evaluate");
    struct json_at dataset = json_at_member(job, "dataset");
    spec->dataset.source = DATA_NONE;
    if (dataset.value) {
        TRY(read_dataset(&dataset, false, &spec->model, &spec->dataset, err));
        if (spec->dataset.source != DATA_NONE) {
            struct json_at source = json_at_member(&dataset, "source");
            return json_at_fail(&source, err, "none with model noop; it reads no data");
        }
    }
    struct json_at max_steps = json_at_member(job, "max_steps");
    TRY(json_at_u64(&max_steps, 1, LIMIT_STEPS, &spec->max_steps, err));
    spec->dataset.batch_size = 1;
    spec->dataset.records = spec->max_steps;
    return ERR_OK;
}

static enum err_code check_eval_shape(const struct json_at *eval, const struct job_spec *spec,
                                      struct err *err)
{
    const struct dataset_spec *a = &spec->dataset;
    const struct dataset_spec *b = &spec->eval_dataset;
    if (a->source != DATA_SYNTHETIC || b->source != DATA_SYNTHETIC ||
        (a->height == b->height && a->width == b->width && a->channels == b->channels))
        return ERR_OK;
    return json_at_refuse(
        eval, err, "examples of %ux%ux%u (height, width, channels); want %ux%ux%u as in dataset",
        b->height, b->width, b->channels, a->height, a->width, a->channels);
}

enum err_code job_read_data(const struct json_at *job, struct job_spec *spec, bool is_noop,
                            struct err *err)
{
    if (is_noop)
        return read_noop_data(job, spec, err);
    struct json_at dataset = json_at_member(job, "dataset");
    TRY(read_dataset(&dataset, false, &spec->model, &spec->dataset, err));
    if (spec->dataset.source == DATA_NONE) {
        struct json_at source = json_at_member(&dataset, "source");
        return json_at_fail(&source, err, "idx or synthetic; only model noop trains without data");
    }
    if (spec->dataset.source == DATA_SYNTHETIC) {
        uint64_t batches = (spec->dataset.records - 1) / spec->dataset.batch_size + 1;
        struct json_at epochs = json_at_member(job, "epochs");
        if (spec->epochs > LIMIT_STEPS / batches)
            return json_at_fail(&epochs, err,
                                "at most %llu, because an epoch has %" PRIu64
                                " steps and a job at most %llu",
                                LIMIT_STEPS / batches, batches, LIMIT_STEPS);
    }
    struct json_at eval = json_at_member(job, "eval_dataset");
    if (!eval.value)
        return ERR_OK;
    TRY(read_dataset(&eval, true, &spec->model, &spec->eval_dataset, err));
    spec->has_eval = true;
    return check_eval_shape(&eval, spec, err);
}
