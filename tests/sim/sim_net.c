/* SPDX-License-Identifier: Apache-2.0 */
/* sim_net: a stream delivers in order, after delays, until it is cut; what is under way then is
 * lost, and each end notices in its own time. */
#include "tests/sim/sim_int.h"

uint64_t sim_net_delay(struct sim *sim)
{
    uint64_t delay = sim->net_ns / 2 + sim_below(sim, sim->net_ns);
    if (sim_chance(sim, 10))
        delay *= sim_between(sim, 2, 40);
    return delay;
}

struct sim_conn *sim_conn_open(struct sim *sim, struct sim_member *member)
{
    struct sim_conn *conn = sim_alloc(sizeof(*conn));
    conn->number = ++sim->next_conn;
    conn->member = member;
    conn->member_life = member->life;
    conn->core_life = sim->core_life;
    if (sim->conn_count == sim->conn_capacity) {
        size_t capacity = MAX(sim->conn_capacity * 2, (size_t)64);
        struct sim_conn **conns = sim_alloc(capacity * sizeof(struct sim_conn *));
        for (size_t i = 0; i < sim->conn_count; i++)
            conns[i] = sim->conns[i];
        sim->conns = conns;
        sim->conn_capacity = capacity;
    }
    if (sim->conn_count == 0)
        sim->first_conn = conn->number;
    sim->conns[sim->conn_count++] = conn;
    return conn;
}

struct sim_conn *sim_conn_of(struct sim *sim, uint64_t number)
{
    if (number < sim->first_conn || number - sim->first_conn >= sim->conn_count)
        return NULL;
    return sim->conns[number - sim->first_conn];
}

static bool loses(struct sim *sim)
{
    return sim->options.bug == SIM_BUG_STREAM_LOSES_MESSAGE && sim_chance(sim, 10);
}

static void deliver_up(struct sim *sim, const struct sim_event *event)
{
    struct sim_conn *conn = event->p;
    if (conn->is_cut || conn->is_gone_at_core || !sim->core || conn->core_life != sim->core_life)
        return;
    sim_coord_message(sim, conn, event->q);
}

void sim_send_up(struct sim *sim, struct sim_conn *conn, const struct sim_msg *msg)
{
    if (conn->is_cut || loses(sim))
        return;
    uint64_t at_ns = sim->now_ns + sim_net_delay(sim);
    conn->up_ns = MAX(conn->up_ns, at_ns) + 1;
    sim_at(sim, conn->up_ns, deliver_up, conn, sim_copy(msg, sizeof(*msg)), 0, 0);
}

static void deliver_down(struct sim *sim, const struct sim_event *event)
{
    struct sim_conn *conn = event->p;
    if (conn->is_cut || !conn->member->is_up || conn->member->life != conn->member_life ||
        conn->member->conn != conn)
        return;
    if (!sim_defer(sim, conn->member, event))
        sim_member_message(sim, conn->member, event->q);
}

void sim_send_down(struct sim *sim, struct sim_conn *conn, const struct sim_msg *msg)
{
    if (conn->is_cut || loses(sim))
        return;
    uint64_t at_ns = sim->now_ns + sim_net_delay(sim);
    conn->down_ns = MAX(conn->down_ns, at_ns) + 1;
    sim_at(sim, conn->down_ns, deliver_down, conn, sim_copy(msg, sizeof(*msg)), 0, 0);
}

static void member_notices(struct sim *sim, const struct sim_event *event)
{
    struct sim_conn *conn = event->p;
    struct sim_member *member = conn->member;
    if (!member->is_up || member->life != conn->member_life || member->conn != conn ||
        sim_defer(sim, member, event))
        return;
    sim_trace(sim, "%s notices that stream %llu is gone", member->name,
              (unsigned long long)conn->number);
    member->conn = NULL;
    member->is_welcomed = false;
    sim_member_dial(sim, member, sim_between(sim, 1, 60) * NS_PER_MS);
}

static void core_notices(struct sim *sim, const struct sim_event *event)
{
    struct sim_conn *conn = event->p;
    if (conn->is_gone_at_core || !sim->core || conn->core_life != sim->core_life)
        return;
    conn->is_gone_at_core = true;
    sim_trace(sim, "coordinator notices that stream %llu is gone",
              (unsigned long long)conn->number);
    SIM_CORE(sim, core_on_conn_lost(sim->core, sim->now_ns, conn->number));
}

void sim_conn_break(struct sim *sim, struct sim_conn *conn)
{
    if (conn->is_cut)
        return;
    conn->is_cut = true;
    uint64_t lease_ns = sim->config.lease_ms * NS_PER_MS;
    /* Usually at once; sometimes the other machine is unplugged and only the lease tells. */
    uint64_t core_ns = sim_chance(sim, 200) ? sim_below(sim, 3 * lease_ns) : sim_net_delay(sim);
    uint64_t member_ns = sim_chance(sim, 200) ? sim_below(sim, 2 * lease_ns) : sim_net_delay(sim);
    sim_at(sim, sim->now_ns + core_ns, core_notices, conn, NULL, 0, 0);
    sim_at(sim, sim->now_ns + member_ns, member_notices, conn, NULL, 0, 0);
}
