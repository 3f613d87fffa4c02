/* SPDX-License-Identifier: Apache-2.0 */
/* reflection_service: grpc.reflection.v1alpha over the descriptors of proto/ that were built in, so
 * that generic clients can list and call our services.
 *
 * list_services names what was added to the server; files and symbols are answered with the file
 * and all it depends on, dependencies first. There are no extensions.
 *
 * Thread  its method runs on the io thread and reads constants only.
 */
#ifndef PROTO_REFLECTION_SERVICE_H
#define PROTO_REFLECTION_SERVICE_H

#include "common/rpc/rpc.h"

/* Before the server starts. Services may be added to the server after it. */
void reflection_service_add(struct rpc_server *server);

/* For tests: the number of files that answer a symbol (the one that defines it and its
 * dependencies); 0: unknown. */
size_t reflection_count_files(const char *symbol);

#endif
