/* SPDX-License-Identifier: Apache-2.0 */
/* sim_int: the model's state, shared by tests/sim/sim_*.c only.
 *
 *   sim_engine.c   events in time order, memory, drawing, failing; one run from seed to verdict
 *   sim_net.c      streams between members and coordinator: ordered, delayed, breakable
 *   sim_member.c   what workers and servers have in common: processes, dialling, heartbeats
 *   sim_worker.c   attempts: compute, push to every shard, report until acknowledged
 *   sim_server.c   slices with values (counted), marks, pins; orders; pushes
 *   sim_ledger.c   records pending and durable; commits; replay
 *   sim_coord.c    the shell: carries out actions, feeds events
 *   sim_client.c   jobs, requests and their answers; faults
 *   sim_check.c    the invariants
 */
#ifndef TESTS_SIM_SIM_INT_H
#define TESTS_SIM_SIM_INT_H

#include <setjmp.h>

#include "common/base/clock.h"
#include "coordinatord/core/core.h"
#include "tests/sim/sim.h"

enum {
    SIM_WORKERS_MAX = 5,
    SIM_SERVERS_MAX = 3,
    SIM_SHARDS_MAX = 3, /* of a server */
    SIM_SLOTS_MAX = SIM_SERVERS_MAX * SIM_SHARDS_MAX,
    SIM_SLICES_MAX = 6, /* of a job */
    SIM_JOBS_MAX = 4,
    SIM_PINS_MAX = LIMIT_PINS,
    SIM_REQUESTS_MAX = 256,
    SIM_HELD_MAX = 2 * LIMIT_CREDIT_MAX,
    SIM_ANSWERS_MAX = 64,    /* that a server remembers: an order may come again */
    SIM_PROCESSES_MAX = 512, /* fenced sessions that a server remembers */
};

struct sim;
struct sim_event;
typedef void sim_event_fn(struct sim *sim, const struct sim_event *event);

struct sim_event {
    uint64_t at_ns;
    uint64_t order; /* ties go to the older */
    sim_event_fn *run;
    void *p;
    void *q;
    uint64_t a;
    uint64_t b;
};

/* ---- jobs as submitted ----------------------------------------------------------------------- */

struct sim_job {
    const char *name;
    const char *spec_json;
    const char *ckpt_dir; /* NULL: none */
    uint64_t records;
    uint64_t eval_records;
    uint32_t eval_batch;
    uint64_t steps_total;
    uint64_t steps_per_epoch;
    uint32_t epochs;
    uint32_t slice_count; /* 0: noop */
    uint32_t max_attempts;
    int on_error; /* enum step_error_policy */
    bool is_resume;
    uint64_t poison_step;   /* kills whoever runs it; UINT64_MAX: none */
    uint32_t poison_pushes; /* so many shards answered before it kills; UINT32_MAX: all */
    uint64_t fail_step;     /* fails fail_times times; UINT64_MAX: none */
    uint32_t fail_times;
    uint32_t failed_times;
    uint64_t compute_ns;

    bool is_cancelled;   /* asked for */
    bool was_restored;   /* from a checkpoint */
    bool may_miss_evals; /* a server took longer to pin than its order allows */
    uint64_t generation; /* of the last plan */
    uint8_t *sent;       /* steps of which a ticket left, ever */
    uint8_t *left;       /* those, and what was written ahead when a coordinator died or came with a
                            checkpoint */
    uint64_t left_count;
    uint64_t reissued; /* tickets that left beyond the first of their step */
    uint8_t *told;     /* steps whose acknowledgement was confirmed durable, in this history */
    uint64_t *durable_generation; /* of each step: the newest in which its acknowledgement reached
                                     the disk */
};

/* Where a job's slices live. A slot is a shard of a server that holds some. */
struct sim_plan {
    struct sim_job *job;
    uint64_t number;
    uint64_t generation;
    uint64_t core_life;
    uint32_t server_count;
    uint32_t servers[SIM_SERVERS_MAX]; /* index in the simulation */
    uint32_t slot_count;
    struct {
        uint32_t server; /* index in servers */
        uint32_t shard;
    } slots[SIM_SLOTS_MAX];
    uint32_t slice_slot[SIM_SLICES_MAX];
    struct sim_plan *next;
};

struct sim_ckpt {
    struct sim_job *job;
    const char *dir;
    const char *path;
    uint64_t number;
    bool is_published;
    uint8_t *count[SIM_SLICES_MAX]; /* NULL: that slice was not cut yet */
    uint8_t *mark[SIM_SLICES_MAX];
    uint64_t watermark[SIM_SLICES_MAX];
    struct ranges acked; /* in the arena */
    struct ranges abandoned;
    struct sim_ckpt *next;
};

/* ---- streams --------------------------------------------------------------------------------- */

enum sim_msg_kind {
    SIM_UP_HELLO = 1,
    SIM_UP_HEARTBEAT,
    SIM_UP_REPORTS,
    SIM_UP_ORDER_DONE,
    SIM_UP_LEAVING,
    SIM_UP_END,
    SIM_DOWN_WELCOME,
    SIM_DOWN_GOODBYE,
    SIM_DOWN_END,
    SIM_DOWN_TICKETS,
    SIM_DOWN_ACKS,
    SIM_DOWN_REVOKE,
    SIM_DOWN_OPEN,
    SIM_DOWN_CLOSE,
    SIM_DOWN_ORDER,
};

struct sim_msg {
    enum sim_msg_kind kind;
    uint64_t job;
    uint64_t generation;
    uint64_t number;
    uint64_t order;
    enum core_act_kind act; /* of an order */
    uint32_t server_index;
    enum err_code code;
    const char *text;
    struct sim_plan *plan;
    const struct core_hello *hello;
    const struct core_report *reports;
    const struct core_step_ref *refs;
    const struct core_ticket *tickets;
    const struct core_shard_state *shards;
    size_t count;
};

struct sim_member;
struct sim_conn {
    uint64_t number;
    struct sim_member *member;
    uint64_t member_life;
    uint64_t core_life;
    bool is_cut;          /* nothing passes any more */
    bool is_closed;       /* the core ended it */
    bool is_gone_at_core; /* the core was told */
    uint64_t up_ns;       /* latest delivery so far: streams are ordered */
    uint64_t down_ns;
    uint32_t in_flight; /* tickets as the core has to count them */
};

/* ---- members --------------------------------------------------------------------------------- */

struct sim_member {
    enum core_role role;
    uint32_t index;
    char name[16];
    char address[24];
    bool is_up;
    bool is_leaving;
    bool is_welcomed;
    uint64_t life; /* rises with every process and every rejoin: events of a past life are void */
    uint64_t incarnation;
    uint64_t session;
    uint64_t frozen_ns; /* until then */
    struct sim_conn *conn;
};

enum sim_attempt_phase { SIM_WAITING, SIM_COMPUTING, SIM_PUSHING, SIM_OVER };

struct sim_attempt {
    struct core_ticket ticket;
    enum sim_attempt_phase phase;
    struct sim_worker *worker;
    uint64_t life;
    uint64_t got_ns;
    struct sim_plan *plan;
    uint32_t slots_left; /* bit set */
    uint32_t answers;
    uint32_t tries[SIM_SLOTS_MAX];
    bool is_duplicate;
};

struct sim_kept {
    struct core_report report;
    bool is_sent; /* on the present stream */
};

struct sim_worker {
    struct sim_member m;
    struct sim_attempt *held[SIM_HELD_MAX];
    size_t held_count;
    struct sim_kept *kept; /* reports not acknowledged */
    size_t kept_count;
    size_t kept_capacity;
    bool is_flush_due;
    uint32_t lanes; /* attempts at the same time */
    struct sim_plan *opened[SIM_JOBS_MAX * 2];
    size_t opened_count;
};

struct sim_slice {
    uint8_t *count; /* how often each step is in the values */
    uint8_t *mark;
    uint64_t applied;
};

struct sim_hold { /* a job on a server */
    uint64_t number;
    uint64_t generation;
    struct sim_job *job;
    struct sim_plan *plan;
    uint32_t server_index;
    bool has[SIM_SLICES_MAX];
    struct sim_slice slices[SIM_SLICES_MAX];
    uint64_t watermark[SIM_SLICES_MAX];
    uint64_t version[SIM_SHARDS_MAX];
    uint64_t duplicates[SIM_SHARDS_MAX];
    uint64_t fenced[SIM_SHARDS_MAX];
    uint64_t pins[SIM_PINS_MAX];
    size_t pin_count;
};

struct sim_server {
    struct sim_member m;
    uint32_t shard_count;
    struct sim_hold holds[SIM_JOBS_MAX * 2];
    size_t hold_count;
    uint64_t fenced[SIM_PROCESSES_MAX];
    size_t fenced_count;
    struct sim_order_done *answers[SIM_ANSWERS_MAX]; /* a ring */
    size_t answer_count;
};

/* ---- the ledger ------------------------------------------------------------------------------ */

struct sim_rows { /* a job in the tables */
    uint64_t number;
    struct sim_job *job;
    const char *name;
    const char *spec;
    uint64_t first;
    uint64_t last;
    uint64_t resume;
    uint64_t wall_ms;
    bool has_state;
    uint64_t state;
    const char *reason;
    bool has_placement;
    uint64_t generation;
    const char *servers;
    uint64_t reissues;
    uint64_t images;
    uint8_t *acked; /* one byte a step */
    uint8_t *issued;
    uint64_t began_ms;
    uint64_t state_ms;
    uint64_t acked_before_reset;
    bool was_whole_at_reset; /* every slice was there when the core began anew */
    uint8_t *abandoned;      /* likewise */
    struct core_record *evals;
    size_t eval_count;
    struct core_record *ckpts;
    size_t ckpt_count;
    struct core_record finals[SIM_SLOTS_MAX];
    size_t final_count;
    bool has_counts;
    struct core_record counts;
    struct core_record *abandoned_records;
    size_t abandoned_count;
};

struct sim_tables {
    struct sim_rows rows[SIM_JOBS_MAX * 4];
    size_t count;
};

struct sim_ledger {
    struct sim_tables durable;
    struct sim_tables emitted; /* as the core means it to become */
    struct core_record *queue; /* emitted and not confirmed, oldest first from queue_head */
    size_t queue_head;
    size_t queue_count;
    size_t queue_capacity;
    size_t batch_count; /* of the commit that is running; 0: none */
    uint64_t next_seq;
    uint64_t stuck_until_ns;
    bool is_stuck_told;
    uint64_t commit_ns;
};

/* ---- clients --------------------------------------------------------------------------------- */

enum sim_request_kind { SIM_SUBMIT = 1, SIM_CANCEL, SIM_CHECKPOINT };

struct sim_request {
    enum sim_request_kind kind;
    struct sim_job *job;
    uint64_t core_life;
    bool is_answered;
};

struct sim_reply { /* held back until the ledger has what comes before it */
    uint64_t seq;
    struct core_act act;
    struct sim_reply *next;
};

struct sim_rates { /* per mille unless said */
    uint32_t push_lost;
    uint32_t answer_lost;
    uint32_t push_late;
    uint32_t ckpt_fails;
    uint32_t snapshot_fails;
    uint32_t slow;     /* answers of servers and of the shell's disk */
    uint64_t fault_ns; /* mean time between faults; 0: none */
    uint32_t faults;   /* bit set of enum sim_fault */
};

struct sim {
    struct sim_options options;
    struct sim_result result;
    jmp_buf fail_jump;
    uint64_t key;
    uint64_t drawn;
    uint64_t now_ns;
    uint64_t next_order;
    struct sim_event *heap;
    size_t heap_count;
    size_t heap_capacity;

    struct core_config config;
    struct core *core; /* NULL: down */
    uint64_t core_life;
    uint64_t timer_ns; /* earliest timer event under way */
    uint32_t spins;
    uint8_t *attempts; /* of this life of the core, by counter: handed out */
    size_t attempt_capacity;
    uint64_t next_conn;
    struct sim_conn **conns; /* of this life of the core, by number - first_conn */
    size_t conn_count;
    size_t conn_capacity;
    uint64_t first_conn;

    struct sim_worker workers[SIM_WORKERS_MAX];
    uint32_t worker_count;
    struct sim_server servers[SIM_SERVERS_MAX];
    uint32_t server_count;
    uint64_t next_incarnation;

    struct sim_job jobs[SIM_JOBS_MAX];
    uint32_t job_count;
    struct sim_plan *plans;
    struct sim_ckpt *ckpts;
    struct answer *publishing; /* sim_coord.c */
    uint64_t disk_ns;          /* when the shell's disk thread is through with what it has */
    struct sim_ledger ledger;
    struct sim_request requests[SIM_REQUESTS_MAX];
    size_t request_count;
    struct sim_reply *replies;

    struct sim_rates rates;
    uint64_t net_ns;
    uint64_t heal_ns; /* faults end */
    bool is_healed;
    bool is_recreated_at_same_generation; /* what a server does with a second CREATE: undefined by
                                             the contract */
};

/* sim_engine.c */
void sim_at(struct sim *sim, uint64_t at_ns, sim_event_fn *run, void *p, void *q, uint64_t a,
            uint64_t b);
void sim_again(struct sim *sim, const struct sim_event *event,
               uint64_t at_ns); /* the same event later */
void *sim_alloc(size_t size);   /* zeroed, lives until the end of the run */
char *sim_text(const char *fmt, ...) PRINTF_LIKE(1, 2);
const char *sim_copy_text(const char *text); /* NULL stays NULL */
void *sim_copy(const void *from, size_t size);
uint64_t sim_draw(struct sim *sim);
uint64_t sim_below(struct sim *sim, uint64_t bound);                /* [0, bound) */
uint64_t sim_between(struct sim *sim, uint64_t low, uint64_t high); /* [low, high] */
bool sim_chance(struct sim *sim, uint32_t per_mille);
_Noreturn void sim_fail(struct sim *sim, const char *fmt, ...) PRINTF_LIKE(2, 3);
void sim_say(struct sim *sim, const char *fmt, ...) PRINTF_LIKE(2, 3);
#define sim_trace(sim, ...)                                                                        \
    do {                                                                                           \
        if ((sim)->options.is_traced || (sim)->options.is_recorded)                                \
            sim_say(sim, __VA_ARGS__);                                                             \
    } while (0)

/* sim_net.c */
struct sim_conn *sim_conn_open(struct sim *sim, struct sim_member *member);
struct sim_conn *sim_conn_of(struct sim *sim,
                             uint64_t number); /* of this life of the core, or NULL */
void sim_send_up(struct sim *sim, struct sim_conn *conn, const struct sim_msg *msg);
void sim_send_down(struct sim *sim, struct sim_conn *conn, const struct sim_msg *msg);
void sim_conn_break(struct sim *sim,
                    struct sim_conn *conn); /* both ends notice later, each in its time */
uint64_t sim_net_delay(struct sim *sim);

/* sim_member.c */
bool sim_defer(struct sim *sim, const struct sim_member *member, const struct sim_event *event);
void sim_member_start(struct sim *sim, struct sim_member *member); /* a new process */
void sim_member_rejoin(struct sim *sim, struct sim_member *member, uint64_t delay_ns);
void sim_member_crash(struct sim *sim, struct sim_member *member);
void sim_member_dial(struct sim *sim, struct sim_member *member, uint64_t delay_ns);
void sim_member_message(struct sim *sim, struct sim_member *member, const struct sim_msg *msg);

/* sim_worker.c */
void sim_worker_forget(struct sim_worker *worker);
void sim_worker_hello(struct sim *sim, struct sim_worker *worker, struct core_hello *hello);
void sim_worker_message(struct sim *sim, struct sim_worker *worker, const struct sim_msg *msg);
void sim_worker_leave(struct sim *sim, struct sim_worker *worker);
void sim_worker_push_answer(struct sim *sim, struct sim_attempt *attempt, uint32_t slot,
                            uint32_t try, enum err_code code, bool is_duplicate);

/* sim_server.c */
void sim_server_forget(struct sim_server *server);
void sim_server_hello(struct sim *sim, struct sim_server *server, struct core_hello *hello);
void sim_server_message(struct sim *sim, struct sim_server *server, const struct sim_msg *msg);
const struct core_shard_state *sim_server_states(struct sim *sim, struct sim_server *server,
                                                 uint64_t job, bool has_marks, size_t *ret_count);
void sim_server_push(struct sim *sim, struct sim_server *server, uint64_t server_life,
                     struct sim_attempt *attempt, uint32_t slot, uint32_t try, uint64_t session);
struct sim_hold *sim_hold_of(struct sim_server *server, uint64_t job);
bool sim_server_has_pin(struct sim *sim, const struct sim_plan *plan, uint64_t pin);

/* sim_ledger.c */
void sim_ledger_post(struct sim *sim, const struct core_record *record);
void sim_ledger_crash(struct sim *sim); /* of the coordinator: what was not committed is gone */
void sim_ledger_replay(struct sim *sim);
struct sim_rows *sim_rows_of(struct sim_tables *tables, uint64_t job);
size_t sim_ledger_backlog(const struct sim *sim);

/* sim_coord.c */
void sim_coord_start(struct sim *sim);
void sim_coord_crash(struct sim *sim);
void sim_coord_written(struct sim *sim, uint64_t seq);
void sim_coord_drain(struct sim *sim); /* after every call into the core */
void sim_coord_message(struct sim *sim, struct sim_conn *conn, const struct sim_msg *msg);
struct sim_plan *sim_plan_of(struct sim *sim, uint64_t job, uint64_t generation);
#define SIM_CORE(sim, call)                                                                        \
    do {                                                                                           \
        call;                                                                                      \
        sim_coord_drain(sim);                                                                      \
    } while (0)

/* sim_client.c */
void sim_jobs_draw(struct sim *sim);
void sim_request_answered(struct sim *sim, const struct core_act *act);
struct sim_job *sim_job_of(struct sim *sim, uint64_t number);
void sim_faults_draw(struct sim *sim);
void sim_faults_begin(struct sim *sim);

/* sim_check.c */
void sim_check_event(struct sim *sim);
void sim_check_tickets(struct sim *sim, const struct core_act *act);
void sim_check_acks(struct sim *sim, const struct core_act *act);
void sim_check_record(struct sim *sim, const struct core_record *record);
void sim_check_prune(struct sim *sim, const struct core_act *act);
void sim_check_written(struct sim *sim);
void sim_check_ckpt(struct sim *sim, const struct sim_ckpt *ckpt);
void sim_check_restored(struct sim *sim, const struct sim_hold *hold);
void sim_check_written_ahead(struct sim *sim); /* when the coordinator has died */
void sim_check_started(struct sim *sim);       /* after a replay */
void sim_check_end(struct sim *sim);
bool sim_is_quiet(struct sim *sim); /* all jobs have ended */

#endif
