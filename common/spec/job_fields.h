/* SPDX-License-Identifier: Apache-2.0 */
/* job_fields: the names that the objects of a job may have, and which variant of an object takes
 * which.
 *
 * A variant is what an object's "name" or "source" picks: an optimizer, a source, a partitioner. A
 * field of another variant is refused, because a value that would be ignored is somebody's mistake.
 * Owns    constant tables. Thread: any. Errors: ERR_INVALID.
 */
#ifndef COMMON_SPEC_JOB_FIELDS_H
#define COMMON_SPEC_JOB_FIELDS_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/formats/json.h"

enum fields_of {
    FIELDS_JOB,
    FIELDS_MODEL,
    FIELDS_DATASET, /* and eval_dataset */
    FIELDS_OPTIMIZER,
    FIELDS_RATE,
    FIELDS_CONSISTENCY,
    FIELDS_PARTITIONER,
    FIELDS_CHECKPOINT,
    FIELDS_STEPS,
};

/* Variants of FIELDS_MODEL; the others' are enum data_source, optimizer_kind, rate_kind,
 * partitioner_kind. */
enum model_variant { MODEL_SOFTMAX, MODEL_MLP, MODEL_LENET, MODEL_NOOP };

/* An object without names that no variant of it knows. A field of another object is named with
 * that. */
MUST_CHECK enum err_code job_fields_check(const struct json_at *at, enum fields_of object,
                                          struct err *err);
/* The same for one variant. */
MUST_CHECK enum err_code job_fields_check_variant(const struct json_at *at, enum fields_of object,
                                                  unsigned variant, struct err *err);
/* Dotted names of all fields, one after another; NULL past the last. Storage of the thread, until
 * its next call. */
const char *job_fields_name(size_t field_index);

#endif
