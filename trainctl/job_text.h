/* SPDX-License-Identifier: Apache-2.0 */
/* job_text: a job in words for people: the live line, a line an evaluation, the summary with the
 * accounting.
 *
 * Thread  any. Errors: none; a line is cut at its buffer or width.
 */
#ifndef TRAINCTL_JOB_TEXT_H
#define TRAINCTL_JOB_TEXT_H

#include <stdio.h>

#include "client/steadfast.h"
#include "common/base/base.h"

/* "fashion-lenet  [=====>    ]  46%  step 1298/2814  epoch 2/3  eta 0:05  loss 0.4120  312.4
 * steps/s  19994 images/s  2 workers". At most width columns; bar: with the drawing, smaller below
 * 100 columns. A job that does not train says before the step what it does, and why ("paused: ps:1
 * lost"): cut to the width, never left out. Another part that has no room is left out, and so is
 * what is not known. */
void job_text_progress(const struct steadfast_job *job, bool has_bar, size_t width, char *buf,
                       size_t size);
/* "epoch 1: test accuracy 0.8401, loss 0.4512 (938 steps)" */
void job_text_evaluation(const struct steadfast_evaluation *evaluation, char *buf, size_t size);
/* The whole of `trainctl status`, and of the end of a watch. */
void job_text_summary(const struct steadfast_job *job, FILE *out);

#endif
