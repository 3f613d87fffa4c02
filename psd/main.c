/* SPDX-License-Identifier: Apache-2.0 */
/* psd: a parameter server. Owns sharded variables, applies gradients to them exactly once, keeps no
 * file of its own. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cluster_spec.h"
#include "common/file.h"
#include "common/flags.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/notify.h"
#include "common/rpc.h"
#include "psd/ps.h"

#define STOP_MS 30000 /* for systemd: calls in flight and a snapshot being written */

static const char *tf_config;
static const char *job_name;
static const char *task_index;
static const char *ps_hosts;
static const char *worker_hosts;
static const char *controller_host;
static const char *address;
static const char *port_file;
static const char *coordinator;
static uint32_t shard_count = 1;
static uint64_t memory_bytes;
static uint64_t inflight_bytes = 256u << 20;
static const char *log_level = "info";

static const struct flag flag_table[] = {
    {"tf-config", FLAG_STRING, &tf_config, 0, 0, "FILE",
     "cluster description (default: the variable TF_CONFIG)"},
    {"job_name", FLAG_STRING, &job_name, 0, 0, "ROLE", "ps"},
    {"task_index", FLAG_STRING, &task_index, 0, 0, "N", "index of this task"},
    {"ps_hosts", FLAG_STRING, &ps_hosts, 0, 0, "LIST", "host:port,... instead of a description"},
    {"worker_hosts", FLAG_STRING, &worker_hosts, 0, 0, "LIST", "host:port,..."},
    {"controller_host", FLAG_STRING, &controller_host, 0, 0, "HOST",
     "host:port of the coordinator"},
    {"address", FLAG_STRING, &address, 0, 0, "HOST:PORT",
     "where to listen and be reached (default: this task's address); port 0 picks one"},
    {"port-file", FLAG_STRING, &port_file, 0, 0, "FILE", "gets the bound host:port"},
    {"coordinator", FLAG_STRING, &coordinator, 0, 0, "HOST:PORT",
     "the coordinator (default: the chief's address)"},
    {"shards", FLAG_U32, &shard_count, 1, LIMIT_SHARDS_PER_SERVER, "N",
     "threads that own variables (1)"},
    {"memory", FLAG_SIZE, &memory_bytes, 0, 0, "SIZE",
     "budget of variables and slots; 0: four fifths of the memory there is (0)"},
    {"inflight-bytes", FLAG_SIZE, &inflight_bytes, 0, 0, "SIZE",
     "budget of gradients being received (256M)"},
    {"log-level", FLAG_STRING, &log_level, 0, 0, "LEVEL", "error, warn, info or debug"},
};

struct identity {
    char name[32];
    char listen[LIMIT_ADDRESS_BYTES + 8];
    const char *advertise;
    const char *coordinator;
    char coordinator_name[32];
};

static enum err_code parse_index(const char *text, uint32_t *ret_index, struct err *err)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || value >= 65536)
        return err_set(err, ERR_INVALID, "--task_index: \"%s\": want a number from 0 to 65535",
                       text);
    *ret_index = (uint32_t)value;
    return ERR_OK;
}

/* A numeric address is listened on as it is. A name may be the one of a proxy in front of us (a
 * service of Kubernetes), so it is only told to others, and we listen on all interfaces. */
static enum err_code choose_listen(const char *wanted, struct identity *me, struct err *err)
{
    char host[LIMIT_ADDRESS_BYTES];
    uint16_t port = 0;
    unsigned char bytes[sizeof(struct in6_addr)];
    const char *colon = strrchr(wanted, ':');
    bool picks_port = colon && strcmp(colon, ":0") == 0;
    if (picks_port) { /* address_split wants a real port */
        snprintf(me->listen, sizeof(me->listen), "%.*s:1", (int)(colon - wanted), wanted);
        wanted = me->listen;
    }
    enum err_code code = address_split(wanted, host, sizeof(host), &port, err);
    if (code != ERR_OK)
        return code;
    bool is_v6 = inet_pton(AF_INET6, host, bytes) == 1;
    bool is_literal =
        is_v6 || inet_pton(AF_INET, host, bytes) == 1 || strcmp(host, "localhost") == 0;
    if (picks_port)
        port = 0;
    if (!is_literal && !picks_port)
        me->advertise = wanted;
    snprintf(me->listen, sizeof(me->listen), is_v6 ? "[%.255s]:%u" : "%.255s:%u",
             is_literal || picks_port ? host : "0.0.0.0", port);
    return ERR_OK;
}

static enum err_code find_identity(struct cluster_spec **ret_cluster, struct identity *me,
                                   struct err *err)
{
    bool has_hosts = ps_hosts || worker_hosts || controller_host;
    bool needs_no_cluster = coordinator && address && task_index;
    enum err_code code = has_hosts
                             ? cluster_spec_from_flags(job_name, task_index, ps_hosts, worker_hosts,
                                                       controller_host, ret_cluster, err)
                             : cluster_spec_load(tf_config, ret_cluster, err);
    if (code == ERR_NOT_FOUND && !tf_config && needs_no_cluster)
        code = ERR_OK;
    if (code != ERR_OK)
        return code;
    const struct cluster_spec *cluster = *ret_cluster;
    const char *role = job_name                       ? job_name
                       : cluster && cluster->has_task ? task_role_name(cluster->task_role)
                                                      : "ps";
    if (strcmp(role, "ps") != 0)
        return err_set(err, ERR_INVALID, "task type \"%s\": want \"ps\": this is psd", role);
    uint32_t index = cluster && cluster->has_task ? cluster->task_index : 0;
    if (task_index)
        code = parse_index(task_index, &index, err);
    else if (!cluster || !cluster->has_task)
        code = err_set(err, ERR_INVALID,
                       "which task is this: want \"task\" in TF_CONFIG, or --task_index");
    if (code != ERR_OK)
        return code;
    snprintf(me->name, sizeof(me->name), "ps:%u", index);

    const struct cluster_task *task = cluster ? cluster_spec_find(cluster, TASK_PS, index) : NULL;
    if (!address && !task)
        return err_set(err, ERR_INVALID, "cluster.ps: no task %u: want its host:port, or --address",
                       index);
    snprintf(me->coordinator_name, sizeof(me->coordinator_name), "chief:0");
    me->coordinator = coordinator;
    if (!coordinator && cluster && cluster->roles[TASK_CHIEF].count > 0)
        me->coordinator = cluster->roles[TASK_CHIEF].items[0].address;
    if (!me->coordinator)
        return err_set(err, ERR_INVALID,
                       "cluster.chief: absent: want the coordinator's host:port, or --coordinator");
    return choose_listen(address ? address : task->address, me, err);
}

static uint64_t default_memory(void)
{
    uint64_t total = uv_get_total_memory(), limit = uv_get_constrained_memory();
    if (limit > 0 && limit < total)
        total = limit;
    return total / 5 * 4;
}

struct daemon_ref {
    struct loop *loop;
    struct ps *ps;
};

static void on_stopped(void *arg)
{
    loop_stop(arg, 0);
}

static void on_signal(int signum, void *arg)
{
    struct daemon_ref *daemon = arg;
    log_info("ps.stopping", "signal=%d", signum);
    notify_stopping();
    notify_extend_timeout(STOP_MS);
    ps_stop(daemon->ps, on_stopped, daemon->loop);
}

static enum err_code write_port_file(const struct ps *ps, struct err *err)
{
    if (!port_file)
        return ERR_OK;
    char line[LIMIT_ADDRESS_BYTES + 2];
    int n = snprintf(line, sizeof(line), "%s\n", ps_address(ps));
    return file_write(port_file, line, (size_t)n, err);
}

static int usage_error(const struct err *err)
{
    log_error("usage", "%s", err->text);
    return 2;
}

int main(int argc, char **argv)
{
    struct err err = {0};
    size_t word_count = 0;
    rpc_process_init();
    log_set_name("psd");
    if (flags_parse(flag_table, ARRAY_SIZE(flag_table), argc, argv, NULL, &word_count, &err) !=
        ERR_OK)
        return usage_error(&err);
    enum log_level level;
    if (!log_level_from_name(log_level, &level)) {
        err_set(&err, ERR_INVALID, "--log-level: \"%s\": want error, warn, info or debug",
                log_level);
        return usage_error(&err);
    }
    log_set_level(level);
    AUTO(cluster_spec) cluster = NULL;
    struct identity me = {0};
    if (find_identity(&cluster, &me, &err) != ERR_OK)
        return usage_error(&err);

    struct daemon_ref daemon = {0};
    struct rpc_env *env = NULL;
    enum err_code code = loop_new(&daemon.loop, &err);
    if (code == ERR_OK)
        code = rpc_env_new(loop_uv(daemon.loop), &env, &err);
    struct ps_options options = {.loop = daemon.loop,
                                 .env = env,
                                 .name = me.name,
                                 .listen = me.listen,
                                 .advertise = me.advertise,
                                 .coordinator = me.coordinator,
                                 .coordinator_name = me.coordinator_name,
                                 .shard_count = shard_count,
                                 .memory_bytes = memory_bytes ? memory_bytes : default_memory(),
                                 .inflight_bytes = inflight_bytes};
    if (code == ERR_OK)
        code = ps_new(&options, &daemon.ps, &err);
    if (code == ERR_OK)
        code = write_port_file(daemon.ps, &err);
    if (code != ERR_OK) {
        log_error("start.failed", "code=%s %s", err_name(code), err.text);
        ps_free(daemon.ps);
        if (env)
            rpc_env_free(env);
        loop_free(daemon.loop);
        return 1;
    }
    log_info("ps.ready", "%s at %s shards=%u memory=%" PRIu64, me.name, ps_address(daemon.ps),
             shard_count, options.memory_bytes);
    loop_on_stop(daemon.loop, on_signal, &daemon);
    ps_start(daemon.ps);
    notify_watchdog_start(loop_uv(daemon.loop));
    notify_ready();
    int exit_code = loop_run(daemon.loop);
    notify_watchdog_stop();
    ps_free(daemon.ps);
    rpc_env_free(env);
    loop_free(daemon.loop);
    return exit_code;
}
