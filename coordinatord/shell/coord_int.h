/* SPDX-License-Identifier: Apache-2.0 */
/* coord_int: the shell's state, shared by coord*.c only. Everything here belongs to the loop
 * thread, except a disk task while the disk thread has it.
 *
 * A file calls only files that stand below it; what goes up (actions of the core, answers) goes by
 * the table of carriers or by a callback.
 *
 *   coord.c          life; the table of who carries out what
 *   coord_api.c      the public service: its table, the short methods
 *   coord_submit.c   submit and plan          coord_watch.c   watching
 *   coord_fleet.c    members' streams: attaching, messages in
 *   coord_place.c    plans the core asks for  coord_order.c   orders to servers
 *   coord_ckpt.c     checkpoints              coord_probe.c   data headers, folders
 *   coord_send.c     messages to members      coord_read.c    messages of members, as structs
 *   coord_status.c   a job as a message       coord_request.c calls that the core answers
 *   coord_job.c, coord_conn.c, coord_disk.c   jobs, streams, tasks: what the others stand on
 *   coord_core.c     the core, its ledger and its timer
 */
#ifndef COORDINATORD_SHELL_COORD_INT_H
#define COORDINATORD_SHELL_COORD_INT_H

#include "common/base/map.h"
#include "common/loop/loop.h"
#include "common/loop/task_thread.h"
#include "common/rpc/rpc.h"
#include "common/spec/cluster_spec.h"
#include "coordinatord/core/core.h"
#include "coordinatord/ledger/ledger.h"
#include "coordinatord/shell/coord.h"
#include "coordinatord/shell/coord_plan.h"
#include "proto/coord.pb-c.h"
#include "proto/fleet.pb-c.h"
#include "proto/health_service.h"

/* A second apart: what a job that runs already cannot do without is tried for ten minutes before the
 * job fails for it. */
#define COORD_TRIES 600

struct conn { /* one Attach stream; coord_fleet.c makes it, coord_conn.c ends it */
    uint64_t id;
    struct coord *coord;
    struct rpc_call *call; /* NULL: over */
    bool is_ended;         /* we ended the call; its last event is still to come */
    bool is_known;         /* said hello */
    char *name;
    char **devices;
    size_t device_count;
    uint64_t pid;
};

struct ckpt_part { /* one shard file of the checkpoint in progress */
    uint32_t server_index;
    Steadfast__V1__CkptFile *file; /* owned */
};

/* What the shell keeps of a job beside the core. */
struct coord_job {
    uint64_t job;
    Steadfast__V1__Plan *plan; /* coord_place.c; of the present generation; NULL: none yet */
    struct ckpt_part *parts;   /* coord_ckpt.c, with the next two */
    size_t part_count;
    uint64_t ckpt_number;
    bool has_facts; /* whoever probed, with facts */
    struct data_facts facts;
};

struct disk_task { /* first member of what a file hands to the disk thread */
    struct task task;
    struct coord *coord;
    void (*work)(struct disk_task *task);   /* on the disk thread; an error goes into err */
    void (*answer)(struct disk_task *task); /* on the loop; frees the task */
    struct err err;
    uint32_t tries_left; /* a second apart, when err_passes: something was used up ... */
    bool (*wants_again)(const struct disk_task *task); /* ... or, not NULL, when this says so */
    bool is_said;                                      /* coord_disk.c, with next */
    struct disk_task *next;
};

typedef void coord_carrier_fn(struct coord *coord, const struct core_act *act);

struct coord_later {
    void (*on_later)(struct coord *coord, void *arg);
    void *arg;
};

struct coord {
    /* coord.c makes and ends these; the others use them */
    struct coord_options options;
    struct loop *loop;
    struct rpc_env *env;
    struct rpc_server *server;
    struct health_service *health;
    const struct cluster_spec *cluster;
    struct loop_timer *wait_timer;
    coord_carrier_fn *const *carriers; /* by core_act_kind */
    size_t carrier_count;
    bool is_stopping;

    /* coord_core.c; the others call core_* and then coord_drain */
    struct core *core;
    struct ledger *ledger;
    uint64_t start;
    struct loop_timer *core_timer;
    struct held_reply *held;
    struct held_reply **held_tail;
    struct loop_timer *held_timer;
    char *stuck_text; /* why the ledger cannot be written; NULL: it can */
    uint64_t posted_seq;
    uint64_t written_seq;
    bool is_draining;
    struct core_record *records; /* of one drain, for the ledger */
    size_t record_count;
    size_t record_capacity;
    struct coord_later later[LIMIT_JOBS_ACTIVE];
    size_t later_count;

    struct task_thread *disk; /* coord_disk.c, with the next two */
    struct loop_timer *disk_timer;
    struct disk_task *disk_waiting;
    struct map jobs;  /* coord_job.c: number -> struct coord_job */
    struct map conns; /* coord_fleet.c: id -> struct conn */
    uint64_t next_conn;
    struct map snapshots; /* coord_ckpt.c: order -> struct snapshot_order */
    struct map requests;  /* coord_request.c: id -> struct coord_request */
    uint64_t next_request;
    struct watcher *watchers; /* coord_watch.c */
    struct loop_timer *watch_timer;
};

/* ---- coord_core.c: below all ----------------------------------------------------------------- */

/* Opens the ledger and replays it into a new core. */
MUST_CHECK enum err_code coord_core_open(struct coord *coord, struct err *err);
void coord_core_begin(struct coord *coord);
void coord_core_close_ledger(struct coord *coord, uint32_t deadline_ms); /* nothing after it */
void coord_core_done(struct coord *coord);
/* Why the ledger cannot be written; NULL: it can. */
const char *coord_core_stuck(const struct coord *coord);
/* After every event of the core: has carried out what it asks for, until it asks for nothing more.
 */
void coord_drain(struct coord *coord);
/* For a carrier: what it has to tell the core, once the actions at hand are carried out. */
void coord_core_later(struct coord *coord, void (*on_later)(struct coord *coord, void *arg),
                      void *arg);

/* ---- what the others stand on ---------------------------------------------------------------- */

/* coord_job.c */
struct coord_job *coord_job_of(struct coord *coord, uint64_t job); /* made when there is none */
void coord_job_forget_parts(struct coord_job *job);
void coord_job_done(struct coord *coord);

/* coord_conn.c */
struct conn *coord_conn_of(struct coord *coord, uint64_t id); /* NULL: over */
void coord_conn_send(struct conn *conn,
                     const Steadfast__V1__CoordMessage *message); /* NULL is fine */
/* A call is ended once: by us for the first reason there is, or by the member. ERR_OK finishes it. */
void coord_conn_end(struct conn *conn, enum err_code code, const char *text); /* NULL is fine */
void coord_conn_free(struct conn *conn);
void coord_conn_close_all(struct coord *coord);

/* coord_disk.c. When the daemon is stopping the answer comes at once, with ERR_CANCELLED: nothing was
 * tried, and the core is not told of it (the next start asks again). */
void coord_disk_post(struct coord *coord, struct disk_task *take_task);
void coord_disk_init(struct coord *coord);
void coord_disk_stop(struct coord *coord);
void coord_disk_done(struct coord *coord);

/* coord_request.c */
typedef void coord_request_reply_fn(struct coord *coord, struct rpc_call *call,
                                    const struct core_act *act);
/* The number for core_*; on_reply when the core says yes, the call fails when it says no. */
uint64_t coord_request_new(struct coord *coord, struct rpc_call *call,
                           coord_request_reply_fn *on_reply);
/* The job of this name or number; 0 after the call was failed with what was wrong. */
uint64_t coord_request_job(struct coord *coord, struct rpc_call *call, const char *name);
/* True after the call was failed because the ledger could not hold what it asks for. */
bool coord_request_refused(struct coord *coord, struct rpc_call *call);
coord_carrier_fn coord_request_reply;
void coord_request_close_all(struct coord *coord);

/* coord_status.c: the message borrows from the view; done frees its lists. */
void coord_status_fill(const struct core_job_view *view, Steadfast__V1__JobStatus *status);
void coord_status_done(Steadfast__V1__JobStatus *status);
void coord_status_reply(struct coord *coord, struct rpc_call *call, uint64_t job);

/* ---- members --------------------------------------------------------------------------------- */

void coord_fleet_add(struct coord *coord);

/* coord_read.c: free() what comes back, states with coord_read_free_states. */
struct core_step_ref *coord_read_refs(Steadfast__V1__StepRef **from, size_t count);
struct core_report *coord_read_reports(Steadfast__V1__StepReport **from, size_t count);
struct core_shard_state *coord_read_states(Steadfast__V1__ShardState **from, size_t count,
                                           bool has_marks);
void coord_read_free_states(struct core_shard_state *states, size_t count);

/* coord_send.c: a member that is not there is told nothing */
coord_carrier_fn coord_send_welcome, coord_send_goodbye, coord_send_hangup, coord_send_tickets,
    coord_send_refs, coord_send_open, coord_send_close;

/* coord_order.c */
coord_carrier_fn coord_order_create, coord_order_snapshot, coord_order_prune, coord_order_pin,
    coord_order_unpin, coord_order_drop, coord_order_fence, coord_order_marks;

/* ---- jobs ------------------------------------------------------------------------------------ */

/* coord_probe.c: reads the headers of the data. on_probed owns spec and json.
 * makes_directory: the checkpoint directory is made and tried, too. tries: how often, a second apart,
 * it may be tried again when descriptors or memory are used up. */
typedef void coord_probe_fn(struct coord *coord, void *arg, struct job_spec *take_spec,
                            char *take_json, const struct data_facts *facts, const struct err *err);
void coord_probe(struct coord *coord, struct job_spec *take_spec, char *take_json,
                 bool makes_directory, uint32_t tries, coord_probe_fn *on_probed, void *arg);

coord_carrier_fn coord_place_plan;

/* coord_ckpt.c */
coord_carrier_fn coord_ckpt_find, coord_ckpt_begin, coord_ckpt_publish, coord_ckpt_abort;
void coord_ckpt_remember_snapshot(struct coord *coord, const struct core_act *act);
/* The files of a snapshot are kept until the checkpoint is published. */
void coord_ckpt_keep_files(struct coord *coord, const Steadfast__V1__OrderDone *done);
void coord_ckpt_done(struct coord *coord);

/* ---- clients --------------------------------------------------------------------------------- */

void coord_api_add(struct coord *coord);

/* coord_submit.c, coord_watch.c: handlers for coord_api.c's table */
void coord_submit_on_submit(struct rpc_call *call, const struct rpc_in *in, void *arg);
void coord_submit_on_plan(struct rpc_call *call, const struct rpc_in *in, void *arg);
void coord_watch_on_call(struct rpc_call *call, const struct rpc_in *in, void *arg);

coord_carrier_fn coord_watch_changed;
void coord_watch_init(struct coord *coord);
void coord_watch_begin(struct coord *coord);
void coord_watch_close_all(struct coord *coord);
void coord_watch_done(struct coord *coord); /* the server is drained */

#endif
