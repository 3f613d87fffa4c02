/* SPDX-License-Identifier: Apache-2.0 */
/* client: steadfast.h over rpc. gRPC's io thread completes the calls; the caller sleeps on a
 * condition.
 *
 * A unary call has its deadline in gRPC, so its completion always comes and the sleep needs none of
 * its own. A message is copied off the io thread by packing it again: replies are small, and the
 * copy owns its memory. */
#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/reply.h"
#include "client/steadfast.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/rpc/rpc.h"
#include "common/rpc/rpc_probe.h"
#include "common/spec/cluster_spec.h"
#include "proto/health.pb-c.h"
#include "proto/methods.h"

#define WATCH_INTERVAL_MS 1000

/* While a call waits for its answer: when to look why there is none. */
#define FIRST_LOOK_MS 300
#define LOOK_AGAIN_MS 1000
#define LOOK_LIMIT_MS 2000
#define LAST_LOOK_MS  300 /* after the end, when nothing was found before */
#define ROLE_LIMIT_MS 500

/* The public codes are ours under other names. */
static_assert((int)STEADFAST_OK == (int)ERR_OK, "codes");
static_assert((int)STEADFAST_INVALID == (int)ERR_INVALID, "codes");
static_assert((int)STEADFAST_STALE == (int)ERR_STALE, "codes");
static_assert((int)STEADFAST_UNAVAILABLE == (int)ERR_UNAVAILABLE, "codes");
static_assert((int)STEADFAST_TIMEOUT == (int)ERR_TIMEOUT, "codes");
static_assert((int)STEADFAST_CANCELLED == (int)ERR_CANCELLED, "codes");
static_assert((int)STEADFAST_NO_MEMORY + 1 == (int)ERR_CODE_COUNT, "codes");
static_assert(sizeof(((struct steadfast_error *)NULL)->text) >= ERR_TEXT_SIZE, "texts");

struct steadfast_client {
    struct rpc_env *env;
    struct rpc_channel *channel;
    char address[LIMIT_ADDRESS_BYTES];
};

static enum steadfast_code hand_out(struct steadfast_error *ret_err, enum err_code code,
                                    const struct err *err)
{
    if (ret_err && code != ERR_OK) {
        ret_err->code = (enum steadfast_code)code;
        snprintf(ret_err->text, sizeof(ret_err->text), "%s", err->text);
    }
    return (enum steadfast_code)code;
}

const char *steadfast_code_name(enum steadfast_code code)
{
    return err_name((enum err_code)code);
}

/* ---- connection --------------------------------------------------------------------------------
 */
enum steadfast_code steadfast_connect(const char *address, struct steadfast_client **ret_client,
                                      struct steadfast_error *ret_err)
{
    struct err err = {0};
    char host[LIMIT_ADDRESS_BYTES];
    uint16_t port;
    enum err_code code = address_split(address, host, sizeof(host), &port, &err);
    if (code != ERR_OK)
        return hand_out(ret_err, code, &err);
    struct steadfast_client *client = calloc(1, sizeof(*client));
    if (!client)
        return hand_out(ret_err, err_set(&err, ERR_NO_MEMORY, "no memory for a client"), &err);
    snprintf(client->address, sizeof(client->address), "%s", address);
    code = rpc_env_new(NULL, &client->env, &err);
    if (code == ERR_OK)
        code = rpc_channel_new(client->env, address, NULL, &client->channel, &err);
    if (code != ERR_OK) {
        steadfast_close(client);
        return hand_out(ret_err, code, &err);
    }
    *ret_client = client;
    return STEADFAST_OK;
}

void steadfast_close(struct steadfast_client *client)
{
    if (!client)
        return;
    if (client->channel)
        rpc_channel_free(client->channel);
    if (client->env)
        rpc_env_free(client->env);
    free(client);
}

/* ---- one unary call ----------------------------------------------------------------------------
 */
struct wait {
    pthread_mutex_t lock; /* guards the rest; nothing is taken under it */
    pthread_cond_t changed;
    ProtobufCMessage *message; /* owned; of a watch: the newest not yet given to the caller */
    bool is_over;
    struct err status;      /* valid when is_over */
    bool is_unknown;        /* valid when is_over: a gRPC server without our method */
    struct rpc_probe probe; /* the caller's thread: what was found while it waited */
};

static void wait_init(struct wait *wait)
{
    memset(wait, 0, sizeof(*wait));
    pthread_mutex_init(&wait->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&wait->changed, &attr);
    pthread_condattr_destroy(&attr);
}

static void wait_done(struct wait *wait)
{
    protobuf_c_message_free_unpacked(wait->message, NULL);
    pthread_cond_destroy(&wait->changed);
    pthread_mutex_destroy(&wait->lock);
}

/* NULL: no memory. */
static ProtobufCMessage *copy_message(const ProtobufCMessage *message)
{
    size_t bytes = protobuf_c_message_get_packed_size(message);
    AUTO_MEM uint8_t *packed = malloc(bytes ? bytes : 1);
    if (!packed)
        return NULL;
    protobuf_c_message_pack(message, packed);
    return protobuf_c_message_unpack(message->descriptor, NULL, bytes, packed);
}

static void finish(struct wait *wait, const struct err *status)
{
    pthread_mutex_lock(&wait->lock);
    wait->status = *status;
    wait->is_over = true;
    pthread_cond_signal(&wait->changed);
    pthread_mutex_unlock(&wait->lock);
}

/* io thread */
static void on_unary_done(void *arg, const struct err *status, const struct rpc_in *reply)
{
    struct wait *wait = arg;
    struct err end = *status;
    if (status->code == ERR_OK) {
        wait->message = copy_message(reply->message); /* nobody else looks before is_over */
        if (!wait->message)
            err_set(&end, ERR_NO_MEMORY, "no memory for the coordinator's answer");
    }
    finish(wait, &end);
}

/* Under the lock. False: it is time. */
static bool sleep_until(struct wait *wait, uint64_t deadline_ns)
{
    struct timespec ts = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
                          .tv_nsec = (long)(deadline_ns % NS_PER_S)};
    return pthread_cond_timedwait(&wait->changed, &wait->lock, &ts) == 0;
}

/* ---- why there is no answer --------------------------------------------------------------------
 */
static bool wait_is_over(void *arg)
{
    struct wait *wait = arg;
    pthread_mutex_lock(&wait->lock);
    bool is_over = wait->is_over;
    pthread_mutex_unlock(&wait->lock);
    return is_over;
}

static void look(const struct steadfast_client *client, uint32_t limit_ms,
                 bool (*is_over)(void *arg), struct wait *wait)
{
    struct rpc_probe probe;
    rpc_probe_address(client->address, limit_ms, is_over, wait, &probe);
    if (probe.kind != RPC_PROBE_CUT)
        wait->probe = probe;
}

/* Sleeps until the call is over; looks now and then why it is not. */
static void await(const struct steadfast_client *client, uint32_t timeout_ms, struct wait *wait)
{
    uint64_t now_ns = clock_now_ns(), end_ns = now_ns + timeout_ms * NS_PER_MS;
    uint64_t look_ns = now_ns + MIN(timeout_ms / 4, (uint32_t)FIRST_LOOK_MS) * NS_PER_MS;
    pthread_mutex_lock(&wait->lock);
    while (!wait->is_over) {
        bool wants_look = wait->probe.kind != RPC_PROBE_HTTP2 && look_ns < end_ns;
        if (!wants_look) {
            pthread_cond_wait(&wait->changed, &wait->lock); /* the call's own deadline ends it */
            continue;
        }
        if (sleep_until(wait, look_ns) || wait->is_over)
            continue;
        pthread_mutex_unlock(&wait->lock);
        now_ns = clock_now_ns();
        if (now_ns < end_ns)
            look(client, (uint32_t)MIN((end_ns - now_ns) / NS_PER_MS, LOOK_LIMIT_MS), wait_is_over,
                 wait);
        look_ns = clock_now_ns() + LOOK_AGAIN_MS * NS_PER_MS;
        pthread_mutex_lock(&wait->lock);
    }
    pthread_mutex_unlock(&wait->lock);
}

static bool has_service(const struct steadfast_client *client, const char *service)
{
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    request.service = (char *)service;
    struct rpc_out out = {.message = &request.base};
    ProtobufCMessage *reply;
    if (rpc_invoke_sync(client->channel, &health_check, &out, ROLE_LIMIT_MS, &reply, NULL) !=
        ERR_OK)
        return false;
    protobuf_c_message_free_unpacked(reply, NULL);
    return true;
}

/* A gRPC server that does not know our method: who is it? */
static enum err_code name_stranger(const struct steadfast_client *client, struct err *err)
{
    static const struct {
        const char *service;
        const char *text;
    } known[] = {
        {"steadfast.v1.ParameterServer", "it is a parameter server (psd)"},
        {"steadfast.v1.Worker", "it is a worker (workerd)"},
        {"steadfast.v1.Coordinator", "it is a coordinator of another version, without this call"},
    };
    const char *text = "it is another program: a gRPC server without steadfast.v1.Coordinator";
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (has_service(client, known[i].service)) {
            text = known[i].text;
            break;
        }
    return err_set(err, ERR_INVALID, "coordinator %s: %s; want the address of a coordinator",
                   client->address, text);
}

/* gRPC's own failures begin with the address already: it is said once. */
static void name_coordinator(const struct steadfast_client *client, const char *why,
                             struct err *err)
{
    size_t length = strlen(client->address);
    bool is_named = strncmp(err->text, client->address, length) == 0 && err->text[length] == ' ';
    struct err named;
    err_set(&named, err->code, "coordinator %s%s%.240s%s%s", client->address, is_named ? "" : ": ",
            err->text + (is_named ? length : 0), why[0] ? ": " : "", why);
    *err = named;
}

/* Says whom we waited for, how long and why in vain; gRPC's words for a missing peer say none of
 * it. */
static enum err_code explain(const struct steadfast_client *client, uint32_t timeout_ms,
                             struct wait *wait, struct err *err)
{
    char why[ERR_TEXT_SIZE];
    if (wait->is_unknown)
        return name_stranger(client, err);
    if (err->code != ERR_TIMEOUT && err->code != ERR_UNAVAILABLE)
        return err->code;
    if (err->code == ERR_UNAVAILABLE || wait->probe.kind == RPC_PROBE_CUT)
        look(client, LAST_LOOK_MS, NULL, wait);
    rpc_probe_say(&wait->probe, why, sizeof(why));
    if (err->code == ERR_TIMEOUT)
        err_set(err, ERR_TIMEOUT, "coordinator %s: no answer within %u ms: %s", client->address,
                timeout_ms, why);
    else
        name_coordinator(client, wait->probe.kind == RPC_PROBE_HTTP2 ? "" : why, err);
    if (wait->probe.kind == RPC_PROBE_OTHER) /* waiting longer would not help */
        err->code = ERR_INVALID;
    return err->code;
}

static enum err_code call(struct steadfast_client *client, const struct rpc_method *method,
                          const ProtobufCMessage *request, uint32_t timeout_ms,
                          ProtobufCMessage **ret_reply, struct err *err)
{
    struct wait wait;
    wait_init(&wait);
    struct rpc_out out = {.message = request};
    struct rpc_call_options options = {.timeout_ms = timeout_ms,
                                       .wait_for_ready = true,
                                       .where = RPC_INLINE,
                                       .ret_is_unknown = &wait.is_unknown};
    enum err_code code =
        rpc_invoke(client->channel, method, &out, &options, on_unary_done, &wait, err);
    if (code == ERR_OK) {
        await(client, timeout_ms, &wait);
        code = wait.status.code;
        if (code == ERR_OK) {
            *ret_reply = TAKE(wait.message);
        } else {
            *err = wait.status;
            code = explain(client, timeout_ms, &wait, err);
            ASSERT(code != ERR_OK);
        }
    }
    wait_done(&wait);
    return code;
}

/* ---- jobs --------------------------------------------------------------------------------------
 */
enum steadfast_code steadfast_submit(struct steadfast_client *client, const char *spec_json,
                                     bool resume, uint32_t timeout_ms, uint64_t *ret_id,
                                     struct steadfast_error *ret_err)
{
    struct err err = {0};
    Steadfast__V1__SubmitRequest request = STEADFAST__V1__SUBMIT_REQUEST__INIT;
    request.spec_json = (char *)spec_json;
    request.resume = resume;
    ProtobufCMessage *reply;
    enum err_code code =
        call(client, &coord_method_submit_job, &request.base, timeout_ms, &reply, &err);
    if (code == ERR_OK) {
        *ret_id = ((const Steadfast__V1__SubmitReply *)reply)->job;
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    return hand_out(ret_err, code, &err);
}

enum steadfast_code steadfast_list(struct steadfast_client *client, uint32_t timeout_ms,
                                   struct steadfast_job_list **ret_list,
                                   struct steadfast_error *ret_err)
{
    struct err err = {0};
    Steadfast__V1__ListRequest request = STEADFAST__V1__LIST_REQUEST__INIT;
    ProtobufCMessage *reply;
    enum err_code code =
        call(client, &coord_method_list_jobs, &request.base, timeout_ms, &reply, &err);
    if (code == ERR_OK)
        code = reply_to_job_list((Steadfast__V1__JobList *)reply, ret_list, &err);
    return hand_out(ret_err, code, &err);
}

/* GetJob and CancelJob have the same shape. */
static enum steadfast_code ask_job(struct steadfast_client *client, const struct rpc_method *method,
                                   const char *job, uint32_t timeout_ms,
                                   struct steadfast_job **ret_job, struct steadfast_error *ret_err)
{
    struct err err = {0};
    Steadfast__V1__JobRef request = STEADFAST__V1__JOB_REF__INIT;
    request.job = (char *)job;
    ProtobufCMessage *reply;
    enum err_code code = call(client, method, &request.base, timeout_ms, &reply, &err);
    struct steadfast_job *status = NULL;
    if (code == ERR_OK)
        code = reply_to_job((Steadfast__V1__JobStatus *)reply, &status, &err);
    if (code == ERR_OK && ret_job)
        *ret_job = TAKE(status);
    steadfast_job_free(status);
    return hand_out(ret_err, code, &err);
}

enum steadfast_code steadfast_status(struct steadfast_client *client, const char *job,
                                     uint32_t timeout_ms, struct steadfast_job **ret_job,
                                     struct steadfast_error *err)
{
    return ask_job(client, &coord_method_get_job, job, timeout_ms, ret_job, err);
}

enum steadfast_code steadfast_cancel(struct steadfast_client *client, const char *job,
                                     uint32_t timeout_ms, struct steadfast_job **ret_job,
                                     struct steadfast_error *err)
{
    return ask_job(client, &coord_method_cancel_job, job, timeout_ms, ret_job, err);
}

static enum err_code copy_checkpoint(const Steadfast__V1__CheckpointInfo *info,
                                     struct steadfast_checkpoint_done *ret_done, struct err *err)
{
    if (!info)
        return err_set(err, ERR_CORRUPT, "the coordinator's answer names no checkpoint");
    if (strlen(info->path) >= sizeof(ret_done->path))
        return err_set(err, ERR_CORRUPT,
                       "checkpoint %" PRIu64 ": path of %zu bytes, want under %zu", info->number,
                       strlen(info->path), sizeof(ret_done->path));
    ret_done->number = info->number;
    ret_done->step = info->step;
    snprintf(ret_done->path, sizeof(ret_done->path), "%s", info->path);
    return ERR_OK;
}

enum steadfast_code steadfast_checkpoint_job(struct steadfast_client *client, const char *job,
                                             uint32_t timeout_ms,
                                             struct steadfast_checkpoint_done *ret_checkpoint,
                                             struct steadfast_error *ret_err)
{
    struct err err = {0};
    Steadfast__V1__JobRef request = STEADFAST__V1__JOB_REF__INIT;
    request.job = (char *)job;
    ProtobufCMessage *reply;
    enum err_code code =
        call(client, &coord_method_checkpoint_job, &request.base, timeout_ms, &reply, &err);
    if (code != ERR_OK)
        return hand_out(ret_err, code, &err);
    code = copy_checkpoint(((const Steadfast__V1__CheckpointReply *)reply)->checkpoint,
                           ret_checkpoint, &err);
    protobuf_c_message_free_unpacked(reply, NULL);
    return hand_out(ret_err, code, &err);
}

enum steadfast_code steadfast_plan_job(struct steadfast_client *client, const char *spec_json,
                                       uint32_t timeout_ms, struct steadfast_plan **ret_plan,
                                       struct steadfast_error *ret_err)
{
    struct err err = {0};
    Steadfast__V1__SubmitRequest request = STEADFAST__V1__SUBMIT_REQUEST__INIT;
    request.spec_json = (char *)spec_json;
    ProtobufCMessage *reply;
    enum err_code code =
        call(client, &coord_method_plan_job, &request.base, timeout_ms, &reply, &err);
    if (code == ERR_OK)
        code = reply_to_plan((Steadfast__V1__PlanReply *)reply, ret_plan, &err);
    return hand_out(ret_err, code, &err);
}

enum steadfast_code steadfast_get_cluster(struct steadfast_client *client, uint32_t timeout_ms,
                                          struct steadfast_cluster **ret_cluster,
                                          struct steadfast_error *ret_err)
{
    struct err err = {0};
    Steadfast__V1__ClusterRequest request = STEADFAST__V1__CLUSTER_REQUEST__INIT;
    ProtobufCMessage *reply;
    enum err_code code =
        call(client, &coord_method_get_cluster, &request.base, timeout_ms, &reply, &err);
    if (code == ERR_OK)
        code = reply_to_cluster((Steadfast__V1__ClusterStatus *)reply, ret_cluster, &err);
    return hand_out(ret_err, code, &err);
}

/* ---- watch -------------------------------------------------------------------------------------
 */
/* io thread: keeps the newest status only, so a slow caller costs no memory. */
static void on_watch_message(struct rpc_ccall *call, const struct rpc_in *in, void *arg)
{
    struct wait *wait = arg;
    if (!in || !in->message)
        return; /* the stream is ending; on_watch_end says how */
    ProtobufCMessage *copy = copy_message(in->message);
    if (copy) {
        pthread_mutex_lock(&wait->lock);
        ProtobufCMessage *old = wait->message;
        wait->message = copy;
        pthread_cond_signal(&wait->changed);
        pthread_mutex_unlock(&wait->lock);
        protobuf_c_message_free_unpacked(old, NULL);
    }
    rpc_crecv(call, on_watch_message, wait);
}

/* io thread, last */
static void on_watch_end(void *arg, const struct err *status, const struct rpc_in *reply)
{
    (void)reply;
    finish(arg, status);
}

/* Hands statuses to the caller until the stream is over, the caller has enough, or silence. */
static enum err_code deliver(struct wait *wait, uint32_t silence_ms,
                             bool (*on_status)(const struct steadfast_job *job, void *arg),
                             void *arg, bool *ret_has_ended, struct err *err)
{
    for (;;) {
        uint64_t deadline_ns = clock_now_ns() + silence_ms * NS_PER_MS;
        pthread_mutex_lock(&wait->lock);
        bool is_awake = true;
        while (!wait->message && !wait->is_over && is_awake)
            is_awake = sleep_until(wait, deadline_ns);
        ProtobufCMessage *message = TAKE(wait->message);
        bool is_over = wait->is_over;
        pthread_mutex_unlock(&wait->lock);
        if (!message && is_over)
            return wait->status.code == ERR_OK ? ERR_OK : (*err = wait->status, err->code);
        if (!message)
            return err_set(err, ERR_TIMEOUT, "nothing heard for %u ms", silence_ms);
        struct steadfast_job *job;
        enum err_code code = reply_to_job((Steadfast__V1__JobStatus *)message, &job, err);
        if (code != ERR_OK)
            return code;
        *ret_has_ended = steadfast_job_has_ended(job->state);
        bool wants_more = on_status(job, arg);
        steadfast_job_free(job);
        if (!wants_more)
            return err_set(err, ERR_CANCELLED, "the caller has seen enough");
    }
}

static enum err_code explain_watch(const struct steadfast_client *client, struct wait *wait,
                                   struct err *err)
{
    char why[ERR_TEXT_SIZE];
    if (wait->is_unknown)
        return name_stranger(client, err);
    if (err->code != ERR_TIMEOUT && err->code != ERR_UNAVAILABLE)
        return err->code;
    look(client, LAST_LOOK_MS, NULL, wait);
    bool is_there = wait->probe.kind == RPC_PROBE_HTTP2;
    name_coordinator(client, is_there ? "" : rpc_probe_say(&wait->probe, why, sizeof(why)), err);
    if (wait->probe.kind == RPC_PROBE_OTHER)
        err->code = ERR_INVALID;
    return err->code;
}

enum steadfast_code steadfast_watch(struct steadfast_client *client, const char *job,
                                    uint32_t interval_ms, uint32_t silence_ms,
                                    bool (*on_status)(const struct steadfast_job *job, void *arg),
                                    void *arg, struct steadfast_error *ret_err)
{
    struct err err = {0};
    struct wait wait;
    wait_init(&wait);
    Steadfast__V1__WatchRequest request = STEADFAST__V1__WATCH_REQUEST__INIT;
    request.job = (char *)job;
    request.interval_ms = interval_ms ? interval_ms : WATCH_INTERVAL_MS;
    struct rpc_out out = {.message = &request.base};
    struct rpc_call_options options = {.timeout_ms = UINT32_MAX,
                                       .wait_for_ready = true,
                                       .where = RPC_INLINE,
                                       .ret_is_unknown = &wait.is_unknown};
    struct rpc_ccall *stream;
    enum err_code code = rpc_open(client->channel, &coord_method_watch_job, &out, &options,
                                  on_watch_end, &wait, &stream, &err);
    if (code == ERR_OK) {
        bool has_ended = false;
        rpc_crecv(stream, on_watch_message, &wait);
        code = deliver(&wait, silence_ms, on_status, arg, &has_ended, &err);
        if (code == ERR_OK && !has_ended)
            code = err_set(&err, ERR_UNAVAILABLE,
                           "the coordinator ended the stream before the job ended");
        /* The stream writes to `wait` until it is over, which a cancelled one is at once. */
        rpc_cancel(stream);
        pthread_mutex_lock(&wait.lock);
        while (!wait.is_over)
            pthread_cond_wait(&wait.changed, &wait.lock);
        pthread_mutex_unlock(&wait.lock);
        rpc_ccall_unref(stream);
        if (code != ERR_OK)
            code = explain_watch(client, &wait, &err);
    }
    wait_done(&wait);
    return hand_out(ret_err, code, &err);
}
