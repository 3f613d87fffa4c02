/* SPDX-License-Identifier: Apache-2.0 */
/* coordinatord: takes jobs, schedules their steps, remembers what was acknowledged. */
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/daemon/daemon.h"
#include "common/daemon/notify.h"
#include "common/loop/loop.h"
#include "common/rpc/rpc.h"
#include "coordinatord/shell/coord.h"

static struct daemon_flags flags;
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
    DAEMON_FLAG_ROWS(flags),
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
};

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
    struct daemon_identity me = {0};
    int status =
        daemon_begin("coordinatord", flag_table, ARRAY_SIZE(flag_table), argc, argv, &flags);
    if (status)
        return status;
    if (daemon_identify(TASK_CHIEF, &flags, NULL, NULL, &me, &err) != ERR_OK)
        return daemon_usage_error(&err);
    options.address = me.listen;
    options.port_file = flags.port_file;

    struct daemon_ref daemon = {0};
    struct rpc_env *env = NULL;
    enum err_code code = loop_new(&daemon.loop, &err);
    if (code == ERR_OK)
        code = rpc_env_new(loop_uv(daemon.loop), &env, &err);
    if (code == ERR_OK)
        code = coord_new(daemon.loop, env, me.cluster, &options, &daemon.coord, &err);
    if (code == ERR_OK) {
        loop_on_stop(daemon.loop, on_signal, &daemon);
        notify_watchdog_start(loop_uv(daemon.loop));
        notify_ready();
        status = loop_run(daemon.loop);
        notify_watchdog_stop();
        coord_free(daemon.coord);
    } else {
        log_error("start.failed", "code=%s %s", err_name(code), err.text);
        status = 1;
    }
    if (env)
        rpc_env_free(env);
    loop_free(daemon.loop);
    daemon_identity_done(&me);
    return status;
}
