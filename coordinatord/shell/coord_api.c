/* SPDX-License-Identifier: Apache-2.0 */
/* coord_api: the public service. Each handler checks what a client sent and calls into the core;
 * answers that depend on the core come back through a request number. */
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/daemon/flags.h"
#include "coordinatord/shell/coord_int.h"
#include "proto/methods.h"

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
        coord_status_fill(&view, &items[list.n_jobs]);
        pointers[list.n_jobs] = &items[list.n_jobs];
        list.n_jobs++;
    }
    struct rpc_out out = {.message = &list.base};
    rpc_reply(call, &out);
    for (size_t i = 0; i < list.n_jobs; i++)
        coord_status_done(&items[i]);
}

static void on_get(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    struct coord *coord = arg;
    uint64_t job =
        coord_request_job(coord, call, ((const Steadfast__V1__JobRef *)in->message)->job);
    if (job)
        coord_status_reply(coord, call, job);
}

static void on_cancelled(struct coord *coord, struct rpc_call *call, const struct core_act *act)
{
    coord_status_reply(coord, call, act->job);
}

static void on_cancel(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    struct coord *coord = arg;
    uint64_t job =
        coord_request_job(coord, call, ((const Steadfast__V1__JobRef *)in->message)->job);
    if (!job || coord_request_refused(coord, call))
        return;
    core_cancel(coord->core, clock_now_ns(), coord_request_new(coord, call, on_cancelled), job);
    coord_drain(coord);
}

static void on_checkpointed(struct coord *coord, struct rpc_call *call, const struct core_act *act)
{
    (void)coord;
    Steadfast__V1__CheckpointInfo info = STEADFAST__V1__CHECKPOINT_INFO__INIT;
    info.number = act->number;
    info.step = act->first;
    info.path = (char *)act->text;
    Steadfast__V1__CheckpointReply reply = STEADFAST__V1__CHECKPOINT_REPLY__INIT;
    reply.checkpoint = &info;
    struct rpc_out out = {.message = &reply.base};
    rpc_reply(call, &out);
}

static void on_checkpoint(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    struct coord *coord = arg;
    uint64_t job =
        coord_request_job(coord, call, ((const Steadfast__V1__JobRef *)in->message)->job);
    if (!job || coord_request_refused(coord, call))
        return;
    core_checkpoint(coord->core, clock_now_ns(), coord_request_new(coord, call, on_checkpointed),
                    job);
    coord_drain(coord);
}

static void fill_member(struct coord *coord, const struct core_member_view *view,
                        Steadfast__V1__MemberStatus *member)
{
    const struct conn *conn = coord_conn_of(coord, view->conn);
    steadfast__v1__member_status__init(member);
    member->name = (char *)view->name;
    member->role = view->role == CORE_SERVER ? (char *)"ps" : (char *)"worker";
    member->address = (char *)view->address;
    member->state = (char *)view->state;
    member->incarnation = view->incarnation;
    member->session = view->session;
    member->memory_bytes = view->memory_bytes;
    member->in_flight = view->in_flight;
    member->steps_done = view->steps_done;
    member->seconds_silent = (double)view->silent_ns * 1e-9;
    member->held_bytes = view->held_bytes;
    if (conn) {
        member->pid = conn->pid;
        member->devices = conn->devices;
        member->n_devices = conn->device_count;
    }
}

/* Tasks of the cluster description that are not attached; the texts are the caller's. */
static void add_missing(struct coord *coord, const Steadfast__V1__MemberStatus *members,
                        Steadfast__V1__ClusterStatus *status)
{
    for (int role = TASK_PS; role <= TASK_WORKER; role++) {
        for (size_t t = 0; t < coord->cluster->roles[role].count; t++) {
            const struct cluster_task *task = &coord->cluster->roles[role].items[t];
            char *text AUTO_MEM =
                base_asprintf("%s:%u", task_role_name((enum task_role)role), task->index);
            bool is_here = false;
            for (size_t i = 0; i < status->n_members; i++)
                is_here = is_here || (strcmp(members[i].name, text) == 0 &&
                                      strcmp(members[i].state, "attached") == 0);
            if (!is_here)
                status->missing[status->n_missing++] =
                    base_asprintf("%s at %s", text, task->address);
        }
    }
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
        fill_member(coord, &view, &items[i]);
        pointers[i] = &items[i];
    }
    status.members = pointers;
    status.n_members = count;
    size_t task_count =
        coord->cluster->roles[TASK_PS].count + coord->cluster->roles[TASK_WORKER].count;
    char **missing AUTO_MEM = base_alloc((task_count + 1) * sizeof(*missing));
    status.missing = missing;
    add_missing(coord, items, &status);
    status.start = coord->start;
    status.version = (char *)STEADFAST_VERSION;
    struct rpc_out out = {.message = &status.base};
    rpc_reply(call, &out);
    for (size_t i = 0; i < status.n_missing; i++)
        free(missing[i]);
}

void coord_api_add(struct coord *coord)
{
    rpc_server_add_method(coord->server, &coord_method_submit_job, coord_submit_on_submit, coord);
    rpc_server_add_method(coord->server, &coord_method_plan_job, coord_submit_on_plan, coord);
    rpc_server_add_method(coord->server, &coord_method_list_jobs, on_list, coord);
    rpc_server_add_method(coord->server, &coord_method_get_job, on_get, coord);
    rpc_server_add_method(coord->server, &coord_method_watch_job, coord_watch_on_call, coord);
    rpc_server_add_method(coord->server, &coord_method_cancel_job, on_cancel, coord);
    rpc_server_add_method(coord->server, &coord_method_checkpoint_job, on_checkpoint, coord);
    rpc_server_add_method(coord->server, &coord_method_get_cluster, on_cluster, coord);
}
