/* SPDX-License-Identifier: Apache-2.0 */
/* core: the coordinator's brain. A deterministic state machine: events in by function call, actions
 * out in a list. No sockets, clocks, threads, randomness or files; time comes with every event. The
 * shell (coord.c) feeds it from gRPC, the ledger and timers; tests/unit/test_sim.c feeds it from a
 * model of the whole cluster.
 *
 * What it promises, whatever order events come in (the invariants that the simulator checks):
 *  - a step is acknowledged only after every shard answered its push and the ledger has it on disk;
 *  - a step that is not acknowledged or abandoned is issued again when its worker, or the
 *    coordinator, is lost;
 *  - after a restart from the ledger no acknowledged step is issued again;
 *  - steps of one epoch cover each batch of the epoch exactly once;
 *  - every wait has a deadline (core_next_deadline is finite while anything is awaited);
 *  - tickets in flight per worker never exceed LIMIT_CREDIT_MAX, records not yet durable never
 *    CORE_JOURNAL_MAX.
 *
 * Life of a job (state: phase -> next):
 *
 *   QUEUED --(a running place is free, servers are there)--> RUNNING: looking (for a checkpoint)
 *     -> planning -> placing -> training <-> (pinning, evaluating, checkpointing beside it)
 *     -> finishing (last evaluation, last checkpoint, audit of the marks) -> SUCCEEDED
 *   any RUNNING --(a server of the job is lost)--> PAUSED: waiting --> looking (generation + 1)
 *   any --(cancel)--> CANCELLED
 *   any --(too many abandoned, cannot place, wait over)--> FAILED
 *
 * Owns    all its state. Strings and arrays in an event are borrowed for the call, those in an
 *         action live until the next event.
 * Thread: the loop's.
 * Units:  ns for time (any monotonic origin), steps from 0.
 * Errors  events that a peer got wrong are answered by actions (goodbye), never by a crash;
 *         requests are answered by CORE_ACT_REPLY with a code and a text.
 */
#ifndef COORDINATORD_CORE_CORE_H
#define COORDINATORD_CORE_CORE_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/base/limits.h"
#include "common/base/ranges.h"
#include "common/spec/job_spec.h"

#define CORE_JOURNAL_MAX 65536u /* records not yet durable; then no new tickets leave */
#define CORE_NO_CONN     0u

struct core;

struct core_config {
    uint64_t start; /* of this coordinator, from the ledger; makes attempts and sessions unique */
    uint32_t heartbeat_ms;
    uint32_t lease_ms;          /* silence longer than this: lost */
    uint32_t order_deadline_ms; /* a server that does not answer an order in time */
    uint32_t
        job_wait_ms;   /* nothing happened for so long: the job fails, naming whom it waited for */
    uint32_t audit_ms; /* how often the marks are compared with the ledger; 0: only at the end */
    uint32_t running_max;    /* jobs that run at the same time */
    uint32_t servers_wanted; /* ps tasks of the cluster description; a job starts when so many are
                                there */
    uint32_t recover_ms;     /* after a restart: how long members may take to come back */
    uint64_t wall_ms;        /* the time of day at core_start */
};

/* ---- what members say --------------------------------------------------------------------------
 */
enum core_role { CORE_WORKER = 1, CORE_SERVER = 2 }; /* numbers of proto Role */
enum core_step_kind { CORE_TRAIN = 0, CORE_EVAL = 1 };
enum core_outcome { CORE_DONE = 0, CORE_FAILED = 1, CORE_RETURNED = 2 };

struct core_step_ref {
    uint64_t job;
    uint64_t step;
    uint64_t attempt;
    enum core_step_kind kind;
};

struct core_ticket {
    struct core_step_ref ref;
    uint64_t generation;
    uint32_t epoch;
    uint64_t batch;
    uint64_t pin;
    uint32_t deadline_ms;
};

struct core_phases { /* of a step, or sums */
    uint64_t compute_us;
    uint64_t
        serialise_us; /* processor time over all shards, maybe beside the compute; next 2 too */
    uint64_t copy_us;
    uint64_t apply_us;
    uint64_t wait_us; /* what else the device waited for */
};

struct core_report {
    struct core_step_ref ref;
    uint64_t generation;
    enum core_outcome outcome;
    double loss; /* train: mean; eval: sum */
    uint32_t examples;
    uint32_t correct;
    enum err_code code;
    const char *text;
    uint32_t staleness;
    bool is_duplicate;
    struct core_phases phases;
};

struct core_shard_state {
    uint64_t job;
    uint64_t generation;
    uint32_t shard;
    uint64_t version;
    uint64_t applied;
    uint64_t bytes;
    uint64_t duplicates_refused;
    uint64_t fenced;
    uint64_t repeated_applies;
    bool has_marks;
    struct ranges marks; /* borrowed */
};

struct core_hello {
    enum core_role role;
    const char *name; /* "worker:0", "ps:1", ... */
    const char *address;
    uint64_t incarnation;
    uint64_t session;     /* 0: first attachment of this incarnation */
    uint32_t shard_count; /* servers */
    uint64_t memory_bytes;
    const struct core_step_ref *held;
    size_t held_count;
    const struct core_report *reports;
    size_t report_count;
    const struct core_shard_state *shards;
    size_t shard_state_count;
};

/* ---- the ledger --------------------------------------------------------------------------------
 */
enum core_job_state { /* numbers of proto JobState */
                      CORE_JOB_QUEUED = 0,
                      CORE_JOB_RUNNING = 1,
                      CORE_JOB_PAUSED = 2,
                      CORE_JOB_SUCCEEDED = 3,
                      CORE_JOB_FAILED = 4,
                      CORE_JOB_CANCELLED = 5,
};

enum core_record_kind {
    CORE_REC_JOB =
        1, /* a job was accepted: text = name, text2 = spec JSON, number = resume (0, 1), wall_ms */
    CORE_REC_STATE, /* state = number, text = reason, wall_ms = when, number2 = wall_ms of the first
                        RUNNING (0: not yet) */
    CORE_REC_PLACED, /* generation = number, servers in text ("ps:0/1 ps:1/1": name/shard count) */
    CORE_REC_RESET,  /* the acknowledged, abandoned steps and evaluations of the job are forgotten
                        (before ACKED records of a checkpoint) */
    CORE_REC_ACKED,  /* steps first..last are acknowledged; number = re-issues so far, number2 =
                        images so far */
    CORE_REC_ABANDONED, /* step first; number = attempts, text = error name, text2 = words */
    CORE_REC_EVAL,      /* first = epoch (1-based), number = step, x = loss, y = accuracy */
    CORE_REC_CKPT,      /* number = checkpoint number, first = step, text = path */
    CORE_REC_FINAL,     /* one per shard at the end: text = server name, first = shard, number =
                           applied, number2 = bytes */
    CORE_REC_COUNTS, /* at the end: number = duplicates refused, number2 = re-issues, first = lost,
                        last = repeated */
    CORE_REC_ISSUED, /* tickets of steps first..last may leave when this is durable; number, number2 as
                        for ACKED. A RESET does not forget it */
};

struct core_record {
    uint64_t seq; /* rising by 1 from 1 in each start */
    enum core_record_kind kind;
    uint64_t job;
    uint64_t first;
    uint64_t last;
    uint64_t number;
    uint64_t number2;
    uint64_t wall_ms;
    double x;
    double y;
    const char *text;
    const char *text2;
};

/* ---- actions -----------------------------------------------------------------------------------
 */
enum core_act_kind {
    CORE_ACT_WELCOME = 1, /* conn, session */
    CORE_ACT_GOODBYE,     /* conn, code, text; then close it */
    CORE_ACT_HANGUP,      /* conn: end the stream; the member dials again and keeps what it holds */
    CORE_ACT_TICKETS,     /* conn, tickets[count] */
    CORE_ACT_ACKS,        /* conn, refs[count]: durable */
    CORE_ACT_REVOKE,      /* conn, refs[count] */
    CORE_ACT_OPEN,        /* conn, job, generation: send the spec and the plan */
    CORE_ACT_CLOSE,       /* conn, job */
    CORE_ACT_PLAN,   /* job, generation, servers[count]: compute a plan; answer core_on_planned */
    CORE_ACT_CREATE, /* conn, order, job, generation, server_index, text = restore directory or NULL
                      */
    CORE_ACT_SNAPSHOT,   /* conn, order, job, generation, number = checkpoint */
    CORE_ACT_PRUNE,      /* conn, order, job, generation, number = watermark */
    CORE_ACT_PIN,        /* conn, order, job, generation, number = pin */
    CORE_ACT_UNPIN,      /* conn, order, job, number = pin */
    CORE_ACT_DROP,       /* conn, order, job */
    CORE_ACT_FENCE,      /* conn, order, number = session */
    CORE_ACT_MARKS,      /* conn, order, job, generation */
    CORE_ACT_JOURNAL,    /* record */
    CORE_ACT_FIND_CKPT,  /* job: newest usable checkpoint numbered number or more (UINT64_MAX: none
                            is wanted) of its directory; answer core_on_ckpt_found */
    CORE_ACT_BEGIN_CKPT, /* job, number: make the temporary directory; answer core_on_ckpt_begun */
    CORE_ACT_PUBLISH_CKPT, /* job, number, first = acknowledged steps in it (acked set:
                              core_job_view.ckpt_acked); answer core_on_ckpt_published */
    CORE_ACT_ABORT_CKPT,   /* job, number: remove the temporary directory */
    CORE_ACT_REPLY,   /* request, code, text, job, number (submit: job; checkpoint: number, first =
                         step, text = path) */
    CORE_ACT_CHANGED, /* job: its status changed in a way that watchers want at once */
    CORE_ACT_NOTICE,  /* job, text: what was lost, redone or refused; to be logged */
};

struct core_server_ref {
    uint64_t conn;
    const char *name;
    const char *address;
    uint32_t shard_count;
    uint64_t memory_bytes;
};

struct core_act {
    enum core_act_kind kind;
    uint64_t conn;
    uint64_t session;
    uint64_t job;
    uint64_t generation;
    uint64_t order;
    uint64_t request;
    uint64_t number;
    uint64_t first;
    uint32_t server_index;
    enum err_code code;
    const char *text;
    size_t count;
    const struct core_ticket *tickets;
    const struct core_step_ref *refs;
    const struct core_server_ref *servers;
    struct core_record record;
};

/* ---- the machine -------------------------------------------------------------------------------
 */
struct core *core_new(const struct core_config *config);
void core_free(struct core *core);
DEFINE_AUTO(core)

/* Replays what the ledger holds, oldest first, before any event; then core_start. ERR_CORRUPT names
 * the record. */
MUST_CHECK enum err_code core_replay(struct core *core, const struct core_record *record,
                                     struct err *err);
void core_start(struct core *core, uint64_t now_ns);

/* Actions since the last call, in order; the array lives until the next event. Drain after every
 * event. */
size_t core_take_actions(struct core *core, const struct core_act **ret_acts);
/* When core_on_timer wants to be called; UINT64_MAX: nothing is awaited. */
uint64_t core_next_deadline(const struct core *core);
void core_on_timer(struct core *core, uint64_t now_ns);

/* conn: a number the shell never uses twice, not CORE_NO_CONN. */
void core_on_hello(struct core *core, uint64_t now_ns, uint64_t conn,
                   const struct core_hello *hello);
void core_on_conn_lost(struct core *core, uint64_t now_ns, uint64_t conn);
void core_on_heartbeat(struct core *core, uint64_t now_ns, uint64_t conn,
                       const struct core_shard_state *shards, size_t count);
void core_on_reports(struct core *core, uint64_t now_ns, uint64_t conn,
                     const struct core_report *reports, size_t count);
void core_on_order_done(struct core *core, uint64_t now_ns, uint64_t conn, uint64_t order,
                        enum err_code code, const char *text, const struct core_shard_state *shards,
                        size_t count);
/* The member leaves on purpose; refs are tickets that it did not run. */
void core_on_leaving(struct core *core, uint64_t now_ns, uint64_t conn,
                     const struct core_step_ref *refs, size_t count);

/* All records up to seq are durable. */
void core_on_journal_written(struct core *core, uint64_t now_ns, uint64_t seq);
/* The ledger cannot write (disk full) and keeps trying, or can again. No tickets leave meanwhile.
 */
void core_on_journal_stuck(struct core *core, uint64_t now_ns, bool is_stuck, const char *text);

/* slice_counts: for each server of the action, how many slices live on it; NULL when code is not
 * OK. */
void core_on_planned(struct core *core, uint64_t now_ns, uint64_t job, uint64_t generation,
                     enum err_code code, const char *text, const uint32_t *slice_counts);
/* number: the newest in the directory, usable or not, so that no number is used twice. code
 * NOT_FOUND: there is none that was asked for; OK: text says which newer one was passed over and why,
 * or is NULL. acked: what the checkpoint is sure to hold; abandoned likewise. */
void core_on_ckpt_found(struct core *core, uint64_t now_ns, uint64_t job, enum err_code code,
                        const char *text, const char *directory, uint64_t number,
                        const struct ranges *acked, const struct ranges *abandoned);
void core_on_ckpt_begun(struct core *core, uint64_t now_ns, uint64_t job, uint64_t number,
                        enum err_code code, const char *text);
void core_on_ckpt_published(struct core *core, uint64_t now_ns, uint64_t job, uint64_t number,
                            enum err_code code, const char *text, const char *path);

/* Requests of clients; each is answered once by CORE_ACT_REPLY with the same request number. */
/* Takes spec. records: of the training set (0 for a job without data), eval_records likewise. */
void core_submit(struct core *core, uint64_t now_ns, uint64_t request, struct job_spec *take_spec,
                 const char *spec_json, uint64_t records, uint64_t eval_records, bool resume,
                 uint64_t wall_ms);
void core_cancel(struct core *core, uint64_t now_ns, uint64_t request, uint64_t job);
void core_checkpoint(struct core *core, uint64_t now_ns, uint64_t request, uint64_t job);

/* ---- looking in --------------------------------------------------------------------------------
 */
struct core_shard_view {
    const char *server;
    uint32_t shard;
    uint64_t applied;
    uint64_t bytes;
};
struct core_eval {
    uint32_t epoch; /* 1 after the first */
    uint64_t step;
    double loss;
    double accuracy;
};
struct core_ckpt {
    uint64_t number;
    uint64_t step;
    char *path;
};
struct core_abandoned {
    uint64_t step;
    uint32_t attempts;
    enum err_code code;
    char *text;
};
struct core_job_view {
    uint64_t job;
    const char *name;
    const struct job_spec *spec;
    const char *spec_json;
    bool is_resume;
    enum core_job_state state;
    const char *phase;
    const char *reason;
    uint64_t generation;
    uint64_t first_ckpt; /* older checkpoints in its directory are not its own; 0: all are */
    uint64_t steps_total;
    uint64_t steps_per_epoch;
    uint64_t
        issued; /* steps of which a ticket left, by this or an earlier coordinator, and those that
                        a checkpoint brought */
    uint64_t acknowledged;
    uint64_t reissued; /* tickets that left beyond the first of their step */
    uint64_t abandoned;
    uint64_t duplicates_refused;
    uint64_t lost;
    uint64_t repeated;
    bool is_accounting_final;
    const struct core_shard_view *shards;
    size_t shard_count;
    const struct core_eval *evals;
    size_t eval_count;
    const struct core_ckpt *ckpts;
    size_t ckpt_count;
    const struct core_abandoned *abandoned_steps;
    size_t abandoned_count;
    const char *const *notices;
    size_t notice_count;
    double steps_per_second;
    double images_per_second;
    double loss;
    double staleness;
    uint64_t
        phase_steps; /* of training, done since the start of this coordinator: whose phases are: */
    struct core_phases phases;
    uint32_t epoch;
    double elapsed_s; /* by the time of day, since it first ran */
    uint64_t submitted_ms;
    uint32_t worker_count;
    const struct ranges *acked; /* durable */
    const struct ranges *abandoned_set;
    const struct ranges *ckpt_acked;       /* at the begin of the checkpoint being written */
    const struct core_server_ref *servers; /* of the present placement; conn may be CORE_NO_CONN */
    size_t server_count;
};
struct core_member_view {
    const char *name;
    const char *address;
    enum core_role role;
    const char *state; /* attached, silent, lost, left */
    uint64_t conn;
    uint64_t incarnation;
    uint64_t session;
    uint64_t memory_bytes;
    uint32_t in_flight;
    uint64_t steps_done;
    uint64_t silent_ns;
    uint64_t held_bytes;
    uint32_t shard_count;
};
/* Job by number; false when there is none. The view lives until the next event. */
bool core_job_view(struct core *core, uint64_t now_ns, uint64_t job,
                   struct core_job_view *ret_view);
/* Numbers of all jobs known, oldest first; returns how many there are, writes up to max. */
size_t core_job_list(const struct core *core, uint64_t *ret_jobs, size_t max);
/* By name (the newest of that name) or decimal number; 0: none. */
uint64_t core_job_find(const struct core *core, const char *name_or_number);
size_t core_member_count(const struct core *core);
bool core_member_view(const struct core *core, uint64_t now_ns, size_t member_index,
                      struct core_member_view *ret_view);

#endif
