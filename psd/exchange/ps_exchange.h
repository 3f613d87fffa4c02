/* SPDX-License-Identifier: Apache-2.0 */
/* ps_exchange: Pull and Push, the service that workers call.
 *
 *   ps_exchange_new -> ps_exchange_add -> ps_exchange_start -> server drained -> ps_exchange_free
 *
 * Owns    the pulls and pushes in flight. Borrows the loop, the shards and the name for its life.
 * Thread  calls run on the io thread, all functions here on the loop.
 */
#ifndef PSD_EXCHANGE_PS_EXCHANGE_H
#define PSD_EXCHANGE_PS_EXCHANGE_H

#include "common/loop/loop.h"
#include "common/rpc/rpc.h"
#include "psd/shard/shard.h"

struct ps_exchange;

struct ps_exchange_options {
    struct loop *loop;
    const char *name; /* the server's, for errors */
    struct shard *const *shards;
    uint32_t shard_count;
    uint64_t
        inflight_bytes; /* of gradients being received; one push larger than it is let in alone */
    uint32_t pull_stall_ms; /* a pull whose reader pauses longer is broken off; 0: 10000 */
};

struct ps_exchange *ps_exchange_new(const struct ps_exchange_options *options);
void ps_exchange_add(struct ps_exchange *exchange, struct rpc_server *server); /* its methods */
void ps_exchange_start(struct ps_exchange *exchange); /* watches for readers that do not read */
/* Ends the pushes of a session that are still being received. */
void ps_exchange_end_session(struct ps_exchange *exchange, uint64_t session);
void ps_exchange_free(struct ps_exchange *exchange); /* no call is left */

#endif
