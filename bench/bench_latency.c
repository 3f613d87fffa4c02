/* SPDX-License-Identifier: Apache-2.0 */
/* bench_latency: from a ticket to its acknowledgement at low load.
 *
 *   bench_latency HOST:PORT STEPS
 *
 * Attaches to a running coordinator as the worker "bench:0", submits a job without operators, and
 * answers its tickets one at a time: the next report leaves when the acknowledgement of the one
 * before has come. What is measured is report -> ledger on disk -> acknowledgement, plus, as
 * "ticket", the wait for a ticket when none is held. Prints: latency_us p50=.. p90=.. p99=..
 * steps=..
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/loop/loop.h"
#include "common/rpc/rpc.h"
#include "proto/coord.pb-c.h"
#include "proto/fleet.pb-c.h"
#include "proto/methods.h"

#define TICKETS_MAX 1024

struct bench {
    struct loop *loop;
    struct rpc_ccall *call;
    Steadfast__V1__StepTicket tickets[TICKETS_MAX]; /* a ring of what is held */
    size_t head, count;
    bool is_waiting; /* for an acknowledgement */
    uint64_t began_ns;
    bool is_ticket_due; /* the report made room for one */
    uint64_t *samples;
    uint64_t *ticket_samples;
    size_t ticket_count;
    size_t sample_count, sample_max;
    size_t received;
};

static void send_message(struct bench *bench, const Steadfast__V1__MemberMessage *message)
{
    struct rpc_out out = {.message = &message->base};
    if (rpc_csend(bench->call, &out, NULL, NULL) != ERR_OK) {
        fprintf(stderr, "bench_latency: the stream is gone\n");
        exit(1);
    }
}

static void report_next(struct bench *bench)
{
    if (bench->is_waiting || !bench->count)
        return;
    const Steadfast__V1__StepTicket *ticket = &bench->tickets[bench->head];
    Steadfast__V1__StepReport report = STEADFAST__V1__STEP_REPORT__INIT;
    report.job = ticket->job;
    report.step = ticket->step;
    report.attempt = ticket->attempt;
    report.generation = ticket->generation;
    report.outcome = STEADFAST__V1__STEP_OUTCOME__STEP_DONE;
    report.examples = 1;
    bench->head = (bench->head + 1) % TICKETS_MAX;
    bench->count--;
    Steadfast__V1__StepReport *reports[] = {&report};
    Steadfast__V1__ReportBatch batch = STEADFAST__V1__REPORT_BATCH__INIT;
    batch.n_reports = 1;
    batch.reports = reports;
    Steadfast__V1__MemberMessage message = STEADFAST__V1__MEMBER_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__MEMBER_MESSAGE__KIND_REPORTS;
    message.reports = &batch;
    bench->is_waiting = true;
    bench->is_ticket_due = true;
    bench->began_ns = clock_now_ns();
    send_message(bench, &message);
}

static void on_message(struct rpc_ccall *call, const struct rpc_in *in, void *arg)
{
    struct bench *bench = arg;
    if (!in)
        return;
    const Steadfast__V1__CoordMessage *message = (const Steadfast__V1__CoordMessage *)in->message;
    if (message->kind_case == STEADFAST__V1__COORD_MESSAGE__KIND_TICKETS) {
        if (bench->is_ticket_due && bench->ticket_count < bench->sample_max)
            bench->ticket_samples[bench->ticket_count++] = clock_now_ns() - bench->began_ns;
        bench->is_ticket_due = false;
        for (size_t i = 0; i < message->tickets->n_tickets && bench->count < TICKETS_MAX; i++)
            bench->tickets[(bench->head + bench->count++) % TICKETS_MAX] =
                *message->tickets->tickets[i];
    } else if (message->kind_case == STEADFAST__V1__COORD_MESSAGE__KIND_ACKS) {
        bench->samples[bench->sample_count++] = clock_now_ns() - bench->began_ns;
        bench->is_waiting = false;
        if (bench->sample_count == bench->sample_max) {
            loop_stop(bench->loop, 0);
            return;
        }
    }
    report_next(bench);
    rpc_crecv(call, on_message, bench);
}

static void on_end(void *arg, const struct err *status, const struct rpc_in *reply)
{
    struct bench *bench = arg;
    (void)reply;
    if (bench->sample_count < bench->sample_max) {
        fprintf(stderr, "bench_latency: the stream ended: %s: %s\n", err_name(status->code),
                status->text);
        loop_stop(bench->loop, 1);
    }
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void submit(struct rpc_channel *channel, size_t steps)
{
    char json[300];
    snprintf(json, sizeof(json),
             "{\"name\": \"bench-latency-%d\", \"seed\": 1, \"max_steps\": %zu, \"model\": "
             "{\"name\": \"noop\"}, "
             "\"dataset\": {\"source\": \"none\"}}",
             (int)getpid(), steps);
    Steadfast__V1__SubmitRequest request = STEADFAST__V1__SUBMIT_REQUEST__INIT;
    request.spec_json = json;
    struct rpc_out out = {.message = &request.base};
    ProtobufCMessage *reply = NULL;
    struct err err;
    if (rpc_invoke_sync(channel, &coord_method_submit_job, &out, 5000, &reply, &err) != ERR_OK) {
        fprintf(stderr, "bench_latency: submit: %s\n", err.text);
        exit(1);
    }
    protobuf_c_message_free_unpacked(reply, NULL);
}

int main(int argc, char **argv)
{
    struct bench bench = {0};
    struct rpc_env *env = NULL;
    struct rpc_channel *channel = NULL;
    struct err err;
    if (argc != 3) {
        fprintf(stderr, "usage: bench_latency HOST:PORT STEPS\n");
        return 2;
    }
    bench.sample_max = strtoul(argv[2], NULL, 10);
    bench.samples = base_alloc(bench.sample_max * sizeof(*bench.samples));
    bench.ticket_samples = base_alloc(bench.sample_max * sizeof(*bench.ticket_samples));
    rpc_process_init();
    if (loop_new(&bench.loop, &err) != ERR_OK ||
        rpc_env_new(loop_uv(bench.loop), &env, &err) != ERR_OK ||
        rpc_channel_new(env, argv[1], NULL, &channel, &err) != ERR_OK) {
        fprintf(stderr, "bench_latency: %s\n", err.text);
        return 1;
    }
    submit(channel, bench.sample_max + TICKETS_MAX);
    struct rpc_call_options options = {
        .timeout_ms = UINT32_MAX, .wait_for_ready = true, .where = RPC_ON_LOOP};
    if (rpc_open(channel, &fleet_method_attach, NULL, &options, on_end, &bench, &bench.call,
                 &err) != ERR_OK) {
        fprintf(stderr, "bench_latency: %s\n", err.text);
        return 1;
    }
    Steadfast__V1__Hello hello = STEADFAST__V1__HELLO__INIT;
    hello.role = STEADFAST__V1__ROLE__ROLE_WORKER;
    hello.name = (char *)"bench:0";
    hello.address = (char *)"127.0.0.1:1";
    hello.incarnation = clock_wall_ms();
    Steadfast__V1__MemberMessage message = STEADFAST__V1__MEMBER_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__MEMBER_MESSAGE__KIND_HELLO;
    message.hello = &hello;
    send_message(&bench, &message);
    rpc_crecv(bench.call, on_message, &bench);
    int code = loop_run(bench.loop);
    if (bench.sample_count) {
        qsort(bench.samples, bench.sample_count, sizeof(*bench.samples), compare);
        qsort(bench.ticket_samples, bench.ticket_count, sizeof(*bench.ticket_samples), compare);
        size_t count = bench.sample_count;
        printf("latency_us p50=%.0f p90=%.0f p99=%.0f ticket_us p50=%.0f steps=%zu\n",
               (double)bench.samples[(size_t)((double)count * 0.5)] * 1e-3,
               (double)bench.samples[(size_t)((double)count * 0.9)] * 1e-3,
               (double)bench.samples[(size_t)((double)count * 0.99)] * 1e-3,
               (double)bench.ticket_samples[(size_t)((double)bench.ticket_count * 0.5)] * 1e-3,
               count);
    }
    rpc_cancel(bench.call);
    rpc_ccall_unref(bench.call);
    rpc_channel_free(channel);
    rpc_env_free(env);
    loop_free(bench.loop);
    free(bench.samples);
    free(bench.ticket_samples);
    return code;
}
