/* SPDX-License-Identifier: Apache-2.0 */
/* session_out: what a worker says on its stream. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/daemon/flags.h"
#include "common/rpc/rpc.h"
#include "workerd/shell/session_int.h"
#include "workerd/shell/step_wire.h"
#include "workerd/step/step_jobs.h"
#include "workerd/step/step_report.h"
#include "workerd/step/step_run.h"

#define HELLO_LIST_MAX ((size_t)4 * LIMIT_CREDIT_MAX) /* the coordinator's bound on each list */

/* An array of pointers to messages, which is how protobuf-c wants a repeated field. */
#define POINT_AT(ptrs, items, count)                                                               \
    for (size_t at_ = 0; at_ < (count); at_++)                                                     \
    (ptrs)[at_] = &(items)[at_]

/* A stream that takes nothing any more is of no use: its end brings the next one. */
static bool send_message(struct session *session, const Steadfast__V1__MemberMessage *message)
{
    struct rpc_out out = {.message = &message->base};
    enum err_code code = rpc_csend(session->call, &out, NULL, NULL);
    if (code == ERR_OK)
        return true;
    if (code == ERR_FULL)
        log_warn("coordinator.slow", "address=%s the stream's queue is full; dialling again",
                 session->options.coordinator);
    rpc_cancel(session->call);
    return false;
}

/* Nothing is said before the Welcome, nor after having taken leave. */
static bool can_send(const struct session *session)
{
    return session->state == SESSION_ATTACHED && session->leave != LEAVE_ANSWER;
}

void session_out_hello(struct session *session)
{
    AUTO_MEM struct step_key *keys = base_alloc(HELLO_LIST_MAX * sizeof(*keys));
    AUTO_MEM struct step_report *reports = base_alloc(HELLO_LIST_MAX * sizeof(*reports));
    size_t held_count = step_run_held(session->run, keys, HELLO_LIST_MAX);
    size_t report_count = step_report_take_for_hello(session->run, reports, HELLO_LIST_MAX);
    AUTO_MEM Steadfast__V1__StepRef *refs = base_alloc(held_count * sizeof(*refs));
    AUTO_MEM Steadfast__V1__StepRef **ref_ptrs = base_alloc(held_count * sizeof(*ref_ptrs));
    AUTO_MEM Steadfast__V1__StepReport *wire = base_alloc(report_count * sizeof(*wire));
    AUTO_MEM Steadfast__V1__StepReport **wire_ptrs = base_alloc(report_count * sizeof(*wire_ptrs));
    for (size_t i = 0; i < held_count; i++)
        step_wire_put_key(&keys[i], &refs[i]);
    for (size_t i = 0; i < report_count; i++)
        step_wire_put_report(&reports[i], &wire[i]);
    POINT_AT(ref_ptrs, refs, held_count);
    POINT_AT(wire_ptrs, wire, report_count);

    Steadfast__V1__Device device = STEADFAST__V1__DEVICE__INIT;
    device.name = (char *)session->options.device;
    device.memory_bytes = session->options.memory_bytes;
    Steadfast__V1__Device *devices[] = {&device};
    Steadfast__V1__Hello hello = STEADFAST__V1__HELLO__INIT;
    hello.role = STEADFAST__V1__ROLE__ROLE_WORKER;
    hello.name = (char *)session->options.name;
    hello.address = (char *)session->options.address;
    hello.incarnation = session->incarnation;
    hello.session = session->number;
    hello.n_devices = ARRAY_SIZE(devices);
    hello.devices = devices;
    hello.memory_bytes = session->options.memory_bytes;
    hello.version = (char *)STEADFAST_VERSION;
    hello.n_held = held_count;
    hello.held = ref_ptrs;
    hello.n_reports = report_count;
    hello.reports = wire_ptrs;
    hello.pid = (uint64_t)getpid();
    hello.ledger = session->ledger;
    Steadfast__V1__MemberMessage message = STEADFAST__V1__MEMBER_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__MEMBER_MESSAGE__KIND_HELLO;
    message.hello = &hello;
    send_message(session, &message);
}

void session_out_reports(struct session *session)
{
    size_t count;
    while (can_send(session) && (count = step_report_take(session->run, session->reports,
                                                          LIMIT_REPORTS_PER_MESSAGE)) > 0) {
        for (size_t i = 0; i < count; i++)
            step_wire_put_report(&session->reports[i], &session->wire[i]);
        POINT_AT(session->wire_ptrs, session->wire, count);
        Steadfast__V1__ReportBatch batch = STEADFAST__V1__REPORT_BATCH__INIT;
        batch.n_reports = count;
        batch.reports = session->wire_ptrs;
        Steadfast__V1__MemberMessage message = STEADFAST__V1__MEMBER_MESSAGE__INIT;
        message.kind_case = STEADFAST__V1__MEMBER_MESSAGE__KIND_REPORTS;
        message.reports = &batch;
        if (!send_message(session, &message))
            return; /* the next Hello says them again */
    }
}

struct down_list {
    Steadfast__V1__ServerDown items[LIMIT_SERVERS];
    Steadfast__V1__ServerDown *ptrs[LIMIT_SERVERS];
    size_t count;
};

static void add_down(void *arg, const struct ps_link *link)
{
    struct down_list *list = arg;
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].server, link->name) == 0)
            return; /* of another job */
    if (list->count == LIMIT_SERVERS)
        return;
    Steadfast__V1__ServerDown *down = &list->items[list->count];
    steadfast__v1__server_down__init(down);
    down->server = (char *)link->name;
    down->text = (char *)link->why.text;
    list->ptrs[list->count++] = down;
}

void session_out_heartbeat(void *arg)
{
    struct session *session = arg;
    if (!can_send(session))
        return;
    struct down_list down;
    down.count = 0;
    step_jobs_unreachable(session->run, add_down, &down);
    Steadfast__V1__Heartbeat heartbeat = STEADFAST__V1__HEARTBEAT__INIT;
    heartbeat.sequence = ++session->sequence;
    heartbeat.n_unreachable = down.count;
    heartbeat.unreachable = down.ptrs;
    Steadfast__V1__MemberMessage message = STEADFAST__V1__MEMBER_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__MEMBER_MESSAGE__KIND_HEARTBEAT;
    message.heartbeat = &heartbeat;
    send_message(session, &message);
}

void session_out_leaving(struct session *session)
{
    size_t count = session->leave_key_count;
    AUTO_MEM Steadfast__V1__StepRef *refs = base_alloc(count * sizeof(*refs));
    AUTO_MEM Steadfast__V1__StepRef **ptrs = base_alloc(count * sizeof(*ptrs));
    for (size_t i = 0; i < count; i++)
        step_wire_put_key(&session->leave_keys[i], &refs[i]);
    POINT_AT(ptrs, refs, count);
    Steadfast__V1__Leaving leaving = STEADFAST__V1__LEAVING__INIT;
    leaving.n_returned = count;
    leaving.returned = ptrs;
    leaving.reason = (char *)session->leave_reason;
    Steadfast__V1__MemberMessage message = STEADFAST__V1__MEMBER_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__MEMBER_MESSAGE__KIND_LEAVING;
    message.leaving = &leaving;
    if (send_message(session, &message))
        rpc_cclose_send(
            session->call); /* the coordinator ends the stream when it has read it all */
}
