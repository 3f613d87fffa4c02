/* SPDX-License-Identifier: Apache-2.0 */
/* state_core_int: the machine itself: who is there, which jobs, what was ordered, what goes out. */
#ifndef COORDINATORD_CORE_STATE_CORE_INT_H
#define COORDINATORD_CORE_STATE_CORE_INT_H

#include "coordinatord/core/state_job_int.h"
#include "coordinatord/core/state_member_int.h"

enum order_kind {
    ORDER_CREATE,
    ORDER_SNAPSHOT,
    ORDER_PRUNE,
    ORDER_PIN,
    ORDER_UNPIN,
    ORDER_DROP,
    ORDER_FENCE,
    ORDER_MARKS, /* of an audit */
    ORDER_ASK    /* marks, of a verdict */
};

struct order { /* core_order.c */
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

struct waiting_ticket { /* until its record is durable */
    uint64_t seq;
    uint64_t session;
    struct core_ticket ticket;
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
    bool is_stuck;      /* the ledger */
    double commit_s;    /* how long a record waits to be durable, smoothed */
    uint64_t probe_seq; /* of the record that is being timed; 0: none */
    uint64_t probe_ns;
    char *stuck_text;

    struct member **members; /* core_members.c */
    size_t member_count;
    struct map by_conn;
    struct map by_session;
    struct hazard lives;  /* of all workers that were attached; core_members.c */
    struct hazard recent; /* the same, as remembered */
    uint64_t lives_ns;    /* up to when */
    struct job **jobs;    /* by rising number; core_jobs.c */
    size_t job_count;
    struct job **live; /* those that are queued, running or paused, by rising number */
    size_t live_count;
    struct order *orders;        /* oldest first */
    struct pending_ack *pending; /* ring, oldest first; core_members.c */
    size_t pending_head;
    size_t pending_count;
    size_t pending_capacity;

    struct waiting_ticket *waiting; /* ring, oldest first; core_issue.c */
    size_t waiting_head;
    size_t waiting_count;
    size_t waiting_capacity;

    /* What an event leaves to its end (core_event_end). */
    size_t drops_due; /* jobs with an end_seq */
    size_t dooms_due; /* jobs with a doom */
    bool is_fill_due; /* every worker may have something to get */

    struct core_act *acts; /* core_out.c */
    size_t act_count;
    size_t act_capacity;
    bool is_taken; /* the list was handed out: the next event begins a new one */
    struct arena_block *arena;
    struct core_shard_view *view_shards; /* scratch of core_view.c */
    struct core_server_ref *view_servers;
};

#endif
