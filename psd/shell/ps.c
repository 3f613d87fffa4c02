/* SPDX-License-Identifier: Apache-2.0 */
/* ps: start in the order env, shards, server, member; stop in reverse, each step when the one
 * before is done. */
#include "psd/shell/ps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/loop/loop.h"
#include "common/spec/address.h"
#include "proto/health_service.h"
#include "proto/reflection_service.h"
#include "psd/exchange/ps_exchange.h"
#include "psd/shell/member.h"
#include "psd/shell/ps_int.h"

static void on_order_done(const Steadfast__V1__OrderDone *done, void *arg)
{
    struct ps *ps = arg;
    member_answer(ps->member, done);
}

static void on_session_fenced(uint64_t session, void *arg)
{
    struct ps *ps = arg;
    ps_exchange_end_session(ps->exchange, session);
}

/* Shards, and what works on them. */
static void make_rooms(struct ps *ps, const struct ps_options *options)
{
    ps->values = budget_new(options->memory_bytes, false);
    ps->grads = budget_new(options->inflight_bytes, true);
    ps->shards = base_alloc(options->shard_count * sizeof(struct shard *));
    ps->shard_count = options->shard_count;
    for (uint32_t i = 0; i < ps->shard_count; i++)
        ps->shards[i] = shard_new(
            &(struct shard_options){.index = i, .values = ps->values, .grads = ps->grads});
    ps->exchange =
        ps_exchange_new(&(struct ps_exchange_options){.loop = ps->loop,
                                                      .name = ps->name,
                                                      .shards = ps->shards,
                                                      .shard_count = ps->shard_count,
                                                      .inflight_bytes = options->inflight_bytes,
                                                      .pull_stall_ms = options->pull_stall_ms});
    ps->orders = ps_orders_new(&(struct ps_order_env){.rpc = ps->env,
                                                      .name = ps->name,
                                                      .shards = ps->shards,
                                                      .shard_count = ps->shard_count,
                                                      .values = ps->values,
                                                      .on_done = on_order_done,
                                                      .end_session = on_session_fenced,
                                                      .arg = ps});
}

enum err_code ps_new(const struct ps_options *options, struct ps **ret_ps, struct err *err)
{
    if (options->shard_count == 0 || options->shard_count > LIMIT_SHARDS_PER_SERVER)
        return err_set(err, ERR_INVALID, "%u shards, want 1 to %d", options->shard_count,
                       LIMIT_SHARDS_PER_SERVER);
    AUTO(ps) ps = base_alloc(sizeof(*ps));
    ps->loop = options->loop;
    ps->env = options->env;
    ps->on_fatal = options->on_fatal;
    ps->on_fatal_arg = options->on_fatal_arg;
    ps->name = base_strdup(options->name);
    ps->coordinator = base_strdup(options->coordinator);
    ps->coordinator_name = base_strdup(options->coordinator_name);

    enum err_code code = rpc_server_new(ps->env, NULL, &ps->server, err);
    if (code != ERR_OK)
        return code;
    uint16_t port = 0;
    code = rpc_server_listen(ps->server, options->listen, &port, err);
    if (code != ERR_OK)
        return code;
    ps->address =
        options->advertise ? base_strdup(options->advertise) : address_bound(options->listen, port);
    make_rooms(ps, options);
    ps_exchange_add(ps->exchange, ps->server);
    ps->health = health_service_new();
    health_service_add(ps->health, ps->server);
    reflection_service_add(ps->server);
    health_service_set(ps->health, "", true);
    health_service_set(ps->health, "steadfast.v1.ParameterServer", true);
    code = member_new(ps, &ps->member, err);
    if (code != ERR_OK)
        return code;
    *ret_ps = TAKE(ps);
    return ERR_OK;
}

const char *ps_coordinator(const struct ps *ps)
{
    return ps->coordinator;
}

const char *ps_address(const struct ps *ps)
{
    return ps->address;
}

void ps_start(struct ps *ps)
{
    ps->is_started = true;
    rpc_server_start(ps->server);
    ps_exchange_start(ps->exchange);
    member_start(ps->member);
}

static void on_last(void *arg)
{
    struct ps *ps = arg;
    if (ps_orders_stop(ps->orders))
        ps->on_stopped(ps->on_stopped_arg);
    else
        rpc_env_post(ps->env, on_last, ps); /* behind what the shards have posted */
}

static void on_drained(void *arg)
{
    struct ps *ps = arg;
    for (uint32_t i = 0; i < ps->shard_count; i++)
        shard_stop(ps->shards[i]);
    on_last(ps);
}

static void on_member_stopped(void *arg)
{
    struct ps *ps = arg;
    health_service_drain(ps->health);
    rpc_server_drain(ps->server, on_drained, ps);
}

void ps_stop(struct ps *ps, void (*on_stopped)(void *arg), void *arg)
{
    ASSERT(ps->is_started && !ps->on_stopped);
    ps->on_stopped = on_stopped;
    ps->on_stopped_arg = arg;
    member_stop(ps->member, on_member_stopped, ps);
}

void ps_free(struct ps *ps)
{
    if (!ps)
        return;
    for (uint32_t i = 0; ps->shards && i < ps->shard_count; i++)
        shard_free(ps->shards[i]);
    rpc_server_free(ps->server);
    health_service_free(ps->health);
    ps_orders_free(ps->orders);
    member_free(ps->member);
    ps_exchange_free(ps->exchange);
    budget_free(ps->grads);
    budget_free(ps->values);
    free(ps->shards);
    free(ps->name);
    free(ps->address);
    free(ps->coordinator);
    free(ps->coordinator_name);
    free(ps);
}
