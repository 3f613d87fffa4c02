/* SPDX-License-Identifier: Apache-2.0 */
/* job_spec: a job's JSON into a checked struct. All checks of a job that need no cluster are here.
 *
 * A job of model noop has no data: dataset.source is "none" (or dataset is left out), epochs is 1,
 * max_steps is given, and dataset.records and batch_size are set so that an epoch has max_steps
 * steps.
 *
 * Unknown fields are refused with the nearest known name; every error begins with the JSON path,
 * shows the value and says what was wanted: `optimizer.momentum: 1.5: want a number from 0 to less
 * than 1`. docs/job-spec.md lists every field with type, default, range and meaning.
 *
 * Owns    struct job_spec owns its strings and arrays; free with job_spec_free.
 * Thread  any.
 * Errors  ERR_INVALID with path, value, wanted. ERR_NO_MEMORY.
 */
#ifndef COMMON_SPEC_JOB_SPEC_H
#define COMMON_SPEC_JOB_SPEC_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/base/limits.h"
#include "common/spec/optimizer.h"

enum data_source { DATA_IDX, DATA_SYNTHETIC, DATA_NONE, DATA_SOURCE_COUNT };

struct dataset_spec {
    enum data_source source;
    char *images; /* idx: path of the images, plain or gzip */
    char *labels;
    uint64_t records;    /* synthetic: required; idx: 0 = read from the header; none: max_steps */
    uint32_t batch_size; /* 1 to 65536; none: 1 */
    uint64_t shuffle_buffer; /* records of a window; 0: file order */
    uint32_t height;         /* synthetic: 28 */
    uint32_t width;          /* synthetic: 28 */
    uint32_t channels;       /* synthetic: 1 */
    uint32_t num_classes;    /* synthetic: the model's */
};

struct model_spec {
    char *name; /* softmax, mlp, lenet, noop */
    uint32_t num_classes;
    uint32_t *hidden; /* mlp: units of the hidden layers; default {128} */
    size_t hidden_count;
};

enum consistency_mode { CONSISTENCY_ASYNC };
enum placement_kind { PLACEMENT_BY_SIZE, PLACEMENT_ROUND_ROBIN };
enum partitioner_kind { PARTITION_NONE, PARTITION_FIXED, PARTITION_MIN_SIZE, PARTITION_MAX_SIZE };

struct partitioner_spec {
    enum partitioner_kind kind;
    uint64_t num_shards;      /* fixed_shards */
    uint64_t min_shard_bytes; /* min_size: 262144 */
    uint64_t max_shard_bytes; /* max_size */
    uint64_t max_shards;      /* min_size: 1; max_size: 0 = no limit */
};

enum step_error_policy { STEP_ERROR_ABORT, STEP_ERROR_RETRY, STEP_ERROR_SKIP };

struct job_spec {
    char *name; /* [A-Za-z0-9._-], 1 to 128 */
    uint64_t seed;
    uint32_t epochs;    /* 1 to 1,000,000 */
    uint64_t max_steps; /* 0: epochs decide */
    struct model_spec model;
    struct dataset_spec dataset;
    bool has_eval;
    struct dataset_spec eval_dataset;
    struct optimizer_spec optimizer;
    enum consistency_mode consistency;
    enum placement_kind placement;
    struct partitioner_spec partitioner;
    struct {
        char *directory;      /* NULL: no checkpoints; absolute path */
        uint64_t every_steps; /* 0: only at the end */
        uint32_t max_to_keep; /* 5; 0: keep all */
    } checkpoint;
    struct {
        uint32_t max_attempts;           /* 1 to 100; default 5: then a step is quarantined */
        enum step_error_policy on_error; /* default retry */
        uint32_t deadline_ms;            /* default DEFAULT_STEP_DEADLINE_MS */
    } steps;
};

MUST_CHECK enum err_code job_spec_parse(const char *json, size_t bytes, struct job_spec **ret_spec,
                                        struct err *err);
void job_spec_free(struct job_spec *spec);
DEFINE_AUTO(job_spec)

/* The dotted names of all fields that the parser knows ("dataset.batch_size"), one after another;
 * NULL past the last. For documentation and its test. */
const char *job_spec_field(size_t field_index);

#endif
