/* SPDX-License-Identifier: Apache-2.0 */
/* data_source: how large a data set is, without reading it: one row a source. The coordinator counts
 * steps with it, a worker opens its input with it (workerd/input has what reads records).
 *
 * Owns    nothing. Thread: any that may read files.
 * Errors  those of the source's files, prefixed with the path of the field; ERR_INVALID: fields and
 *         files that do not agree.
 */
#ifndef COMMON_SPEC_DATA_SOURCE_H
#define COMMON_SPEC_DATA_SOURCE_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/spec/job_spec.h"

struct data_shape {
    uint64_t records;
    uint32_t channels;
    uint32_t height;
    uint32_t width;
};

/* field: "dataset" or "eval_dataset", for errors. */
MUST_CHECK enum err_code data_source_measure(const struct dataset_spec *spec, const char *field,
                                             struct data_shape *ret_shape, struct err *err);

#endif
