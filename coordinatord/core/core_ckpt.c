/* SPDX-License-Identifier: Apache-2.0 */
/* core_ckpt: checkpoints. No step waits for one.
 *
 *   NONE --wanted or due--> BEGINNING (directory) --> SNAPSHOTS (every server) --> PUBLISHING --> NONE
 *
 * A checkpoint's ledger position is the set that was durable when it began: every cut, made later,
 * holds all of it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "coordinatord/core/core_beside_int.h"

static void answer_requests(struct core *core, struct job *job, enum err_code code,
                            const char *text, const char *path)
{
    struct ckpt_run *ckpt = &job->ckpt;
    for (size_t i = 0; i < ckpt->running_request_count; i++) {
        struct core_act *act = core_act_add(core, CORE_ACT_REPLY);
        act->request = ckpt->requests[i];
        act->code = code;
        act->job = job->number;
        act->number = ckpt->number;
        act->first = ckpt->step;
        act->text = core_arena_text(core, "%s", code == ERR_OK ? path : text);
    }
    ckpt->request_count -= ckpt->running_request_count;
    if (ckpt->request_count)
        memmove(ckpt->requests, ckpt->requests + ckpt->running_request_count,
                ckpt->request_count * sizeof(*ckpt->requests));
    ckpt->running_request_count = 0;
}

void core_ckpt_advance(struct core *core, struct job *job)
{
    struct ckpt_run *ckpt = &job->ckpt;
    uint64_t every = job->spec->checkpoint.every_steps;
    if (!job->spec->checkpoint.directory || ckpt->phase != CKPT_NONE || core->is_stuck)
        return;
    if (!ckpt->is_wanted && !(every && job->phase == PHASE_TRAINING &&
                              job->steps.acked_count >= ckpt->last_step + every))
        return;
    ckpt->phase = CKPT_BEGINNING;
    ckpt->is_wanted = false;
    ckpt->running_request_count = ckpt->request_count;
    ckpt->number = ++ckpt->last_number;
    ckpt->step = job->steps.acked_count;
    ckpt->last_step = job->steps.acked_count;
    ranges_copy(&ckpt->acked, &job->steps.acked);
    ckpt->deadline_ns = core->now_ns + 2 * NS_PER_MS * core->config.order_deadline_ms;
    core_arm(core, ckpt->deadline_ns);
    struct core_act *act = core_act_add(core, CORE_ACT_BEGIN_CKPT);
    act->job = job->number;
    act->number = ckpt->number;
}

/* Ends the one being written without publishing it; the job goes on. */
void core_ckpt_stop(struct core *core, struct job *job, enum err_code code, const char *text,
                    bool is_last)
{
    struct ckpt_run *ckpt = &job->ckpt;
    if (ckpt->phase != CKPT_NONE) {
        /* The first of a row, and where the reason becomes another one: a full disk under a
         * checkpoint every few steps would push all else out of the notices. */
        if (ckpt->failures++ == 0 || code != ckpt->failed_code)
            core_notice(core, job, "checkpoint %" PRIu64 " was not written: %s: %s", ckpt->number,
                        err_name(code), text);
        ckpt->failed_code = code;
        struct core_act *act = core_act_add(core, CORE_ACT_ABORT_CKPT);
        act->job = job->number;
        act->number = ckpt->number;
        ckpt->phase = CKPT_NONE;
    }
    if (is_last)
        ckpt->running_request_count = ckpt->request_count;
    answer_requests(core, job, code, text, NULL);
}

static void publish(struct core *core, struct job *job)
{
    job->ckpt.phase = CKPT_PUBLISHING;
    struct core_act *act = core_act_add(core, CORE_ACT_PUBLISH_CKPT);
    act->job = job->number;
    act->generation = job->generation;
    act->number = job->ckpt.number;
    act->first = job->ckpt.step;
}

void core_ckpt_begun(struct core *core, struct job *job, uint64_t number, enum err_code code,
                     const char *text)
{
    struct ckpt_run *ckpt = &job->ckpt;
    if (ckpt->phase != CKPT_BEGINNING || ckpt->number != number)
        return;
    if (code != ERR_OK) {
        core_ckpt_stop(core, job, code, text ? text : "", false);
        return;
    }
    ckpt->phase = CKPT_SNAPSHOTS;
    ckpt->snapshots_left = core_order_all(core, ORDER_SNAPSHOT, job, number);
    if (ckpt->snapshots_left != core_job_holders(job))
        core_ckpt_stop(core, job, ERR_UNAVAILABLE, "a server is away", false);
    else if (ckpt->snapshots_left == 0)
        publish(core, job);
}

void core_ckpt_snapshot_done(struct core *core, struct job *job, uint64_t number,
                             enum err_code code, const char *text)
{
    if (job->ckpt.phase != CKPT_SNAPSHOTS || job->ckpt.number != number)
        return;
    if (code != ERR_OK)
        core_ckpt_stop(core, job, code, text ? text : "", false);
    else if (--job->ckpt.snapshots_left == 0)
        publish(core, job);
}

void core_ckpt_published(struct core *core, struct job *job, uint64_t number, enum err_code code,
                         const char *text, const char *path)
{
    struct ckpt_run *ckpt = &job->ckpt;
    if (ckpt->phase != CKPT_PUBLISHING || ckpt->number != number)
        return;
    if (code != ERR_OK) {
        core_ckpt_stop(core, job, code, text ? text : "", false);
        return;
    }
    ckpt->phase = CKPT_NONE;
    ckpt->published_step = ckpt->step;
    if (ckpt->failures > 1)
        core_notice(core, job, "checkpoint %" PRIu64 " was written, after %u that were not", number,
                    ckpt->failures);
    ckpt->failures = 0;
    job->progress_ns = core->now_ns;
    core_job_add_ckpt(job, number, ckpt->step, path);
    struct core_record record = {.kind = CORE_REC_CKPT,
                                 .job = job->number,
                                 .number = number,
                                 .first = ckpt->step,
                                 .text = path};
    core_record(core, &record);
    answer_requests(core, job, ERR_OK, "", path);
    core_act_add(core, CORE_ACT_CHANGED)->job = job->number;
}
