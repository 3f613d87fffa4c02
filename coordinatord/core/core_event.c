/* SPDX-License-Identifier: Apache-2.0 */
/* core_event: what happened to members, servers and disk, each as one event. */
#include <stdlib.h>

#include "coordinatord/core/core_life_int.h"

uint64_t core_next_deadline(const struct core *core)
{
    return core->deadline_ns;
}

void core_on_timer(struct core *core, uint64_t now_ns)
{
    if (now_ns < core->deadline_ns)
        return;
    core_event_begin(core, now_ns);
    core->deadline_ns = UINT64_MAX; /* the checks arm it again */
    core_member_check(core);
    core_answer_check(core);
    core_watch_check(core);
    core->is_fill_due = true;
    core_event_end(core);
}

void core_on_hello(struct core *core, uint64_t now_ns, uint64_t conn,
                   const struct core_hello *hello)
{
    core_event_begin(core, now_ns);
    core_member_hello(core, conn, hello);
    core_event_end(core);
}

void core_on_conn_lost(struct core *core, uint64_t now_ns, uint64_t conn)
{
    core_event_begin(core, now_ns);
    core_member_conn_lost(core, conn);
    core_event_end(core);
}

void core_on_heartbeat(struct core *core, uint64_t now_ns, uint64_t conn,
                       const struct core_shard_state *shards, size_t count)
{
    core_event_begin(core, now_ns);
    struct member *member = core_member_of_conn(core, conn);
    if (member)
        core_member_heartbeat(core, member, shards, count);
    core_event_end(core);
}

void core_on_reports(struct core *core, uint64_t now_ns, uint64_t conn,
                     const struct core_report *reports, size_t count)
{
    core_event_begin(core, now_ns);
    struct member *member = core_member_of_conn(core, conn);
    if (member && member->role == CORE_WORKER) {
        member->heard_ns = core->now_ns;
        for (size_t i = 0; i < count; i++)
            core_report_take(core, member, &reports[i]);
        core_sched_fill(core, member);
    }
    core_event_end(core);
}

void core_on_leaving(struct core *core, uint64_t now_ns, uint64_t conn,
                     const struct core_step_ref *refs, size_t count)
{
    core_event_begin(core, now_ns);
    struct member *member = core_member_of_conn(core, conn);
    if (member)
        core_member_leaving(core, member, refs, count);
    core_event_end(core);
}

void core_on_order_done(struct core *core, uint64_t now_ns, uint64_t conn, uint64_t order,
                        enum err_code code, const char *text, const struct core_shard_state *shards,
                        size_t count)
{
    core_event_begin(core, now_ns);
    struct member *server = core_member_of_conn(core, conn);
    if (server)
        core_answer_take(core, server, order, code, text, shards, count);
    core_event_end(core);
}

void core_on_journal_written(struct core *core, uint64_t now_ns, uint64_t seq)
{
    core_event_begin(core, now_ns);
    ASSERT(seq <= core->next_seq);
    if (core->next_seq - core->written_seq >= CORE_JOURNAL_MAX)
        core->is_fill_due = true; /* tickets were held back */
    core->written_seq = MAX(core->written_seq, seq);
    if (core->probe_seq && core->probe_seq <= seq) {
        double took_s = (double)(core->now_ns - core->probe_ns) / (double)NS_PER_S;
        core->commit_s = 0.8 * core->commit_s + 0.2 * took_s;
        core->probe_seq = 0;
    }
    core_report_written(core);
    core_issue_written(core);
    core_event_end(core);
}

void core_on_journal_stuck(struct core *core, uint64_t now_ns, bool is_stuck, const char *text)
{
    core_event_begin(core, now_ns);
    if (core->is_stuck != is_stuck) {
        core->is_stuck = is_stuck;
        free(core->stuck_text);
        core->stuck_text = is_stuck ? base_strdup(text ? text : "") : NULL;
        core_notice(core, NULL,
                    is_stuck ? "no steps are issued until the ledger can be written"
                             : "steps are issued again");
        for (size_t i = 0; i < core->live_count; i++) {
            core->live[i]->progress_ns = core->now_ns;
            core_act_add(core, CORE_ACT_CHANGED)->job = core->live[i]->number;
        }
        core->is_fill_due = true;
    }
    core_event_end(core);
}

void core_on_planned(struct core *core, uint64_t now_ns, uint64_t number, uint64_t generation,
                     enum err_code code, const char *text, const uint32_t *slice_counts)
{
    core_event_begin(core, now_ns);
    struct job *job = core_job_of(core, number);
    if (job && core_job_is_active(job) && job->generation == generation)
        core_restore_planned(core, job, code, text, slice_counts);
    core_event_end(core);
}

void core_on_ckpt_found(struct core *core, uint64_t now_ns, uint64_t number, enum err_code code,
                        const char *text, const char *directory, uint64_t ckpt_number,
                        const struct ranges *acked, const struct ranges *abandoned)
{
    core_event_begin(core, now_ns);
    struct job *job = core_job_of(core, number);
    if (job && core_job_is_active(job) && job->phase == PHASE_LOOKING)
        core_restore_found(core, job, code, text, directory, ckpt_number, acked, abandoned);
    core_event_end(core);
}

void core_on_ckpt_begun(struct core *core, uint64_t now_ns, uint64_t number, uint64_t ckpt_number,
                        enum err_code code, const char *text)
{
    core_event_begin(core, now_ns);
    struct job *job = core_job_of(core, number);
    if (job)
        core_ckpt_begun(core, job, ckpt_number, code, text);
    core_event_end(core);
}

void core_on_ckpt_published(struct core *core, uint64_t now_ns, uint64_t number,
                            uint64_t ckpt_number, enum err_code code, const char *text,
                            const char *path)
{
    core_event_begin(core, now_ns);
    struct job *job = core_job_of(core, number);
    if (job)
        core_ckpt_published(core, job, ckpt_number, code, text, path);
    core_event_end(core);
}
