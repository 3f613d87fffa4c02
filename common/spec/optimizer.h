/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer: which optimizers and learning rate schedules there are, what they take, and a job's
 * choice of them.
 *
 * Whoever adds an optimizer writes a row here and the file psd/optim/optim_<name>.c with the
 * constant optim_<name>; everything else (the job's words and checks, defaults, slots in the memory
 * plan, psd's table) is made of the row, and what is missing does not link. A parameter of its own is
 * a row of OPTIMIZER_PARAMS; docs/job-spec.md lists it. A schedule is a row of RATES, a reader in
 * optimizer.c with its fields in job_fields.c, and the function lr_<name> in psd/optim/lr.c.
 *
 * Owns    struct rate_spec owns its arrays (job_spec_free). Thread: any.
 */
#ifndef COMMON_SPEC_OPTIMIZER_H
#define COMMON_SPEC_OPTIMIZER_H

#include "common/base/base.h"

/* ROW(KIND, name in the job, f32 slots a server keeps beside each element) */
#define OPTIMIZERS(ROW)                                                                            \
    ROW(SGD, sgd, 0)                                                                               \
    ROW(MOMENTUM, momentum, 1)                                                                     \
    ROW(ADAM, adam, 2)

#define OPTIMIZER_ROW_KIND(KIND, name, slots)  OPTIMIZER_##KIND,
#define OPTIMIZER_ROW_SLOTS(KIND, name, slots) OPTIMIZER_SLOTS_##KIND = (slots),
enum optimizer_kind { OPTIMIZERS(OPTIMIZER_ROW_KIND) OPTIMIZER_COUNT };
enum { OPTIMIZERS(OPTIMIZER_ROW_SLOTS) };

/* ROW(name in the job and field here, double or bool, kinds that take it, default, range of a
 * double: min, max, whether max itself is refused) */
#define OPTIMIZER_PARAMS(ROW)                                                                      \
    ROW(momentum, double, 1u << OPTIMIZER_MOMENTUM, 0.9, 0, 1, true)                               \
    ROW(nesterov, bool, 1u << OPTIMIZER_MOMENTUM, false, 0, 1, false)                              \
    ROW(beta1, double, 1u << OPTIMIZER_ADAM, 0.9, 0, 1, true)                                      \
    ROW(beta2, double, 1u << OPTIMIZER_ADAM, 0.999, 0, 1, true)                                    \
    ROW(epsilon, double, 1u << OPTIMIZER_ADAM, 1e-7, 1e-30, 1, false) /* a normal f32 */

/* ROW(KIND, name in the job) */
#define RATES(ROW)                                                                                 \
    ROW(CONSTANT, constant)                                                                        \
    ROW(PIECEWISE, piecewise)

#define RATE_ROW_KIND(KIND, name) RATE_##KIND,
enum rate_kind { RATES(RATE_ROW_KIND) RATE_COUNT };

struct rate_spec {
    enum rate_kind kind;
    double constant;
    /* piecewise: values[i] up to and including update boundaries[i], values[count] after the last
     * (tf.keras PiecewiseConstantDecay: x <= b0 gives v0) */
    size_t count;
    uint64_t *boundaries;
    double *values; /* count + 1 */
};

#define OPTIMIZER_ROW_FIELD(name, type, takers, fallback, min, max, is_open) type name;
struct optimizer_spec {
    enum optimizer_kind kind;
    struct rate_spec learning_rate;
    OPTIMIZER_PARAMS(OPTIMIZER_ROW_FIELD) /* of other kinds: their defaults */
};

const char *optimizer_name(enum optimizer_kind kind);
uint32_t optimizer_slot_count(enum optimizer_kind kind);

#endif
