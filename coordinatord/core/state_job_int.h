/* SPDX-License-Identifier: Apache-2.0 */
/* state_job_int: what the core knows of a job, in parts. A part belongs to the files that it names;
 * the others read it. */
#ifndef COORDINATORD_CORE_STATE_JOB_INT_H
#define COORDINATORD_CORE_STATE_JOB_INT_H

#include "common/base/clock.h"
#include "common/base/map.h"
#include "common/spec/data_order.h"
#include "coordinatord/core/core.h"
#include "coordinatord/core/hazard_int.h"
#include "coordinatord/rule/rule.h"

#define RATE_SLOTS 8

enum phase {
    PHASE_QUEUED,
    PHASE_LOOKING, /* for a checkpoint */
    PHASE_PLANNING,
    PHASE_PLACING, /* servers create or restore their slices */
    PHASE_TRAINING,
    PHASE_FINISHING,  /* no step is left; evaluation, checkpoint, audit */
    PHASE_RECOVERING, /* after a restart: waiting for the servers that hold it */
    PHASE_WAITING,    /* for servers */
    PHASE_ENDED,
};

/* ---- steps: core_window.c (epoch, leases), core_step.c, core_report.c --------------------------
 */

struct lease {      /* of a window of the epoch being issued */
    uint64_t owner; /* session; 0: free */
    uint64_t next;  /* step */
    uint64_t end;
};

struct trouble {          /* a step that failed, or was there when its worker died */
    uint32_t count;       /* attempts that failed or hung */
    struct hazard alone;  /* of workers that died and ran nothing else */
    struct hazard with;   /* of all that died and held it among what they may have begun */
    struct hazard since;  /* all that workers had seen before the first of these */
    struct hazard before; /* what was remembered then */
    bool is_failure;      /* the last was reported as one */
    enum err_code code;
    char who[64];
    char text[320];
};

struct verdict_run {     /* core_verdict.c */
    size_t answers_left; /* 0: nobody is being asked */
    uint64_t serial;     /* an answer to an earlier question says too little */
    bool is_good;        /* every server answered so far */
    uint32_t shards;     /* that answered */
    struct ranges asked;
    struct ranges all;  /* of these, marked by every shard so far */
    struct ranges some; /* by one at least */
    uint64_t retry_ns;
};

struct suspicion {          /* core_suspect.c */
    struct ranges seen;     /* in flight when a worker was lost */
    struct ranges suspects; /* at two losses: run alone */
};

struct job_steps {
    struct ranges acked;     /* durable */
    struct ranges finished;  /* acked, waiting to be durable, or abandoned */
    struct ranges settled;   /* acked or abandoned */
    struct ranges abandoned; /* set */
    struct ranges issued;    /* given out (or found claimed, or done) in this generation */
    struct ranges again;     /* to be issued again, lowest first */
    struct ranges on_trial;  /* tried out, not issued until the shards were asked */
    struct suspicion suspicion;
    struct map troubles; /* step + 1 -> struct trouble, of steps that are not finished */
    uint64_t acked_count;
    struct ranges
        left; /* of which a ticket left, or which came with a checkpoint; in all generations */
    uint64_t reissues_waiting; /* tickets that are not the first of their step and have not left */
    uint32_t failed_in_a_row;  /* steps that were tried out since one was done */
    uint64_t reissued;         /* such that left */
    uint64_t images;
    uint64_t pruned; /* watermark last told to the shards */

    uint32_t epoch; /* being issued */
    uint64_t next_place;
    struct lease *leases;
    size_t lease_count;
    size_t lease_capacity;
};

/* ---- place: core_place.c, core_restore.c -------------------------------------------------------
 */

struct job_server {
    char *name;
    char *address;
    uint32_t shard_count;
    uint64_t incarnation; /* of the process that holds the slices; 0: none known */
    bool has_slices;      /* of this job; without, its coming and going is nothing to the job */
    bool is_created;
};

/* After a restart a plan is asked for twice: where slices live, to know who has to come back, and
 * again when all have, since they may have come back at other addresses. */
enum recovery { RECOVER_NONE, RECOVER_SLICES, RECOVER_SERVERS, RECOVER_ADDRESSES, RECOVER_DONE };

struct job_place {
    struct job_server *servers;
    size_t server_count;
    enum recovery recovery;
    uint64_t placed_seq; /* of the record of the placement; the orders go out when it is durable */
    bool is_ordered;
    uint64_t
        create_again_ns; /* when to ask servers again that could not make their slices; 0: no */
    char *restore_directory;
    bool is_replayed_placement; /* the servers came from the ledger; a plan for them is asked for
                                   again */
};

/* ---- beside the training -----------------------------------------------------------------------
 */

enum eval_phase { EVAL_NONE, EVAL_PINNING, EVAL_RUNNING };

struct eval_run { /* core_eval.c */
    enum eval_phase phase;
    uint32_t epoch; /* 1-based */
    uint64_t pin;
    uint64_t step;
    size_t pins_left;
    uint64_t batches;
    uint64_t next;
    struct ranges again; /* batches to issue again */
    struct suspicion suspicion;
    struct ranges done;
    double loss_sum;
    uint64_t examples;
    uint64_t correct;
    uint32_t failures;
};

enum ckpt_phase { CKPT_NONE, CKPT_BEGINNING, CKPT_SNAPSHOTS, CKPT_PUBLISHING };

struct ckpt_run { /* core_ckpt.c */
    enum ckpt_phase phase;
    uint64_t number;
    size_t snapshots_left;
    uint64_t step;
    struct ranges acked; /* durable when it began */
    uint64_t deadline_ns;
    bool is_wanted;       /* asked for by a client or by the end of the job */
    uint64_t last_step;   /* acknowledged count at the last begin */
    uint64_t last_number; /* newest number used in the directory */
    uint32_t final_tries; /* of the checkpoint at the end of the job */
    uint32_t failures;    /* since the newest that was published */
    enum err_code failed_code;
    uint64_t retry_ns;
    uint64_t published_step; /* acknowledged count in the newest published one; UINT64_MAX: none */
    uint64_t *requests;      /* clients waiting for the next publication */
    size_t request_count;
    size_t running_request_count; /* the first so many wait for the one being written */
};

enum audit_phase { AUDIT_NONE, AUDIT_RUNNING };

struct audit_run { /* core_audit.c */
    enum audit_phase phase;
    uint64_t serial; /* an answer of an earlier one, which was cut short, says too little */
    bool is_final;
    bool is_good; /* every server answered */
    size_t marks_left;
    struct ranges acked; /* durable when it began */
    uint64_t next_ns;
    uint32_t tries;
};

struct shard_view {
    size_t server_index;
    uint32_t shard;
    uint64_t applied;
    uint64_t bytes;
    uint64_t duplicates;
    uint64_t repeated;
    uint64_t missing; /* acknowledged steps not in its marks, at the last audit */
};

struct job_accounts { /* core_audit.c */
    struct shard_view *shards;
    size_t shard_count;
    uint64_t final_duplicates; /* of servers that are gone */
    uint64_t lost;
    uint64_t repeated;
    bool is_accounting_final;
};

/* ---- what is shown -----------------------------------------------------------------------------
 */

struct job_past { /* core_jobs.c */
    struct core_eval *evals;
    size_t eval_count;
    uint64_t eval_seq;         /* of the record of the last */
    uint64_t evaluated_epochs; /* 1-based epoch of the last evaluation that is done or not wanted */
    struct core_ckpt *ckpts;
    size_t ckpt_count;
    struct core_abandoned *abandoned_list;
    size_t abandoned_count;
    char *notices[LIMIT_NOTICES]; /* core_out.c */
    size_t notice_count;
};

struct job_pace { /* core_report.c, core_watch.c */
    double loss;  /* smoothed */
    bool has_loss;
    double staleness;
    uint64_t phase_steps;
    struct core_phases phases; /* sums over them */
    uint64_t acked_here;       /* by this process, for rates */
    uint64_t images_here;
    uint64_t slot_ns; /* begin of the newest rate slot (one second each) */
    uint64_t slot_steps[RATE_SLOTS];
    uint64_t slot_images[RATE_SLOTS];
    size_t slot_at;
};

/* ---- the job: core_jobs.c, core_job.c, core_end.c ----------------------------------------------
 */

struct doom { /* what was found below and ends the job at the end of the event */
    bool is_due;
    enum err_code code;
    char *reason;
};

struct job {
    uint64_t number;
    char *name;
    struct job_spec *spec;
    char *spec_json;
    bool is_resume;
    bool wants_servers; /* the model has variables */
    uint64_t submitted_ms;
    uint64_t records;
    uint64_t eval_records;
    const struct rule *rule;
    struct data_order order;
    uint64_t steps_per_epoch;
    uint64_t steps_total;

    enum core_job_state state;
    enum phase phase;
    char *reason;
    struct doom doom;
    uint64_t generation;
    uint64_t replayed_generation; /* that the ledger held at the start; 0: none */
    uint64_t phase_ns;            /* when the phase began */
    uint64_t progress_ns;         /* when something last moved on */
    uint64_t stall_ns;            /* when the next word about no progress is due */
    uint64_t hold_until_ns;
    uint64_t begin_ns; /* of running, by this process, for rates */
    uint64_t end_ns;
    uint64_t began_ms; /* the time of day of its first RUNNING; 0: not yet */
    uint64_t ended_ms;
    uint64_t end_seq; /* record of the end, until it is durable and the servers were told; else 0 */

    struct job_steps steps;
    struct verdict_run verdict;
    struct job_place place;
    struct eval_run eval;
    struct ckpt_run ckpt;
    struct audit_run audit;
    struct job_accounts accounts;
    struct job_past past;
    struct job_pace pace;
};

#endif
