/* SPDX-License-Identifier: Apache-2.0 */
/* psd: a parameter server. Owns sharded variables, applies gradients to them exactly once, keeps no
 * file of its own. */
#include <inttypes.h>

#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/peer_memory.h"
#include "common/daemon/daemon.h"
#include "common/daemon/notify.h"
#include "common/loop/loop.h"
#include "common/rpc/rpc.h"
#include "psd/shell/ps.h"

#define STOP_MS 30000 /* for systemd: calls in flight and a snapshot being written */

static struct daemon_flags flags;
static const char *coordinator;
static uint32_t shard_count = 1;
static uint64_t memory_bytes;
static uint64_t inflight_bytes = 256u << 20;

static bool no_peer_memory;

static const struct flag flag_table[] = {
    DAEMON_FLAG_ROWS(flags),
    {"coordinator", FLAG_STRING, &coordinator, 0, 0, "HOST:PORT",
     "the coordinator (default: the chief's address)"},
    {"shards", FLAG_U32, &shard_count, 1, LIMIT_SHARDS_PER_SERVER, "N",
     "threads that own variables (1)"},
    {"memory", FLAG_SIZE, &memory_bytes, 0, 0, "SIZE",
     "budget of variables and slots; 0: four fifths of the memory there is (0)"},
    {"no-peer-memory", FLAG_SWITCH, &no_peer_memory, 0, 0, NULL,
     "use the network also between processes of this machine"},
    {"inflight-bytes", FLAG_SIZE, &inflight_bytes, 0, 0, "SIZE",
     "budget of gradients being received (256M)"},
};

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
    int status;
    bool is_stopping;
};

static void on_stopped(void *arg)
{
    struct daemon_ref *daemon = arg;
    loop_stop(daemon->loop, daemon->status);
}

static void stop(struct daemon_ref *daemon)
{
    if (daemon->is_stopping)
        return;
    daemon->is_stopping = true;
    notify_stopping();
    notify_extend_timeout(STOP_MS);
    ps_stop(daemon->ps, on_stopped, daemon);
}

static void on_fatal(void *arg)
{
    struct daemon_ref *daemon = arg;
    log_error("ps.refused", "the coordinator at %s does not want this process; it ends",
              ps_coordinator(daemon->ps));
    daemon->status = 1;
    stop(daemon);
}

static void on_signal(int signum, void *arg)
{
    struct daemon_ref *daemon = arg;
    log_info("ps.stopping", "signal=%d", signum);
    stop(daemon);
}

int main(int argc, char **argv)
{
    struct err err = {0};
    struct daemon_identity me = {0};
    int status = daemon_begin("psd", flag_table, ARRAY_SIZE(flag_table), argc, argv, &flags);
    if (status)
        return status;
    peer_memory_enable(!no_peer_memory);
    if (daemon_identify(TASK_PS, &flags, NULL, coordinator, &me, &err) != ERR_OK)
        return daemon_usage_error(&err);

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
                                 .coordinator_name = "chief:0",
                                 .shard_count = shard_count,
                                 .memory_bytes = memory_bytes ? memory_bytes : default_memory(),
                                 .inflight_bytes = inflight_bytes,
                                 .on_fatal = on_fatal,
                                 .on_fatal_arg = &daemon};
    if (code == ERR_OK)
        code = ps_new(&options, &daemon.ps, &err);
    if (code == ERR_OK)
        code = daemon_write_port_file(flags.port_file, ps_address(daemon.ps), &err);
    if (code != ERR_OK) {
        log_error("start.failed", "code=%s %s", err_name(code), err.text);
        ps_free(daemon.ps);
        if (env)
            rpc_env_free(env);
        loop_free(daemon.loop);
        daemon_identity_done(&me);
        return 1;
    }
    log_info("ps.ready", "%s at %s shards=%u memory=%" PRIu64, me.name, ps_address(daemon.ps),
             shard_count, options.memory_bytes);
    loop_on_stop(daemon.loop, on_signal, &daemon);
    ps_start(daemon.ps);
    notify_watchdog_start(loop_uv(daemon.loop));
    notify_ready();
    status = loop_run(daemon.loop);
    notify_watchdog_stop();
    ps_free(daemon.ps);
    rpc_env_free(env);
    loop_free(daemon.loop);
    daemon_identity_done(&me);
    return status;
}
