/* SPDX-License-Identifier: Apache-2.0 */
/* sim_check: what has to hold, compared with what the model knows to be true.
 *
 * "Acknowledged" is judged against the counts in the slices of the generation at hand: a server
 * that is down or was not placed in it has no say. That a step goes into a slice at most once is
 * checked where it goes in.
 */
#include <math.h>
#include <string.h>

#include "common/spec/job_spec.h"
#include "tests/sim/sim_int.h"

#define LL(x) ((unsigned long long)(x))

static bool is_final(const struct sim_rows *rows)
{
    return rows->has_state && rows->state >= CORE_JOB_SUCCEEDED;
}

bool sim_is_quiet(struct sim *sim)
{
    if (!sim->core || sim->ledger.emitted.count < sim->job_count)
        return false;
    for (size_t i = 0; i < sim->ledger.emitted.count; i++)
        if (!is_final(&sim->ledger.emitted.rows[i]))
            return false;
    return true;
}

/* What a step of the job was given out for counts, whoever gave it out. */
static void count_left(struct sim_job *job, uint64_t step)
{
    job->left_count += !job->left[step];
    job->left[step] = 1;
}

static void check_counts(struct sim *sim)
{
    for (size_t i = 0; i < sim->ledger.emitted.count; i++) {
        const struct sim_rows *rows = &sim->ledger.emitted.rows[i];
        struct core_job_view view;
        if (!core_job_view(sim->core, sim->now_ns, rows->number, &view))
            continue;
        if (view.issued != rows->job->left_count || view.reissued != rows->job->reissued)
            sim_fail(
                sim,
                "job %llu says %llu issued and %llu re-issued; tickets of %llu steps left, and "
                "%llu beyond the first of theirs",
                LL(rows->number), LL(view.issued), LL(view.reissued), LL(rows->job->left_count),
                LL(rows->job->reissued));
    }
}

/* What was written ahead and did not leave counts as if it had: nobody can know. Fewer than left
 * must not be there. */
void sim_check_written_ahead(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->job_count; i++) {
        struct sim_job *job = &sim->jobs[i];
        const struct sim_rows *rows = NULL;
        for (size_t r = 0; r < sim->ledger.durable.count; r++)
            if (sim->ledger.durable.rows[r].job == job)
                rows = &sim->ledger.durable.rows[r];
        memset(job->left, 0, job->steps_total);
        job->left_count = 0;
        for (uint64_t step = 0; step < job->steps_total; step++)
            if (job->sent[step] ||
                (rows && (rows->issued[step] || rows->acked[step] || rows->abandoned[step])))
                count_left(job, step);
        uint64_t written = rows ? rows->reissues : 0;
        if (written < job->reissued || written > job->reissued + LIMIT_CREDIT_MAX)
            sim_fail(sim, "%llu tickets of job %u left again and the disk has %llu",
                     LL(job->reissued), i, LL(written));
        job->reissued = written;
    }
}

void sim_check_event(struct sim *sim)
{
    if (!sim->core)
        return;
    check_counts(sim);
    if (sim_ledger_backlog(sim) > CORE_JOURNAL_MAX + 4 * SIM_WORKERS_MAX * LIMIT_CREDIT_MAX)
        sim_fail(sim, "%zu records wait for the disk", sim_ledger_backlog(sim));
    if (core_next_deadline(sim->core) != UINT64_MAX)
        return;
    for (size_t i = 0; i < sim->ledger.emitted.count; i++)
        if (!is_final(&sim->ledger.emitted.rows[i]))
            sim_fail(sim, "job %llu is active and nothing has a deadline",
                     LL(sim->ledger.emitted.rows[i].number));
}

/* Every slice of the job's generation that exists holds the step exactly once. */
static void check_applied(struct sim *sim, const struct sim_rows *rows, uint64_t generation,
                          uint64_t step, const char *when)
{
    for (uint32_t i = 0; i < sim->server_count; i++) {
        struct sim_server *server = &sim->servers[i];
        struct sim_hold *hold = server->m.is_up ? sim_hold_of(server, rows->number) : NULL;
        if (!hold || hold->generation != generation || hold->job != rows->job)
            continue;
        for (uint32_t s = 0; s < rows->job->slice_count; s++)
            if (hold->has[s] && hold->slices[s].count[step] != 1)
                sim_fail(
                    sim,
                    "%s: step %llu of job %llu is acknowledged and is %u times in slice %u on %s "
                    "(generation %llu)",
                    when, LL(step), LL(rows->number), hold->slices[s].count[step], s,
                    server->m.name, LL(generation));
    }
}

/* ---- what goes out --------------------------------------------------------------------------- */

/* (Start of the coordinator << 32 | counter), never used twice. */
static void check_attempt(struct sim *sim, const struct core_step_ref *ref)
{
    size_t counter = (size_t)(ref->attempt & UINT32_MAX);
    if (ref->attempt >> 32 != sim->core_life)
        sim_fail(sim, "attempt %llx in life %llu", LL(ref->attempt), LL(sim->core_life));
    if (counter >= sim->attempt_capacity) {
        size_t capacity = MAX(counter + 1, MAX(sim->attempt_capacity * 2, (size_t)1024));
        uint8_t *more = sim_alloc(capacity);
        if (sim->attempt_capacity)
            memcpy(more, sim->attempts, sim->attempt_capacity);
        sim->attempts = more;
        sim->attempt_capacity = capacity;
    }
    if (sim->attempts[counter]++)
        sim_fail(sim, "attempt %llx is handed out twice", LL(ref->attempt));
}

void sim_check_tickets(struct sim *sim, const struct core_act *act)
{
    struct sim_conn *conn = sim_conn_of(sim, act->conn);
    if (!conn || act->count == 0 || act->count > LIMIT_TICKETS_PER_MESSAGE)
        sim_fail(sim, "%zu tickets in one message", act->count);
    conn->in_flight += (uint32_t)act->count;
    if (conn->in_flight > LIMIT_CREDIT_MAX)
        sim_fail(sim, "%u tickets are in flight to %s", conn->in_flight, conn->member->name);
    if (sim->ledger.is_stuck_told)
        sim_fail(sim, "tickets leave while the ledger is stuck");
    for (size_t i = 0; i < act->count; i++) {
        const struct core_ticket *ticket = &act->tickets[i];
        const struct core_step_ref *ref = &ticket->ref;
        struct sim_rows *rows = sim_rows_of(&sim->ledger.emitted, ref->job);
        if (!rows || is_final(rows))
            sim_fail(sim, "a ticket of job %llu, which is not running", LL(ref->job));
        const struct sim_job *job = rows->job;
        check_attempt(sim, ref);
        if (ticket->generation != job->generation)
            sim_fail(sim, "a ticket of generation %llu of job %llu, which is in %llu",
                     LL(ticket->generation), LL(ref->job), LL(job->generation));
        if (ticket->deadline_ms == 0)
            sim_fail(sim, "a ticket without a deadline");
        sim_trace(sim, "ticket to %s: %s step %llu of job %llu attempt %llx generation %llu",
                  conn->member->name, ref->kind ? "eval" : "train", LL(ref->step), LL(ref->job),
                  LL(ref->attempt), LL(ticket->generation));
        if (ref->kind == CORE_EVAL) {
            if (ref->step * job->eval_batch >= job->eval_records || ticket->pin == 0)
                sim_fail(sim, "a ticket for evaluation batch %llu at pin %llu", LL(ref->step),
                         LL(ticket->pin));
            continue;
        }
        if (ref->step >= job->steps_total || ticket->epoch != ref->step / job->steps_per_epoch ||
            ticket->batch != ref->step % job->steps_per_epoch)
            sim_fail(sim, "step %llu of %llu is epoch %u batch %llu (%llu an epoch)", LL(ref->step),
                     LL(job->steps_total), ticket->epoch, LL(ticket->batch),
                     LL(job->steps_per_epoch));
        if (job->told[ref->step])
            sim_fail(sim, "step %llu of job %llu is issued and was durably acknowledged",
                     LL(ref->step), LL(ref->job));
        if (rows->acked[ref->step] || rows->abandoned[ref->step])
            sim_fail(sim, "step %llu of job %llu is issued and was %s", LL(ref->step), LL(ref->job),
                     rows->acked[ref->step] ? "acknowledged" : "abandoned");
        rows->job->reissued += rows->job->left[ref->step];
        rows->job->sent[ref->step] = 1;
        count_left(rows->job, ref->step);
        struct sim_rows *durable = sim_rows_of(&sim->ledger.durable, ref->job);
        if (!durable || !durable->issued[ref->step] || durable->reissues < rows->job->reissued)
            sim_fail(sim, "a ticket of step %llu of job %llu leaves and is not on the disk",
                     LL(ref->step), LL(ref->job));
    }
}

static const struct core_report *kept_report(struct sim_worker *worker,
                                             const struct core_step_ref *ref)
{
    for (size_t i = 0; i < worker->kept_count; i++) {
        const struct core_step_ref *kept = &worker->kept[i].report.ref;
        if (kept->job == ref->job && kept->step == ref->step && kept->attempt == ref->attempt &&
            kept->kind == ref->kind)
            return &worker->kept[i].report;
    }
    return NULL;
}

/* A worker forgets a report when it is acknowledged: from then on only the disk knows. */
void sim_check_acks(struct sim *sim, const struct core_act *act)
{
    struct sim_conn *conn = sim_conn_of(sim, act->conn);
    if (!conn || conn->member->role != CORE_WORKER)
        sim_fail(sim, "acknowledgements go to stream %llu, which is no worker's", LL(act->conn));
    struct sim_worker *worker = CONTAINER_OF(conn->member, struct sim_worker, m);
    if (!worker->m.is_up || worker->m.life != conn->member_life)
        return;
    for (size_t i = 0; i < act->count; i++) {
        const struct core_report *report = kept_report(worker, &act->refs[i]);
        if (!report || report->outcome != CORE_DONE || report->ref.kind != CORE_TRAIN)
            continue;
        struct sim_rows *rows = sim_rows_of(&sim->ledger.emitted, report->ref.job);
        if (!rows || is_final(rows) || report->generation != rows->job->generation)
            continue; /* of the past */
        uint64_t step = report->ref.step;
        if (!rows->abandoned[step] && rows->job->durable_generation[step] < report->generation)
            sim_fail(sim, "step %llu of job %llu is acknowledged to %s and not durable", LL(step),
                     LL(report->ref.job), worker->m.name);
    }
}

static void check_success(struct sim *sim, const struct sim_rows *rows)
{
    for (uint64_t step = 0; step < rows->job->steps_total; step++) {
        if (rows->acked[step])
            check_applied(sim, rows, rows->job->generation, step, "at the end");
        else if (!rows->abandoned[step])
            sim_fail(sim, "job %llu succeeds and step %llu is neither acknowledged nor abandoned",
                     LL(rows->number), LL(step));
    }
}

/* Every slice of the job's generation is on a server that is up. */
static bool is_whole(struct sim *sim, const struct sim_rows *rows)
{
    uint32_t there = 0;
    for (uint32_t i = 0; i < sim->server_count; i++) {
        struct sim_server *server = &sim->servers[i];
        struct sim_hold *hold = server->m.is_up ? sim_hold_of(server, rows->number) : NULL;
        if (!hold || hold->generation != rows->generation || hold->job != rows->job)
            continue;
        for (uint32_t s = 0; s < rows->job->slice_count; s++)
            there += hold->has[s];
    }
    return there == rows->job->slice_count;
}

/* Every slice of the job's generation is on a server that is up and has the step. */
static bool is_applied_everywhere(struct sim *sim, const struct sim_rows *rows, uint64_t step)
{
    uint32_t applied = 0;
    for (uint32_t i = 0; i < sim->server_count; i++) {
        struct sim_server *server = &sim->servers[i];
        struct sim_hold *hold = server->m.is_up ? sim_hold_of(server, rows->number) : NULL;
        if (!hold || hold->generation != rows->job->generation || hold->job != rows->job)
            continue;
        for (uint32_t s = 0; s < rows->job->slice_count; s++)
            applied += hold->has[s] && hold->slices[s].count[step];
    }
    return rows->job->slice_count && applied == rows->job->slice_count;
}

/* A step that every shard has is done, whatever became of its workers; and one that only died with
 * workers that others killed is innocent. (A restored job names what its checkpoint had given up.) */
static void check_abandoned(struct sim *sim, const struct sim_rows *rows,
                            const struct core_record *record)
{
    const struct sim_job *job = rows->job;
    sim->result.abandoned++;
    if (record->number && is_applied_everywhere(sim, rows, record->first))
        sim_fail(sim, "step %llu of job %llu is abandoned and every shard has applied it",
                 LL(record->first), LL(record->job));
    if (sim->options.profile == SIM_KILLS &&
        (record->first != job->poison_step || job->poison_pushes > 0))
        sim_fail(sim, "step %llu of job %llu is abandoned after %llu kills from outside",
                 LL(record->first), LL(record->job), LL(sim->result.kills));
}

void sim_check_record(struct sim *sim, const struct core_record *record)
{
    struct sim_rows *rows = sim_rows_of(&sim->ledger.emitted, record->job);
    if (record->kind == CORE_REC_ACKED || record->kind == CORE_REC_ABANDONED)
        for (uint64_t step = record->first; step <= MAX(record->first, record->last); step++)
            count_left(rows->job, step); /* of a checkpoint, else it was sent */
    if (record->kind == CORE_REC_ACKED)
        for (uint64_t step = record->first; step <= record->last; step++)
            check_applied(sim, rows, rows->job->generation, step, "when recorded");
    if (record->kind == CORE_REC_STATE && record->number == CORE_JOB_SUCCEEDED)
        check_success(sim, rows);
    if (record->kind == CORE_REC_RESET)
        rows->was_whole_at_reset = rows->has_placement && is_whole(sim, rows);
    if (record->kind == CORE_REC_PLACED && rows->was_whole_at_reset) {
        uint64_t count = 0;
        for (uint64_t step = 0; step < rows->job->steps_total; step++)
            count += rows->acked[step];
        if (count < rows->acked_before_reset)
            sim_fail(sim,
                     "%llu acknowledged steps of job %llu are thrown away and no server was lost",
                     LL(rows->acked_before_reset - count), LL(record->job));
    }
    if (record->kind == CORE_REC_ABANDONED && sim->options.profile == SIM_CALM)
        sim_fail(sim, "step %llu of job %llu is abandoned in calm weather", LL(record->first),
                 LL(record->job));
    if (record->kind == CORE_REC_ABANDONED)
        check_abandoned(sim, rows, record);
    if (record->kind == CORE_REC_ABANDONED && rows->acked[record->first])
        sim_fail(sim, "step %llu of job %llu is abandoned and was acknowledged", LL(record->first),
                 LL(record->job));
}

void sim_check_prune(struct sim *sim, const struct core_act *act)
{
    struct sim_rows *rows = sim_rows_of(&sim->ledger.emitted, act->job);
    if (!rows || act->number > rows->job->steps_total)
        sim_fail(sim, "marks of job %llu are pruned up to %llu", LL(act->job), LL(act->number));
    for (uint64_t step = 0; step < act->number; step++)
        if (!rows->acked[step] && !rows->abandoned[step])
            sim_fail(sim,
                     "marks of job %llu are pruned up to %llu and step %llu is not acknowledged",
                     LL(act->job), LL(act->number), LL(step));
}

/* ---- what comes to rest ---------------------------------------------------------------------- */

/* With nothing on the way to the disk, the core and the disk agree. */
void sim_check_written(struct sim *sim)
{
    if (!sim->core || sim_ledger_backlog(sim) != 0)
        return;
    for (size_t i = 0; i < sim->ledger.durable.count; i++) {
        struct sim_rows *rows = &sim->ledger.durable.rows[i];
        struct core_job_view view;
        if (!core_job_view(sim->core, sim->now_ns, rows->number, &view))
            sim_fail(sim, "job %llu is on the disk and the core does not know it",
                     LL(rows->number));
        if (rows->has_state && view.state != rows->state &&
            (is_final(rows) || view.state >= CORE_JOB_SUCCEEDED))
            sim_fail(sim, "job %llu is in state %d and the disk says %llu", LL(rows->number),
                     (int)view.state, LL(rows->state));
        uint64_t count = 0;
        for (uint64_t step = 0; step < rows->job->steps_total; step++)
            count += rows->acked[step];
        if (view.acknowledged != count || ranges_total(view.acked) != count)
            sim_fail(sim, "job %llu counts %llu acknowledged steps and the disk %llu",
                     LL(rows->number), LL(view.acknowledged), LL(count));
        for (size_t r = 0; r < view.acked->count; r++)
            for (uint64_t step = view.acked->items[r].first; step <= view.acked->items[r].last;
                 step++)
                if (!rows->acked[step])
                    sim_fail(sim,
                             "step %llu of job %llu counts as acknowledged and is not on the disk",
                             LL(step), LL(rows->number));
        if (view.lost || view.repeated)
            sim_fail(sim, "job %llu says %llu lost and %llu repeated", LL(rows->number),
                     LL(view.lost), LL(view.repeated));
    }
}

void sim_check_ckpt(struct sim *sim, const struct sim_ckpt *ckpt)
{
    for (uint32_t s = 0; s < ckpt->job->slice_count; s++) {
        if (!ckpt->count[s])
            sim_fail(sim, "checkpoint %s is published without slice %u", ckpt->path, s);
        for (size_t r = 0; r < ckpt->acked.count; r++)
            for (uint64_t step = ckpt->acked.items[r].first; step <= ckpt->acked.items[r].last;
                 step++)
                if (ckpt->count[s][step] != 1)
                    sim_fail(sim,
                             "checkpoint %s claims step %llu, which is %u times in its slice %u",
                             ckpt->path, LL(step), ckpt->count[s][step], s);
    }
}

void sim_check_restored(struct sim *sim, const struct sim_hold *hold)
{
    struct sim_rows *rows = sim_rows_of(&sim->ledger.emitted, hold->number);
    if (!rows || hold->generation != rows->job->generation || is_final(rows))
        return;
    for (uint64_t step = 0; step < rows->job->steps_total; step++)
        if (rows->acked[step])
            check_applied(sim, rows, hold->generation, step, "after its making");
}

void sim_check_started(struct sim *sim)
{
    for (size_t i = 0; i < sim->ledger.durable.count; i++) {
        struct sim_rows *rows = &sim->ledger.durable.rows[i];
        if (is_final(rows) || !rows->has_placement)
            continue;
        for (uint64_t step = 0; step < rows->job->steps_total; step++)
            if (rows->acked[step])
                check_applied(sim, rows, rows->generation, step, "after a restart");
    }
}

/* ---- the end --------------------------------------------------------------------------------- */

/* A failing step ends its job unless such steps are skipped; attempts that died with their worker
 * count, too. */
static bool may_fail(const struct sim_job *job)
{
    return job->fail_step != UINT64_MAX && job->on_error != STEP_ERROR_SKIP;
}

static void check_evals(struct sim *sim, const struct sim_job *job,
                        const struct core_job_view *view)
{
    uint64_t epochs = (job->steps_total + job->steps_per_epoch - 1) / job->steps_per_epoch;
    uint64_t seen = 0;
    for (size_t i = 0; i < view->eval_count; i++) {
        const struct core_eval *eval = &view->evals[i];
        if (eval->epoch < 1 || eval->epoch > epochs || (seen & (1ull << eval->epoch)))
            sim_fail(sim, "job %llu has epoch %u evaluated twice, or has no such epoch",
                     LL(view->job), eval->epoch);
        seen |= 1ull << eval->epoch;
        double want = 0;
        for (uint64_t first = 0; first < job->eval_records; first += job->eval_batch) {
            uint64_t examples = MIN((uint64_t)job->eval_batch, job->eval_records - first);
            want += (double)((examples + eval->epoch - 1) / 2 % (examples + 1));
        }
        want /= (double)MAX(job->eval_records, (uint64_t)1);
        if (fabs(eval->accuracy - want) > 1e-9 || fabs(eval->loss - 1) > 1e-9)
            sim_fail(sim, "epoch %u of job %llu has accuracy %g and loss %g, want %g and 1",
                     eval->epoch, LL(view->job), eval->accuracy, eval->loss, want);
    }
    if (!job->eval_records || job->was_restored || job->may_miss_evals)
        return;
    /* A coordinator that died while it evaluated cannot go back to that version; the last one it
     * can. */
    for (uint64_t epoch = sim->result.restarts ? epochs : 1; epoch <= epochs; epoch++)
        if (!(seen & (1ull << epoch)))
            sim_fail(sim, "job %llu succeeded and epoch %llu was not evaluated", LL(view->job),
                     LL(epoch));
}

static void check_job_end(struct sim *sim, const struct sim_rows *rows)
{
    struct core_job_view view;
    if (!core_job_view(sim->core, sim->now_ns, rows->number, &view))
        sim_fail(sim, "job %llu is unknown", LL(rows->number));
    if (view.lost || view.repeated)
        sim_fail(sim, "job %llu says %llu lost and %llu repeated", LL(rows->number), LL(view.lost),
                 LL(view.repeated));
    if (view.state == CORE_JOB_FAILED && !may_fail(rows->job))
        sim_fail(sim, "job %llu failed: %s", LL(rows->number), view.reason);
    if (view.state == CORE_JOB_CANCELLED && !rows->job->is_cancelled)
        sim_fail(sim, "job %llu was cancelled and nobody asked for it", LL(rows->number));
    sim->result.acked += view.acknowledged;
    if (view.state != CORE_JOB_SUCCEEDED) {
        sim->result.ended++;
        return;
    }
    sim->result.succeeded++;
    if (view.acknowledged + view.abandoned != rows->job->steps_total ||
        view.steps_total != rows->job->steps_total)
        sim_fail(sim, "job %llu succeeded with %llu acknowledged and %llu abandoned of %llu steps",
                 LL(rows->number), LL(view.acknowledged), LL(view.abandoned),
                 LL(rows->job->steps_total));
    if (view.issued < view.acknowledged && !rows->job->was_restored && sim->result.restarts == 0)
        sim_fail(sim, "job %llu issued %llu steps and has %llu acknowledged", LL(rows->number),
                 LL(view.issued), LL(view.acknowledged));
    if (!view.is_accounting_final)
        sim_fail(sim, "job %llu succeeded without its final accounting", LL(rows->number));
    if (sim->options.profile == SIM_CALM && (view.reissued || view.abandoned))
        sim_fail(sim, "job %llu re-issued %llu steps in calm weather", LL(rows->number),
                 LL(view.reissued));
    for (size_t i = 0; i < view.shard_count; i++)
        if (view.shards[i].applied < view.acknowledged ||
            view.shards[i].applied > view.acknowledged + view.abandoned)
            sim_fail(sim,
                     "shard %u of %s applied %llu of %llu acknowledged and %llu abandoned steps",
                     view.shards[i].shard, view.shards[i].server, LL(view.shards[i].applied),
                     LL(view.acknowledged), LL(view.abandoned));
    if (rows->job->slice_count && view.shard_count == 0)
        sim_fail(sim, "job %llu succeeded and no shard says what it applied", LL(rows->number));
    bool has_poison = rows->job->poison_step != UINT64_MAX && rows->job->poison_pushes == 0;
    if (sim->options.profile == SIM_KILLS && view.abandoned != has_poison)
        sim_fail(sim, "job %llu gave %llu steps up, want %d", LL(rows->number), LL(view.abandoned),
                 has_poison);
    check_evals(sim, rows->job, &view);
}

static void check_unfinished(struct sim *sim)
{
    for (size_t i = 0; i < sim->ledger.emitted.count; i++) {
        struct sim_rows *rows = &sim->ledger.emitted.rows[i];
        struct core_job_view view;
        if (!is_final(rows) && core_job_view(sim->core, sim->now_ns, rows->number, &view))
            sim_fail(sim,
                     "job %llu has not ended: state %d phase %s (%s), %llu of %llu acknowledged, "
                     "%llu abandoned, generation %llu",
                     LL(rows->number), (int)view.state, view.phase, view.reason,
                     LL(view.acknowledged), LL(view.steps_total), LL(view.abandoned),
                     LL(view.generation));
    }
    sim_fail(sim, "%zu of %u jobs were accepted", sim->ledger.emitted.count, sim->job_count);
}

void sim_check_end(struct sim *sim)
{
    if (!sim->core)
        sim_fail(sim, "the coordinator is down at the end");
    if (!sim_is_quiet(sim))
        check_unfinished(sim);
    for (size_t i = 0; i < sim->ledger.emitted.count; i++)
        check_job_end(sim, &sim->ledger.emitted.rows[i]);
    if (sim_ledger_backlog(sim))
        sim_fail(sim, "%zu records were never written", sim_ledger_backlog(sim));
    for (uint32_t i = 0; i < sim->worker_count; i++)
        if (sim->workers[i].held_count || sim->workers[i].kept_count)
            sim_fail(sim, "%s still holds %zu tickets and %zu reports", sim->workers[i].m.name,
                     sim->workers[i].held_count, sim->workers[i].kept_count);
    for (uint32_t i = 0; i < sim->server_count; i++)
        if (sim->servers[i].hold_count)
            sim_fail(sim, "%s still holds job %llu, which has ended", sim->servers[i].m.name,
                     LL(sim->servers[i].holds[0].number));
    for (size_t i = 0; i < sim->request_count; i++)
        if (!sim->requests[i].is_answered && sim->requests[i].core_life == sim->core_life)
            sim_fail(sim, "request %zu was never answered", i + 1);
}
