/* SPDX-License-Identifier: Apache-2.0 */
/* sim_member: a process that dials, says hello, beats, is frozen, dies and comes back as a newer
 * one. */
#include "tests/sim/sim_int.h"

/* A frozen process does nothing; what reached it waits and happens when it is woken. */
bool sim_defer(struct sim *sim, const struct sim_member *member, const struct sim_event *event)
{
    if (member->frozen_ns <= sim->now_ns)
        return false;
    sim_again(sim, event, member->frozen_ns);
    return true;
}

static bool is_void(const struct sim_member *member, const struct sim_event *event)
{
    return !member->is_up || member->life != event->a;
}

static void beat(struct sim *sim, const struct sim_event *event)
{
    struct sim_member *member = event->p;
    if (is_void(member, event) || sim_defer(sim, member, event))
        return;
    if (member->conn && member->is_welcomed) {
        struct sim_msg msg = {.kind = SIM_UP_HEARTBEAT};
        if (member->role == CORE_SERVER)
            msg.shards = sim_server_states(sim, CONTAINER_OF(member, struct sim_server, m), 0,
                                           false, &msg.count);
        sim_send_up(sim, member->conn, &msg);
    }
    sim_again(sim, event, sim->now_ns + sim->config.heartbeat_ms * NS_PER_MS);
}

/* Nobody answered the hello: a half-open stream. */
static void hello_over(struct sim *sim, const struct sim_event *event)
{
    struct sim_member *member = event->p;
    if (is_void(member, event) || sim_defer(sim, member, event))
        return;
    if (member->conn == event->q && !member->is_welcomed)
        sim_conn_break(sim, member->conn);
}

static void dial(struct sim *sim, const struct sim_event *event)
{
    struct sim_member *member = event->p;
    if (is_void(member, event) || sim_defer(sim, member, event) || member->conn)
        return;
    if (member->is_leaving) { /* nobody to say goodbye to */
        sim_member_crash(sim, member);
        return;
    }
    if (!sim->core) {
        sim_again(sim, event, sim->now_ns + sim_between(sim, 5, 100) * NS_PER_MS);
        return;
    }
    member->conn = sim_conn_open(sim, member);
    member->is_welcomed = false;
    struct core_hello *hello = sim_alloc(sizeof(*hello));
    *hello = (struct core_hello){
        .role = member->role,
        .name = member->name,
        .address = member->address,
        .incarnation = member->incarnation,
        .session = member->session,
        .memory_bytes = 1 << 30,
    };
    if (member->role == CORE_WORKER)
        sim_worker_hello(sim, CONTAINER_OF(member, struct sim_worker, m), hello);
    else
        sim_server_hello(sim, CONTAINER_OF(member, struct sim_server, m), hello);
    sim_trace(sim,
              "%s dials: stream %llu incarnation %llu session %llx held %zu reports %zu shards %zu",
              member->name, (unsigned long long)member->conn->number,
              (unsigned long long)hello->incarnation, (unsigned long long)hello->session,
              hello->held_count, hello->report_count, hello->shard_state_count);
    struct sim_msg msg = {.kind = SIM_UP_HELLO, .hello = hello};
    sim_send_up(sim, member->conn, &msg);
    sim_at(sim, sim->now_ns + 2 * NS_PER_MS * sim->config.lease_ms, hello_over, member,
           member->conn, member->life, 0);
}

void sim_member_dial(struct sim *sim, struct sim_member *member, uint64_t delay_ns)
{
    sim_at(sim, sim->now_ns + delay_ns, dial, member, NULL, member->life, 0);
}

static void forget(struct sim_member *member)
{
    if (member->role == CORE_WORKER)
        sim_worker_forget(CONTAINER_OF(member, struct sim_worker, m));
    else
        sim_server_forget(CONTAINER_OF(member, struct sim_server, m));
}

static void begin_life(struct sim *sim, struct sim_member *member, uint64_t delay_ns)
{
    forget(member);
    member->is_up = true;
    member->is_leaving = false;
    member->is_welcomed = false;
    member->life++;
    member->incarnation = ++sim->next_incarnation;
    member->session = 0;
    member->conn = NULL;
    sim_member_dial(sim, member, delay_ns);
    sim_at(sim, sim->now_ns + delay_ns + sim_between(sim, 1, 50) * NS_PER_MS, beat, member, NULL,
           member->life, 0);
}

void sim_member_start(struct sim *sim, struct sim_member *member)
{
    if (member->is_up)
        return;
    member->frozen_ns = 0;
    begin_life(sim, member, sim_between(sim, 1, 20) * NS_PER_MS);
    sim_trace(sim, "%s starts as incarnation %llu", member->name,
              (unsigned long long)member->incarnation);
}

void sim_member_rejoin(struct sim *sim, struct sim_member *member, uint64_t delay_ns)
{
    if (member->is_leaving) {
        sim_member_crash(sim, member);
        return;
    }
    begin_life(sim, member, delay_ns);
    sim_trace(sim, "%s rejoins as incarnation %llu", member->name,
              (unsigned long long)member->incarnation);
}

static void come_back(struct sim *sim, const struct sim_event *event)
{
    struct sim_member *member = event->p;
    if (!member->is_up && member->life == event->a)
        sim_member_start(sim, member);
}

/* The process is gone; it is started again after a while (at the healing at the latest). */
void sim_member_crash(struct sim *sim, struct sim_member *member)
{
    if (!member->is_up)
        return;
    sim_trace(sim, "%s is gone", member->name);
    member->is_up = false;
    member->life++;
    if (member->conn)
        sim_conn_break(sim, member->conn);
    member->conn = NULL;
    forget(member);
    bool is_soon = sim->options.profile == SIM_KILLS;
    uint64_t away_ms = is_soon                ? sim_between(sim, 1, 20)
                       : sim_chance(sim, 300) ? sim_between(sim, 1, 50)
                                              : sim_between(sim, 50, 1500);
    sim_at(sim, sim->now_ns + away_ms * NS_PER_MS, come_back, member, NULL, member->life, 0);
}

void sim_member_message(struct sim *sim, struct sim_member *member, const struct sim_msg *msg)
{
    if (msg->kind == SIM_DOWN_WELCOME) {
        member->session = msg->number;
        member->is_welcomed = true;
    } else if (msg->kind == SIM_DOWN_GOODBYE) {
        sim_trace(sim, "%s is told goodbye: %s %s", member->name, err_name(msg->code), msg->text);
        sim_conn_break(sim, member->conn);
        member->conn = NULL;
        sim_member_rejoin(sim, member, sim_between(sim, 1, 50) * NS_PER_MS);
        return;
    } else if (msg->kind == SIM_DOWN_END) {
        sim_conn_break(sim, member->conn); /* whose notice dials again */
        return;
    }
    if (member->role == CORE_WORKER)
        sim_worker_message(sim, CONTAINER_OF(member, struct sim_worker, m), msg);
    else
        sim_server_message(sim, CONTAINER_OF(member, struct sim_server, m), msg);
}
