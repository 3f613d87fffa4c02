/* SPDX-License-Identifier: Apache-2.0 */
/* core_members: the list of members, the tickets that are in flight at each, and the
 * acknowledgements that wait for the disk or for the end of the event. */
#include <stdlib.h>
#include <string.h>

#include "coordinatord/core/core_base_int.h"

/* ---- the list -------------------------------------------------------------------------------- */

struct member *core_member_of_conn(struct core *core, uint64_t conn)
{
    return map_get(&core->by_conn, conn);
}

struct member *core_member_of_session(struct core *core, uint64_t session)
{
    return map_get(&core->by_session, session);
}

struct member *core_member_named(struct core *core, enum core_role role, const char *name)
{
    for (size_t i = 0; i < core->member_count; i++)
        if (core->members[i]->role == role && strcmp(core->members[i]->name, name) == 0)
            return core->members[i];
    return NULL;
}

bool core_member_is_here(const struct member *member)
{
    return member->state == MEMBER_ATTACHED || member->state == MEMBER_SILENT;
}

size_t core_lives_pass(struct core *core)
{
    size_t workers = 0;
    for (size_t i = 0; i < core->member_count; i++)
        workers +=
            core->members[i]->role == CORE_WORKER && core->members[i]->state == MEMBER_ATTACHED;
    double passed_s = (double)(core->now_ns - core->lives_ns) / (double)NS_PER_S;
    core->lives.seconds += (double)workers * passed_s;
    hazard_fade(&core->recent, passed_s, workers);
    core->lives_ns = core->now_ns;
    return workers;
}

struct member *core_member_add(struct core *core, enum core_role role, const char *name)
{
    struct member *member = base_alloc(sizeof(*member));
    member->role = role;
    member->name = base_strdup(name);
    member->address = base_strdup("");
    member->state = MEMBER_LOST;
    core->members = base_realloc(core->members, (core->member_count + 1) * sizeof(*core->members));
    core->members[core->member_count++] = member;
    return member;
}

void core_member_free(struct member *member)
{
    free(member->name);
    free(member->address);
    free(member->flight);
    free(member->opened);
    free(member->acks);
    free(member);
}

void core_member_forget(struct core *core, size_t at)
{
    struct member *member = core->members[at];
    ASSERT(!core_member_is_here(member) && member->flight_count == 0);
    map_remove(&core->by_session, member->session);
    core_member_free(member);
    memmove(core->members + at, core->members + at + 1,
            (--core->member_count - at) * sizeof(struct member *));
}

/* Workers come under ever new names (pods, spot machines): the one that was heard of longest ago makes room. */
bool core_member_make_room(struct core *core)
{
    size_t oldest = core->member_count;
    for (size_t i = 0; i < core->member_count; i++) {
        const struct member *member = core->members[i];
        if (member->role == CORE_WORKER && !core_member_is_here(member) &&
            (oldest == core->member_count || member->heard_ns < core->members[oldest]->heard_ns))
            oldest = i;
    }
    if (oldest == core->member_count)
        return false;
    core_member_forget(core, oldest);
    return true;
}

/* ---- tickets in flight ----------------------------------------------------------------------- */

bool core_ref_is_equal(const struct core_step_ref *a, const struct core_step_ref *b)
{
    return a->step == b->step && a->attempt == b->attempt && a->job == b->job && a->kind == b->kind;
}

struct in_flight *core_flight_find(struct member *worker, const struct core_step_ref *ref)
{
    for (size_t i = 0; i < worker->flight_count; i++) {
        struct in_flight *flight = &worker->flight[worker->flight_head + i];
        if (core_ref_is_equal(&flight->ref, ref))
            return flight;
    }
    return NULL;
}

void core_flight_push(struct member *worker, const struct in_flight *flight)
{
    if (worker->flight_head + worker->flight_count == worker->flight_capacity) {
        if (worker->flight_head) {
            memmove(worker->flight, worker->flight + worker->flight_head,
                    worker->flight_count * sizeof(*flight));
            worker->flight_head = 0;
        }
        if (worker->flight_count * 2 > worker->flight_capacity || worker->flight_capacity == 0) {
            worker->flight_capacity = MAX(worker->flight_capacity * 2, (size_t)32);
            worker->flight =
                base_realloc(worker->flight, worker->flight_capacity * sizeof(*flight));
        }
    }
    worker->flight[worker->flight_head + worker->flight_count++] = *flight;
}

void core_flight_remove(struct member *worker, struct in_flight *flight)
{
    size_t at = (size_t)(flight - worker->flight);
    ASSERT(at >= worker->flight_head && at < worker->flight_head + worker->flight_count);
    if (at == worker->flight_head) {
        worker->flight_head++;
    } else {
        size_t after = worker->flight_head + worker->flight_count - at - 1;
        memmove(flight, flight + 1, after * sizeof(*flight));
    }
    if (--worker->flight_count == 0)
        worker->flight_head = 0;
}

/* ---- acknowledgements ------------------------------------------------------------------------ */

void core_ack_add(struct member *worker, const struct core_step_ref *ref)
{
    if (worker->ack_count == worker->ack_capacity) {
        worker->ack_capacity = MAX(worker->ack_capacity * 2, (size_t)64);
        worker->acks = base_realloc(worker->acks, worker->ack_capacity * sizeof(*worker->acks));
    }
    worker->acks[worker->ack_count++] = *ref;
}

void core_ack_pend(struct core *core, const struct pending_ack *ack)
{
    if (core->pending_count == core->pending_capacity) {
        size_t capacity = MAX(core->pending_capacity * 2, (size_t)256);
        struct pending_ack *ring = base_alloc(capacity * sizeof(*ring));
        for (size_t i = 0; i < core->pending_count; i++)
            ring[i] = core->pending[(core->pending_head + i) % core->pending_capacity];
        free(core->pending);
        core->pending = ring;
        core->pending_head = 0;
        core->pending_capacity = capacity;
    }
    core->pending[(core->pending_head + core->pending_count++) % core->pending_capacity] = *ack;
}

bool core_ack_pop(struct core *core, struct pending_ack *ret_ack)
{
    if (!core->pending_count || core->pending[core->pending_head].seq > core->written_seq)
        return false;
    *ret_ack = core->pending[core->pending_head];
    core->pending_head = (core->pending_head + 1) % core->pending_capacity;
    core->pending_count--;
    return true;
}

void core_ack_flush(struct core *core)
{
    for (size_t i = 0; i < core->member_count; i++) {
        struct member *worker = core->members[i];
        if (!worker->ack_count)
            continue;
        if (worker->conn != CORE_NO_CONN) {
            struct core_step_ref *refs = core_arena(core, worker->ack_count * sizeof(*refs));
            memcpy(refs, worker->acks, worker->ack_count * sizeof(*refs));
            struct core_act *act = core_act_add(core, CORE_ACT_ACKS);
            act->conn = worker->conn;
            act->refs = refs;
            act->count = worker->ack_count;
        }
        worker->ack_count = 0; /* a worker that is away reports again when it is back */
    }
}
