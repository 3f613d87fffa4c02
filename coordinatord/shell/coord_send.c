/* SPDX-License-Identifier: Apache-2.0 */
/* coord_send: what the core wants said to a member, as messages. A member that is not there is told
 * nothing: what it has to know is said again when it attaches. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinatord/shell/coord_int.h"

static void fill_ref(Steadfast__V1__StepRef *ref, const struct core_step_ref *from)
{
    steadfast__v1__step_ref__init(ref);
    ref->job = from->job;
    ref->step = from->step;
    ref->attempt = from->attempt;
    ref->kind = (Steadfast__V1__StepKind)from->kind;
}

void coord_send_refs(struct coord *coord, const struct core_act *act)
{
    struct conn *conn = coord_conn_of(coord, act->conn);
    for (size_t at = 0; conn && at < act->count; at += LIMIT_TICKETS_PER_MESSAGE) {
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
        coord_conn_send(conn, &message);
    }
}

void coord_send_tickets(struct coord *coord, const struct core_act *act)
{
    struct conn *conn = coord_conn_of(coord, act->conn);
    for (size_t at = 0; conn && at < act->count; at += LIMIT_TICKETS_PER_MESSAGE) {
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
        coord_conn_send(conn, &message);
    }
}

void coord_send_open(struct coord *coord, const struct core_act *act)
{
    struct core_job_view view;
    struct coord_job *job = coord_job_of(coord, act->job);
    struct conn *conn = coord_conn_of(coord, act->conn);
    if (!conn || !core_job_view(coord->core, clock_now_ns(), act->job, &view))
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
    coord_conn_send(conn, &message);
}

void coord_send_welcome(struct coord *coord, const struct core_act *act)
{
    Steadfast__V1__CoordMessage message = STEADFAST__V1__COORD_MESSAGE__INIT;
    Steadfast__V1__Welcome welcome = STEADFAST__V1__WELCOME__INIT;
    welcome.session = act->session;
    welcome.start = coord->start;
    welcome.ledger = ledger_id(coord->ledger);
    welcome.heartbeat_ms = coord->options.heartbeat_ms;
    welcome.lease_ms = coord->options.lease_ms;
    message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_WELCOME;
    message.welcome = &welcome;
    coord_conn_send(coord_conn_of(coord, act->conn), &message);
}

void coord_send_goodbye(struct coord *coord, const struct core_act *act)
{
    struct conn *conn = coord_conn_of(coord, act->conn);
    if (!conn)
        return;
    Steadfast__V1__CoordMessage message = STEADFAST__V1__COORD_MESSAGE__INIT;
    Steadfast__V1__Goodbye goodbye = STEADFAST__V1__GOODBYE__INIT;
    goodbye.code = (char *)err_name(act->code);
    goodbye.text = (char *)act->text;
    message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_GOODBYE;
    message.goodbye = &goodbye;
    log_warn("member.goodbye", "worker=%s code=%s %s", conn->name ? conn->name : "?",
             err_name(act->code), act->text);
    coord_conn_send(conn, &message);
    coord_conn_end(conn, ERR_OK, NULL);
}

void coord_send_hangup(struct coord *coord, const struct core_act *act)
{
    coord_conn_end(coord_conn_of(coord, act->conn), ERR_OK, NULL);
}

void coord_send_close(struct coord *coord, const struct core_act *act)
{
    Steadfast__V1__CoordMessage message = STEADFAST__V1__COORD_MESSAGE__INIT;
    Steadfast__V1__JobClose close = STEADFAST__V1__JOB_CLOSE__INIT;
    close.job = act->job;
    message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_CLOSE;
    message.close = &close;
    coord_conn_send(coord_conn_of(coord, act->conn), &message);
}
