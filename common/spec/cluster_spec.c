/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_spec: the roles, and finding in them; tf_config and host_flags fill it. */
#include "common/spec/cluster_spec.h"

#include <stdlib.h>

const char *task_role_name(enum task_role role)
{
    switch (role) {
    case TASK_CHIEF:
        return "chief";
    case TASK_PS:
        return "ps";
    case TASK_WORKER:
        return "worker";
    case TASK_EVALUATOR:
        return "evaluator";
    case TASK_ROLE_COUNT:
        break;
    }
    return "unknown";
}

static int compare_task(const void *a, const void *b)
{
    const struct cluster_task *x = a;
    const struct cluster_task *y = b;
    return (x->index > y->index) - (x->index < y->index);
}

const struct cluster_task *cluster_spec_find(const struct cluster_spec *spec, enum task_role role,
                                             uint32_t index)
{
    ASSERT(role < TASK_ROLE_COUNT);
    const struct cluster_task key = {.index = index};
    if (spec->roles[role].count == 0)
        return NULL;
    return bsearch(&key, spec->roles[role].items, spec->roles[role].count, sizeof(key),
                   compare_task);
}

void cluster_spec_free(struct cluster_spec *spec)
{
    if (!spec)
        return;
    for (int role = 0; role < TASK_ROLE_COUNT; role++) {
        for (size_t i = 0; i < spec->roles[role].count; i++)
            free(spec->roles[role].items[i].address);
        free(spec->roles[role].items);
    }
    for (size_t i = 0; i < spec->ignored_count; i++)
        free(spec->ignored[i]);
    free(spec);
}
