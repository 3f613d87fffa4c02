/* SPDX-License-Identifier: Apache-2.0 */
/* core_order: orders to servers. Each is answered under its number, sent again when its server
 * attaches again as the same process, and ends in time: by its answer, its deadline, or the loss of
 * its server. */
#include <stdlib.h>

#include "coordinatord/core/core_int.h"

void core_order_send(struct core *core, const struct order *order)
{
    static const enum core_act_kind kinds[] = {
        [ORDER_CREATE] = CORE_ACT_CREATE, [ORDER_SNAPSHOT] = CORE_ACT_SNAPSHOT,
        [ORDER_PRUNE] = CORE_ACT_PRUNE,   [ORDER_PIN] = CORE_ACT_PIN,
        [ORDER_UNPIN] = CORE_ACT_UNPIN,   [ORDER_DROP] = CORE_ACT_DROP,
        [ORDER_FENCE] = CORE_ACT_FENCE,   [ORDER_MARKS] = CORE_ACT_MARKS,
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
    if (order->kind == ORDER_CREATE && job && job->restore_directory)
        act->text = core_arena_text(core, "%s", job->restore_directory);
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
    core_order_send(core, order);
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
    for (size_t i = 0; i < job->server_count; i++) {
        struct member *server = core_member_named(core, CORE_SERVER, job->servers[i].name);
        if (job->servers[i].has_slices && server && core_member_is_here(server)) {
            core_order_add(core, kind, server, job, value, i);
            count++;
        }
    }
    return count;
}

/* The order is off the list already; tells whoever waits for it. */
static void fail(struct core *core, const struct order *order, enum err_code code, const char *text)
{
    struct job *job = order->job ? core_job_of(core, order->job) : NULL;
    if (!job || !core_job_is_active(job) || order->generation != job->generation)
        return;
    switch (order->kind) {
    case ORDER_CREATE:
        if (job->phase == PHASE_PLACING && code == ERR_TIMEOUT)
            core_job_end(core, job, CORE_JOB_FAILED, code,
                         core_arena_text(core, "%s did not make its variables within %u ms",
                                         order->server->name, core->config.order_deadline_ms));
        break; /* a lost server: the job waits for one (core_job_server_lost) */
    case ORDER_SNAPSHOT:
        core_ckpt_snapshot_done(core, job, order->value, code, text);
        break;
    case ORDER_PIN:
        core_eval_pinned(core, job, order->value, code, text);
        break;
    case ORDER_MARKS:
        core_audit_answer(core, job, order, code, NULL, 0);
        break;
    case ORDER_PRUNE:
    case ORDER_UNPIN:
    case ORDER_DROP:
    case ORDER_FENCE:
        break;
    }
}

static void fail_where(struct core *core, const struct member *server, uint64_t before_ns,
                       enum err_code code, const char *text)
{
    struct order *failed = NULL;
    struct order **failed_tail = &failed;
    for (struct order **at = &core->orders; *at;) {
        struct order *order = *at;
        if (server ? order->server != server : order->deadline_ns > before_ns) {
            at = &order->next;
            continue;
        }
        *at = order->next;
        order->next = NULL;
        *failed_tail = order;
        failed_tail = &order->next;
    }
    while (failed) { /* off the list first: the answers may add orders */
        struct order *next = failed->next;
        fail(core, failed, code, text);
        free(failed);
        failed = next;
    }
}

void core_order_fail_server(struct core *core, struct member *server, enum err_code code,
                            const char *text)
{
    fail_where(core, server, 0, code, text);
}

/* The job is over or begins anew: nobody waits for its orders. DROP orders stay: they tell of the
 * end. */
void core_order_fail_job(struct core *core, struct job *job)
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

void core_order_check(struct core *core)
{
    fail_where(core, NULL, core->now_ns, ERR_TIMEOUT, "no answer in time");
    for (const struct order *order = core->orders; order; order = order->next)
        core_arm(core, order->deadline_ns);
}
