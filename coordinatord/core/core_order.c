/* SPDX-License-Identifier: Apache-2.0 */
/* core_order: orders to servers. Each is answered under its number, sent again when its server
 * attaches again as the same process, and ends in time: by its answer, its deadline, or the loss of
 * its server. Whoever takes one off the list tells who waits for it (core_answer.c). */
#include <stdlib.h>

#include "coordinatord/core/core_order_int.h"

static void send(struct core *core, const struct order *order)
{
    static const enum core_act_kind kinds[] = {
        [ORDER_CREATE] = CORE_ACT_CREATE, [ORDER_SNAPSHOT] = CORE_ACT_SNAPSHOT,
        [ORDER_PRUNE] = CORE_ACT_PRUNE,   [ORDER_PIN] = CORE_ACT_PIN,
        [ORDER_UNPIN] = CORE_ACT_UNPIN,   [ORDER_DROP] = CORE_ACT_DROP,
        [ORDER_FENCE] = CORE_ACT_FENCE,   [ORDER_MARKS] = CORE_ACT_MARKS,
        [ORDER_ASK] = CORE_ACT_MARKS,
    };
    if (order->server->conn == CORE_NO_CONN)
        return; /* sent when it is back */
    struct core_act *act = core_act_add(core, kinds[order->kind]);
    act->conn = order->server->conn;
    act->order = order->number;
    act->job = order->job;
    act->generation = order->generation;
    act->number = order->value;
    act->server_index = (uint32_t)order->server_index;
    const struct job *job = order->job ? core_job_of(core, order->job) : NULL;
    if (order->kind == ORDER_CREATE && job && job->place.restore_directory)
        act->text = core_arena_text(core, "%s", job->place.restore_directory);
}

static struct order *add(struct core *core, const struct order *what)
{
    struct order *order = base_alloc(sizeof(*order));
    *order = *what;
    order->number = ++core->next_order;
    order->deadline_ns = core->now_ns + core->config.order_deadline_ms * NS_PER_MS;
    struct order **at = &core->orders;
    while (*at)
        at = &(*at)->next;
    *at = order;
    core_arm(core, order->deadline_ns);
    send(core, order);
    return order;
}

struct order *core_order_add(struct core *core, enum order_kind kind, struct member *server,
                             struct job *job, uint64_t value, size_t server_index)
{
    return add(core, &(struct order){
                         .kind = kind,
                         .server = server,
                         .job = job ? job->number : 0,
                         .generation = job ? job->generation : 0,
                         .value = value,
                         .server_index = server_index,
                     });
}

void core_order_drop(struct core *core, struct member *server, uint64_t job)
{
    add(core, &(struct order){.kind = ORDER_DROP, .server = server, .job = job});
}

size_t core_order_all(struct core *core, enum order_kind kind, struct job *job, uint64_t value)
{
    size_t count = 0;
    for (size_t i = 0; i < job->place.server_count; i++) {
        struct member *server = core_member_named(core, CORE_SERVER, job->place.servers[i].name);
        if (job->place.servers[i].has_slices && server && core_member_is_here(server)) {
            core_order_add(core, kind, server, job, value, i);
            count++;
        }
    }
    return count;
}

void core_order_resend(struct core *core, const struct member *server)
{
    for (struct order *order = core->orders; order; order = order->next)
        if (order->server == server)
            send(core, order);
}

/* Off the list before anybody is told: what follows may add orders. */
static struct order *take(struct core *core, const struct member *server, uint64_t number,
                          uint64_t before_ns)
{
    struct order *taken = NULL;
    struct order **taken_tail = &taken;
    for (struct order **at = &core->orders; *at;) {
        struct order *order = *at;
        if ((server && order->server != server) || (number && order->number != number) ||
            order->deadline_ns > before_ns) {
            at = &order->next;
            continue;
        }
        *at = order->next;
        order->next = NULL;
        *taken_tail = order;
        taken_tail = &order->next;
    }
    return taken;
}

struct order *core_order_take(struct core *core, const struct member *server, uint64_t number)
{
    return take(core, server, number, UINT64_MAX);
}

struct order *core_order_take_server(struct core *core, const struct member *server)
{
    return take(core, server, 0, UINT64_MAX);
}

struct order *core_order_take_overdue(struct core *core)
{
    return take(core, NULL, 0, core->now_ns);
}

/* The job is over or begins anew: nobody waits for its orders. DROP orders stay: they tell of the
 * end. */
void core_order_forget_job(struct core *core, const struct job *job)
{
    for (struct order **at = &core->orders; *at;) {
        struct order *order = *at;
        if (order->job == job->number && order->kind != ORDER_DROP) {
            *at = order->next;
            free(order);
        } else {
            at = &order->next;
        }
    }
}
