/* SPDX-License-Identifier: Apache-2.0 */
/* health_service: grpc.health.v1 (Check and Watch) for a server of common/rpc/rpc.h.
 *
 * A service is SERVING, NOT_SERVING, or unknown when it was never set; "" stands for the whole
 * server. The methods run on the loop: a daemon whose loop is stuck does not call itself healthy.
 *
 * Owns    the statuses and the streams that watch them. The object outlives the server that it was
 *         added to (free it after rpc_server_free).
 * Thread  the loop's.
 * Limits  LIMIT_HEALTH_WATCHERS streams, LIMIT_HEALTH_SERVICES services.
 */
#ifndef PROTO_HEALTH_SERVICE_H
#define PROTO_HEALTH_SERVICE_H

#include "common/rpc/rpc.h"

struct health_service;

struct health_service *health_service_new(void);
void health_service_free(struct health_service *health);
DEFINE_AUTO(health_service)

/* Before the server starts. */
void health_service_add(struct health_service *health, struct rpc_server *server);
/* Tells the watchers when it changed. Ignored once draining. */
void health_service_set(struct health_service *health, const char *service, bool is_serving);
/* Everything becomes NOT_SERVING for good; watchers hear it, and then their streams end, because a
 * drain of the server would wait for them. Call it before rpc_server_drain(). */
void health_service_drain(struct health_service *health);

#endif
