/* SPDX-License-Identifier: Apache-2.0 */
/* core_report: what becomes of a worker's report, up to its acknowledgement. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "coordinatord/core/core_life_int.h"

#define CREDIT_QUEUE_S                                                                             \
    0.020 /* tickets for so many seconds of a worker's speed wait at it, beside those that wait for the disk */
#define RETURN_HOLD_NS (50 * NS_PER_MS) /* after giving steps back a worker waits for more */

static void add_phases(struct job_pace *pace, const struct core_phases *step)
{
    pace->phase_steps++;
    pace->phases.compute_us += step->compute_us;
    pace->phases.serialise_us += step->serialise_us;
    pace->phases.copy_us += step->copy_us;
    pace->phases.apply_us += step->apply_us;
    pace->phases.wait_us += step->wait_us;
}

static void done(struct core *core, struct member *worker, struct job *job,
                 const struct core_report *report)
{
    uint64_t step = report->ref.step;
    struct pending_ack ack = {.seq = core->next_seq,
                              .ref = report->ref,
                              .generation = job->generation,
                              .session = worker->session,
                              .examples = report->examples};
    if (ranges_has(&job->steps.acked, step) || ranges_has(&job->steps.abandoned, step)) {
        core_ack_add(worker, &report->ref);
        return;
    }
    struct rule_steps steps = core_job_rule_steps(job);
    if (!job->rule->is_complete(&steps, step))
        return; /* its worker keeps the report */
    if (ranges_has(&job->steps.finished, step)) {
        core_ack_pend(core, &ack); /* somebody else's report of it is on its way to the disk */
        return;
    }
    job->pace.loss =
        job->pace.has_loss ? 0.98 * job->pace.loss + 0.02 * report->loss : report->loss;
    job->pace.has_loss = true;
    add_phases(&job->pace, &report->phases);
    job->pace.staleness = 0.98 * job->pace.staleness + 0.02 * report->staleness;
    ack.seq = core_step_finish(core, job, step, report->examples);
    core_ack_pend(core, &ack);
}

static void failed(struct core *core, struct member *worker, struct job *job,
                   const struct core_report *report, const struct in_flight *flight)
{
    uint64_t step = report->ref.step;
    if (ranges_has(&job->steps.finished, step))
        return;
    core_suspect_clear(job, CORE_TRAIN, step); /* it fails and does not kill */
    struct trouble *trouble = core_trouble_of(job, step);
    trouble->count++;
    trouble->is_failure = true;
    trouble->code = report->code;
    snprintf(trouble->who, sizeof(trouble->who), "%s", worker->name);
    snprintf(trouble->text, sizeof(trouble->text), "%s", report->text ? report->text : "");
    if (job->spec->steps.on_error == STEP_ERROR_ABORT) {
        core_job_end(core, job, CORE_JOB_FAILED, report->code,
                     core_arena_text(core, "step %" PRIu64 " failed %u times, last on %s: %s: %s",
                                     step, trouble->count, worker->name, err_name(report->code),
                                     trouble->text));
    } else if (trouble->count + (uint32_t)trouble->alone.deaths >= job->spec->steps.max_attempts ||
               job->spec->steps.on_error == STEP_ERROR_SKIP) {
        ranges_add(&job->steps.on_trial, step);
    } else {
        core_notice(core, job, "step %" PRIu64 " failed on %s (attempt %u of %u): %s: %s", step,
                    worker->name, trouble->count, job->spec->steps.max_attempts,
                    err_name(report->code), trouble->text);
        core_step_give_back(core, job, flight, BLAME_NONE, worker->name);
        worker->hold_until_ns = core->now_ns + RETURN_HOLD_NS;
        core_arm(core, worker->hold_until_ns);
    }
}

static void measure_rate(struct core *core, struct member *worker)
{
    worker->rate_done++;
    uint64_t span_ns = core->now_ns - worker->rate_ns;
    if (span_ns < 5 * NS_PER_MS)
        return;
    double rate = (double)worker->rate_done * 1e9 / (double)span_ns;
    worker->rate = worker->rate > 0 ? 0.7 * worker->rate + 0.3 * rate : rate;
    worker->rate_ns = core->now_ns;
    worker->rate_done = 0;
    double credit = LIMIT_CREDIT_MIN + 1 + worker->rate * (CREDIT_QUEUE_S + core->commit_s);
    worker->credit = (uint32_t)MIN(credit, (double)LIMIT_CREDIT_MAX);
}

void core_report_take(struct core *core, struct member *worker, const struct core_report *report)
{
    struct in_flight *found = core_flight_find(worker, &report->ref);
    bool was_in_flight = found != NULL;
    struct in_flight flight = found ? *found : (struct in_flight){0};
    if (found)
        core_flight_remove(worker, found);
    worker->is_stuck = false;
    struct job *job = core_job_of(core, report->ref.job);
    bool is_known = job && core_job_is_active(job) && report->generation == job->generation &&
                    (report->ref.kind == CORE_EVAL || report->ref.step < job->steps_total);
    if (!is_known) {
        core_ack_add(worker, &report->ref); /* of the past: done with, whatever it says */
        /* A ticket that was adopted after a restart may have been of an older generation. */
        if (was_in_flight && job)
            core_step_give_back(core, job, &flight, BLAME_NONE, worker->name);
        return;
    }
    struct in_flight told = {.ref = report->ref, .generation = report->generation};
    if (report->outcome == CORE_RETURNED) {
        if (was_in_flight)
            core_step_give_back(core, job, &told, BLAME_NONE, worker->name);
        worker->hold_until_ns = core->now_ns + RETURN_HOLD_NS;
        core_arm(core, worker->hold_until_ns);
        core_ack_add(worker, &report->ref);
        return;
    }
    worker->steps_done++;
    measure_rate(core, worker);
    if (report->ref.kind == CORE_EVAL) {
        if (was_in_flight) /* else of an evaluation that was stopped: of other values */
            core_eval_report(core, job, report, worker->name);
        core_ack_add(worker, &report->ref);
    } else if (report->outcome == CORE_DONE) {
        done(core, worker, job, report);
    } else {
        core_ack_add(worker, &report->ref);
        failed(core, worker, job, report, &told);
    }
}

void core_report_written(struct core *core)
{
    struct pending_ack ack;
    while (core_ack_pop(core, &ack)) {
        struct member *worker = ack.session ? core_member_of_session(core, ack.session) : NULL;
        if (worker)
            core_ack_add(worker, &ack.ref);
        struct job *job = core_job_of(core, ack.ref.job);
        if (!job || ack.generation != job->generation)
            continue; /* rolled back meanwhile: the ledger has forgotten it too */
        if (ranges_add(&job->steps.acked, ack.ref.step)) {
            job->steps.acked_count++;
            job->pace.acked_here++;
            job->pace.images_here += ack.examples;
            ranges_add(&job->steps.settled, ack.ref.step);
            job->pace.slot_steps[job->pace.slot_at]++;
            job->pace.slot_images[job->pace.slot_at] += ack.examples;
            job->progress_ns = core->now_ns;
        }
    }
}
