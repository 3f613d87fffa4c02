/* SPDX-License-Identifier: Apache-2.0 */
/* tf_config: a cluster as TF_CONFIG describes it.
 *
 * Accepted: {"cluster": {"chief": [...], "ps": [...], "worker": {"1": "host:port"}, "evaluator":
 * [...]}, "task": {"type": "ps", "index": 0 or "0"}, "environment": "cloud", "rpc_layer": "grpc"};
 * "master" as an old word for chief. "cluster" may be called "sparseCluster" (dynamic workers), and
 * be absent from an evaluator's.
 *
 * Clouds add names of their own at the top level and in "task" (Vertex AI: job, task.trial,
 * task.cloud). Those are kept in ignored, for one warning, whatever their values; one that is a
 * typing mistake of a known name is refused with that. In "cluster" every name counts.
 *
 * Refused at once, each with JSON path, value and what was wanted: not JSON (line and column), not
 * an object, unknown role, two chiefs, no chief, duplicate address (names both paths), port outside
 * 1 to 65535, host empty or with a scheme or blanks, index negative, out of range or not a number,
 * task type missing in the cluster, wrong container types, an rpc_layer other than grpc, nulls,
 * empty lists, duplicate keys, over LIMIT_TF_CONFIG_BYTES, over LIMIT_IGNORED_NAMES.
 *
 * Owns    nothing. Thread: any. Errors: ERR_INVALID; ERR_NO_MEMORY.
 */
#ifndef COMMON_SPEC_TF_CONFIG_H
#define COMMON_SPEC_TF_CONFIG_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/spec/cluster_spec.h"

/* origin names the source in errors: "TF_CONFIG" or a file name. */
MUST_CHECK enum err_code tf_config_parse(const char *origin, const char *json, size_t bytes,
                                         struct cluster_spec **ret_spec, struct err *err);
/* From FILE when file is not NULL, else the environment variable; NOT_FOUND when neither. */
MUST_CHECK enum err_code tf_config_load(const char *file, struct cluster_spec **ret_spec,
                                        struct err *err);

#endif
