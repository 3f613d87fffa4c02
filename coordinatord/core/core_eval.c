/* SPDX-License-Identifier: Apache-2.0 */
/* core_eval: evaluations of a pinned version beside the steps, batch by batch, like steps.
 *
 *   NONE --epoch settled--> PINNING (every server) --> RUNNING --> NONE
 */
#include <inttypes.h>
#include <string.h>

#include "coordinatord/core/core_beside_int.h"

void core_eval_start(struct core *core, struct job *job, uint32_t epoch)
{
    struct eval_run *eval = &job->eval;
    ASSERT(eval->phase == EVAL_NONE);
    uint32_t batch = job->spec->eval_dataset.batch_size;
    eval->phase = EVAL_PINNING;
    eval->epoch = epoch;
    eval->pin = ++core->next_pin;
    eval->step = job->steps.acked_count;
    eval->batches = (job->eval_records + batch - 1) / batch;
    eval->next = 0;
    ranges_clear(&eval->again);
    ranges_clear(&eval->done);
    core_suspicion_clear(&eval->suspicion);
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
        job->past.evaluated_epochs = MAX(job->past.evaluated_epochs, (uint64_t)eval->epoch);
        core_eval_stop(core, job);
    } else if (--eval->pins_left == 0) {
        eval->phase = EVAL_RUNNING;
        job->past.evaluated_epochs =
            MAX(job->past.evaluated_epochs, (uint64_t)eval->epoch); /* its version is fixed */
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
    job->past.eval_seq = core_record(core, &record);
    core_eval_stop(core, job);
    core_act_add(core, CORE_ACT_CHANGED)->job = job->number;
    core->is_fill_due = true;
}
