/* SPDX-License-Identifier: Apache-2.0 */
/* step_jobs: a list, few long; one open job of each number. */
#include "workerd/step/step_jobs.h"

#include "workerd/step/step_int.h"

struct open_job *step_jobs_find(const struct step_run *run, uint64_t number)
{
    for (struct open_job *job = run->jobs; job; job = job->next)
        if (job->job == number && !job->is_closing)
            return job;
    return NULL;
}

void step_jobs_on_unborrowed(struct open_job *job, void *arg)
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

static void close_job(struct step_run *run, struct open_job *job)
{
    for (int state = STEP_WAITING; state <= STEP_PUSHING; state++) {
        struct step *next = NULL;
        for (struct step *step = run->lists[state].first; step; step = next) {
            next = step->next;
            if (step->job == job && !step->is_dropped)
                step_end_drop(step);
        }
    }
    open_job_close(job);
    step_jobs_on_unborrowed(job, run);
}

void step_jobs_open(struct step_run *run, const Steadfast__V1__JobOpen *message)
{
    struct open_job *job = step_jobs_find(run, message->job);
    if (job && message->generation <= job->generation)
        return; /* said again after a stream broke, or late */
    if (job)
        close_job(run, job); /* whoever raised the generation has taken its steps back */
    job = open_job_new(&run->env, message);
    job->next = run->jobs;
    run->jobs = job;
}

void step_jobs_close(struct step_run *run, uint64_t number)
{
    struct open_job *job = step_jobs_find(run, number);
    if (job)
        close_job(run, job);
}

void step_jobs_close_idle(struct step_run *run)
{
    struct open_job *next = NULL;
    for (struct open_job *job = run->jobs; job; job = next) {
        next = job->next;
        if (!job->is_closing && !step_table_has_job(run, job))
            close_job(run, job);
    }
}

void step_jobs_close_all(struct step_run *run)
{
    struct open_job *next = NULL;
    for (struct open_job *job = run->jobs; job; job = next) {
        next = job->next;
        if (!job->is_closing)
            close_job(run, job);
    }
}

bool step_jobs_misses_server(const struct open_job *job)
{
    for (size_t i = 0; job->links && i < job->links->count; i++)
        if (job->links->items[i].is_unreachable)
            return true;
    return false;
}

void step_jobs_unreachable(const struct step_run *run,
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
