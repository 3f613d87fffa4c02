/* SPDX-License-Identifier: Apache-2.0 */
/* coord: feeds the core and carries out its actions.
 *
 *   stream, request, timer, ledger, disk  --event-->  core  --actions-->  coord_drain
 *
 * Actions that are answered at once (a plan) are answered after the list was carried out, since an
 * event ends the list's life. Replies wait until every record posted before them is durable.
 */
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
#include "coordinatord/plan/plan.h"
#include "coordinatord/shell/coord_int.h"
#include "proto/reflection_service.h"

#define WATCH_TURN_MS 50
#define WAIT_WORD_MS  5000

struct coord_job *coord_job_of(struct coord *coord, uint64_t number)
{
    struct coord_job *job = map_get(&coord->jobs, number);
    if (!job) {
        job = base_alloc(sizeof(*job));
        job->job = number;
        map_put(&coord->jobs, number, job);
    }
    return job;
}

static void forget_parts(struct coord_job *job)
{
    for (size_t i = 0; i < job->part_count; i++)
        steadfast__v1__ckpt_file__free_unpacked(job->parts[i].file, NULL);
    job->part_count = 0;
}

static void coord_job_free(struct coord_job *job)
{
    forget_parts(job);
    free(job->parts);
    plan_proto_free(job->plan);
    free(job);
}

/* ---- carrying out -------------------------------------------------------------------------- */

struct planned { /* an answer to CORE_ACT_PLAN, given after the list */
    uint64_t job;
    uint64_t generation;
    struct err err;
};

static void tell_planned(struct coord *coord, const struct planned *planned)
{
    uint32_t slice_counts[LIMIT_SERVERS] = {0};
    const Steadfast__V1__Plan *plan = coord_job_of(coord, planned->job)->plan;
    for (size_t i = 0; planned->err.code == ERR_OK && i < plan->n_slices; i++)
        slice_counts[plan->slices[i]->server]++;
    core_on_planned(coord->core, clock_now_ns(), planned->job, planned->generation,
                    planned->err.code, planned->err.text, slice_counts);
}

static void make_plan(struct coord *coord, const struct job_spec *spec,
                      const struct core_server_ref *servers, size_t count, struct planned *planned)
{
    struct coord_job *job = coord_job_of(coord, planned->job);
    Steadfast__V1__Plan *plan = NULL;
    uint32_t shard_count = 0;
    if (coord_plan_make(spec, &job->facts, servers, count, &plan, &shard_count, NULL,
                        &planned->err) != ERR_OK)
        return;
    plan_proto_free(job->plan);
    job->plan = plan;
}

/* After a restart the sizes of the images are read again before the plan is made. */
static void on_probed_again(struct coord *coord, void *arg, struct job_spec *spec, char *json,
                            const struct data_facts *facts, const struct err *err)
{
    struct planned *planned = arg;
    struct core_job_view view;
    struct coord_job *job = coord_job_of(coord, planned->job);
    planned->err = *err;
    if (err->code == ERR_OK && !core_job_view(coord->core, clock_now_ns(), planned->job, &view)) {
        err_set(&planned->err, ERR_NOT_FOUND, "no such job");
    } else if (err->code == ERR_OK) {
        job->facts = *facts;
        job->has_facts = true;
        make_plan(coord, spec, view.servers, view.server_count, planned);
    }
    tell_planned(coord, planned);
    coord_drain(coord);
    job_spec_free(spec);
    free(json);
    free(planned);
}

/* True: answered at once, into ret_planned. */
static bool plan(struct coord *coord, const struct core_act *act, struct planned *ret_planned)
{
    *ret_planned = (struct planned){.job = act->job, .generation = act->generation};
    struct core_job_view view;
    struct job_spec *spec = NULL;
    if (!core_job_view(coord->core, clock_now_ns(), act->job, &view)) {
        err_set(&ret_planned->err, ERR_NOT_FOUND, "no such job");
        return true;
    }
    if (coord_job_of(coord, act->job)->has_facts) {
        make_plan(coord, view.spec, act->servers, act->count, ret_planned);
        return true;
    }
    if (job_spec_parse(view.spec_json, strlen(view.spec_json), &spec, &ret_planned->err) != ERR_OK)
        return true;
    struct planned *later = base_alloc(sizeof(*later));
    *later = *ret_planned;
    coord_disk_probe(coord, spec, base_strdup(view.spec_json), false, on_probed_again, later);
    return false;
}

static void add_record(struct coord *coord, const struct core_record *record)
{
    if (coord->record_count == coord->record_capacity) {
        coord->record_capacity = MAX(coord->record_capacity * 2, (size_t)64);
        coord->records =
            base_realloc(coord->records, coord->record_capacity * sizeof(*coord->records));
    }
    coord->records[coord->record_count++] = *record;
    coord->posted_seq = record->seq;
}

static void hold_reply(struct coord *coord, const struct core_act *act)
{
    struct held_reply *held = base_alloc(sizeof(*held));
    held->seq = coord->posted_seq;
    held->act = *act;
    held->act.text = base_strdup(act->text ? act->text : "");
    *coord->held_tail = held;
    coord->held_tail = &held->next;
}

static void release_replies(struct coord *coord)
{
    while (coord->held && coord->held->seq <= coord->written_seq) {
        struct held_reply *held = coord->held;
        coord->held = held->next;
        if (!coord->held)
            coord->held_tail = &coord->held;
        coord_api_reply(coord, &held->act);
        free((char *)held->act.text);
        free(held);
    }
}

static void log_notice(struct coord *coord, const struct core_act *act)
{
    struct core_job_view view;
    if (act->job && core_job_view(coord->core, clock_now_ns(), act->job, &view))
        log_warn("job.notice", "job=%s %s", view.name, act->text);
    else
        log_warn("cluster.notice", "%s", act->text);
}

static void carry_out(struct coord *coord, const struct core_act *act, struct planned *planned,
                      size_t *planned_count)
{
    switch (act->kind) {
    case CORE_ACT_JOURNAL:
        add_record(coord, &act->record);
        break;
    case CORE_ACT_PLAN:
        if (plan(coord, act, &planned[*planned_count]))
            (*planned_count)++;
        break;
    case CORE_ACT_FIND_CKPT:
        coord_disk_find_ckpt(coord, act->job, act->number);
        break;
    case CORE_ACT_BEGIN_CKPT: {
        struct coord_job *job = coord_job_of(coord, act->job);
        forget_parts(job);
        job->ckpt_number = act->number;
        coord_disk_begin_ckpt(coord, act->job, act->number);
        break;
    }
    case CORE_ACT_PUBLISH_CKPT:
        coord_disk_publish_ckpt(coord, act);
        break;
    case CORE_ACT_ABORT_CKPT: {
        struct coord_job *job = coord_job_of(coord, act->job);
        coord_fleet_forget_snapshots(coord, act->job);
        forget_parts(job);
        job->ckpt_number = 0;
        coord_disk_abort_ckpt(coord, act->job, act->number);
        break;
    }
    case CORE_ACT_REPLY:
        if (act->code != ERR_OK) /* nothing was promised that has to be durable */
            coord_api_reply(coord, act);
        else
            hold_reply(coord, act);
        break;
    case CORE_ACT_CHANGED:
        coord_api_changed(coord, act->job);
        break;
    case CORE_ACT_NOTICE:
        log_notice(coord, act);
        break;
    default:
        coord_fleet_act(coord, act);
        break;
    }
}

static void arm(struct coord *coord)
{
    uint64_t deadline_ns = core_next_deadline(coord->core);
    if (deadline_ns == UINT64_MAX) {
        loop_timer_stop(coord->core_timer);
        return;
    }
    uint64_t now_ns = clock_now_ns();
    uint64_t wait_ms =
        deadline_ns > now_ns ? (deadline_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS : 0;
    loop_timer_once(coord->core_timer, MIN(wait_ms, (uint64_t)3600000));
}

void coord_drain(struct coord *coord)
{
    if (coord->is_draining || !coord->ledger)
        return; /* the drain that runs sees what was added; after the end nothing is carried out */
    coord->is_draining = true;
    for (;;) {
        const struct core_act *acts = NULL;
        struct planned planned[LIMIT_JOBS_ACTIVE];
        size_t planned_count = 0;
        size_t count = core_take_actions(coord->core, &acts);
        if (!count)
            break;
        for (size_t i = 0; i < count; i++)
            carry_out(coord, &acts[i], planned, &planned_count);
        if (coord->record_count) {
            ledger_post(coord->ledger, coord->records, coord->record_count);
            coord->record_count = 0;
        }
        for (size_t i = 0; i < planned_count; i++)
            tell_planned(coord, &planned[i]);
    }
    coord->is_draining = false;
    release_replies(coord);
    arm(coord);
}

/* ---- events of our own ----------------------------------------------------------------------- */

static void on_core_timer(void *arg)
{
    struct coord *coord = arg;
    core_on_timer(coord->core, clock_now_ns());
    coord_drain(coord);
}

static void on_watch_timer(void *arg)
{
    coord_api_watch_turn(arg);
}

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

struct written_note {
    struct coord *coord;
    uint64_t seq;
};

static void on_written_here(void *arg)
{
    struct written_note *note = arg;
    struct coord *coord = note->coord;
    coord->written_seq = MAX(coord->written_seq, note->seq);
    core_on_journal_written(coord->core, clock_now_ns(), note->seq);
    coord_drain(coord);
    free(note);
}

static void on_written(void *arg, uint64_t seq)
{
    struct written_note *note = base_alloc(sizeof(*note));
    note->coord = arg;
    note->seq = seq;
    rpc_env_post(note->coord->env, on_written_here, note);
}

struct stuck_note {
    struct coord *coord;
    bool is_stuck;
    char *text;
};

static void on_stuck_here(void *arg)
{
    struct stuck_note *note = arg;
    core_on_journal_stuck(note->coord->core, clock_now_ns(), note->is_stuck, note->text);
    coord_drain(note->coord);
    free(note->text);
    free(note);
}

static void on_stuck(void *arg, bool is_stuck, const char *text)
{
    struct stuck_note *note = base_alloc(sizeof(*note));
    note->coord = arg;
    note->is_stuck = is_stuck;
    note->text = base_strdup(text ? text : "");
    rpc_env_post(note->coord->env, on_stuck_here, note);
}

static enum err_code on_record(void *arg, const struct core_record *record, struct err *err)
{
    struct coord *coord = arg;
    return core_replay(coord->core, record, err);
}

/* ---- life ------------------------------------------------------------------------------------ */

static enum err_code open_ledger(struct coord *coord, struct err *err)
{
    struct ledger_callbacks callbacks = {on_written, on_stuck, coord};
    enum err_code code =
        ledger_open(coord->options.state_dir, &callbacks, &coord->ledger, &coord->start, err);
    if (code != ERR_OK)
        return code;
    struct core_config config = {
        .start = coord->start,
        .heartbeat_ms = coord->options.heartbeat_ms,
        .lease_ms = coord->options.lease_ms,
        .order_deadline_ms = coord->options.order_deadline_ms,
        .job_wait_ms = coord->options.job_wait_ms,
        .audit_ms = coord->options.audit_ms,
        .running_max = coord->options.running_max,
        .servers_wanted = (uint32_t)coord->cluster->roles[TASK_PS].count,
        .recover_ms = coord->options.recover_ms,
        .wall_ms = clock_wall_ms(),
    };
    coord->core = core_new(&config);
    return ledger_load(coord->ledger, on_record, coord, err);
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
    coord->held_tail = &coord->held;
    coord->disk = task_thread_new("disk", 1024);
    coord->core_timer = loop_timer_new(loop, on_core_timer, coord);
    coord->watch_timer = loop_timer_new(loop, on_watch_timer, coord);
    coord->wait_timer = loop_timer_new(loop, on_wait_timer, coord);
    enum err_code code = open_ledger(coord, err);
    if (code == ERR_OK)
        code = open_port(coord, err);
    if (code != ERR_OK) {
        coord_free(coord);
        return code;
    }
    ledger_begin(coord->ledger);
    core_start(coord->core, clock_now_ns());
    coord_drain(coord);
    rpc_server_start(coord->server);
    set_serving(coord);
    loop_timer_every(coord->watch_timer, WATCH_TURN_MS);
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
    ledger_close(coord->ledger, 5000);
    coord->ledger = NULL;
    rpc_env_post(coord->env, on_quiet, stopping);
}

void coord_stop(struct coord *coord, void (*on_done)(void *arg), void *arg)
{
    struct stopping *stopping = base_alloc(sizeof(*stopping));
    *stopping = (struct stopping){coord, on_done, arg};
    coord->is_stopping = true;
    health_service_drain(coord->health);
    loop_timer_stop(coord->watch_timer);
    loop_timer_stop(coord->wait_timer);
    loop_timer_stop(coord->core_timer);
    coord_api_close_all(coord);
    coord_fleet_close_all(coord);
    task_thread_stop(coord->disk);
    rpc_server_drain(coord->server, on_drained, stopping);
}

void coord_free(struct coord *coord)
{
    if (!coord)
        return;
    task_thread_free(coord->disk);
    if (coord->ledger)
        ledger_close(coord->ledger, 1000);
    coord_api_free_watchers(coord);
    rpc_server_free(coord->server);
    health_service_free(coord->health);
    loop_timer_free(coord->core_timer);
    loop_timer_free(coord->watch_timer);
    loop_timer_free(coord->wait_timer);
    core_free(coord->core);
    void *entry;
    for (size_t at = 0; (entry = map_next(&coord->jobs, &at));)
        coord_job_free(entry);
    for (size_t at = 0; (entry = map_next(&coord->snapshots, &at));)
        free(entry);
    while (coord->held) {
        struct held_reply *next = coord->held->next;
        free((char *)coord->held->act.text);
        free(coord->held);
        coord->held = next;
    }
    map_done(&coord->jobs);
    map_done(&coord->conns);
    map_done(&coord->requests);
    map_done(&coord->snapshots);
    free(coord->records);
    free(coord);
}
