/* SPDX-License-Identifier: Apache-2.0 */
/* coord: puts the daemon together and takes it apart; the table of who carries out what. */
#include "coordinatord/shell/coord.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/daemon/daemon.h"
#include "common/daemon/notify.h"
#include "common/spec/address.h"
#include "coordinatord/shell/coord_int.h"
#include "proto/reflection_service.h"

#define WAIT_WORD_MS 5000

/* ---- who carries out what -------------------------------------------------------------------- */

static void log_notice(struct coord *coord, const struct core_act *act)
{
    struct core_job_view view;
    if (act->job && core_job_view(coord->core, clock_now_ns(), act->job, &view))
        log_warn("job.notice", "job=%s %s", view.name, act->text);
    else
        log_warn("cluster.notice", "%s", act->text);
}

/* JOURNAL is coord_core's own, and it holds a REPLY back until what it says is durable. */
static coord_carrier_fn *const carriers[] = {
    [CORE_ACT_WELCOME] = coord_send_welcome,    [CORE_ACT_GOODBYE] = coord_send_goodbye,
    [CORE_ACT_HANGUP] = coord_send_hangup,      [CORE_ACT_TICKETS] = coord_send_tickets,
    [CORE_ACT_ACKS] = coord_send_refs,          [CORE_ACT_REVOKE] = coord_send_refs,
    [CORE_ACT_OPEN] = coord_send_open,          [CORE_ACT_CLOSE] = coord_send_close,
    [CORE_ACT_PLAN] = coord_place_plan,         [CORE_ACT_CREATE] = coord_order_create,
    [CORE_ACT_SNAPSHOT] = coord_order_snapshot, [CORE_ACT_PRUNE] = coord_order_prune,
    [CORE_ACT_PIN] = coord_order_pin,           [CORE_ACT_UNPIN] = coord_order_unpin,
    [CORE_ACT_DROP] = coord_order_drop,         [CORE_ACT_FENCE] = coord_order_fence,
    [CORE_ACT_MARKS] = coord_order_marks,       [CORE_ACT_FIND_CKPT] = coord_ckpt_find,
    [CORE_ACT_BEGIN_CKPT] = coord_ckpt_begin,   [CORE_ACT_PUBLISH_CKPT] = coord_ckpt_publish,
    [CORE_ACT_ABORT_CKPT] = coord_ckpt_abort,   [CORE_ACT_REPLY] = coord_request_reply,
    [CORE_ACT_CHANGED] = coord_watch_changed,   [CORE_ACT_NOTICE] = log_notice,
};

/* ---- life ------------------------------------------------------------------------------------ */

/* Who is missing, said every few seconds until everybody is there. */
static void on_wait_timer(void *arg)
{
    struct coord *coord = arg;
    size_t missing = 0;
    for (size_t t = 0; t < coord->cluster->roles[TASK_PS].count; t++) {
        const struct cluster_task *task = &coord->cluster->roles[TASK_PS].items[t];
        bool is_here = false;
        struct core_member_view member;
        for (size_t i = 0; core_member_view(coord->core, clock_now_ns(), i, &member); i++) {
            char name[32];
            snprintf(name, sizeof(name), "ps:%u", task->index);
            is_here = is_here || (strcmp(member.name, name) == 0 && member.conn != CORE_NO_CONN);
        }
        if (!is_here) {
            log_info("cluster.waiting", "server=ps:%u address=%s", task->index, task->address);
            missing++;
        }
    }
    notify_status("%zu members attached, %zu servers missing", coord->conns.count, missing);
}

static enum err_code open_port(struct coord *coord, struct err *err)
{
    struct rpc_server_options options = {.grace_ms = 1000};
    enum err_code code = rpc_server_new(coord->env, &options, &coord->server, err);
    if (code != ERR_OK)
        return code;
    coord_fleet_add(coord);
    coord_api_add(coord);
    coord->health = health_service_new();
    health_service_add(coord->health, coord->server);
    reflection_service_add(coord->server);
    uint16_t port = 0;
    code = rpc_server_listen(coord->server, coord->options.address, &port, err);
    if (code != ERR_OK)
        return code;
    char *bound AUTO_MEM = address_bound(coord->options.address, port);
    log_info("coordinator.listening", "address=%s start=%" PRIu64 " state=%s", bound, coord->start,
             coord->options.state_dir);
    return daemon_write_port_file(coord->options.port_file, bound, err);
}

static void set_serving(struct coord *coord)
{
    static const char *const services[] = {"", "steadfast.v1.Coordinator", "steadfast.v1.Fleet"};
    for (size_t i = 0; i < ARRAY_SIZE(services); i++)
        health_service_set(coord->health, services[i], true);
}

enum err_code coord_new(struct loop *loop, struct rpc_env *env, const struct cluster_spec *cluster,
                        const struct coord_options *options, struct coord **ret_coord,
                        struct err *err)
{
    struct coord *coord = base_alloc(sizeof(*coord));
    coord->options = *options;
    coord->loop = loop;
    coord->env = env;
    coord->cluster = cluster;
    coord_disk_init(coord);
    coord->carriers = carriers;
    coord->carrier_count = ARRAY_SIZE(carriers);
    coord_watch_init(coord);
    coord->wait_timer = loop_timer_new(loop, on_wait_timer, coord);
    enum err_code code = coord_core_open(coord, err);
    if (code == ERR_OK)
        code = open_port(coord, err);
    if (code != ERR_OK) {
        coord_free(coord);
        return code;
    }
    coord_core_begin(coord);
    rpc_server_start(coord->server);
    set_serving(coord);
    coord_watch_begin(coord);
    loop_timer_every(coord->wait_timer, WAIT_WORD_MS);
    *ret_coord = coord;
    return ERR_OK;
}

struct stopping {
    struct coord *coord;
    void (*on_done)(void *arg);
    void *arg;
};

/* Behind everything that the ledger and the disk thread had posted before they ended. */
static void on_quiet(void *arg)
{
    struct stopping *stopping = arg;
    stopping->on_done(stopping->arg);
    free(stopping);
}

static void on_drained(void *arg)
{
    struct stopping *stopping = arg;
    struct coord *coord = stopping->coord;
    coord_core_close_ledger(coord, 5000);
    rpc_env_post(coord->env, on_quiet, stopping);
}

void coord_stop(struct coord *coord, void (*on_done)(void *arg), void *arg)
{
    struct stopping *stopping = base_alloc(sizeof(*stopping));
    *stopping = (struct stopping){coord, on_done, arg};
    coord->is_stopping = true;
    health_service_drain(coord->health);
    loop_timer_stop(coord->wait_timer);
    loop_timer_stop(coord->core_timer);
    coord_request_close_all(coord);
    coord_watch_close_all(coord);
    coord_conn_close_all(coord);
    coord_disk_stop(coord);
    rpc_server_drain(coord->server, on_drained, stopping);
}

void coord_free(struct coord *coord)
{
    if (!coord)
        return;
    coord_disk_done(coord);
    coord_watch_done(coord);
    rpc_server_free(coord->server);
    health_service_free(coord->health);
    loop_timer_free(coord->wait_timer);
    coord_core_done(coord);
    coord_ckpt_done(coord);
    coord_job_done(coord);
    map_done(&coord->conns);
    map_done(&coord->requests);
    free(coord);
}
