/* SPDX-License-Identifier: Apache-2.0 */
/* sim_server: slices whose "values" are the count of how often each step went in. Beside the
 * counts, which are the truth that the checks use, a slice has marks, which are what a server
 * knows.
 *
 * Orders change the state when they arrive and are answered later; one that comes again under its
 * number is only answered again. Another CREATE of a generation that is held is answered from what
 * is there, or makes it anew: the contract leaves that open, so a seed draws one of the two.
 */
#include <stdio.h>
#include <string.h>

#include "tests/sim/sim_int.h"

void sim_server_forget(struct sim_server *server)
{
    server->hold_count = 0;
    server->fenced_count = 0;
    server->answer_count = 0;
}

struct sim_hold *sim_hold_of(struct sim_server *server, uint64_t job)
{
    for (size_t i = 0; i < server->hold_count; i++)
        if (server->holds[i].number == job)
            return &server->holds[i];
    return NULL;
}

/* ---- what a server says of itself ------------------------------------------------------------ */

static uint32_t shard_of(const struct sim_hold *hold, uint32_t slice)
{
    return hold->plan->slots[hold->plan->slice_slot[slice]].shard;
}

static bool is_marked(const struct sim_hold *hold, uint32_t slice, uint64_t step)
{
    return step < hold->watermark[slice] || hold->slices[slice].mark[step];
}

/* Steps marked in every slice of the shard. */
static void read_marks(const struct sim_hold *hold, uint32_t shard, struct ranges *ret_marks)
{
    uint64_t total = hold->job->steps_total;
    struct range *items = sim_alloc((total / 2 + 1) * sizeof(*items));
    size_t count = 0;
    for (uint64_t step = 0; step < total; step++) {
        bool is_in = true;
        for (uint32_t s = 0; s < hold->job->slice_count && is_in; s++)
            if (hold->has[s] && shard_of(hold, s) == shard)
                is_in = is_marked(hold, s, step);
        if (is_in && count && items[count - 1].last + 1 == step)
            items[count - 1].last = step;
        else if (is_in)
            items[count++] = (struct range){step, step};
    }
    *ret_marks = (struct ranges){items, count, count};
}

static bool describe(const struct sim_hold *hold, uint32_t shard, bool has_marks,
                     struct core_shard_state *ret_state)
{
    struct core_shard_state state = {
        .job = hold->number,
        .generation = hold->generation,
        .shard = shard,
        .version = hold->version[shard],
        .duplicates_refused = hold->duplicates[shard],
        .fenced = hold->fenced[shard],
        .has_marks = has_marks,
    };
    bool is_used = false;
    for (uint32_t s = 0; s < hold->job->slice_count; s++) {
        if (!hold->has[s] || shard_of(hold, s) != shard)
            continue;
        is_used = true;
        state.bytes += 4096;
        state.applied = MAX(state.applied, hold->slices[s].applied);
        if (has_marks) {
            uint64_t marked = 0;
            for (uint64_t step = 0; step < hold->job->steps_total; step++)
                marked += is_marked(hold, s, step);
            if (hold->slices[s].applied > marked)
                state.repeated_applies += hold->slices[s].applied - marked;
        }
    }
    if (is_used && has_marks)
        read_marks(hold, shard, &state.marks);
    *ret_state = state;
    return is_used;
}

/* job 0: of all jobs. */
const struct core_shard_state *sim_server_states(struct sim *sim, struct sim_server *server,
                                                 uint64_t job, bool has_marks, size_t *ret_count)
{
    (void)sim;
    struct core_shard_state *states =
        sim_alloc((server->hold_count * SIM_SHARDS_MAX + 1) * sizeof(*states));
    size_t count = 0;
    for (size_t h = 0; h < server->hold_count; h++)
        if (job == 0 || server->holds[h].number == job)
            for (uint32_t shard = 0; shard < server->shard_count; shard++)
                count += describe(&server->holds[h], shard, has_marks, &states[count]);
    *ret_count = count;
    return states;
}

void sim_server_hello(struct sim *sim, struct sim_server *server, struct core_hello *hello)
{
    hello->shard_count = server->shard_count;
    hello->shards = sim_server_states(sim, server, 0, false, &hello->shard_state_count);
}

/* ---- pushes ---------------------------------------------------------------------------------- */

static void apply(struct sim *sim, struct sim_hold *hold, uint32_t slice, uint64_t step)
{
    struct sim_slice *values = &hold->slices[slice];
    if (sim->options.bug == SIM_BUG_SERVER_LOSES_UPDATE && sim_chance(sim, 10)) {
        values->mark[step] = 1;
        return;
    }
    values->count[step]++;
    values->applied++;
    if (!(sim->options.bug == SIM_BUG_SERVER_FORGETS_MARKS && sim_chance(sim, 100)))
        values->mark[step] = 1;
    if (values->count[step] > 1)
        sim_fail(sim, "step %llu of job %llu is in slice %u %u times", (unsigned long long)step,
                 (unsigned long long)hold->number, slice, values->count[step]);
}

static enum err_code take_push(struct sim *sim, struct sim_server *server,
                               const struct sim_attempt *attempt, uint32_t slot, uint64_t session,
                               bool *ret_is_duplicate)
{
    const struct core_ticket *ticket = &attempt->ticket;
    struct sim_hold *hold = sim_hold_of(server, ticket->ref.job);
    if (!hold)
        return ERR_UNAVAILABLE; /* empty, or not placed yet: the coordinator knows more */
    uint32_t shard = attempt->plan->slots[slot].shard;
    bool is_fenced = hold->generation != ticket->generation;
    for (size_t i = 0; i < server->fenced_count; i++)
        is_fenced = is_fenced || server->fenced[i] == session;
    if (is_fenced) {
        hold->fenced[shard]++;
        return ERR_STALE;
    }
    bool is_new = false;
    for (uint32_t s = 0; s < hold->job->slice_count; s++) {
        if (!hold->has[s] || shard_of(hold, s) != shard || is_marked(hold, s, ticket->ref.step))
            continue;
        apply(sim, hold, s, ticket->ref.step);
        is_new = true;
    }
    hold->version[shard] += is_new;
    hold->duplicates[shard] += !is_new;
    sim->result.duplicates += !is_new;
    *ret_is_duplicate = !is_new;
    return ERR_OK;
}

struct answer {
    struct sim_attempt *attempt;
    uint32_t slot;
    uint32_t try;
    enum err_code code;
    bool is_duplicate;
};

static void answer_arrives(struct sim *sim, const struct sim_event *event)
{
    struct answer *answer = event->p;
    struct sim_worker *worker = answer->attempt->worker;
    if (worker->m.is_up && sim_defer(sim, &worker->m, event))
        return;
    sim_worker_push_answer(sim, answer->attempt, answer->slot, answer->try, answer->code,
                           answer->is_duplicate);
}

void sim_server_push(struct sim *sim, struct sim_server *server, uint64_t server_life,
                     struct sim_attempt *attempt, uint32_t slot, uint32_t try, uint64_t session)
{
    if (!server->m.is_up || server->m.life != server_life)
        return; /* the process that it was sent to is gone */
    struct answer *answer = sim_alloc(sizeof(*answer));
    *answer = (struct answer){.attempt = attempt, .slot = slot, .try = try};
    answer->code = take_push(sim, server, attempt, slot, session, &answer->is_duplicate);
    sim_trace(sim, "%s shard %u: push of step %llu job %llu generation %llu from %s: %s%s",
              server->m.name, attempt->plan->slots[slot].shard,
              (unsigned long long)attempt->ticket.ref.step,
              (unsigned long long)attempt->ticket.ref.job,
              (unsigned long long)attempt->ticket.generation, attempt->worker->m.name,
              err_name(answer->code), answer->is_duplicate ? " done before" : "");
    if (sim->is_healed || !sim_chance(sim, sim->rates.answer_lost))
        sim_at(sim, sim->now_ns + sim_net_delay(sim), answer_arrives, answer, NULL, 0, 0);
}

bool sim_server_has_pin(struct sim *sim, const struct sim_plan *plan, uint64_t pin)
{
    for (uint32_t i = 0; i < plan->slot_count; i++) {
        struct sim_server *server = &sim->servers[plan->servers[plan->slots[i].server]];
        struct sim_hold *hold = server->m.is_up ? sim_hold_of(server, plan->number) : NULL;
        if (!hold || hold->generation != plan->generation)
            return false;
        bool has_it = false;
        for (size_t p = 0; p < hold->pin_count; p++)
            has_it = has_it || hold->pins[p] == pin;
        if (!has_it)
            return false;
    }
    return true;
}

/* ---- orders ---------------------------------------------------------------------------------- */

static struct sim_ckpt *find_path(struct sim *sim, const char *path)
{
    for (struct sim_ckpt *ckpt = sim->ckpts; ckpt; ckpt = ckpt->next)
        if (ckpt->is_published && strcmp(ckpt->path, path) == 0)
            return ckpt;
    return NULL;
}

static void make_slices(struct sim *sim, struct sim_hold *hold, const struct sim_ckpt *ckpt)
{
    uint64_t total = hold->job->steps_total;
    for (uint32_t s = 0; s < hold->job->slice_count; s++) {
        hold->has[s] = hold->plan->slots[hold->plan->slice_slot[s]].server == hold->server_index;
        if (!hold->has[s])
            continue;
        struct sim_slice *slice = &hold->slices[s];
        if (!ckpt) {
            *slice = (struct sim_slice){sim_alloc(total), sim_alloc(total), 0};
            continue;
        }
        slice->count = sim_copy(ckpt->count[s], total);
        slice->mark = sim->options.bug == SIM_BUG_CKPT_WITHOUT_MARKS
                          ? sim_alloc(total)
                          : sim_copy(ckpt->mark[s], total);
        hold->watermark[s] =
            sim->options.bug == SIM_BUG_CKPT_WITHOUT_MARKS ? 0 : ckpt->watermark[s];
        slice->applied = 0;
        for (uint64_t step = 0; step < total; step++)
            slice->applied += slice->count[step];
    }
}

static enum err_code create(struct sim *sim, struct sim_server *server, const struct sim_msg *msg)
{
    struct sim_hold *hold = sim_hold_of(server, msg->job);
    if (hold && hold->generation > msg->generation)
        return ERR_STALE;
    if (hold && hold->generation == msg->generation && !sim->is_recreated_at_same_generation)
        return ERR_OK;
    const struct sim_ckpt *ckpt = NULL;
    if (msg->text) {
        ckpt = find_path(sim, msg->text);
        if (!ckpt)
            sim_fail(sim, "%s is to restore job %llu from %s, which was never published",
                     server->m.name, (unsigned long long)msg->job, msg->text);
        sim->result.restores++;
        msg->plan->job->was_restored = true;
    }
    if (!hold) {
        if (server->hold_count == ARRAY_SIZE(server->holds))
            sim_fail(sim, "%s holds %zu jobs and gets one more", server->m.name,
                     server->hold_count);
        hold = &server->holds[server->hold_count++];
    }
    *hold = (struct sim_hold){
        .number = msg->job,
        .generation = msg->generation,
        .job = msg->plan->job,
        .plan = msg->plan,
        .server_index = msg->server_index,
    };
    make_slices(sim, hold, ckpt);
    sim_check_restored(sim, hold);
    return ERR_OK;
}

static enum err_code snapshot(struct sim *sim, struct sim_hold *hold, uint64_t number)
{
    if (!sim->is_healed && sim_chance(sim, sim->rates.snapshot_fails))
        return ERR_IO;
    for (struct sim_ckpt *ckpt = sim->ckpts; ckpt; ckpt = ckpt->next) {
        if (ckpt->job != hold->job || ckpt->number != number || ckpt->is_published)
            continue;
        for (uint32_t s = 0; s < hold->job->slice_count; s++) {
            if (!hold->has[s])
                continue;
            ckpt->count[s] = sim_copy(hold->slices[s].count, hold->job->steps_total);
            ckpt->mark[s] = sim_copy(hold->slices[s].mark, hold->job->steps_total);
            ckpt->watermark[s] = hold->watermark[s];
            if (sim->options.bug == SIM_BUG_CKPT_LOSES_UPDATE)
                ckpt->count[s][sim_below(sim, hold->job->steps_total)] = 0;
        }
        return ERR_OK;
    }
    return ERR_IO; /* the directory is gone */
}

static enum err_code pin(struct sim_hold *hold, uint64_t number)
{
    for (size_t i = 0; i < hold->pin_count; i++)
        if (hold->pins[i] == number)
            return ERR_OK;
    if (hold->pin_count == SIM_PINS_MAX)
        return ERR_FULL;
    hold->pins[hold->pin_count++] = number;
    return ERR_OK;
}

static void unpin(struct sim_hold *hold, uint64_t number)
{
    for (size_t i = 0; i < hold->pin_count; i++)
        if (hold->pins[i] == number)
            hold->pins[i--] = hold->pins[--hold->pin_count];
}

static void drop(struct sim_server *server, uint64_t job)
{
    struct sim_hold *hold = sim_hold_of(server, job);
    if (!hold)
        return;
    size_t after = (size_t)(server->holds + server->hold_count - hold) - 1;
    memmove(hold, hold + 1, after * sizeof(*hold));
    server->hold_count--;
}

static void fence(struct sim_server *server, uint64_t session)
{
    if (server->fenced_count == ARRAY_SIZE(server->fenced)) {
        memmove(server->fenced, server->fenced + 1,
                sizeof(server->fenced) - sizeof(server->fenced[0]));
        server->fenced_count--;
    }
    server->fenced[server->fenced_count++] = session;
}

static enum err_code carry_out(struct sim *sim, struct sim_server *server,
                               const struct sim_msg *msg)
{
    switch (msg->act) {
    case CORE_ACT_CREATE:
        return create(sim, server, msg);
    case CORE_ACT_DROP:
        drop(server, msg->job);
        return ERR_OK;
    case CORE_ACT_FENCE:
        fence(server, msg->number);
        return ERR_OK;
    default:
        break;
    }
    struct sim_hold *hold = sim_hold_of(server, msg->job);
    if (!hold)
        return ERR_NOT_FOUND;
    if (msg->act == CORE_ACT_UNPIN) {
        unpin(hold, msg->number);
        return ERR_OK;
    }
    if (hold->generation != msg->generation)
        return ERR_STALE;
    switch (msg->act) {
    case CORE_ACT_SNAPSHOT:
        return snapshot(sim, hold, msg->number);
    case CORE_ACT_PRUNE:
        for (uint32_t s = 0; s < hold->job->slice_count; s++)
            hold->watermark[s] = MAX(hold->watermark[s], msg->number);
        return ERR_OK;
    case CORE_ACT_PIN:
        return pin(hold, msg->number);
    case CORE_ACT_MARKS:
        return ERR_OK;
    default:
        sim_fail(sim, "%s got order %d, which is none", server->m.name, (int)msg->act);
    }
}

struct sim_order_done {
    struct sim_server *server;
    uint64_t life;
    bool is_over;
    struct sim_msg msg;
};

static void order_done(struct sim *sim, const struct sim_event *event)
{
    struct sim_order_done *done = event->p;
    struct sim_member *member = &done->server->m;
    if (!member->is_up || member->life != done->life || sim_defer(sim, member, event))
        return;
    done->is_over = true;
    if (member->conn && member->is_welcomed)
        sim_send_up(sim, member->conn, &done->msg); /* else it is lost; the order comes again */
}

/* The same order again: it is answered, or will be, and not carried out twice. */
static bool is_known(struct sim *sim, struct sim_server *server, uint64_t order)
{
    size_t count = MIN(server->answer_count, (size_t)SIM_ANSWERS_MAX);
    for (size_t i = 0; i < count; i++) {
        struct sim_order_done *done = server->answers[i];
        if (done->msg.order != order)
            continue;
        if (done->is_over)
            sim_at(sim, sim->now_ns, order_done, done, NULL, 0, 0);
        return true;
    }
    return false;
}

void sim_server_message(struct sim *sim, struct sim_server *server, const struct sim_msg *msg)
{
    if (msg->kind == SIM_DOWN_WELCOME)
        return;
    if (msg->kind != SIM_DOWN_ORDER)
        sim_fail(sim, "%s got message %d, which is not for a server", server->m.name,
                 (int)msg->kind);
    if (is_known(sim, server, msg->order))
        return;
    struct sim_order_done *done = sim_alloc(sizeof(*done));
    *done = (struct sim_order_done){
        .server = server,
        .life = server->m.life,
        .msg = {.kind = SIM_UP_ORDER_DONE, .order = msg->order, .text = ""}};
    server->answers[server->answer_count++ % SIM_ANSWERS_MAX] = done;
    done->msg.code = carry_out(sim, server, msg);
    if (done->msg.code == ERR_OK && (msg->act == CORE_ACT_MARKS || msg->act == CORE_ACT_CREATE))
        done->msg.shards =
            sim_server_states(sim, server, msg->job, msg->act == CORE_ACT_MARKS, &done->msg.count);
    sim_trace(sim, "%s order %llx kind %d job %llu generation %llu number %llx %s: %s",
              server->m.name, (unsigned long long)msg->order, (int)msg->act,
              (unsigned long long)msg->job, (unsigned long long)msg->generation,
              (unsigned long long)msg->number, msg->text ? msg->text : "",
              err_name(done->msg.code));
    bool is_slow = msg->act == CORE_ACT_SNAPSHOT || msg->act == CORE_ACT_CREATE;
    uint64_t took_ns =
        is_slow ? sim_between(sim, 1, 60) * NS_PER_MS : sim_below(sim, 500) * NS_PER_US;
    if (!sim->is_healed && sim_chance(sim, sim->rates.slow)) {
        /* Past the order's deadline too, save for the making: a job may end for that. */
        uint64_t most_ms = msg->act == CORE_ACT_CREATE ? 800 : 2 * sim->config.order_deadline_ms;
        took_ns += sim_below(sim, most_ms) * NS_PER_MS;
        struct sim_hold *hold = sim_hold_of(server, msg->job);
        if (msg->act == CORE_ACT_PIN && hold)
            hold->job->may_miss_evals = true;
    }
    sim_at(sim, sim->now_ns + took_ns, order_done, done, NULL, 0, 0);
}
