/* SPDX-License-Identifier: Apache-2.0 */
/* core_audit: the marks of every server against the ledger.
 *
 *   NONE --due or last--> RUNNING --every server answered--> NONE
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "coordinatord/core/core_beside_int.h"

void core_audit_start(struct core *core, struct job *job, bool is_final)
{
    struct audit_run *audit = &job->audit;
    audit->next_ns = core->now_ns + MAX(core->config.audit_ms, 100u) * NS_PER_MS;
    if (audit->phase != AUDIT_NONE)
        return;
    audit->phase = AUDIT_RUNNING;
    audit->is_final = is_final;
    audit->is_good = true;
    ranges_copy(&audit->acked, &job->steps.acked);
    audit->marks_left = core_order_all(core, ORDER_MARKS, job, ++audit->serial);
    if (audit->marks_left == 0) {
        audit->phase = AUDIT_NONE;
        if (!core_job_holders(job)) { /* nothing holds anything: the ledger is all there is */
            job->accounts.lost = 0;
            job->accounts.repeated = 0;
            job->accounts.is_accounting_final = is_final;
        }
    }
}

void core_audit_shard(struct job *job, size_t server_index, const struct core_shard_state *state)
{
    size_t at = 0;
    while (at < job->accounts.shard_count &&
           (job->accounts.shards[at].server_index != server_index ||
            job->accounts.shards[at].shard != state->shard))
        at++;
    if (at == job->accounts.shard_count) {
        while (at > 0 && (job->accounts.shards[at - 1].server_index > server_index ||
                          (job->accounts.shards[at - 1].server_index == server_index &&
                           job->accounts.shards[at - 1].shard > state->shard)))
            at--;
        job->accounts.shards = base_realloc(
            job->accounts.shards, (job->accounts.shard_count + 1) * sizeof(*job->accounts.shards));
        memmove(job->accounts.shards + at + 1, job->accounts.shards + at,
                (job->accounts.shard_count - at) * sizeof(*job->accounts.shards));
        job->accounts.shard_count++;
        job->accounts.shards[at] =
            (struct shard_view){.server_index = server_index, .shard = state->shard};
    }
    struct shard_view *view = &job->accounts.shards[at];
    view->applied = state->applied;
    view->bytes = state->bytes;
    view->duplicates = state->duplicates_refused + state->fenced;
    view->repeated = state->repeated_applies;
    if (state->has_marks)
        view->missing = ranges_missing(&state->marks, &job->audit.acked);
}

void core_audit_answer(struct core *core, struct job *job, const struct order *order,
                       enum err_code code, const struct core_shard_state *shards, size_t count)
{
    struct audit_run *audit = &job->audit;
    if (audit->phase != AUDIT_RUNNING || order->value != audit->serial)
        return;
    audit->is_good = audit->is_good && code == ERR_OK;
    for (size_t i = 0; i < count; i++)
        if (shards[i].job == job->number && shards[i].generation == job->generation)
            core_audit_shard(job, order->server_index, &shards[i]);
    if (--audit->marks_left > 0)
        return;
    audit->phase = AUDIT_NONE;
    if (!audit->is_good) {
        if (audit->is_final && ++audit->tries >= 3)
            core_job_doom(core, job, ERR_UNAVAILABLE,
                          "the servers could not be asked what they applied");
        return;
    }
    job->accounts.lost = 0;
    job->accounts.repeated = 0;
    for (size_t i = 0; i < job->accounts.shard_count; i++) {
        job->accounts.lost = MAX(job->accounts.lost, job->accounts.shards[i].missing);
        job->accounts.repeated += job->accounts.shards[i].repeated;
    }
    if (job->accounts.lost || job->accounts.repeated)
        core_notice(core, job,
                    "accounting: %" PRIu64 " acknowledged steps are lost, %" PRIu64
                    " updates are repeated",
                    job->accounts.lost, job->accounts.repeated);
    if (audit->is_final && ranges_equal(&audit->acked, &job->steps.acked))
        job->accounts.is_accounting_final = true;
}
