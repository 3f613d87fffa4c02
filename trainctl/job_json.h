/* SPDX-License-Identifier: Apache-2.0 */
/* job_json: what --json prints. Programs read these keys: they are added to, never renamed.
 *
 * Owns    each function returns a new reference; job_json_print takes it over. Numbers that are
 *         not finite are null.
 * Thread  any.
 * Errors: an allocation that fails ends the process (objects of a few KiB).
 */
#ifndef TRAINCTL_JOB_JSON_H
#define TRAINCTL_JOB_JSON_H

#include <jansson.h>
#include <stdio.h>

#include "client/steadfast.h"
#include "common/base/base.h"

json_t *job_json(const struct steadfast_job *job);
json_t *job_json_list(const struct steadfast_job_list *list); /* {"jobs": [...]} */
json_t *job_json_plan(const struct steadfast_plan *plan);
json_t *job_json_cluster(const struct steadfast_cluster *cluster);
json_t *job_json_number(double value);
/* Prints and releases; with is_line on one line, so that a stream of objects can be read line by
 * line. */
void job_json_print(json_t *take_json, bool is_line, FILE *out);

#endif
