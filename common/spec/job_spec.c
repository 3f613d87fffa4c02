/* SPDX-License-Identifier: Apache-2.0 */
/* job_spec: one reader for each object of a job; job_fields has the names.
 *
 * Each reader goes over its object in the same order: names that are known nowhere, then the word
 * that picks the variant (model, source, optimizer, partitioner), then names that are known but not
 * to this variant, then the values. So a misspelt field is never reported as a missing one.
 */
#include "common/spec/job_spec.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/formats/json.h"
#include "common/spec/job_fields.h"
#include "common/spec/optimizer_int.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum err_code try_code_ = (call);                                                          \
        if (try_code_ != ERR_OK)                                                                   \
            return try_code_;                                                                      \
    } while (0)

/* ---- the words ------------------------------------------------------------------------------- */

/* models/zoo/model.h says what each builder makes. */
static const struct json_word model_words[] = {
    {"softmax", MODEL_SOFTMAX},
    {"mlp", MODEL_MLP},
    {"lenet", MODEL_LENET},
    {"noop", MODEL_NOOP},
    {"trivial", -1},
    {"alexnet", -1},
    {"overfeat", -1},
    {"vgg11", -1},
    {"vgg16", -1},
    {"vgg19", -1},
    {"googlenet", -1},
    {"inception3", -1},
    {"inception4", -1},
    {"resnet50", -1},
    {"resnet101", -1},
    {"resnet152", -1},
    {"mobilenet", -1},
    {"nasnet", -1},
};

static const struct json_word source_words[] = {
    {"idx", DATA_IDX},   {"synthetic", DATA_SYNTHETIC},
    {"none", DATA_NONE}, {"tfrecord", -1},
    {"cifar", -1},       {"csv", -1},
    {"libsvm", -1},      {"npy", -1},
    {"safetensors", -1},
};

static const struct json_word consistency_words[] = {
    {"async", CONSISTENCY_ASYNC}, {"sync", -1}, {"ssp", -1}, {"bsp", -1}, {"sync_backup", -1},
};

static const struct json_word placement_words[] = {
    {"by_size", PLACEMENT_BY_SIZE},
    {"round_robin", PLACEMENT_ROUND_ROBIN},
};

static const struct json_word partitioner_words[] = {
    {"none", PARTITION_NONE},
    {"fixed_shards", PARTITION_FIXED},
    {"min_size", PARTITION_MIN_SIZE},
    {"max_size", PARTITION_MAX_SIZE},
};

static const struct json_word on_error_words[] = {
    {"abort", STEP_ERROR_ABORT},
    {"retry", STEP_ERROR_RETRY},
    {"skip", STEP_ERROR_SKIP},
};

const char *job_spec_field(size_t field_index)
{
    return job_fields_name(field_index);
}

/* ---- small readers: a field that is absent keeps its default --------------------------------- */

static enum err_code opt_u32(const struct json_at *at, const char *key, uint32_t min, uint32_t max,
                             uint32_t *ret_value, struct err *err)
{
    struct json_at member = json_at_member(at, key);
    return member.value ? json_at_u32(&member, min, max, ret_value, err) : ERR_OK;
}

static enum err_code opt_u64(const struct json_at *at, const char *key, uint64_t min, uint64_t max,
                             uint64_t *ret_value, struct err *err)
{
    struct json_at member = json_at_member(at, key);
    return member.value ? json_at_u64(&member, min, max, ret_value, err) : ERR_OK;
}

static enum err_code need_u64(const struct json_at *at, const char *key, uint64_t min, uint64_t max,
                              uint64_t *ret_value, struct err *err)
{
    struct json_at member = json_at_member(at, key);
    return json_at_u64(&member, min, max, ret_value, err);
}

static enum err_code need_word(const struct json_at *at, const char *key,
                               const struct json_word *words, size_t word_count, int *ret_value,
                               struct err *err)
{
    struct json_at member = json_at_member(at, key);
    return json_at_word(&member, words, word_count, ret_value, err);
}

/* Daemons do not run where the job was written, so a relative path would mean a different file on
 * each. */
static enum err_code need_path(const struct json_at *at, const char *key, char **ret_path,
                               struct err *err)
{
    struct json_at member = json_at_member(at, key);
    const char *chars = json_at_chars(&member);
    if (!chars || chars[0] != '/' || chars[1] == '\0')
        return json_at_fail(&member, err, "an absolute path, \"/some/where\"");
    return json_at_string(&member, 2, LIMIT_PATH_BYTES, ret_path, err);
}

/* ---- the objects ----------------------------------------------------------------------------- */

static enum err_code read_name(const struct json_at *job, char **ret_name, struct err *err)
{
    struct json_at at = json_at_member(job, "name");
    const char *chars = json_at_chars(&at);
    size_t length = chars ? strlen(chars) : 0;
    bool is_good = length >= 1 && length <= LIMIT_NAME_BYTES;
    bool is_number = true;
    for (size_t i = 0; is_good && i < length; i++) {
        is_good = isalnum((unsigned char)chars[i]) || chars[i] == '_' ||
                  (i > 0 && (chars[i] == '.' || chars[i] == '-'));
        is_number = is_number && isdigit((unsigned char)chars[i]);
    }
    if (!is_good)
        return json_at_fail(&at, err,
                            "1 to %d of A-Z a-z 0-9 . _ -, with no . or - at the beginning",
                            LIMIT_NAME_BYTES);
    if (is_number)
        return json_at_fail(&at, err, "a name that cannot be taken for a job's number");
    return json_at_string(&at, 1, LIMIT_NAME_BYTES, ret_name, err);
}

static enum err_code read_hidden(const struct json_at *model, struct model_spec *spec,
                                 struct err *err)
{
    struct json_at hidden = json_at_member(model, "hidden");
    size_t count = 1;
    if (hidden.value) {
        TRY(json_at_array(&hidden, 1, LIMIT_HIDDEN_LAYERS, "layer sizes", err));
        count = json_at_count(&hidden);
    }
    spec->hidden = calloc(count, sizeof(*spec->hidden));
    if (!spec->hidden)
        return err_set(err, ERR_NO_MEMORY, "out of memory for %zu layers", count);
    spec->hidden_count = count;
    spec->hidden[0] = 128;
    for (size_t i = 0; hidden.value && i < count; i++) {
        struct json_at units = json_at_element(&hidden, i);
        TRY(json_at_u32(&units, 1, LIMIT_LAYER_UNITS, &spec->hidden[i], err));
    }
    return ERR_OK;
}

static enum err_code read_model(const struct json_at *job, struct model_spec *spec,
                                int *ret_variant, struct err *err)
{
    struct json_at at = json_at_member(job, "model");
    TRY(job_fields_check(&at, FIELDS_MODEL, err));
    TRY(need_word(&at, "name", model_words, ARRAY_SIZE(model_words), ret_variant, err));
    TRY(job_fields_check_variant(&at, FIELDS_MODEL, (unsigned)*ret_variant, err));
    struct json_at name = json_at_member(&at, "name");
    TRY(json_at_string(&name, 1, LIMIT_NAME_BYTES, &spec->name, err));
    if (*ret_variant == MODEL_NOOP)
        return ERR_OK;
    spec->num_classes = 10;
    TRY(opt_u32(&at, "num_classes", 2, LIMIT_CLASSES, &spec->num_classes, err));
    return *ret_variant == MODEL_MLP ? read_hidden(&at, spec, err) : ERR_OK;
}

static enum err_code read_synthetic(const struct json_at *at, const struct model_spec *model,
                                    struct dataset_spec *spec, struct err *err)
{
    spec->height = 28;
    spec->width = 28;
    spec->channels = 1;
    spec->num_classes = model->num_classes;
    TRY(need_u64(at, "records", 1, LIMIT_RECORDS, &spec->records, err));
    TRY(opt_u32(at, "height", 1, LIMIT_IMAGE_SIDE, &spec->height, err));
    TRY(opt_u32(at, "width", 1, LIMIT_IMAGE_SIDE, &spec->width, err));
    TRY(opt_u32(at, "channels", 1, LIMIT_IMAGE_CHANNELS, &spec->channels, err));
    TRY(opt_u32(at, "num_classes", 2, LIMIT_CLASSES, &spec->num_classes, err));
    if (spec->num_classes > model->num_classes) {
        struct json_at classes = json_at_member(at, "num_classes");
        return json_at_fail(&classes, err, "at most model.num_classes, which is %" PRIu32,
                            model->num_classes);
    }
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
    TRY(job_fields_check(at, FIELDS_DATASET, err));
    int source = 0;
    TRY(need_word(at, "source", source_words, ARRAY_SIZE(source_words), &source, err));
    spec->source = (enum data_source)source;
    struct json_at source_at = json_at_member(at, "source");
    if (source == DATA_NONE && is_eval)
        return json_at_fail(&source_at, err,
                            "idx or synthetic: there must be something to evaluate");
    TRY(job_fields_check_variant(at, FIELDS_DATASET, (unsigned)source, err));
    struct json_at shuffle = json_at_member(at, "shuffle_buffer");
    if (is_eval && shuffle.value)
        return json_at_refuse(&shuffle, err,
                              "does not belong to an eval_dataset; evaluation reads every record "
                              "once, in the order of the file");
    if (source == DATA_NONE)
        return ERR_OK;
    spec->batch_size = 32;
    TRY(opt_u32(at, "batch_size", 1, LIMIT_BATCH, &spec->batch_size, err));
    TRY(opt_u64(at, "shuffle_buffer", 0, LIMIT_RECORDS, &spec->shuffle_buffer, err));
    if (source == DATA_SYNTHETIC)
        return read_synthetic(at, model, spec, err);
    TRY(need_path(at, "images", &spec->images, err));
    TRY(need_path(at, "labels", &spec->labels, err));
    return opt_u64(at, "records", 1, LIMIT_RECORDS, &spec->records, err);
}

static enum err_code read_placing(const struct json_at *job, struct job_spec *spec, struct err *err)
{
    int value = CONSISTENCY_ASYNC;
    struct json_at at = json_at_member(job, "consistency");
    if (at.value) {
        TRY(job_fields_check(&at, FIELDS_CONSISTENCY, err));
        TRY(need_word(&at, "mode", consistency_words, ARRAY_SIZE(consistency_words), &value, err));
    }
    spec->consistency = (enum consistency_mode)value;

    value = PLACEMENT_BY_SIZE;
    at = json_at_member(job, "placement");
    if (at.value)
        TRY(json_at_word(&at, placement_words, ARRAY_SIZE(placement_words), &value, err));
    spec->placement = (enum placement_kind)value;

    struct partitioner_spec *part = &spec->partitioner;
    at = json_at_member(job, "variable_partitioner");
    if (!at.value)
        return ERR_OK;
    TRY(job_fields_check(&at, FIELDS_PARTITIONER, err));
    int kind = 0;
    TRY(need_word(&at, "name", partitioner_words, ARRAY_SIZE(partitioner_words), &kind, err));
    TRY(job_fields_check_variant(&at, FIELDS_PARTITIONER, (unsigned)kind, err));
    part->kind = (enum partitioner_kind)kind;
    part->min_shard_bytes = kind == PARTITION_MIN_SIZE ? 262144 : 0;
    part->max_shards = kind == PARTITION_MIN_SIZE ? 1 : 0;
    if (kind == PARTITION_FIXED)
        TRY(need_u64(&at, "num_shards", 1, LIMIT_SLICES, &part->num_shards, err));
    if (kind == PARTITION_MAX_SIZE)
        TRY(need_u64(&at, "max_shard_bytes", 1, INT64_MAX, &part->max_shard_bytes, err));
    TRY(opt_u64(&at, "min_shard_bytes", 1, INT64_MAX, &part->min_shard_bytes, err));
    return opt_u64(&at, "max_shards", 1, LIMIT_SLICES, &part->max_shards, err);
}

static enum err_code read_checkpoint(const struct json_at *job, struct job_spec *spec,
                                     struct err *err)
{
    struct json_at at = json_at_member(job, "checkpoint");
    spec->checkpoint.max_to_keep = 5;
    if (!at.value)
        return ERR_OK;
    TRY(job_fields_check(&at, FIELDS_CHECKPOINT, err));
    TRY(need_path(&at, "directory", &spec->checkpoint.directory, err));
    TRY(opt_u64(&at, "every_steps", 0, LIMIT_STEPS, &spec->checkpoint.every_steps, err));
    return opt_u32(&at, "max_to_keep", 0, LIMIT_CHECKPOINTS_KEPT, &spec->checkpoint.max_to_keep,
                   err);
}

static enum err_code read_steps(const struct json_at *job, struct job_spec *spec, struct err *err)
{
    struct json_at at = json_at_member(job, "steps");
    spec->steps.max_attempts = 5;
    spec->steps.on_error = STEP_ERROR_RETRY;
    spec->steps.deadline_ms = DEFAULT_STEP_DEADLINE_MS;
    if (!at.value)
        return ERR_OK;
    TRY(job_fields_check(&at, FIELDS_STEPS, err));
    TRY(opt_u32(&at, "max_attempts", 1, LIMIT_STEP_ATTEMPTS, &spec->steps.max_attempts, err));
    struct json_at on_error = json_at_member(&at, "on_error");
    int policy = STEP_ERROR_RETRY;
    if (on_error.value)
        TRY(json_at_word(&on_error, on_error_words, ARRAY_SIZE(on_error_words), &policy, err));
    spec->steps.on_error = (enum step_error_policy)policy;
    return opt_u32(&at, "deadline_ms", 1, LIMIT_STEP_DEADLINE_MS, &spec->steps.deadline_ms, err);
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
    TRY(need_u64(job, "max_steps", 1, LIMIT_STEPS, &spec->max_steps, err));
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

static enum err_code read_data(const struct json_at *job, struct job_spec *spec, struct err *err)
{
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

static enum err_code read_job(const struct json_at *job, struct job_spec *spec, struct err *err)
{
    TRY(job_fields_check(job, FIELDS_JOB, err));
    TRY(read_name(job, &spec->name, err));
    TRY(opt_u64(job, "seed", 0, INT64_MAX, &spec->seed, err));
    TRY(opt_u32(job, "epochs", 1, LIMIT_EPOCHS, &spec->epochs, err));
    TRY(opt_u64(job, "max_steps", 0, LIMIT_STEPS, &spec->max_steps, err));
    int model = 0;
    TRY(read_model(job, &spec->model, &model, err));
    TRY(model == MODEL_NOOP ? read_noop_data(job, spec, err) : read_data(job, spec, err));
    struct json_at optimizer = json_at_member(job, "optimizer");
    if (model != MODEL_NOOP || optimizer.value)
        TRY(optimizer_spec_read(&optimizer, &spec->optimizer, err));
    TRY(read_placing(job, spec, err));
    TRY(read_checkpoint(job, spec, err));
    return read_steps(job, spec, err);
}

enum err_code job_spec_parse(const char *json, size_t bytes, struct job_spec **ret_spec,
                             struct err *err)
{
    AUTO(json_doc) doc = NULL;
    TRY(json_doc_parse(NULL, json, bytes, LIMIT_SPEC_BYTES, &doc, err));
    AUTO(job_spec) spec = calloc(1, sizeof(*spec));
    if (!spec)
        return err_set(err, ERR_NO_MEMORY, "out of memory for a job");
    spec->seed = 1;
    spec->epochs = 1;
    optimizer_spec_init(&spec->optimizer);
    struct json_at job = json_doc_root(doc);
    TRY(read_job(&job, spec, err));
    *ret_spec = TAKE(spec);
    return ERR_OK;
}

static void dataset_done(struct dataset_spec *spec)
{
    free(spec->images);
    free(spec->labels);
}

void job_spec_free(struct job_spec *spec)
{
    if (!spec)
        return;
    free(spec->name);
    free(spec->model.name);
    free(spec->model.hidden);
    dataset_done(&spec->dataset);
    dataset_done(&spec->eval_dataset);
    optimizer_spec_done(&spec->optimizer);
    free(spec->checkpoint.directory);
    free(spec);
}
