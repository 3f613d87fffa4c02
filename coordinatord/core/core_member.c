/* SPDX-License-Identifier: Apache-2.0 */
/* core_member: who is attached. A member is a name; behind it is one process (incarnation) at a
 * time.
 *
 *            hello (new name)           connection gone              lease over
 *   (none) ------------------> ATTACHED --------------> SILENT ------------------> LOST
 *                                 ^  ^------- hello, same incarnation -/             |
 *                                 |---------- hello, new incarnation ---------------/
 *   ATTACHED --leaving--> LEFT --hello, new incarnation--> ATTACHED
 *
 * A worker that was LOST and comes back as the same incarnation is told to drop everything and to
 * rejoin: its steps were given to others and its session is fenced. A server that was LOST and
 * comes back as the same incarnation is welcome: it still has its variables, and pushes are
 * exactly-once by their marks.
 */
#include <stdlib.h>
#include <string.h>

#include "coordinatord/core/core_life_int.h"

#define FORGET_NS (3600 * NS_PER_S) /* how long the list of members shows a worker that is gone */

#define LEASE_OVER "the lease was over and the steps were given to others; rejoin"

static void goodbye(struct core *core, uint64_t conn, enum err_code code, const char *text)
{
    struct core_act *act = core_act_add(core, CORE_ACT_GOODBYE);
    act->conn = conn;
    act->code = code;
    act->text = core_arena_text(core, "%s", text);
}

static void hang_up(struct core *core, uint64_t conn)
{
    core_act_add(core, CORE_ACT_HANGUP)->conn = conn;
}

static void detach(struct core *core, struct member *member)
{
    if (member->conn != CORE_NO_CONN)
        map_remove(&core->by_conn, member->conn);
    member->conn = CORE_NO_CONN;
}

/* As far as we know: the end of its stream, or a beat after the last sign of life. */
static uint64_t last_there(const struct core *core, const struct member *member)
{
    if (member->state == MEMBER_SILENT)
        return member->silent_ns;
    return MIN(core->now_ns, member->heard_ns + core->config.heartbeat_ms * NS_PER_MS);
}

/* The process behind the member is gone, or counts as gone. */
static void lose(struct core *core, struct member *member, enum member_state state, const char *why)
{
    bool was_here = core_member_is_here(member);
    uint64_t gone_ns = last_there(core, member);
    core_lives_pass(core);
    detach(core, member);
    member->state = state;
    if (!was_here)
        return;
    if (member->role == CORE_WORKER) {
        if (state == MEMBER_LOST) {
            core->lives.deaths++;
            core->recent.deaths++;
        }
        size_t held = member->flight_count;
        core_step_worker_gone(core, member, state == MEMBER_LOST ? BLAME_DEATH : BLAME_NONE,
                              gone_ns);
        if (state == MEMBER_LOST)
            for (size_t i = 0; i < core->member_count; i++)
                if (core->members[i]->role == CORE_SERVER && core_member_is_here(core->members[i]))
                    core_order_add(core, ORDER_FENCE, core->members[i], NULL, member->session, 0);
        core_notice(core, NULL, "%s at %s is %s (%s); %zu tickets go back", member->name,
                    member->address, state == MEMBER_LEFT ? "gone" : "lost", why, held);
    } else {
        core_notice(core, NULL, "%s at %s is %s (%s)", member->name, member->address,
                    state == MEMBER_LEFT ? "gone" : "lost", why);
        core_job_server_lost(core, member); /* first: its jobs wait for it, whatever it was asked */
        core_answer_lost(core, member);
    }
    core->is_fill_due = true;
}

static void begin_session(struct core *core, struct member *member, const struct core_hello *hello)
{
    if (member->session)
        map_remove(&core->by_session, member->session);
    member->session = ++core->next_session;
    map_put(&core->by_session, member->session, member);
    member->incarnation = hello->incarnation;
    member->ack_count = 0;
    member->credit = LIMIT_CREDIT_MIN + 1;
    member->rate = 0;
    member->rate_ns = core->now_ns;
    member->rate_done = 0;
    member->is_leaving = false;
    member->is_alone = false;
    member->hold_until_ns = 0;
    member->held_bytes = 0;
    ASSERT(member->flight_count == 0);
}

static bool is_among(const struct core_step_ref *refs, size_t count,
                     const struct core_step_ref *ref)
{
    for (size_t i = 0; i < count; i++)
        if (core_ref_is_equal(&refs[i], ref))
            return true;
    return false;
}

static bool is_reported(const struct core_hello *hello, const struct core_step_ref *ref)
{
    for (size_t i = 0; i < hello->report_count; i++)
        if (core_ref_is_equal(&hello->reports[i].ref, ref))
            return true;
    return false;
}

/* What the worker says it holds against what we think: lost on the way down goes back, unknown to
 * us is adopted (after a restart) or revoked (given to somebody else since). */
static void match_held(struct core *core, struct member *worker, const struct core_hello *hello)
{
    for (size_t i = worker->flight_count; i-- > 0;) {
        struct in_flight flight = worker->flight[worker->flight_head + i];
        if (is_among(hello->held, hello->held_count, &flight.ref) ||
            is_reported(hello, &flight.ref))
            continue;
        core_flight_remove(worker, &worker->flight[worker->flight_head + i]);
        struct job *job = core_job_of(core, flight.ref.job);
        if (job)
            core_step_give_back(core, job, &flight, BLAME_NONE, worker->name);
    }
    struct core_step_ref *revoked = core_arena(core, (hello->held_count + 1) * sizeof(*revoked));
    size_t revoked_count = 0;
    for (size_t i = 0; i < hello->held_count; i++)
        if (!core_flight_find(worker, &hello->held[i]) &&
            !core_step_adopt(core, worker, &hello->held[i]))
            revoked[revoked_count++] = hello->held[i];
    if (revoked_count) {
        struct core_act *act = core_act_add(core, CORE_ACT_REVOKE);
        act->conn = worker->conn;
        act->refs = revoked;
        act->count = revoked_count;
    }
}

void core_member_hello(struct core *core, uint64_t conn, const struct core_hello *hello)
{
    if (core_member_of_conn(core, conn)) {
        goodbye(core, conn, ERR_INVALID, "a second hello on one stream");
        return;
    }
    struct member *member = core_member_named(core, hello->role, hello->name);
    size_t same_role = 0;
    for (size_t i = 0; i < core->member_count; i++)
        same_role += core->members[i]->role == hello->role;
    size_t limit = hello->role == CORE_SERVER ? LIMIT_SERVERS : LIMIT_WORKERS;
    if (!member && same_role >= limit &&
        (hello->role == CORE_SERVER || !core_member_make_room(core))) {
        goodbye(core, conn, ERR_FULL,
                core_arena_text(core, "%zu members of this role are known, want at most %zu",
                                same_role, limit));
        return;
    }
    bool is_new = !member;
    if (is_new)
        member = core_member_add(core, hello->role, hello->name);
    bool is_same = !is_new && member->incarnation == hello->incarnation;
    if (!is_new && hello->incarnation < member->incarnation) {
        goodbye(
            core, conn, ERR_EXISTS,
            core_arena_text(core, "%s is a newer process at %s", member->name, member->address));
        return;
    }
    if (is_same && !core_member_is_here(member) && member->role == CORE_WORKER) {
        goodbye(core, conn, ERR_STALE, LEASE_OVER);
        return;
    }
    if (!is_new && !is_same) {
        if (member->state == MEMBER_ATTACHED)
            goodbye(core, member->conn, ERR_EXISTS,
                    core_arena_text(core, "%s is now a newer process at %s", member->name,
                                    hello->address));
        lose(core, member, MEMBER_LOST, "a new process came in its place");
    } else if (is_same && member->state == MEMBER_ATTACHED) {
        hang_up(core, member->conn); /* the same process attached again */
    }
    core_lives_pass(core);
    detach(core, member);
    if (!is_same)
        begin_session(core, member, hello);
    free(member->address);
    member->address = base_strdup(hello->address);
    member->memory_bytes = hello->memory_bytes;
    member->shard_count = hello->shard_count;
    member->state = MEMBER_ATTACHED;
    member->conn = conn;
    member->heard_ns = core->now_ns;
    member->is_stuck = false;
    member->opened_count = 0; /* what was said on the last stream may not have arrived */
    map_put(&core->by_conn, conn, member);
    core_arm(core, core->now_ns + core->config.lease_ms * NS_PER_MS);

    struct core_act *act = core_act_add(core, CORE_ACT_WELCOME);
    act->conn = conn;
    act->session = member->session;
    if (member->role == CORE_WORKER) {
        match_held(core, member, hello);
        for (size_t i = 0; i < hello->report_count; i++)
            core_report_take(core, member, &hello->reports[i]);
    } else {
        core_order_resend(core, member);
        core_place_server_here(core, member, hello);
    }
    core->is_fill_due = true;
}

void core_member_conn_lost(struct core *core, uint64_t conn)
{
    struct member *member = core_member_of_conn(core, conn);
    if (!member)
        return;
    detach(core, member);
    if (member->is_leaving)
        lose(core, member, MEMBER_LEFT, "it left");
    if (member->state != MEMBER_ATTACHED)
        return;
    core_lives_pass(core);
    member->state = MEMBER_SILENT; /* until its lease is over */
    member->silent_ns = core->now_ns;
}

void core_member_heartbeat(struct core *core, struct member *member,
                           const struct core_shard_state *shards, size_t count)
{
    member->heard_ns = core->now_ns;
    if (member->role != CORE_SERVER)
        return;
    member->held_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        member->held_bytes += shards[i].bytes;
        struct job *job = core_job_of(core, shards[i].job);
        if (!job || !core_job_is_active(job) || shards[i].generation != job->generation)
            continue;
        for (size_t s = 0; s < job->place.server_count; s++)
            if (job->place.servers[s].is_created &&
                strcmp(job->place.servers[s].name, member->name) == 0)
                core_audit_shard(job, s, &shards[i]);
    }
}

void core_member_leaving(struct core *core, struct member *member, const struct core_step_ref *refs,
                         size_t count)
{
    member->heard_ns = core->now_ns;
    member->is_leaving = true;
    if (member->role != CORE_WORKER)
        return;
    for (size_t i = 0; i < count; i++) {
        struct in_flight *found = core_flight_find(member, &refs[i]);
        if (!found)
            continue;
        struct in_flight flight = *found;
        core_flight_remove(member, found);
        struct job *job = core_job_of(core, flight.ref.job);
        if (job)
            core_step_give_back(core, job, &flight, BLAME_NONE, member->name);
    }
    core->is_fill_due = true;
}

void core_member_check(struct core *core)
{
    uint64_t lease_ns = core->config.lease_ms * NS_PER_MS;
    for (size_t i = 0; i < core->member_count; i++) {
        struct member *member = core->members[i];
        if (!core_member_is_here(member)) {
            if (member->role == CORE_WORKER && core->now_ns >= member->heard_ns + FORGET_NS)
                core_member_forget(core, i--);
            continue;
        }
        uint64_t due_ns = member->heard_ns + lease_ns;
        if (core->now_ns >= due_ns) {
            /* Its stream may be whole (it was frozen) and has to end, or it would never know. */
            if (member->conn != CORE_NO_CONN && member->role == CORE_WORKER)
                goodbye(core, member->conn, ERR_STALE, LEASE_OVER);
            else if (member->conn != CORE_NO_CONN)
                hang_up(core, member->conn);
            lose(core, member, MEMBER_LOST, "silent past its lease");
            continue;
        }
        core_arm(core, due_ns);
        if (member->hold_until_ns > core->now_ns)
            core_arm(core, member->hold_until_ns);
        if (member->role != CORE_WORKER || !member->flight_count || member->is_stuck)
            continue;
        const struct in_flight *oldest = &member->flight[member->flight_head];
        if (oldest->is_waiting)
            continue; /* armed when it leaves */
        due_ns = oldest->sent_ns + oldest->deadline_ms * NS_PER_MS + lease_ns;
        if (core->now_ns < due_ns) {
            core_arm(core, due_ns);
            continue;
        }
        core_notice(core, core_job_of(core, oldest->ref.job),
                    "%s did not finish step %llu within %u ms; its %zu tickets go back",
                    member->name, (unsigned long long)oldest->ref.step, oldest->deadline_ms,
                    member->flight_count);
        member->is_stuck = true;
        struct core_step_ref *refs = core_arena(core, member->flight_count * sizeof(*refs));
        size_t count = 0;
        for (size_t f = 0; f < member->flight_count; f++)
            if (!member->flight[member->flight_head + f].is_waiting)
                refs[count++] = member->flight[member->flight_head + f].ref;
        core_step_worker_gone(core, member, BLAME_HUNG, core->now_ns);
        if (member->conn != CORE_NO_CONN) {
            struct core_act *act = core_act_add(core, CORE_ACT_REVOKE);
            act->conn = member->conn;
            act->refs = refs;
            act->count = count;
        }
    }
}
