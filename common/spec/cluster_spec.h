/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_spec: the cluster as TF_CONFIG describes it, or as the host-list flags of TF-CNN do.
 *
 * Accepted: {"cluster": {"chief": [...], "ps": [...], "worker": {"1": "host:port"}, "evaluator":
 * [...]}, "task": {"type": "ps", "index": 0 or "0"}, "environment": "cloud", "rpc_layer": "grpc"};
 * "master" as an old word for chief. "cluster" may be called "sparseCluster" (dynamic workers).
 * Unknown top-level keys are refused with the nearest known one.
 *
 * Refused at once, each with JSON path, value and what was wanted: not JSON (line and column), not
 * an object, unknown role, two chiefs, no chief, duplicate address (names both paths), port outside
 * 1 to 65535, host empty or with a scheme or blanks, index negative, out of range or not a number,
 * task type missing in the cluster, wrong container types, an rpc_layer other than grpc, nulls,
 * empty lists, duplicate keys, over LIMIT_TF_CONFIG_BYTES. An evaluator is listed but never waited
 * for.
 *
 * Owns    its strings. Thread: any. Errors: ERR_INVALID.
 */
#ifndef COMMON_SPEC_CLUSTER_SPEC_H
#define COMMON_SPEC_CLUSTER_SPEC_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/spec/address.h" /* address_split */

enum task_role { TASK_CHIEF, TASK_PS, TASK_WORKER, TASK_EVALUATOR, TASK_ROLE_COUNT };

struct cluster_task {
    uint32_t index; /* as written; sparse maps leave gaps */
    char *address;  /* host:port */
};

struct cluster_spec {
    struct {
        struct cluster_task *items; /* by rising index */
        size_t count;
    } roles[TASK_ROLE_COUNT];
    bool has_task;
    enum task_role task_role;
    uint32_t task_index;
};

/* origin names the source in errors: "TF_CONFIG" or a file name. */
MUST_CHECK enum err_code cluster_spec_parse(const char *origin, const char *json, size_t bytes,
                                            struct cluster_spec **ret_spec, struct err *err);
/* --job_name --task_index --ps_hosts --worker_hosts --controller_host; NULL for a flag not given.
 */
MUST_CHECK enum err_code cluster_spec_from_flags(const char *job_name, const char *task_index,
                                                 const char *ps_hosts, const char *worker_hosts,
                                                 const char *controller_host,
                                                 struct cluster_spec **ret_spec, struct err *err);
/* From --tf-config FILE when file is not NULL, else the environment variable; NOT_FOUND when
 * neither. */
MUST_CHECK enum err_code cluster_spec_load(const char *file, struct cluster_spec **ret_spec,
                                           struct err *err);
void cluster_spec_free(struct cluster_spec *spec);
DEFINE_AUTO(cluster_spec)

const char *task_role_name(enum task_role role); /* "chief", "ps", ... */
/* NULL when there is no such task. */
const struct cluster_task *cluster_spec_find(const struct cluster_spec *spec, enum task_role role,
                                             uint32_t index);

#endif
