/* SPDX-License-Identifier: Apache-2.0 */
/* core_restore: answers that put a job onto servers: the checkpoint that was found, the plan that
 * was made. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "coordinatord/core/core_int.h"

void core_on_planned(struct core *core, uint64_t now_ns, uint64_t number, uint64_t generation,
                     enum err_code code, const char *text, const uint32_t *slice_counts)
{
    core_event_begin(core, now_ns);
    struct job *job = core_job_of(core, number);
    bool is_awaited = job && core_job_is_active(job) && job->generation == generation;
    bool is_placing = job && (job->phase == PHASE_PLANNING || job->phase == PHASE_RECOVERING);
    if (is_awaited && code == ERR_OK && is_placing)
        for (size_t i = 0; i < job->server_count; i++)
            job->servers[i].has_slices = slice_counts[i] > 0;
    if (is_awaited && code != ERR_OK) {
        core_job_end(core, job, CORE_JOB_FAILED, code, text ? text : err_name(code));
    } else if (is_awaited && job->phase == PHASE_RECOVERING) {
        if (job->recovery == RECOVER_SLICES || job->recovery == RECOVER_ADDRESSES)
            job->recovery++;
    } else if (is_awaited && job->phase == PHASE_PLANNING) {
        char *servers AUTO_MEM = base_strdup("");
        for (size_t i = 0; i < job->server_count; i++) {
            char *more = base_asprintf("%s%s%s/%u", servers, i ? " " : "", job->servers[i].name,
                                       job->servers[i].shard_count);
            free(servers);
            servers = more;
        }
        struct core_record record = {
            .kind = CORE_REC_PLACED, .job = number, .number = generation, .text = servers};
        job->placed_seq = core_record(core, &record);
        job->is_ordered = false;
        core_job_set_phase(core, job, PHASE_PLACING);
    }
    core_event_end(core);
}

/* The ledger and our sets become what the checkpoint is sure to hold; evaluations of later steps
 * are forgotten. */
static void roll_back(struct core *core, struct job *job, const char *directory, uint64_t number,
                      const struct ranges *acked, const struct ranges *abandoned)
{
    uint64_t before = job->acked_count;
    size_t eval_count = job->eval_count;
    struct core_eval *evals AUTO_MEM = base_alloc((eval_count + 1) * sizeof(*evals));
    if (eval_count)
        memcpy(evals, job->evals, eval_count * sizeof(*evals));
    core_job_forget_progress(job);
    struct core_record record = {.kind = CORE_REC_RESET, .job = job->number};
    core_record(core, &record);
    for (size_t i = 0; i < acked->count; i++) {
        struct range range = acked->items[i];
        if (range.first >= job->steps_total)
            continue;
        range.last = MIN(range.last, job->steps_total - 1);
        job->acked_count += ranges_add_range(&job->acked, range.first, range.last);
        ranges_add_range(&job->finished, range.first, range.last);
        ranges_add_range(&job->settled, range.first, range.last);
        record = (struct core_record){.kind = CORE_REC_ACKED,
                                      .job = job->number,
                                      .first = range.first,
                                      .last = range.last,
                                      .number = job->reissued,
                                      .number2 = job->images};
        core_record(core, &record);
    }
    for (size_t i = 0; i < abandoned->count; i++)
        for (uint64_t step = abandoned->items[i].first; step <= abandoned->items[i].last; step++)
            core_sched_abandon(core, job, step, 0, ERR_UNAVAILABLE,
                               "abandoned before the checkpoint");
    for (size_t i = 0; i < eval_count; i++) {
        if (evals[i].step > job->acked_count)
            continue;
        core_job_add_eval(job, &evals[i]);
        record = (struct core_record){.kind = CORE_REC_EVAL,
                                      .job = job->number,
                                      .first = evals[i].epoch,
                                      .number = evals[i].step,
                                      .x = evals[i].loss,
                                      .y = evals[i].accuracy};
        core_record(core, &record);
    }
    ranges_copy(&job->issued, &job->finished);
    free(job->restore_directory);
    job->restore_directory = base_strdup(directory);
    job->ckpt.published_step = job->acked_count;
    job->ckpt.last_step = job->acked_count;
    if (before > job->acked_count)
        core_notice(core, job, "restored from %s: %" PRIu64 " acknowledged steps are redone",
                    directory, before - job->acked_count);
    else
        core_notice(core, job, "restored from %s (checkpoint %" PRIu64 ", %" PRIu64 " steps)",
                    directory, number, job->acked_count);
}

void core_on_ckpt_found(struct core *core, uint64_t now_ns, uint64_t number, enum err_code code,
                        const char *text, const char *directory, uint64_t ckpt_number,
                        const struct ranges *acked, const struct ranges *abandoned)
{
    core_event_begin(core, now_ns);
    struct job *job = core_job_of(core, number);
    if (job && core_job_is_active(job) && job->phase == PHASE_LOOKING) {
        bool wants_it = job->is_resume || job->generation > 0;
        job->ckpt.last_number = MAX(job->ckpt.last_number, ckpt_number);
        uint64_t beyond =
            code == ERR_OK && acked->count ? acked->items[acked->count - 1].last + 1 : 0;
        if (code == ERR_OK && wants_it && beyond > job->steps_total) {
            core_job_end(core, job, CORE_JOB_FAILED, ERR_INVALID,
                         core_arena_text(core,
                                         "epochs, max_steps: %" PRIu64
                                         " steps: want at least the %" PRIu64
                                         " that %s holds, which the job would resume from",
                                         job->steps_total, beyond, directory));
        } else if (code != ERR_OK && code != ERR_NOT_FOUND && wants_it) {
            core_job_end(core, job, CORE_JOB_FAILED, code, text ? text : err_name(code));
        } else if (!core_job_has_enough_servers(core, job)) {
            core_job_set_phase(core, job, PHASE_WAITING);
        } else {
            free(job->restore_directory);
            job->restore_directory = NULL;
            if (code == ERR_OK && wants_it) {
                if (text && *text)
                    core_notice(core, job, "%s", text);
                roll_back(core, job, directory, ckpt_number, acked, abandoned);
            } else {
                if (job->acked_count)
                    core_notice(core, job,
                                "there is no checkpoint: all %" PRIu64
                                " acknowledged steps are redone",
                                job->acked_count);
                else if (job->is_resume)
                    core_notice(core, job,
                                "there is no checkpoint in %s to resume from; the job begins anew",
                                job->spec->checkpoint.directory);
                core_job_forget_progress(job);
                struct core_record record = {.kind = CORE_REC_RESET, .job = job->number};
                core_record(core, &record);
                job->ckpt.published_step = UINT64_MAX;
                job->ckpt.last_step = 0;
            }
            if (core_job_is_active(job))
                core_job_begin_plan(core, job);
        }
    }
    core_event_end(core);
}
