/* SPDX-License-Identifier: Apache-2.0 */
/* job_spec: the job itself; job_data, job_model and optimizer read its larger objects, job_fields has the names
 * and the plain values. */
#include "common/spec/job_spec.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/formats/json.h"
#include "common/spec/job_fields.h"
#include "common/spec/job_parts_int.h"
#include "common/spec/optimizer_int.h"

const char *job_spec_field(size_t field_index)
{
    return job_fields_name(field_index);
}

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

static enum err_code read_partitioner(const struct json_at *job, struct partitioner_spec *spec,
                                      struct err *err)
{
    struct json_at at = json_at_member(job, "variable_partitioner");
    if (!at.value)
        return ERR_OK;
    int kind = 0;
    TRY(job_fields_check(&at, FIELDS_PARTITIONER, &kind, err));
    spec->kind = (enum partitioner_kind)kind;
    TRY(job_fields_read(&at, FIELDS_PARTITIONER, kind, spec, err));
    spec->max_shards = kind == PARTITION_MIN_SIZE ? 1 : 0;
    struct json_at max_shards = json_at_member(&at, "max_shards");
    return max_shards.value ? json_at_u64(&max_shards, 1, LIMIT_SLICES, &spec->max_shards, err)
                            : ERR_OK;
}

/* An object that has only plain values, and may be absent. */
static enum err_code read_plain(const struct json_at *job, const char *key, enum fields_of object,
                                struct job_spec *spec, struct err *err)
{
    struct json_at at = json_at_member(job, key);
    if (at.value)
        TRY(job_fields_check(&at, object, NULL, err));
    return job_fields_read(&at, object, 0, spec, err);
}

static enum err_code read_job(const struct json_at *job, struct job_spec *spec, struct err *err)
{
    TRY(job_fields_check(job, FIELDS_JOB, NULL, err));
    TRY(read_name(job, &spec->name, err));
    TRY(job_fields_read(job, FIELDS_JOB, 0, spec, err));
    int model = 0;
    TRY(job_read_model(job, &spec->model, &model, err));
    TRY(job_read_data(job, spec, model == MODEL_NOOP, err));
    struct json_at optimizer = json_at_member(job, "optimizer");
    if (model != MODEL_NOOP || optimizer.value)
        TRY(optimizer_spec_read(&optimizer, &spec->optimizer, err));
    TRY(read_plain(job, "consistency", FIELDS_CONSISTENCY, spec, err));
    TRY(read_partitioner(job, &spec->partitioner, err));
    TRY(read_plain(job, "checkpoint", FIELDS_CHECKPOINT, spec, err));
    return read_plain(job, "steps", FIELDS_STEPS, spec, err);
}

enum err_code job_spec_parse(const char *json, size_t bytes, struct job_spec **ret_spec,
                             struct err *err)
{
    AUTO(json_doc) doc = NULL;
    TRY(json_doc_parse(NULL, json, bytes, LIMIT_SPEC_BYTES, &doc, err));
    AUTO(job_spec) spec = calloc(1, sizeof(*spec));
    if (!spec)
        return err_set(err, ERR_NO_MEMORY, "out of memory for a job");
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
