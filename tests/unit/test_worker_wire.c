/* SPDX-License-Identifier: Apache-2.0 */
/* A worker in this process, between a scripted coordinator and scripted parameter servers. */
#include "common/base/clock.h"
#include "common/spec/data_order.h"
#include "tests/unit/worker_rig.h"
#include "workerd/input/input.h"
#include "workerd/step/exec.h"

enum { TRAIN = 0, EVAL = 1, DONE = 0, FAILED = 1, RETURNED = 2 };

static void up_with_job(const char *device, const char *fake_script)
{
    rig_up(device, fake_script);
    rig_wait_attached();
    rig_open(RIG_SPEC, 1, true);
}

static void release_held(uint32_t i)
{
    pthread_mutex_lock(&rig.ps[i].lock);
    rig.ps[i].holds_pushes = false;
    for (size_t h = 0; h < rig.ps[i].held_count; h++) {
        rig_answer(rig.ps[i].held[h], STEADFAST__V1__PUSH_OUTCOME__PUSH_APPLIED, rig.ps[i].version);
        rpc_call_unref(rig.ps[i].held[h]);
    }
    rig.ps[i].held_count = 0;
    pthread_mutex_unlock(&rig.ps[i].lock);
}

TEST(steps_are_trained_once_on_every_shard_and_the_loss_falls)
{
    enum { STEPS = 60 };
    up_with_job("ref", NULL);
    for (uint64_t step = 0; step < STEPS; step++)
        rig_ticket(step);
    RIG_UNTIL(rig.coord.report_count == STEPS);
    for (uint64_t step = 0; step < STEPS; step++) {
        const struct rig_report *report = rig_report_of(step);
        CHECK(report && report->outcome == DONE && !report->is_duplicate);
        CHECK_U64(report->staleness, 3);
        CHECK_U64(report->examples, 16);
    }
    for (uint32_t i = 0; i < RIG_SERVERS; i++) {
        CHECK_U64(rig.ps[i].applied, STEPS);
        CHECK_U64(ranges_total(&rig.ps[i].marks), STEPS);
        CHECK_U64(rig.ps[i].last_session, 1);
    }
    float first = 0, last = 0;
    for (uint64_t step = 0; step < 5; step++) {
        first += rig_report_of(step)->loss;
        last += rig_report_of(STEPS - 1 - step)->loss;
    }
    CHECK_NEAR(rig_report_of(0)->loss, logf(3), 1e-3); /* all weights are 0 */
    CHECK(last < 0.8f * first);
    rig_down();
}

static bool is_same(const void *a, const void *b, size_t bytes)
{
    return memcmp(a, b, bytes) == 0;
}

static void ignore_grad(size_t var_index, void *arg)
{
    (void)var_index;
    (void)arg;
}

/* The same batch and variables through exec directly, against what the shards were sent. */
TEST(pushed_payloads_are_the_gradients_of_the_batch_that_the_ticket_names)
{
    struct err err;
    rig_up("ref", NULL);
    for (uint32_t i = 0; i < RIG_SERVERS; i++)
        for (size_t e = 0; e < 64; e++)
            rig.ps[i].values[e] = (float)(e % 7) * 0.1f - 0.3f * (float)i;
    rig_wait_attached();
    rig_open(RIG_SPEC, 1, true);
    float sent[RIG_SERVERS][64]; /* as pulled, before the update */
    for (uint32_t i = 0; i < RIG_SERVERS; i++)
        memcpy(sent[i], rig.ps[i].values, sizeof(sent[i]));
    rig_ticket_full(TRAIN, 3 * 63 + 20, 1, 3, 20, 0, 10000);
    RIG_UNTIL(rig.coord.report_count == 1);
    CHECK_U64(rig.coord.reports[0].outcome, DONE);

    AUTO(graph) graph = rig_graph();
    CHECK_U64(graph_var_count(graph), 2);
    const uint64_t rows = graph_var(graph, 0)->shape[0];
    const uint64_t columns = model_var_elements(graph_var(graph, 0)) / rows;
    const uint64_t cut = (rows / 2 + 1) * columns; /* elements of variable 0 on server 0 */
    float w[48], b[3], dw[48], db[3];
    CHECK_U64(rows * columns, 48);
    memcpy(w, sent[0], cut * sizeof(float));
    memcpy(w + cut, sent[1], (48 - cut) * sizeof(float));
    memcpy(b, sent[1] + (48 - cut), sizeof(b));

    struct dataset_spec spec = {.source = DATA_SYNTHETIC,
                                .records = 1000,
                                .height = 4,
                                .width = 4,
                                .channels = 1,
                                .num_classes = 3};
    struct input *input = NULL;
    CHECK_OK(input_open(&spec, 3, 5, 0, &input, &err));
    struct data_order order;
    data_order_init(&order, 5, 1000, 16, 64);
    uint64_t records[16];
    float images[16 * 16];
    int32_t labels[16];
    uint32_t count = data_order_batch(&order, 3, 20, records);
    CHECK_OK(input_fill(input, records, count, images, labels, &err));
    input_unref(input);
    struct exec_options options = {.device = "ref", .threads = 1, .max_batch = 16};
    AUTO(exec) exec = NULL;
    CHECK_OK(exec_new(graph, &options, &exec, &err));
    struct batch batch = {.count = count, .images = images, .labels = labels};
    const float *vars[] = {w, b};
    float *grads[] = {dw, db};
    float loss;
    CHECK_OK(exec_train(exec, 3 * 63 + 20, &batch, vars, grads, ignore_grad, NULL, &loss, &err));

    CHECK_NEAR(rig.coord.reports[0].loss, loss, 0);
    CHECK_U64(rig.ps[0].payload_bytes, cut * sizeof(float));
    CHECK(is_same(rig.ps[0].first_push, dw, cut * sizeof(float)));
    CHECK(is_same(rig.ps[1].first_push, dw + cut, (48 - cut) * sizeof(float)));
    CHECK(is_same(rig.ps[1].first_push + (48 - cut), db, sizeof(db)));
    rig_down();
}

TEST(a_shard_without_news_sends_nothing)
{
    up_with_job("ref", NULL);
    rig_ticket(0);
    RIG_UNTIL(rig.coord.report_count == 1);
    pthread_mutex_lock(
        &rig.ps[1].lock); /* this shard had steps 1 to 8 before: it will not change */
    ranges_add_range(&rig.ps[1].marks, 1, 8);
    pthread_mutex_unlock(&rig.ps[1].lock);
    for (uint64_t step = 1; step <= 8; step++) {
        rig_ticket(step);
        RIG_UNTIL(rig.coord.report_count == step + 1);
    }
    CHECK_U64(RIG_PS(1, applied), 1);
    CHECK_U64(RIG_PS(0, applied), 9);
    CHECK_U64(RIG_PS(0, not_modified), 0);
    CHECK(RIG_PS(1, not_modified) >= 6); /* two copies take the newest once each */
    rig_down();
}

TEST(a_step_that_some_shard_has_is_done_and_called_a_duplicate)
{
    up_with_job("ref", NULL);
    pthread_mutex_lock(&rig.ps[1].lock);
    ranges_add(&rig.ps[1].marks, 4);
    pthread_mutex_unlock(&rig.ps[1].lock);
    rig_ticket(4);
    rig_ticket(5);
    RIG_UNTIL(rig.coord.report_count == 2);
    CHECK(rig_report_of(4)->outcome == DONE && rig_report_of(4)->is_duplicate);
    CHECK(rig_report_of(5)->outcome == DONE && !rig_report_of(5)->is_duplicate);
    CHECK_U64(rig.ps[0].applied, 2);
    CHECK_U64(rig.ps[1].applied, 1);
    rig_down();
}

TEST(a_push_refused_as_stale_returns_the_step)
{
    up_with_job("ref", NULL);
    RIG_PS_SET(1, refuse_push, ERR_STALE);
    RIG_PS_SET(1, refuse_push_count, 1);
    rig_ticket(0);
    RIG_UNTIL(rig.coord.report_count == 1);
    CHECK_U64(rig_report_of(0)->outcome, RETURNED);
    CHECK_STR(rig_report_of(0)->code, "STALE");
    CHECK(strstr(rig_report_of(0)->text, "ps:1"));
    CHECK_U64(RIG_PS(1, push_tries), 1); /* never repeated as it is */
    rig_ticket(1);
    RIG_UNTIL(rig.coord.report_count == 2);
    CHECK_U64(rig_report_of(1)->outcome, DONE);
    rig_down();
}

TEST(a_pull_of_an_old_generation_returns_the_step)
{
    up_with_job("ref", NULL);
    RIG_PS_SET(0, generation, 2);
    rig_ticket(0);
    RIG_UNTIL(rig.coord.report_count == 1);
    CHECK_U64(rig_report_of(0)->outcome, RETURNED);
    CHECK_STR(rig_report_of(0)->code, "STALE");
    rig_down();
}

TEST(pushes_and_pulls_without_an_answer_are_tried_again)
{
    up_with_job("ref", NULL);
    RIG_PS_SET(0, refuse_push, ERR_UNAVAILABLE);
    RIG_PS_SET(0, refuse_push_count, 2);
    RIG_PS_SET(1, refuse_pull, ERR_FULL);
    RIG_PS_SET(1, refuse_pull_count, 2);
    rig_ticket(0);
    RIG_UNTIL(rig.coord.report_count == 1);
    CHECK_U64(rig_report_of(0)->outcome, DONE);
    CHECK_U64(RIG_PS(0, applied), 1);
    CHECK_U64(RIG_PS(1, applied), 1);
    CHECK_U64(RIG_PS(0, push_tries), 3);
    CHECK(RIG_PS(1, pulls) >= 3);
    rig_down();
}

TEST(a_server_out_of_reach_is_named_and_its_steps_are_returned_at_their_deadline)
{
    up_with_job("ref", NULL);
    rig_ticket(0);
    RIG_UNTIL(rig.coord.report_count == 1);
    rig_ps_down(1);
    rig_ticket_full(TRAIN, 1, 1, 0, 1, 0, 400);
    RIG_UNTIL(strcmp(rig.coord.unreachable, "ps:1") == 0);
    RIG_UNTIL(rig.coord.report_count == 2);
    CHECK_U64(rig_report_of(1)->outcome, RETURNED);
    CHECK(strstr(rig_report_of(1)->text, "ps:1"));
    rig_ps_up(1);
    rig_ticket(2);
    RIG_UNTIL(rig.coord.report_count == 3);
    CHECK_U64(rig_report_of(2)->outcome, DONE);
    RIG_UNTIL(rig.coord.unreachable[0] == '\0');
    rig_down();
}

TEST(a_payload_that_is_not_as_planned_fails_the_step_and_says_how)
{
    up_with_job("ref", NULL);
    RIG_PS_SET(0, lie_total, 12345);
    rig_ticket(0);
    RIG_UNTIL(rig.coord.report_count == 1);
    CHECK_U64(rig_report_of(0)->outcome, FAILED);
    CHECK_STR(rig_report_of(0)->code, "INVALID");
    CHECK(strstr(rig_report_of(0)->text, "ps:0") &&
          strstr(rig_report_of(0)->text, "payload of 12345 bytes, want "));
    rig_down();
}

TEST(a_step_sees_its_workers_last_update)
{
    up_with_job("ref", NULL);
    RIG_PS_SET(0, holds_pushes, true);
    rig_ticket(0);
    rig_ticket(1);
    RIG_UNTIL(RIG_PS(0, held_count) == 1 && RIG_PS(1, applied) == 1);
    uint32_t beats = rig.coord.heartbeat_count;
    RIG_UNTIL(rig.coord.heartbeat_count >=
              beats + 5); /* time enough for a pull that should not be */
    CHECK_U64(RIG_PS(1, pulls), 1);
    release_held(0);
    RIG_UNTIL(rig.coord.report_count == 2);
    CHECK_U64(RIG_PS(0, last_pulled_version), 2);
    CHECK_U64(RIG_PS(1, last_pulled_version), 2);
    rig_down();
}

TEST(pulling_ahead_fetches_for_the_next_step_while_one_computes)
{
    rig.pulls_ahead = true;
    up_with_job("fake", "step_us=300000");
    rig_ticket(0);
    rig_ticket(1);
    RIG_UNTIL(RIG_PS(0, pulls) == 2 && RIG_PS(1, pulls) == 2);
    CHECK_U64(rig.coord.report_count, 0);
    RIG_UNTIL(rig.coord.report_count == 2);
    CHECK_U64(RIG_PS(0, last_pulled_version), 1); /* without its own worker's update */
    rig_down();
}

TEST(a_broken_stream_is_dialled_again_with_what_is_held_and_reported)
{
    up_with_job("ref", NULL);
    rig.coord.is_forgetful = true;
    rig_ticket(0);
    RIG_UNTIL(rig.coord.report_count == 1); /* reported, not acknowledged */
    RIG_PS_SET(0, holds_pushes, true);
    rig_ticket(1);
    RIG_UNTIL(RIG_PS(0, held_count) == 1); /* computed and pushed, not answered */
    uint64_t incarnation = rig.coord.hello->incarnation;
    rig_break_stream();
    RIG_UNTIL(rig.coord.hello_count == 2);
    const Steadfast__V1__Hello *hello = rig.coord.hello;
    CHECK_U64(hello->session, 1);
    CHECK_U64(hello->incarnation, incarnation);
    CHECK_U64(hello->n_held, 1);
    CHECK_U64(hello->held[0]->step, 1);
    CHECK_U64(hello->held[0]->attempt, 2);
    CHECK_U64(hello->n_reports, 1);
    CHECK_U64(hello->reports[0]->step, 0);
    CHECK_U64(rig.coord.report_count, 2); /* the same report once more */

    rig_break_stream(); /* the answer comes while nobody listens */
    release_held(0);
    RIG_UNTIL(rig.coord.hello_count == 3 && rig.coord.report_count >= 4);
    CHECK(rig_report_of(1) && rig_report_of(1)->outcome == DONE);
    CHECK_U64(rig.ps[0].applied, 2);
    rig_ack(0, 1, TRAIN);
    rig_ack(1, 2, TRAIN);
    rig_open(RIG_SPEC, 1,
             true); /* without steps it was closed: its end may have been said on the old stream */
    rig_ticket(2);  /* its report says that the acknowledgements were read */
    RIG_UNTIL(rig_report_of(2));
    rig_break_stream();
    RIG_UNTIL(rig.coord.hello_count == 4);
    CHECK_U64(rig.coord.hello->n_held, 0);
    CHECK_U64(rig.coord.hello->n_reports, 1);
    CHECK_U64(rig.coord.hello->reports[0]->step, 2);
    rig_down();
}

TEST(goodbye_drops_everything_and_the_next_hello_is_a_new_incarnation)
{
    up_with_job("ref", NULL);
    RIG_PS_SET(0, holds_pushes, true);
    rig_ticket(0);
    rig_ticket(1);
    RIG_UNTIL(RIG_PS(0, held_count) >= 1);
    uint64_t incarnation = rig.coord.hello->incarnation;
    rig_goodbye(ERR_STALE);
    RIG_UNTIL(rig.coord.hello_count == 2);
    CHECK(rig.coord.hello->incarnation > incarnation);
    CHECK_U64(rig.coord.hello->session, 0);
    CHECK_U64(rig.coord.hello->n_held, 0);
    CHECK_U64(rig.coord.hello->n_reports, 0);
    release_held(0);
    rig_open(RIG_SPEC, 1, true); /* and it is ready for work again, under the new session */
    rig_ticket(2);
    RIG_UNTIL(rig.coord.report_count == 1);
    CHECK(rig.coord.reports[0].step == 2 && rig.coord.reports[0].outcome == DONE);
    CHECK_U64(RIG_PS(0, last_session), 2);
    rig_down();
}

TEST(a_worker_replaced_by_a_newer_process_of_its_name_ends)
{
    up_with_job("ref", NULL);
    rig_goodbye(ERR_EXISTS);
    RIG_UNTIL(rig.has_ended);
    CHECK_U64(rig.exit_code, 1);
    rig_down();
}

TEST(revoked_tickets_that_have_not_begun_are_forgotten)
{
    up_with_job("fake", "step_us=100000");
    for (uint64_t step = 0; step < 6; step++)
        rig_ticket(step);
    for (uint64_t step = 2; step < 5; step++)
        rig_revoke(step, step + 1);
    rig_revoke(99, 99); /* unknown: nothing happens */
    RIG_UNTIL(rig.coord.report_count == 3);
    CHECK(rig_report_of(0) && rig_report_of(1) && rig_report_of(5));
    rig_break_stream();
    RIG_UNTIL(rig.coord.hello_count == 2);
    CHECK_U64(rig.coord.hello->n_held, 0);
    rig_down();
}

TEST(leaving_finishes_what_runs_and_returns_the_rest_in_one_message)
{
    up_with_job("fake", "step_us=200000");
    for (uint64_t step = 0; step < 5; step++)
        rig_ticket(step);
    RIG_UNTIL(rig.coord.report_count == 1); /* step 1 runs now, or is about to */
    RIG_UNTIL(RIG_PS(0, pulls) >= 2);
    worker_leave(rig.worker, "test");
    RIG_UNTIL(rig.has_ended);
    CHECK_U64(rig.exit_code, 0);
    CHECK(rig.coord.leaving && rig.coord.is_half_closed);
    CHECK_STR(rig.coord.leaving->reason, "test");
    CHECK_U64(rig.coord.leaving->n_returned + rig.coord.report_count, 5);
    CHECK(rig.coord.leaving->n_returned >= 3);
    for (size_t i = 0; i < rig.coord.leaving->n_returned; i++)
        CHECK(!rig_report_of(rig.coord.leaving->returned[i]->step));
    for (size_t i = 0; i < rig.coord.report_count; i++)
        CHECK_U64(rig.coord.reports[i].outcome, DONE);
    rig_down();
}

/* From the order to leave until the worker says that it has left. */
static uint64_t leave_ms(void)
{
    uint64_t begin_ns = clock_now_ns();
    worker_leave(rig.worker, "test");
    RIG_UNTIL(rig.has_ended);
    return (clock_now_ns() - begin_ns) / NS_PER_MS;
}

static bool is_returned(uint64_t step)
{
    for (size_t i = 0; rig.coord.leaving && i < rig.coord.leaving->n_returned; i++)
        if (rig.coord.leaving->returned[i]->step == step)
            return true;
    return false;
}

TEST(leaving_gives_a_step_that_needs_an_absent_server_back_at_once)
{
    up_with_job("ref", NULL);
    RIG_PS_SET(1, refuse_push, ERR_UNAVAILABLE);
    RIG_PS_SET(1, refuse_push_count, UINT32_MAX);
    rig_ticket(0);
    RIG_UNTIL(rig.coord.unreachable[0] && RIG_PS(0, applied) == 1);
    uint64_t took_ms = leave_ms();
    CHECK(took_ms < LIMIT_LEAVE_PUSH_MS); /* without even the time that a slow server gets */
    CHECK_U64((uint64_t)rig.exit_code, 0);
    CHECK(is_returned(0) && !rig_report_of(0));
    rig_down();
}

TEST(a_server_that_vanishes_while_a_worker_leaves_is_not_waited_for)
{
    up_with_job("ref", NULL);
    RIG_PS_SET(1, holds_pushes, true);
    rig_ticket(0);
    RIG_UNTIL(RIG_PS(1, held_count) == 1);
    worker_leave(rig.worker, "test");
    pthread_mutex_lock(&rig.ps[1].lock); /* its connection breaks, and nobody is there any more */
    rig.ps[1].holds_pushes = false;
    rig.ps[1].refuse_push = ERR_UNAVAILABLE;
    rig.ps[1].refuse_push_count = UINT32_MAX;
    rpc_fail(rig.ps[1].held[0], ERR_UNAVAILABLE, "scripted break");
    rpc_call_unref(rig.ps[1].held[0]);
    rig.ps[1].held_count = 0;
    pthread_mutex_unlock(&rig.ps[1].lock);
    uint64_t took_ms = leave_ms();
    CHECK(took_ms < LIMIT_LEAVE_PUSH_MS);
    CHECK(is_returned(0) && !rig_report_of(0));
    rig_down();
}

TEST(leaving_waits_a_bounded_time_for_a_server_that_is_frozen)
{
    up_with_job("ref", NULL);
    RIG_PS_SET(1, holds_pushes, true);
    rig_ticket(0);
    RIG_UNTIL(RIG_PS(1, held_count) == 1);
    uint64_t took_ms = leave_ms();
    CHECK(took_ms >= LIMIT_LEAVE_PUSH_MS && took_ms < LIMIT_LEAVE_FINISH_MS);
    CHECK(is_returned(0) && !rig_report_of(0));
    release_held(1);
    rig_down();
}

TEST(leaving_takes_the_answer_of_a_slow_server_along)
{
    up_with_job("ref", NULL);
    RIG_PS_SET(1, holds_pushes, true);
    rig_ticket(0);
    RIG_UNTIL(RIG_PS(1, held_count) == 1);
    worker_leave(rig.worker, "test");
    release_held(1);
    RIG_UNTIL(rig.has_ended);
    CHECK(rig_report_of(0) && rig_report_of(0)->outcome == DONE);
    CHECK(!is_returned(0));
    rig_down();
}

TEST(leaving_without_work_or_without_a_coordinator_takes_a_moment)
{
    up_with_job("fake", NULL);
    rig_break_stream();
    rig.coord.is_mute = true;
    uint64_t begun_ns = clock_now_ns();
    worker_leave(rig.worker, "test");
    RIG_UNTIL(rig.has_ended);
    CHECK_U64(rig.exit_code, 0);
    CHECK(clock_now_ns() - begun_ns < 5 * NS_PER_S);
    rig_down();
}

TEST(evaluation_reads_pinned_variables_once_and_counts_every_example)
{
    up_with_job("ref", NULL);
    rig_ticket(0);
    for (uint64_t batch = 0; batch < 3; batch++)
        rig_ticket_full(EVAL, batch, 1, 0, batch, 9, 10000);
    RIG_UNTIL(rig.coord.report_count == 4);
    uint32_t examples = 0;
    for (size_t i = 0; i < 4; i++) {
        const struct rig_report *report = &rig.coord.reports[i];
        CHECK_U64(report->outcome, DONE);
        if (report->kind != EVAL)
            continue;
        examples += report->examples;
        CHECK(report->correct <= report->examples);
        CHECK(report->loss > 0.0f);
    }
    CHECK_U64(examples, 50);
    CHECK_U64(RIG_PS(0, pinned_pulls), 1);
    CHECK_U64(RIG_PS(1, pinned_pulls), 1);
    rig_ticket_full(EVAL, 0, 1, 1, 0, 10, 10000); /* another pin is another pull */
    RIG_UNTIL(rig.coord.report_count == 5);
    CHECK_U64(RIG_PS(0, pinned_pulls), 2);
    CHECK_U64(RIG_PS(0, applied), 1);
    rig_ticket_full(EVAL, 3, 1, 1, 3, 10, 10000); /* there are three batches */
    RIG_UNTIL(rig.coord.report_count == 6);
    CHECK(rig_report_of(3)->outcome == FAILED && strstr(rig_report_of(3)->text, "want one of 3"));
    rig_down();
}

TEST(a_job_that_cannot_be_opened_fails_its_tickets_with_the_reason)
{
    rig_up("ref", NULL);
    rig_wait_attached();
    rig_open("{\"name\": \"t\", \"model\": {\"name\": \"softmax\"}, \"dataset\": {\"source\": "
             "\"idx\", \"images\": "
             "\"/nonexistent/images.gz\", \"labels\": \"/nonexistent/labels.gz\"}, \"optimizer\": "
             "{\"name\": \"sgd\", "
             "\"learning_rate\": 0.1}}",
             1, false);
    rig_ticket(0);
    RIG_UNTIL(rig.coord.report_count == 1);
    CHECK_U64(rig_report_of(0)->outcome, FAILED);
    CHECK_STR(rig_report_of(0)->code, "NOT_FOUND");
    CHECK(strstr(rig_report_of(0)->text, "/nonexistent/images.gz"));
    rig_open(RIG_SPEC, 2, true); /* a later generation of it may be right */
    rig_ticket_full(TRAIN, 1, 2, 0, 1, 0, 10000);
    RIG_UNTIL(rig.coord.report_count == 2);
    CHECK_U64(rig_report_of(1)->outcome, DONE);
    rig_down();
}

TEST(a_device_that_fails_a_step_fails_its_report_and_nothing_is_pushed)
{
    up_with_job("fake", "fail_at=1");
    for (uint64_t step = 0; step < 3; step++)
        rig_ticket(step);
    RIG_UNTIL(rig.coord.report_count == 3);
    CHECK_U64(rig_report_of(0)->outcome, DONE);
    CHECK_U64(rig_report_of(1)->outcome, FAILED);
    CHECK_STR(rig_report_of(1)->code, "DEVICE");
    CHECK_U64(rig_report_of(2)->outcome, DONE);
    CHECK(!ranges_has(&rig.ps[0].marks, 1) && !ranges_has(&rig.ps[1].marks, 1));
    rig_down();
}

TEST(tickets_of_unknown_jobs_and_generations_are_returned)
{
    rig_up("ref", NULL);
    rig_wait_attached();
    rig_ticket(0);
    RIG_UNTIL(rig.coord.report_count == 1);
    CHECK(rig_report_of(0)->outcome == RETURNED && strcmp(rig_report_of(0)->code, "STALE") == 0);
    rig_open(RIG_SPEC, 2, true);
    rig_ticket_full(TRAIN, 1, 1, 0, 1, 0, 10000);
    RIG_UNTIL(rig.coord.report_count == 2);
    CHECK_U64(rig_report_of(1)->outcome, RETURNED);
    rig_close_job();
    rig_ticket_full(TRAIN, 2, 2, 0, 2, 0, 10000);
    RIG_UNTIL(rig.coord.report_count == 3);
    CHECK_U64(rig_report_of(2)->outcome, RETURNED);
    rig_down();
}

TEST(a_new_generation_takes_over_from_the_old_one)
{
    up_with_job("ref", NULL);
    RIG_PS_SET(0, holds_pushes, true);
    rig_ticket(0);
    rig_ticket(1);
    RIG_UNTIL(RIG_PS(0, held_count) >= 1);
    rig_open(RIG_SPEC, 2, true);
    RIG_PS_SET(0, holds_pushes, false);
    rig_ticket_full(TRAIN, 2, 2, 0, 2, 0, 10000);
    RIG_UNTIL(rig_report_of(2));
    CHECK_U64(rig_report_of(2)->outcome, DONE);
    CHECK(!rig_report_of(0) && !rig_report_of(1));
    rig_down();
}

TEST(a_ticket_that_waits_past_its_deadline_is_returned)
{
    up_with_job("fake", "step_us=600000");
    rig_ticket(0);
    rig_ticket(1);
    rig_ticket(2);
    rig_ticket_full(TRAIN, 3, 1, 0, 3, 0, 100);
    RIG_UNTIL(rig_report_of(3));
    CHECK_U64(rig_report_of(3)->outcome, RETURNED);
    CHECK_STR(rig_report_of(3)->code, "TIMEOUT");
    rig_down();
}

TEST(a_job_without_variables_runs_many_steps_a_turn)
{
    enum { STEPS = 20000, WINDOW = 200 };
    rig_up("fake", NULL);
    rig_wait_attached();
    rig_open(RIG_NOOP_SPEC, 1, false);
    static Steadfast__V1__StepTicket tickets[WINDOW];
    Steadfast__V1__StepTicket *ptrs[WINDOW];
    uint64_t sent = 0;
    uint64_t begun_ns = clock_now_ns();
    while (rig.coord.report_count < STEPS) {
        if (sent == rig.coord.report_count && sent < STEPS) {
            for (int i = 0; i < WINDOW; i++) {
                steadfast__v1__step_ticket__init(&tickets[i]);
                tickets[i].job = RIG_JOB;
                tickets[i].step = sent + (uint64_t)i;
                tickets[i].batch = tickets[i].step;
                tickets[i].attempt = ++rig.next_attempt;
                tickets[i].generation = 1;
                tickets[i].deadline_ms = 10000;
                ptrs[i] = &tickets[i];
            }
            Steadfast__V1__TicketBatch batch = STEADFAST__V1__TICKET_BATCH__INIT;
            batch.n_tickets = WINDOW;
            batch.tickets = ptrs;
            Steadfast__V1__CoordMessage message = STEADFAST__V1__COORD_MESSAGE__INIT;
            message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_TICKETS;
            message.tickets = &batch;
            rig_send(&message);
            sent += WINDOW;
        }
        uv_run(loop_uv(rig.loop), UV_RUN_ONCE);
    }
    for (size_t i = 0; i < STEPS; i++)
        CHECK(rig.coord.reports[i].outcome == DONE && rig.coord.reports[i].step == i);
    fprintf(stderr, "noop: %.0f steps/s\n", STEPS / ((double)(clock_now_ns() - begun_ns) / 1e9));
    rig_down();
}
