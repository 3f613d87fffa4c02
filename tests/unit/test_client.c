/* SPDX-License-Identifier: Apache-2.0 */
/* client: the public library against a coordinator that answers from a script. */
#include <stdatomic.h>

#include "client/steadfast.h"
#include "proto/health.pb-c.h"
#include "tests/unit/fake_coord.h"
#include "tests/unit/strange_peer.h"

#define TIMEOUT_MS 8000

static struct steadfast_client *client;
static struct steadfast_error error;

static void connect_to(const char *address)
{
    if (steadfast_connect(address, &client, &error) != STEADFAST_OK)
        test_fail(__FILE__, __LINE__, "%s", error.text);
}

static void start(void)
{
    fake_start(0);
    connect_to(fake.address);
}

static void stop(void)
{
    steadfast_close(client);
    fake_done();
}

#define CHECK_CALL(call)                                                                           \
    do {                                                                                           \
        if ((call) != STEADFAST_OK)                                                                \
            test_fail(__FILE__, __LINE__, "%s: %s", steadfast_code_name(error.code), error.text);  \
    } while (0)

TEST(a_status_arrives_with_every_field_and_array)
{
    start();
    struct steadfast_job *job;
    CHECK_CALL(steadfast_status(client, "fashion-lenet", TIMEOUT_MS, &job, &error));
    CHECK_STR(fake_look()->job, "fashion-lenet");
    CHECK_U64(job->id, 12);
    CHECK_STR(job->name, "fashion-lenet");
    CHECK(job->state == STEADFAST_JOB_SUCCEEDED && steadfast_job_has_ended(job->state));
    CHECK_U64(job->issued, 2816);
    CHECK_U64(job->acknowledged, 2813);
    CHECK_U64(job->reissued, 5);
    CHECK_U64(job->abandoned, 1);
    CHECK_U64(job->duplicates_refused, 2);
    CHECK(job->is_accounting_final);
    CHECK_NEAR(job->images_per_second, 20000, 0);
    CHECK_NEAR(job->staleness, 1.5, 0);
    CHECK_U64(job->phase_steps, 200);
    CHECK_NEAR(job->compute_seconds, 0.04, 1e-12);
    CHECK_NEAR(job->apply_seconds, 0.002, 1e-12);
    CHECK(job->shard_count == 2 && job->evaluation_count == 2 && job->checkpoint_count == 1);
    CHECK_STR(job->shards[1].server, "ps:1");
    CHECK_U64(job->shards[1].applied, 2813);
    CHECK_U64(job->shards[1].bytes, 1000001);
    CHECK_NEAR(job->evaluations[1].accuracy, 0.9125, 0);
    CHECK_STR(job->checkpoints[0].path, "/nonexistent/ckpt-4");
    CHECK(job->abandoned_step_count == 1 && job->abandoned_steps[0].step == 77);
    CHECK_STR(job->abandoned_steps[0].code, "IO");
    CHECK(job->notice_count == 1);
    CHECK_STR(job->notices[0], "worker:1 lost: 3 steps issued again");
    steadfast_job_free(job);
    stop();
}

TEST(a_failure_keeps_its_code_and_words_and_the_output_untouched)
{
    fake.fail_code = ERR_NOT_FOUND;
    fake.fail_text = "no job called nobody";
    start();
    struct steadfast_job *job = (void *)&error;
    CHECK(steadfast_status(client, "nobody", TIMEOUT_MS, &job, &error) == STEADFAST_NOT_FOUND);
    CHECK(error.code == STEADFAST_NOT_FOUND);
    CHECK_STR(error.text, "no job called nobody");
    CHECK(job == (void *)&error);
    CHECK(steadfast_status(client, "nobody", TIMEOUT_MS, &job, NULL) == STEADFAST_NOT_FOUND);
    stop();
}

TEST(a_submit_carries_the_text_and_the_wish_to_resume)
{
    start();
    uint64_t id = 0;
    CHECK_CALL(steadfast_submit(client, "{\"name\": \"x\"}", true, TIMEOUT_MS, &id, &error));
    CHECK_U64(id, 12);
    CHECK_STR(fake_look()->spec_json, "{\"name\": \"x\"}");
    CHECK(fake_look()->resume);
    stop();
}

TEST(a_list_gives_each_job_its_own_memory)
{
    start();
    struct steadfast_job_list *list;
    CHECK_CALL(steadfast_list(client, TIMEOUT_MS, &list, &error));
    CHECK(list->count == 2);
    CHECK_U64(list->jobs[1]->id, 12);
    CHECK(list->jobs[0]->shards != list->jobs[1]->shards);
    steadfast_job_list_free(list);
    stop();
}

TEST(a_cancel_may_ignore_the_state_it_gets_back)
{
    start();
    CHECK_CALL(steadfast_cancel(client, "12", TIMEOUT_MS, NULL, &error));
    CHECK_STR(fake_look()->job, "12");
    stop();
}

TEST(a_checkpoint_says_number_step_and_path)
{
    start();
    struct steadfast_checkpoint_done done;
    CHECK_CALL(steadfast_checkpoint_job(client, "12", TIMEOUT_MS, &done, &error));
    CHECK(done.number == 5 && done.step == 1700);
    CHECK_STR(done.path, "/nonexistent/ckpt-5");
    stop();
}

TEST(a_plan_names_the_server_of_each_slice)
{
    start();
    struct steadfast_plan *plan;
    CHECK_CALL(steadfast_plan_job(client, "{}", TIMEOUT_MS, &plan, &error));
    CHECK(plan->slice_count == 3 && plan->server_count == 2 && plan->shard_bytes_count == 2);
    CHECK_STR(plan->slices[1].variable, "dense1/kernel");
    CHECK_STR(plan->slices[1].server, "ps:1");
    CHECK(plan->slices[1].rank == 2 && plan->slices[1].shape[0] == 3136);
    CHECK(plan->slices[1].row_offset == 1568 && plan->slices[1].is_trainable);
    CHECK(plan->slices[2].rank == 0 && !plan->slices[2].is_trainable);
    CHECK_U64(plan->shard_bytes[0], 6422532);
    CHECK_U64(plan->parameters, 1605633);
    steadfast_plan_free(plan);
    stop();
}

TEST(a_cluster_lists_members_and_who_is_missing)
{
    fake.missing_count = 1;
    start();
    struct steadfast_cluster *cluster;
    CHECK_CALL(steadfast_get_cluster(client, TIMEOUT_MS, &cluster, &error));
    CHECK(cluster->member_count == 3 && cluster->missing_count == 1);
    CHECK_STR(cluster->members[1].name, "worker:0");
    CHECK_STR(cluster->members[0].devices[0], "cpu:0");
    CHECK_STR(cluster->missing[0], "ps:1 at 127.0.0.1:4712");
    steadfast_cluster_free(cluster);
    stop();
}

TEST(an_address_that_cannot_be_one_is_refused_at_once)
{
    CHECK(steadfast_connect("localhost", &client, &error) == STEADFAST_INVALID);
    CHECK(strstr(error.text, "localhost"));
    CHECK(steadfast_connect("localhost:99999", &client, &error) == STEADFAST_INVALID);
    CHECK(strstr(error.text, "99999"));
}

TEST(nobody_there_is_a_timeout_that_names_the_address)
{
    uint16_t port = fake_unused_port();
    char address[64];
    snprintf(address, sizeof(address), "127.0.0.1:%u", port);
    connect_to(address);
    struct steadfast_cluster *cluster;
    uint64_t start_ns = clock_now_ns();
    CHECK(steadfast_get_cluster(client, 300, &cluster, &error) == STEADFAST_TIMEOUT);
    CHECK(clock_now_ns() - start_ns >= 290 * NS_PER_MS);
    CHECK(strstr(error.text, address) && strstr(error.text, "300 ms"));
    stop();
}

static void *ask_cluster(void *arg)
{
    struct steadfast_cluster *cluster;
    struct steadfast_error err;
    if (steadfast_get_cluster(client, TIMEOUT_MS, &cluster, &err) != STEADFAST_OK)
        return NULL;
    steadfast_cluster_free(cluster);
    return arg;
}

TEST(a_coordinator_that_comes_after_the_question_answers_it)
{
    uint16_t port = fake_unused_port();
    char address[64];
    snprintf(address, sizeof(address), "127.0.0.1:%u", port);
    connect_to(address);
    pthread_t thread;
    void *answer = NULL;
    CHECK(pthread_create(&thread, NULL, ask_cluster, client) == 0);
    fake_start(port);
    CHECK(pthread_join(thread, &answer) == 0);
    CHECK(answer == client);
    stop();
}

/* ---- why there is no answer --------------------------------------------------------------------
 */
static bool on_status_never(const struct steadfast_job *job, void *arg)
{
    (void)job;
    (void)arg;
    return false;
}

/* What a call and a watch say of an address. */
static void check_said(const char *address, enum steadfast_code code, const char *words)
{
    struct steadfast_cluster *cluster;
    connect_to(address);
    CHECK(steadfast_get_cluster(client, 600, &cluster, &error) == code);
    CHECK(error.code == code);
    if (!strstr(error.text, words) || !strstr(error.text, address))
        test_fail(__FILE__, __LINE__, "no \"%s\" in: %s", words, error.text);
    CHECK(steadfast_watch(client, "12", 0, 600, on_status_never, NULL, &error) == code);
    if (!strstr(error.text, words) || !strstr(error.text, address))
        test_fail(__FILE__, __LINE__, "watch: no \"%s\" in: %s", words, error.text);
    steadfast_close(client);
}

TEST(an_address_where_nobody_listens_is_refused_in_words)
{
    struct strange_peer peer;
    strange_listen(&peer, 1);
    strange_stop(&peer);
    check_said(peer.address, STEADFAST_TIMEOUT, "connection refused");
}

TEST(an_address_that_says_nothing_is_told_apart)
{
    struct strange_peer peer;
    strange_listen(&peer, 64);
    check_said(peer.address, STEADFAST_TIMEOUT, "takes connections and says nothing");
    strange_stop(&peer);
}

TEST(an_address_that_speaks_something_else_is_invalid_with_its_words)
{
    struct strange_peer peer;
    strange_start(&peer, "SSH-2.0-OpenSSH_9.2p1\r\n");
    check_said(peer.address, STEADFAST_INVALID, "SSH-2.0-OpenSSH_9.2p1");
    strange_stop(&peer);
}

static const char *role; /* the service that the other server says it has */

static void on_health(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)arg;
    const Grpc__Health__V1__HealthCheckRequest *m =
        (const Grpc__Health__V1__HealthCheckRequest *)request->message;
    Grpc__Health__V1__HealthCheckResponse reply = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    reply.status = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;
    if (strcmp(m->service, role) == 0)
        rpc_reply(call, &(struct rpc_out){.message = &reply.base});
    else
        rpc_fail(call, ERR_NOT_FOUND, "no such service");
}

TEST(another_role_and_another_program_are_named)
{
    static const char *const roles[][2] = {
        {"steadfast.v1.ParameterServer", "parameter server (psd)"},
        {"steadfast.v1.Worker", "worker (workerd)"},
        {"steadfast.v1.Coordinator", "coordinator of another version"},
        {"library.Books", "another program: a gRPC server without steadfast.v1.Coordinator"},
    };
    struct err err;
    struct rpc_server_options options = {.grace_ms = 1};
    CHECK_OK(rpc_env_new(NULL, &fake.env, &err));
    CHECK_OK(rpc_server_new(fake.env, &options, &fake.server, &err));
    fake_add(&health_check, on_health);
    CHECK_OK(rpc_server_listen(fake.server, "127.0.0.1:0", &fake.port, &err));
    rpc_server_start(fake.server);
    snprintf(fake.address, sizeof(fake.address), "127.0.0.1:%u", fake.port);
    for (size_t i = 0; i < ARRAY_SIZE(roles); i++) {
        role = roles[i][0];
        check_said(fake.address, STEADFAST_INVALID, roles[i][1]);
    }
    fake_done();
}

/* ---- watch -------------------------------------------------------------------------------------
 */
struct seen {
    unsigned count;
    unsigned enough; /* stop after this many; 0: never */
    uint64_t last_acknowledged;
    enum steadfast_job_state last_state;
    pthread_t thread;
    enum steadfast_code code; /* what a watch on another thread returned */
};

static bool on_status(const struct steadfast_job *job, void *arg)
{
    struct seen *seen = arg;
    seen->count++;
    CHECK(job->acknowledged >= seen->last_acknowledged);
    seen->last_acknowledged = job->acknowledged;
    seen->last_state = job->state;
    seen->thread = pthread_self();
    return seen->count != seen->enough;
}

TEST(a_watch_ends_with_the_last_status_on_the_thread_that_asked)
{
    fake.watch_count = 3;
    fake.state = STEADFAST__V1__JOB_STATE__JOB_CANCELLED;
    start();
    struct seen seen = {0};
    CHECK_CALL(steadfast_watch(client, "12", 10, TIMEOUT_MS, on_status, &seen, &error));
    CHECK(seen.count >= 1 && seen.count <= 4);
    CHECK(seen.last_state == STEADFAST_JOB_CANCELLED && seen.last_acknowledged == 2813);
    CHECK(pthread_equal(seen.thread, pthread_self()));
    stop();
}

TEST(a_watch_of_a_caller_that_has_seen_enough_is_cancelled)
{
    fake.watch_count = 1;
    fake.watch_end = FAKE_WATCH_SILENT;
    start();
    struct seen seen = {.enough = 1};
    CHECK(steadfast_watch(client, "12", 10, TIMEOUT_MS, on_status, &seen, &error) ==
          STEADFAST_CANCELLED);
    CHECK(seen.count == 1);
    stop();
}

TEST(a_watch_that_hears_nothing_gives_up_after_the_silence)
{
    fake.watch_count = 1;
    fake.watch_end = FAKE_WATCH_SILENT;
    start();
    struct seen seen = {0};
    CHECK(steadfast_watch(client, "12", 10, 200, on_status, &seen, &error) == STEADFAST_TIMEOUT);
    CHECK(seen.count == 1);
    CHECK(strstr(error.text, "200 ms") && strstr(error.text, fake.address));
    stop();
}

TEST(a_stream_that_ends_before_its_job_is_no_success)
{
    fake.watch_count = 1;
    fake.watch_end = FAKE_WATCH_CUT;
    start();
    struct seen seen = {0};
    CHECK(steadfast_watch(client, "12", 10, TIMEOUT_MS, on_status, &seen, &error) ==
          STEADFAST_UNAVAILABLE);
    stop();
}

static void *watch_it(void *arg)
{
    struct seen *seen = arg;
    struct steadfast_error err;
    seen->code = steadfast_watch(client, "12", 10, TIMEOUT_MS, on_status, seen, &err);
    return NULL;
}

TEST(a_watch_whose_coordinator_dies_says_unavailable)
{
    fake.watch_count = 1;
    fake.watch_end = FAKE_WATCH_SILENT;
    start();
    struct seen seen = {0};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, watch_it, &seen) == 0);
    fake_wait_watches(1);
    fake_stop();
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(seen.code == STEADFAST_UNAVAILABLE);
    stop();
}

TEST(a_watch_of_an_unknown_job_fails_with_its_code)
{
    fake.fail_code = ERR_NOT_FOUND;
    fake.fail_text = "no job 99";
    start();
    struct seen seen = {0};
    CHECK(steadfast_watch(client, "99", 10, TIMEOUT_MS, on_status, &seen, &error) ==
          STEADFAST_NOT_FOUND);
    CHECK(seen.count == 0);
    stop();
}
