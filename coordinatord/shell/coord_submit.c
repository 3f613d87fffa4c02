/* SPDX-License-Identifier: Apache-2.0 */
/* coord_submit: a job is checked, its data looked at on the disk thread, and then it is planned for
 * the one who asked or handed to the core. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/spec/data_order.h"
#include "coordinatord/plan/plan.h"
#include "coordinatord/shell/coord_int.h"

struct submission { /* between the handler and the probe's answer */
    struct rpc_call *call;
    bool is_resume;
    bool is_plan;
};

static void on_submitted(struct coord *coord, struct rpc_call *call, const struct core_act *act)
{
    Steadfast__V1__SubmitReply reply = STEADFAST__V1__SUBMIT_REPLY__INIT;
    (void)coord;
    reply.job = act->job;
    reply.name = (char *)act->text;
    struct rpc_out out = {.message = &reply.base};
    rpc_reply(call, &out);
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

struct server_list {
    struct core_server_ref items[LIMIT_SERVERS];
    char names[LIMIT_SERVERS][24];
    size_t count;
};

/* The servers that are attached or, when some are missing, those of the cluster description. */
static void list_servers(struct coord *coord, struct server_list *list)
{
    struct core_member_view member;
    list->count = 0;
    for (size_t i = 0;
         list->count < LIMIT_SERVERS && core_member_view(coord->core, clock_now_ns(), i, &member);
         i++)
        if (member.role == CORE_SERVER && member.conn != CORE_NO_CONN)
            list->items[list->count++] =
                (struct core_server_ref){member.conn, member.name, member.address,
                                         MAX(member.shard_count, 1u), member.memory_bytes};
    size_t described = coord->cluster->roles[TASK_PS].count;
    if (list->count < described) {
        list->count = MIN(described, (size_t)LIMIT_SERVERS);
        for (size_t i = 0; i < list->count; i++) {
            const struct cluster_task *task = &coord->cluster->roles[TASK_PS].items[i];
            snprintf(list->names[i], sizeof(list->names[i]), "ps:%u", task->index);
            list->items[i] =
                (struct core_server_ref){CORE_NO_CONN, list->names[i], task->address, 1, 0};
        }
    }
    qsort(list->items, list->count, sizeof(*list->items), compare_servers);
}

static void reply_plan(struct coord *coord, struct rpc_call *call, const struct job_spec *spec,
                       const struct data_facts *facts)
{
    struct server_list servers;
    list_servers(coord, &servers);
    Steadfast__V1__PlanReply reply = STEADFAST__V1__PLAN_REPLY__INIT;
    struct coord_plan_facts plan_facts = {0};
    struct err err = {0};
    Steadfast__V1__Plan *plan = NULL;
    uint32_t shard_count = 0;
    if (coord_plan_make(spec, facts, servers.items, servers.count, &plan, &shard_count, &plan_facts,
                        &err) != ERR_OK) {
        rpc_fail(call, err.code, err.text);
        return;
    }
    log_debug("job.planned", "job=%s servers=%zu", spec->name, servers.count);
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
    reply.shards_per_server = servers.count ? servers.items[0].shard_count : 0;
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
        uint64_t request = coord_request_new(coord, submission->call, on_submitted);
        log_info("job.submitted", "job=%s model=%s records=%" PRIu64, spec->name, spec->model.name,
                 facts->records);
        char *name AUTO_MEM = base_strdup(spec->name);
        core_submit(coord->core, clock_now_ns(), request, TAKE(spec), json, facts->records,
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
    if (!is_plan && coord_request_refused(coord, call))
        return;
    if (job_spec_parse(request->spec_json, bytes, &spec, &err) != ERR_OK) {
        rpc_fail(call, err.code, err.text);
        return;
    }
    struct submission *submission = base_alloc(sizeof(*submission));
    *submission = (struct submission){call, request->resume, is_plan};
    rpc_call_ref(call);
    coord_probe(coord, spec, base_strdup(request->spec_json), !is_plan, 0, on_probed, submission);
}

void coord_submit_on_submit(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    submit_or_plan(arg, call, in, false);
}

void coord_submit_on_plan(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    submit_or_plan(arg, call, in, true);
}
