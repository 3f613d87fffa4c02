/* SPDX-License-Identifier: Apache-2.0 */
/* workerd: runs training steps on one device for the coordinator that it dials. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cluster_spec.h"
#include "common/file.h"
#include "common/flags.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/notify.h"
#include "common/rpc.h"
#include "workerd/worker.h"

#define STOP_MS         2000u /* for the orderly end; a device that still computes is not waited for */
#define LEAVE_EXTEND_MS 10000u /* what systemd is told that leaving may take */

static const char *tf_config;
static const char *job_name;
static const char *task_index;
static const char *ps_hosts;
static const char *worker_hosts;
static const char *controller_host;
static const char *name;
static const char *address;
static const char *port_file;
static const char *coordinator;
static const char *device = "cpu";
static const char *fake_script;
static const char *log_level_name = "info";
static bool pulls_ahead;
static uint32_t threads;
static uint32_t input_threads = 1;

static const struct flag flag_table[] = {
    {"tf-config", FLAG_STRING, &tf_config, 0, 0, "FILE",
     "cluster description (default: the variable TF_CONFIG)"},
    {"job_name", FLAG_STRING, &job_name, 0, 0, "ROLE", "worker"},
    {"task_index", FLAG_STRING, &task_index, 0, 0, "N",
     "index of this worker in the cluster description"},
    {"ps_hosts", FLAG_STRING, &ps_hosts, 0, 0, "LIST", "host:port,..."},
    {"worker_hosts", FLAG_STRING, &worker_hosts, 0, 0, "LIST", "host:port,..."},
    {"controller_host", FLAG_STRING, &controller_host, 0, 0, "HOST",
     "host:port of the coordinator"},
    {"name", FLAG_STRING, &name, 0, 0, "NAME",
     "name of this worker (default: worker:N from the cluster description; any other joins as a "
     "new one)"},
    {"address", FLAG_STRING, &address, 0, 0, "HOST:PORT",
     "where to serve health and reflection, port 0 picks one (default: from the cluster "
     "description)"},
    {"port-file", FLAG_STRING, &port_file, 0, 0, "FILE", "gets the bound host:port"},
    {"coordinator", FLAG_STRING, &coordinator, 0, 0, "HOST:PORT",
     "whom to work for (default: the chief of the cluster description)"},
    {"device", FLAG_STRING, &device, 0, 0, "DEVICE", "cpu, ref or fake (cpu)"},
    {"threads", FLAG_U32, &threads, 1, 1024, "N", "threads of the device (one per core)"},
    {"input-threads", FLAG_U32, &input_threads, 1, 256, "N", "threads that read and decode (1)"},
    {"pull-ahead", FLAG_SWITCH, &pulls_ahead, 0, 0, NULL,
     "fetch variables for the next step while one computes: hides the transfer, adds staleness"},
    {"fake-script", FLAG_STRING, &fake_script, 0, 0, "WORDS",
     "device fake: time and failures, \"step_us=500 fail_at=7\""},
    {"log-level", FLAG_STRING, &log_level_name, 0, 0, "LEVEL", "error, warn, info or debug (info)"},
};

struct daemon {
    struct loop *loop;
    struct rpc_env *env;
    struct worker *worker;
    struct loop_timer *stop_timer;
    int exit_code;
    bool is_stopping;
};

static int usage_error(const struct err *err)
{
    log_error("usage", "%s", err->text);
    return 2;
}

/* ---- who we are ---------------------------------------------------------------------------------
 */
/* --task_index beside a cluster description that says the rest. */
static enum err_code parse_index(const char *text, uint32_t *ret_index, struct err *err)
{
    char *end = NULL;
    errno = 0;
    unsigned long value = text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;
    if (!end || *end || errno || value >= LIMIT_WORKERS)
        return err_set(err, ERR_INVALID, "--task_index: \"%s\": want a number from 0 to %d", text,
                       LIMIT_WORKERS - 1);
    *ret_index = (uint32_t)value;
    return ERR_OK;
}

/* Role and index from the flags instead of from the description's "task". */
static enum err_code override_task(struct cluster_spec *spec, struct err *err)
{
    if (!job_name && !task_index)
        return ERR_OK;
    if (job_name && strcmp(job_name, "worker") != 0)
        return err_set(err, ERR_INVALID, "--job_name: \"%s\": want worker", job_name);
    uint32_t index = 0;
    enum err_code code = task_index ? parse_index(task_index, &index, err) : ERR_OK;
    if (code != ERR_OK)
        return code;
    spec->has_task = true;
    spec->task_role = TASK_WORKER;
    spec->task_index = index;
    return ERR_OK;
}

static enum err_code load_cluster(struct cluster_spec **ret_spec, struct err *err)
{
    if (ps_hosts || worker_hosts || controller_host)
        return cluster_spec_from_flags(job_name ? job_name : "worker", task_index, ps_hosts,
                                       worker_hosts, controller_host, ret_spec, err);
    AUTO(cluster_spec) spec = NULL;
    enum err_code code = cluster_spec_load(tf_config, &spec, err);
    if (code == ERR_NOT_FOUND && !tf_config) {
        if (job_name || task_index)
            return err_set(
                err, ERR_INVALID,
                "--job_name, --task_index: want --tf-config, TF_CONFIG or host lists too");
        return ERR_OK; /* the flags say everything */
    }
    if (code == ERR_OK)
        code = override_task(spec, err);
    if (code == ERR_OK)
        *ret_spec = TAKE(spec);
    return code;
}

/* Fills name, address and coordinator from the description where the flags do not say. */
static enum err_code identify(const struct cluster_spec *spec, char *name_buf, size_t name_size,
                              struct err *err)
{
    const struct cluster_task *task = NULL;
    if (spec && spec->has_task && spec->task_role == TASK_WORKER)
        task = cluster_spec_find(spec, TASK_WORKER, spec->task_index);
    if (spec && spec->has_task && spec->task_role != TASK_WORKER && !name)
        return err_set(err, ERR_INVALID, "task.type: \"%s\": want worker for workerd, or --name",
                       task_role_name(spec->task_role));
    if (spec && spec->has_task && spec->task_role == TASK_WORKER && !task && !address)
        return err_set(err, ERR_INVALID,
                       "task.index: %" PRIu32 ": want one of cluster.worker, or --address",
                       spec->task_index);
    if (!name && spec && spec->has_task) {
        snprintf(name_buf, name_size, "worker:%" PRIu32, spec->task_index);
        name = name_buf;
    }
    if (!address && task)
        address = task->address;
    const struct cluster_task *chief = spec ? cluster_spec_find(spec, TASK_CHIEF, 0) : NULL;
    if (!coordinator && chief)
        coordinator = chief->address;
    if (!name || name[0] == '\0' || strlen(name) > LIMIT_NAME_BYTES)
        return err_set(err, ERR_INVALID,
                       "--name: %s: want 1 to %d bytes, or a cluster description with a task",
                       name ? name : "absent", LIMIT_NAME_BYTES);
    if (!address)
        return err_set(err, ERR_INVALID,
                       "--address: absent: want host:port, or a cluster description with a task");
    if (!coordinator)
        return err_set(err, ERR_INVALID,
                       "--coordinator: absent: want host:port, or a cluster description");
    if (strcmp(device, "cpu") != 0 && strcmp(device, "ref") != 0 && strcmp(device, "fake") != 0)
        return err_set(err, ERR_INVALID, "--device: \"%s\": want cpu, ref or fake", device);
    return ERR_OK;
}

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

static enum err_code write_port_file(const struct worker *worker, struct err *err)
{
    if (!port_file)
        return ERR_OK;
    AUTO_MEM char *line = base_asprintf("%s\n", worker_address(worker));
    return file_write(port_file, line, strlen(line), err);
}

static enum err_code start(struct daemon *daemon, const struct fault_hook *hook, struct err *err)
{
    enum err_code code = loop_new(&daemon->loop, err);
    if (code == ERR_OK)
        code = rpc_env_new(loop_uv(daemon->loop), &daemon->env, err);
    if (code != ERR_OK)
        return code;
    struct worker_options options = {.loop = daemon->loop,
                                     .rpc = daemon->env,
                                     .name = name,
                                     .listen = address,
                                     .coordinator = coordinator,
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
        code = write_port_file(daemon->worker, err);
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

int main(int argc, char **argv)
{
    struct err err = {0};
    size_t word_count = 0;
    rpc_process_init();
    log_set_name("workerd");
    if (flags_parse(flag_table, ARRAY_SIZE(flag_table), argc, argv, NULL, &word_count, &err) !=
        ERR_OK)
        return usage_error(&err);
    enum log_level level;
    if (!log_level_from_name(log_level_name, &level)) {
        err_set(&err, ERR_INVALID, "--log-level: \"%s\": want error, warn, info or debug",
                log_level_name);
        return usage_error(&err);
    }
    log_set_level(level);
    AUTO(cluster_spec) spec = NULL;
    char name_buf[LIMIT_NAME_BYTES];
    struct fault_hook hook;
    if (load_cluster(&spec, &err) != ERR_OK ||
        identify(spec, name_buf, sizeof(name_buf), &err) != ERR_OK ||
        fault_hook_parse(getenv("STEADFAST_WORKER_KILL"), &hook, &err) != ERR_OK)
        return usage_error(&err);

    struct daemon daemon = {0};
    if (start(&daemon, &hook, &err) != ERR_OK) {
        log_error("start.failed", "code=%s %s", err_name(err.code), err.text);
        end(&daemon);
        return 1;
    }
    daemon.stop_timer = loop_timer_new(daemon.loop, on_stop_late, &daemon);
    loop_on_stop(daemon.loop, on_signal, &daemon);
    worker_start(daemon.worker);
    notify_watchdog_start(loop_uv(daemon.loop));
    notify_ready();
    int exit_code = loop_run(daemon.loop);
    notify_watchdog_stop();
    loop_timer_stop(daemon.stop_timer);
    end(&daemon);
    return exit_code;
}
