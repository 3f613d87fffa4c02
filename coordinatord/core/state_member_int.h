/* SPDX-License-Identifier: Apache-2.0 */
/* state_member_int: what the core knows of a member. core_member.c makes members and moves them
 * between their states; the tickets in flight and the acknowledgements to be sent change by the
 * calls of core_members.c only. */
#ifndef COORDINATORD_CORE_STATE_MEMBER_INT_H
#define COORDINATORD_CORE_STATE_MEMBER_INT_H

#include "coordinatord/core/core.h"

enum member_state { MEMBER_ATTACHED, MEMBER_SILENT, MEMBER_LOST, MEMBER_LEFT };

struct in_flight {
    struct core_step_ref ref;
    uint64_t generation;
    uint64_t sent_ns;
    uint64_t gone_ns; /* when its worker was last there; 0: it is */
    uint32_t deadline_ms;
    bool is_waiting; /* the ticket has not left: core_issue.c */
    bool is_again;   /* and is not the first of its step */
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
    uint64_t silent_ns; /* since when, while it is silent */
    uint64_t memory_bytes;
    uint64_t held_bytes;
    uint32_t shard_count;

    /* workers: core_members.c */
    struct in_flight *flight; /* [flight_head, flight_head + flight_count), in the order of issue */
    size_t flight_head;
    size_t flight_count;
    size_t flight_capacity;
    struct core_step_ref *acks; /* to be sent at the end of this event */
    size_t ack_count;
    size_t ack_capacity;

    /* workers: core_sched.c and who holds tickets back */
    struct opened *opened;
    size_t opened_count;
    bool is_stuck; /* let a ticket's deadline pass; gets nothing until it reports */
    bool is_leaving;
    bool is_alone;          /* its only ticket is a suspect: nothing is added to it */
    uint64_t hold_until_ns; /* gave steps back: a pause before it gets more */
    size_t leaving_count;   /* tickets that leave in this event; core_issue.c */
    size_t turn;            /* which running job was served last */

    /* workers: core_report.c */
    uint32_t credit;
    double rate; /* steps per second, smoothed */
    uint64_t rate_ns;
    uint64_t rate_done;
    uint64_t steps_done;
};

#endif
