/* SPDX-License-Identifier: Apache-2.0 */
/* ps_link: one channel a server, and what the last answer said of it. */
#include "workerd/exchange/ps_link.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/rpc/rpc.h"
#include "workerd/exchange/slice_map.h"

#define SAY_AGAIN_NS (5 * NS_PER_S)

enum err_code ps_links_new(struct rpc_env *env, const struct slice_map *map,
                           struct ps_links **ret_links, struct err *err)
{
    AUTO(ps_links) links = base_alloc(sizeof(*links) + map->server_count * sizeof(links->items[0]));
    for (size_t i = 0; i < map->server_count; i++) {
        struct ps_link *link = &links->items[i];
        link->name = map->servers[i].name;
        link->address = map->servers[i].address;
        enum err_code code = rpc_channel_new(env, link->address, NULL, &link->channel, err);
        if (code != ERR_OK) {
            err_prefix(err, "%s", link->name);
            return code;
        }
        links->count++;
    }
    *ret_links = TAKE(links);
    return ERR_OK;
}

void ps_links_free(struct ps_links *links)
{
    if (!links)
        return;
    for (size_t i = 0; i < links->count; i++)
        rpc_channel_free(links->items[i].channel);
    free(links);
}

void ps_link_memory_failed(struct ps_link *link, const struct err *why)
{
    if (!link->can_read && !link->is_read)
        return;
    link->can_read = false;
    link->is_read = false;
    link->memory_failures++;
    log_info("ps.memory", "server=%s address=%s err=\"%s\": over the network %s", link->name,
             link->address, why->text,
             link->memory_failures < LINK_MEMORY_FAILURES ? "once" : "from now on");
}

void ps_link_note(struct ps_link *link, const struct err *status)
{
    bool is_silent = status->code == ERR_UNAVAILABLE || status->code == ERR_TIMEOUT;
    if (status->code == ERR_CANCELLED)
        return; /* by us, or by a server that shuts down: says nothing about the way there */
    if (!is_silent) {
        if (link->is_unreachable)
            log_info("ps.back", "server=%s address=%s after_ms=%llu", link->name, link->address,
                     (unsigned long long)((clock_now_ns() - link->since_ns) / NS_PER_MS));
        link->is_unreachable = false;
        return;
    }
    if (!link->is_unreachable)
        link->since_ns = clock_now_ns();
    link->is_unreachable = true;
    link->why = *status;
    uint64_t dropped;
    if (!log_limit_pass(&link->limit, SAY_AGAIN_NS, &dropped))
        return;
    log_warn("ps.unreachable", "server=%s address=%s since_ms=%llu err=\"%s\": trying on",
             link->name, link->address,
             (unsigned long long)((clock_now_ns() - link->since_ns) / NS_PER_MS), status->text);
    rpc_channel_log_why(link->channel, "ps.why", link->name);
}

enum ps_verdict ps_judge(enum err_code code)
{
    switch (code) {
    case ERR_OK:
        return PS_OK;
    case ERR_STALE: /* an old generation, or our session is fenced */
        return PS_RETURN;
    case ERR_UNAVAILABLE:
    case ERR_TIMEOUT:
    case ERR_FULL:
    case ERR_CANCELLED: /* a server that shuts down */
    case ERR_NOT_FOUND: /* a server that came back empty, until the coordinator has restored it */
    case ERR_NO_MEMORY:
    case ERR_IO: /* also what gRPC makes of a connection that breaks in the middle */
        return PS_RETRY;
    case ERR_INVALID:
    case ERR_EXISTS:
    case ERR_CORRUPT:
    case ERR_DEVICE:
    case ERR_CODE_COUNT:
        break;
    }
    return PS_FAIL;
}
