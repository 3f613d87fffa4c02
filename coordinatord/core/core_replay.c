/* SPDX-License-Identifier: Apache-2.0 */
/* core_replay: what the ledger holds becomes state again. */
#include <stdlib.h>
#include <string.h>

#include "coordinatord/core/core_beside_int.h"

static enum err_code replay_job(struct core *core, const struct core_record *record,
                                struct err *err)
{
    struct job_spec *spec = NULL;
    if (record->job < core->next_job)
        return err_set(err, ERR_CORRUPT, "ledger: job %llu comes twice or out of order",
                       (unsigned long long)record->job);
    enum err_code code = job_spec_parse(record->text2, strlen(record->text2), &spec, err);
    if (code != ERR_OK) {
        err_prefix(err, "ledger: spec of job %llu", (unsigned long long)record->job);
        return ERR_CORRUPT;
    }
    core_job_new(core, record->job, record->text, spec, record->text2, record->first, record->last,
                 record->number != 0, record->wall_ms);
    core->next_job = record->job + 1;
    return ERR_OK;
}

/* "ps:0/1 ps:1/2": names with the number of their shards. */
static enum err_code replay_placed(struct job *job, const struct core_record *record,
                                   struct err *err)
{
    char *text AUTO_MEM = base_strdup(record->text);
    char *save = NULL;
    size_t count = 0;
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *slash = strrchr(word, '/');
        if (!slash || count == LIMIT_SERVERS)
            return err_set(err, ERR_CORRUPT,
                           "ledger: job %llu: placement \"%s\", want name/shards ...",
                           (unsigned long long)job->number, record->text);
        *slash = '\0';
        job->place.servers =
            base_realloc(job->place.servers, (count + 1) * sizeof(*job->place.servers));
        job->place.servers[count++] = (struct job_server){
            .name = base_strdup(word),
            .address = base_strdup(""),
            .shard_count = (uint32_t)strtoul(slash + 1, NULL, 10),
            .has_slices = true, /* until the plan says else */
        };
        job->place.server_count = count; /* kept true, so that a failure leaves nothing behind */
    }
    job->generation = record->number;
    job->replayed_generation = record->number;
    job->place.is_replayed_placement = true;
    return ERR_OK;
}

static void replay_final(struct job *job, const struct core_record *record)
{
    size_t at = 0;
    while (at < job->place.server_count && strcmp(job->place.servers[at].name, record->text) != 0)
        at++;
    if (at == job->place.server_count)
        return;
    struct core_shard_state state = {
        .shard = (uint32_t)record->first, .applied = record->number, .bytes = record->number2};
    core_audit_shard(job, at, &state);
}

static enum err_code replay_issued(struct job *job, const struct core_record *record,
                                   struct err *err)
{
    if (record->first > record->last || record->last >= job->steps_total)
        return err_set(err, ERR_CORRUPT, "ledger: job %llu: issued %llu to %llu of %llu steps",
                       (unsigned long long)job->number, (unsigned long long)record->first,
                       (unsigned long long)record->last, (unsigned long long)job->steps_total);
    ranges_add_range(&job->steps.left, record->first, record->last);
    job->steps.reissued = record->number;
    job->steps.images = record->number2;
    return ERR_OK;
}

enum err_code core_replay(struct core *core, const struct core_record *record, struct err *err)
{
    ASSERT(!core->is_started);
    if (record->kind == CORE_REC_JOB)
        return replay_job(core, record, err);
    struct job *job = core_job_of(core, record->job);
    if (!job)
        return err_set(err, ERR_CORRUPT, "ledger: record %d names job %llu, which is not there",
                       (int)record->kind, (unsigned long long)record->job);
    switch (record->kind) {
    case CORE_REC_STATE:
        if (record->number > CORE_JOB_CANCELLED)
            return err_set(err, ERR_CORRUPT, "ledger: job %llu: state %llu, want 0 to 5",
                           (unsigned long long)job->number, (unsigned long long)record->number);
        job->state = (enum core_job_state)record->number;
        job->began_ms = record->number2;
        job->ended_ms = record->wall_ms;
        free(job->reason);
        job->reason = base_strdup(record->text ? record->text : "");
        break;
    case CORE_REC_PLACED:
        return replay_placed(job, record, err);
    case CORE_REC_RESET:
        core_job_forget_progress(job);
        break;
    case CORE_REC_ACKED:
        if (record->first > record->last || record->last >= job->steps_total)
            return err_set(err, ERR_CORRUPT,
                           "ledger: job %llu: acknowledged %llu to %llu of %llu steps",
                           (unsigned long long)job->number, (unsigned long long)record->first,
                           (unsigned long long)record->last, (unsigned long long)job->steps_total);
        job->steps.acked_count += ranges_add_range(&job->steps.acked, record->first, record->last);
        ranges_add_range(&job->steps.finished, record->first, record->last);
        ranges_add_range(&job->steps.settled, record->first, record->last);
        ranges_add_range(&job->steps.left, record->first, record->last);
        job->steps.reissued = record->number;
        job->steps.images = record->number2;
        break;
    case CORE_REC_ISSUED:
        return replay_issued(job, record, err);
    case CORE_REC_ABANDONED:
        core_job_add_abandoned(job, record->first, (uint32_t)record->number,
                               err_from_name(record->text), record->text2);
        ranges_add(&job->steps.left, record->first);
        break;
    case CORE_REC_EVAL: {
        struct core_eval eval = {(uint32_t)record->first, record->number, record->x, record->y};
        core_job_add_eval(job, &eval);
        break;
    }
    case CORE_REC_CKPT:
        core_job_add_ckpt(job, record->number, record->first, record->text);
        job->ckpt.last_step = MIN(record->first, job->steps.acked_count);
        job->ckpt.published_step = record->first;
        break;
    case CORE_REC_FINAL:
        replay_final(job, record);
        break;
    case CORE_REC_COUNTS:
        job->accounts.final_duplicates = record->number;
        job->steps.reissued = record->number2;
        job->accounts.lost = record->first;
        job->accounts.repeated = record->last;
        /* only a job that succeeded had all marks read at its end; the ledger gives its state first
         */
        job->accounts.is_accounting_final = job->state == CORE_JOB_SUCCEEDED;
        break;
    case CORE_REC_JOB:
    default:
        return err_set(err, ERR_CORRUPT, "ledger: record kind %d is unknown", (int)record->kind);
    }
    return ERR_OK;
}
