/* SPDX-License-Identifier: Apache-2.0 */
/* core_end: the end of a job. */
#include <string.h>

#include "coordinatord/core/core_phase_int.h"

static void close_on_workers(struct core *core, const struct job *job)
{
    for (size_t i = 0; i < core->member_count; i++) {
        struct member *worker = core->members[i];
        for (size_t o = 0; o < worker->opened_count; o++) {
            if (worker->opened[o].job != job->number)
                continue;
            worker->opened[o] = worker->opened[--worker->opened_count];
            if (worker->conn != CORE_NO_CONN) {
                struct core_act *act = core_act_add(core, CORE_ACT_CLOSE);
                act->conn = worker->conn;
                act->job = job->number;
            }
            break;
        }
    }
}

static void record_accounting(struct core *core, struct job *job)
{
    uint64_t duplicates = job->accounts.final_duplicates;
    for (size_t i = 0; i < job->accounts.shard_count; i++) {
        const struct shard_view *shard = &job->accounts.shards[i];
        struct core_record record = {.kind = CORE_REC_FINAL,
                                     .job = job->number,
                                     .text = job->place.servers[shard->server_index].name,
                                     .first = shard->shard,
                                     .number = shard->applied,
                                     .number2 = shard->bytes};
        core_record(core, &record);
        duplicates += shard->duplicates;
    }
    struct core_record record = {.kind = CORE_REC_COUNTS,
                                 .job = job->number,
                                 .number = duplicates,
                                 .number2 = job->steps.reissued,
                                 .first = job->accounts.lost,
                                 .last = job->accounts.repeated};
    core_record(core, &record);
}

void core_job_end(struct core *core, struct job *job, enum core_job_state state, enum err_code code,
                  const char *reason)
{
    ASSERT(core_job_is_active(job));
    core->dooms_due -= job->doom.is_due;
    job->doom.is_due = false;
    core_step_revoke_job(core, job);
    core_ckpt_stop(core, job, code == ERR_OK ? ERR_CANCELLED : code, reason, true);
    core_eval_stop(core, job);
    core_order_forget_job(core, job);
    close_on_workers(core, job);
    record_accounting(core, job);
    job->end_ns = core->now_ns;
    core_job_set_state(core, job, state, reason);
    core_job_set_phase(core, job, PHASE_ENDED);
    job->end_seq = core->next_seq;
    core->drops_due++;
    core_job_leave_live(core, job);
    ranges_clear(&job->steps.again);
    job->steps.lease_count = 0;
    core->is_fill_due = true;
}

void core_job_end_doomed(struct core *core)
{
    for (size_t i = 0; i < core->live_count && core->dooms_due;) {
        struct job *job = core->live[i];
        if (!job->doom.is_due) {
            i++;
            continue;
        }
        core_job_end(core, job, CORE_JOB_FAILED, job->doom.code, job->doom.reason);
    }
}

/* Variables are let go only when the ledger knows of the end: a coordinator that dies before that
 * goes on with the job where it was. */
void core_job_drop_ended(struct core *core)
{
    for (size_t i = 0; i < core->job_count && core->drops_due; i++) {
        struct job *job = core->jobs[i];
        if (job->end_seq == 0 || job->end_seq > core->written_seq)
            continue;
        job->end_seq = 0;
        core->drops_due--;
        for (size_t s = 0; s < job->place.server_count; s++) {
            struct member *server =
                core_member_named(core, CORE_SERVER, job->place.servers[s].name);
            if (server && core_member_is_here(server))
                core_order_drop(core, server, job->number);
        }
    }
}
