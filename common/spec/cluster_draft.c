/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_draft: tasks by role, and what must hold of them all. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/spec/cluster_draft_int.h"

const uint32_t cluster_draft_role_limits[TASK_ROLE_COUNT] = {[TASK_CHIEF] = 1,
                                                             [TASK_PS] = LIMIT_SERVERS,
                                                             [TASK_WORKER] = LIMIT_WORKERS,
                                                             [TASK_EVALUATOR] = 1};

const struct json_word cluster_draft_role_words[TASK_ROLE_COUNT] = {
    {"chief", TASK_CHIEF},
    {"ps", TASK_PS},
    {"worker", TASK_WORKER},
    {"evaluator", TASK_EVALUATOR},
};

static void cluster_draft_place(const struct cluster_draft *draft, enum task_role role,
                                uint32_t index, char *ret_place)
{
    snprintf(ret_place, CLUSTER_PLACE_SIZE, draft->is_map[role] ? "%s%s%s[\"%u\"]" : "%s%s%s[%u]",
             draft->origin ? draft->origin : "", draft->origin ? ": " : "", draft->places[role],
             index);
}

enum err_code cluster_draft_add(struct cluster_draft *draft, enum task_role role, uint32_t index,
                                const char *address, struct err *err)
{
    const char *fault = address_fault(address);
    if (fault) {
        char place[CLUSTER_PLACE_SIZE];
        cluster_draft_place(draft, role, index, place);
        return address_fail(place, address, fault, err);
    }
    struct cluster_task *task = &draft->spec->roles[role].items[draft->spec->roles[role].count];
    task->address = strdup(address);
    if (!task->address)
        return err_set(err, ERR_NO_MEMORY, "out of memory for a cluster description");
    task->index = index;
    draft->spec->roles[role].count++;
    return ERR_OK;
}

enum err_code cluster_draft_reserve(struct cluster_draft *draft, enum task_role role, size_t count,
                                    struct err *err)
{
    draft->spec->roles[role].items = calloc(count, sizeof(struct cluster_task));
    return draft->spec->roles[role].items
               ? ERR_OK
               : err_set(err, ERR_NO_MEMORY, "out of memory for %zu tasks", count);
}

static int compare_index(const void *a, const void *b)
{
    const struct cluster_task *x = a;
    const struct cluster_task *y = b;
    return (x->index > y->index) - (x->index < y->index);
}

void cluster_draft_sort(struct cluster_draft *draft, enum task_role role)
{
    qsort(draft->spec->roles[role].items, draft->spec->roles[role].count,
          sizeof(struct cluster_task), compare_index);
}

struct placed {
    const struct cluster_task *task;
    enum task_role role;
    uint32_t order; /* of all tasks: chief, ps, worker, evaluator, each by index */
};

static int compare_placed(const void *a, const void *b)
{
    const struct placed *x = a;
    const struct placed *y = b;
    int by_address = strcasecmp(x->task->address, y->task->address);
    return by_address ? by_address : (x->order > y->order) - (x->order < y->order);
}

/* Ports are written one way only, so texts tell. */
enum err_code cluster_draft_check_distinct(const struct cluster_draft *draft, struct err *err)
{
    size_t count = 0;
    for (int role = 0; role < TASK_ROLE_COUNT; role++)
        count += draft->spec->roles[role].count;
    AUTO_MEM struct placed *all = calloc(count + 1, sizeof(*all));
    if (!all)
        return err_set(err, ERR_NO_MEMORY, "out of memory for %zu tasks", count);
    size_t n = 0;
    for (int role = 0; role < TASK_ROLE_COUNT; role++)
        for (size_t i = 0; i < draft->spec->roles[role].count; i++, n++)
            all[n] = (struct placed){&draft->spec->roles[role].items[i], (enum task_role)role,
                                     (uint32_t)n};
    qsort(all, count, sizeof(*all), compare_placed);
    size_t found = 0; /* the first in order whose address was there before; 0: none */
    for (size_t i = 1; i < count; i++)
        if (strcasecmp(all[i].task->address, all[i - 1].task->address) == 0 &&
            (found == 0 || all[i].order < all[found].order))
            found = i;
    if (found == 0)
        return ERR_OK;
    char place[CLUSTER_PLACE_SIZE];
    char before[CLUSTER_PLACE_SIZE];
    struct cluster_draft bare = *draft;
    bare.origin = NULL; /* once is enough */
    cluster_draft_place(draft, all[found].role, all[found].task->index, place);
    cluster_draft_place(&bare, all[found - 1].role, all[found - 1].task->index, before);
    char fault[CLUSTER_PLACE_SIZE + 80];
    snprintf(fault, sizeof(fault), "the address of %s too; want one address a task", before);
    return address_fail(place, all[found].task->address, fault, err);
}

enum err_code cluster_draft_check_task(const struct cluster_draft *draft, const char *role_place,
                                       const char *index_place, struct err *err)
{
    const struct cluster_spec *spec = draft->spec;
    enum task_role role = spec->task_role;
    const char *name = task_role_name(role);
    size_t count = spec->roles[role].count;
    if (cluster_spec_find(spec, role, spec->task_index))
        return ERR_OK;
    if (role == TASK_EVALUATOR && count == 0 && spec->task_index == 0)
        return ERR_OK; /* as in TensorFlow: an evaluator need not be listed */
    if (count == 0)
        return err_set(err, ERR_INVALID, "%s: \"%s\": want a role that the cluster has", role_place,
                       name);
    if (!draft->is_map[role])
        return err_set(err, ERR_INVALID, "%s: %" PRIu32 ": want less than %zu, the tasks of %s",
                       index_place, spec->task_index, count, draft->places[role]);
    char list[120] = "";
    for (size_t i = 0; i < count && i < 8; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, "%s%" PRIu32, i ? ", " : "",
                 spec->roles[role].items[i].index);
    }
    return err_set(err, ERR_INVALID, "%s: %" PRIu32 ": want an index of %s, which has %s%s",
                   index_place, spec->task_index, draft->places[role], list,
                   count > 8 ? ", ..." : "");
}

bool cluster_draft_index(const char *text, uint32_t limit, uint32_t *ret_index)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 9 || text[digits] != '\0' || (text[0] == '0' && digits > 1))
        return false;
    unsigned long value = strtoul(text, NULL, 10);
    if (value >= limit)
        return false;
    *ret_index = (uint32_t)value;
    return true;
}
