/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_draft: a cluster_spec while it is filled, and the checks that every way to write one has
 * in common.
 *
 * Owns    nothing; borrows spec and the names of places.
 * Thread  any. Errors: ERR_INVALID with place, value, wanted; ERR_NO_MEMORY.
 */
#ifndef COMMON_SPEC_CLUSTER_DRAFT_INT_H
#define COMMON_SPEC_CLUSTER_DRAFT_INT_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/formats/json.h"
#include "common/spec/cluster_spec.h"

enum {
    CLUSTER_PLACE_SIZE = 160
}; /* "TF_CONFIG: cluster.worker[4095]" fits with a long file name */

/* A spec being filled, with what is needed to say where each task was written. */
struct cluster_draft {
    struct cluster_spec *spec;
    const char *origin;                  /* NULL for flags */
    const char *places[TASK_ROLE_COUNT]; /* "cluster.worker", "--ps_hosts"; NULL: role not there */
    char place_text[TASK_ROLE_COUNT][64];
    bool is_map[TASK_ROLE_COUNT];
};

/* How many tasks a role may have. */
extern const uint32_t cluster_draft_role_limits[TASK_ROLE_COUNT];
extern const struct json_word cluster_draft_role_words[TASK_ROLE_COUNT];

MUST_CHECK enum err_code cluster_draft_reserve(struct cluster_draft *draft, enum task_role role,
                                               size_t count, struct err *err);
/* Into what was reserved. */
MUST_CHECK enum err_code cluster_draft_add(struct cluster_draft *draft, enum task_role role,
                                           uint32_t index, const char *address, struct err *err);
/* One role's tasks were added in any order. */
void cluster_draft_sort(struct cluster_draft *draft, enum task_role role);
/* No address twice; host names do not tell upper from lower case. */
MUST_CHECK enum err_code cluster_draft_check_distinct(const struct cluster_draft *draft,
                                                      struct err *err);
/* The task that this process is has to be in the cluster. role_place and index_place begin the
 * error. */
MUST_CHECK enum err_code cluster_draft_check_task(const struct cluster_draft *draft,
                                                  const char *role_place, const char *index_place,
                                                  struct err *err);
/* A number as an index is written: no sign, no blanks, no leading zeros. */
bool cluster_draft_index(const char *text, uint32_t limit, uint32_t *ret_index);

#endif
