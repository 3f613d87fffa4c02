/* SPDX-License-Identifier: Apache-2.0 */
/* sim_coord: the shell around the core: feeds it what arrives, carries out what it orders, wakes it
 * in time. */
#include <stdio.h>
#include <string.h>

#include "common/spec/job_spec.h"
#include "tests/sim/sim_int.h"

struct answer { /* of the shell's own work: plans and checkpoint folders */
    struct sim_job *job;
    struct sim_ckpt *ckpt;
    uint64_t number;
    uint64_t generation;
    uint64_t ckpt_number;
    struct sim_plan *plan;
    enum err_code code;
    const char *text;
    uint64_t core_life;
    bool is_done;
    struct answer *next; /* publications under way */
};

static void wake(struct sim *sim, const struct sim_event *event)
{
    if (!sim->core || event->a != sim->core_life)
        return;
    if (sim->timer_ns == event->at_ns)
        sim->timer_ns = UINT64_MAX;
    uint64_t due_ns = core_next_deadline(sim->core);
    if (due_ns <= sim->now_ns) {
        SIM_CORE(sim, core_on_timer(sim->core, sim->now_ns));
        due_ns = core_next_deadline(sim->core);
        sim->spins = due_ns <= sim->now_ns ? sim->spins + 1 : 0;
        if (sim->spins > 20)
            sim_fail(sim, "the timer is due again at once, %u times over", sim->spins);
    }
}

/* The loop's timer; the real one is in ms, so it may come a little late. */
static void arm(struct sim *sim)
{
    uint64_t due_ns = core_next_deadline(sim->core);
    if (due_ns == UINT64_MAX || due_ns >= sim->timer_ns)
        return;
    uint64_t at_ns = MAX(due_ns, sim->now_ns) + sim_below(sim, NS_PER_MS);
    if (at_ns < sim->timer_ns) {
        sim->timer_ns = at_ns;
        sim_at(sim, at_ns, wake, NULL, NULL, sim->core_life, 0);
    }
}

/* ---- plans ----------------------------------------------------------------------------------- */

struct sim_plan *sim_plan_of(struct sim *sim, uint64_t job, uint64_t generation)
{
    for (struct sim_plan *plan = sim->plans; plan; plan = plan->next)
        if (plan->number == job && plan->generation == generation &&
            plan->core_life == sim->core_life)
            return plan;
    return NULL;
}

static void planned(struct sim *sim, const struct sim_event *event)
{
    struct answer *answer = event->p;
    if (!sim->core || answer->core_life != sim->core_life)
        return;
    answer->plan->next = sim->plans;
    sim->plans = answer->plan;
    const struct sim_plan *plan = answer->plan;
    uint32_t slice_counts[SIM_SERVERS_MAX] = {0};
    for (uint32_t s = 0; s < plan->job->slice_count; s++)
        slice_counts[plan->slots[plan->slice_slot[s]].server]++;
    SIM_CORE(sim, core_on_planned(sim->core, sim->now_ns, answer->number, answer->generation,
                                  ERR_OK, "", slice_counts));
}

static uint32_t slot_for(struct sim_plan *plan, uint32_t server, uint32_t shard)
{
    for (uint32_t i = 0; i < plan->slot_count; i++)
        if (plan->slots[i].server == server && plan->slots[i].shard == shard)
            return i;
    plan->slots[plan->slot_count].server = server;
    plan->slots[plan->slot_count].shard = shard;
    return plan->slot_count++;
}

/* Slices go round the shards of all servers, shard by shard; a pure function of the servers. */
static void make_plan(struct sim *sim, const struct core_act *act)
{
    struct sim_job *job = sim_job_of(sim, act->job);
    if (!job)
        sim_fail(sim, "a plan is wanted for job %llu, which nobody submitted",
                 (unsigned long long)act->job);
    if (act->count > sim->server_count)
        sim_fail(sim, "a plan is wanted over %zu of %u servers", act->count, sim->server_count);
    if (act->generation < job->generation)
        sim_fail(sim, "job %llu goes back from generation %llu to %llu",
                 (unsigned long long)act->job, (unsigned long long)job->generation,
                 (unsigned long long)act->generation);
    struct sim_plan *plan = sim_alloc(sizeof(*plan));
    plan->job = job;
    plan->number = act->job;
    plan->generation = act->generation;
    plan->core_life = sim->core_life;
    job->generation = act->generation;
    uint32_t places[SIM_SLOTS_MAX][2];
    uint32_t place_count = 0;
    for (uint32_t shard = 0; shard < SIM_SHARDS_MAX; shard++) {
        for (uint32_t i = 0; i < act->count; i++) {
            if (shard >= act->servers[i].shard_count)
                continue;
            places[place_count][0] = i;
            places[place_count++][1] = shard;
        }
    }
    for (uint32_t i = 0; i < act->count; i++) {
        unsigned index = SIM_SERVERS_MAX;
        if (sscanf(act->servers[i].name, "ps:%u", &index) != 1 || index >= sim->server_count)
            sim_fail(sim, "a plan names server \"%s\"", act->servers[i].name);
        plan->servers[plan->server_count++] = index;
    }
    if (job->slice_count && !place_count)
        sim_fail(sim, "a plan is wanted for variables over no servers");
    for (uint32_t s = 0; s < job->slice_count; s++)
        plan->slice_slot[s] =
            slot_for(plan, places[s % place_count][0], places[s % place_count][1]);

    struct answer *answer = sim_alloc(sizeof(*answer));
    *answer = (struct answer){.number = act->job,
                              .generation = act->generation,
                              .plan = plan,
                              .core_life = sim->core_life};
    sim_at(sim, sim->now_ns + sim_between(sim, 1, 3000) * NS_PER_US, planned, answer, NULL, 0, 0);
}

/* ---- checkpoint folders
 * -------------------------------------------------------------------------- */

static struct sim_job *job_with_dir(struct sim *sim, const struct core_act *act)
{
    struct sim_job *job = sim_job_of(sim, act->job);
    if (!job || !job->ckpt_dir)
        sim_fail(sim, "action %d on checkpoints of job %llu, which has none", (int)act->kind,
                 (unsigned long long)act->job);
    return job;
}

static struct answer *answer_later(struct sim *sim, const struct core_act *act, sim_event_fn *run)
{
    struct answer *answer = sim_alloc(sizeof(*answer));
    *answer = (struct answer){.job = job_with_dir(sim, act),
                              .number = act->job,
                              .ckpt_number = act->number,
                              .generation = act->generation,
                              .core_life = sim->core_life};
    uint64_t took_ns = sim_between(sim, 1, 20) * NS_PER_MS;
    if (!sim->is_healed && sim_chance(sim, sim->rates.slow))
        took_ns += sim_below(sim, 2000) * NS_PER_MS;
    sim->disk_ns = MAX(sim->disk_ns, sim->now_ns) + took_ns; /* one thread: in order */
    sim_at(sim, sim->disk_ns, run, answer, NULL, 0, 0);
    return answer;
}

static void found(struct sim *sim, const struct sim_event *event)
{
    struct answer *answer = event->p;
    if (!sim->core || answer->core_life != sim->core_life)
        return;
    const struct sim_ckpt *newest = NULL;
    for (struct sim_ckpt *ckpt = sim->ckpts; ckpt; ckpt = ckpt->next)
        if (ckpt->is_published && strcmp(ckpt->dir, answer->job->ckpt_dir) == 0 &&
            (!newest || ckpt->number > newest->number))
            newest = ckpt;
    if (!newest || newest->number < answer->ckpt_number) {
        SIM_CORE(sim, core_on_ckpt_found(sim->core, sim->now_ns, answer->number, ERR_NOT_FOUND,
                                         "there is none", NULL, newest ? newest->number : 0, NULL,
                                         NULL));
    } else {
        SIM_CORE(sim, core_on_ckpt_found(sim->core, sim->now_ns, answer->number, ERR_OK, "",
                                         newest->path, newest->number, &newest->acked,
                                         &newest->abandoned));
    }
}

static struct sim_ckpt *find_number(struct sim *sim, const char *dir, uint64_t number,
                                    bool is_published)
{
    for (struct sim_ckpt *ckpt = sim->ckpts; ckpt; ckpt = ckpt->next)
        if (ckpt->number == number && ckpt->is_published == is_published &&
            strcmp(ckpt->dir, dir) == 0)
            return ckpt;
    return NULL;
}

static void begun(struct sim *sim, const struct sim_event *event)
{
    struct answer *answer = event->p;
    if (!sim->core || answer->core_life != sim->core_life)
        return;
    enum err_code code = ERR_OK;
    if (find_number(sim, answer->job->ckpt_dir, answer->ckpt_number, true)) {
        code = ERR_EXISTS;
    } else if (!sim->is_healed && sim_chance(sim, sim->rates.ckpt_fails)) {
        code = ERR_IO;
    } else {
        struct sim_ckpt *ckpt = find_number(sim, answer->job->ckpt_dir, answer->ckpt_number, false);
        if (!ckpt) {
            ckpt = sim_alloc(sizeof(*ckpt));
            ckpt->dir = answer->job->ckpt_dir;
            ckpt->number = answer->ckpt_number;
            ckpt->path = sim_text("%s/ckpt-%llu", ckpt->dir, (unsigned long long)ckpt->number);
            ckpt->next = sim->ckpts;
            sim->ckpts = ckpt;
        }
        ckpt->job = answer->job;
        memset(ckpt->count, 0, sizeof(ckpt->count)); /* a leftover is emptied */
        memset(ckpt->mark, 0, sizeof(ckpt->mark));
    }
    sim_trace(sim, "checkpoint %llu of job %llu begun: %s", (unsigned long long)answer->ckpt_number,
              (unsigned long long)answer->number, err_name(code));
    SIM_CORE(sim, core_on_ckpt_begun(sim->core, sim->now_ns, answer->number, answer->ckpt_number,
                                     code, code == ERR_OK ? "" : "the folder cannot be made"));
}

static enum err_code publish(struct sim *sim, struct sim_ckpt *ckpt)
{
    enum err_code code = ERR_OK;
    if (!sim->is_healed && sim_chance(sim, sim->rates.ckpt_fails))
        code = ERR_IO;
    if (code == ERR_OK && ckpt->is_published)
        sim_fail(sim, "checkpoint %s is published twice", ckpt->path);
    if (code == ERR_OK) {
        sim_check_ckpt(sim, ckpt);
        ckpt->is_published = true;
    }
    sim_trace(sim, "checkpoint %s published: %s", ckpt->path, err_name(code));
    return code;
}

static void published(struct sim *sim, const struct sim_event *event)
{
    struct answer *answer = event->p;
    if (!sim->core || answer->core_life != sim->core_life)
        return;
    answer->is_done = true;
    enum err_code code = publish(sim, answer->ckpt);
    SIM_CORE(sim, core_on_ckpt_published(
                      sim->core, sim->now_ns, answer->number, answer->ckpt_number, code,
                      code == ERR_OK ? "" : "the folder cannot be renamed", answer->ckpt->path));
}

/* The coordinator dies: of the folders about to be renamed some are, and nobody was told. */
static void publish_on_crash(struct sim *sim)
{
    for (struct answer *answer = sim->publishing; answer; answer = answer->next)
        if (!answer->is_done && sim_chance(sim, 500))
            publish(sim, answer->ckpt);
    sim->publishing = NULL;
}

static struct ranges copy_ranges(const struct ranges *set)
{
    return (struct ranges){sim_copy(set->items, set->count * sizeof(*set->items)), set->count,
                           set->count};
}

static void publish_later(struct sim *sim, const struct core_act *act)
{
    struct answer *answer = answer_later(sim, act, published);
    answer->next = sim->publishing;
    sim->publishing = answer;
    answer->ckpt = find_number(sim, answer->job->ckpt_dir, act->number, false);
    struct core_job_view view;
    if (!answer->ckpt || !core_job_view(sim->core, sim->now_ns, act->job, &view))
        sim_fail(sim, "checkpoint %llu of job %llu is to be published and was never begun",
                 (unsigned long long)act->number, (unsigned long long)act->job);
    answer->ckpt->acked = copy_ranges(view.ckpt_acked);
    answer->ckpt->abandoned = copy_ranges(view.abandoned_set);
}

static void aborted(struct sim *sim, const struct sim_event *event)
{
    struct answer *answer = event->p;
    if (!sim->core || answer->core_life != sim->core_life)
        return;
    struct sim_ckpt *ckpt = find_number(sim, answer->job->ckpt_dir, answer->ckpt_number, false);
    for (struct sim_ckpt **at = &sim->ckpts; ckpt && *at; at = &(*at)->next) {
        if (*at == ckpt) {
            *at = ckpt->next;
            break;
        }
    }
}

/* ---- actions --------------------------------------------------------------------------------- */

static void send_act(struct sim *sim, const struct core_act *act, struct sim_msg msg)
{
    struct sim_conn *conn = sim_conn_of(sim, act->conn);
    if (!conn || conn->core_life != sim->core_life)
        sim_fail(sim, "action %d goes to stream %llu, which never was", (int)act->kind,
                 (unsigned long long)act->conn);
    if (conn->is_closed)
        sim_fail(sim, "action %d goes to %s after its stream was ended", (int)act->kind,
                 conn->member->name);
    sim_send_down(sim, conn, &msg);
}

static void reported(struct sim_conn *conn, size_t count)
{
    conn->in_flight -= MIN(conn->in_flight, (uint32_t)count);
}

static void close_stream(struct sim *sim, const struct core_act *act)
{
    struct sim_conn *conn = sim_conn_of(sim, act->conn);
    conn->is_closed = true;
    if (sim_chance(sim, 500))
        conn->is_gone_at_core = true; /* a shell may or may not say that the stream ended */
}

/* Like the shell's, an answer leaves when every record before it is durable. */
static void hold_reply(struct sim *sim, const struct core_act *act)
{
    struct sim_reply *reply = sim_alloc(sizeof(*reply));
    reply->seq = sim->ledger.next_seq;
    reply->act = *act;
    reply->act.text = sim_copy_text(act->text);
    struct sim_reply **at = &sim->replies;
    while (*at)
        at = &(*at)->next;
    *at = reply;
    if (sim_ledger_backlog(sim) == 0)
        sim_coord_written(sim, reply->seq);
}

void sim_coord_written(struct sim *sim, uint64_t seq)
{
    while (sim->replies && sim->replies->seq <= seq) {
        const struct core_act *act = &sim->replies->act;
        sim->replies = sim->replies->next;
        sim_request_answered(sim, act);
    }
}

static void carry_out(struct sim *sim, const struct core_act *act)
{
    struct sim_msg msg = {.job = act->job,
                          .generation = act->generation,
                          .number = act->number,
                          .order = act->order,
                          .act = act->kind,
                          .server_index = act->server_index,
                          .code = act->code,
                          .text = sim_copy_text(act->text),
                          .count = act->count};
    switch (act->kind) {
    case CORE_ACT_WELCOME:
        msg.kind = SIM_DOWN_WELCOME;
        msg.number = act->session;
        send_act(sim, act, msg);
        break;
    case CORE_ACT_GOODBYE:
        msg.kind = SIM_DOWN_GOODBYE;
        send_act(sim, act, msg);
        close_stream(sim, act);
        break;
    case CORE_ACT_HANGUP:
        msg.kind = SIM_DOWN_END;
        send_act(sim, act, msg);
        close_stream(sim, act);
        break;
    case CORE_ACT_TICKETS:
        sim_check_tickets(sim, act);
        msg.kind = SIM_DOWN_TICKETS;
        msg.tickets = sim_copy(act->tickets, act->count * sizeof(*act->tickets));
        send_act(sim, act, msg);
        break;
    case CORE_ACT_ACKS:
        sim_check_acks(sim, act);
        msg.kind = SIM_DOWN_ACKS;
        msg.refs = sim_copy(act->refs, act->count * sizeof(*act->refs));
        send_act(sim, act, msg);
        break;
    case CORE_ACT_REVOKE:
        reported(sim_conn_of(sim, act->conn), act->count);
        msg.kind = SIM_DOWN_REVOKE;
        msg.refs = sim_copy(act->refs, act->count * sizeof(*act->refs));
        send_act(sim, act, msg);
        break;
    case CORE_ACT_OPEN:
        msg.kind = SIM_DOWN_OPEN;
        msg.plan = sim_plan_of(sim, act->job, act->generation);
        if (!msg.plan)
            sim_fail(sim, "job %llu is opened in generation %llu, which was not planned",
                     (unsigned long long)act->job, (unsigned long long)act->generation);
        send_act(sim, act, msg);
        break;
    case CORE_ACT_CLOSE:
        msg.kind = SIM_DOWN_CLOSE;
        send_act(sim, act, msg);
        break;
    case CORE_ACT_CREATE:
        msg.plan = sim_plan_of(sim, act->job, act->generation);
        if (!msg.plan)
            sim_fail(sim, "job %llu is created in generation %llu, which was not planned",
                     (unsigned long long)act->job, (unsigned long long)act->generation);
        msg.kind = SIM_DOWN_ORDER;
        send_act(sim, act, msg);
        break;
    case CORE_ACT_PRUNE:
        sim_check_prune(sim, act);
        msg.kind = SIM_DOWN_ORDER;
        send_act(sim, act, msg);
        break;
    case CORE_ACT_SNAPSHOT:
    case CORE_ACT_PIN:
    case CORE_ACT_UNPIN:
    case CORE_ACT_DROP:
    case CORE_ACT_FENCE:
    case CORE_ACT_MARKS:
        msg.kind = SIM_DOWN_ORDER;
        send_act(sim, act, msg);
        break;
    case CORE_ACT_JOURNAL:
        sim_trace(sim, "record %llu kind %d job %llu first %llu last %llu number %llu %s",
                  (unsigned long long)act->record.seq, (int)act->record.kind,
                  (unsigned long long)act->record.job, (unsigned long long)act->record.first,
                  (unsigned long long)act->record.last, (unsigned long long)act->record.number,
                  act->record.text ? act->record.text : "");
        sim_ledger_post(sim, &act->record);
        sim_check_record(sim, &act->record);
        break;
    case CORE_ACT_PLAN:
        make_plan(sim, act);
        break;
    case CORE_ACT_FIND_CKPT:
        answer_later(sim, act, found);
        break;
    case CORE_ACT_BEGIN_CKPT:
        answer_later(sim, act, begun);
        break;
    case CORE_ACT_PUBLISH_CKPT:
        publish_later(sim, act);
        break;
    case CORE_ACT_ABORT_CKPT:
        answer_later(sim, act, aborted);
        break;
    case CORE_ACT_REPLY:
        hold_reply(sim, act);
        break;
    case CORE_ACT_CHANGED:
        break;
    case CORE_ACT_NOTICE:
        sim_trace(sim, "notice: job %llu: %s", (unsigned long long)act->job, act->text);
        break;
    }
}

void sim_coord_drain(struct sim *sim)
{
    const struct core_act *acts;
    size_t count = core_take_actions(sim->core, &acts);
    for (size_t i = 0; i < count; i++)
        carry_out(sim, &acts[i]);
    if (core_take_actions(sim->core, &acts) != 0)
        sim_fail(sim, "actions come twice");
    arm(sim);
}

/* ---- messages -------------------------------------------------------------------------------- */

void sim_coord_message(struct sim *sim, struct sim_conn *conn, const struct sim_msg *msg)
{
    uint64_t now_ns = sim->now_ns;
    uint64_t number = conn->number;
    switch (msg->kind) {
    case SIM_UP_HELLO:
        conn->in_flight = (uint32_t)msg->hello->held_count;
        SIM_CORE(sim, core_on_hello(sim->core, now_ns, number, msg->hello));
        break;
    case SIM_UP_HEARTBEAT:
        SIM_CORE(sim, core_on_heartbeat(sim->core, now_ns, number, msg->shards, msg->count));
        break;
    case SIM_UP_REPORTS:
        reported(conn, msg->count);
        SIM_CORE(sim, core_on_reports(sim->core, now_ns, number, msg->reports, msg->count));
        break;
    case SIM_UP_ORDER_DONE:
        SIM_CORE(sim, core_on_order_done(sim->core, now_ns, number, msg->order, msg->code,
                                         msg->text, msg->shards, msg->count));
        break;
    case SIM_UP_LEAVING:
        reported(conn, msg->count);
        SIM_CORE(sim, core_on_leaving(sim->core, now_ns, number, msg->refs, msg->count));
        break;
    case SIM_UP_END:
        conn->is_gone_at_core = true;
        SIM_CORE(sim, core_on_conn_lost(sim->core, now_ns, number));
        break;
    default:
        sim_fail(sim, "message %d goes up", (int)msg->kind);
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

void sim_coord_start(struct sim *sim)
{
    sim->core_life++;
    sim->config.start = sim->core_life;
    sim->attempt_capacity = 0;
    sim->timer_ns = UINT64_MAX;
    sim->spins = 0;
    sim->conn_count = 0;
    sim->core = core_new(&sim->config);
    sim_ledger_replay(sim);
    for (uint32_t i = 0; i < sim->job_count; i++)
        sim->jobs[i].generation = 0; /* the plans of an earlier life are gone with it */
    sim_check_started(sim);
    sim_trace(sim, "coordinator starts, number %llu", (unsigned long long)sim->core_life);
    SIM_CORE(sim, core_start(sim->core, sim->now_ns));
}

static void start_again(struct sim *sim, const struct sim_event *event)
{
    if (!sim->core && event->a == sim->core_life)
        sim_coord_start(sim);
}

void sim_coord_crash(struct sim *sim)
{
    if (!sim->core)
        return;
    sim_trace(sim, "coordinator is gone, %zu records with it", sim_ledger_backlog(sim));
    sim->result.restarts++;
    publish_on_crash(sim);
    sim->disk_ns = 0;
    core_free(sim->core);
    sim->core = NULL;
    sim->replies = NULL;
    sim_ledger_crash(sim);
    for (size_t i = 0; i < sim->conn_count; i++)
        sim_conn_break(sim, sim->conns[i]);
    uint64_t away_ms =
        sim_chance(sim, 700) ? sim_between(sim, 5, 200) : sim_between(sim, 200, 2500);
    sim_at(sim, sim->now_ns + away_ms * NS_PER_MS, start_again, NULL, NULL, sim->core_life, 0);
}
