/* SPDX-License-Identifier: Apache-2.0 */
/* step_run: lists of steps by state, and what moves them on. */
#include "workerd/step/step_run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "workerd/exchange/pull.h"
#include "workerd/exchange/push.h"
#include "workerd/input/stage.h"

#define SPARE_STEPS_MAX (2 * STEP_RUN_HELD_MAX) /* kept for the next tickets instead of freed */

enum step_state { STEP_WAITING, STEP_ON_DEVICE, STEP_PUSHING, STEP_REPORTED, STEP_STATE_COUNT };

struct step {
    struct step *prev;
    struct step *next;
    struct step_run *run;
    struct open_job *job; /* NULL once reported */
    enum step_state state;
    struct step_ticket ticket;
    uint64_t deadline_ns;

    struct stage_slot *slot; /* from asking for the batch until the device is done */
    struct job_copy *copy;   /* train: from asking for variables until the device is done */
    struct job_push *push;   /* train: from handing to the device until the outcome */
    bool has_input;          /* the batch is there */
    bool has_vars;           /* the variables are there */
    bool is_pinned_reader;   /* eval, on the device */
    bool is_dropped;         /* on the device still, but nobody wants its outcome */
    bool is_answered;        /* train: the push ended, maybe before the device was done */
    enum ps_verdict verdict;
    struct device_request request;

    uint64_t received_ns;
    uint64_t input_ns; /* when the batch was there */
    uint64_t vars_ns;  /* when the variables were there */
    uint64_t free_ns;  /* when the device had become free before this step */
    struct step_report report;
    char *text; /* report.text when it is not "" */
};

struct step_list {
    struct step *first;
    struct step *last;
    size_t count;
};

struct step_run {
    struct job_env env;
    void (*on_report)(void *arg);
    void *arg;
    struct step_list lists[STEP_STATE_COUNT];
    struct step *next_untaken; /* in lists[STEP_REPORTED]; all after it are untaken, too */
    struct step *spares;
    size_t spare_count;
    struct open_job *jobs; /* open and closing ones */
    uint64_t device_free_ns;
    bool is_changed;
    bool is_stopped; /* leaving: nothing is begun any more */
};

/* ---- lists -------------------------------------------------------------------------------------
 */
static void list_remove(struct step_list *list, struct step *step)
{
    *(step->prev ? &step->prev->next : &list->first) = step->next;
    *(step->next ? &step->next->prev : &list->last) = step->prev;
    list->count--;
}

static void list_append(struct step_list *list, struct step *step)
{
    step->prev = list->last;
    step->next = NULL;
    *(list->last ? &list->last->next : &list->first) = step;
    list->last = step;
    list->count++;
}

static void move(struct step *step, enum step_state state)
{
    list_remove(&step->run->lists[step->state], step);
    step->state = state;
    list_append(&step->run->lists[state], step);
}

static struct step *step_new(struct step_run *run)
{
    struct step *step = run->spares;
    if (step) {
        run->spares = step->next;
        run->spare_count--;
        memset(step, 0, sizeof(*step));
    } else {
        step = base_alloc(sizeof(*step));
    }
    step->run = run;
    return step;
}

/* The step is in no list and holds nothing. */
static void step_discard(struct step_run *run, struct step *step)
{
    free(step->text);
    if (run->spare_count >= SPARE_STEPS_MAX) {
        free(step);
        return;
    }
    step->text = NULL;
    step->next = run->spares;
    run->spares = step;
    run->spare_count++;
}

static bool key_equal(const struct step_key *a, const struct step_key *b)
{
    return a->step == b->step && a->attempt == b->attempt && a->job == b->job &&
           a->is_eval == b->is_eval;
}

static struct step *list_find(const struct step_list *list, const struct step_key *key)
{
    for (struct step *step = list->first; step; step = step->next)
        if (key_equal(&step->ticket.key, key))
            return step;
    return NULL;
}

static struct open_job *find_job(const struct step_run *run, uint64_t number)
{
    for (struct open_job *job = run->jobs; job; job = job->next)
        if (job->job == number && !job->is_closing)
            return job;
    return NULL;
}

/* ---- letting go --------------------------------------------------------------------------------
 */
static void mark_changed(void *arg)
{
    struct step_run *run = arg;
    run->is_changed = true;
}

static void on_unborrowed(struct open_job *job, void *arg)
{
    struct step_run *run = arg;
    struct open_job **at = &run->jobs;
    while (*at && *at != job)
        at = &(*at)->next;
    ASSERT(*at);
    struct open_job *next = job->next;
    if (open_job_try_free(job))
        *at = next;
}

static void release_slot(struct step *step)
{
    if (step->slot)
        stage_release(TAKE(step->slot));
}

/* A copy that is being pulled stays busy until the pull has ended. */
static void release_copy(struct step *step)
{
    if (!step->copy)
        return;
    pull_cancel(step->copy->pull);
    step->copy->user = NULL;
    step->copy = NULL;
}

/* Gradients that are still on their way keep the arrays busy until they are back. */
static void release_push(struct step *step)
{
    if (!step->push)
        return;
    push_cancel(step->push->push);
    step->push->user = NULL;
    step->push = NULL;
}

/* After this the step borrows nothing of its job. */
static void release_all(struct step *step)
{
    ASSERT(step->state != STEP_ON_DEVICE || step->request.ended_ns > 0 ||
           atomic_load(&step->request.claim) == DEVICE_TAKEN_BACK);
    release_slot(step);
    release_copy(step);
    release_push(step);
    if (step->is_pinned_reader)
        step->job->pinned.reader_count--;
    step->is_pinned_reader = false;
    if (step->state == STEP_PUSHING)
        step->job->pushing_count--;
    if (step->job)
        step->job->step_count--;
    step->job = NULL;
    step->run->is_changed = true;
}

static void forget(struct step *step)
{
    list_remove(&step->run->lists[step->state], step);
    step_discard(step->run, step);
}

/* Nobody wants its outcome. What the device has begun runs to its end first. */
static void drop(struct step *step)
{
    if (step->state == STEP_ON_DEVICE) {
        device_request_take_back(&step->request);
        step->is_dropped = true;
        return;
    }
    release_all(step);
    forget(step);
}

/* ---- the end of a step -------------------------------------------------------------------------
 */
static uint32_t us_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (uint32_t)MIN((to_ns - from_ns) / NS_PER_US, (uint64_t)UINT32_MAX) : 0;
}

static void finish(struct step *step, enum step_outcome outcome, const struct err *err)
{
    struct step_run *run = step->run;
    struct step_report *report = &step->report;
    report->key = step->ticket.key;
    report->generation = step->ticket.generation;
    report->outcome = outcome;
    report->code = ERR_OK;
    report->text = "";
    if (outcome != OUTCOME_DONE) {
        report->code = err->code;
        step->text = base_strdup(err->text);
        report->text = step->text;
        log_line(outcome == OUTCOME_FAILED ? LOG_ERROR : LOG_INFO,
                 outcome == OUTCOME_FAILED ? "step.failed" : "step.returned",
                 "job=%" PRIu64 " step=%" PRIu64 " code=%s err=\"%s\"", report->key.job,
                 report->key.step, err_name(err->code), err->text);
    }
    uint64_t able_ns =
        MAX(step->received_ns, step->free_ns); /* when the device could have begun it */
    report->input_us = us_between(able_ns, step->input_ns);
    report->compute_us = us_between(step->request.begun_ns, step->request.ended_ns);
    report->exchange_us = us_between(able_ns, step->vars_ns);
    if (step->state == STEP_PUSHING)
        report->exchange_us += us_between(step->request.ended_ns, clock_now_ns());
    release_all(step);
    move(step, STEP_REPORTED);
    if (!run->next_untaken)
        run->next_untaken = step;
    run->on_report(run->arg);
}

static void finish_by_verdict(struct step *step, enum ps_verdict verdict, const struct err *err)
{
    ASSERT(verdict != PS_RETRY);
    finish(step,
           verdict == PS_OK     ? OUTCOME_DONE
           : verdict == PS_FAIL ? OUTCOME_FAILED
                                : OUTCOME_RETURNED,
           err);
}

/* ---- the device --------------------------------------------------------------------------------
 */
static void on_push_done(void *arg, enum ps_verdict verdict, const struct err *err)
{
    struct job_push *slot = arg;
    struct step *step = slot->user;
    slot->job->env->on_change(slot->job->env->arg);
    if (!step)
        return; /* dropped; on_idle sees to the job */
    step->is_answered = true;
    step->verdict = verdict;
    if (verdict == PS_OK) {
        struct push_result result = push_result_of(slot->push);
        step->report.is_duplicate = result.is_duplicate;
        step->report.staleness = (uint32_t)MIN(result.staleness, (uint64_t)UINT32_MAX);
    } else {
        slot->err = *err;
    }
    if (step->state == STEP_PUSHING)
        finish_by_verdict(step, verdict, err);
}

static void on_device_done(struct device_request *request)
{
    struct step *step = CONTAINER_OF(request, struct step, request);
    struct step_run *run = step->run;
    struct open_job *job = step->job;
    bool was_run = request->begun_ns > 0;
    if (was_run) {
        step->free_ns = run->device_free_ns;
        run->device_free_ns = request->ended_ns;
    }
    if (step->is_dropped) {
        release_all(step);
        forget(step);
        if (job->is_closing)
            on_unborrowed(job, run);
        return;
    }
    ASSERT(was_run); /* only dropped steps are taken back */
    release_slot(step);
    release_copy(step);
    bool is_refused = step->is_answered && step->verdict != PS_OK;
    if (is_refused) {
        finish_by_verdict(step, step->verdict, &step->push->err);
    } else if (request->err.code != ERR_OK) {
        finish(step, OUTCOME_FAILED, &request->err);
    } else if (step->ticket.key.is_eval) {
        step->report.loss = (float)request->loss_sum;
        step->report.correct = request->correct;
        finish(step, OUTCOME_DONE, NULL);
    } else {
        step->report.loss = request->loss_mean;
        if (!step->push || step->is_answered) {
            finish(step, OUTCOME_DONE, NULL);
        } else {
            move(step, STEP_PUSHING);
            job->pushing_count++;
        }
    }
}

static void hand_to_device(struct step *step)
{
    struct open_job *job = step->job;
    struct device_request *request = &step->request;
    request->op = step->ticket.key.is_eval ? DEVICE_EVAL : DEVICE_TRAIN;
    request->model = &job->model;
    request->step = step->ticket.key.step;
    request->on_done = on_device_done;
    request->push = NULL;
    request->vars = NULL;
    request->grads = NULL;
    if (step->slot) {
        request->batch = (struct batch){
            .count = step->slot->count, .images = step->slot->images, .labels = step->slot->labels};
    } else {
        request->batch = (struct batch){.count = step->report.examples, .labels = job->no_labels};
    }
    if (step->is_pinned_reader)
        request->vars = pull_vars(job->pinned.pull);
    if (step->copy)
        request->vars = pull_vars(step->copy->pull);
    if (step->push) {
        request->grads = push_grads(step->push->push);
        request->push = step->push->push;
    }
    step->report.examples = request->batch.count;
    move(step, STEP_ON_DEVICE);
    device_thread_post(job->env->device, request);
}

/* Takes a free set of gradients and readies its push; false: none is free. */
static bool begin_push(struct step *step)
{
    struct open_job *job = step->job;
    struct job_push *slot = NULL;
    for (size_t i = 0; i < JOB_COPIES && !slot; i++)
        if (!job->pushes[i].user && push_is_idle(job->pushes[i].push))
            slot = &job->pushes[i];
    if (!slot)
        return false;
    size_t shard_count = job->map->shard_count;
    AUTO_MEM uint64_t *versions = base_alloc(shard_count * sizeof(*versions));
    for (size_t i = 0; i < shard_count; i++)
        versions[i] = pull_version(step->copy->pull, i);
    struct push_request request = {
        .job = job->job,
        .generation = job->generation,
        .step = step->ticket.key.step,
        .attempt = step->ticket.key.attempt,
        .session = step->ticket.session,
        .pulled_versions = versions,
        .deadline_ns = step->deadline_ns,
    };
    slot->user = step;
    step->push = slot;
    push_begin(slot->push, &request, on_push_done, slot);
    return true;
}

/* ---- the batch ---------------------------------------------------------------------------------
 */
static void on_filled(struct stage_slot *slot, void *arg)
{
    struct step *step = arg;
    step->run->is_changed = true;
    step->has_input = true;
    step->input_ns = clock_now_ns();
    if (slot->err.code != ERR_OK) {
        struct err err = slot->err;
        finish(step, OUTCOME_FAILED, &err);
    }
}

/* False: the step ended. */
static bool ask_batch(struct step *step)
{
    struct open_job *job = step->job;
    bool is_eval = step->ticket.key.is_eval;
    if (!is_eval && job->no_labels) {
        step->report.examples = job->spec->dataset.batch_size;
        step->input_ns = step->received_ns;
        step->has_input = true;
        return true;
    }
    if (!stage_has_free(job->stage))
        return true;
    struct err err;
    uint32_t count = 0;
    enum err_code code = stage_reserve(job->stage, &step->slot, &err);
    if (code == ERR_OK)
        code = is_eval
                   ? open_job_eval_batch(job, step->ticket.batch, step->slot->records, &count, &err)
                   : open_job_train_batch(job, step->ticket.epoch, step->ticket.batch,
                                          step->slot->records, &count, &err);
    if (code != ERR_OK) {
        finish(step, OUTCOME_FAILED, &err);
        return false;
    }
    stage_fill(step->slot, is_eval ? job->eval : job->train, count, on_filled, step);
    return true;
}

/* ---- the variables -----------------------------------------------------------------------------
 */
static void vars_are_there(struct step *step)
{
    step->has_vars = true;
    step->vars_ns = clock_now_ns();
}

static void on_copy_pulled(void *arg, enum ps_verdict verdict, const struct err *err)
{
    struct job_copy *copy = arg;
    struct step *step = copy->user;
    struct open_job *job = copy->job;
    job->env->on_change(job->env->arg);
    if (step && verdict == PS_OK)
        vars_are_there(step);
    else if (step)
        finish_by_verdict(step, verdict, err);
    if (job->is_closing)
        job->env->on_unborrowed(job, job->env->arg);
}

static void ask_train_vars(struct step *step)
{
    struct open_job *job = step->job;
    if (job->pushing_count > 0) /* those updates are to be in what we pull */
        return;
    for (size_t i = 0; i < JOB_COPIES && !job->env->pulls_ahead; i++)
        if (job->copies[i].user) /* and that one's, too */
            return;
    for (size_t i = 0; i < JOB_COPIES; i++) {
        struct job_copy *copy = &job->copies[i];
        if (copy->user || pull_is_active(copy->pull))
            continue;
        struct pull_request request = {
            .job = job->job, .generation = job->generation, .deadline_ns = step->deadline_ns};
        copy->user = step;
        step->copy = copy;
        pull_start(copy->pull, &request, on_copy_pulled, copy);
        return;
    }
}

static void on_pinned_pulled(void *arg, enum ps_verdict verdict, const struct err *err)
{
    struct open_job *job = arg;
    struct step_run *run = job->env->arg;
    run->is_changed = true;
    job->pinned.is_ready = verdict == PS_OK;
    struct step *next = NULL;
    for (struct step *step = run->lists[STEP_WAITING].first; step && verdict != PS_OK;
         step = next) {
        next = step->next;
        if (step->job == job && step->ticket.key.is_eval && step->ticket.pin == job->pinned.pin)
            finish_by_verdict(step, verdict, err);
    }
    if (job->is_closing)
        on_unborrowed(job, run);
}

/* False: the step ended. */
static bool ask_eval_vars(struct step *step)
{
    struct open_job *job = step->job;
    struct job_pinned *pinned = &job->pinned;
    struct err err;
    if (pinned->is_ready && pinned->pin == step->ticket.pin) {
        vars_are_there(step);
        return true;
    }
    if (open_job_have_pinned(job, &err) != ERR_OK) {
        finish(step, OUTCOME_FAILED, &err);
        return false;
    }
    if (pull_is_active(pinned->pull) || pinned->reader_count > 0)
        return true;
    pinned->is_ready = false;
    pinned->pin = step->ticket.pin;
    struct pull_request request = {.job = job->job,
                                   .generation = job->generation,
                                   .pin = step->ticket.pin,
                                   .deadline_ns = step->deadline_ns};
    pull_start(pinned->pull, &request, on_pinned_pulled, job);
    return true;
}

/* False: the step ended. */
static bool ask_vars(struct step *step)
{
    if (step->job->map->shard_count == 0) {
        step->has_vars = true;
        step->vars_ns = step->received_ns;
        return true;
    }
    if (step->ticket.key.is_eval)
        return ask_eval_vars(step);
    if (!step->copy)
        ask_train_vars(step);
    return true;
}

/* ---- moving on ---------------------------------------------------------------------------------
 */
static void advance_step(struct step *step)
{
    struct open_job *job = step->job;
    if (job->state == JOB_BROKEN) {
        finish(step, OUTCOME_FAILED, &job->err);
        return;
    }
    if (job->state == JOB_OPENING)
        return;
    if (!step->has_input && !step->slot && !ask_batch(step))
        return;
    if (!step->has_vars && !ask_vars(step))
        return;
    if (!step->has_input || !step->has_vars)
        return;
    if (step->ticket.key.is_eval && job->map->shard_count > 0) {
        if (!job->pinned.is_ready || job->pinned.pin != step->ticket.pin) {
            step->has_vars = false; /* another pin's tickets came between */
            return;
        }
        step->is_pinned_reader = true;
        job->pinned.reader_count++;
    } else if (step->copy && !begin_push(step)) {
        return;
    }
    hand_to_device(step);
}

void step_run_advance(struct step_run *run)
{
    run->is_changed = false;
    struct step *next = NULL;
    for (struct step *step = run->lists[STEP_WAITING].first; step && !run->is_stopped;
         step = next) {
        next = step->next;
        advance_step(step);
    }
}

bool step_run_has_change(const struct step_run *run)
{
    return run->is_changed;
}

void step_run_ticket(struct step_run *run, const struct step_ticket *ticket)
{
    struct step *step = step_new(run);
    step->ticket = *ticket;
    step->received_ns = clock_now_ns();
    step->deadline_ns =
        step->received_ns +
        (ticket->deadline_ms ? ticket->deadline_ms : DEFAULT_STEP_DEADLINE_MS) * NS_PER_MS;
    struct open_job *job = find_job(run, ticket->key.job);
    size_t held = run->lists[STEP_WAITING].count + run->lists[STEP_ON_DEVICE].count +
                  run->lists[STEP_PUSHING].count;
    struct err err = {.code = ERR_OK};
    if (!job || job->generation != ticket->generation)
        err_set(&err, ERR_STALE, "job %" PRIu64 " is not open here in generation %" PRIu64,
                ticket->key.job, ticket->generation);
    else if (run->is_stopped)
        err_set(&err, ERR_CANCELLED, "this worker is leaving");
    else if (held >= STEP_RUN_HELD_MAX)
        err_set(&err, ERR_FULL, "%zu tickets are held, want at most %zu", held, STEP_RUN_HELD_MAX);
    step->state = STEP_WAITING;
    list_append(&run->lists[STEP_WAITING], step);
    run->is_changed = true;
    if (err.code != ERR_OK) {
        finish(step, OUTCOME_RETURNED, &err);
        return;
    }
    ASSERT(job);
    step->job = job;
    job->step_count++;
}

void step_run_check_deadlines(struct step_run *run, uint64_t now_ns)
{
    struct step *next = NULL;
    for (struct step *step = run->lists[STEP_WAITING].first; step; step = next) {
        next = step->next;
        if (now_ns < step->deadline_ns)
            continue;
        struct err err;
        err_set(&err, ERR_TIMEOUT, "not begun before its deadline; %s",
                step->job->state == JOB_OPENING ? "the job was still opening"
                : !step->has_input              ? "its batch was not staged"
                : !step->has_vars               ? "its variables were not there"
                                                : "the device or the gradient arrays were busy");
        finish(step, OUTCOME_RETURNED, &err);
    }
}

/* ---- orders ------------------------------------------------------------------------------------
 */
static void close_job(struct step_run *run, struct open_job *job)
{
    for (int state = STEP_WAITING; state <= STEP_PUSHING; state++) {
        struct step *next = NULL;
        for (struct step *step = run->lists[state].first; step; step = next) {
            next = step->next;
            if (step->job == job && !step->is_dropped)
                drop(step);
        }
    }
    open_job_close(job);
    on_unborrowed(job, run);
}

void step_run_open_job(struct step_run *run, const Steadfast__V1__JobOpen *message)
{
    struct open_job *job = find_job(run, message->job);
    if (job && message->generation <= job->generation)
        return; /* said again after a stream broke, or late */
    if (job)
        close_job(run, job); /* whoever raised the generation has taken its steps back */
    job = open_job_new(&run->env, message);
    job->next = run->jobs;
    run->jobs = job;
}

void step_run_close_job(struct step_run *run, uint64_t number)
{
    struct open_job *job = find_job(run, number);
    if (job)
        close_job(run, job);
}

static bool has_steps(const struct step_run *run, const struct open_job *job)
{
    for (int state = STEP_WAITING; state <= STEP_PUSHING; state++)
        for (const struct step *step = run->lists[state].first; step; step = step->next)
            if (step->job == job)
                return true;
    return false;
}

void step_run_close_idle_jobs(struct step_run *run)
{
    struct open_job *next = NULL;
    for (struct open_job *job = run->jobs; job; job = next) {
        next = job->next;
        if (!job->is_closing && !has_steps(run, job))
            close_job(run, job);
    }
}

void step_run_revoke(struct step_run *run, const struct step_key *key)
{
    struct step *step = list_find(&run->lists[STEP_WAITING], key);
    if (step) {
        drop(step);
        return;
    }
    step = list_find(&run->lists[STEP_ON_DEVICE], key);
    if (step && device_request_take_back(&step->request))
        step->is_dropped = true;
}

static void forget_report(struct step_run *run, struct step *step)
{
    if (run->next_untaken == step)
        run->next_untaken = step->next;
    forget(step);
}

void step_run_ack(struct step_run *run, const struct step_key *key)
{
    /* Acknowledgements come nearly in the order of the reports, so this finds its step at once. */
    struct step *step = list_find(&run->lists[STEP_REPORTED], key);
    if (step)
        forget_report(run, step);
}

void step_run_drop_all(struct step_run *run)
{
    for (struct open_job *job = run->jobs, *next = NULL; job; job = next) {
        next = job->next;
        if (!job->is_closing)
            close_job(run, job);
    }
    while (run->lists[STEP_REPORTED].first)
        forget_report(run, run->lists[STEP_REPORTED].first);
}

bool step_run_is_empty(const struct step_run *run)
{
    for (int state = 0; state < STEP_STATE_COUNT; state++)
        if (run->lists[state].count)
            return false;
    return !run->jobs;
}

size_t step_run_stop(struct step_run *run, struct step_key *ret_keys, size_t max)
{
    run->is_stopped = true;
    size_t count = 0;
    for (int state = STEP_WAITING; state <= STEP_ON_DEVICE; state++) {
        struct step *next = NULL;
        for (struct step *step = run->lists[state].first; step; step = next) {
            next = step->next;
            if (step->is_dropped || count >= max)
                continue;
            if (state == STEP_ON_DEVICE && !device_request_take_back(&step->request))
                continue;
            ret_keys[count++] = step->ticket.key;
            drop(step);
        }
    }
    return count;
}

size_t step_run_begun_count(const struct step_run *run)
{
    size_t count = run->lists[STEP_PUSHING].count;
    for (const struct step *step = run->lists[STEP_ON_DEVICE].first; step; step = step->next)
        count += !step->is_dropped;
    return count;
}

/* ---- reports -----------------------------------------------------------------------------------
 */
size_t step_run_take_reports(struct step_run *run, struct step_report *ret_reports, size_t max)
{
    size_t count = 0;
    for (; run->next_untaken && count < max; run->next_untaken = run->next_untaken->next)
        ret_reports[count++] = run->next_untaken->report;
    return count;
}

size_t step_run_reports_for_hello(struct step_run *run, struct step_report *ret_reports, size_t max)
{
    struct step_list *list = &run->lists[STEP_REPORTED];
    size_t count = MIN(list->count, max);
    struct step *step = list->last;
    for (size_t i = count; i-- > 0; step = step->prev)
        ret_reports[i] = step->report;
    run->next_untaken = list->count > max ? list->first : NULL;
    return count;
}

size_t step_run_held(const struct step_run *run, struct step_key *ret_keys, size_t max)
{
    size_t count = 0;
    for (int state = STEP_PUSHING; state >= STEP_WAITING; state--)
        for (const struct step *step = run->lists[state].first; step && count < max;
             step = step->next)
            if (!step->is_dropped)
                ret_keys[count++] = step->ticket.key;
    return count;
}

size_t step_run_unacked_count(const struct step_run *run)
{
    return run->lists[STEP_REPORTED].count;
}

void step_run_unreachable(const struct step_run *run,
                          void (*on_server)(void *arg, const struct ps_link *link), void *arg)
{
    for (const struct open_job *job = run->jobs; job; job = job->next) {
        if (job->is_closing || !job->links)
            continue;
        for (size_t i = 0; i < job->links->count; i++)
            if (job->links->items[i].is_unreachable)
                on_server(arg, &job->links->items[i]);
    }
}

/* ---- begin and end -----------------------------------------------------------------------------
 */
struct step_run *step_run_new(const struct job_env *env, void (*on_report)(void *arg), void *arg)
{
    struct step_run *run = base_alloc(sizeof(*run));
    run->env = *env;
    run->env.on_change = mark_changed;
    run->env.on_unborrowed = on_unborrowed;
    run->env.arg = run;
    run->on_report = on_report;
    run->arg = arg;
    return run;
}

void step_run_free(struct step_run *run)
{
    if (!run)
        return;
    ASSERT(step_run_is_empty(run));
    while (run->spares) {
        struct step *step = run->spares;
        run->spares = step->next;
        free(step);
    }
    free(run);
}
