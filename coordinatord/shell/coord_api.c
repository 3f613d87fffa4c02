/* SPDX-License-Identifier: Apache-2.0 */
/* coord_api: the public service. Each handler checks what a client sent and calls into the core;
 * answers that depend on the core or the disk come back through a request number. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/daemon/flags.h"
#include "common/spec/data_order.h"
#include "coordinatord/plan/plan.h"
#include "coordinatord/shell/coord_int.h"
#include "proto/methods.h"

#define WATCH_DEFAULT_NS NS_PER_S
#define WATCH_MIN_NS     (100 * NS_PER_MS)

/* ---- job status ------------------------------------------------------------------------------ */

static void phases_fill(const struct core_job_view *view, Steadfast__V1__StepPhases *ret_phases)
{
    steadfast__v1__step_phases__init(ret_phases);
    ret_phases->steps = view->phase_steps;
    ret_phases->compute_seconds = (double)view->phases.compute_us / 1e6;
    ret_phases->serialise_seconds = (double)view->phases.serialise_us / 1e6;
    ret_phases->copy_seconds = (double)view->phases.copy_us / 1e6;
    ret_phases->wait_seconds = (double)view->phases.wait_us / 1e6;
    ret_phases->apply_seconds = (double)view->phases.apply_us / 1e6;
}

/* The message borrows from the view; its lists are freed by status_done. */
static void status_fill(const struct core_job_view *view, Steadfast__V1__JobStatus *status)
{
    steadfast__v1__job_status__init(status);
    status->job = view->job;
    status->name = (char *)view->name;
    status->state = (Steadfast__V1__JobState)view->state;
    status->phase = (char *)view->phase;
    status->reason = (char *)view->reason;
    status->steps_total = view->steps_total;
    status->issued = view->issued;
    status->acknowledged = view->acknowledged;
    status->reissued = view->reissued;
    status->abandoned = view->abandoned;
    status->duplicates_refused = view->duplicates_refused;
    status->lost = view->lost;
    status->repeated = view->repeated;
    status->steps_per_second = view->steps_per_second;
    status->images_per_second = view->images_per_second;
    status->loss = view->loss;
    status->epoch = view->epoch;
    status->epochs = view->spec->epochs;
    status->generation = view->generation;
    status->workers = view->worker_count;
    status->elapsed_seconds = view->elapsed_s;
    status->accounting_final = view->is_accounting_final;
    status->staleness = view->staleness;
    status->submitted_ms = view->submitted_ms;
    status->phases = base_alloc(sizeof(*status->phases));
    phases_fill(view, status->phases);
    if (view->steps_per_second > 0 && view->state == CORE_JOB_RUNNING)
        status->eta_seconds = (double)(view->steps_total - view->acknowledged - view->abandoned) /
                              view->steps_per_second;

    status->n_shards = view->shard_count;
    status->shards = base_alloc((view->shard_count + 1) * sizeof(*status->shards));
    for (size_t i = 0; i < view->shard_count; i++) {
        Steadfast__V1__ShardStatus *shard = base_alloc(sizeof(*shard));
        steadfast__v1__shard_status__init(shard);
        shard->server = (char *)view->shards[i].server;
        shard->shard = view->shards[i].shard;
        shard->applied = view->shards[i].applied;
        shard->bytes = view->shards[i].bytes;
        status->shards[i] = shard;
    }
    status->n_evaluations = view->eval_count;
    status->evaluations = base_alloc((view->eval_count + 1) * sizeof(*status->evaluations));
    for (size_t i = 0; i < view->eval_count; i++) {
        Steadfast__V1__Evaluation *eval = base_alloc(sizeof(*eval));
        steadfast__v1__evaluation__init(eval);
        eval->epoch = view->evals[i].epoch;
        eval->step = view->evals[i].step;
        eval->loss = view->evals[i].loss;
        eval->accuracy = view->evals[i].accuracy;
        status->evaluations[i] = eval;
    }
    status->n_checkpoints = view->ckpt_count;
    status->checkpoints = base_alloc((view->ckpt_count + 1) * sizeof(*status->checkpoints));
    for (size_t i = 0; i < view->ckpt_count; i++) {
        Steadfast__V1__CheckpointInfo *info = base_alloc(sizeof(*info));
        steadfast__v1__checkpoint_info__init(info);
        info->number = view->ckpts[i].number;
        info->step = view->ckpts[i].step;
        info->path = view->ckpts[i].path;
        status->checkpoints[i] = info;
    }
    status->n_abandoned_steps = view->abandoned_count;
    status->abandoned_steps =
        base_alloc((view->abandoned_count + 1) * sizeof(*status->abandoned_steps));
    for (size_t i = 0; i < view->abandoned_count; i++) {
        Steadfast__V1__AbandonedStep *step = base_alloc(sizeof(*step));
        steadfast__v1__abandoned_step__init(step);
        step->step = view->abandoned_steps[i].step;
        step->attempts = view->abandoned_steps[i].attempts;
        step->code = (char *)err_name(view->abandoned_steps[i].code);
        step->text = view->abandoned_steps[i].text;
        status->abandoned_steps[i] = step;
    }
    status->n_notices = view->notice_count;
    status->notices = (char **)view->notices;
}

static void status_done(Steadfast__V1__JobStatus *status)
{
    for (size_t i = 0; i < status->n_shards; i++)
        free(status->shards[i]);
    for (size_t i = 0; i < status->n_evaluations; i++)
        free(status->evaluations[i]);
    for (size_t i = 0; i < status->n_checkpoints; i++)
        free(status->checkpoints[i]);
    for (size_t i = 0; i < status->n_abandoned_steps; i++)
        free(status->abandoned_steps[i]);
    free(status->shards);
    free(status->evaluations);
    free(status->checkpoints);
    free(status->abandoned_steps);
    free(status->phases);
}

static bool is_over(enum core_job_state state)
{
    return state == CORE_JOB_SUCCEEDED || state == CORE_JOB_FAILED || state == CORE_JOB_CANCELLED;
}

static void reply_status(struct coord *coord, struct rpc_call *call, uint64_t job)
{
    struct core_job_view view;
    if (!core_job_view(coord->core, clock_now_ns(), job, &view)) {
        rpc_fail(call, ERR_NOT_FOUND, "no such job");
        return;
    }
    Steadfast__V1__JobStatus status;
    status_fill(&view, &status);
    struct rpc_out out = {.message = &status.base};
    rpc_reply(call, &out);
    status_done(&status);
}

/* 0 after the call was failed with what was wrong. */
static uint64_t find_job(struct coord *coord, struct rpc_call *call, const char *name)
{
    uint64_t job = core_job_find(coord->core, name);
    if (!job) {
        char text[LIMIT_NAME_BYTES + 80];
        snprintf(text, sizeof(text), "job \"%.128s\": there is no job of this name or number",
                 name);
        rpc_fail(call, ERR_NOT_FOUND, text);
    }
    return job;
}

/* ---- requests that the core answers ------------------------------------------------------------
 */

static struct request *new_request(struct coord *coord, struct rpc_call *call,
                                   void (*on_reply)(struct coord *coord, struct request *request,
                                                    const struct core_act *act))
{
    struct request *request = base_alloc(sizeof(*request));
    request->id = ++coord->next_request;
    request->call = call;
    request->on_reply = on_reply;
    rpc_call_ref(call);
    map_put(&coord->requests, request->id, request);
    return request;
}

static void end_request(struct request *request)
{
    rpc_call_unref(request->call);
    free(request);
}

void coord_api_reply(struct coord *coord, const struct core_act *act)
{
    struct request *request = map_remove(&coord->requests, act->request);
    if (!request)
        return;
    if (act->code != ERR_OK)
        rpc_fail(request->call, act->code, act->text);
    else
        request->on_reply(coord, request, act);
    end_request(request);
}

/* ---- submit and plan
 * ----------------------------------------------------------------------------- */

struct submission { /* between the handler and the probe's answer */
    struct rpc_call *call;
    bool is_resume;
    bool is_plan;
};

static void on_submitted(struct coord *coord, struct request *request, const struct core_act *act)
{
    Steadfast__V1__SubmitReply reply = STEADFAST__V1__SUBMIT_REPLY__INIT;
    (void)coord;
    reply.job = act->job;
    reply.name = (char *)act->text;
    struct rpc_out out = {.message = &reply.base};
    rpc_reply(request->call, &out);
}

/* "ps:2" before "ps:10": the order in which the core places. */
static int compare_servers(const void *a, const void *b)
{
    const struct core_server_ref *x = a;
    const struct core_server_ref *y = b;
    size_t x_bytes = strlen(x->name);
    size_t y_bytes = strlen(y->name);
    return x_bytes != y_bytes ? (x_bytes < y_bytes ? -1 : 1) : strcmp(x->name, y->name);
}

static void reply_plan(struct coord *coord, struct rpc_call *call, const struct job_spec *spec,
                       const struct data_facts *facts)
{
    struct core_server_ref servers[LIMIT_SERVERS];
    char names[LIMIT_SERVERS][24];
    size_t count = 0;
    const char *origin = "attached";
    struct core_member_view member;
    for (size_t i = 0;
         core_member_view(coord->core, clock_now_ns(), i, &member) && count < LIMIT_SERVERS; i++)
        if (member.role == CORE_SERVER && member.conn != CORE_NO_CONN)
            servers[count++] =
                (struct core_server_ref){member.conn, member.name, member.address,
                                         MAX(member.shard_count, 1u), member.memory_bytes};
    if (count < coord->cluster->roles[TASK_PS]
                    .count) { /* not all there: plan for the cluster as described */
        origin = "described";
        count = 0;
        for (size_t i = 0; i < coord->cluster->roles[TASK_PS].count && i < LIMIT_SERVERS; i++) {
            const struct cluster_task *task = &coord->cluster->roles[TASK_PS].items[i];
            snprintf(names[i], sizeof(names[i]), "ps:%u", task->index);
            servers[count++] =
                (struct core_server_ref){CORE_NO_CONN, names[i], task->address, 1, 0};
        }
    }
    qsort(servers, count, sizeof(*servers), compare_servers);
    Steadfast__V1__PlanReply reply = STEADFAST__V1__PLAN_REPLY__INIT;
    struct coord_plan_facts plan_facts = {0};
    struct err err = {0};
    Steadfast__V1__Plan *plan = NULL;
    uint32_t shard_count = 0;
    if (coord_plan_make(spec, facts, servers, count, &plan, &shard_count, &plan_facts, &err) !=
        ERR_OK) {
        rpc_fail(call, err.code, err.text);
        return;
    }
    log_debug("job.planned", "job=%s servers=%zu origin=%s", spec->name, count, origin);
    struct data_order order;
    data_order_init(&order, spec->seed, MAX(facts->records, (uint64_t)1),
                    MAX(spec->dataset.batch_size, 1u), spec->dataset.shuffle_buffer);
    reply.plan = plan;
    reply.steps_per_epoch =
        spec->dataset.source == DATA_NONE ? spec->max_steps : order.steps_per_epoch;
    reply.steps_total = reply.steps_per_epoch * spec->epochs;
    if (spec->max_steps)
        reply.steps_total = MIN(reply.steps_total, spec->max_steps);
    reply.parameters = plan_facts.parameters;
    reply.n_shard_bytes = plan_facts.target_count;
    reply.shard_bytes = plan_facts.target_bytes;
    reply.shards_per_server = count ? servers[0].shard_count : 0;
    struct rpc_out out = {.message = &reply.base};
    rpc_reply(call, &out);
    plan_proto_free(plan);
    free(plan_facts.target_bytes);
}

static void on_probed(struct coord *coord, void *arg, struct job_spec *take_spec, char *take_json,
                      const struct data_facts *facts, const struct err *probe_err)
{
    struct submission *submission = arg;
    AUTO(job_spec) spec = take_spec;
    char *json AUTO_MEM = take_json;
    struct err err = *probe_err;
    if (err.code == ERR_OK)
        err.code = coord_plan_check(spec, facts, &err);
    if (err.code != ERR_OK) {
        rpc_fail(submission->call, err.code, err.text);
    } else if (submission->is_plan) {
        reply_plan(coord, submission->call, spec, facts);
    } else {
        struct request *request = new_request(coord, submission->call, on_submitted);
        log_info("job.submitted", "job=%s model=%s records=%" PRIu64, spec->name, spec->model.name,
                 facts->records);
        char *name AUTO_MEM = base_strdup(spec->name);
        core_submit(coord->core, clock_now_ns(), request->id, TAKE(spec), json, facts->records,
                    facts->eval_records, submission->is_resume, clock_wall_ms());
        uint64_t number = core_job_find(coord->core, name);
        struct coord_job *job = number ? coord_job_of(coord, number) : NULL;
        if (job && !job->has_facts) {
            job->facts = *facts;
            job->has_facts = true;
        }
        coord_drain(coord);
    }
    rpc_call_unref(submission->call);
    free(submission);
}

static void submit_or_plan(struct coord *coord, struct rpc_call *call, const struct rpc_in *in,
                           bool is_plan)
{
    const Steadfast__V1__SubmitRequest *request = (const Steadfast__V1__SubmitRequest *)in->message;
    struct job_spec *spec = NULL;
    struct err err;
    size_t bytes = strlen(request->spec_json);
    if (coord->is_stopping) {
        rpc_fail(call, ERR_UNAVAILABLE, "the coordinator is stopping");
        return;
    }
    if (job_spec_parse(request->spec_json, bytes, &spec, &err) != ERR_OK) {
        rpc_fail(call, err.code, err.text);
        return;
    }
    struct submission *submission = base_alloc(sizeof(*submission));
    *submission = (struct submission){call, request->resume, is_plan};
    rpc_call_ref(call);
    coord_disk_probe(coord, spec, base_strdup(request->spec_json), !is_plan, on_probed, submission);
}

static void on_submit(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    submit_or_plan(arg, call, in, false);
}

static void on_plan(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    submit_or_plan(arg, call, in, true);
}

/* ---- the other methods
 * ---------------------------------------------------------------------------- */

static void on_list(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    struct coord *coord = arg;
    (void)in;
    size_t count = core_job_list(coord->core, NULL, 0);
    uint64_t *numbers AUTO_MEM = base_alloc((count + 1) * sizeof(*numbers));
    core_job_list(coord->core, numbers, count);
    Steadfast__V1__JobList list = STEADFAST__V1__JOB_LIST__INIT;
    Steadfast__V1__JobStatus *items AUTO_MEM = base_alloc((count + 1) * sizeof(*items));
    Steadfast__V1__JobStatus **pointers AUTO_MEM = base_alloc((count + 1) * sizeof(*pointers));
    list.jobs = pointers;
    for (size_t i = 0; i < count; i++) {
        struct core_job_view view;
        if (!core_job_view(coord->core, clock_now_ns(), numbers[i], &view))
            continue;
        /* the view's lists live until the next call: a list shows the counts only */
        view.shard_count = 0;
        view.notice_count = 0;
        view.abandoned_count = 0;
        view.ckpt_count = 0;
        status_fill(&view, &items[list.n_jobs]);
        pointers[list.n_jobs] = &items[list.n_jobs];
        list.n_jobs++;
    }
    struct rpc_out out = {.message = &list.base};
    rpc_reply(call, &out);
    for (size_t i = 0; i < list.n_jobs; i++)
        status_done(&items[i]);
}

static void on_get(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    struct coord *coord = arg;
    uint64_t job = find_job(coord, call, ((const Steadfast__V1__JobRef *)in->message)->job);
    if (job)
        reply_status(coord, call, job);
}

static void on_cancelled(struct coord *coord, struct request *request, const struct core_act *act)
{
    reply_status(coord, request->call, act->job);
}

static void on_cancel(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    struct coord *coord = arg;
    uint64_t job = find_job(coord, call, ((const Steadfast__V1__JobRef *)in->message)->job);
    if (!job)
        return;
    core_cancel(coord->core, clock_now_ns(), new_request(coord, call, on_cancelled)->id, job);
    coord_drain(coord);
}

static void on_checkpointed(struct coord *coord, struct request *request,
                            const struct core_act *act)
{
    (void)coord;
    Steadfast__V1__CheckpointInfo info = STEADFAST__V1__CHECKPOINT_INFO__INIT;
    info.number = act->number;
    info.step = act->first;
    info.path = (char *)act->text;
    Steadfast__V1__CheckpointReply reply = STEADFAST__V1__CHECKPOINT_REPLY__INIT;
    reply.checkpoint = &info;
    struct rpc_out out = {.message = &reply.base};
    rpc_reply(request->call, &out);
}

static void on_checkpoint(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    struct coord *coord = arg;
    uint64_t job = find_job(coord, call, ((const Steadfast__V1__JobRef *)in->message)->job);
    if (!job)
        return;
    core_checkpoint(coord->core, clock_now_ns(), new_request(coord, call, on_checkpointed)->id,
                    job);
    coord_drain(coord);
}

static void on_cluster(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    struct coord *coord = arg;
    (void)in;
    size_t count = core_member_count(coord->core);
    Steadfast__V1__ClusterStatus status = STEADFAST__V1__CLUSTER_STATUS__INIT;
    Steadfast__V1__MemberStatus *items AUTO_MEM = base_alloc((count + 1) * sizeof(*items));
    Steadfast__V1__MemberStatus **pointers AUTO_MEM = base_alloc((count + 1) * sizeof(*pointers));
    struct core_member_view view;
    for (size_t i = 0; core_member_view(coord->core, clock_now_ns(), i, &view); i++) {
        Steadfast__V1__MemberStatus *member = &items[i];
        const struct conn *conn = coord_fleet_conn(coord, view.conn);
        steadfast__v1__member_status__init(member);
        member->name = (char *)view.name;
        member->role = view.role == CORE_SERVER ? (char *)"ps" : (char *)"worker";
        member->address = (char *)view.address;
        member->state = (char *)view.state;
        member->incarnation = view.incarnation;
        member->session = view.session;
        member->memory_bytes = view.memory_bytes;
        member->in_flight = view.in_flight;
        member->steps_done = view.steps_done;
        member->seconds_silent = (double)view.silent_ns * 1e-9;
        member->held_bytes = view.held_bytes;
        if (conn) {
            member->pid = conn->pid;
            member->devices = conn->devices;
            member->n_devices = conn->device_count;
        }
        pointers[i] = member;
    }
    status.members = pointers;
    status.n_members = count;
    size_t task_count =
        coord->cluster->roles[TASK_PS].count + coord->cluster->roles[TASK_WORKER].count;
    char **missing AUTO_MEM = base_alloc((task_count + 1) * sizeof(*missing));
    for (int role = TASK_PS; role <= TASK_WORKER; role++) {
        for (size_t t = 0; t < coord->cluster->roles[role].count; t++) {
            const struct cluster_task *task = &coord->cluster->roles[role].items[t];
            char *text = base_asprintf("%s:%u", task_role_name((enum task_role)role), task->index);
            bool is_here = false;
            for (size_t i = 0; i < count; i++)
                is_here = is_here || (strcmp(items[i].name, text) == 0 &&
                                      strcmp(items[i].state, "attached") == 0);
            if (!is_here)
                missing[status.n_missing++] = base_asprintf("%s at %s", text, task->address);
            free(text);
        }
    }
    status.missing = missing;
    status.start = coord->start;
    status.version = (char *)STEADFAST_VERSION;
    struct rpc_out out = {.message = &status.base};
    rpc_reply(call, &out);
    for (size_t i = 0; i < status.n_missing; i++)
        free(missing[i]);
}

/* ---- watch
 * ----------------------------------------------------------------------------------------- */

static void on_watch_sent(struct rpc_call *call, bool ok, void *arg)
{
    struct watcher *watcher = arg;
    (void)call;
    (void)ok;
    watcher->is_sending = false;
}

static void on_watch_end(struct rpc_call *call, bool was_cancelled, void *arg)
{
    struct watcher *watcher = arg;
    (void)call;
    (void)was_cancelled;
    watcher->is_over = true; /* taken off the list at the next turn */
}

/* One status at a time per watcher: a slow reader gets fewer, never a queue. */
static void watch_send(struct watcher *watcher, uint64_t now_ns)
{
    struct coord *coord = watcher->coord;
    struct core_job_view view;
    if (!core_job_view(coord->core, now_ns, watcher->job, &view)) {
        rpc_fail(watcher->call, ERR_NOT_FOUND, "the job is no longer known");
        watcher->interval_ns = UINT64_MAX; /* on_watch_end follows */
        watcher->is_due = false;
        return;
    }
    Steadfast__V1__JobStatus status;
    status_fill(&view, &status);
    struct rpc_out out = {.message = &status.base};
    watcher->is_sending = true;
    watcher->is_due = false;
    watcher->sent_ns = now_ns;
    if (rpc_send(watcher->call, &out, on_watch_sent, watcher) != ERR_OK) {
        watcher->is_sending = false;
    } else if (is_over(view.state)) {
        rpc_finish(watcher->call);
        watcher->is_due = false;
        watcher->interval_ns = UINT64_MAX;
    }
    status_done(&status);
}

void coord_api_changed(struct coord *coord, uint64_t job)
{
    for (struct watcher *watcher = coord->watchers; watcher; watcher = watcher->next)
        if (watcher->job == job && watcher->interval_ns != UINT64_MAX)
            watcher->is_due = true;
}

void coord_api_watch_turn(struct coord *coord)
{
    uint64_t now_ns = clock_now_ns();
    for (struct watcher **at = &coord->watchers; *at;) {
        struct watcher *watcher = *at;
        if (watcher->is_over && !watcher->is_sending) {
            *at = watcher->next;
            rpc_call_unref(watcher->call);
            free(watcher);
            continue;
        }
        bool is_time =
            watcher->interval_ns != UINT64_MAX && now_ns - watcher->sent_ns >= watcher->interval_ns;
        if (!watcher->is_over && !watcher->is_sending && (watcher->is_due || is_time))
            watch_send(watcher, now_ns);
        at = &watcher->next;
    }
}

static void on_watch(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    struct coord *coord = arg;
    const Steadfast__V1__WatchRequest *request = (const Steadfast__V1__WatchRequest *)in->message;
    uint64_t job = find_job(coord, call, request->job);
    if (!job)
        return;
    struct watcher *watcher = base_alloc(sizeof(*watcher));
    watcher->coord = coord;
    watcher->call = call;
    watcher->job = job;
    watcher->interval_ns = request->interval_ms
                               ? MAX(request->interval_ms * NS_PER_MS, WATCH_MIN_NS)
                               : WATCH_DEFAULT_NS;
    watcher->next = coord->watchers;
    coord->watchers = watcher;
    rpc_call_ref(call);
    rpc_on_end(call, on_watch_end, watcher);
    watch_send(watcher, clock_now_ns());
}

/* ---- table
 * ----------------------------------------------------------------------------------------- */

void coord_api_add(struct coord *coord)
{
    rpc_server_add_method(coord->server, &coord_method_submit_job, on_submit, coord);
    rpc_server_add_method(coord->server, &coord_method_plan_job, on_plan, coord);
    rpc_server_add_method(coord->server, &coord_method_list_jobs, on_list, coord);
    rpc_server_add_method(coord->server, &coord_method_get_job, on_get, coord);
    rpc_server_add_method(coord->server, &coord_method_watch_job, on_watch, coord);
    rpc_server_add_method(coord->server, &coord_method_cancel_job, on_cancel, coord);
    rpc_server_add_method(coord->server, &coord_method_checkpoint_job, on_checkpoint, coord);
    rpc_server_add_method(coord->server, &coord_method_get_cluster, on_cluster, coord);
}

void coord_api_close_all(struct coord *coord)
{
    struct request *request;
    for (size_t at = 0; (request = map_next(&coord->requests, &at));) {
        rpc_fail(request->call, ERR_UNAVAILABLE, "the coordinator is stopping");
        end_request(request);
    }
    map_done(&coord->requests);
    map_init(&coord->requests);
    for (struct watcher *watcher = coord->watchers; watcher; watcher = watcher->next)
        if (!watcher->is_over && watcher->interval_ns != UINT64_MAX)
            rpc_fail(watcher->call, ERR_UNAVAILABLE, "the coordinator is stopping");
}

void coord_api_free_watchers(struct coord *coord)
{
    while (coord->watchers) {
        struct watcher *next = coord->watchers->next;
        rpc_call_unref(coord->watchers->call);
        free(coord->watchers);
        coord->watchers = next;
    }
}
