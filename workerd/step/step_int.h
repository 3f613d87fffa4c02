/* SPDX-License-Identifier: Apache-2.0 */
/* step_int: what the files of the steps share, and which of them owns what.
 *
 *   step_run      the door: tickets, orders, deadlines; moves waiting steps on
 *   step_jobs     which jobs are open
 *   step_ask      the batch and the variables of a waiting step
 *   step_compute  the device, the gradients on their way, and what came of both
 *   step_end      letting go of what a step borrows; the words of its report
 *   step_report   reports until they are acknowledged
 *   step_table    steps by state, and spare ones
 *
 * Each calls those below it. An owner is the only file that writes a field; the rest read it.
 */
#ifndef WORKERD_STEP_STEP_INT_H
#define WORKERD_STEP_STEP_INT_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "workerd/exchange/ps_link.h"
#include "workerd/step/device_thread.h"
#include "workerd/step/open_job.h"
#include "workerd/step/step_ticket.h"

struct step_run;

enum step_state { STEP_WAITING, STEP_ON_DEVICE, STEP_PUSHING, STEP_REPORTED, STEP_STATE_COUNT };

struct step {
    /* step_table */
    struct step *prev;
    struct step *next;
    enum step_state state;

    /* step_run, with the ticket */
    struct step_run *run;
    struct open_job *job; /* step_end: NULL once reported */
    struct step_ticket ticket;
    uint64_t received_ns;
    uint64_t deadline_ns;

    /* step_ask takes them, step_end gives them back */
    struct stage_slot *slot; /* from asking for the batch until the device is done */
    struct job_copy *copy;   /* train: from asking for variables until the device is done */
    bool has_input;          /* the batch is there */
    bool has_vars;           /* the variables are there */
    uint64_t input_ns;       /* when the batch was there */
    uint64_t vars_ns;        /* when the variables were there */

    /* step_compute takes them, step_end gives them back */
    struct job_push *push; /* train: from handing to the device until the outcome */
    bool is_pinned_reader; /* eval, on the device */
    bool is_answered;      /* train: the push ended, maybe before the device was done */
    enum ps_verdict verdict;
    struct device_request request;
    uint64_t free_ns; /* when the device had become free before this step */

    /* step_end; the figures of what was computed by whoever knows them first */
    bool is_dropped; /* on the device still, but nobody wants its outcome */
    struct step_report report;
    char *text; /* report.text when it is not "" */
};

struct step_list {
    struct step *first;
    struct step *last;
    size_t count;
};

struct step_run {
    struct job_env env; /* step_run: set once */

    /* step_table */
    struct step_list lists[STEP_STATE_COUNT];
    struct step *spares;
    size_t spare_count;

    /* step_report */
    struct step *next_untaken; /* in lists[STEP_REPORTED]; all after it are untaken, too */
    void (*on_report)(void *arg);
    void *on_report_arg;

    struct open_job *jobs;   /* step_jobs: open and closing ones */
    uint64_t device_free_ns; /* step_compute: when the newest computed step ended */
    bool is_changed;         /* anyone sets it, step_run_advance clears it */
    bool is_stopped;         /* step_run: leaving, nothing is begun any more */
};

/* ---- step_table --------------------------------------------------------------------------------
 */
struct step *step_table_add(struct step_run *run); /* zeros, waiting */
void step_table_move(struct step *step, enum step_state state);
void step_table_forget(struct step *step); /* holds nothing any more, but for its text */
struct step *step_table_find(const struct step_run *run, enum step_state state,
                             const struct step_key *key);
bool step_table_has_job(const struct step_run *run, const struct open_job *job);
size_t step_table_held_count(const struct step_run *run); /* without a report, dropped ones too */
bool step_table_is_empty(const struct step_run *run);
void step_table_free_spares(struct step_run *run);

/* ---- step_report -------------------------------------------------------------------------------
 */
void step_report_add(struct step *step); /* the step is complete and borrows nothing */
void step_report_drop_all(struct step_run *run);

/* ---- step_end ----------------------------------------------------------------------------------
 */
void step_end_release_inputs(struct step *step); /* the device has read them */
/* A step without a job left: it goes without a report. What the device has begun runs to its end
 * first. */
void step_end_drop(struct step *step);
/* The device is done with a dropped step. */
void step_end_dropped(struct step *step);
void step_end_finish(struct step *step, enum step_outcome outcome, const struct err *err);
void step_end_by_verdict(struct step *step, enum ps_verdict verdict, const struct err *err);

/* ---- step_ask ----------------------------------------------------------------------------------
 * Of a waiting step of an open job. False: the step ended.
 */
bool step_ask_batch(struct step *step);
bool step_ask_vars(struct step *step);

/* ---- step_compute ------------------------------------------------------------------------------
 */
/* The step has its batch and its variables; it waits on when there is no room for its gradients. */
void step_compute_begin(struct step *step);

/* ---- step_jobs ---------------------------------------------------------------------------------
 */
struct open_job *step_jobs_find(const struct step_run *run, uint64_t number);
/* For env: a closing job may be free of borrowers now. arg: the run. */
void step_jobs_on_unborrowed(struct open_job *job, void *arg);
/* Some server that its steps need is out of reach. */
bool step_jobs_misses_server(const struct open_job *job);
void step_jobs_close_all(struct step_run *run);

#endif
