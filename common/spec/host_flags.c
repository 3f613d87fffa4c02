/* SPDX-License-Identifier: Apache-2.0 */
/* host_flags: comma-separated lists; "controller" is their word for chief. */
#include "common/spec/host_flags.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/spec/cluster_draft_int.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum err_code try_code_ = (call);                                                          \
        if (try_code_ != ERR_OK)                                                                   \
            return try_code_;                                                                      \
    } while (0)

static enum err_code read_hosts(struct cluster_draft *draft, enum task_role role, const char *flag,
                                const char *hosts, struct err *err)
{
    if (!hosts || hosts[0] == '\0') /* TF-CNN's default is the empty string */
        return ERR_OK;
    size_t count = 1;
    for (const char *c = hosts; *c; c++)
        count += *c == ',';
    if (count > cluster_draft_role_limits[role])
        return err_set(err, ERR_INVALID, "%s: %zu addresses; want at most %" PRIu32, flag, count,
                       cluster_draft_role_limits[role]);
    draft->places[role] = flag;
    TRY(cluster_draft_reserve(draft, role, count, err));
    AUTO_MEM char *copy = strdup(hosts);
    if (!copy)
        return err_set(err, ERR_NO_MEMORY, "out of memory for %zu tasks", count);
    char *rest = copy;
    for (uint32_t i = 0; i < count; i++)
        TRY(cluster_draft_add(draft, role, i, strsep(&rest, ","), err));
    return ERR_OK;
}

static enum err_code read_job_flags(struct cluster_draft *draft, const char *job_name,
                                    const char *task_index, struct err *err)
{
    struct cluster_spec *spec = draft->spec;
    if (!job_name || job_name[0] == '\0') {
        if (task_index)
            return err_set(err, ERR_INVALID, "--task_index: \"%.64s\": want --job_name with it",
                           task_index);
        return ERR_OK;
    }
    spec->has_task = true;
    spec->task_role = TASK_CHIEF;
    if (strcmp(job_name, "controller") != 0) {
        size_t w = 0;
        while (w < TASK_ROLE_COUNT && strcmp(cluster_draft_role_words[w].word, job_name) != 0)
            w++;
        if (w == TASK_ROLE_COUNT)
            return err_set(err, ERR_INVALID,
                           "--job_name: \"%.64s\": want ps, worker, controller, chief or evaluator",
                           job_name);
        spec->task_role = (enum task_role)cluster_draft_role_words[w].value;
    }
    uint32_t limit = cluster_draft_role_limits[spec->task_role];
    bool is_index = !task_index || cluster_draft_index(task_index, limit, &spec->task_index);
    if (!is_index && limit == 1)
        return err_set(err, ERR_INVALID, "--task_index: \"%.64s\": want 0, there is one %s",
                       task_index, task_role_name(spec->task_role));
    if (!is_index)
        return err_set(err, ERR_INVALID,
                       "--task_index: \"%.64s\": want a whole number from 0 to %" PRIu32,
                       task_index, limit - 1);
    return cluster_draft_check_task(draft, "--job_name", "--task_index", err);
}

enum err_code host_flags_parse(const char *job_name, const char *task_index, const char *ps_hosts,
                               const char *worker_hosts, const char *controller_host,
                               struct cluster_spec **ret_spec, struct err *err)
{
    AUTO(cluster_spec) spec = calloc(1, sizeof(*spec));
    if (!spec)
        return err_set(err, ERR_NO_MEMORY, "out of memory for a cluster description");
    struct cluster_draft draft = {.spec = spec};
    if (!controller_host || controller_host[0] == '\0')
        return err_set(err, ERR_INVALID,
                       "--controller_host: missing: want the coordinator's address, host:port");
    TRY(read_hosts(&draft, TASK_CHIEF, "--controller_host", controller_host, err));
    TRY(read_hosts(&draft, TASK_PS, "--ps_hosts", ps_hosts, err));
    TRY(read_hosts(&draft, TASK_WORKER, "--worker_hosts", worker_hosts, err));
    TRY(cluster_draft_check_distinct(&draft, err));
    TRY(read_job_flags(&draft, job_name, task_index, err));
    *ret_spec = TAKE(spec);
    return ERR_OK;
}
