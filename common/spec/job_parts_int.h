/* SPDX-License-Identifier: Apache-2.0 */
/* job_parts: readers of a job's objects, for job_spec.c; each gets the job.
 *
 *   job_spec   the job itself, where its variables live, checkpoints, steps
 *   job_data   data sets
 *   job_model  the model
 *   optimizer  the optimizer and its rates (optimizer_int.h)
 *
 * All read names and plain values by the tables of job_fields. Owns: strings and arrays become the
 * spec's, on failure too. Thread: any. Errors: ERR_INVALID, ERR_NO_MEMORY.
 */
#ifndef COMMON_SPEC_JOB_PARTS_INT_H
#define COMMON_SPEC_JOB_PARTS_INT_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/formats/json.h"
#include "common/spec/job_spec.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum err_code try_code_ = (call);                                                          \
        if (try_code_ != ERR_OK)                                                                   \
            return try_code_;                                                                      \
    } while (0)

MUST_CHECK enum err_code job_read_model(const struct json_at *job, struct model_spec *spec,
                                        int *ret_variant, struct err *err);
/* dataset and eval_dataset; the model, epochs and max_steps have been read. */
MUST_CHECK enum err_code job_read_data(const struct json_at *job, struct job_spec *spec,
                                       bool is_noop, struct err *err);

#endif
