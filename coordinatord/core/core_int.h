/* SPDX-License-Identifier: Apache-2.0 */
/* core_int: the state that the files of the core share. Included by core*.c only.
 *
 *   core.c         life, events in, the action list, the deadline
 *   core_member.c  who is attached, leases, what members say
 *   core_sched.c   which step goes to which worker; reports; acknowledgement
 *   core_job.c     the phases of a job; pause and restore
 *   core_restore.c  answers that put a job onto servers
 *   core_watch.c   deadlines of jobs
 *   core_suspect.c  steps that may have killed their worker
 *   core_order.c   orders to servers
 *   core_ckpt.c    checkpoints, evaluations and audits beside the training
 *   core_view.c    looking in
 */
#ifndef COORDINATORD_CORE_CORE_INT_H
#define COORDINATORD_CORE_CORE_INT_H

#include "common/base/clock.h"
#include "common/base/map.h"
#include "common/spec/data_order.h"
#include "coordinatord/core/core.h"

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

enum member_state { MEMBER_ATTACHED, MEMBER_SILENT, MEMBER_LOST, MEMBER_LEFT };

struct in_flight {
    struct core_step_ref ref;
    uint64_t generation;
    uint64_t sent_ns;
    uint32_t deadline_ms;
};

struct opened {
    uint64_t job;
    uint64_t generation;
};

struct member {
    enum core_role role;
    enum member_state state;
    char *name;
    char *address;
    uint64_t conn; /* CORE_NO_CONN unless attached */
    uint64_t incarnation;
    uint64_t session;
    uint64_t heard_ns;
    uint64_t memory_bytes;
    uint64_t held_bytes;
    uint32_t shard_count;

    /* workers */
    struct in_flight *flight; /* [flight_head, flight_head + flight_count), in the order of issue */
    size_t flight_head;
    size_t flight_count;
    size_t flight_capacity;
    struct opened *opened;
    size_t opened_count;
    uint32_t credit;
    bool is_stuck; /* let a ticket's deadline pass; gets nothing until it reports */
    bool is_leaving;
    bool is_alone;          /* its only ticket is a suspect: nothing is added to it */
    uint64_t hold_until_ns; /* gave steps back: a pause before it gets more */
    double rate;            /* steps per second, smoothed */
    uint64_t rate_ns;
    uint64_t rate_done;
    uint64_t steps_done;
    size_t turn;                /* which running job was served last */
    struct core_step_ref *acks; /* to be sent at the end of this event */
    size_t ack_count;
    size_t ack_capacity;
};

struct lease {      /* of a window of the epoch being issued */
    uint64_t owner; /* session; 0: free */
    uint64_t next;  /* step */
    uint64_t end;
};

struct trouble { /* a step that failed or killed */
    uint32_t count;
    enum err_code code;
    char text[320];
};

struct job_server {
    char *name;
    char *address;
    uint32_t shard_count;
    uint64_t incarnation; /* of the process that holds the slices; 0: none known */
    bool has_slices;      /* of this job; without, its coming and going is nothing to the job */
    bool is_created;
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

/* After a restart a plan is asked for twice: where slices live, to know who has to come back, and
 * again when all have, since they may have come back at other addresses. */
enum recovery { RECOVER_NONE, RECOVER_SLICES, RECOVER_SERVERS, RECOVER_ADDRESSES, RECOVER_DONE };

struct suspicion {          /* core_suspect.c */
    struct ranges seen;     /* in flight when a worker was lost */
    struct ranges suspects; /* at two losses: run alone */
};

enum eval_phase { EVAL_NONE, EVAL_PINNING, EVAL_RUNNING };

struct eval_run {
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

struct ckpt_run {
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
    uint64_t retry_ns;
    uint64_t published_step; /* acknowledged count in the newest published one; UINT64_MAX: none */
    uint64_t *requests;      /* clients waiting for the next publication */
    size_t request_count;
    size_t running_request_count; /* the first so many wait for the one being written */
};

enum audit_phase { AUDIT_NONE, AUDIT_RUNNING };

struct audit_run {
    enum audit_phase phase;
    uint64_t serial; /* an answer of an earlier one, which was cut short, says too little */
    bool is_final;
    bool is_good; /* every server answered */
    size_t marks_left;
    struct ranges acked; /* durable when it began */
    uint64_t next_ns;
    uint32_t tries;
};

#define CORE_FINAL_CKPT_TRIES 10 /* a second apart */
#define CORE_FAILED_IN_A_ROW  3  /* steps tried out with none done in between: the job fails */
#define RATE_SLOTS            8
#define CORE_STALL_NS         (10 * NS_PER_S) /* no progress for so long: say who holds what */

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

    enum core_job_state state;
    enum phase phase;
    char *reason;
    uint64_t generation;
    uint64_t replayed_generation; /* that the ledger held at the start; 0: none */
    uint64_t phase_ns;            /* when the phase began */
    uint64_t progress_ns;         /* when something last moved on */
    uint64_t stall_ns;            /* when the next word about no progress is due */
    uint64_t hold_until_ns;
    uint64_t begin_ns; /* of running, for rates */
    uint64_t end_ns;
    uint64_t end_seq; /* record of the end, until it is durable and the servers were told; else 0 */

    struct data_order order;
    uint64_t steps_per_epoch;
    uint64_t steps_total;

    struct job_server *servers;
    size_t server_count;
    enum recovery recovery;
    uint64_t placed_seq; /* of the record of the placement; the orders go out when it is durable */
    bool is_ordered;
    char *restore_directory;
    bool is_replayed_placement; /* the servers came from the ledger; a plan for them is asked for
                                   again */

    struct ranges acked;     /* durable */
    struct ranges finished;  /* acked, waiting to be durable, or abandoned */
    struct ranges settled;   /* acked or abandoned */
    struct ranges abandoned; /* set */
    struct ranges issued;    /* given out (or found claimed, or done) in this generation */
    struct ranges again;     /* to be issued again, lowest first */
    struct suspicion suspicion;
    struct map troubles; /* step + 1 -> struct trouble */
    uint64_t acked_count;
    uint64_t acked_here; /* by this process, for rates */
    uint64_t images_here;
    uint32_t failed_in_a_row; /* steps that were tried out since one was done */
    uint64_t reissued;
    uint64_t images;
    uint64_t pruned; /* watermark last told to the shards */

    uint32_t epoch; /* being issued */
    uint64_t next_place;
    struct lease *leases;
    size_t lease_count;
    size_t lease_capacity;
    uint64_t evaluated_epochs; /* 1-based epoch of the last evaluation that is done or not wanted */

    struct eval_run eval;
    struct ckpt_run ckpt;
    struct audit_run audit;

    struct core_eval *evals;
    size_t eval_count;
    struct core_ckpt *ckpts;
    size_t ckpt_count;
    struct core_abandoned *abandoned_list;
    size_t abandoned_count;
    char *notices[LIMIT_NOTICES];
    size_t notice_count;
    struct shard_view *shards;
    size_t shard_count;
    uint64_t final_duplicates; /* of servers that are gone */
    uint64_t lost;
    uint64_t repeated;
    bool is_accounting_final;

    double loss; /* smoothed */
    bool has_loss;
    double staleness;
    uint64_t slot_ns; /* begin of the newest rate slot (one second each) */
    uint64_t slot_steps[RATE_SLOTS];
    uint64_t slot_images[RATE_SLOTS];
    size_t slot_at;
};

enum order_kind {
    ORDER_CREATE,
    ORDER_SNAPSHOT,
    ORDER_PRUNE,
    ORDER_PIN,
    ORDER_UNPIN,
    ORDER_DROP,
    ORDER_FENCE,
    ORDER_MARKS
};

struct order {
    uint64_t number;
    enum order_kind kind;
    struct member *server;
    uint64_t job; /* 0: none */
    uint64_t generation;
    uint64_t value; /* checkpoint, watermark, pin or session */
    size_t server_index;
    uint64_t deadline_ns;
    struct order *next;
};

struct pending_ack {
    uint64_t seq;
    struct core_step_ref ref;
    uint64_t generation;
    uint64_t session;
    uint32_t examples;
};

struct arena_block {
    struct arena_block *next;
    size_t size;
    size_t used;
    char data[];
};

struct core {
    struct core_config config;
    bool is_started;
    uint64_t start_ns;
    uint64_t now_ns;
    uint64_t deadline_ns;
    uint64_t next_session;
    uint64_t next_attempt;
    uint64_t next_order;
    uint64_t next_pin;
    uint64_t next_job;
    uint64_t next_seq;
    uint64_t written_seq;
    bool is_stuck; /* the ledger */
    char *stuck_text;

    struct member **members;
    size_t member_count;
    struct map by_conn;
    struct map by_session;
    struct job **jobs; /* by rising number */
    size_t job_count;
    struct job **live; /* those that are queued, running or paused, by rising number */
    size_t live_count;
    struct order *orders;        /* oldest first */
    struct pending_ack *pending; /* ring, oldest first */
    size_t pending_head;
    size_t pending_count;
    size_t pending_capacity;

    size_t drops_due; /* jobs with an end_seq */
    bool is_fill_due; /* every worker may have something to get */
    struct core_act *acts;
    size_t act_count;
    size_t act_capacity;
    bool is_taken; /* the list was handed out: the next event begins a new one */
    struct arena_block *arena;
    struct core_shard_view *view_shards; /* scratch of core_view.c */
    struct core_server_ref *view_servers;
};

/* core.c */
void core_event_begin(struct core *core, uint64_t now_ns);
void core_event_end(struct core *core);
struct core_act *core_act_add(struct core *core, enum core_act_kind kind);
void *core_arena(struct core *core, size_t size);
const char *core_arena_text(struct core *core, const char *fmt, ...) PRINTF_LIKE(2, 3);
void core_arm(struct core *core, uint64_t deadline_ns);
/* Emits a record; strings are copied into the arena. Returns its seq. */
uint64_t core_record(struct core *core, const struct core_record *record);
void core_reply(struct core *core, uint64_t request, enum err_code code, uint64_t job,
                const char *text);
void core_notice(struct core *core, struct job *job, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* core_member.c */
struct member *core_member_of_conn(struct core *core, uint64_t conn);
struct member *core_member_of_session(struct core *core, uint64_t session);
struct member *core_member_named(struct core *core, enum core_role role, const char *name);
bool core_member_is_here(const struct member *member); /* attached or silent within its lease */
void core_member_check(struct core *core); /* leases and ticket deadlines, from the timer */
void core_member_free(struct member *member);
void core_member_hello(struct core *core, uint64_t conn, const struct core_hello *hello);
void core_member_conn_lost(struct core *core, uint64_t conn);
void core_member_heartbeat(struct core *core, struct member *member,
                           const struct core_shard_state *shards, size_t count);
void core_member_leaving(struct core *core, struct member *member, const struct core_step_ref *refs,
                         size_t count);
struct in_flight *core_flight_find(struct member *worker, const struct core_step_ref *ref);
void core_flight_push(struct member *worker, const struct in_flight *flight);
void core_flight_remove(struct member *worker, struct in_flight *flight);

/* core_sched.c */
void core_sched_fill(struct core *core, struct member *worker);
void core_sched_fill_all(struct core *core);
void core_sched_report(struct core *core, struct member *worker, const struct core_report *report);
void core_sched_ack(struct core *core, struct member *worker, const struct core_step_ref *ref);
void core_sched_flush_acks(struct core *core);
/* The attempt ended without a result: the step (or evaluation batch) goes back. is_blamed: it may
 * be why. */
void core_sched_give_back(struct core *core, struct job *job, const struct core_step_ref *ref,
                          uint64_t generation, bool is_blamed, const char *who);
enum blame { BLAME_NONE, BLAME_OLDEST, BLAME_DEATH };
void core_sched_worker_gone(struct core *core, struct member *worker, enum blame blame);
bool core_sched_is_runnable(const struct core *core, const struct job *job);
void core_sched_revoke_job(struct core *core, struct job *job);
void core_sched_begin_epochs(struct job *job);
void core_sched_abandon(struct core *core, struct job *job, uint64_t step, uint32_t attempts,
                        enum err_code code, const char *text);
bool core_sched_adopt(struct core *core, struct member *worker, const struct core_step_ref *ref);

/* core_suspect.c */
void core_suspect_clear_all(struct suspicion *suspicion);
void core_suspect_done(struct suspicion *suspicion);
bool core_suspect_has(struct job *job, enum core_step_kind kind, uint64_t number);
void core_suspect_clear(struct job *job, enum core_step_kind kind, uint64_t number);
/* The tickets of a lost worker, oldest first. */
void core_suspect_add_all(struct core *core, const struct in_flight *flights, size_t count);
bool core_suspect_next(struct job *job, enum core_step_kind *ret_kind, uint64_t *ret_number);
/* Suspects wait, and this is the worker that is kept for them. */
bool core_suspect_wants(const struct core *core, const struct member *worker);

/* core_job.c */
struct job *core_job_of(const struct core *core, uint64_t number);
struct job *core_job_new(struct core *core, uint64_t number, const char *name,
                         struct job_spec *take_spec, const char *spec_json, uint64_t records,
                         uint64_t eval_records, bool is_resume, uint64_t wall_ms);
void core_job_free(struct job *job);
void core_job_set_state(struct core *core, struct job *job, enum core_job_state state,
                        const char *reason);
void core_job_set_phase(struct core *core, struct job *job, enum phase phase);
void core_job_advance(struct core *core, struct job *job);
void core_job_advance_all(struct core *core);
void core_job_end(struct core *core, struct job *job, enum core_job_state state, enum err_code code,
                  const char *reason);
uint64_t core_job_first_ckpt(const struct job *job);
void core_job_begin_looking(struct core *core, struct job *job);
void core_job_drop_ended(struct core *core); /* those whose end became durable */
void core_job_server_lost(struct core *core, struct member *server);
void core_job_server_here(struct core *core, struct member *server, const struct core_hello *hello);
bool core_job_has_enough_servers(const struct core *core, const struct job *job);
void core_job_begin_plan(struct core *core, struct job *job);
void core_job_begin_training(struct core *core, struct job *job);
bool core_job_is_active(const struct job *job);
void core_job_add_eval(struct job *job, const struct core_eval *eval);
void core_job_add_ckpt(struct job *job, uint64_t number, uint64_t step, const char *path);
void core_job_add_abandoned(struct job *job, uint64_t step, uint32_t attempts, enum err_code code,
                            const char *text);
void core_job_forget_progress(struct job *job);

/* core_order.c */
struct order *core_order_add(struct core *core, enum order_kind kind, struct member *server,
                             struct job *job, uint64_t value, size_t server_index);
void core_order_send(struct core *core, const struct order *order);
/* The job may be one that nobody knows any more. */
void core_order_drop(struct core *core, struct member *server, uint64_t job);
/* Servers that hold slices of the job. */
size_t core_job_holders(const struct job *job);
/* To every server that holds slices of the job and is here; returns how many. */
size_t core_order_all(struct core *core, enum order_kind kind, struct job *job, uint64_t value);
void core_order_fail_server(struct core *core, struct member *server, enum err_code code,
                            const char *text);
void core_order_fail_job(struct core *core, struct job *job);
void core_order_check(struct core *core);

/* core_view.c */
const char *core_phase_name(enum phase phase);

/* core_watch.c */
void core_job_check(struct core *core); /* from the timer */

/* core_ckpt.c */
void core_ckpt_advance(struct core *core, struct job *job);
/* is_last: the job is over, so clients that wait for a later one are answered too. */
void core_ckpt_stop(struct core *core, struct job *job, enum err_code code, const char *text,
                    bool is_last);
void core_ckpt_snapshot_done(struct core *core, struct job *job, uint64_t number,
                             enum err_code code, const char *text);
void core_eval_start(struct core *core, struct job *job, uint32_t epoch);
void core_eval_stop(struct core *core, struct job *job);
void core_eval_pinned(struct core *core, struct job *job, uint64_t pin, enum err_code code,
                      const char *text);
void core_eval_report(struct core *core, struct job *job, const struct core_report *report,
                      const char *who);
/* The batch ended without a result. is_blamed: it may be why its worker died. */
void core_eval_give_back(struct core *core, struct job *job, uint64_t batch, bool is_blamed,
                         const char *who);
bool core_eval_next(struct job *job, uint64_t *ret_batch);
void core_audit_start(struct core *core, struct job *job, bool is_final);
void core_audit_answer(struct core *core, struct job *job, const struct order *order,
                       enum err_code code, const struct core_shard_state *shards, size_t count);
void core_audit_shard(struct job *job, size_t server_index, const struct core_shard_state *state);

#endif
