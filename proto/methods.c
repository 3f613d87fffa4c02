/* SPDX-License-Identifier: Apache-2.0 */
/* methods: the table of methods.h as variables and as an array. */
#include "proto/methods.h"

#include <string.h>

#include "proto/coord.pb-c.h"
#include "proto/fleet.pb-c.h"
#include "proto/health.pb-c.h"
#include "proto/ps.pb-c.h"
#include "proto/reflection.pb-c.h"

#define DEFINE(variable_, service_, name_, kind_, where_, in_, out_)                               \
    const struct rpc_method variable_ = {                                                          \
        .service = service_,                                                                       \
        .name = name_,                                                                             \
        .kind = kind_,                                                                             \
        .where = where_,                                                                           \
        .in = &in_##__descriptor,                                                                  \
        .out = &out_##__descriptor,                                                                \
        .has_payload = kind_ == RPC_CLIENT_STREAM,                                                 \
    };
METHODS(DEFINE)

#define ADDRESS(variable_, service_, name_, kind_, where_, in_, out_) &variable_,
static const struct rpc_method *const all[] = {METHODS(ADDRESS)};

const struct rpc_method *methods_at(size_t index)
{
    return index < ARRAY_SIZE(all) ? all[index] : NULL;
}

const struct rpc_method *methods_find(const char *service, const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        if (strcmp(all[i]->service, service) == 0 && strcmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
}
