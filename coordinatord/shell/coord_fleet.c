/* SPDX-License-Identifier: Apache-2.0 */
/* coord_fleet: the streams of psd and workerd, from attaching to the end. Messages in become events
 * of the core. A member that breaks the protocol is told goodbye; a slow reader loses its stream. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinatord/shell/coord_int.h"
#include "proto/methods.h"

/* Workers may come from anywhere; where variables live is the cluster description's to say, if it
 * says anything. */
static bool is_listed_server(const struct coord *coord, const char *name)
{
    size_t count = coord->cluster->roles[TASK_PS].count;
    for (size_t i = 0; i < count; i++) {
        char listed[32];
        snprintf(listed, sizeof(listed), "ps:%u", coord->cluster->roles[TASK_PS].items[i].index);
        if (strcmp(listed, name) == 0)
            return true;
    }
    return count == 0;
}

static void on_hello(struct conn *conn, const Steadfast__V1__Hello *from)
{
    struct coord *coord = conn->coord;
    bool is_role = from->role == STEADFAST__V1__ROLE__ROLE_WORKER ||
                   from->role == STEADFAST__V1__ROLE__ROLE_PS;
    size_t name_bytes = strlen(from->name);
    if (conn->is_known || !is_role || name_bytes == 0 || name_bytes > LIMIT_NAME_BYTES ||
        strlen(from->address) > LIMIT_ADDRESS_BYTES ||
        from->shard_count > LIMIT_SHARDS_PER_SERVER || from->n_held > LIMIT_HELD ||
        from->n_reports > LIMIT_HELD ||
        (from->role == STEADFAST__V1__ROLE__ROLE_PS && from->shard_count == 0)) {
        coord_conn_end(
            conn, ERR_INVALID,
            "hello: want a role, a name of 1 to 128 bytes, an address and bounded lists");
        return;
    }
    conn->is_known = true;
    conn->name = base_strdup(from->name);
    if (from->ledger && from->ledger != ledger_id(coord->ledger)) {
        /* Its jobs have numbers that ours have too, and are not ours. */
        struct core_act act = {
            .kind = CORE_ACT_GOODBYE,
            .conn = conn->id,
            .code = ERR_STALE,
            .text = "it belongs to another ledger; it has to drop that one's jobs and rejoin"};
        coord_send_goodbye(coord, &act);
        return;
    }
    conn->pid = from->pid;
    conn->devices = base_alloc((from->n_devices + 1) * sizeof(char *));
    for (size_t i = 0; i < from->n_devices; i++)
        conn->devices[conn->device_count++] = base_strdup(from->devices[i]->name);
    if (from->role == STEADFAST__V1__ROLE__ROLE_PS && !is_listed_server(coord, from->name)) {
        struct core_act act = {.kind = CORE_ACT_GOODBYE,
                               .conn = conn->id,
                               .code = ERR_INVALID,
                               .text =
                                   "the coordinator's cluster description lists no such server"};
        coord_send_goodbye(coord, &act);
        return;
    }
    log_info(
        "member.hello",
        "worker=%s address=%s incarnation=%" PRIu64 " session=%" PRIu64 " held=%zu reports=%zu",
        from->name, from->address, from->incarnation, from->session, from->n_held, from->n_reports);
    struct core_step_ref *held = coord_read_refs(from->held, from->n_held);
    struct core_report *reports = coord_read_reports(from->reports, from->n_reports);
    struct core_shard_state *states = coord_read_states(from->shards, from->n_shards, true);
    struct core_hello hello = {
        .role = from->role == STEADFAST__V1__ROLE__ROLE_PS ? CORE_SERVER : CORE_WORKER,
        .name = from->name,
        .address = from->address,
        .incarnation = from->incarnation,
        .session = from->session,
        .shard_count = from->shard_count,
        .memory_bytes = from->memory_bytes,
        .held = held,
        .held_count = from->n_held,
        .reports = reports,
        .report_count = from->n_reports,
        .shards = states,
        .shard_state_count = from->n_shards,
    };
    core_on_hello(coord->core, clock_now_ns(), conn->id, &hello);
    free(held);
    free(reports);
    coord_read_free_states(states, from->n_shards);
}

static void on_order_done(struct conn *conn, const Steadfast__V1__OrderDone *done)
{
    struct coord *coord = conn->coord;
    struct core_shard_state *states = coord_read_states(done->shards, done->n_shards, true);
    enum err_code code = err_from_name(done->code);
    if (code == ERR_OK)
        coord_ckpt_keep_files(coord, done);
    else
        log_warn("order.failed", "server=%s order=%" PRIu64 " code=%s %s", conn->name, done->order,
                 done->code, done->text);
    core_on_order_done(coord->core, clock_now_ns(), conn->id, done->order, code, done->text, states,
                       done->n_shards);
    coord_read_free_states(states, done->n_shards);
}

static void on_leaving(struct conn *conn, const Steadfast__V1__Leaving *leaving)
{
    log_info("member.leaving", "worker=%s returned=%zu reason=\"%s\"", conn->name,
             leaving->n_returned, leaving->reason);
    struct core_step_ref *refs = coord_read_refs(leaving->returned, leaving->n_returned);
    core_on_leaving(conn->coord->core, clock_now_ns(), conn->id, refs, leaving->n_returned);
    free(refs);
}

static void on_member_message(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    struct conn *conn = arg;
    struct coord *coord = conn->coord;
    if (!in) { /* half-closed: it says nothing more; the end of the call follows */
        coord_conn_end(conn, ERR_OK, NULL);
        return;
    }
    if (!conn->call || conn->is_ended)
        return;
    const Steadfast__V1__MemberMessage *message = (const Steadfast__V1__MemberMessage *)in->message;
    uint64_t now_ns = clock_now_ns();
    if (!conn->is_known && message->kind_case != STEADFAST__V1__MEMBER_MESSAGE__KIND_HELLO) {
        coord_conn_end(conn, ERR_INVALID, "the first message of a member is its hello");
        return;
    }
    switch (message->kind_case) {
    case STEADFAST__V1__MEMBER_MESSAGE__KIND_HELLO:
        on_hello(conn, message->hello);
        break;
    case STEADFAST__V1__MEMBER_MESSAGE__KIND_HEARTBEAT: {
        struct core_shard_state *states =
            coord_read_states(message->heartbeat->shards, message->heartbeat->n_shards, false);
        core_on_heartbeat(coord->core, now_ns, conn->id, states, message->heartbeat->n_shards);
        coord_read_free_states(states, message->heartbeat->n_shards);
        for (size_t i = 0; i < message->heartbeat->n_unreachable; i++)
            log_warn("server.unreachable", "worker=%s server=%s %s", conn->name,
                     message->heartbeat->unreachable[i]->server,
                     message->heartbeat->unreachable[i]->text);
        break;
    }
    case STEADFAST__V1__MEMBER_MESSAGE__KIND_REPORTS: {
        struct core_report *reports =
            coord_read_reports(message->reports->reports, message->reports->n_reports);
        core_on_reports(coord->core, now_ns, conn->id, reports, message->reports->n_reports);
        free(reports);
        break;
    }
    case STEADFAST__V1__MEMBER_MESSAGE__KIND_DONE:
        on_order_done(conn, message->done);
        break;
    case STEADFAST__V1__MEMBER_MESSAGE__KIND_LEAVING:
        on_leaving(conn, message->leaving);
        break;
    default: /* a newer member's message: ignored, as protobuf's rules have it */
        break;
    }
    coord_drain(coord);
    if (conn->call && !conn->is_ended)
        rpc_recv(call, on_member_message, conn);
}

static void on_member_end(struct rpc_call *call, bool was_cancelled, void *arg)
{
    struct conn *conn = arg;
    struct coord *coord = conn->coord;
    log_info("member.stream_over", "worker=%s cancelled=%d", conn->name ? conn->name : "?",
             was_cancelled);
    conn->call = NULL;
    map_remove(&coord->conns, conn->id);
    core_on_conn_lost(coord->core, clock_now_ns(), conn->id);
    coord_drain(coord);
    coord_conn_free(conn);
    rpc_call_unref(call);
}

static void on_attach(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    struct coord *coord = arg;
    (void)request;
    if (coord->is_stopping) {
        rpc_fail(call, ERR_UNAVAILABLE, "the coordinator is stopping");
        return;
    }
    struct conn *conn = base_alloc(sizeof(*conn));
    conn->id = ++coord->next_conn;
    conn->coord = coord;
    conn->call = call;
    rpc_call_ref(call);
    map_put(&coord->conns, conn->id, conn);
    rpc_on_end(call, on_member_end, conn);
    rpc_recv(call, on_member_message, conn);
}

void coord_fleet_add(struct coord *coord)
{
    rpc_server_add_method(coord->server, &fleet_method_attach, on_attach, coord);
}
