/* SPDX-License-Identifier: Apache-2.0 */
/* coordinatord: takes jobs, schedules their steps, remembers what was acknowledged. */
#include <stdio.h>
#include <stdlib.h>

#include "common/cluster_spec.h"
#include "common/flags.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/notify.h"
#include "common/rpc.h"
#include "coordinatord/coord.h"

static const char *tf_config;
static const char *job_name;
static const char *task_index;
static const char *ps_hosts;
static const char *worker_hosts;
static const char *controller_host;
static const char *log_level = "info";
static struct coord_options options = {
    .state_dir = "/var/lib/steadfast/coordinatord",
    .heartbeat_ms = DEFAULT_HEARTBEAT_MS,
    .lease_ms = DEFAULT_LEASE_MS,
    .order_deadline_ms = DEFAULT_ORDER_DEADLINE_MS,
    .job_wait_ms = 3600000,
    .audit_ms = 2000,
    .running_max = 4,
    .recover_ms = 4000,
};

static const struct flag flag_table[] = {
    {"tf-config", FLAG_STRING, &tf_config, 0, 0, "FILE",
     "cluster description (default: the variable TF_CONFIG)"},
    {"job_name", FLAG_STRING, &job_name, 0, 0, "ROLE",
     "chief (controller); with the host lists below"},
    {"task_index", FLAG_STRING, &task_index, 0, 0, "N", "index of this task"},
    {"ps_hosts", FLAG_STRING, &ps_hosts, 0, 0, "LIST", "host:port,..."},
    {"worker_hosts", FLAG_STRING, &worker_hosts, 0, 0, "LIST", "host:port,..."},
    {"controller_host", FLAG_STRING, &controller_host, 0, 0, "HOST",
     "host:port of the coordinator"},
    {"address", FLAG_STRING, &options.address, 0, 0, "HOST:PORT",
     "where to listen (default: the chief's address)"},
    {"port-file", FLAG_STRING, &options.port_file, 0, 0, "FILE", "gets the bound host:port"},
    {"state-dir", FLAG_STRING, &options.state_dir, 0, 0, "DIR", "where the ledger lives"},
    {"heartbeat-ms", FLAG_U32, &options.heartbeat_ms, 10, 60000, "MS",
     "how often members say that they live (250)"},
    {"lease-ms", FLAG_U32, &options.lease_ms, 50, 600000, "MS",
     "silence longer than this is a loss (2000)"},
    {"order-deadline-ms", FLAG_U32, &options.order_deadline_ms, 100, 86400000, "MS",
     "a server that does not answer an order in time (120000)"},
    {"job-wait-ms", FLAG_U32, &options.job_wait_ms, 100, UINT32_MAX, "MS",
     "a job in which nothing moves for so long fails (3600000)"},
    {"audit-ms", FLAG_U32, &options.audit_ms, 0, 86400000, "MS",
     "how often marks are compared with the ledger; 0: only at the end (2000)"},
    {"running-max", FLAG_U32, &options.running_max, 1, LIMIT_JOBS_ACTIVE, "N",
     "jobs that run at the same time (4)"},
    {"recover-ms", FLAG_U32, &options.recover_ms, 100, 600000, "MS",
     "how long members may take to come back after a restart (4000)"},
    {"log-level", FLAG_STRING, &log_level, 0, 0, "LEVEL", "error, warn, info or debug"},
};

static int usage_error(const struct err *err)
{
    log_error("usage", "%s", err->text);
    return 2;
}

static enum err_code load_cluster(struct cluster_spec **ret_cluster, struct err *err)
{
    enum err_code code = job_name || ps_hosts || worker_hosts || controller_host
                             ? cluster_spec_from_flags(job_name, task_index, ps_hosts, worker_hosts,
                                                       controller_host, ret_cluster, err)
                             : cluster_spec_load(tf_config, ret_cluster, err);
    if (code != ERR_OK)
        return code;
    const struct cluster_task *chief = cluster_spec_find(*ret_cluster, TASK_CHIEF, 0);
    if (!options.address && chief)
        options.address = chief->address;
    if (!options.address)
        return err_set(err, ERR_INVALID,
                       "cluster.chief: absent: want the coordinator's host:port, or --address");
    return ERR_OK;
}

static void on_stopped(void *arg)
{
    loop_stop(arg, 0);
}

struct daemon_ref {
    struct loop *loop;
    struct coord *coord;
};

static void on_signal(int signum, void *arg)
{
    struct daemon_ref *daemon = arg;
    log_info("coordinator.stopping", "signal=%d", signum);
    notify_stopping();
    coord_stop(daemon->coord, on_stopped, daemon->loop);
}

int main(int argc, char **argv)
{
    struct err err = {0};
    size_t word_count = 0;
    rpc_process_init();
    log_set_name("coordinatord");
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
    if (load_cluster(&cluster, &err) != ERR_OK)
        return usage_error(&err);

    struct daemon_ref daemon = {0};
    struct rpc_env *env = NULL;
    if (loop_new(&daemon.loop, &err) != ERR_OK ||
        rpc_env_new(loop_uv(daemon.loop), &env, &err) != ERR_OK ||
        coord_new(daemon.loop, env, cluster, &options, &daemon.coord, &err) != ERR_OK) {
        log_error("start.failed", "code=%s %s", err_name(err.code), err.text);
        if (env)
            rpc_env_free(env);
        loop_free(daemon.loop);
        return 1;
    }
    loop_on_stop(daemon.loop, on_signal, &daemon);
    notify_watchdog_start(loop_uv(daemon.loop));
    notify_ready();
    int code = loop_run(daemon.loop);
    notify_watchdog_stop();
    coord_free(daemon.coord);
    rpc_env_free(env);
    loop_free(daemon.loop);
    return code;
}
