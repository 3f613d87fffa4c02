/* SPDX-License-Identifier: Apache-2.0 */
/* The bounds of the core when workers are faster than the disk: tickets in flight and records not
 * yet durable. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/spec/job_spec.h"
#include "coordinatord/core/core.h"
#include "tests/harness.h"

enum { WORKERS = 300, STEPS = 400000 };

struct flood {
    struct core *core;
    uint64_t now_ns;
    uint64_t job;
    uint64_t emitted; /* records */
    uint64_t written;
    uint64_t most_records;
    uint64_t acked;
    struct core_report held[WORKERS][LIMIT_CREDIT_MAX];
    size_t held_count[WORKERS];
    size_t most_held;
};

static void take_tickets(struct flood *flood, const struct core_act *act)
{
    size_t worker = (size_t)act->conn - 1;
    for (size_t i = 0; i < act->count; i++) {
        CHECK(flood->held_count[worker] < LIMIT_CREDIT_MAX);
        flood->held[worker][flood->held_count[worker]++] =
            (struct core_report){.ref = act->tickets[i].ref,
                                 .generation = act->tickets[i].generation,
                                 .outcome = CORE_DONE,
                                 .examples = 1};
    }
    flood->most_held = MAX(flood->most_held, flood->held_count[worker]);
}

static void drain(struct flood *flood)
{
    uint64_t planned = 0;
    const struct core_act *acts;
    size_t count = core_take_actions(flood->core, &acts);
    for (size_t i = 0; i < count; i++) {
        if (acts[i].kind == CORE_ACT_TICKETS)
            take_tickets(flood, &acts[i]);
        else if (acts[i].kind == CORE_ACT_JOURNAL)
            flood->emitted = acts[i].record.seq;
        else if (acts[i].kind == CORE_ACT_ACKS)
            flood->acked += acts[i].count;
        else if (acts[i].kind == CORE_ACT_REPLY)
            flood->job = acts[i].job;
        else if (acts[i].kind == CORE_ACT_PLAN)
            planned = acts[i].generation;
    }
    flood->most_records = MAX(flood->most_records, flood->emitted - flood->written);
    if (planned) {
        core_on_planned(flood->core, flood->now_ns, flood->job, planned, ERR_OK, NULL,
                        (const uint32_t[LIMIT_SERVERS]){0});
        drain(flood);
    }
}

static void write_all(struct flood *flood)
{
    while (flood->written < flood->emitted) {
        flood->written = flood->emitted;
        core_on_journal_written(flood->core, flood->now_ns, flood->written);
        drain(flood);
    }
}

/* Each worker reports all it holds; false when nobody held anything. */
static bool report_all(struct flood *flood)
{
    bool is_any = false;
    for (size_t w = 0; w < WORKERS; w++) {
        struct core_report reports[LIMIT_CREDIT_MAX];
        size_t count = flood->held_count[w];
        if (!count)
            continue;
        is_any = true;
        memcpy(reports, flood->held[w], count * sizeof(*reports));
        flood->held_count[w] = 0;
        flood->now_ns += 5 * NS_PER_US;
        core_on_reports(flood->core, flood->now_ns, w + 1, reports, count);
        drain(flood);
    }
    return is_any;
}

TEST(fast_workers_and_a_slow_disk_meet_bounds_and_lose_nothing)
{
    static const char json[] =
        "{\"name\": \"flood\", \"model\": {\"name\": \"noop\"}, \"max_steps\": 400000}";
    struct core_config config = {.start = 1,
                                 .heartbeat_ms = 250,
                                 .lease_ms = 2000,
                                 .order_deadline_ms = 1000,
                                 .job_wait_ms = 60000,
                                 .running_max = 1,
                                 .recover_ms = 1000};
    struct flood *flood = base_alloc(sizeof(*flood));
    struct err err = {0};
    flood->core = core_new(&config);
    flood->now_ns = NS_PER_S;
    core_start(flood->core, flood->now_ns);
    for (uint64_t w = 0; w < WORKERS; w++) {
        AUTO_MEM char *name = base_asprintf("worker:%u", (unsigned)w);
        struct core_hello hello = {
            .role = CORE_WORKER, .name = name, .address = "h:1", .incarnation = 1};
        core_on_hello(flood->core, flood->now_ns, w + 1, &hello);
        drain(flood);
    }
    struct job_spec *spec = NULL;
    CHECK_OK(job_spec_parse(json, strlen(json), &spec, &err));
    core_submit(flood->core, flood->now_ns, 1, spec, json, 0, 0, false, 0);
    drain(flood);
    write_all(flood);
    unsigned stalls = 0;
    struct core_job_view view;
    while (core_job_view(flood->core, flood->now_ns, flood->job, &view) &&
           view.state < CORE_JOB_SUCCEEDED) {
        if (report_all(flood))
            continue;
        stalls++; /* no tickets left the core: the disk has to catch up */
        uint64_t before = flood->written;
        write_all(flood);
        CHECK(flood->written > before);
    }
    write_all(flood);
    CHECK(core_job_view(flood->core, flood->now_ns, flood->job, &view));
    CHECK(view.state == CORE_JOB_SUCCEEDED);
    CHECK_U64(view.acknowledged, STEPS);
    CHECK_U64(view.reissued, 0);
    CHECK_U64(flood->acked, STEPS);
    CHECK_U64(flood->most_held, LIMIT_CREDIT_MAX);
    /* What was in flight when the bound was reached still comes in. */
    CHECK(flood->most_records >= CORE_JOURNAL_MAX);
    CHECK(flood->most_records <= CORE_JOURNAL_MAX + WORKERS * LIMIT_CREDIT_MAX);
    CHECK(stalls >= STEPS / CORE_JOURNAL_MAX);
    core_free(flood->core);
    free(flood);
}
