/* SPDX-License-Identifier: Apache-2.0 */
/* coord_fleet: the streams of psd and workerd. Messages in become events of the core, actions of
 * the core become messages out. A member that breaks the protocol is told goodbye; a slow reader
 * loses its stream. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinatord/shell/coord_int.h"
#include "proto/methods.h"

const struct conn *coord_fleet_conn(const struct coord *coord, uint64_t id)
{
    return map_get(&coord->conns, id);
}

static void conn_free(struct conn *conn)
{
    for (size_t i = 0; i < conn->device_count; i++)
        free(conn->devices[i]);
    free(conn->devices);
    free(conn->name);
    free(conn);
}

/* ---- out ---------------------------------------------------------------------------------------
 */

/* A call is ended once: by us for the first reason there is, or by the member. ERR_OK finishes it. */
static void end_conn(struct conn *conn, enum err_code code, const char *text)
{
    if (!conn->call || conn->is_ended)
        return;
    conn->is_ended = true;
    if (code == ERR_OK)
        rpc_finish(conn->call);
    else
        rpc_fail(conn->call, code, text);
}

static void send_message(struct conn *conn, const Steadfast__V1__CoordMessage *message)
{
    if (!conn || !conn->call || conn->is_ended)
        return;
    struct rpc_out out = {.message = &message->base};
    enum err_code code = rpc_send(conn->call, &out, NULL, NULL);
    if (code == ERR_FULL) {
        log_warn("member.slow", "worker=%s its stream is full; closing it",
                 conn->name ? conn->name : "?");
        end_conn(conn, ERR_FULL, "the stream's queue is full: the member does not read");
    }
}

static void fill_ref(Steadfast__V1__StepRef *ref, const struct core_step_ref *from)
{
    steadfast__v1__step_ref__init(ref);
    ref->job = from->job;
    ref->step = from->step;
    ref->attempt = from->attempt;
    ref->kind = (Steadfast__V1__StepKind)from->kind;
}

static void send_refs(struct conn *conn, const struct core_act *act)
{
    for (size_t at = 0; at < act->count; at += LIMIT_TICKETS_PER_MESSAGE) {
        size_t count = MIN(act->count - at, (size_t)LIMIT_TICKETS_PER_MESSAGE);
        Steadfast__V1__StepRef refs[LIMIT_TICKETS_PER_MESSAGE];
        Steadfast__V1__StepRef *pointers[LIMIT_TICKETS_PER_MESSAGE];
        for (size_t i = 0; i < count; i++) {
            fill_ref(&refs[i], &act->refs[at + i]);
            pointers[i] = &refs[i];
        }
        Steadfast__V1__CoordMessage message = STEADFAST__V1__COORD_MESSAGE__INIT;
        Steadfast__V1__AckBatch acks = STEADFAST__V1__ACK_BATCH__INIT;
        Steadfast__V1__RevokeBatch revoke = STEADFAST__V1__REVOKE_BATCH__INIT;
        if (act->kind == CORE_ACT_ACKS) {
            acks.n_steps = count;
            acks.steps = pointers;
            message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_ACKS;
            message.acks = &acks;
        } else {
            revoke.n_steps = count;
            revoke.steps = pointers;
            message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_REVOKE;
            message.revoke = &revoke;
        }
        send_message(conn, &message);
    }
}

static void send_tickets(struct conn *conn, const struct core_act *act)
{
    for (size_t at = 0; at < act->count; at += LIMIT_TICKETS_PER_MESSAGE) {
        size_t count = MIN(act->count - at, (size_t)LIMIT_TICKETS_PER_MESSAGE);
        Steadfast__V1__StepTicket tickets[LIMIT_TICKETS_PER_MESSAGE];
        Steadfast__V1__StepTicket *pointers[LIMIT_TICKETS_PER_MESSAGE];
        for (size_t i = 0; i < count; i++) {
            const struct core_ticket *from = &act->tickets[at + i];
            Steadfast__V1__StepTicket *ticket = &tickets[i];
            steadfast__v1__step_ticket__init(ticket);
            ticket->job = from->ref.job;
            ticket->step = from->ref.step;
            ticket->attempt = from->ref.attempt;
            ticket->kind = (Steadfast__V1__StepKind)from->ref.kind;
            ticket->generation = from->generation;
            ticket->epoch = from->epoch;
            ticket->batch = from->batch;
            ticket->pin = from->pin;
            ticket->deadline_ms = from->deadline_ms;
            pointers[i] = ticket;
        }
        Steadfast__V1__TicketBatch batch = STEADFAST__V1__TICKET_BATCH__INIT;
        batch.n_tickets = count;
        batch.tickets = pointers;
        Steadfast__V1__CoordMessage message = STEADFAST__V1__COORD_MESSAGE__INIT;
        message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_TICKETS;
        message.tickets = &batch;
        send_message(conn, &message);
    }
}

static void send_open(struct coord *coord, struct conn *conn, const struct core_act *act)
{
    struct core_job_view view;
    struct coord_job *job = coord_job_of(coord, act->job);
    if (!core_job_view(coord->core, clock_now_ns(), act->job, &view))
        return;
    Steadfast__V1__Plan empty = STEADFAST__V1__PLAN__INIT;
    Steadfast__V1__JobOpen open = STEADFAST__V1__JOB_OPEN__INIT;
    open.job = act->job;
    open.name = (char *)view.name;
    open.generation = act->generation;
    open.spec_json = (char *)view.spec_json;
    open.plan = job->plan ? job->plan : &empty;
    Steadfast__V1__CoordMessage message = STEADFAST__V1__COORD_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_OPEN;
    message.open = &open;
    send_message(conn, &message);
}

static void remember_snapshot(struct coord *coord, const struct core_act *act)
{
    struct snapshot_order *order = map_get(&coord->snapshots, act->order);
    if (!order) {
        order = base_alloc(sizeof(*order));
        map_put(&coord->snapshots, act->order, order);
    }
    *order = (struct snapshot_order){act->order, act->job, act->number, act->server_index};
}

void coord_fleet_forget_snapshots(struct coord *coord, uint64_t job)
{
    struct snapshot_order *order;
    for (size_t at = 0; (order = map_next(&coord->snapshots, &at));) {
        if (order->job != job)
            continue;
        free(map_remove(&coord->snapshots, order->order));
        at = 0; /* a removal moves others */
    }
}

static void send_order(struct coord *coord, struct conn *conn, const struct core_act *act)
{
    Steadfast__V1__ServerOrder order = STEADFAST__V1__SERVER_ORDER__INIT;
    Steadfast__V1__CreateShards create = STEADFAST__V1__CREATE_SHARDS__INIT;
    Steadfast__V1__Snapshot snapshot = STEADFAST__V1__SNAPSHOT__INIT;
    Steadfast__V1__Prune prune = STEADFAST__V1__PRUNE__INIT;
    Steadfast__V1__Pin pin = STEADFAST__V1__PIN__INIT;
    Steadfast__V1__Unpin unpin = STEADFAST__V1__UNPIN__INIT;
    Steadfast__V1__DropJob drop = STEADFAST__V1__DROP_JOB__INIT;
    Steadfast__V1__Fence fence = STEADFAST__V1__FENCE__INIT;
    Steadfast__V1__ReadMarks marks = STEADFAST__V1__READ_MARKS__INIT;
    struct core_job_view view = {0};
    bool is_known = act->job && core_job_view(coord->core, clock_now_ns(), act->job, &view);
    char *directory AUTO_MEM = NULL;
    order.order = act->order;
    switch (act->kind) {
    case CORE_ACT_CREATE: {
        struct coord_job *job = coord_job_of(coord, act->job);
        if (!is_known || !job->plan)
            return;
        create.job = act->job;
        create.generation = act->generation;
        create.name = (char *)view.name;
        create.spec_json = (char *)view.spec_json;
        create.plan = job->plan;
        create.server = act->server_index;
        if (act->text)
            create.restore_directory = (char *)act->text;
        order.what_case = STEADFAST__V1__SERVER_ORDER__WHAT_CREATE;
        order.create = &create;
        break;
    }
    case CORE_ACT_SNAPSHOT:
        if (!is_known)
            return;
        snapshot.job = act->job;
        snapshot.generation = act->generation;
        directory = base_asprintf("%s/ckpt-%" PRIu64 ".partial", view.spec->checkpoint.directory,
                                  act->number);
        snapshot.directory = directory;
        order.what_case = STEADFAST__V1__SERVER_ORDER__WHAT_SNAPSHOT;
        order.snapshot = &snapshot;
        remember_snapshot(coord, act);
        break;
    case CORE_ACT_PRUNE:
        prune.job = act->job;
        prune.generation = act->generation;
        prune.watermark = act->number;
        order.what_case = STEADFAST__V1__SERVER_ORDER__WHAT_PRUNE;
        order.prune = &prune;
        break;
    case CORE_ACT_PIN:
        pin.job = act->job;
        pin.generation = act->generation;
        pin.pin = act->number;
        order.what_case = STEADFAST__V1__SERVER_ORDER__WHAT_PIN;
        order.pin = &pin;
        break;
    case CORE_ACT_UNPIN:
        unpin.job = act->job;
        unpin.pin = act->number;
        order.what_case = STEADFAST__V1__SERVER_ORDER__WHAT_UNPIN;
        order.unpin = &unpin;
        break;
    case CORE_ACT_DROP:
        drop.job = act->job;
        order.what_case = STEADFAST__V1__SERVER_ORDER__WHAT_DROP;
        order.drop = &drop;
        break;
    case CORE_ACT_FENCE:
        fence.session = act->number;
        order.what_case = STEADFAST__V1__SERVER_ORDER__WHAT_FENCE;
        order.fence = &fence;
        break;
    case CORE_ACT_MARKS:
        marks.job = act->job;
        marks.generation = act->generation;
        order.what_case = STEADFAST__V1__SERVER_ORDER__WHAT_MARKS;
        order.marks = &marks;
        break;
    default:
        ASSERT(!"an action that is no order");
    }
    Steadfast__V1__CoordMessage message = STEADFAST__V1__COORD_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_ORDER;
    message.order = &order;
    send_message(conn, &message);
}

void coord_fleet_act(struct coord *coord, const struct core_act *act)
{
    struct conn *conn = map_get(&coord->conns, act->conn);
    if (!conn)
        return;
    Steadfast__V1__CoordMessage message = STEADFAST__V1__COORD_MESSAGE__INIT;
    switch (act->kind) {
    case CORE_ACT_WELCOME: {
        Steadfast__V1__Welcome welcome = STEADFAST__V1__WELCOME__INIT;
        welcome.session = act->session;
        welcome.start = coord->start;
        welcome.ledger = ledger_id(coord->ledger);
        welcome.heartbeat_ms = coord->options.heartbeat_ms;
        welcome.lease_ms = coord->options.lease_ms;
        message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_WELCOME;
        message.welcome = &welcome;
        send_message(conn, &message);
        break;
    }
    case CORE_ACT_GOODBYE: {
        Steadfast__V1__Goodbye goodbye = STEADFAST__V1__GOODBYE__INIT;
        goodbye.code = (char *)err_name(act->code);
        goodbye.text = (char *)act->text;
        message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_GOODBYE;
        message.goodbye = &goodbye;
        log_warn("member.goodbye", "worker=%s code=%s %s", conn->name ? conn->name : "?",
                 err_name(act->code), act->text);
        send_message(conn, &message);
        end_conn(conn, ERR_OK, NULL);
        break;
    }
    case CORE_ACT_HANGUP:
        end_conn(conn, ERR_OK, NULL);
        break;
    case CORE_ACT_CLOSE: {
        Steadfast__V1__JobClose close = STEADFAST__V1__JOB_CLOSE__INIT;
        close.job = act->job;
        message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_CLOSE;
        message.close = &close;
        send_message(conn, &message);
        break;
    }
    case CORE_ACT_TICKETS:
        send_tickets(conn, act);
        break;
    case CORE_ACT_ACKS:
    case CORE_ACT_REVOKE:
        send_refs(conn, act);
        break;
    case CORE_ACT_OPEN:
        send_open(coord, conn, act);
        break;
    default:
        send_order(coord, conn, act);
        break;
    }
}

/* ---- in ----------------------------------------------------------------------------------------
 */

static void read_ref(struct core_step_ref *ref, uint64_t job, uint64_t step, uint64_t attempt,
                     int kind)
{
    *ref = (struct core_step_ref){job, step, attempt, kind == CORE_EVAL ? CORE_EVAL : CORE_TRAIN};
}

static struct core_step_ref *read_refs(Steadfast__V1__StepRef **from, size_t count)
{
    struct core_step_ref *refs = base_alloc((count + 1) * sizeof(*refs));
    for (size_t i = 0; i < count; i++)
        read_ref(&refs[i], from[i]->job, from[i]->step, from[i]->attempt, (int)from[i]->kind);
    return refs;
}

static struct core_report *read_reports(Steadfast__V1__StepReport **from, size_t count)
{
    struct core_report *reports = base_alloc((count + 1) * sizeof(*reports));
    for (size_t i = 0; i < count; i++) {
        const Steadfast__V1__StepReport *report = from[i];
        reports[i] = (struct core_report){
            .generation = report->generation,
            .outcome = report->outcome == STEADFAST__V1__STEP_OUTCOME__STEP_DONE ? CORE_DONE
                       : report->outcome == STEADFAST__V1__STEP_OUTCOME__STEP_FAILED
                           ? CORE_FAILED
                           : CORE_RETURNED,
            .loss = report->loss,
            .examples = report->examples,
            .correct = report->correct,
            .code = err_from_name(report->code),
            .text = report->text,
            .staleness = report->staleness,
            .is_duplicate = report->duplicate,
            .phases = {.compute_us = report->compute_us,
                       .serialise_us = report->serialise_us,
                       .copy_us = report->copy_us,
                       .apply_us = report->apply_us,
                       .wait_us = report->wait_us},
        };
        read_ref(&reports[i].ref, report->job, report->step, report->attempt, (int)report->kind);
    }
    return reports;
}

static void free_states(struct core_shard_state *states, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ranges_done(&states[i].marks);
    free(states);
}

static struct core_shard_state *read_states(Steadfast__V1__ShardState **from, size_t count,
                                            bool has_marks)
{
    struct core_shard_state *states = base_alloc((count + 1) * sizeof(*states));
    for (size_t i = 0; i < count; i++) {
        const Steadfast__V1__ShardState *state = from[i];
        states[i] = (struct core_shard_state){
            .job = state->job,
            .generation = state->generation,
            .shard = state->shard,
            .version = state->version,
            .applied = state->applied,
            .bytes = state->bytes,
            .duplicates_refused = state->duplicates_refused,
            .fenced = state->fenced,
            .repeated_applies = state->repeated_applies,
            .has_marks = has_marks,
        };
        for (size_t r = 0; has_marks && r < state->n_marks && r < LIMIT_RANGES; r++)
            if (state->marks[r]->first <= state->marks[r]->last &&
                state->marks[r]->last < LIMIT_STEPS)
                ranges_add_range(&states[i].marks, state->marks[r]->first, state->marks[r]->last);
    }
    return states;
}

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
        end_conn(conn, ERR_INVALID,
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
        coord_fleet_act(coord, &act);
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
        coord_fleet_act(coord, &act);
        return;
    }
    log_info(
        "member.hello",
        "worker=%s address=%s incarnation=%" PRIu64 " session=%" PRIu64 " held=%zu reports=%zu",
        from->name, from->address, from->incarnation, from->session, from->n_held, from->n_reports);
    struct core_step_ref *held = read_refs(from->held, from->n_held);
    struct core_report *reports = read_reports(from->reports, from->n_reports);
    struct core_shard_state *states = read_states(from->shards, from->n_shards, true);
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
    free_states(states, from->n_shards);
}

/* The files of a snapshot are kept until the checkpoint is published. */
static void keep_files(struct coord *coord, const Steadfast__V1__OrderDone *done)
{
    struct snapshot_order *order = map_remove(&coord->snapshots, done->order);
    if (!order)
        return;
    struct coord_job *job = coord_job_of(coord, order->job);
    for (size_t i = 0; i < done->n_files && job->ckpt_number == order->number; i++) {
        size_t bytes = steadfast__v1__ckpt_file__get_packed_size(done->files[i]);
        uint8_t *packed = base_alloc(bytes);
        steadfast__v1__ckpt_file__pack(done->files[i], packed);
        job->parts = base_realloc(job->parts, (job->part_count + 1) * sizeof(*job->parts));
        job->parts[job->part_count].server_index = order->server_index;
        job->parts[job->part_count].file = steadfast__v1__ckpt_file__unpack(NULL, bytes, packed);
        ASSERT(job->parts[job->part_count].file);
        job->part_count++;
        free(packed);
    }
    free(order);
}

static void on_order_done(struct conn *conn, const Steadfast__V1__OrderDone *done)
{
    struct coord *coord = conn->coord;
    struct core_shard_state *states = read_states(done->shards, done->n_shards, true);
    enum err_code code = err_from_name(done->code);
    if (code == ERR_OK)
        keep_files(coord, done);
    else
        log_warn("order.failed", "server=%s order=%" PRIu64 " code=%s %s", conn->name, done->order,
                 done->code, done->text);
    core_on_order_done(coord->core, clock_now_ns(), conn->id, done->order, code, done->text, states,
                       done->n_shards);
    free_states(states, done->n_shards);
}

static void on_leaving(struct conn *conn, const Steadfast__V1__Leaving *leaving)
{
    log_info("member.leaving", "worker=%s returned=%zu reason=\"%s\"", conn->name,
             leaving->n_returned, leaving->reason);
    struct core_step_ref *refs = read_refs(leaving->returned, leaving->n_returned);
    core_on_leaving(conn->coord->core, clock_now_ns(), conn->id, refs, leaving->n_returned);
    free(refs);
}

static void on_member_message(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    struct conn *conn = arg;
    struct coord *coord = conn->coord;
    if (!in) { /* half-closed: it says nothing more; the end of the call follows */
        end_conn(conn, ERR_OK, NULL);
        return;
    }
    if (!conn->call || conn->is_ended)
        return;
    const Steadfast__V1__MemberMessage *message = (const Steadfast__V1__MemberMessage *)in->message;
    uint64_t now_ns = clock_now_ns();
    if (!conn->is_known && message->kind_case != STEADFAST__V1__MEMBER_MESSAGE__KIND_HELLO) {
        end_conn(conn, ERR_INVALID, "the first message of a member is its hello");
        return;
    }
    switch (message->kind_case) {
    case STEADFAST__V1__MEMBER_MESSAGE__KIND_HELLO:
        on_hello(conn, message->hello);
        break;
    case STEADFAST__V1__MEMBER_MESSAGE__KIND_HEARTBEAT: {
        struct core_shard_state *states =
            read_states(message->heartbeat->shards, message->heartbeat->n_shards, false);
        core_on_heartbeat(coord->core, now_ns, conn->id, states, message->heartbeat->n_shards);
        free_states(states, message->heartbeat->n_shards);
        for (size_t i = 0; i < message->heartbeat->n_unreachable; i++)
            log_warn("server.unreachable", "worker=%s server=%s %s", conn->name,
                     message->heartbeat->unreachable[i]->server,
                     message->heartbeat->unreachable[i]->text);
        break;
    }
    case STEADFAST__V1__MEMBER_MESSAGE__KIND_REPORTS: {
        struct core_report *reports =
            read_reports(message->reports->reports, message->reports->n_reports);
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
    conn_free(conn);
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

void coord_fleet_close_all(struct coord *coord)
{
    struct conn *conn;
    for (size_t at = 0; (conn = map_next(&coord->conns, &at));)
        end_conn(conn, ERR_UNAVAILABLE, "the coordinator is stopping");
}
