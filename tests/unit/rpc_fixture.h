/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_fixture: a loop, an env, a server and a channel to it in one process; for tests of rpc. */
#ifndef TESTS_UNIT_RPC_FIXTURE_H
#define TESTS_UNIT_RPC_FIXTURE_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/rpc/rpc.h"
#include "proto/coord.pb-c.h"
#include "proto/fleet.pb-c.h"
#include "proto/methods.h"
#include "proto/ps.pb-c.h"
#include "tests/harness.h"

struct fixture {
    uv_loop_t loop;
    uv_timer_t tick; /* so that a wait on the io thread's flags looks again */
    struct rpc_env *env;
    struct rpc_server *server;
    struct rpc_channel *channel;
    uint16_t port;
    char address[64];
};

static struct fixture fx;

static void fx_on_tick(uv_timer_t *timer)
{
    (void)timer;
}

static uint64_t fx_scaled_ns(uint64_t seconds)
{
    const char *scale = getenv("TEST_TIME_SCALE");
    return seconds * NS_PER_S * (scale ? (uint64_t)atoi(scale) : 1);
}

/* Runs the loop until cond or 10 s. */
#define WAIT_UNTIL(cond)                                                                           \
    do {                                                                                           \
        uint64_t until_ = clock_now_ns() + fx_scaled_ns(10);                                       \
        while (!(cond)) {                                                                          \
            if (clock_now_ns() > until_)                                                           \
                test_fail(__FILE__, __LINE__, "waited too long for %s", #cond);                    \
            uv_run(&fx.loop, UV_RUN_ONCE);                                                         \
        }                                                                                          \
    } while (0)

UNUSED static void fx_client_start(void)
{
    struct err err;
    rpc_process_init();
    uv_loop_init(&fx.loop);
    uv_timer_init(&fx.loop, &fx.tick);
    uv_timer_start(&fx.tick, fx_on_tick, 2, 2);
    CHECK_OK(rpc_env_new(&fx.loop, &fx.env, &err));
}

UNUSED static void fx_connect(uint16_t port)
{
    struct err err;
    snprintf(fx.address, sizeof(fx.address), "127.0.0.1:%u", port);
    CHECK_OK(rpc_channel_new(fx.env, fx.address, NULL, &fx.channel, &err));
}

UNUSED static void fx_new_server(uint32_t grace_ms)
{
    struct err err;
    fx_client_start();
    struct rpc_server_options options = {.grace_ms = grace_ms};
    CHECK_OK(rpc_server_new(fx.env, &options, &fx.server, &err));
}

UNUSED static void fx_start_server(void)
{
    struct err err;
    CHECK_OK(rpc_server_listen(fx.server, "127.0.0.1:0", &fx.port, &err));
    CHECK(fx.port != 0);
    rpc_server_start(fx.server);
    fx_connect(fx.port);
}

static void fx_set_flag(void *arg)
{
    *(bool *)arg = true;
}

UNUSED static void fx_stop_server(void)
{
    bool is_drained = false;
    rpc_server_drain(fx.server, fx_set_flag, &is_drained);
    WAIT_UNTIL(is_drained);
    rpc_server_free(fx.server);
    fx.server = NULL;
}

UNUSED static void fx_stop(void)
{
    rpc_channel_free(fx.channel);
    if (fx.server)
        fx_stop_server();
    uv_close((uv_handle_t *)&fx.tick, NULL);
    rpc_env_free(fx.env);
    uv_run(&fx.loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&fx.loop) == 0);
}

/* A done callback's answer, kept. */
struct answer {
    atomic_bool is_done;
    struct err status;
    char text[256]; /* SubmitReply.name */
    uint64_t number;
    pthread_t thread;
};

UNUSED static void on_answer(void *arg, const struct err *status, const struct rpc_in *reply)
{
    struct answer *answer = arg;
    CHECK(!answer->is_done);
    CHECK((status->code == ERR_OK) || !reply);
    answer->status = *status;
    answer->thread = pthread_self();
    if (reply && reply->message->descriptor == &steadfast__v1__submit_reply__descriptor) {
        const Steadfast__V1__SubmitReply *m = (const Steadfast__V1__SubmitReply *)reply->message;
        snprintf(answer->text, sizeof(answer->text), "%s", m->name);
        answer->number = m->job;
    }
    if (reply && reply->message->descriptor == &steadfast__v1__push_reply__descriptor)
        answer->number = ((const Steadfast__V1__PushReply *)reply->message)->version;
    atomic_store(&answer->is_done, true);
}

/* SubmitJob with spec_json = text. */
UNUSED static void fx_submit(const char *text, uint32_t timeout_ms, enum rpc_where where,
                             struct answer *answer)
{
    struct err err;
    Steadfast__V1__SubmitRequest request = STEADFAST__V1__SUBMIT_REQUEST__INIT;
    request.spec_json = (char *)text;
    struct rpc_out out = {.message = &request.base};
    struct rpc_call_options options = {.timeout_ms = timeout_ms, .where = where};
    CHECK_OK(
        rpc_invoke(fx.channel, &coord_method_submit_job, &out, &options, on_answer, answer, &err));
}

UNUSED static void fx_reply_submit(struct rpc_call *call, const char *text, uint64_t number)
{
    Steadfast__V1__SubmitReply reply = STEADFAST__V1__SUBMIT_REPLY__INIT;
    reply.name = (char *)text;
    reply.job = number;
    rpc_reply(call, &(struct rpc_out){.message = &reply.base});
}

#endif
