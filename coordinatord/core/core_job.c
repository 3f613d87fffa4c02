/* SPDX-License-Identifier: Apache-2.0 */
/* core_job: the phases of a job.
 *
 *   QUEUED -> LOOKING -> PLANNING -> PLACING -> TRAINING -> FINISHING -> ENDED
 *                ^                               |    ^
 *                |  new or emptied servers       v    | the same servers, intact
 *                +----------------------------- WAITING <- RECOVERING (after a restart)
 *
 * core_job_advance looks at one job and makes every move that is possible now; it is called at the
 * end of each event. Moves that need an answer from outside wait in their phase with a deadline.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "coordinatord/core/core_phase_int.h"

#define FINAL_CKPT_TRIES 10   /* a second apart */
#define PRUNE_STEPS      1024 /* the watermark moved so far: tell the shards */

void core_job_begin_looking(struct core *core, struct job *job)
{
    core_job_set_phase(core, job, PHASE_LOOKING);
    if (!job->spec->checkpoint.directory)
        return;
    struct core_act *act = core_act_add(core, CORE_ACT_FIND_CKPT);
    act->job = job->number;
    act->number = core_job_first_ckpt(job);
}

void core_job_server_lost(struct core *core, struct member *server)
{
    for (size_t j = 0; j < core->live_count; j++) {
        struct job *job = core->live[j];
        bool is_used = false;
        for (size_t i = 0; i < job->place.server_count; i++)
            is_used = is_used || (job->place.servers[i].has_slices &&
                                  strcmp(job->place.servers[i].name, server->name) == 0);
        if (!is_used || job->phase == PHASE_QUEUED || job->phase == PHASE_LOOKING ||
            job->phase == PHASE_WAITING || job->phase == PHASE_RECOVERING)
            continue;
        core_ckpt_stop(core, job, ERR_UNAVAILABLE, "a server was lost", false);
        if (job->eval.phase == EVAL_PINNING) /* asked for again when training goes on */
            core_eval_stop(core, job);
        core_step_revoke_job(core, job);
        job->audit.phase = AUDIT_NONE;
        job->verdict.answers_left = 0; /* asked again when training goes on */
        core_notice(core, job, "%s at %s was lost; the job is paused", server->name,
                    server->address);
        core_job_set_state(
            core, job, CORE_JOB_PAUSED,
            core_arena_text(core, "waiting for %s at %s", server->name, server->address));
        bool is_placed = job->phase == PHASE_TRAINING || job->phase == PHASE_FINISHING;
        if (!is_placed) /* nothing was trained in this generation yet: place it again */
            for (size_t i = 0; i < job->place.server_count; i++)
                job->place.servers[i].is_created = false;
        core_job_set_phase(core, job, PHASE_WAITING);
    }
}

/* ---- moves ----------------------------------------------------------------------------------- */

static void begin_training(struct core *core, struct job *job)
{
    core_window_begin(job);
    job->accounts.is_accounting_final = false;
    job->ckpt.final_tries = 0;
    job->ckpt.retry_ns = 0;
    core_job_set_state(core, job, CORE_JOB_RUNNING, "");
    core_job_set_phase(core, job, PHASE_TRAINING);
    job->pace.slot_ns = core->now_ns;
    job->audit.next_ns = core->now_ns + core->config.audit_ms * NS_PER_MS;
    core->is_fill_due = true;
    /* An evaluation that a restart interrupted is made of the version of now. */
    bool is_missing = job->spec->has_eval && job->steps.epoch > 0 &&
                      job->past.evaluated_epochs >= job->steps.epoch &&
                      (job->past.eval_count == 0 ||
                       job->past.evals[job->past.eval_count - 1].epoch < job->steps.epoch);
    if (is_missing && job->eval.phase == EVAL_NONE && job->generation == job->replayed_generation)
        core_eval_start(core, job, job->steps.epoch);
}

/* Servers are there again. With all of them as they were, training goes on; else everything is
 * restored. */
static void leave_waiting(struct core *core, struct job *job)
{
    if (core_place_is_intact(core, job)) {
        core_notice(core, job, "all servers are back with their variables; training goes on");
        if (job->place.is_replayed_placement) {
            job->place.recovery = RECOVER_SERVERS;
            core_job_set_phase(core, job, PHASE_RECOVERING);
        } else {
            begin_training(core, job);
        }
        return;
    }
    if (!core_place_has_enough(core, job)) {
        core_job_set_state(
            core, job, job->state,
            core_arena_text(core, "waiting for servers:%s", core_place_missing(core, job)));
        return;
    }
    core_step_revoke_job(core, job);
    core_eval_stop(core, job); /* what it pinned is gone */
    core_job_begin_looking(core, job);
}

/* Those that have not made their slices, unless they are at it. */
static void create_again(struct core *core, struct job *job)
{
    job->place.create_again_ns = 0;
    for (size_t i = 0; i < job->place.server_count; i++) {
        struct member *server = core_member_named(core, CORE_SERVER, job->place.servers[i].name);
        if (!job->place.servers[i].has_slices || job->place.servers[i].is_created || !server ||
            !core_member_is_here(server))
            continue;
        const struct order *order = core->orders;
        while (order && (order->kind != ORDER_CREATE || order->job != job->number ||
                         order->server != server))
            order = order->next;
        if (!order)
            core_order_add(core, ORDER_CREATE, server, job, 0, i);
    }
}

/* A generation is used only after the ledger has it: a coordinator that dies before that would
 * count to the same number again, for another content. */
static void check_placed(struct core *core, struct job *job)
{
    if (core->written_seq < job->place.placed_seq)
        return;
    if (!job->place.is_ordered) {
        job->place.is_ordered = true;
        core_order_all(core, ORDER_CREATE, job, 0);
    }
    if (job->place.create_again_ns && core->now_ns >= job->place.create_again_ns)
        create_again(core, job);
    for (size_t i = 0; i < job->place.server_count; i++)
        if (job->place.servers[i].has_slices && !job->place.servers[i].is_created)
            return;
    begin_training(core, job);
}

static void check_recovered(struct core *core, struct job *job)
{
    if (job->place.recovery == RECOVER_NONE) {
        job->place.recovery = RECOVER_SLICES;
        core_place_ask(core, job);
    }
    if (job->place.recovery == RECOVER_SLICES)
        return; /* the shell's answer is on its way */
    if (core_place_is_intact(core, job)) {
        if (job->place.recovery == RECOVER_SERVERS) {
            job->place.recovery = RECOVER_ADDRESSES;
            core_place_ask(core, job);
        } else if (job->place.recovery == RECOVER_DONE) {
            job->place.is_replayed_placement = false;
            begin_training(core, job);
        }
        return;
    }
    bool is_over = core->now_ns >= job->phase_ns + core->config.recover_ms * NS_PER_MS;
    bool is_emptied = false;
    for (size_t i = 0; i < job->place.server_count; i++) {
        const struct member *server =
            core_member_named(core, CORE_SERVER, job->place.servers[i].name);
        is_emptied =
            is_emptied || (server && core_member_is_here(server) &&
                           job->place.servers[i].has_slices && !job->place.servers[i].is_created);
    }
    if (is_over || is_emptied) {
        core_job_set_state(
            core, job, CORE_JOB_PAUSED,
            core_arena_text(core, "waiting for servers:%s", core_place_missing(core, job)));
        core_job_set_phase(core, job, PHASE_WAITING);
    } else {
        core_arm(core, job->phase_ns + core->config.recover_ms * NS_PER_MS);
    }
}

static void prune(struct core *core, struct job *job)
{
    uint64_t low = ranges_watermark(&job->steps.settled);
    if (low >= job->steps.pruned + PRUNE_STEPS) {
        job->steps.pruned = low;
        core_order_all(core, ORDER_PRUNE, job, low);
    }
}

static void check_training(struct core *core, struct job *job)
{
    prune(core, job);
    core_verdict_advance(core, job);
    core_ckpt_advance(core, job);
    if (!core_job_is_active(job) || job->phase != PHASE_TRAINING)
        return;
    uint64_t low = ranges_watermark(&job->steps.settled);
    if (low >= job->steps_total) {
        core_job_set_phase(core, job, PHASE_FINISHING);
    } else if (job->spec->has_eval && job->eval.phase == EVAL_NONE &&
               low >= ((uint64_t)job->steps.epoch + 1) * job->steps_per_epoch &&
               job->past.evaluated_epochs <= job->steps.epoch) {
        core_eval_start(core, job, job->steps.epoch + 1);
    }
}

static void check_finishing(struct core *core, struct job *job)
{
    uint32_t last_epoch =
        (uint32_t)((job->steps_total + job->steps_per_epoch - 1) / job->steps_per_epoch);
    bool has_last =
        job->past.eval_count && job->past.evals[job->past.eval_count - 1].epoch >= last_epoch;
    if (job->eval.phase != EVAL_NONE)
        return;
    if (job->spec->has_eval && !has_last && job->past.evaluated_epochs < last_epoch) {
        core_eval_start(core, job, last_epoch);
        return;
    }
    bool wants_ckpt =
        job->spec->checkpoint.directory && job->ckpt.published_step != job->steps.acked_count;
    if (wants_ckpt && job->ckpt.phase == CKPT_NONE && !job->ckpt.is_wanted) {
        /* Without it the weights would be gone with the job, so it does not end well without it.
         * What may pass (a full disk) is waited for as long as anything is: core_watch.c. */
        bool may_pass = job->ckpt.failures > 0 && err_passes(job->ckpt.failed_code);
        if (may_pass)
            core_job_set_state(core, job, job->state,
                               core_arena_text(core,
                                               "the last checkpoint cannot be written (%s); tried "
                                               "again each second",
                                               err_name(job->ckpt.failed_code)));
        if (job->ckpt.final_tries >= FINAL_CKPT_TRIES && !may_pass) {
            core_job_end(core, job, CORE_JOB_FAILED, ERR_IO,
                         "all steps are done, but the last checkpoint could not be written (see "
                         "the notices)");
            return;
        }
        if (core->now_ns < job->ckpt.retry_ns) {
            core_arm(core, job->ckpt.retry_ns);
            return;
        }
        job->ckpt.final_tries++;
        job->ckpt.retry_ns = core->now_ns + NS_PER_S;
        job->ckpt.is_wanted = true;
    }
    core_ckpt_advance(core, job);
    if (!core_job_is_active(job) || job->phase != PHASE_FINISHING || job->ckpt.phase != CKPT_NONE ||
        job->ckpt.is_wanted)
        return;
    if (!job->accounts.is_accounting_final)
        core_audit_start(core, job, true); /* without servers it is done at once */
    if (!job->accounts.is_accounting_final)
        return;
    char reason[160] = "";
    if (job->past.abandoned_count)
        snprintf(reason, sizeof(reason), "%zu steps were abandoned, the first is %" PRIu64,
                 job->past.abandoned_count, job->past.abandoned_list[0].step);
    core_job_end(core, job, CORE_JOB_SUCCEEDED, ERR_OK, reason);
}

static void advance(struct core *core, struct job *job)
{
    enum phase before;
    do {
        before = job->phase;
        switch (job->phase) {
        case PHASE_QUEUED: {
            size_t running = 0;
            for (size_t i = 0; i < core->live_count; i++)
                running += core->live[i]->phase != PHASE_QUEUED;
            if (running >= core->config.running_max)
                break;
            if (!core_place_has_enough(core, job)) {
                core_job_set_state(core, job, CORE_JOB_QUEUED, "waiting for parameter servers");
                break;
            }
            core_job_set_state(core, job, CORE_JOB_RUNNING, "");
            core_job_begin_looking(core, job);
            break;
        }
        case PHASE_LOOKING: /* without a directory there is nothing to look for */
            if (job->spec->checkpoint.directory)
                break;
            if (!core_place_has_enough(core, job)) {
                core_job_set_phase(core, job, PHASE_WAITING);
                break;
            }
            if (job->generation && job->steps.acked_count)
                core_notice(core, job,
                            "there is no checkpoint: all %" PRIu64 " acknowledged steps are redone",
                            job->steps.acked_count);
            core_job_forget_progress(job);
            if (job->generation) {
                struct core_record record = {.kind = CORE_REC_RESET, .job = job->number};
                core_record(core, &record);
            }
            core_place_begin_plan(core, job);
            break;
        case PHASE_PLANNING:
            break;
        case PHASE_PLACING:
            check_placed(core, job);
            break;
        case PHASE_TRAINING:
            check_training(core, job);
            break;
        case PHASE_FINISHING:
            check_finishing(core, job);
            break;
        case PHASE_RECOVERING:
            check_recovered(core, job);
            break;
        case PHASE_WAITING:
            leave_waiting(core, job);
            break;
        case PHASE_ENDED:
            break;
        }
    } while (job->phase != before);
}

void core_job_advance_all(struct core *core)
{
    for (size_t i = 0; i < core->live_count;) {
        struct job *job = core->live[i];
        advance(core, job);
        if (i < core->live_count && core->live[i] == job)
            i++; /* else it ended and left the list */
    }
}
