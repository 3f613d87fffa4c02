/* SPDX-License-Identifier: Apache-2.0 */
/* job_fields: the tables, and what goes over them. */
#include "common/spec/job_fields.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/spec/job_spec.h"

#define BIT(variant) (1u << (variant))
#define ALL          JSON_ANY_VARIANT

enum kind {
    OWN, /* its object's reader reads it */
    U32,
    U64,
    REAL,
    BOOL,
    WORD, /* into an enum */
    PATH, /* absolute: daemons do not run where the job was written */
};

struct field {
    const char *name;
    uint32_t takes; /* bits of the variants that may have it */
    uint32_t needs; /* of those, the ones that must */
    enum kind kind;
    size_t offset;
    uint64_t min, max; /* U32, U64 */
    struct json_range range;
    double preset; /* of every kind but PATH; whole numbers below 2^53 */
    const struct json_word *words;
    size_t word_count;
};

static_assert(sizeof(enum placement_kind) == sizeof(int), "words are read into enums");
#define AT(type, member) offsetof(struct type, member)

/* ---- variants --------------------------------------------------------------------------------
 */
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

#define OPTIMIZER_WORD(KIND, name, slots) {#name, OPTIMIZER_##KIND},
static const struct json_word optimizer_words[] = {
    OPTIMIZERS(OPTIMIZER_WORD){"rmsprop", -1},
    {"adagrad", -1},
    {"adamw", -1},
    {"ftrl", -1},
    {"lars", -1},
    {"lamb", -1},
};

#define RATE_WORD(KIND, name) {#name, RATE_##KIND},
static const struct json_word rate_words[] = {
    RATES(RATE_WORD){"exponential", -1},
    {"cosine", -1},
    {"polynomial", -1},
    {"warmup", -1},
};

static const struct json_word partitioner_words[] = {
    {"none", PARTITION_NONE},
    {"fixed_shards", PARTITION_FIXED},
    {"min_size", PARTITION_MIN_SIZE},
    {"max_size", PARTITION_MAX_SIZE},
};

/* ---- words that are values -------------------------------------------------------------------
 */
static const struct json_word consistency_words[] = {
    {"async", CONSISTENCY_ASYNC}, {"sync", -1}, {"ssp", -1}, {"bsp", -1}, {"sync_backup", -1},
};

static const struct json_word placement_words[] = {
    {"by_size", PLACEMENT_BY_SIZE},
    {"round_robin", PLACEMENT_ROUND_ROBIN},
};

static const struct json_word on_error_words[] = {
    {"abort", STEP_ERROR_ABORT},
    {"retry", STEP_ERROR_RETRY},
    {"skip", STEP_ERROR_SKIP},
};

#define WORDS(table) .words = (table), .word_count = ARRAY_SIZE(table)

/* ---- objects ---------------------------------------------------------------------------------
 */
static const struct field job_fields[] = {
    {"name", ALL, .kind = OWN},
    {"seed", ALL, .kind = U64, .offset = AT(job_spec, seed), .max = INT64_MAX, .preset = 1},
    {"epochs", ALL, .kind = U32, .offset = AT(job_spec, epochs), .min = 1, .max = LIMIT_EPOCHS,
     .preset = 1},
    {"max_steps", ALL, .kind = U64, .offset = AT(job_spec, max_steps), .max = LIMIT_STEPS},
    {"model", ALL, .kind = OWN},
    {"dataset", ALL, .kind = OWN},
    {"eval_dataset", ALL, .kind = OWN},
    {"optimizer", ALL, .kind = OWN},
    {"consistency", ALL, .kind = OWN},
    {"placement", ALL, .kind = WORD, .offset = AT(job_spec, placement), WORDS(placement_words),
     .preset = PLACEMENT_BY_SIZE},
    {"variable_partitioner", ALL, .kind = OWN},
    {"checkpoint", ALL, .kind = OWN},
    {"steps", ALL, .kind = OWN},
};

#define CLASSIFIES (BIT(MODEL_SOFTMAX) | BIT(MODEL_MLP) | BIT(MODEL_LENET))
static const struct field model_fields[] = {
    {"name", ALL, .kind = OWN},
    {"num_classes", CLASSIFIES, .kind = U32, .offset = AT(model_spec, num_classes), .min = 2,
     .max = LIMIT_CLASSES, .preset = 10},
    {"hidden", BIT(MODEL_MLP), .kind = OWN},
};
static const char *const model_of[] = {"model softmax", "model mlp", "model lenet", "model noop"};

#define READS (BIT(DATA_IDX) | BIT(DATA_SYNTHETIC))
static const struct field dataset_fields[] = {
    {"source", ALL, .kind = OWN},
    {"images", BIT(DATA_IDX), BIT(DATA_IDX), .kind = PATH, .offset = AT(dataset_spec, images)},
    {"labels", BIT(DATA_IDX), BIT(DATA_IDX), .kind = PATH, .offset = AT(dataset_spec, labels)},
    {"records", READS, BIT(DATA_SYNTHETIC), .kind = U64, .offset = AT(dataset_spec, records),
     .min = 1, .max = LIMIT_RECORDS},
    {"batch_size", READS, .kind = U32, .offset = AT(dataset_spec, batch_size), .min = 1,
     .max = LIMIT_BATCH, .preset = 32},
    {"shuffle_buffer", READS, .kind = U64, .offset = AT(dataset_spec, shuffle_buffer),
     .max = LIMIT_RECORDS},
    {"height", BIT(DATA_SYNTHETIC), .kind = U32, .offset = AT(dataset_spec, height), .min = 1,
     .max = LIMIT_IMAGE_SIDE, .preset = 28},
    {"width", BIT(DATA_SYNTHETIC), .kind = U32, .offset = AT(dataset_spec, width), .min = 1,
     .max = LIMIT_IMAGE_SIDE, .preset = 28},
    {"channels", BIT(DATA_SYNTHETIC), .kind = U32, .offset = AT(dataset_spec, channels), .min = 1,
     .max = LIMIT_IMAGE_CHANNELS, .preset = 1},
    {"num_classes", BIT(DATA_SYNTHETIC), .kind = OWN}, /* its default is the model's */
};
static const char *const dataset_of[] = {"source idx", "source synthetic", "source none"};

#define ANY_RATE                                                                                   \
    {                                                                                              \
        .min = 0, .max = 1e6                                                                       \
    }
#define PARAM_double REAL
#define PARAM_bool   BOOL
#define PARAM(name, type, takers, fallback, least, most, is_open)                                  \
    {#name,                                                                                        \
     takers,                                                                                       \
     .kind = PARAM_##type,                                                                         \
     .offset = AT(optimizer_spec, name),                                                           \
     .range = {.min = (least), .max = (most), .is_max_open = (is_open)},                           \
     .preset = (fallback)},
static const struct field optimizer_fields[] = {
    {"name", ALL, .kind = OWN}, {"learning_rate", ALL, .kind = OWN}, OPTIMIZER_PARAMS(PARAM)};
#define OPTIMIZER_OF(KIND, name, slots) [OPTIMIZER_##KIND] = "optimizer " #name,
static const char *const optimizer_of[] = {OPTIMIZERS(OPTIMIZER_OF)};

static const struct field rate_fields[] = {
    {"name", ALL, .kind = OWN},
    {"value", BIT(RATE_CONSTANT), BIT(RATE_CONSTANT), .kind = REAL,
     .offset = AT(rate_spec, constant), .range = ANY_RATE},
    {"boundaries", BIT(RATE_PIECEWISE), .kind = OWN},
    {"values", BIT(RATE_PIECEWISE), .kind = OWN},
};
#define RATE_OF(KIND, name) [RATE_##KIND] = "schedule " #name,
static const char *const rate_of[] = {RATES(RATE_OF)};

static const struct field consistency_fields[] = {
    {"mode", ALL, ALL, .kind = WORD, .offset = AT(job_spec, consistency), WORDS(consistency_words),
     .preset = CONSISTENCY_ASYNC},
};

static const struct field partitioner_fields[] = {
    {"name", ALL, .kind = OWN},
    {"num_shards", BIT(PARTITION_FIXED), BIT(PARTITION_FIXED), .kind = U64,
     .offset = AT(partitioner_spec, num_shards), .min = 1, .max = LIMIT_SLICES},
    {"min_shard_bytes", BIT(PARTITION_MIN_SIZE), .kind = U64,
     .offset = AT(partitioner_spec, min_shard_bytes), .min = 1, .max = INT64_MAX, .preset = 262144},
    {"max_shard_bytes", BIT(PARTITION_MAX_SIZE), BIT(PARTITION_MAX_SIZE), .kind = U64,
     .offset = AT(partitioner_spec, max_shard_bytes), .min = 1, .max = INT64_MAX},
    {"max_shards", BIT(PARTITION_MIN_SIZE) | BIT(PARTITION_MAX_SIZE),
     .kind = OWN}, /* two defaults */
};
static const char *const partitioner_of[] = {"partitioner none", "partitioner fixed_shards",
                                             "partitioner min_size", "partitioner max_size"};

static const struct field checkpoint_fields[] = {
    {"directory", ALL, ALL, .kind = PATH, .offset = AT(job_spec, checkpoint.directory)},
    {"every_steps", ALL, .kind = U64, .offset = AT(job_spec, checkpoint.every_steps),
     .max = LIMIT_STEPS},
    {"max_to_keep", ALL, .kind = U32, .offset = AT(job_spec, checkpoint.max_to_keep),
     .max = LIMIT_CHECKPOINTS_KEPT, .preset = 5},
};

static const struct field steps_fields[] = {
    {"max_attempts", ALL, .kind = U32, .offset = AT(job_spec, steps.max_attempts), .min = 1,
     .max = LIMIT_STEP_ATTEMPTS, .preset = 5},
    {"on_error", ALL, .kind = WORD, .offset = AT(job_spec, steps.on_error), WORDS(on_error_words),
     .preset = STEP_ERROR_RETRY},
    {"deadline_ms", ALL, .kind = U32, .offset = AT(job_spec, steps.deadline_ms), .min = 1,
     .max = LIMIT_STEP_DEADLINE_MS, .preset = DEFAULT_STEP_DEADLINE_MS},
};

#define FIELDS(table)               .fields = (table), .field_count = ARRAY_SIZE(table)
#define ONLY                        .picks = NULL, .words = NULL, .word_count = 0, .of = NULL
#define VARIANTS(table, key, names) .picks = (key), WORDS(table), .of = (names)

enum { FIELDS_MAX = 32 };
static const struct object {
    const char *prefix;
    const struct field *fields;
    size_t field_count;
    const char *picks; /* the name whose word picks the variant; NULL: there is only one */
    const struct json_word *words;
    size_t word_count;
    const char *const *of; /* what to call each variant */
} objects[] = {
    [FIELDS_JOB] = {"", FIELDS(job_fields), ONLY},
    [FIELDS_MODEL] = {"model.", FIELDS(model_fields), VARIANTS(model_words, "name", model_of)},
    [FIELDS_DATASET] = {"dataset.", FIELDS(dataset_fields),
                        VARIANTS(source_words, "source", dataset_of)},
    [FIELDS_OPTIMIZER] = {"optimizer.", FIELDS(optimizer_fields),
                          VARIANTS(optimizer_words, "name", optimizer_of)},
    [FIELDS_RATE] = {"optimizer.learning_rate.", FIELDS(rate_fields),
                     VARIANTS(rate_words, "name", rate_of)},
    [FIELDS_CONSISTENCY] = {"consistency.", FIELDS(consistency_fields), ONLY},
    [FIELDS_PARTITIONER] = {"variable_partitioner.", FIELDS(partitioner_fields),
                            VARIANTS(partitioner_words, "name", partitioner_of)},
    [FIELDS_CHECKPOINT] = {"checkpoint.", FIELDS(checkpoint_fields), ONLY},
    [FIELDS_STEPS] = {"steps.", FIELDS(steps_fields), ONLY},
    {"eval_dataset.", FIELDS(dataset_fields), VARIANTS(source_words, "source", dataset_of)},
};
static_assert(ARRAY_SIZE(job_fields) <= FIELDS_MAX && ARRAY_SIZE(dataset_fields) <= FIELDS_MAX &&
                  ARRAY_SIZE(optimizer_fields) <= FIELDS_MAX,
              "check_names has room for every object");

/* ---- names -----------------------------------------------------------------------------------
 */
static bool has_field(const struct object *object, const char *name)
{
    for (size_t f = 0; f < object->field_count; f++)
        if (strcmp(object->fields[f].name, name) == 0)
            return true;
    return false;
}

static enum err_code check_names(const struct json_at *at, const struct object *object,
                                 uint32_t variants, struct err *err)
{
    struct json_key keys[FIELDS_MAX];
    ASSERT(object->field_count <= FIELDS_MAX);
    for (size_t f = 0; f < object->field_count; f++)
        keys[f] = (struct json_key){object->fields[f].name, object->fields[f].takes};
    return json_at_keys(at, keys, object->field_count, variants, object->of, err);
}

/* A name of another object is told with that. */
static enum err_code check_strangers(const struct json_at *at, const struct object *object,
                                     struct err *err)
{
    void *cursor = NULL;
    struct json_at member;
    while (json_at_is_object(at) && json_at_next(at, &cursor, &member)) {
        /* "name" is in many objects: whoever wrote it may have meant any of them */
        if (has_field(object, member.key) || strcmp(member.key, "name") == 0)
            continue;
        if (has_field(&objects[FIELDS_JOB], member.key))
            return json_at_refuse(&member, err,
                                  "unknown name here; \"%s\" belongs to the top level", member.key);
        for (size_t o = 0; o < ARRAY_SIZE(objects); o++)
            if (has_field(&objects[o], member.key))
                return json_at_refuse(&member, err, "unknown name; did you mean \"%s%s\"?",
                                      objects[o].prefix, member.key);
    }
    return ERR_OK;
}

enum err_code job_fields_check(const struct json_at *at, enum fields_of object, int *ret_variant,
                               struct err *err)
{
    const struct object *of = &objects[object];
    int variant = 0;
    enum err_code code = check_strangers(at, of, err);
    if (code == ERR_OK)
        code = check_names(at, of, JSON_ANY_VARIANT, err);
    if (code == ERR_OK && of->picks) {
        struct json_at word = json_at_member(at, of->picks);
        code = json_at_word(&word, of->words, of->word_count, &variant, err);
        if (code == ERR_OK)
            code = check_names(at, of, BIT(variant), err);
    }
    if (code == ERR_OK && ret_variant)
        *ret_variant = variant;
    return code;
}

const char *job_fields_name(size_t field_index)
{
    static _Thread_local char name[64];
    for (size_t o = 0; o < ARRAY_SIZE(objects); o++) {
        if (field_index < objects[o].field_count) {
            snprintf(name, sizeof(name), "%s%s", objects[o].prefix,
                     objects[o].fields[field_index].name);
            return name;
        }
        field_index -= objects[o].field_count;
    }
    return NULL;
}

/* ---- values ----------------------------------------------------------------------------------
 */
static void set_preset(const struct field *field, void *to)
{
    switch (field->kind) {
    case U32:
        *(uint32_t *)to = (uint32_t)field->preset;
        break;
    case U64:
        *(uint64_t *)to = (uint64_t)field->preset;
        break;
    case REAL:
        *(double *)to = field->preset;
        break;
    case BOOL:
        *(bool *)to = field->preset != 0;
        break;
    case WORD:
        *(int *)to = (int)field->preset;
        break;
    case OWN:
    case PATH:
        break;
    }
}

static enum err_code read_path(const struct json_at *at, char **ret_path, struct err *err)
{
    const char *chars = json_at_chars(at);
    if (!chars || chars[0] != '/' || chars[1] == '\0')
        return json_at_fail(at, err, "an absolute path, \"/some/where\"");
    return json_at_string(at, 2, LIMIT_PATH_BYTES, ret_path, err);
}

static enum err_code read_value(const struct json_at *at, const struct field *field, void *to,
                                struct err *err)
{
    switch (field->kind) {
    case U32:
        return json_at_u32(at, (uint32_t)field->min, (uint32_t)field->max, to, err);
    case U64:
        return json_at_u64(at, field->min, field->max, to, err);
    case REAL:
        return json_at_double(at, field->range, to, err);
    case BOOL:
        return json_at_bool(at, to, err);
    case WORD:
        return json_at_word(at, field->words, field->word_count, to, err);
    case PATH:
        return read_path(at, to, err);
    case OWN:
        break;
    }
    return ERR_OK;
}

enum err_code job_fields_read(const struct json_at *at, enum fields_of object, int variant,
                              void *base, struct err *err)
{
    const struct object *of = &objects[object];
    for (size_t f = 0; f < of->field_count; f++) {
        const struct field *field = &of->fields[f];
        if (field->kind == OWN || !(field->takes & BIT(variant)))
            continue;
        void *to = (char *)base + field->offset;
        struct json_at member = {.value = NULL};
        if (at->value)
            member = json_at_member(at, field->name);
        if (!member.value)
            set_preset(field, to);
        if (member.value || (at->value && field->needs & BIT(variant))) {
            enum err_code code = read_value(&member, field, to, err);
            if (code != ERR_OK)
                return code;
        }
    }
    return ERR_OK;
}
