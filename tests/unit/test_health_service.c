/* SPDX-License-Identifier: Apache-2.0 */
/* health_service: Check and Watch as a standard client sees them. */
#include "common/base/limits.h"
#include "proto/health.pb-c.h"
#include "proto/health_service.h"
#include "tests/unit/rpc_fixture.h"

typedef Grpc__Health__V1__HealthCheckRequest Request;
typedef Grpc__Health__V1__HealthCheckResponse Response;

#define SERVING         GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
#define NOT_SERVING     GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING
#define SERVICE_UNKNOWN GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN

static struct health_service *health;

static void start(void)
{
    fx_new_server(300);
    health = health_service_new();
    health_service_add(health, fx.server);
    fx_start_server();
}

static void stop(void)
{
    fx_stop();
    health_service_free(health);
}

struct check {
    bool is_done;
    struct err status;
    int serving;
};

static void on_checked(void *arg, const struct err *status, const struct rpc_in *reply)
{
    struct check *check = arg;
    check->is_done = true;
    check->status = *status;
    check->serving = reply ? (int)((const Response *)reply->message)->status : -1;
}

static struct check check(const char *service)
{
    struct err err;
    struct check result = {0};
    Request request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    request.service = (char *)service;
    struct rpc_call_options options = {.timeout_ms = 5000};
    CHECK_OK(rpc_invoke(fx.channel, &health_check, &(struct rpc_out){.message = &request.base},
                        &options, on_checked, &result, &err));
    WAIT_UNTIL(result.is_done);
    return result;
}

TEST(check_answers_each_service_and_refuses_unknown_ones)
{
    start();
    health_service_set(health, "", true);
    health_service_set(health, "steadfast.v1.Fleet", false);
    CHECK(check("").serving == SERVING);
    CHECK(check("steadfast.v1.Fleet").serving == NOT_SERVING);
    struct check unknown = check("nobody");
    CHECK(unknown.status.code == ERR_NOT_FOUND);
    CHECK_STR(unknown.status.text, "no service \"nobody\" here");
    health_service_set(health, "", false);
    CHECK(check("").serving == NOT_SERVING);
    stop();
}

struct watch {
    struct rpc_ccall *call;
    int seen[8];
    size_t count;
    struct answer end;
};

static void on_status(struct rpc_ccall *call, const struct rpc_in *in, void *arg)
{
    struct watch *watch = arg;
    if (!in)
        return;
    CHECK(watch->count < ARRAY_SIZE(watch->seen));
    watch->seen[watch->count++] = (int)((const Response *)in->message)->status;
    rpc_crecv(call, on_status, watch);
}

static void open_watch(const char *service, struct watch *watch)
{
    struct err err;
    Request request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    request.service = (char *)service;
    struct rpc_call_options options = {.timeout_ms = UINT32_MAX};
    CHECK_OK(rpc_open(fx.channel, &health_watch, &(struct rpc_out){.message = &request.base},
                      &options, on_answer, &watch->end, &watch->call, &err));
    rpc_crecv(watch->call, on_status, watch);
}

TEST(watch_tells_every_change_and_a_drain_ends_it)
{
    struct watch watch = {0};
    start();
    open_watch("a", &watch);
    WAIT_UNTIL(watch.count == 1);
    CHECK(watch.seen[0] == SERVICE_UNKNOWN);
    health_service_set(health, "a", true);
    WAIT_UNTIL(watch.count == 2);
    health_service_set(health, "a", true); /* no change, no message */
    health_service_set(health, "b", true); /* not what is watched */
    health_service_set(health, "a", false);
    WAIT_UNTIL(watch.count == 3);
    health_service_set(health, "a", true);
    WAIT_UNTIL(watch.count == 4);
    CHECK(watch.seen[1] == SERVING && watch.seen[2] == NOT_SERVING && watch.seen[3] == SERVING);
    health_service_drain(health);
    health_service_set(health, "a", true); /* too late */
    CHECK(check("a").serving == NOT_SERVING);
    WAIT_UNTIL(watch.end.is_done);
    CHECK(watch.end.status.code == ERR_OK);
    CHECK_U64(watch.count, 5);
    CHECK(watch.seen[4] == NOT_SERVING);
    rpc_ccall_unref(watch.call);
    stop();
}

TEST(watchers_are_bounded_and_a_gone_one_makes_room)
{
    static struct watch watches[LIMIT_HEALTH_WATCHERS + 1];
    start();
    for (size_t i = 0; i < LIMIT_HEALTH_WATCHERS; i++) {
        open_watch("", &watches[i]);
        WAIT_UNTIL(watches[i].count == 1);
    }
    struct watch *extra = &watches[LIMIT_HEALTH_WATCHERS];
    open_watch("", extra);
    WAIT_UNTIL(extra->end.is_done);
    CHECK(extra->end.status.code == ERR_FULL);
    rpc_ccall_unref(extra->call);

    rpc_cancel(watches[0].call);
    WAIT_UNTIL(watches[0].end.is_done);
    /* The server hears of it on its own time: try until it has. */
    do {
        *extra = (struct watch){0};
        open_watch("", extra);
        WAIT_UNTIL(extra->end.is_done || extra->count == 1);
        if (extra->end.is_done)
            rpc_ccall_unref(extra->call);
    } while (extra->end.is_done);
    for (size_t i = 0; i < ARRAY_SIZE(watches); i++) {
        rpc_cancel(watches[i].call);
        WAIT_UNTIL(watches[i].end.is_done);
        rpc_ccall_unref(watches[i].call);
    }
    stop();
}
