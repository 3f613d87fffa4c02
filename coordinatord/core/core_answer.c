/* SPDX-License-Identifier: Apache-2.0 */
/* core_answer: an order to a server ended: by its answer, its deadline, or the loss of the server.
 * Whoever waits for it is told once, if the job is still where it was when it was ordered. */
#include <stdlib.h>

#include "coordinatord/core/core_life_int.h"

/* How an order ended, beside the code. */
enum ending { ANSWERED, OVERDUE, LOST };

#define CREATE_AGAIN_NS NS_PER_S

/* Out of memory or descriptors, or a disk's bad moment: no reason to end a job that has trained, as
 * long as an order may take. One that has not is told at once. */
static bool may_create_again(const struct core *core, const struct job *job, enum err_code code)
{
    bool is_passing = code == ERR_NO_MEMORY || code == ERR_IO || code == ERR_FULL;
    bool has_trained = job->generation > 1 || job->place.restore_directory;
    return is_passing && has_trained &&
           core->now_ns < job->phase_ns + core->config.order_deadline_ms * NS_PER_MS;
}

static void created(struct core *core, struct job *job, const struct order *order,
                    enum ending ending, enum err_code code, const char *text)
{
    const struct member *server = order->server;
    if (job->phase != PHASE_PLACING || ending == LOST)
        return; /* the job waits for a server (core_job_server_lost) */
    if (ending == OVERDUE) {
        core_job_end(core, job, CORE_JOB_FAILED, code,
                     core_arena_text(core, "%s did not make its variables within %u ms",
                                     server->name, core->config.order_deadline_ms));
    } else if (code != ERR_OK && may_create_again(core, job, code)) {
        job->place.create_again_ns = core->now_ns + CREATE_AGAIN_NS;
        core_arm(core, job->place.create_again_ns);
        core_job_set_state(core, job, job->state,
                           core_arena_text(core,
                                           "%s cannot make its variables now and is asked again: "
                                           "%s: %s",
                                           server->name, err_name(code), text));
    } else if (code != ERR_OK) {
        core_job_end(core, job, CORE_JOB_FAILED, code,
                     core_arena_text(core, "%s cannot make its variables: %s: %s", server->name,
                                     err_name(code), text));
    } else {
        job->place.servers[order->server_index].is_created = true;
        job->place.servers[order->server_index].incarnation = server->incarnation;
    }
}

static void tell(struct core *core, const struct order *order, enum ending ending,
                 enum err_code code, const char *text, const struct core_shard_state *shards,
                 size_t count)
{
    struct job *job = order->job ? core_job_of(core, order->job) : NULL;
    if (!job || !core_job_is_active(job) || order->generation != job->generation)
        return;
    switch (order->kind) {
    case ORDER_CREATE:
        created(core, job, order, ending, code, text);
        break;
    case ORDER_SNAPSHOT:
        core_ckpt_snapshot_done(core, job, order->value, code, text);
        break;
    case ORDER_PIN:
        core_eval_pinned(core, job, order->value, code, text);
        break;
    case ORDER_MARKS:
        core_audit_answer(core, job, order, code, shards, count);
        break;
    case ORDER_ASK:
        core_verdict_answer(core, job, order, code, shards, count);
        break;
    case ORDER_PRUNE:
    case ORDER_UNPIN:
    case ORDER_DROP:
    case ORDER_FENCE:
        break;
    }
}

static void tell_all(struct core *core, struct order *orders, enum ending ending,
                     enum err_code code, const char *text)
{
    while (orders) {
        struct order *next = orders->next;
        tell(core, orders, ending, code, text, NULL, 0);
        free(orders);
        orders = next;
    }
}

void core_answer_take(struct core *core, struct member *server, uint64_t number, enum err_code code,
                      const char *text, const struct core_shard_state *shards, size_t count)
{
    struct order *order = core_order_take(core, server, number);
    if (!order)
        return;
    server->heard_ns = core->now_ns;
    tell(core, order, ANSWERED, code, text ? text : "", shards, count);
    free(order);
}

void core_answer_lost(struct core *core, const struct member *server)
{
    tell_all(core, core_order_take_server(core, server), LOST, ERR_UNAVAILABLE,
             "the server was lost");
}

void core_answer_check(struct core *core)
{
    tell_all(core, core_order_take_overdue(core), OVERDUE, ERR_TIMEOUT, "no answer in time");
    for (const struct order *order = core->orders; order; order = order->next)
        core_arm(core, order->deadline_ns);
}
