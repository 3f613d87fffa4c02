/* SPDX-License-Identifier: Apache-2.0 */
/* sim_client: people. They submit jobs, ask for checkpoints, cancel; and the misfortunes that
 * befall the cluster between its start and its healing. */
#include <string.h>

#include "common/spec/data_order.h"
#include "common/spec/job_spec.h"
#include "tests/sim/sim_int.h"

enum fault {
    FAULT_WORKER_CRASH,
    FAULT_WORKER_FREEZE,
    FAULT_WORKER_LEAVE,
    FAULT_STREAM,
    FAULT_SERVER_CRASH,
    FAULT_SERVER_FREEZE,
    FAULT_COORD_CRASH,
    FAULT_LEDGER,
    FAULT_CKPT_REQUEST,
    FAULT_CANCEL,
    FAULT_COUNT
};

/* ---- jobs ------------------------------------------------------------------------------------ */

static void draw_steps(struct sim *sim, struct sim_job *job)
{
    bool is_troubled = sim->options.profile == SIM_WORKERS || sim->options.profile == SIM_STORM;
    job->poison_step = UINT64_MAX;
    job->fail_step = UINT64_MAX;
    job->max_attempts = (uint32_t)sim_between(sim, 3, 5);
    job->on_error = STEP_ERROR_RETRY;
    if (!is_troubled && sim->options.profile != SIM_KILLS)
        return;
    if (sim_chance(sim, is_troubled ? 150 : 500)) {
        static const uint32_t pushes[] = {0, 0, 1, UINT32_MAX};
        job->poison_step = sim_below(sim, job->steps_total);
        job->poison_pushes = pushes[sim_below(sim, ARRAY_SIZE(pushes))];
    }
    if (!is_troubled)
        return;
    if (sim_chance(sim, 250)) {
        job->fail_step = sim_below(sim, job->steps_total);
        job->fail_times =
            sim_chance(sim, 700) ? (uint32_t)sim_between(sim, 1, job->max_attempts - 1) : 1000;
        job->on_error = (int)sim_below(sim, 3);
    }
}

static void draw_noop(struct sim *sim, struct sim_job *job)
{
    static const char *const policies[] = {"abort", "retry", "skip"};
    job->steps_total = sim_between(sim, 1, 300);
    job->steps_per_epoch = job->steps_total;
    job->epochs = 1;
    draw_steps(sim, job);
    job->spec_json =
        sim_text("{\"name\": \"%s\", \"model\": {\"name\": \"noop\"}, \"max_steps\": %llu, "
                 "\"steps\": {\"max_attempts\": %u, \"on_error\": \"%s\", \"deadline_ms\": 2000}}",
                 job->name, (unsigned long long)job->steps_total, job->max_attempts,
                 policies[job->on_error]);
}

static void draw_training(struct sim *sim, struct sim_job *job)
{
    static const char *const policies[] = {"abort", "retry", "skip"};
    uint32_t batch = (uint32_t)sim_between(sim, 1, 8);
    bool is_long = sim_chance(sim, 10); /* long enough for marks to be pruned on the way */
    bool is_killed = sim->options.profile == SIM_KILLS;
    uint64_t batches = is_long     ? sim_between(sim, 400, 1500)
                       : is_killed ? sim_between(sim, 150, 300)
                                   : sim_between(sim, 1, 40);
    job->records = batches * batch - sim_below(sim, batch);
    uint64_t shuffle = sim_chance(sim, 300) ? 0 : sim_between(sim, 1, job->records + 8);
    job->epochs = is_killed ? 4 : (uint32_t)sim_between(sim, 1, 4);
    struct data_order order;
    uint64_t seed = sim_below(sim, 1000);
    data_order_init(&order, seed, job->records, batch, shuffle);
    job->steps_per_epoch = order.steps_per_epoch;
    job->steps_total = order.steps_per_epoch * job->epochs;
    uint64_t max_steps =
        sim_chance(sim, is_killed ? 0 : 200) ? sim_between(sim, 1, job->steps_total) : 0;
    if (max_steps)
        job->steps_total = max_steps;
    job->slice_count = (uint32_t)sim_between(sim, 1, SIM_SLICES_MAX);
    draw_steps(sim, job);

    const char *eval = "";
    if (sim_chance(sim, is_killed ? 0 : 500)) {
        job->eval_batch = (uint32_t)sim_between(sim, 1, 8);
        job->eval_records = sim_between(sim, 1, 30);
        eval = sim_text(", \"eval_dataset\": {\"source\": \"synthetic\", \"records\": %llu, "
                        "\"batch_size\": %u}",
                        (unsigned long long)job->eval_records, job->eval_batch);
    }
    const char *ckpt = "";
    if (sim_chance(sim, sim->options.profile == SIM_SERVERS ? 850 : 600)) {
        job->ckpt_dir = sim_text("/ckpt/%s", job->name);
        ckpt = sim_text(", \"checkpoint\": {\"directory\": \"%s\", \"every_steps\": %llu, "
                        "\"max_to_keep\": %llu}",
                        job->ckpt_dir, (unsigned long long)sim_below(sim, 40),
                        (unsigned long long)sim_between(sim, 1, 5));
    }
    job->spec_json = sim_text(
        "{\"name\": \"%s\", \"seed\": %llu, \"epochs\": %u, \"max_steps\": %llu, "
        "\"model\": {\"name\": \"softmax\", \"num_classes\": 10}, "
        "\"dataset\": {\"source\": \"synthetic\", \"records\": %llu, \"batch_size\": %u, "
        "\"shuffle_buffer\": %llu}, "
        "\"optimizer\": {\"name\": \"sgd\", \"learning_rate\": 0.1}, "
        "\"steps\": {\"max_attempts\": %u, \"on_error\": \"%s\", \"deadline_ms\": 2000}%s%s}",
        job->name, (unsigned long long)seed, job->epochs, (unsigned long long)max_steps,
        (unsigned long long)job->records, batch, (unsigned long long)shuffle, job->max_attempts,
        policies[job->on_error], eval, ckpt);
}

/* The same job again under another name, to go on from where the first one's checkpoints end. */
static void draw_resume(struct sim_job *job, const struct sim_job *first)
{
    const char *name = job->name;
    *job = *first;
    job->name = name;
    job->is_resume = true;
    const char *rest = strchr(first->spec_json, ',');
    job->spec_json = sim_text("{\"name\": \"%s\"%s", name, rest);
}

void sim_jobs_draw(struct sim *sim)
{
    bool is_killed = sim->options.profile == SIM_KILLS;
    sim->job_count =
        (uint32_t)(sim_chance(sim, is_killed ? 1000 : 600) ? 1 : sim_between(sim, 2, 3));
    for (uint32_t i = 0; i < sim->job_count; i++) {
        struct sim_job *job = &sim->jobs[i];
        job->name = sim_text("job-%u", i);
        if (i && sim->jobs[i - 1].ckpt_dir && sim_chance(sim, 600))
            draw_resume(job, &sim->jobs[i - 1]);
        else if (sim_chance(sim, is_killed ? 0 : 150))
            draw_noop(sim, job);
        else
            draw_training(sim, job);
        job->compute_ns = sim_between(sim, 100, 10000) * NS_PER_US;
        job->sent = sim_alloc(job->steps_total);
        job->left = sim_alloc(job->steps_total);
        job->told = sim_alloc(job->steps_total);
        job->durable_generation = sim_alloc(job->steps_total * sizeof(*job->durable_generation));
    }
}

struct sim_job *sim_job_of(struct sim *sim, uint64_t number)
{
    struct sim_rows *rows = sim_rows_of(&sim->ledger.emitted, number);
    return rows ? rows->job : NULL;
}

/* ---- requests -------------------------------------------------------------------------------- */

static struct sim_request *new_request(struct sim *sim, enum sim_request_kind kind,
                                       struct sim_job *job, uint64_t *ret_number)
{
    if (sim->request_count == SIM_REQUESTS_MAX)
        return NULL;
    struct sim_request *request = &sim->requests[sim->request_count++];
    *request = (struct sim_request){kind, job, sim->core_life, false};
    *ret_number = sim->request_count;
    return request;
}

static struct sim_rows *rows_named(struct sim_tables *tables, const struct sim_job *job)
{
    for (size_t i = 0; i < tables->count; i++)
        if (tables->rows[i].job == job)
            return &tables->rows[i];
    return NULL;
}

static bool has_ended(struct sim *sim, const struct sim_job *job)
{
    struct sim_rows *rows = rows_named(&sim->ledger.emitted, job);
    return rows && rows->has_state && rows->state >= CORE_JOB_SUCCEEDED;
}

/* Submits, and looks again later: a coordinator that died before it answered may know the job or
 * not. */
static void submit(struct sim *sim, const struct sim_event *event)
{
    struct sim_job *job = event->p;
    sim_again(sim, event, sim->now_ns + 300 * NS_PER_MS);
    if (!sim->core || rows_named(&sim->ledger.emitted, job))
        return;
    if (job->is_resume && !has_ended(sim, job - 1))
        return; /* one writer a directory */
    struct err err = {0};
    struct job_spec *spec = NULL;
    if (job_spec_parse(job->spec_json, strlen(job->spec_json), &spec, &err) != ERR_OK)
        sim_fail(sim, "the spec of %s is refused: %s", job->name, err.text);
    uint64_t request = 0;
    if (!new_request(sim, SIM_SUBMIT, job, &request))
        sim_fail(sim, "more than %d requests", SIM_REQUESTS_MAX);
    sim_trace(sim, "submits %s", job->spec_json);
    SIM_CORE(sim, core_submit(sim->core, sim->now_ns, request, spec, job->spec_json, job->records,
                              job->eval_records, job->is_resume, 1000));
}

void sim_request_answered(struct sim *sim, const struct core_act *act)
{
    if (act->request == 0 || act->request > sim->request_count)
        sim_fail(sim, "an answer to request %llu, which nobody made",
                 (unsigned long long)act->request);
    struct sim_request *request = &sim->requests[act->request - 1];
    if (request->is_answered || request->core_life != sim->core_life)
        sim_fail(sim, "request %llu is answered twice", (unsigned long long)act->request);
    request->is_answered = true;
    sim_trace(sim, "request %llu is answered: %s %s", (unsigned long long)act->request,
              err_name(act->code), act->text ? act->text : "");
    if (act->code != ERR_OK)
        return;
    struct sim_rows *rows = rows_named(&sim->ledger.durable, request->job);
    switch (request->kind) {
    case SIM_SUBMIT:
        if (!rows || rows->number != act->job)
            sim_fail(sim, "job %llu is accepted before its record is durable",
                     (unsigned long long)act->job);
        break;
    case SIM_CANCEL:
        if (!rows || !rows->has_state || rows->state < CORE_JOB_SUCCEEDED)
            sim_fail(sim, "the cancelling of job %llu is confirmed before it is durable",
                     (unsigned long long)act->job);
        break;
    case SIM_CHECKPOINT:
        break; /* the folder is there: sim_check_ckpt saw it */
    }
}

static void request_something(struct sim *sim, enum sim_request_kind kind)
{
    struct sim_job *job = &sim->jobs[sim_below(sim, sim->job_count)];
    struct sim_rows *rows = rows_named(&sim->ledger.emitted, job);
    uint64_t request = 0;
    if (!sim->core || !rows || sim->request_count + 20 > SIM_REQUESTS_MAX ||
        !new_request(sim, kind, job, &request))
        return;
    sim_trace(sim, "request %llu of kind %d for job %llu", (unsigned long long)request, (int)kind,
              (unsigned long long)rows->number);
    if (kind == SIM_CANCEL) {
        job->is_cancelled = true;
        SIM_CORE(sim, core_cancel(sim->core, sim->now_ns, request, rows->number));
    } else {
        SIM_CORE(sim, core_checkpoint(sim->core, sim->now_ns, request, rows->number));
    }
}

/* ---- faults ---------------------------------------------------------------------------------- */

void sim_faults_draw(struct sim *sim)
{
    static const uint32_t worker_faults = 1u << FAULT_WORKER_CRASH | 1u << FAULT_WORKER_FREEZE |
                                          1u << FAULT_WORKER_LEAVE | 1u << FAULT_STREAM |
                                          1u << FAULT_CKPT_REQUEST;
    static const uint32_t server_faults = 1u << FAULT_SERVER_CRASH | 1u << FAULT_SERVER_FREEZE |
                                          1u << FAULT_STREAM | 1u << FAULT_CKPT_REQUEST;
    static const uint32_t coord_faults = 1u << FAULT_COORD_CRASH | 1u << FAULT_LEDGER |
                                         1u << FAULT_STREAM | 1u << FAULT_CKPT_REQUEST;
    struct sim_rates *rates = &sim->rates;
    switch (sim->options.profile) {
    case SIM_CALM:
        rates->faults = 1u << FAULT_CKPT_REQUEST;
        break;
    case SIM_WORKERS:
        rates->faults = worker_faults;
        break;
    case SIM_SERVERS:
        rates->faults = server_faults;
        break;
    case SIM_RESTARTS:
        rates->faults = coord_faults;
        break;
    case SIM_KILLS:
        rates->faults = 1u << FAULT_WORKER_CRASH;
        break;
    case SIM_STORM:
    case SIM_PROFILE_COUNT:
        rates->faults = worker_faults | server_faults | coord_faults | 1u << FAULT_CANCEL;
        break;
    }
    uint32_t kept =
        rates->faults & (uint32_t)sim_draw(sim); /* this seed's kinds; none: all of the profile */
    rates->faults = kept ? kept : rates->faults;
    rates->fault_ns = sim_between(sim, 20, 400) * NS_PER_MS;
    sim->heal_ns = sim_between(sim, 300, 4000) * NS_PER_MS;
    if (sim->options.profile == SIM_KILLS) {
        /* A worker lives longer than it takes to come; the job lasts about as long as the kills. */
        rates->fault_ns = sim_between(sim, 60, 400) * NS_PER_MS / sim->worker_count;
        sim->jobs[0].compute_ns = SIM_KILLS_WANTED * rates->fault_ns * sim->worker_count * 3 / 2 /
                                  sim->jobs[0].steps_total;
    }
    if (sim->options.profile == SIM_CALM || sim->options.profile == SIM_KILLS)
        return;
    rates->push_lost = sim_chance(sim, 500) ? (uint32_t)sim_below(sim, 100) : 0;
    rates->answer_lost = sim_chance(sim, 500) ? (uint32_t)sim_below(sim, 100) : 0;
    rates->push_late = sim_chance(sim, 300) ? (uint32_t)sim_below(sim, 60) : 0;
    rates->ckpt_fails = sim_chance(sim, 300) ? (uint32_t)sim_below(sim, 400) : 0;
    rates->slow = sim_chance(sim, 300) ? (uint32_t)sim_below(sim, 200) : 0;
    rates->snapshot_fails = sim_chance(sim, 300) ? (uint32_t)sim_below(sim, 400) : 0;
}

static void freeze(struct sim *sim, struct sim_member *member)
{
    if (!member->is_up || member->frozen_ns > sim->now_ns)
        return;
    uint64_t lease_ms = sim->config.lease_ms;
    uint64_t for_ms = sim_chance(sim, 500) ? sim_between(sim, 5, lease_ms)
                                           : sim_between(sim, lease_ms, 4 * lease_ms);
    sim_trace(sim, "%s freezes for %llu ms", member->name, (unsigned long long)for_ms);
    member->frozen_ns = sim->now_ns + for_ms * NS_PER_MS + 1;
}

static void befall(struct sim *sim, enum fault fault)
{
    struct sim_worker *worker = &sim->workers[sim_below(sim, sim->worker_count)];
    struct sim_server *server = &sim->servers[sim_below(sim, sim->server_count)];
    switch (fault) {
    case FAULT_WORKER_CRASH:
        sim->result.losses += worker->m.is_up;
        sim_member_crash(sim, &worker->m);
        break;
    case FAULT_WORKER_FREEZE:
        freeze(sim, &worker->m);
        break;
    case FAULT_WORKER_LEAVE:
        sim_worker_leave(sim, worker);
        break;
    case FAULT_STREAM:
        if (sim_chance(sim, 500) && server->m.conn)
            sim_conn_break(sim, server->m.conn);
        else if (worker->m.conn)
            sim_conn_break(sim, worker->m.conn);
        break;
    case FAULT_SERVER_CRASH:
        sim->result.losses += server->m.is_up;
        sim_member_crash(sim, &server->m);
        break;
    case FAULT_SERVER_FREEZE:
        freeze(sim, &server->m);
        break;
    case FAULT_COORD_CRASH:
        sim_coord_crash(sim);
        break;
    case FAULT_LEDGER:
        if (sim->ledger.stuck_until_ns <= sim->now_ns)
            sim->ledger.stuck_until_ns = sim->now_ns + sim_between(sim, 10, 1500) * NS_PER_MS;
        break;
    case FAULT_CKPT_REQUEST:
        request_something(sim, SIM_CHECKPOINT);
        break;
    case FAULT_CANCEL:
        if (sim_chance(sim, 100))
            request_something(sim, SIM_CANCEL);
        break;
    case FAULT_COUNT:
        break;
    }
}

/* From here on nothing bad begins any more, except what the jobs bring with them. */
static void heal(struct sim *sim, const struct sim_event *event)
{
    (void)event;
    sim_trace(sim, "the faults end");
    sim->is_healed = true;
    sim->heal_ns = sim->now_ns;
    sim->ledger.stuck_until_ns = 0;
}

/* Whatever a worker of the job is doing, until enough of them were killed. */
static void next_kill(struct sim *sim, const struct sim_event *event)
{
    struct sim_worker *worker = &sim->workers[sim_below(sim, sim->worker_count)];
    if (has_ended(sim, &sim->jobs[0]) || sim->result.kills == SIM_KILLS_WANTED) {
        heal(sim, event);
        return;
    }
    if (worker->m.is_up && rows_named(&sim->ledger.emitted, &sim->jobs[0])) {
        sim->result.kills++;
        sim->result.losses++;
        sim_member_crash(sim, &worker->m);
    }
    sim_again(sim, event, sim->now_ns + sim_below(sim, 2 * sim->rates.fault_ns) + 1);
}

static void next_fault(struct sim *sim, const struct sim_event *event)
{
    if (sim->is_healed)
        return;
    uint32_t fault;
    do {
        fault = (uint32_t)sim_below(sim, FAULT_COUNT);
    } while (!(sim->rates.faults & (1u << fault)));
    befall(sim, (enum fault)fault);
    sim_again(sim, event, sim->now_ns + sim_below(sim, 2 * sim->rates.fault_ns) + 1);
}

void sim_faults_begin(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->job_count; i++)
        sim_at(sim, sim_between(sim, 0, 600) * NS_PER_MS, submit, &sim->jobs[i], NULL, 0, 0);
    bool is_killed = sim->options.profile == SIM_KILLS;
    sim_at(sim, sim_below(sim, 2 * sim->rates.fault_ns), is_killed ? next_kill : next_fault, NULL,
           NULL, 0, 0);
    if (!is_killed)
        sim_at(sim, sim->heal_ns, heal, NULL, NULL, 0, 0);
}
