/* SPDX-License-Identifier: Apache-2.0 */
/* worker: puts the rooms together, and gives each loop turn its end: steps are moved on and reports
 * leave. */
#include "workerd/shell/worker.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/loop/inbox.h"
#include "common/loop/loop.h"
#include "common/rpc/rpc.h"
#include "common/spec/address.h"
#include "proto/health_service.h"
#include "proto/reflection_service.h"
#include "workerd/input/input_pool.h"
#include "workerd/shell/session.h"
#include "workerd/step/device_thread.h"
#include "workerd/step/step_run.h"

#define TICK_MS 250u /* how late a deadline may be noticed */

struct worker {
    struct worker_options options;
    char *address;
    char *device_name;
    struct rpc_server *server;
    struct health_service *health;
    struct inbox *inbox;
    struct input_pool *pool;
    struct device_thread *device;
    struct step_run *run;
    struct session *session;
    struct loop_timer *tick;
    uv_prepare_t *turn; /* frees itself when closed */
    bool is_started;
    bool is_stopping;
    bool is_session_stopped;
    bool is_server_drained;
    void (*on_stopped)(void *arg);
    void *on_stopped_arg;
};

/* ---- the end of a turn --------------------------------------------------------------------------
 */
static void stop_if_quiet(struct worker *worker)
{
    if (!worker->is_session_stopped || !worker->is_server_drained ||
        !step_run_is_empty(worker->run) || !worker->on_stopped)
        return;
    void (*on_stopped)(void *arg) = TAKE(worker->on_stopped);
    on_stopped(worker->on_stopped_arg);
}

/* Before the loop goes to sleep: whatever the callbacks of this turn made possible happens now,
 * once. */
static void on_turn(uv_prepare_t *handle)
{
    struct worker *worker = handle->data;
    while (step_run_has_change(worker->run)) /* each round without an ended step is the last */
        step_run_advance(worker->run);
    if (worker->is_stopping)
        stop_if_quiet(worker);
    else
        session_flush(worker->session);
}

static void on_report(void *arg)
{
    (void)arg; /* on_turn sends it */
}

static void on_tick(void *arg)
{
    struct worker *worker = arg;
    step_run_check_deadlines(worker->run, clock_now_ns());
}

/* ---- session ------------------------------------------------------------------------------------
 */
static void on_fatal(void *arg, const struct err *err)
{
    struct worker *worker = arg;
    log_error("worker.refused", "worker=%s code=%s err=\"%s\"", worker->options.name,
              err_name(err->code), err->text);
    worker->options.on_end(worker->options.arg, 1);
}

static void on_left(void *arg)
{
    struct worker *worker = arg;
    log_info("worker.left", "worker=%s", worker->options.name);
    worker->options.on_end(worker->options.arg, 0);
}

/* ---- begin --------------------------------------------------------------------------------------
 */
static void free_handle(uv_handle_t *handle)
{
    free(handle);
}

static uint32_t usable_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    return (uint32_t)MAX(CPU_COUNT(&set), 1);
}

static uint64_t machine_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page_bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0;
}

static enum err_code open_server(struct worker *worker, struct err *err)
{
    enum err_code code = rpc_server_new(worker->options.rpc, NULL, &worker->server, err);
    if (code != ERR_OK)
        return code;
    worker->health = health_service_new();
    health_service_add(worker->health, worker->server);
    reflection_service_add(worker->server);
    uint16_t port = 0;
    code = rpc_server_listen(worker->server, worker->options.listen, &port, err);
    if (code == ERR_OK)
        worker->address = worker->options.advertise ? base_strdup(worker->options.advertise)
                                                    : address_bound(worker->options.listen, port);
    return code;
}

enum err_code worker_new(const struct worker_options *options, struct worker **ret_worker,
                         struct err *err)
{
    struct worker *worker = base_alloc(sizeof(*worker));
    worker->options = *options;
    enum err_code code = open_server(worker, err);
    if (code != ERR_OK) {
        worker_free(worker);
        return code;
    }
    uv_loop_t *uv = loop_uv(options->loop);
    worker->device_name = base_asprintf("%s:0", options->device);
    worker->inbox = inbox_new(uv);
    worker->pool =
        input_pool_new(worker->inbox, options->input_threads ? options->input_threads : 1);
    struct device_options device = {.device = options->device,
                                    .threads = options->threads ? options->threads : usable_cores(),
                                    .fake_script = options->fake_script};
    worker->device = device_thread_new(worker->inbox, &device);
    struct job_env env = {.loop = options->loop,
                          .inbox = worker->inbox,
                          .rpc = options->rpc,
                          .pool = worker->pool,
                          .device = worker->device,
                          .hook = &worker->options.hook,
                          .pulls_ahead = options->pulls_ahead};
    worker->run = step_run_new(&env, on_report, worker);
    struct session_options session = {.coordinator = options->coordinator,
                                      .name = options->name,
                                      .address = worker->address,
                                      .device = worker->device_name,
                                      .memory_bytes = machine_bytes(),
                                      .on_fatal = on_fatal,
                                      .on_left = on_left,
                                      .arg = worker};
    code = session_new(options->loop, options->rpc, worker->run, &session, &worker->session, err);
    if (code != ERR_OK) {
        worker_free(worker);
        return code;
    }
    worker->tick = loop_timer_new(options->loop, on_tick, worker);
    worker->turn = base_alloc(sizeof(*worker->turn));
    uv_prepare_init(uv, worker->turn);
    worker->turn->data = worker;
    *ret_worker = worker;
    return ERR_OK;
}

const char *worker_address(const struct worker *worker)
{
    return worker->address;
}

void worker_start(struct worker *worker)
{
    ASSERT(!worker->is_started);
    worker->is_started = true;
    rpc_server_start(worker->server);
    health_service_set(worker->health, "", true);
    health_service_set(worker->health, "steadfast.v1.Worker", true); /* no service: our role */
    loop_timer_every(worker->tick, TICK_MS);
    uv_prepare_start(worker->turn, on_turn);
    log_info("worker.up", "worker=%s address=%s coordinator=%s device=%s", worker->options.name,
             worker->address, worker->options.coordinator, worker->device_name);
    session_start(worker->session);
}

/* ---- end ----------------------------------------------------------------------------------------
 */
void worker_leave(struct worker *worker, const char *reason)
{
    health_service_set(worker->health, "", false);
    session_leave(worker->session, reason);
}

static void on_session_stopped(void *arg)
{
    struct worker *worker = arg;
    worker->is_session_stopped = true;
    stop_if_quiet(worker);
}

static void on_server_drained(void *arg)
{
    struct worker *worker = arg;
    worker->is_server_drained = true;
    stop_if_quiet(worker);
}

void worker_stop(struct worker *worker, void (*on_stopped)(void *arg), void *arg)
{
    ASSERT(worker->is_started && !worker->is_stopping);
    worker->is_stopping = true;
    worker->on_stopped = on_stopped;
    worker->on_stopped_arg = arg;
    loop_timer_stop(worker->tick);
    step_run_drop_all(worker->run);
    health_service_drain(worker->health);
    rpc_server_drain(worker->server, on_server_drained, worker);
    session_stop(worker->session, on_session_stopped, worker);
}

void worker_free(struct worker *worker)
{
    if (!worker)
        return;
    ASSERT(!worker->on_stopped);
    session_free(worker->session);
    device_thread_free(worker->device); /* they post into the inbox, so they end before it */
    input_pool_free(worker->pool);
    step_run_free(worker->run);
    inbox_free(worker->inbox);
    loop_timer_free(worker->tick);
    if (worker->turn)
        uv_close((uv_handle_t *)worker->turn, free_handle);
    rpc_server_free(worker->server);
    health_service_free(worker->health);
    free(worker->address);
    free(worker->device_name);
    free(worker);
}
