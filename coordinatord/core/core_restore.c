/* SPDX-License-Identifier: Apache-2.0 */
/* core_restore: answers that put a job onto servers: the checkpoint that was found, the plan that
 * was made. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "coordinatord/core/core_phase_int.h"

void core_restore_planned(struct core *core, struct job *job, enum err_code code, const char *text,
                          const uint32_t *slice_counts)
{
    bool is_placing = job->phase == PHASE_PLANNING || job->phase == PHASE_RECOVERING;
    if (code != ERR_OK) {
        core_job_end(core, job, CORE_JOB_FAILED, code, text ? text : err_name(code));
        return;
    }
    for (size_t i = 0; i < job->place.server_count && is_placing; i++)
        job->place.servers[i].has_slices = slice_counts[i] > 0;
    if (job->phase == PHASE_RECOVERING) {
        if (job->place.recovery == RECOVER_SLICES || job->place.recovery == RECOVER_ADDRESSES)
            job->place.recovery++;
    } else if (job->phase == PHASE_PLANNING) {
        char *servers AUTO_MEM = base_strdup("");
        for (size_t i = 0; i < job->place.server_count; i++) {
            char *more =
                base_asprintf("%s%s%s/%u", servers, i ? " " : "", job->place.servers[i].name,
                              job->place.servers[i].shard_count);
            free(servers);
            servers = more;
        }
        struct core_record record = {.kind = CORE_REC_PLACED,
                                     .job = job->number,
                                     .number = job->generation,
                                     .text = servers};
        job->place.placed_seq = core_record(core, &record);
        job->place.is_ordered = false;
        job->place.create_again_ns = 0;
        core_job_set_phase(core, job, PHASE_PLACING);
    }
}

/* The ledger and our sets become what the checkpoint is sure to hold; evaluations of later steps
 * are forgotten. */
static void roll_back(struct core *core, struct job *job, const char *directory, uint64_t number,
                      const struct ranges *acked, const struct ranges *abandoned)
{
    uint64_t before = job->steps.acked_count;
    size_t eval_count = job->past.eval_count;
    struct core_eval *evals AUTO_MEM = base_alloc((eval_count + 1) * sizeof(*evals));
    if (eval_count)
        memcpy(evals, job->past.evals, eval_count * sizeof(*evals));
    core_job_forget_progress(job);
    struct core_record record = {.kind = CORE_REC_RESET, .job = job->number};
    core_record(core, &record);
    for (size_t i = 0; i < acked->count; i++) {
        struct range range = acked->items[i];
        if (range.first >= job->steps_total)
            continue;
        range.last = MIN(range.last, job->steps_total - 1);
        job->steps.acked_count += ranges_add_range(&job->steps.acked, range.first, range.last);
        ranges_add_range(&job->steps.finished, range.first, range.last);
        ranges_add_range(&job->steps.settled, range.first, range.last);
        ranges_add_range(&job->steps.left, range.first, range.last);
        record = (struct core_record){.kind = CORE_REC_ACKED,
                                      .job = job->number,
                                      .first = range.first,
                                      .last = range.last,
                                      .number = core_issue_again_count(job),
                                      .number2 = job->steps.images};
        core_record(core, &record);
    }
    for (size_t i = 0; i < abandoned->count; i++)
        for (uint64_t step = abandoned->items[i].first; step <= abandoned->items[i].last; step++)
            core_step_abandon(core, job, step, 0, ERR_UNAVAILABLE,
                              "abandoned before the checkpoint");
    for (size_t i = 0; i < eval_count; i++) {
        if (evals[i].step > job->steps.acked_count)
            continue;
        core_job_add_eval(job, &evals[i]);
        record = (struct core_record){.kind = CORE_REC_EVAL,
                                      .job = job->number,
                                      .first = evals[i].epoch,
                                      .number = evals[i].step,
                                      .x = evals[i].loss,
                                      .y = evals[i].accuracy};
        job->past.eval_seq = core_record(core, &record);
    }
    ranges_copy(&job->steps.issued, &job->steps.finished);
    free(job->place.restore_directory);
    job->place.restore_directory = base_strdup(directory);
    job->ckpt.published_step = job->steps.acked_count;
    job->ckpt.last_step = job->steps.acked_count;
    if (before > job->steps.acked_count)
        core_notice(core, job, "restored from %s: %" PRIu64 " acknowledged steps are redone",
                    directory, before - job->steps.acked_count);
    else
        core_notice(core, job, "restored from %s (checkpoint %" PRIu64 ", %" PRIu64 " steps)",
                    directory, number, job->steps.acked_count);
}

/* Nothing to go back to: all that was done is done again. */
static void begin_anew(struct core *core, struct job *job)
{
    if (job->steps.acked_count)
        core_notice(core, job,
                    "there is no checkpoint: all %" PRIu64 " acknowledged steps are redone",
                    job->steps.acked_count);
    else if (job->is_resume)
        core_notice(core, job, "there is no checkpoint in %s to resume from; the job begins anew",
                    job->spec->checkpoint.directory);
    core_job_forget_progress(job);
    struct core_record record = {.kind = CORE_REC_RESET, .job = job->number};
    core_record(core, &record);
    job->ckpt.published_step = UINT64_MAX;
    job->ckpt.last_step = 0;
}

void core_restore_found(struct core *core, struct job *job, enum err_code code, const char *text,
                        const char *directory, uint64_t ckpt_number, const struct ranges *acked,
                        const struct ranges *abandoned)
{
    bool wants_it = job->is_resume || job->generation > 0;
    job->ckpt.last_number = MAX(job->ckpt.last_number, ckpt_number);
    uint64_t beyond = code == ERR_OK && acked->count ? acked->items[acked->count - 1].last + 1 : 0;
    if (code == ERR_OK && wants_it && beyond > job->steps_total) {
        core_job_end(core, job, CORE_JOB_FAILED, ERR_INVALID,
                     core_arena_text(core,
                                     "epochs, max_steps: %" PRIu64
                                     " steps: want at least the %" PRIu64
                                     " that %s holds, which the job would resume from",
                                     job->steps_total, beyond, directory));
        return;
    }
    if (code != ERR_OK && code != ERR_NOT_FOUND && wants_it) {
        core_job_end(core, job, CORE_JOB_FAILED, code, text ? text : err_name(code));
        return;
    }
    if (!core_place_has_enough(core, job)) {
        core_job_set_phase(core, job, PHASE_WAITING);
        return;
    }
    free(job->place.restore_directory);
    job->place.restore_directory = NULL;
    if (code == ERR_OK && wants_it) {
        if (text && *text)
            core_notice(core, job, "%s", text);
        roll_back(core, job, directory, ckpt_number, acked, abandoned);
    } else {
        begin_anew(core, job);
    }
    if (!job->doom.is_due)
        core_place_begin_plan(core, job);
}
