/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_spec: who is in the cluster, and which of them this process is; tf_config.h and
 * host_flags.h read it.
 *
 * Every address is host:port and there once. There is one chief. An evaluator is listed but never
 * waited for.
 *
 * Owns    its strings. Thread: any.
 */
#ifndef COMMON_SPEC_CLUSTER_SPEC_H
#define COMMON_SPEC_CLUSTER_SPEC_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/base/limits.h"
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
    size_t ignored_count; /* names that TF_CONFIG has and we do not know */
    char *ignored[LIMIT_IGNORED_NAMES];
};

void cluster_spec_free(struct cluster_spec *spec);
DEFINE_AUTO(cluster_spec)

const char *task_role_name(enum task_role role); /* "chief", "ps", ... */
/* NULL when there is no such task. */
const struct cluster_task *cluster_spec_find(const struct cluster_spec *spec, enum task_role role,
                                             uint32_t index);

#endif
