/* SPDX-License-Identifier: Apache-2.0 */
/* core_verdict: before a step is given up the other workers are watched for how often they die without
 * it (hazard_int.h), and then the shards are asked whether they have it: a step may have
 * been applied everywhere and have killed its worker after that. It is done.
 *
 *   tried out --> on trial --watched--> guilty --every shard answered--> all have it:  acknowledged
 *                            |           ^   |                          some have it: goes again
 *                            v           |   | a server is away,        none has it:  abandoned
 *                       goes again       +---+ or did not answer
 *
 * While a step is on trial it is not issued. A worker that was lost is fenced before its servers are
 * asked: what they answer stays true. Where some shards have a step, those say "done before" to the
 * next attempt. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "coordinatord/core/core_sched_int.h"

#define FAILED_IN_A_ROW 3 /* steps tried out with none done in between: the job fails */
#define RETRY_NS        (500 * NS_PER_MS) /* after servers could not all be asked */

static uint32_t examples_of(const struct job *job, uint64_t step)
{
    uint32_t batch_size = job->spec->dataset.batch_size;
    if (job->spec->dataset.source == DATA_NONE)
        return batch_size;
    uint64_t *records AUTO_MEM = base_alloc(batch_size * sizeof(*records));
    return data_order_batch(&job->order, (uint32_t)(step / job->steps_per_epoch),
                            step % job->steps_per_epoch, records);
}

static void acquit(struct core *core, struct job *job, uint64_t step)
{
    struct pending_ack ack = {.ref = {.job = job->number, .step = step, .kind = CORE_TRAIN},
                              .generation = job->generation,
                              .examples = examples_of(job, step)};
    core_notice(
        core, job,
        "step %" PRIu64 " has no report, but every shard has applied it: it is acknowledged", step);
    ack.seq = core_step_finish(core, job, step, ack.examples);
    core_ack_pend(core, &ack);
}

/* No shard has it. Steps that fail one after the other, with none done in between, are not to blame
 * themselves. */
static void condemn(struct core *core, struct job *job, uint64_t step)
{
    const struct trouble *trouble = core_trouble_of(job, step);
    uint32_t attempts = trouble->count + (uint32_t)trouble->alone.deaths;
    if (trouble->is_failure && attempts >= job->spec->steps.max_attempts &&
        ++job->steps.failed_in_a_row >= FAILED_IN_A_ROW) {
        core_job_doom(core, job, trouble->code,
                      core_arena_text(core, "step %" PRIu64 " failed %u times, last on %s: %s: %s",
                                      step, attempts, trouble->who, err_name(trouble->code),
                                      trouble->text));
        return;
    }
    core_step_abandon(core, job, step, attempts, trouble->code, trouble->text);
    core->lives.deaths -= trouble->with.deaths; /* they are no longer of unknown cause */
}

static void judge(struct core *core, struct job *job)
{
    struct verdict_run *run = &job->verdict;
    for (size_t i = 0; i < run->asked.count; i++) {
        for (uint64_t step = run->asked.items[i].first; step <= run->asked.items[i].last; step++) {
            if (job->doom.is_due || !ranges_has(&job->steps.on_trial, step))
                continue; /* over, or reported meanwhile */
            ranges_remove_range(&job->steps.on_trial, step, step);
            if (run->shards && ranges_has(&run->all, step))
                acquit(core, job, step);
            else if (ranges_has(&run->some, step))
                ranges_add(&job->steps.again, step);
            else
                condemn(core, job, step);
        }
    }
    core->is_fill_due = true;
}

/* What workers saw since its first death, without those that held it. */
static struct hazard others_of(const struct core *core, const struct trouble *trouble)
{
    const struct hazard *with = &trouble->with;
    return (struct hazard){fmax(0, core->lives.deaths - trouble->since.deaths - with->deaths),
                           fmax(0, core->lives.seconds - trouble->since.seconds - with->seconds)};
}

/* With the time before and without it: calm does not make up for the storm that follows it. (That it
 * failed or hung is nobody else's doing.) */
static bool is_guilty(const struct trouble *trouble, const struct hazard *others)
{
    struct hazard all = {others->deaths + trouble->before.deaths,
                         others->seconds + trouble->before.seconds};
    return trouble->alone.deaths == 0 ||
           (hazard_is_guilty(&trouble->alone, others) && hazard_is_guilty(&trouble->alone, &all));
}

/* Those on trial for long enough are asked about, or go again. */
static void find_guilty(struct core *core, struct job *job)
{
    struct ranges *asked = &job->verdict.asked;
    struct ranges *on_trial = &job->steps.on_trial;
    ranges_clear(asked);
    size_t workers = core_lives_pass(core);
    for (size_t i = 0; i < on_trial->count; i++) {
        for (uint64_t step = on_trial->items[i].first; step <= on_trial->items[i].last; step++) {
            const struct trouble *trouble = core_trouble_of(job, step);
            struct hazard others = others_of(core, trouble);
            double left_s = hazard_watch_s(&trouble->alone) - others.seconds;
            if (left_s > 0) { /* without workers no time passes */
                if (workers)
                    core_arm(core, core->now_ns + NS_PER_MS +
                                       (uint64_t)(left_s * (double)NS_PER_S / (double)workers));
            } else if (is_guilty(trouble, &others)) {
                ranges_add(asked, step);
            } else {
                ranges_add(&job->steps.again, step);
                core->is_fill_due = true;
            }
        }
    }
    for (size_t i = 0; i < job->steps.again.count; i++)
        ranges_remove_range(on_trial, job->steps.again.items[i].first,
                            job->steps.again.items[i].last);
}

void core_verdict_advance(struct core *core, struct job *job)
{
    struct verdict_run *run = &job->verdict;
    if (run->answers_left || job->steps.on_trial.count == 0)
        return;
    if (core->now_ns < run->retry_ns) {
        core_arm(core, run->retry_ns);
        return;
    }
    find_guilty(core, job);
    if (run->asked.count == 0)
        return;
    ranges_copy(&run->all, &run->asked);
    ranges_clear(&run->some);
    run->shards = 0;
    size_t holders = core_job_holders(job);
    if (holders == 0) { /* nothing holds anything: there is nobody to ask */
        judge(core, job);
        return;
    }
    run->answers_left = core_order_all(core, ORDER_ASK, job, ++run->serial);
    run->is_good = run->answers_left == holders;
    if (run->answers_left == 0) {
        run->retry_ns = core->now_ns + RETRY_NS;
        core_arm(core, run->retry_ns);
    }
}

static void count_shard(struct verdict_run *run, const struct ranges *marks)
{
    run->shards++;
    for (size_t i = 0; i < run->asked.count; i++) {
        for (uint64_t step = run->asked.items[i].first; step <= run->asked.items[i].last; step++) {
            if (ranges_has(marks, step))
                ranges_add(&run->some, step);
            else
                ranges_remove_range(&run->all, step, step);
        }
    }
}

void core_verdict_answer(struct core *core, struct job *job, const struct order *order,
                         enum err_code code, const struct core_shard_state *shards, size_t count)
{
    struct verdict_run *run = &job->verdict;
    if (run->answers_left == 0 || order->value != run->serial)
        return;
    size_t told = 0;
    for (size_t i = 0; i < count; i++) {
        if (shards[i].job == job->number && shards[i].generation == job->generation &&
            shards[i].has_marks) {
            count_shard(run, &shards[i].marks);
            told++;
        }
    }
    run->is_good = run->is_good && code == ERR_OK && told > 0;
    if (--run->answers_left > 0)
        return;
    if (run->is_good) {
        judge(core, job);
    } else {
        run->retry_ns = core->now_ns + RETRY_NS;
        core_arm(core, run->retry_ns);
    }
}
