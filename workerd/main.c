/* SPDX-License-Identifier: Apache-2.0 */
/* workerd: runs training steps on one device for the coordinator that it dials. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/peer_memory.h"
#include "common/daemon/daemon.h"
#include "common/daemon/notify.h"
#include "common/loop/loop.h"
#include "common/rpc/rpc.h"
#include "workerd/shell/worker.h"

#define STOP_MS         2000u /* for the orderly end; a device that still computes is not waited for */
#define LEAVE_EXTEND_MS 10000u /* what systemd is told that leaving may take */

static struct daemon_flags flags;
static const char *name;
static const char *coordinator;
static const char *device = "cpu";
static const char *fake_script;
static bool pulls_ahead;
static uint32_t threads;
static uint32_t input_threads = 1;

static bool no_peer_memory;

static const struct flag flag_table[] = {
    DAEMON_FLAG_ROWS(flags),
    {"name", FLAG_STRING, &name, 0, 0, "NAME",
     "name of this worker (default: worker:N from the cluster description; any other joins as a "
     "new one)"},
    {"coordinator", FLAG_STRING, &coordinator, 0, 0, "HOST:PORT",
     "whom to work for (default: the chief of the cluster description)"},
    {"device", FLAG_STRING, &device, 0, 0, "DEVICE", "cpu, ref or fake (cpu)"},
    {"threads", FLAG_U32, &threads, 1, 1024, "N", "threads of the device (one per core)"},
    {"input-threads", FLAG_U32, &input_threads, 1, 256, "N", "threads that read and decode (1)"},
    {"pull-ahead", FLAG_SWITCH, &pulls_ahead, 0, 0, NULL,
     "fetch variables for the next step while one computes: hides the transfer, adds staleness"},
    {"no-peer-memory", FLAG_SWITCH, &no_peer_memory, 0, 0, NULL,
     "use the network also between processes of this machine"},
    {"fake-script", FLAG_STRING, &fake_script, 0, 0, "WORDS",
     "device fake: time and failures, \"step_us=500 fail_at=7\""},
};

struct daemon {
    struct loop *loop;
    struct rpc_env *env;
    struct worker *worker;
    struct loop_timer *stop_timer;
    int exit_code;
    bool is_stopping;
};

/* ---- the end ------------------------------------------------------------------------------------
 */
static void on_stopped(void *arg)
{
    struct daemon *daemon = arg;
    loop_stop(daemon->loop, daemon->exit_code);
}

static void on_stop_late(void *arg)
{
    struct daemon *daemon = arg;
    log_warn("stop.late", "something still runs after %u ms; exiting without it", STOP_MS);
    _exit(daemon->exit_code);
}

static void on_end(void *arg, int exit_code)
{
    struct daemon *daemon = arg;
    if (daemon->is_stopping)
        return;
    daemon->is_stopping = true;
    daemon->exit_code = exit_code;
    loop_timer_once(daemon->stop_timer, STOP_MS);
    worker_stop(daemon->worker, on_stopped, daemon);
}

static void on_signal(int signum, void *arg)
{
    struct daemon *daemon = arg;
    notify_stopping();
    notify_extend_timeout(LEAVE_EXTEND_MS);
    worker_leave(daemon->worker, signum == SIGTERM ? "SIGTERM" : "SIGINT");
}

static enum err_code start(struct daemon *daemon, const struct daemon_identity *me,
                           const struct fault_hook *hook, struct err *err)
{
    enum err_code code = loop_new(&daemon->loop, err);
    if (code == ERR_OK)
        code = rpc_env_new(loop_uv(daemon->loop), &daemon->env, err);
    if (code != ERR_OK)
        return code;
    struct worker_options options = {.loop = daemon->loop,
                                     .rpc = daemon->env,
                                     .name = me->name,
                                     .listen = me->listen,
                                     .advertise = me->advertise,
                                     .coordinator = me->coordinator,
                                     .device = device,
                                     .threads = threads,
                                     .input_threads = input_threads,
                                     .fake_script = fake_script,
                                     .pulls_ahead = pulls_ahead,
                                     .hook = *hook,
                                     .on_end = on_end,
                                     .arg = daemon};
    code = worker_new(&options, &daemon->worker, err);
    if (code == ERR_OK)
        code = daemon_write_port_file(flags.port_file, worker_address(daemon->worker), err);
    return code;
}

static void end(struct daemon *daemon)
{
    worker_free(daemon->worker);
    if (daemon->env)
        rpc_env_free(daemon->env);
    loop_timer_free(daemon->stop_timer);
    loop_free(daemon->loop);
}

/* OpenMP reads its environment when its library is loaded, before main. Its default is to spin
 * between parallel regions, which costs everybody else on a shared machine a core: a step of two
 * threads took 20 times as long beside other load. So the process starts itself again, once, with
 * the passive policy, unless somebody chose one. */
static void be_passive(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") || setenv("OMP_WAIT_POLICY", "passive", 1) != 0)
        return;
    execv("/proc/self/exe", argv); /* same process; without /proc it goes on as it is */
}

int main(int argc, char **argv)
{
    be_passive(argv);
    struct err err = {0};
    struct daemon_identity me = {0};
    struct fault_hook hook;
    int status = daemon_begin("workerd", flag_table, ARRAY_SIZE(flag_table), argc, argv, &flags);
    if (status)
        return status;
    peer_memory_enable(!no_peer_memory);
    if (strcmp(device, "cpu") != 0 && strcmp(device, "ref") != 0 && strcmp(device, "fake") != 0) {
        err_set(&err, ERR_INVALID, "--device: \"%s\": want cpu, ref or fake", device);
        return daemon_usage_error(&err);
    }
    if (fault_hook_parse(getenv("STEADFAST_WORKER_KILL"), &hook, &err) != ERR_OK ||
        daemon_identify(TASK_WORKER, &flags, name, coordinator, &me, &err) != ERR_OK)
        return daemon_usage_error(&err);

    struct daemon daemon = {0};
    if (start(&daemon, &me, &hook, &err) != ERR_OK) {
        log_error("start.failed", "code=%s %s", err_name(err.code), err.text);
        end(&daemon);
        daemon_identity_done(&me);
        return 1;
    }
    daemon.stop_timer = loop_timer_new(daemon.loop, on_stop_late, &daemon);
    loop_on_stop(daemon.loop, on_signal, &daemon);
    worker_start(daemon.worker);
    notify_watchdog_start(loop_uv(daemon.loop));
    notify_ready();
    status = loop_run(daemon.loop);
    notify_watchdog_stop();
    loop_timer_stop(daemon.stop_timer);
    end(&daemon);
    daemon_identity_done(&me);
    return status;
}
