/* SPDX-License-Identifier: Apache-2.0 */
/* coord_int: the shell's state, shared by coord*.c only. Everything here belongs to the loop
 * thread, except the tasks while the disk thread has them.
 *
 *   coord.c        life; feeds the core, carries out its actions
 *   coord_fleet.c  the streams of members: messages in, messages out
 *   coord_api.c    the public service
 *   coord_disk.c   what may take time: data headers, checkpoints
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

struct conn { /* one Attach stream */
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

/* What the shell keeps of a job beside the core. */
struct coord_job {
    uint64_t job;
    Steadfast__V1__Plan *plan; /* of the present generation; NULL: none yet */
    uint64_t plan_generation;
    struct ckpt_part *parts; /* what servers wrote of the checkpoint in progress */
    size_t part_count;
    uint64_t ckpt_number;
    bool has_facts;
    struct data_facts facts;
};

struct ckpt_part { /* one shard file */
    uint32_t server_index;
    Steadfast__V1__CkptFile *file; /* owned */
};

struct snapshot_order { /* an order that is out: which checkpoint its files belong to */
    uint64_t order;
    uint64_t job;
    uint64_t number;
    uint32_t server_index;
};

struct watcher {
    struct watcher *next;
    struct coord *coord;
    struct rpc_call *call;
    uint64_t job;
    uint64_t interval_ns;
    uint64_t sent_ns;
    bool is_sending;
    bool is_due;
    bool is_over;
};

struct held_reply { /* waits until what it says is durable */
    struct held_reply *next;
    uint64_t seq;
    struct core_act act; /* text owned */
};

struct request {
    uint64_t id;
    struct rpc_call *call;
    void (*on_reply)(struct coord *coord, struct request *request, const struct core_act *act);
};

struct coord {
    struct coord_options options;
    struct loop *loop;
    struct rpc_env *env;
    struct rpc_server *server;
    struct health_service *health;
    struct core *core;
    struct ledger *ledger;
    struct task_thread *disk;
    struct loop_timer *core_timer;
    struct loop_timer *watch_timer;
    struct loop_timer *wait_timer;
    const struct cluster_spec *cluster;
    uint64_t start;
    uint64_t next_conn;
    uint64_t next_request;
    struct map conns;     /* id -> struct conn */
    struct map jobs;      /* number -> struct coord_job */
    struct map requests;  /* id -> struct request */
    struct map snapshots; /* order -> struct snapshot_order */
    struct watcher *watchers;
    struct held_reply *held;
    struct held_reply **held_tail;
    uint64_t posted_seq;
    uint64_t written_seq;
    bool is_draining; /* inside coord_drain */
    bool is_stopping;
    uint32_t tasks;              /* on the disk thread */
    struct core_record *records; /* of one drain, for the ledger */
    size_t record_count;
    size_t record_capacity;
};

/* coord.c */
/* After every event of the core: carries out what it asks for, until it asks for nothing more. */
void coord_drain(struct coord *coord);
struct coord_job *coord_job_of(struct coord *coord, uint64_t job);

/* coord_fleet.c */
void coord_fleet_add(struct coord *coord);
void coord_fleet_act(struct coord *coord, const struct core_act *act);
/* The job's checkpoint will not be published: answers to its snapshots mean nothing any more. */
void coord_fleet_forget_snapshots(struct coord *coord, uint64_t job);
void coord_fleet_close_all(struct coord *coord);
const struct conn *coord_fleet_conn(const struct coord *coord, uint64_t id);

/* coord_api.c */
void coord_api_add(struct coord *coord);
void coord_api_reply(struct coord *coord, const struct core_act *act);
void coord_api_changed(struct coord *coord, uint64_t job);
void coord_api_watch_turn(struct coord *coord);
void coord_api_close_all(struct coord *coord);
void coord_api_free_watchers(struct coord *coord); /* the server is drained */

/* coord_disk.c: each runs on the disk thread and answers on the loop */
/* Takes spec and json; calls on_done(coord, arg, spec, json, facts, err): the callee owns spec and
 * json. */
/* makes_directory: the checkpoint directory is made and tried, too. */
void coord_disk_probe(struct coord *coord, struct job_spec *take_spec, char *take_json,
                      bool makes_directory,
                      void (*on_done)(struct coord *coord, void *arg, struct job_spec *spec,
                                      char *json, const struct data_facts *facts,
                                      const struct err *err),
                      void *arg);
void coord_disk_find_ckpt(struct coord *coord, uint64_t job, uint64_t first_number);
void coord_disk_begin_ckpt(struct coord *coord, uint64_t job, uint64_t number);
void coord_disk_publish_ckpt(struct coord *coord, const struct core_act *act);
void coord_disk_abort_ckpt(struct coord *coord, uint64_t job, uint64_t number);

#endif
