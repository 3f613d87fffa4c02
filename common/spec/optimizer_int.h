/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_int: the optimizer of a job's JSON; for job_spec.c. */
#ifndef COMMON_SPEC_OPTIMIZER_INT_H
#define COMMON_SPEC_OPTIMIZER_INT_H

#include "common/base/err.h"
#include "common/formats/json.h"
#include "common/spec/optimizer.h"

void optimizer_spec_init(
    struct optimizer_spec *spec); /* sgd at rate 0, every parameter's default */
/* at: the member "optimizer" of a job, absent too. Over the defaults; what it owns is to be freed in
 * either case. */
MUST_CHECK enum err_code optimizer_spec_read(const struct json_at *at, struct optimizer_spec *spec,
                                             struct err *err);
void optimizer_spec_done(struct optimizer_spec *spec);

#endif
