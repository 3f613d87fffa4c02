/* SPDX-License-Identifier: Apache-2.0 */
/* fake_coord: a coordinator that answers from a script; for the tests of client and trainctl only.
 *
 * It serves the public service on a port of its own, on gRPC's io thread. A watch gets
 * `watch_count` statuses of a running job and then, unless it is told otherwise, the last one of a
 * job that has ended.
 */
#ifndef TESTS_UNIT_FAKE_COORD_H
#define TESTS_UNIT_FAKE_COORD_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/rpc/rpc.h"
#include "proto/coord.pb-c.h"
#include "proto/methods.h"
#include "tests/harness.h"

/* protobuf-c's strings are not const; nobody writes to these. */
#define WORDS(text) ((char *)(text))

enum fake_watch_end {
    FAKE_WATCH_JOB_ENDS, /* a last status, then the stream ends */
    FAKE_WATCH_SILENT,   /* the stream stays open and says no more */
    FAKE_WATCH_CUT,      /* the stream ends although the job has not */
};

/* What clients asked; a test reads it through fake_look. */
struct fake_asked {
    char spec_json[4096];
    bool resume;
    char job[64]; /* of the last call that named one */
    unsigned watches;
    unsigned cluster_calls;
};

struct fake_coord {
    struct rpc_env *env;
    struct rpc_server *server;
    char address[64];
    uint16_t port;

    /* the script; set before fake_start */
    Steadfast__V1__JobState state; /* of the job, for status and the end of a watch */
    enum err_code fail_code;       /* every call fails with this */
    const char *fail_text;
    bool has_no_shards;
    bool has_no_checkpoints;
    bool is_of_past_start;  /* the job ended before the last start: no times, no marks compared */
    bool has_no_rate;       /* yet */
    uint32_t missing_count; /* members missing in the first this many cluster calls */
    unsigned watch_count;
    enum fake_watch_end watch_end;

    pthread_mutex_t lock; /* guards asked */
    pthread_cond_t changed;
    struct fake_asked asked;
};

static struct fake_coord fake = {.state = STEADFAST__V1__JOB_STATE__JOB_SUCCEEDED,
                                 .lock = PTHREAD_MUTEX_INITIALIZER,
                                 .changed = PTHREAD_COND_INITIALIZER};

/* A copy, static storage. */
UNUSED static const struct fake_asked *fake_look(void)
{
    static struct fake_asked copy;
    pthread_mutex_lock(&fake.lock);
    copy = fake.asked;
    pthread_mutex_unlock(&fake.lock);
    return &copy;
}

static void fake_note_job(const char *job)
{
    pthread_mutex_lock(&fake.lock);
    snprintf(fake.asked.job, sizeof(fake.asked.job), "%s", job);
    pthread_mutex_unlock(&fake.lock);
}

static bool fake_fails(struct rpc_call *call)
{
    if (fake.fail_code == ERR_OK)
        return false;
    rpc_fail(call, fake.fail_code, fake.fail_text);
    return true;
}

static void fake_reply(struct rpc_call *call, const ProtobufCMessage *message)
{
    struct rpc_out out = {.message = message};
    rpc_reply(call, &out);
}

/* A job in the given state, static storage; every field has a value of its own. */
static const Steadfast__V1__JobStatus *fake_job(Steadfast__V1__JobState state,
                                                uint64_t acknowledged)
{
    static Steadfast__V1__ShardStatus shard[2];
    static Steadfast__V1__ShardStatus *shards[2] = {&shard[0], &shard[1]};
    static Steadfast__V1__Evaluation evaluation[2];
    static Steadfast__V1__Evaluation *evaluations[2] = {&evaluation[0], &evaluation[1]};
    static Steadfast__V1__CheckpointInfo checkpoint;
    static Steadfast__V1__CheckpointInfo *checkpoints[1] = {&checkpoint};
    static Steadfast__V1__AbandonedStep abandoned;
    static Steadfast__V1__AbandonedStep *abandoned_steps[1] = {&abandoned};
    static char *notices[1] = {WORDS("worker:1 lost: 3 steps issued again")};
    static Steadfast__V1__JobStatus job;

    for (unsigned i = 0; i < 2; i++) {
        steadfast__v1__shard_status__init(&shard[i]);
        shard[i].server = WORDS(i ? "ps:1" : "ps:0");
        shard[i].shard = 0;
        shard[i].applied = acknowledged;
        shard[i].bytes = 1000000 + i;
        steadfast__v1__evaluation__init(&evaluation[i]);
        evaluation[i].epoch = i + 1;
        evaluation[i].step = 938ull * (i + 1);
        evaluation[i].loss = i ? 0.25 : 0.5;
        evaluation[i].accuracy = i ? 0.9125 : 0.875;
    }
    steadfast__v1__checkpoint_info__init(&checkpoint);
    checkpoint.number = 4;
    checkpoint.step = 1500;
    checkpoint.path = WORDS("/nonexistent/ckpt-4");
    steadfast__v1__abandoned_step__init(&abandoned);
    abandoned.step = 77;
    abandoned.attempts = 5;
    abandoned.code = WORDS("IO");
    abandoned.text = WORDS("train.gz: short record");
    steadfast__v1__job_status__init(&job);
    job.job = 12;
    job.name = WORDS("fashion-lenet");
    job.state = state;
    job.phase = WORDS(state == STEADFAST__V1__JOB_STATE__JOB_RUNNING ? "training" : "");
    job.reason = WORDS(
        state == STEADFAST__V1__JOB_STATE__JOB_FAILED ? "step 77: train.gz: short record" : "");
    job.steps_total = 2814;
    job.issued = acknowledged + 3;
    job.acknowledged = acknowledged;
    job.reissued = 5;
    job.abandoned = 1;
    job.duplicates_refused = 2;
    job.lost = 0;
    job.repeated = 0;
    job.n_shards = fake.has_no_shards ? 0 : 2;
    job.shards = shards;
    job.n_evaluations = acknowledged >= 1876 ? 2 : acknowledged >= 938 ? 1 : 0;
    job.evaluations = evaluations;
    job.steps_per_second = 312.5;
    job.images_per_second = 20000;
    job.loss = 0.375;
    job.epoch = (uint32_t)(acknowledged / 938);
    job.epochs = 3;
    job.eta_seconds = 65;
    job.generation = 2;
    job.workers = 2;
    job.n_checkpoints = fake.has_no_checkpoints ? 0 : 1;
    job.checkpoints = checkpoints;
    job.n_abandoned_steps = 1;
    job.abandoned_steps = abandoned_steps;
    job.elapsed_seconds = 9;
    job.n_notices = 1;
    job.notices = notices;
    job.accounting_final = state >= STEADFAST__V1__JOB_STATE__JOB_SUCCEEDED;
    if (fake.is_of_past_start) {
        job.elapsed_seconds = 0;
        job.accounting_final = false;
    }
    if (fake.is_of_past_start || fake.has_no_rate)
        job.steps_per_second = job.images_per_second = job.eta_seconds = 0;
    static Steadfast__V1__StepPhases phases;
    steadfast__v1__step_phases__init(&phases);
    phases.steps = 200;
    phases.compute_seconds = 8;
    phases.serialise_seconds = 0.1;
    phases.copy_seconds = 0.9;
    phases.wait_seconds = 0.6;
    phases.apply_seconds = 0.4;
    job.phases = &phases;
    job.staleness = 1.5;
    job.submitted_ms = 1700000000000;
    return &job;
}

static void fake_on_submit(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)arg;
    const Steadfast__V1__SubmitRequest *m = (const Steadfast__V1__SubmitRequest *)request->message;
    pthread_mutex_lock(&fake.lock);
    snprintf(fake.asked.spec_json, sizeof(fake.asked.spec_json), "%s", m->spec_json);
    fake.asked.resume = m->resume;
    pthread_mutex_unlock(&fake.lock);
    if (fake_fails(call))
        return;
    Steadfast__V1__SubmitReply reply = STEADFAST__V1__SUBMIT_REPLY__INIT;
    reply.job = 12;
    reply.name = WORDS("fashion-lenet");
    fake_reply(call, &reply.base);
}

static void fake_on_list(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)request;
    (void)arg;
    if (fake_fails(call))
        return;
    Steadfast__V1__JobStatus *job = (Steadfast__V1__JobStatus *)fake_job(fake.state, 2813);
    Steadfast__V1__JobStatus *jobs[2] = {job, job};
    Steadfast__V1__JobList list = STEADFAST__V1__JOB_LIST__INIT;
    list.n_jobs = 2;
    list.jobs = jobs;
    fake_reply(call, &list.base);
}

/* GetJob and CancelJob */
static void fake_on_job(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)arg;
    fake_note_job(((const Steadfast__V1__JobRef *)request->message)->job);
    if (!fake_fails(call))
        fake_reply(call, &fake_job(fake.state, 2813)->base);
}

static void fake_on_watch_end(struct rpc_call *call, bool was_cancelled, void *arg)
{
    (void)was_cancelled;
    (void)arg;
    rpc_call_unref(call);
}

static void fake_on_watch(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)arg;
    fake_note_job(((const Steadfast__V1__WatchRequest *)request->message)->job);
    if (fake_fails(call))
        return;
    for (unsigned i = 0; i < fake.watch_count; i++) {
        struct rpc_out out = {
            .message = &fake_job(STEADFAST__V1__JOB_STATE__JOB_RUNNING, 469ull * (i + 1))->base};
        CHECK(rpc_send(call, &out, NULL, NULL) == ERR_OK);
    }
    if (fake.watch_end == FAKE_WATCH_JOB_ENDS) {
        struct rpc_out out = {.message = &fake_job(fake.state, 2813)->base};
        CHECK(rpc_send(call, &out, NULL, NULL) == ERR_OK);
    }
    if (fake.watch_end ==
        FAKE_WATCH_SILENT) { /* kept open until the client or the server ends it */
        rpc_call_ref(call);
        rpc_on_end(call, fake_on_watch_end, NULL);
    } else {
        rpc_finish(call);
    }
    pthread_mutex_lock(&fake.lock);
    fake.asked.watches++;
    pthread_cond_broadcast(&fake.changed);
    pthread_mutex_unlock(&fake.lock);
}

static void fake_on_checkpoint(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)arg;
    fake_note_job(((const Steadfast__V1__JobRef *)request->message)->job);
    if (fake_fails(call))
        return;
    Steadfast__V1__CheckpointInfo info = STEADFAST__V1__CHECKPOINT_INFO__INIT;
    info.number = 5;
    info.step = 1700;
    info.path = WORDS("/nonexistent/ckpt-5");
    Steadfast__V1__CheckpointReply reply = STEADFAST__V1__CHECKPOINT_REPLY__INIT;
    reply.checkpoint = &info;
    fake_reply(call, &reply.base);
}

static void fake_on_plan(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)request;
    (void)arg;
    if (fake_fails(call))
        return;
    Steadfast__V1__ServerRef server[2] = {STEADFAST__V1__SERVER_REF__INIT,
                                          STEADFAST__V1__SERVER_REF__INIT};
    Steadfast__V1__ServerRef *servers[2] = {&server[0], &server[1]};
    server[0].name = WORDS("ps:0");
    server[1].name = WORDS("ps:1");
    uint64_t shape[2] = {3136, 512};
    Steadfast__V1__Slice slice[3] = {STEADFAST__V1__SLICE__INIT, STEADFAST__V1__SLICE__INIT,
                                     STEADFAST__V1__SLICE__INIT};
    Steadfast__V1__Slice *slices[3] = {&slice[0], &slice[1], &slice[2]};
    for (unsigned i = 0; i < 2; i++) {
        slice[i].index = i;
        slice[i].name = WORDS("dense1/kernel");
        slice[i].n_shape = 2;
        slice[i].shape = shape;
        slice[i].row_offset = i * 1568ull;
        slice[i].rows = 1568;
        slice[i].server = i;
        slice[i].trainable = true;
    }
    slice[2].index = 2;
    slice[2].name = WORDS("global_step");
    slice[2].rows = 1;
    Steadfast__V1__Plan plan = STEADFAST__V1__PLAN__INIT;
    plan.n_servers = 2;
    plan.servers = servers;
    plan.n_slices = 3;
    plan.slices = slices;
    uint64_t shard_bytes[2] = {6422532, 6422528};
    Steadfast__V1__PlanReply reply = STEADFAST__V1__PLAN_REPLY__INIT;
    reply.plan = &plan;
    reply.steps_per_epoch = 938;
    reply.steps_total = 2814;
    reply.parameters = 1605633;
    reply.shards_per_server = 1;
    reply.n_shard_bytes = 2;
    reply.shard_bytes = shard_bytes;
    fake_reply(call, &reply.base);
}

static void fake_on_cluster(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)request;
    (void)arg;
    if (fake_fails(call))
        return;
    pthread_mutex_lock(&fake.lock);
    bool is_missing = fake.asked.cluster_calls++ < fake.missing_count;
    pthread_cond_broadcast(&fake.changed);
    pthread_mutex_unlock(&fake.lock);
    char *devices[1] = {WORDS("cpu:0")};
    Steadfast__V1__MemberStatus member = STEADFAST__V1__MEMBER_STATUS__INIT;
    member.name = WORDS("worker:0");
    member.role = WORDS("worker");
    member.address = WORDS("127.0.0.1:4711");
    member.state = WORDS("attached");
    member.n_devices = 1;
    member.devices = devices;
    member.memory_bytes = 3ull << 30;
    member.pid = 4242;
    member.in_flight = 4;
    member.steps_done = 1300;
    Steadfast__V1__MemberStatus tenth = member;
    tenth.name = WORDS("worker:10");
    Steadfast__V1__MemberStatus server = STEADFAST__V1__MEMBER_STATUS__INIT;
    server.name = WORDS("ps:0");
    server.role = WORDS("ps");
    server.address = WORDS("127.0.0.1:4713");
    server.state = WORDS("attached");
    server.held_bytes = 6ull << 20;
    server.pid = 4243;
    Steadfast__V1__MemberStatus *members[3] = {&tenth, &member, &server};
    char *missing[1] = {WORDS("ps:1 at 127.0.0.1:4712")};
    Steadfast__V1__ClusterStatus reply = STEADFAST__V1__CLUSTER_STATUS__INIT;
    reply.n_members = 3;
    reply.members = members;
    reply.n_missing = is_missing ? 1 : 0;
    reply.missing = missing;
    reply.start = 3;
    reply.version = WORDS("0.1.0");
    fake_reply(call, &reply.base);
}

static void fake_add(const struct rpc_method *row,
                     void (*on_call)(struct rpc_call *call, const struct rpc_in *request,
                                     void *arg))
{
    struct rpc_method own = *row;
    own.where = RPC_INLINE;
    own.on_call = on_call;
    rpc_server_add(fake.server, &own, 1);
}

/* port 0: any. */
UNUSED static void fake_start(uint16_t port)
{
    struct err err;
    struct rpc_server_options options = {.grace_ms = 1};
    char address[64];
    if (!fake.env)
        CHECK_OK(rpc_env_new(NULL, &fake.env, &err));
    CHECK_OK(rpc_server_new(fake.env, &options, &fake.server, &err));
    fake_add(&coord_method_submit_job, fake_on_submit);
    fake_add(&coord_method_list_jobs, fake_on_list);
    fake_add(&coord_method_get_job, fake_on_job);
    fake_add(&coord_method_cancel_job, fake_on_job);
    fake_add(&coord_method_watch_job, fake_on_watch);
    fake_add(&coord_method_checkpoint_job, fake_on_checkpoint);
    fake_add(&coord_method_plan_job, fake_on_plan);
    fake_add(&coord_method_get_cluster, fake_on_cluster);
    snprintf(address, sizeof(address), "127.0.0.1:%u", port);
    CHECK_OK(rpc_server_listen(fake.server, address, &fake.port, &err));
    rpc_server_start(fake.server);
    snprintf(fake.address, sizeof(fake.address), "127.0.0.1:%u", fake.port);
}

static void fake_wait_deadline(struct timespec *ret_ts)
{
    const char *scale = getenv("TEST_TIME_SCALE");
    clock_gettime(CLOCK_REALTIME, ret_ts);
    ret_ts->tv_sec += 10l * (scale ? atoi(scale) : 1);
}

static void fake_on_drained(void *arg)
{
    pthread_mutex_lock(&fake.lock);
    *(bool *)arg = true;
    pthread_cond_broadcast(&fake.changed);
    pthread_mutex_unlock(&fake.lock);
}

/* Ends all calls and stops listening; fake_start(fake.port) is then a restart. */
UNUSED static void fake_stop(void)
{
    bool is_drained = false;
    struct timespec until;
    fake_wait_deadline(&until);
    rpc_server_drain(fake.server, fake_on_drained, &is_drained);
    pthread_mutex_lock(&fake.lock);
    while (!is_drained)
        CHECK(pthread_cond_timedwait(&fake.changed, &fake.lock, &until) == 0);
    pthread_mutex_unlock(&fake.lock);
    rpc_server_free(fake.server);
    fake.server = NULL;
}

/* Waits until `count` watches were answered. */
UNUSED static void fake_wait_watches(unsigned count)
{
    struct timespec until;
    fake_wait_deadline(&until);
    pthread_mutex_lock(&fake.lock);
    while (fake.asked.watches < count)
        CHECK(pthread_cond_timedwait(&fake.changed, &fake.lock, &until) == 0);
    pthread_mutex_unlock(&fake.lock);
}

UNUSED static void fake_done(void)
{
    if (fake.server)
        fake_stop();
    rpc_env_free(fake.env);
    fake.env = NULL;
}

/* A port that nobody listens on. Another process may take it; the tests that use it then see a
 * refusal all the same. */
UNUSED static uint16_t fake_unused_port(void)
{
    fake_start(0);
    uint16_t port = fake.port;
    fake_stop();
    return port;
}

#endif
