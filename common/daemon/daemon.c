/* SPDX-License-Identifier: Apache-2.0 */
/* daemon: shared flags into an identity. */
#include "common/daemon/daemon.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/rpc/rpc.h"
#include "common/spec/address.h"
#include "common/spec/host_flags.h"
#include "common/spec/tf_config.h"

int daemon_usage_error(const struct err *err)
{
    log_error("usage", "%s", err->text);
    return 2;
}

int daemon_begin(const char *program, const struct flag *table, size_t flag_count, int argc,
                 char **argv, const struct daemon_flags *flags)
{
    struct err err = {0};
    size_t word_count = 0;
    enum log_level level = LOG_INFO;
    rpc_process_init();
    log_set_name(program);
    if (flags_parse(table, flag_count, argc, argv, NULL, &word_count, &err) != ERR_OK)
        return daemon_usage_error(&err);
    if (flags->log_level && !log_level_from_name(flags->log_level, &level)) {
        err_set(&err, ERR_INVALID, "--log-level: \"%s\": want error, warn, info or debug",
                flags->log_level);
        return daemon_usage_error(&err);
    }
    log_set_level(level);
    return 0;
}

static enum err_code parse_index(const char *text, uint32_t *ret_index, struct err *err)
{
    char *end = NULL;
    unsigned long value = text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;
    if (!end || *end || value >= LIMIT_WORKERS)
        return err_set(err, ERR_INVALID, "--task_index: \"%.64s\": want a number from 0 to %d",
                       text, LIMIT_WORKERS - 1);
    *ret_index = (uint32_t)value;
    return ERR_OK;
}

/* "controller" is the word of the host-list flags for the chief. */
static bool is_role_word(const char *word, enum task_role role)
{
    return strcmp(word, task_role_name(role)) == 0 ||
           (role == TASK_CHIEF && strcmp(word, "controller") == 0);
}

static enum err_code load(enum task_role role, const struct daemon_flags *flags, bool needs_cluster,
                          struct cluster_spec **ret_cluster, struct err *err)
{
    if (flags->ps_hosts || flags->worker_hosts || flags->controller_host)
        return host_flags_parse(flags->job_name ? flags->job_name : task_role_name(role),
                                flags->task_index, flags->ps_hosts, flags->worker_hosts,
                                flags->controller_host, ret_cluster, err);
    enum err_code code = tf_config_load(flags->tf_config, ret_cluster, err);
    return code == ERR_NOT_FOUND && !needs_cluster ? ERR_OK : code;
}

/* Clouds write names of their own into TF_CONFIG; said once, since one might have been meant. */
static void say_ignored(const struct cluster_spec *cluster)
{
    char list[LIMIT_IGNORED_NAMES * 80] = "";
    for (size_t i = 0; cluster && i < cluster->ignored_count; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, "%s%.76s", i ? ", " : "", cluster->ignored[i]);
    }
    if (list[0])
        log_warn("tf_config.ignored", "count=%zu names=\"%s\": unknown, so without effect",
                 cluster->ignored_count, list);
}

/* written: what says the role, "--job_name" or "task.type". */
static enum err_code check_role(enum task_role role, const char *place, const char *written,
                                struct err *err)
{
    if (is_role_word(written, role))
        return ERR_OK;
    if (role == TASK_WORKER && strcmp(written, task_role_name(TASK_EVALUATOR)) == 0)
        return err_set(err, ERR_INVALID,
                       "%s: \"%s\": not available yet; want \"worker\", and the job field "
                       "eval_dataset, which workers evaluate (an evaluator will need the job's "
                       "checkpoint.directory)",
                       place, written);
    return err_set(err, ERR_INVALID, "%s: \"%.64s\": want \"%s\" for this daemon", place, written,
                   task_role_name(role));
}

/* Which task of its role this process is; false: none, it has only a name. */
static enum err_code find_index(enum task_role role, const struct daemon_flags *flags,
                                const struct cluster_spec *cluster, bool has_name,
                                bool *ret_has_index, uint32_t *ret_index, struct err *err)
{
    enum err_code code = ERR_OK;
    if (flags->job_name) {
        code = check_role(role, "--job_name", flags->job_name, err);
    } else if (cluster && cluster->has_task && !has_name) {
        /* An index alone picks a task of this daemon's role from a description made for another;
         * but nobody who describes an evaluator wants a worker. */
        bool is_evaluator = cluster->task_role == TASK_EVALUATOR;
        if (!flags->task_index || is_evaluator)
            code = check_role(role, "task.type", task_role_name(cluster->task_role), err);
    }
    if (code != ERR_OK)
        return code;
    *ret_index = 0;
    *ret_has_index = true;
    if (flags->task_index)
        return parse_index(flags->task_index, ret_index, err);
    if (cluster && cluster->has_task && cluster->task_role == role)
        *ret_index = cluster->task_index;
    else
        *ret_has_index = role == TASK_CHIEF;
    return ERR_OK;
}

static enum err_code choose_listen(const char *wanted, struct daemon_identity *me, struct err *err)
{
    char host[LIMIT_ADDRESS_BYTES];
    uint16_t port = 0;
    unsigned char bytes[sizeof(struct in6_addr)];
    const char *colon = strrchr(wanted, ':');
    bool picks_port = colon && strcmp(colon, ":0") == 0;
    char *checked AUTO_MEM = /* address_split wants a real port */
        picks_port ? base_asprintf("%.*s:1", (int)(colon - wanted), wanted) : base_strdup(wanted);
    enum err_code code = address_split(checked, host, sizeof(host), &port, err);
    if (code != ERR_OK)
        return code;
    bool is_v6 = inet_pton(AF_INET6, host, bytes) == 1;
    bool is_literal =
        is_v6 || inet_pton(AF_INET, host, bytes) == 1 || strcmp(host, "localhost") == 0;
    bool listens_there = is_literal || picks_port;
    me->advertise = listens_there ? NULL : base_strdup(wanted);
    me->listen = base_asprintf(is_v6 ? "[%s]:%u" : "%s:%u", listens_there ? host : "0.0.0.0",
                               picks_port ? 0 : port);
    return ERR_OK;
}

enum err_code daemon_identify(enum task_role role, const struct daemon_flags *flags,
                              const char *name, const char *coordinator,
                              struct daemon_identity *ret_identity, struct err *err)
{
    struct daemon_identity me = {0};
    uint32_t index = 0;
    bool has_index = false;
    bool says_all =
        role != TASK_CHIEF && flags->address && coordinator && (name || flags->task_index);
    enum err_code code = load(role, flags, !says_all, &me.cluster, err);
    if (code == ERR_OK)
        code = find_index(role, flags, me.cluster, name != NULL, &has_index, &index, err);
    if (code != ERR_OK)
        goto fail;
    say_ignored(me.cluster);
    const struct cluster_task *task =
        me.cluster && has_index ? cluster_spec_find(me.cluster, role, index) : NULL;
    const struct cluster_task *chief =
        me.cluster ? cluster_spec_find(me.cluster, TASK_CHIEF, 0) : NULL;
    if (!name && !has_index)
        code = err_set(
            err, ERR_INVALID,
            "which task is this: want \"task\" in the cluster description, or --task_index");
    else if (name && (name[0] == '\0' || strlen(name) > LIMIT_NAME_BYTES))
        code = err_set(err, ERR_INVALID, "--name: \"%.64s\": want 1 to %d bytes", name,
                       LIMIT_NAME_BYTES);
    else if (!flags->address && !task)
        code = err_set(err, ERR_INVALID, "cluster.%s: no task %u: want its host:port, or --address",
                       task_role_name(role), index);
    else if (role != TASK_CHIEF && !coordinator && !chief)
        code = err_set(err, ERR_INVALID,
                       "cluster.chief: absent: want the coordinator's host:port, or --coordinator");
    else
        code = choose_listen(flags->address ? flags->address : task->address, &me, err);
    if (code != ERR_OK)
        goto fail;
    me.name = name ? base_strdup(name) : base_asprintf("%s:%u", task_role_name(role), index);
    const char *dial = coordinator ? coordinator : chief ? chief->address : NULL;
    if (role != TASK_CHIEF && dial)
        me.coordinator = base_strdup(dial);
    *ret_identity = me;
    return ERR_OK;
fail:
    daemon_identity_done(&me);
    return code;
}

void daemon_identity_done(struct daemon_identity *identity)
{
    cluster_spec_free(identity->cluster);
    free(identity->name);
    free(identity->listen);
    free(identity->advertise);
    free(identity->coordinator);
    *identity = (struct daemon_identity){0};
}

enum err_code daemon_write_port_file(const char *path, const char *address, struct err *err)
{
    if (!path)
        return ERR_OK;
    char *line AUTO_MEM = base_asprintf("%s\n", address);
    return file_write(path, line, strlen(line), err);
}
