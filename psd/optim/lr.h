/* SPDX-License-Identifier: Apache-2.0 */
/* lr: the learning rate of an update.
 *
 * applied counts the updates before this one, so the first update asks for 0, as `iterations` does
 * in tf.keras; PiecewiseConstantDecay (keras/optimizers/schedules/learning_rate_schedule.py) gives
 * values[0] while applied <= boundaries[0].
 *
 * Thread  any.
 */
#ifndef PSD_OPTIM_LR_H
#define PSD_OPTIM_LR_H

#include "common/base/base.h"
#include "common/spec/job_spec.h"

double lr_at(const struct rate_spec *rate, uint64_t applied);

#endif
