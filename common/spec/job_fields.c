/* SPDX-License-Identifier: Apache-2.0 */
/* job_fields: one table an object. */
#include "common/spec/job_fields.h"

#include <stdio.h>
#include <string.h>

#include "common/spec/job_spec.h"

#define BIT(variant) (1u << (variant))

static const struct json_key job_keys[] = {
    {"name", JSON_ANY_VARIANT},
    {"seed", JSON_ANY_VARIANT},
    {"epochs", JSON_ANY_VARIANT},
    {"max_steps", JSON_ANY_VARIANT},
    {"model", JSON_ANY_VARIANT},
    {"dataset", JSON_ANY_VARIANT},
    {"eval_dataset", JSON_ANY_VARIANT},
    {"optimizer", JSON_ANY_VARIANT},
    {"consistency", JSON_ANY_VARIANT},
    {"placement", JSON_ANY_VARIANT},
    {"variable_partitioner", JSON_ANY_VARIANT},
    {"checkpoint", JSON_ANY_VARIANT},
    {"steps", JSON_ANY_VARIANT},
};

static const struct json_key model_keys[] = {
    {"name", JSON_ANY_VARIANT},
    {"num_classes", BIT(MODEL_SOFTMAX) | BIT(MODEL_MLP) | BIT(MODEL_LENET)},
    {"hidden", BIT(MODEL_MLP)},
};
static const char *const model_of[] = {"model softmax", "model mlp", "model lenet", "model noop"};

static const struct json_key dataset_keys[] = {
    {"source", JSON_ANY_VARIANT},
    {"images", BIT(DATA_IDX)},
    {"labels", BIT(DATA_IDX)},
    {"records", BIT(DATA_IDX) | BIT(DATA_SYNTHETIC)},
    {"batch_size", BIT(DATA_IDX) | BIT(DATA_SYNTHETIC)},
    {"shuffle_buffer", BIT(DATA_IDX) | BIT(DATA_SYNTHETIC)},
    {"height", BIT(DATA_SYNTHETIC)},
    {"width", BIT(DATA_SYNTHETIC)},
    {"channels", BIT(DATA_SYNTHETIC)},
    {"num_classes", BIT(DATA_SYNTHETIC)},
};
static const char *const dataset_of[] = {"source idx", "source synthetic", "source none"};

#define PARAM_KEY(name, type, takers, fallback, min, max, is_open) {#name, takers},
static const struct json_key optimizer_keys[] = {
    {"name", JSON_ANY_VARIANT}, {"learning_rate", JSON_ANY_VARIANT}, OPTIMIZER_PARAMS(PARAM_KEY)};
#define OPTIMIZER_OF(KIND, name, slots) [OPTIMIZER_##KIND] = "optimizer " #name,
static const char *const optimizer_of[] = {OPTIMIZERS(OPTIMIZER_OF)};

static const struct json_key rate_keys[] = {
    {"name", JSON_ANY_VARIANT},
    {"value", BIT(RATE_CONSTANT)},
    {"boundaries", BIT(RATE_PIECEWISE)},
    {"values", BIT(RATE_PIECEWISE)},
};
#define RATE_OF(KIND, name) [RATE_##KIND] = "schedule " #name,
static const char *const rate_of[] = {RATES(RATE_OF)};

static const struct json_key consistency_keys[] = {{"mode", JSON_ANY_VARIANT}};

static const struct json_key partitioner_keys[] = {
    {"name", JSON_ANY_VARIANT},
    {"num_shards", BIT(PARTITION_FIXED)},
    {"min_shard_bytes", BIT(PARTITION_MIN_SIZE)},
    {"max_shard_bytes", BIT(PARTITION_MAX_SIZE)},
    {"max_shards", BIT(PARTITION_MIN_SIZE) | BIT(PARTITION_MAX_SIZE)},
};
static const char *const partitioner_of[] = {"partitioner none", "partitioner fixed_shards",
                                             "partitioner min_size", "partitioner max_size"};

static const struct json_key checkpoint_keys[] = {
    {"directory", JSON_ANY_VARIANT},
    {"every_steps", JSON_ANY_VARIANT},
    {"max_to_keep", JSON_ANY_VARIANT},
};

static const struct json_key steps_keys[] = {
    {"max_attempts", JSON_ANY_VARIANT},
    {"on_error", JSON_ANY_VARIANT},
    {"deadline_ms", JSON_ANY_VARIANT},
};

static const struct table {
    const char *prefix;
    const struct json_key *keys;
    size_t key_count;
    const char *const *of; /* what to call each variant; NULL: there is only one */
} tables[] = {
    [FIELDS_JOB] = {"", job_keys, ARRAY_SIZE(job_keys), NULL},
    [FIELDS_MODEL] = {"model.", model_keys, ARRAY_SIZE(model_keys), model_of},
    [FIELDS_DATASET] = {"dataset.", dataset_keys, ARRAY_SIZE(dataset_keys), dataset_of},
    [FIELDS_OPTIMIZER] = {"optimizer.", optimizer_keys, ARRAY_SIZE(optimizer_keys), optimizer_of},
    [FIELDS_RATE] = {"optimizer.learning_rate.", rate_keys, ARRAY_SIZE(rate_keys), rate_of},
    [FIELDS_CONSISTENCY] = {"consistency.", consistency_keys, ARRAY_SIZE(consistency_keys), NULL},
    [FIELDS_PARTITIONER] = {"variable_partitioner.", partitioner_keys, ARRAY_SIZE(partitioner_keys),
                            partitioner_of},
    [FIELDS_CHECKPOINT] = {"checkpoint.", checkpoint_keys, ARRAY_SIZE(checkpoint_keys), NULL},
    [FIELDS_STEPS] = {"steps.", steps_keys, ARRAY_SIZE(steps_keys), NULL},
    {"eval_dataset.", dataset_keys, ARRAY_SIZE(dataset_keys), dataset_of},
};

static bool has_key(const struct table *table, const char *name)
{
    for (size_t k = 0; k < table->key_count; k++)
        if (strcmp(table->keys[k].name, name) == 0)
            return true;
    return false;
}

enum err_code job_fields_check(const struct json_at *at, enum fields_of object, struct err *err)
{
    void *cursor = NULL;
    struct json_at member;
    while (json_at_is_object(at) && json_at_next(at, &cursor, &member)) {
        /* "name" is in many objects: whoever wrote it may have meant any of them */
        if (has_key(&tables[object], member.key) || strcmp(member.key, "name") == 0)
            continue;
        if (has_key(&tables[FIELDS_JOB], member.key))
            return json_at_refuse(&member, err,
                                  "unknown name here; \"%s\" belongs to the top level", member.key);
        for (size_t t = 0; t < ARRAY_SIZE(tables); t++)
            if (has_key(&tables[t], member.key))
                return json_at_refuse(&member, err, "unknown name; did you mean \"%s%s\"?",
                                      tables[t].prefix, member.key);
    }
    return json_at_keys(at, tables[object].keys, tables[object].key_count, JSON_ANY_VARIANT, NULL,
                        err);
}

enum err_code job_fields_check_variant(const struct json_at *at, enum fields_of object,
                                       unsigned variant, struct err *err)
{
    ASSERT(tables[object].of);
    return json_at_keys(at, tables[object].keys, tables[object].key_count, BIT(variant),
                        tables[object].of, err);
}

const char *job_fields_name(size_t field_index)
{
    static _Thread_local char name[64];
    for (size_t t = 0; t < ARRAY_SIZE(tables); t++) {
        if (field_index < tables[t].key_count) {
            snprintf(name, sizeof(name), "%s%s", tables[t].prefix,
                     tables[t].keys[field_index].name);
            return name;
        }
        field_index -= tables[t].key_count;
    }
    return NULL;
}
