/* SPDX-License-Identifier: Apache-2.0 */
/* ps_exchange: pulls and pushes behind one door. */
#include "psd/exchange/ps_exchange.h"

#include <stdlib.h>

#include "proto/methods.h"
#include "psd/exchange/ps_exchange_int.h"

struct ps_exchange {
    struct ps_target target;
    struct ps_pulls *pulls;
    struct ps_pushes *pushes;
};

struct ps_exchange *ps_exchange_new(const struct ps_exchange_options *options)
{
    struct ps_exchange *exchange = base_alloc(sizeof(*exchange));
    exchange->target = (struct ps_target){
        .name = options->name, .shards = options->shards, .shard_count = options->shard_count};
    exchange->pulls = ps_pulls_new(&exchange->target, options->loop, options->pull_stall_ms);
    exchange->pushes = ps_pushes_new(&exchange->target, options->inflight_bytes);
    return exchange;
}

void ps_exchange_add(struct ps_exchange *exchange, struct rpc_server *server)
{
    struct rpc_method rows[] = {ps_method_pull, ps_method_push};
    rows[0].on_call = ps_pull_on_call;
    rows[0].arg = exchange->pulls;
    rows[1].on_call = ps_push_on_call;
    rows[1].arg = exchange->pushes;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        rows[i].where = RPC_INLINE;
    rpc_server_add(server, rows, ARRAY_SIZE(rows));
}

void ps_exchange_start(struct ps_exchange *exchange)
{
    ps_pulls_watch(exchange->pulls);
}

void ps_exchange_end_session(struct ps_exchange *exchange, uint64_t session)
{
    ps_pushes_end_session(exchange->pushes, session);
}

void ps_exchange_free(struct ps_exchange *exchange)
{
    if (!exchange)
        return;
    ps_pulls_free(exchange->pulls);
    ps_pushes_free(exchange->pushes);
    free(exchange);
}
