/* SPDX-License-Identifier: Apache-2.0 */
/* The core by hand: short stories with one worker and one server. tests/unit/test_sim.c tells the
 * long ones. */
#include "coordinatord/core/core.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "tests/harness.h"

#define MS NS_PER_MS

struct story {
    struct core *core;
    uint64_t now_ns;
    uint64_t worker_session;
    struct core_ticket tickets[LIMIT_CREDIT_MAX * 2];
    size_t ticket_count;
    struct core_record records[4096]; /* texts are not kept */
    size_t record_count;
    bool is_disk_held; /* else every record is durable at once */
    uint64_t written_seq;
    uint64_t orders[64]; /* to the server, not answered */
    enum core_act_kind order_kinds[64];
    size_t order_count;
    size_t ack_count;
    size_t revoked;
    enum err_code goodbye;
    enum err_code reply;
    uint64_t reply_job;
    bool is_open;
    uint64_t find_first; /* of the last CORE_ACT_FIND_CKPT */
    uint64_t begun;      /* checkpoint of the last CORE_ACT_BEGIN_CKPT, not answered; 0: none */
};

static const char noop_json[] =
    "{\"name\": \"n\", \"seed\": 1, \"max_steps\": 100, \"model\": {\"name\": \"noop\"}, "
    "\"dataset\": {\"source\": \"none\"}}";
static const char mlp_json[] = "{\"name\": \"m\", \"seed\": 1, \"epochs\": 2, \"model\": "
                               "{\"name\": \"softmax\", \"num_classes\": 10}, "
                               "\"dataset\": {\"source\": \"synthetic\", \"records\": 640, "
                               "\"batch_size\": 64, \"shuffle_buffer\": 100}, "
                               "\"optimizer\": {\"name\": \"sgd\", \"learning_rate\": 0.1}}";

static bool write_records(struct story *story)
{
    uint64_t last = story->record_count ? story->records[story->record_count - 1].seq : 0;
    if (last <= story->written_seq)
        return false;
    story->written_seq = last;
    core_on_journal_written(story->core, story->now_ns, last);
    return true;
}

static void drain(struct story *story)
{
    const struct core_act *acts;
    size_t count;
    while ((count = core_take_actions(story->core, &acts)) > 0 ||
           (!story->is_disk_held && write_records(story))) {
        uint64_t planned_job = 0;
        uint64_t planned_generation = 0;
        for (size_t i = 0; i < count; i++) {
            const struct core_act *act = &acts[i];
            switch (act->kind) {
            case CORE_ACT_WELCOME:
                story->worker_session = act->session;
                break;
            case CORE_ACT_TICKETS:
                for (size_t t = 0; t < act->count; t++)
                    story->tickets[story->ticket_count++] = act->tickets[t];
                break;
            case CORE_ACT_ACKS:
                story->ack_count += act->count;
                break;
            case CORE_ACT_REVOKE:
                story->revoked += act->count;
                break;
            case CORE_ACT_GOODBYE:
                story->goodbye = act->code;
                break;
            case CORE_ACT_JOURNAL:
                story->records[story->record_count++] = act->record;
                break;
            case CORE_ACT_PLAN:
                planned_job = act->job;
                planned_generation = act->generation;
                break;
            case CORE_ACT_REPLY:
                story->reply = act->code;
                story->reply_job = act->job;
                break;
            case CORE_ACT_FIND_CKPT:
                story->find_first = act->number;
                break;
            case CORE_ACT_BEGIN_CKPT:
                story->begun = act->number;
                break;
            case CORE_ACT_OPEN:
                story->is_open = true;
                break;
            case CORE_ACT_CREATE:
            case CORE_ACT_MARKS:
            case CORE_ACT_PRUNE:
            case CORE_ACT_DROP:
            case CORE_ACT_FENCE:
                story->orders[story->order_count] = act->order;
                story->order_kinds[story->order_count++] = act->kind;
                break;
            default:
                break;
            }
        }
        if (planned_job)
            core_on_planned(story->core, story->now_ns, planned_job, planned_generation, ERR_OK,
                            NULL, (const uint32_t[LIMIT_SERVERS]){1, 1});
    }
}

static void written(struct story *story)
{
    write_records(story);
    drain(story);
}

static struct story *begin(uint32_t servers)
{
    struct story *story = base_alloc(sizeof(*story));
    struct core_config config = {.start = 1,
                                 .heartbeat_ms = 100,
                                 .lease_ms = 1000,
                                 .order_deadline_ms = 5000,
                                 .job_wait_ms = 60000,
                                 .audit_ms = 0,
                                 .running_max = 2,
                                 .servers_wanted = servers,
                                 .recover_ms = 1000};
    story->core = core_new(&config);
    story->now_ns = 1000 * MS;
    core_start(story->core, story->now_ns);
    drain(story);
    return story;
}

static void end(struct story *story)
{
    core_free(story->core);
    free(story);
}

static void hello(struct story *story, uint64_t conn, enum core_role role, const char *name,
                  uint64_t incarnation)
{
    struct core_hello hi = {.role = role,
                            .name = name,
                            .address = "127.0.0.1:1",
                            .incarnation = incarnation,
                            .shard_count = role == CORE_SERVER};
    core_on_hello(story->core, story->now_ns, conn, &hi);
    drain(story);
}

static uint64_t submit(struct story *story, const char *json, uint64_t records)
{
    struct job_spec *spec = NULL;
    struct err err;
    CHECK_OK(job_spec_parse(json, strlen(json), &spec, &err));
    core_submit(story->core, story->now_ns, 1, spec, json, records, 0, false, 0);
    drain(story);
    CHECK(story->reply == ERR_OK);
    written(story);
    return story->reply_job;
}

static void report(struct story *story, uint64_t conn, const struct core_ticket *ticket,
                   enum core_outcome outcome)
{
    struct core_report report = {.ref = ticket->ref,
                                 .generation = ticket->generation,
                                 .outcome = outcome,
                                 .loss = 1,
                                 .examples = 64,
                                 .code = ERR_CORRUPT,
                                 .text = "as scripted"};
    core_on_reports(story->core, story->now_ns, conn, &report, 1);
    drain(story);
}

/* Reports every ticket that is or becomes held until none is left. */
static void work(struct story *story, uint64_t conn)
{
    for (size_t i = 0; i < story->ticket_count; i++) {
        struct core_ticket ticket = story->tickets[i];
        if (story->ticket_count > LIMIT_CREDIT_MAX) {
            memmove(story->tickets, story->tickets + i + 1,
                    (story->ticket_count - i - 1) * sizeof(ticket));
            story->ticket_count -= i + 1;
            i = SIZE_MAX;
        }
        report(story, conn, &ticket, CORE_DONE);
    }
    story->ticket_count = 0;
    written(story);
}

static void answer_orders(struct story *story, uint64_t conn, const struct core_shard_state *state)
{
    for (size_t i = 0; i < story->order_count; i++) {
        core_on_order_done(story->core, story->now_ns, conn, story->orders[i], ERR_OK, "", state,
                           story->order_kinds[i] == CORE_ACT_MARKS ? 1 : 0);
        drain(story);
    }
    story->order_count = 0;
    written(story);
}

static struct core_job_view view_of(struct story *story, uint64_t job)
{
    struct core_job_view view;
    CHECK(core_job_view(story->core, story->now_ns, job, &view));
    return view;
}

TEST(a_job_without_variables_runs_to_its_end_with_one_worker)
{
    struct story *story = begin(0);
    hello(story, 1, CORE_WORKER, "worker:0", 1);
    uint64_t job = submit(story, noop_json, 0);
    CHECK(story->is_open && story->ticket_count > 0);
    work(story, 1);
    struct core_job_view view = view_of(story, job);
    CHECK_U64(view.acknowledged, 100);
    CHECK_U64(view.issued, 100);
    CHECK_U64(view.reissued, 0);
    CHECK(view.state == CORE_JOB_SUCCEEDED);
    CHECK_U64(story->ack_count, 100);
    end(story);
}

TEST(a_report_is_acknowledged_only_when_it_is_durable)
{
    struct story *story = begin(0);
    hello(story, 1, CORE_WORKER, "worker:0", 1);
    uint64_t job = submit(story, noop_json, 0);
    story->is_disk_held = true;
    report(story, 1, &story->tickets[0], CORE_DONE);
    CHECK_U64(story->ack_count, 0);
    CHECK_U64(view_of(story, job).acknowledged, 0);
    written(story);
    CHECK_U64(story->ack_count, 1);
    CHECK_U64(view_of(story, job).acknowledged, 1);
    end(story);
}

TEST(steps_of_a_lost_worker_are_issued_again_before_new_ones)
{
    struct story *story = begin(0);
    hello(story, 1, CORE_WORKER, "worker:0", 1);
    uint64_t job = submit(story, noop_json, 0);
    size_t held = story->ticket_count;
    CHECK(held >= 2);
    story->ticket_count = 0;
    core_on_conn_lost(story->core, story->now_ns, 1);
    hello(story, 2, CORE_WORKER, "worker:1", 1);
    CHECK(story->ticket_count > 0 && story->tickets[0].ref.step >= held); /* the lease still runs */
    size_t before = story->ticket_count;
    story->now_ns = core_next_deadline(story->core);
    core_on_heartbeat(story->core, story->now_ns - 1, 2, NULL, 0);
    core_on_timer(story->core, story->now_ns);
    drain(story);
    struct core_ticket first = story->tickets[0];
    report(story, 2, &first, CORE_DONE);
    CHECK(story->ticket_count > before);
    CHECK_U64(story->tickets[before].ref.step, 0);
    CHECK(view_of(story, job).reissued >= 1);
    end(story);
}

TEST(a_worker_that_was_given_up_is_told_to_rejoin)
{
    struct story *story = begin(0);
    hello(story, 1, CORE_WORKER, "worker:0", 7);
    core_on_conn_lost(story->core, story->now_ns, 1);
    story->now_ns += 5000 * MS;
    core_on_timer(story->core, story->now_ns);
    drain(story);
    hello(story, 2, CORE_WORKER, "worker:0", 7);
    CHECK(story->goodbye == ERR_STALE);
    hello(story, 3, CORE_WORKER, "worker:0", 8);
    CHECK_U64(core_member_count(story->core), 1);
    end(story);
}

TEST(a_failing_step_is_tried_again_and_then_abandoned_with_its_words)
{
    struct story *story = begin(0);
    hello(story, 1, CORE_WORKER, "worker:0", 1);
    uint64_t job = submit(story, noop_json, 0);
    for (int attempt = 0; attempt < 5; attempt++) {
        struct core_ticket ticket = story->tickets[0];
        CHECK_U64(ticket.ref.step, 0);
        story->tickets[0] = story->tickets[--story->ticket_count];
        size_t at = story->ticket_count;
        report(story, 1, &ticket, CORE_FAILED);
        story->now_ns += 60 * MS;
        core_on_heartbeat(story->core, story->now_ns, 1, NULL, 0);
        core_on_timer(story->core, story->now_ns);
        drain(story);
        for (; at < story->ticket_count; at++)
            if (story->tickets[at].ref.step == 0)
                story->tickets[0] = story->tickets[at];
    }
    struct core_job_view view = view_of(story, job);
    CHECK(view.state == CORE_JOB_RUNNING);
    CHECK_U64(view.abandoned, 1);
    CHECK_U64(view.abandoned_steps[0].step, 0);
    CHECK_U64(view.abandoned_steps[0].attempts, 5);
    CHECK_STR(view.abandoned_steps[0].text, "as scripted");
    end(story);
}

TEST(a_step_that_kills_is_tried_alone_so_that_its_neighbours_are_not_given_up)
{
    struct story *story = begin(0);
    uint64_t poison = 2;
    uint64_t deaths = 0;
    uint64_t conn = 1;
    hello(story, conn, CORE_WORKER, "worker:0", conn);
    uint64_t job = submit(story, noop_json, 0);
    while (view_of(story, job).state == CORE_JOB_RUNNING) {
        CHECK(story->ticket_count > 0 && deaths < 10);
        struct core_ticket ticket = story->tickets[0];
        bool is_next = story->ticket_count > 1 && story->tickets[1].ref.step == poison;
        if (ticket.ref.step != poison && !is_next) { /* step 1 is still being pushed when 2 kills */
            memmove(story->tickets, story->tickets + 1, --story->ticket_count * sizeof(ticket));
            report(story, conn, &ticket, CORE_DONE);
            written(story);
            continue;
        }
        deaths++;
        story->ticket_count = 0;
        hello(story, conn + 1, CORE_WORKER, "worker:0", conn + 1);
        conn++;
        if (deaths == 2 ||
            (deaths >= 4 && deaths < 7)) /* twice blamed: first the neighbour, then the culprit */
            CHECK_U64(story->ticket_count, 1);
    }
    struct core_job_view view = view_of(story, job);
    CHECK(view.state == CORE_JOB_SUCCEEDED);
    CHECK_U64(view.acknowledged, 99);
    CHECK_U64(view.abandoned_count, 1);
    CHECK_U64(view.abandoned_steps[0].step, poison);
    CHECK_U64(view.abandoned_steps[0].attempts, 5);
    CHECK_U64(deaths, 7); /* two that a neighbour was blamed for */
    end(story);
}

TEST(variables_are_placed_only_after_the_generation_is_durable)
{
    struct story *story = begin(1);
    story->is_disk_held = true;
    hello(story, 1, CORE_WORKER, "worker:0", 1);
    hello(story, 2, CORE_SERVER, "ps:0", 1);
    struct job_spec *spec = NULL;
    struct err err;
    CHECK_OK(job_spec_parse(mlp_json, strlen(mlp_json), &spec, &err));
    core_submit(story->core, story->now_ns, 1, spec, mlp_json, 640, 0, false, 0);
    drain(story);
    CHECK_U64(story->order_count, 0);
    written(story);
    CHECK_U64(story->order_count, 1);
    CHECK(story->order_kinds[0] == CORE_ACT_CREATE);
    CHECK_U64(story->ticket_count, 0);
    story->is_disk_held = false;
    answer_orders(story, 2, NULL);
    CHECK(story->ticket_count > 0);
    end(story);
}

TEST(the_end_compares_marks_with_the_ledger)
{
    struct story *story = begin(1);
    hello(story, 1, CORE_WORKER, "worker:0", 1);
    hello(story, 2, CORE_SERVER, "ps:0", 1);
    uint64_t job = submit(story, mlp_json, 640);
    answer_orders(story, 2, NULL);
    work(story, 1);
    CHECK_U64(view_of(story, job).acknowledged, 20);
    struct core_shard_state state = {
        .job = job, .generation = 1, .applied = 20, .repeated_applies = 2, .has_marks = true};
    ranges_add_range(&state.marks, 0, 18); /* one is missing */
    answer_orders(story, 2, &state);
    struct core_job_view view = view_of(story, job);
    CHECK_U64(view.lost, 1);
    CHECK_U64(view.repeated, 2);
    CHECK(view.is_accounting_final);
    ranges_done(&state.marks);
    end(story);
}

TEST(a_restart_from_the_records_issues_what_was_not_acknowledged)
{
    struct story *story = begin(0);
    hello(story, 1, CORE_WORKER, "worker:0", 1);
    submit(story, noop_json, 0);
    report(story, 1, &story->tickets[1], CORE_DONE);
    written(story);
    struct core_config config = {.start = 2,
                                 .heartbeat_ms = 100,
                                 .lease_ms = 1000,
                                 .order_deadline_ms = 5000,
                                 .job_wait_ms = 60000,
                                 .running_max = 2,
                                 .recover_ms = 1000};
    struct story *again = base_alloc(sizeof(*again));
    again->core = core_new(&config);
    again->now_ns = story->now_ns;
    struct err err;
    struct core_record records[] = {
        {.kind = CORE_REC_JOB, .job = 1, .text = "n", .text2 = noop_json},
        {.kind = CORE_REC_STATE, .job = 1, .number = CORE_JOB_RUNNING, .text = ""},
        {.kind = CORE_REC_PLACED, .job = 1, .number = 1, .text = ""},
        {.kind = CORE_REC_ACKED, .job = 1, .first = 1, .last = 1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(records); i++)
        CHECK_OK(core_replay(again->core, &records[i], &err));
    core_start(again->core, again->now_ns);
    drain(again);
    hello(again, 1, CORE_WORKER, "worker:0", 1);
    again->now_ns += 900 * MS;
    core_on_heartbeat(again->core, again->now_ns, 1, NULL, 0);
    core_on_timer(again->core, again->now_ns);
    drain(again);
    CHECK(again->ticket_count >= 2);
    CHECK_U64(again->tickets[0].ref.step, 0);
    CHECK_U64(again->tickets[1].ref.step, 2);
    CHECK(again->tickets[0].ref.attempt >> 32 == 2);
    work(again, 1);
    CHECK_U64(view_of(again, 1).acknowledged, 100);
    end(story);
    end(again);
}

TEST(when_step_after_step_fails_the_job_fails_with_the_last_words)
{
    struct story *story = begin(0);
    hello(story, 1, CORE_WORKER, "worker:0", 1);
    uint64_t job = submit(story, noop_json, 0);
    for (size_t i = 0; i < story->ticket_count && view_of(story, job).state == CORE_JOB_RUNNING;
         i++) {
        struct core_ticket ticket = story->tickets[i];
        report(story, 1, &ticket, CORE_FAILED);
        story->now_ns += 60 * MS;
        core_on_heartbeat(story->core, story->now_ns, 1, NULL, 0);
        core_on_timer(story->core, story->now_ns);
        drain(story);
    }
    struct core_job_view view = view_of(story, job);
    CHECK(view.state == CORE_JOB_FAILED);
    CHECK_U64(view.abandoned, 2);
    CHECK(strstr(view.reason, "failed 5 times, last on worker:0: CORRUPT: as scripted"));
    end(story);
}

static const char ckpt_json[] =
    "{\"name\": \"%s\", \"seed\": 1, \"epochs\": %d, \"model\": {\"name\": \"softmax\", "
    "\"num_classes\": 10}, "
    "\"dataset\": {\"source\": \"synthetic\", \"records\": 640, \"batch_size\": 64}, "
    "\"optimizer\": {\"name\": \"sgd\", \"learning_rate\": 0.1}, \"checkpoint\": {\"directory\": "
    "\"%s\"}}";

static void submit_ckpt(struct story *story, const char *name, int epochs, const char *directory,
                        bool resume)
{
    char json[600];
    struct job_spec *spec = NULL;
    struct err err;
    snprintf(json, sizeof(json), ckpt_json, name, epochs, directory);
    CHECK_OK(job_spec_parse(json, strlen(json), &spec, &err));
    core_submit(story->core, story->now_ns, 1, spec, json, 640, 0, resume, 0);
    drain(story);
}

TEST(two_active_jobs_do_not_share_a_checkpoint_directory)
{
    struct story *story = begin(1);
    submit_ckpt(story, "a", 1, "/ckpt/x", false);
    CHECK(story->reply == ERR_OK);
    submit_ckpt(story, "b", 1, "/ckpt/x/", false);
    CHECK(story->reply == ERR_EXISTS);
    submit_ckpt(story, "b", 1, "/ckpt/xy", false);
    CHECK(story->reply == ERR_OK);
    end(story);
}

TEST(a_job_that_does_not_resume_asks_only_for_checkpoints_of_its_own)
{
    struct story *story = begin(1);
    hello(story, 2, CORE_SERVER, "ps:0", 1);
    submit_ckpt(story, "fresh", 1, "/ckpt/x", false);
    CHECK(story->find_first == UINT64_MAX);
    submit_ckpt(story, "resumed", 1, "/ckpt/y", true);
    CHECK(story->find_first == 0);
    end(story);
}

TEST(a_checkpoint_with_more_steps_than_the_job_is_not_resumed_from)
{
    struct story *story = begin(1);
    hello(story, 2, CORE_SERVER, "ps:0", 1);
    submit_ckpt(story, "short", 1, "/ckpt/x", true);
    uint64_t job = story->reply_job;
    struct ranges acked;
    struct ranges none;
    ranges_init(&acked);
    ranges_init(&none);
    ranges_add_range(&acked, 0, 19);
    core_on_ckpt_found(story->core, story->now_ns, job, ERR_OK, "", "/ckpt/x/ckpt-3", 3, &acked,
                       &none);
    drain(story);
    struct core_job_view view = view_of(story, job);
    CHECK(view.state == CORE_JOB_FAILED);
    CHECK_STR(view.reason, "epochs, max_steps: 10 steps: want at least the 20 that /ckpt/x/ckpt-3 "
                           "holds, which the job "
                           "would resume from");
    ranges_done(&acked);
    end(story);
}

/* A job that has done all its steps, and whose last checkpoint fails so many times, a second apart. */
static uint64_t fail_last_ckpt(struct story *story, enum err_code code, int times)
{
    hello(story, 1, CORE_WORKER, "worker:0", 1);
    hello(story, 2, CORE_SERVER, "ps:0", 1);
    submit_ckpt(story, "last", 1, "/ckpt/x", false);
    uint64_t job = story->reply_job;
    core_on_ckpt_found(story->core, story->now_ns, job, ERR_NOT_FOUND, "", "", 0, NULL, NULL);
    drain(story);
    answer_orders(story, 2, NULL);
    work(story, 1);
    for (int i = 0; i < times && view_of(story, job).state == CORE_JOB_RUNNING; i++) {
        CHECK(story->begun != 0);
        uint64_t number = story->begun;
        story->begun = 0;
        core_on_ckpt_begun(story->core, story->now_ns, job, number, code, "as scripted");
        drain(story);
        for (uint64_t end_ns = story->now_ns + 1001 * MS; story->now_ns < end_ns;) {
            story->now_ns += 100 * MS; /* with the beats that keep the members */
            core_on_heartbeat(story->core, story->now_ns, 1, NULL, 0);
            core_on_heartbeat(story->core, story->now_ns, 2, NULL, 0);
            core_on_timer(story->core, story->now_ns);
            drain(story);
        }
    }
    return job;
}

static size_t notices_with(const struct core_job_view *view, const char *words)
{
    size_t count = 0;
    for (size_t i = 0; i < view->notice_count; i++)
        count += strstr(view->notices[i], words) != NULL;
    return count;
}

TEST(a_full_disk_under_the_last_checkpoint_is_waited_for_and_said_once)
{
    struct story *story = begin(1);
    uint64_t job = fail_last_ckpt(story, ERR_FULL, 25);
    struct core_job_view view = view_of(story, job);
    CHECK(view.state == CORE_JOB_RUNNING);
    CHECK(strstr(view.reason, "the last checkpoint cannot be written (FULL)"));
    CHECK_U64(notices_with(&view, "was not written: FULL: as scripted"), 1);
    end(story);
}

TEST(a_last_checkpoint_that_cannot_be_written_for_good_fails_the_job_after_ten_tries)
{
    struct story *story = begin(1);
    uint64_t job = fail_last_ckpt(story, ERR_IO, 25);
    struct core_job_view view = view_of(story, job);
    CHECK(view.state == CORE_JOB_FAILED);
    CHECK(strstr(view.reason, "the last checkpoint could not be written"));
    CHECK_U64(notices_with(&view, "was not written: IO"), 1);
    end(story);
}

TEST(workers_of_ever_new_names_are_forgotten_when_they_are_gone)
{
    struct story *story = begin(0);
    for (uint64_t i = 1; i <= LIMIT_WORKERS + 10; i++) {
        char name[32];
        snprintf(name, sizeof(name), "spot-%d", (int)i);
        hello(story, i, CORE_WORKER, name, 1);
        CHECK(story->goodbye == ERR_OK);
        core_on_leaving(story->core, story->now_ns, i, NULL, 0);
        drain(story);
        core_on_conn_lost(story->core, story->now_ns, i);
        drain(story);
        story->now_ns += MS;
    }
    CHECK_U64(core_member_count(story->core), LIMIT_WORKERS);
    hello(story, LIMIT_WORKERS + 11, CORE_WORKER, "stays", 1);
    story->now_ns += 7200000 * MS;
    core_on_heartbeat(story->core, story->now_ns, LIMIT_WORKERS + 11, NULL, 0);
    core_on_timer(story->core, story->now_ns);
    drain(story);
    CHECK_U64(core_member_count(story->core), 1);
    end(story);
}

/* ---- verdicts: step 0 kills its worker, whatever it does, until the shards are asked --------- */

static bool has_order(const struct story *story, enum core_act_kind kind)
{
    for (size_t i = 0; i < story->order_count; i++)
        if (story->order_kinds[i] == kind)
            return true;
    return false;
}

/* Returns the stream of the worker that is alive. */
static uint64_t try_out_step_0(struct story *story)
{
    uint64_t conn = 10;
    hello(story, 2, CORE_SERVER, "ps:0", 1);
    hello(story, conn, CORE_WORKER, "worker:0", conn);
    submit(story, mlp_json, 640);
    answer_orders(story, 2, NULL);
    while (!has_order(story, CORE_ACT_MARKS)) {
        CHECK(story->ticket_count > 0 && conn < 30);
        CHECK_U64(story->tickets[0].ref.step, 0);
        story->ticket_count = 0;
        conn++;
        hello(story, conn, CORE_WORKER, "worker:0", conn);
    }
    CHECK_U64(view_of(story, 1).abandoned, 0);
    return conn;
}

static bool was_issued(const struct story *story, uint64_t step)
{
    for (size_t i = 0; i < story->ticket_count; i++)
        if (story->tickets[i].ref.step == step)
            return true;
    return false;
}

TEST(a_step_that_was_applied_and_then_killed_its_workers_is_acknowledged)
{
    struct story *story = begin(1);
    uint64_t conn = try_out_step_0(story);
    struct core_shard_state state = {.job = 1, .generation = 1, .applied = 1, .has_marks = true};
    ranges_add_range(&state.marks, 0, 0);
    answer_orders(story, 2, &state);
    struct core_job_view view = view_of(story, 1);
    CHECK_U64(view.abandoned, 0);
    CHECK_U64(view.acknowledged, 1);
    CHECK(ranges_has(view.acked, 0));
    CHECK(!was_issued(story, 0));
    bool is_recorded = false;
    for (size_t i = 0; i < story->record_count; i++)
        is_recorded = is_recorded ||
                      (story->records[i].kind == CORE_REC_ACKED && story->records[i].first == 0 &&
                       story->records[i].number2 == 64); /* its images */
    CHECK(is_recorded);
    work(story, conn);
    CHECK_U64(view_of(story, 1).acknowledged, 20);
    ranges_done(&state.marks);
    end(story);
}

TEST(a_step_that_no_shard_has_is_abandoned)
{
    struct story *story = begin(1);
    try_out_step_0(story);
    struct core_shard_state state = {.job = 1, .generation = 1, .has_marks = true};
    answer_orders(story, 2, &state);
    struct core_job_view view = view_of(story, 1);
    CHECK_U64(view.abandoned, 1);
    CHECK_U64(view.abandoned_steps[0].step, 0);
    CHECK_U64(view.abandoned_steps[0].attempts, 5);
    end(story);
}

TEST(a_step_that_some_shards_have_goes_again)
{
    struct story *story = begin(1);
    uint64_t conn = try_out_step_0(story);
    struct core_shard_state states[] = {{.job = 1, .generation = 1, .shard = 0, .has_marks = true},
                                        {.job = 1, .generation = 1, .shard = 1, .has_marks = true}};
    ranges_add_range(&states[1].marks, 0, 0);
    work(story, conn); /* what the worker holds beside it: it runs alone */
    for (size_t i = 0; i < story->order_count; i++)
        core_on_order_done(story->core, story->now_ns, 2, story->orders[i], ERR_OK, "", states,
                           story->order_kinds[i] == CORE_ACT_MARKS ? 2 : 0);
    story->order_count = 0;
    drain(story);
    struct core_job_view view = view_of(story, 1);
    CHECK_U64(view.abandoned, 0);
    CHECK(!ranges_has(view.acked, 0));
    CHECK(was_issued(story, 0));
    ranges_done(&states[1].marks);
    end(story);
}

TEST(while_a_server_cannot_say_what_it_has_the_verdict_waits)
{
    struct story *story = begin(1);
    try_out_step_0(story);
    size_t orders = story->order_count;
    for (size_t i = 0; i < orders; i++)
        core_on_order_done(story->core, story->now_ns, 2, story->orders[i], ERR_UNAVAILABLE,
                           "not now", NULL, 0);
    story->order_count = 0;
    drain(story);
    CHECK_U64(view_of(story, 1).abandoned, 0);
    CHECK(!was_issued(story, 0));
    CHECK(!has_order(story, CORE_ACT_MARKS));
    story->now_ns += 500 * MS; /* asked again */
    core_on_timer(story->core, story->now_ns);
    drain(story);
    CHECK(has_order(story, CORE_ACT_MARKS));
    struct core_shard_state state = {.job = 1, .generation = 1, .has_marks = true};
    ranges_add_range(&state.marks, 0, 0);
    answer_orders(story, 2, &state);
    CHECK_U64(view_of(story, 1).acknowledged, 1);
    ranges_done(&state.marks);
    end(story);
}

/* ---- counters over lives --------------------------------------------------------------------- */

TEST(a_ticket_leaves_when_its_record_is_durable_and_counts_only_then)
{
    struct story *story = begin(0);
    uint64_t job = submit(story, noop_json, 0);
    story->is_disk_held = true;
    hello(story, 1, CORE_WORKER, "worker:0", 1);
    CHECK_U64(story->ticket_count, 0);
    CHECK_U64(view_of(story, job).issued, 0);
    const struct core_record *record = &story->records[story->record_count - 1];
    CHECK(record->kind == CORE_REC_ISSUED && record->first == 0); /* one for all that leave */
    uint64_t last = record->last;
    CHECK(last >= 1);
    written(story);
    CHECK_U64(story->ticket_count, last + 1);
    CHECK_U64(view_of(story, job).issued, last + 1);

    /* tickets that were made again for a new process, and it dies before they leave */
    hello(story, 2, CORE_WORKER, "worker:0", 2);
    hello(story, 3, CORE_WORKER, "worker:0", 3);
    CHECK_U64(view_of(story, job).reissued, 0);
    story->ticket_count = 0;
    written(story);
    CHECK(story->ticket_count > 0);
    CHECK_U64(view_of(story, job).reissued, story->ticket_count);
    CHECK_U64(view_of(story, job).issued, last + 1);
    end(story);
}

TEST(counters_and_the_clock_of_a_job_go_on_after_a_restart)
{
    struct core_config config = {.start = 2,
                                 .heartbeat_ms = 100,
                                 .lease_ms = 1000,
                                 .order_deadline_ms = 5000,
                                 .job_wait_ms = 60000,
                                 .running_max = 2,
                                 .recover_ms = 1000,
                                 .wall_ms = 1000000};
    struct story *story = base_alloc(sizeof(*story));
    story->core = core_new(&config);
    story->now_ns = 5 * MS;
    struct err err;
    struct core_record records[] = {
        {.kind = CORE_REC_JOB, .job = 1, .text = "n", .text2 = noop_json},
        {.kind = CORE_REC_STATE, .job = 1, .number = 1, .number2 = 940000, .wall_ms = 940000},
        {.kind = CORE_REC_PLACED, .job = 1, .number = 1, .text = ""},
        {.kind = CORE_REC_ISSUED, .job = 1, .first = 0, .last = 9, .number = 3, .number2 = 7},
        {.kind = CORE_REC_ACKED, .job = 1, .first = 1, .last = 7, .number = 3, .number2 = 7},
    };
    for (size_t i = 0; i < ARRAY_SIZE(records); i++)
        CHECK_OK(core_replay(story->core, &records[i], &err));
    core_start(story->core, story->now_ns);
    drain(story);
    CHECK_U64(view_of(story, 1).issued, 10);
    CHECK_U64(view_of(story, 1).reissued, 3);
    CHECK_NEAR(view_of(story, 1).elapsed_s, 60, 1e-9);
    hello(story, 1, CORE_WORKER, "worker:0", 1);
    story->now_ns += 900 * MS;
    core_on_heartbeat(story->core, story->now_ns, 1, NULL, 0);
    core_on_timer(story->core, story->now_ns);
    drain(story);
    CHECK_U64(story->tickets[0].ref.step, 0);
    CHECK_U64(story->tickets[1].ref.step, 8);
    CHECK_U64(story->tickets[2].ref.step, 9); /* nobody claimed these three */
    work(story, 1);
    struct core_job_view view = view_of(story, 1);
    CHECK_U64(view.issued, 100);
    CHECK_U64(view.reissued, 6);
    CHECK_NEAR(view.elapsed_s, 60.9, 1e-9);
    story->now_ns += 5000 * MS; /* it has ended */
    CHECK_NEAR(view_of(story, 1).elapsed_s, 60.9, 1e-9);
    end(story);
}
