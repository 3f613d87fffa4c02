/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_table: the methods of a server. */
#include <grpc/grpc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/rpc/rpc_server_int.h"

struct rpc_table *rpc_table_new(struct rpc_env *env, grpc_server *grpc,
                                struct rpc_listener *listener)
{
    struct rpc_table *table = base_alloc(sizeof(*table));
    table->env = env;
    table->grpc = grpc;
    table->listener = listener;
    atomic_init(&table->refs, 1);
    return table;
}

struct rpc_table *rpc_table_ref(struct rpc_table *table)
{
    atomic_fetch_add_explicit(&table->refs, 1, memory_order_relaxed);
    return table;
}

void rpc_table_unref(struct rpc_table *table)
{
    if (atomic_fetch_sub_explicit(&table->refs, 1, memory_order_acq_rel) != 1)
        return;
    free(table->methods);
    free(table->tags);
    free(table);
}

void rpc_table_add(struct rpc_table *table, const struct rpc_method *methods, size_t count)
{
    ASSERT(!table->tags);
    size_t total = table->method_count + count;
    table->methods = base_realloc(table->methods, total * sizeof(*methods));
    for (size_t i = 0; i < count; i++) {
        ASSERT(methods[i].on_call && (methods[i].where == RPC_INLINE || table->env->loop));
        table->methods[table->method_count + i] = methods[i];
    }
    table->method_count = total;
}

const char *rpc_table_service(const struct rpc_table *table, size_t index)
{
    for (size_t i = 0; i < table->method_count; i++) {
        const char *name = table->methods[i].service;
        bool is_new = true;
        for (size_t j = 0; j < i && is_new; j++)
            is_new = strcmp(table->methods[j].service, name) != 0;
        if (is_new && index-- == 0)
            return name;
    }
    return NULL;
}

void rpc_table_register(struct rpc_table *table)
{
    ASSERT(!table->tags);
    table->tags = base_alloc(MAX(table->method_count, 1) * sizeof(*table->tags));
    for (size_t i = 0; i < table->method_count; i++) {
        const struct rpc_method *method = &table->methods[i];
        char path[2 * LIMIT_NAME_BYTES];
        snprintf(path, sizeof(path), "/%s/%s", method->service, method->name);
        bool has_request = method->kind == RPC_UNARY || method->kind == RPC_SERVER_STREAM;
        table->tags[i] = grpc_server_register_method(
            table->grpc, path, NULL,
            has_request ? GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER : GRPC_SRM_PAYLOAD_NONE, 0);
        ASSERT(table->tags[i]); /* NULL: twice in the table */
    }
}
