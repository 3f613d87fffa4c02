/* SPDX-License-Identifier: Apache-2.0 */
/* core_ckpt: what runs beside the training: checkpoints, evaluations, audits. None of them stops
 * the steps.
 *
 *   checkpoint  NONE --wanted or due--> BEGINNING (directory) --> SNAPSHOTS (every server)
 *                 --> PUBLISHING --> NONE
 *   evaluation  NONE --epoch settled--> PINNING (every server) --> RUNNING (batches like steps)
 *                 --> NONE
 *   audit       NONE --due or last--> RUNNING (marks of every server against the ledger) --> NONE
 *
 * A checkpoint's ledger position is the set that was durable when it began: every cut, made later,
 * holds all of it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "coordinatord/core/core_int.h"

/* ---- checkpoints ----------------------------------------------------------------------------- */

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
    if (!ckpt->is_wanted &&
        !(every && job->phase == PHASE_TRAINING && job->acked_count >= ckpt->last_step + every))
        return;
    ckpt->phase = CKPT_BEGINNING;
    ckpt->is_wanted = false;
    ckpt->running_request_count = ckpt->request_count;
    ckpt->number = ++ckpt->last_number;
    ckpt->step = job->acked_count;
    ckpt->last_step = job->acked_count;
    ranges_copy(&ckpt->acked, &job->acked);
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
        core_notice(core, job, "checkpoint %" PRIu64 " was not written: %s: %s", ckpt->number,
                    err_name(code), text);
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

void core_on_ckpt_begun(struct core *core, uint64_t now_ns, uint64_t number, uint64_t ckpt_number,
                        enum err_code code, const char *text)
{
    core_event_begin(core, now_ns);
    struct job *job = core_job_of(core, number);
    if (job && job->ckpt.phase == CKPT_BEGINNING && job->ckpt.number == ckpt_number) {
        if (code != ERR_OK) {
            core_ckpt_stop(core, job, code, text ? text : "", false);
        } else {
            job->ckpt.phase = CKPT_SNAPSHOTS;
            job->ckpt.snapshots_left = core_order_all(core, ORDER_SNAPSHOT, job, ckpt_number);
            if (job->ckpt.snapshots_left != core_job_holders(job))
                core_ckpt_stop(core, job, ERR_UNAVAILABLE, "a server is away", false);
            else if (job->ckpt.snapshots_left == 0)
                publish(core, job);
        }
    }
    core_event_end(core);
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

void core_on_ckpt_published(struct core *core, uint64_t now_ns, uint64_t number,
                            uint64_t ckpt_number, enum err_code code, const char *text,
                            const char *path)
{
    core_event_begin(core, now_ns);
    struct job *job = core_job_of(core, number);
    if (job && job->ckpt.phase == CKPT_PUBLISHING && job->ckpt.number == ckpt_number) {
        if (code != ERR_OK) {
            core_ckpt_stop(core, job, code, text ? text : "", false);
        } else {
            job->ckpt.phase = CKPT_NONE;
            job->ckpt.published_step = job->ckpt.step;
            job->progress_ns = core->now_ns;
            core_job_add_ckpt(job, ckpt_number, job->ckpt.step, path);
            struct core_record record = {.kind = CORE_REC_CKPT,
                                         .job = number,
                                         .number = ckpt_number,
                                         .first = job->ckpt.step,
                                         .text = path};
            core_record(core, &record);
            answer_requests(core, job, ERR_OK, "", path);
            core_act_add(core, CORE_ACT_CHANGED)->job = number;
        }
    }
    core_event_end(core);
}

/* ---- evaluations ----------------------------------------------------------------------------- */

void core_eval_start(struct core *core, struct job *job, uint32_t epoch)
{
    struct eval_run *eval = &job->eval;
    ASSERT(eval->phase == EVAL_NONE);
    uint32_t batch = job->spec->eval_dataset.batch_size;
    eval->phase = EVAL_PINNING;
    eval->epoch = epoch;
    eval->pin = ++core->next_pin;
    eval->step = job->acked_count;
    eval->batches = (job->eval_records + batch - 1) / batch;
    eval->next = 0;
    ranges_clear(&eval->again);
    ranges_clear(&eval->done);
    core_suspect_clear_all(&eval->suspicion);
    eval->loss_sum = 0;
    eval->examples = 0;
    eval->correct = 0;
    eval->failures = 0;
    eval->pins_left = core_order_all(core, ORDER_PIN, job, eval->pin);
    if (eval->pins_left != core_job_holders(job))
        core_eval_stop(core, job); /* a server is away: the job is about to pause */
    else if (eval->pins_left == 0)
        eval->phase = EVAL_RUNNING;
}

static void revoke_evaluations(struct core *core, struct job *job)
{
    for (size_t i = 0; i < core->member_count; i++) {
        struct member *worker = core->members[i];
        for (size_t f = worker->flight_count; f-- > 0;) {
            struct in_flight *flight = &worker->flight[worker->flight_head + f];
            if (flight->ref.job != job->number || flight->ref.kind != CORE_EVAL)
                continue;
            struct core_step_ref *ref = core_arena(core, sizeof(*ref));
            *ref = flight->ref;
            core_flight_remove(worker, flight);
            if (worker->conn != CORE_NO_CONN) {
                struct core_act *act = core_act_add(core, CORE_ACT_REVOKE);
                act->conn = worker->conn;
                act->refs = ref;
                act->count = 1;
            }
        }
    }
}

void core_eval_stop(struct core *core, struct job *job)
{
    struct eval_run *eval = &job->eval;
    if (eval->phase == EVAL_NONE)
        return;
    revoke_evaluations(core, job);
    core_order_all(core, ORDER_UNPIN, job, eval->pin);
    eval->phase = EVAL_NONE;
}

void core_eval_pinned(struct core *core, struct job *job, uint64_t pin, enum err_code code,
                      const char *text)
{
    struct eval_run *eval = &job->eval;
    if (eval->phase != EVAL_PINNING || eval->pin != pin)
        return;
    if (code != ERR_OK) {
        core_notice(core, job, "epoch %u is not evaluated: %s: %s", eval->epoch, err_name(code),
                    text ? text : "");
        job->evaluated_epochs = MAX(job->evaluated_epochs, (uint64_t)eval->epoch);
        core_eval_stop(core, job);
    } else if (--eval->pins_left == 0) {
        eval->phase = EVAL_RUNNING;
        job->evaluated_epochs =
            MAX(job->evaluated_epochs, (uint64_t)eval->epoch); /* its version is fixed */
    }
    core->is_fill_due = true;
}

bool core_eval_next(struct job *job, uint64_t *ret_batch)
{
    struct eval_run *eval = &job->eval;
    if (eval->phase != EVAL_RUNNING)
        return false;
    for (size_t i = 0; i < eval->again.count; i++) {
        for (uint64_t batch = eval->again.items[i].first; batch <= eval->again.items[i].last;
             batch++) {
            if (core_suspect_has(job, CORE_EVAL, batch))
                continue;
            ranges_remove_range(&eval->again, batch, batch);
            *ret_batch = batch;
            return true;
        }
    }
    if (eval->next >= eval->batches)
        return false;
    *ret_batch = eval->next++;
    return true;
}

static void eval_failed(struct core *core, struct job *job, uint64_t batch, const char *who,
                        enum err_code code, const char *text)
{
    struct eval_run *eval = &job->eval;
    core_notice(core, job, "evaluation batch %" PRIu64 " failed on %s: %s: %s", batch, who,
                err_name(code), text ? text : "");
    if (++eval->failures >= job->spec->steps.max_attempts) {
        core_notice(core, job, "epoch %u is not evaluated: its batches failed %u times",
                    eval->epoch, eval->failures);
        core_eval_stop(core, job);
    } else {
        ranges_add(&eval->again, batch);
    }
    core->is_fill_due = true;
}

void core_eval_give_back(struct core *core, struct job *job, uint64_t batch, bool is_blamed,
                         const char *who)
{
    if (is_blamed)
        eval_failed(core, job, batch, who, ERR_UNAVAILABLE, "its worker died or hung while it ran");
    else
        ranges_add(&job->eval.again, batch);
}

void core_eval_report(struct core *core, struct job *job, const struct core_report *report,
                      const char *who)
{
    struct eval_run *eval = &job->eval;
    if (eval->phase != EVAL_RUNNING || report->ref.step >= eval->batches ||
        ranges_has(&eval->done, report->ref.step))
        return;
    core_suspect_clear(job, CORE_EVAL, report->ref.step);
    if (report->outcome != CORE_DONE) {
        eval_failed(core, job, report->ref.step, who, report->code, report->text);
        return;
    }
    ranges_add(&eval->done, report->ref.step);
    ranges_remove_range(&eval->again, report->ref.step, report->ref.step);
    eval->loss_sum += report->loss;
    eval->examples += report->examples;
    eval->correct += report->correct;
    job->progress_ns = core->now_ns;
    if (ranges_watermark(&eval->done) < eval->batches)
        return;
    double count = (double)MAX(eval->examples, (uint64_t)1);
    struct core_eval result = {eval->epoch, eval->step, eval->loss_sum / count,
                               (double)eval->correct / count};
    core_job_add_eval(job, &result);
    struct core_record record = {.kind = CORE_REC_EVAL,
                                 .job = job->number,
                                 .first = result.epoch,
                                 .number = result.step,
                                 .x = result.loss,
                                 .y = result.accuracy};
    core_record(core, &record);
    core_eval_stop(core, job);
    core_act_add(core, CORE_ACT_CHANGED)->job = job->number;
    core->is_fill_due = true;
}

/* ---- audits ---------------------------------------------------------------------------------- */

void core_audit_start(struct core *core, struct job *job, bool is_final)
{
    struct audit_run *audit = &job->audit;
    audit->next_ns = core->now_ns + MAX(core->config.audit_ms, 100u) * NS_PER_MS;
    if (audit->phase != AUDIT_NONE)
        return;
    audit->phase = AUDIT_RUNNING;
    audit->is_final = is_final;
    audit->is_good = true;
    ranges_copy(&audit->acked, &job->acked);
    audit->marks_left = core_order_all(core, ORDER_MARKS, job, ++audit->serial);
    if (audit->marks_left == 0) {
        audit->phase = AUDIT_NONE;
        if (!core_job_holders(job)) { /* nothing holds anything: the ledger is all there is */
            job->lost = 0;
            job->repeated = 0;
            job->is_accounting_final = is_final;
        }
    }
}

void core_audit_shard(struct job *job, size_t server_index, const struct core_shard_state *state)
{
    size_t at = 0;
    while (at < job->shard_count &&
           (job->shards[at].server_index != server_index || job->shards[at].shard != state->shard))
        at++;
    if (at == job->shard_count) {
        while (at > 0 && (job->shards[at - 1].server_index > server_index ||
                          (job->shards[at - 1].server_index == server_index &&
                           job->shards[at - 1].shard > state->shard)))
            at--;
        job->shards = base_realloc(job->shards, (job->shard_count + 1) * sizeof(*job->shards));
        memmove(job->shards + at + 1, job->shards + at,
                (job->shard_count - at) * sizeof(*job->shards));
        job->shard_count++;
        job->shards[at] = (struct shard_view){.server_index = server_index, .shard = state->shard};
    }
    struct shard_view *view = &job->shards[at];
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
            core_job_end(core, job, CORE_JOB_FAILED, ERR_UNAVAILABLE,
                         "the servers could not be asked what they applied");
        return;
    }
    job->lost = 0;
    job->repeated = 0;
    for (size_t i = 0; i < job->shard_count; i++) {
        job->lost = MAX(job->lost, job->shards[i].missing);
        job->repeated += job->shards[i].repeated;
    }
    if (job->lost || job->repeated)
        core_notice(core, job,
                    "accounting: %" PRIu64 " acknowledged steps are lost, %" PRIu64
                    " updates are repeated",
                    job->lost, job->repeated);
    if (audit->is_final && ranges_equal(&audit->acked, &job->acked))
        job->is_accounting_final = true;
}
