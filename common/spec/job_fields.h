/* SPDX-License-Identifier: Apache-2.0 */
/* job_fields: the objects of a job as tables: the words that pick a variant of an object, the names
 * that it may have, and how each is read.
 *
 * A variant is what an object's "name" or "source" picks: an optimizer, a source, a partitioner. A
 * field of another variant is refused, because a value that would be ignored is somebody's mistake.
 * A field of the plain kinds (numbers, booleans, words, paths) is one row in job_fields.c and one
 * member in job_spec.h; what has rules of its own (a list, an object) is a row without a kind, and
 * its object's reader reads it.
 *
 * Owns    constant tables; strings that are read are the spec's. Thread: any.
 * Errors  ERR_INVALID with path, value, wanted; ERR_NO_MEMORY.
 */
#ifndef COMMON_SPEC_JOB_FIELDS_H
#define COMMON_SPEC_JOB_FIELDS_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/formats/json.h"

enum fields_of {
    FIELDS_JOB, /* into struct job_spec; so are consistency, checkpoint and steps */
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

/* An object of a place that is there: no names that no variant of it knows (a field of another
 * object is named with that), the word that picks its variant, no names of other variants. So a
 * misspelt field is never reported as a missing one. ret_variant: 0 when the object has none. */
MUST_CHECK enum err_code job_fields_check(const struct json_at *at, enum fields_of object,
                                          int *ret_variant, struct err *err);
/* The plain fields of the variant, in the order of the table, into the struct at base; those that
 * are absent get their defaults. An absent object is all defaults. */
MUST_CHECK enum err_code job_fields_read(const struct json_at *at, enum fields_of object,
                                         int variant, void *base, struct err *err);
/* Dotted names of all fields, one after another; NULL past the last. Storage of the thread, until
 * its next call. */
const char *job_fields_name(size_t field_index);

#endif
