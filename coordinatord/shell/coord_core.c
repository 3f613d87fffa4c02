/* SPDX-License-Identifier: Apache-2.0 */
/* coord_core: the core, its ledger and its timer: takes the actions and hands each to who carries
 * it out.
 *
 *   stream, request, timer, ledger, disk  --event-->  core  --actions-->  coord_drain --> carriers
 *
 * What answers an action at once (a plan) does so after the list was carried out, since an event
 * ends the list's life. Replies wait until every record posted before them is durable; when the
 * ledger cannot be written, or does not answer, they say so. */
#include <inttypes.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinatord/shell/coord_int.h"

#define HELD_MS 8000 /* less than clients wait by default (trainctl: 10 s): they hear why */

struct held_reply { /* waits until what it says is durable */
    struct held_reply *next;
    uint64_t seq;
    uint64_t deadline_ns;
    struct core_act act; /* text owned */
};

static void add_record(struct coord *coord, const struct core_record *record)
{
    if (coord->record_count == coord->record_capacity) {
        coord->record_capacity = MAX(coord->record_capacity * 2, (size_t)64);
        coord->records =
            base_realloc(coord->records, coord->record_capacity * sizeof(*coord->records));
    }
    coord->records[coord->record_count++] = *record;
    coord->posted_seq = record->seq;
}

/* Hands the first one out, as it is or, with words, as one whose outcome is not known yet. */
static void reply_first(struct coord *coord, const char *why_not_or_null)
{
    struct held_reply *held = coord->held;
    coord->held = held->next;
    if (!coord->held)
        coord->held_tail = &coord->held;
    if (why_not_or_null) {
        char *text =
            base_asprintf("job %" PRIu64 ": it is not lost and not durable yet: %s; see what "
                          "became of it before asking again",
                          held->act.job, why_not_or_null);
        held->act.code = ERR_IO; /* not TIMEOUT: that is no answer at all */
        free((char *)held->act.text);
        held->act.text = text;
    }
    coord->carriers[CORE_ACT_REPLY](coord, &held->act);
    free((char *)held->act.text);
    free(held);
}

/* Nobody waits for ever: a commit may hang (a network file system) without failing. */
static void on_held_timer(void *arg)
{
    struct coord *coord = arg;
    while (coord->held && coord->held->deadline_ns <= clock_now_ns())
        reply_first(coord, "the ledger has not been written for some seconds");
    if (coord->held)
        loop_timer_once(coord->held_timer, HELD_MS / 8);
}

static void hold_reply(struct coord *coord, const struct core_act *act)
{
    struct held_reply *held = base_alloc(sizeof(*held));
    held->seq = coord->posted_seq;
    held->act = *act;
    held->act.text = base_strdup(act->text ? act->text : "");
    held->deadline_ns = clock_now_ns() + HELD_MS * NS_PER_MS;
    if (!coord->held)
        loop_timer_once(coord->held_timer, HELD_MS / 8);
    *coord->held_tail = held;
    coord->held_tail = &held->next;
}

static void release_replies(struct coord *coord)
{
    while (coord->held && coord->held->seq <= coord->written_seq)
        reply_first(coord, NULL);
    while (coord->held && coord->stuck_text)
        reply_first(coord, coord->stuck_text);
}

const char *coord_core_stuck(const struct coord *coord)
{
    return coord->stuck_text;
}

void coord_core_later(struct coord *coord, void (*on_later)(struct coord *coord, void *arg),
                      void *arg)
{
    ASSERT(coord->is_draining && coord->later_count < ARRAY_SIZE(coord->later));
    coord->later[coord->later_count++] = (struct coord_later){on_later, arg};
}

static void carry_out(struct coord *coord, const struct core_act *act)
{
    if (act->kind == CORE_ACT_JOURNAL) {
        add_record(coord, &act->record);
    } else if (act->kind == CORE_ACT_REPLY && act->code == ERR_OK) {
        hold_reply(coord, act);
    } else {
        ASSERT(act->kind < coord->carrier_count && coord->carriers[act->kind]);
        coord->carriers[act->kind](coord, act);
    }
}

static void arm(struct coord *coord)
{
    uint64_t deadline_ns = core_next_deadline(coord->core);
    if (deadline_ns == UINT64_MAX) {
        loop_timer_stop(coord->core_timer);
        return;
    }
    uint64_t now_ns = clock_now_ns();
    uint64_t wait_ms =
        deadline_ns > now_ns ? (deadline_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS : 0;
    loop_timer_once(coord->core_timer, MIN(wait_ms, (uint64_t)3600000));
}

void coord_drain(struct coord *coord)
{
    if (coord->is_draining || !coord->ledger)
        return; /* the drain that runs sees what was added; after the end nothing is carried out */
    coord->is_draining = true;
    for (;;) {
        const struct core_act *acts = NULL;
        size_t count = core_take_actions(coord->core, &acts);
        if (!count)
            break;
        for (size_t i = 0; i < count; i++)
            carry_out(coord, &acts[i]);
        if (coord->record_count) {
            ledger_post(coord->ledger, coord->records, coord->record_count);
            coord->record_count = 0;
        }
        for (size_t i = 0; i < coord->later_count; i++)
            coord->later[i].on_later(coord, coord->later[i].arg);
        coord->later_count = 0;
    }
    coord->is_draining = false;
    release_replies(coord);
    arm(coord);
}

static void on_core_timer(void *arg)
{
    struct coord *coord = arg;
    core_on_timer(coord->core, clock_now_ns());
    coord_drain(coord);
}

struct written_note {
    struct coord *coord;
    uint64_t seq;
};

static void on_written_here(void *arg)
{
    struct written_note *note = arg;
    struct coord *coord = note->coord;
    coord->written_seq = MAX(coord->written_seq, note->seq);
    core_on_journal_written(coord->core, clock_now_ns(), note->seq);
    coord_drain(coord);
    free(note);
}

static void on_written(void *arg, uint64_t seq)
{
    struct written_note *note = base_alloc(sizeof(*note));
    note->coord = arg;
    note->seq = seq;
    rpc_env_post(note->coord->env, on_written_here, note);
}

struct stuck_note {
    struct coord *coord;
    bool is_stuck;
    char *text;
};

static void on_stuck_here(void *arg)
{
    struct stuck_note *note = arg;
    struct coord *coord = note->coord;
    core_on_journal_stuck(coord->core, clock_now_ns(), note->is_stuck, note->text);
    free(coord->stuck_text);
    coord->stuck_text = note->is_stuck ? TAKE(note->text) : NULL;
    coord_drain(coord);
    free(note->text);
    free(note);
}

static void on_stuck(void *arg, bool is_stuck, const char *text)
{
    struct stuck_note *note = base_alloc(sizeof(*note));
    note->coord = arg;
    note->is_stuck = is_stuck;
    note->text = base_strdup(text ? text : "");
    rpc_env_post(note->coord->env, on_stuck_here, note);
}

static enum err_code on_record(void *arg, const struct core_record *record, struct err *err)
{
    struct coord *coord = arg;
    return core_replay(coord->core, record, err);
}

enum err_code coord_core_open(struct coord *coord, struct err *err)
{
    struct ledger_callbacks callbacks = {on_written, on_stuck, coord};
    enum err_code code =
        ledger_open(coord->options.state_dir, &callbacks, &coord->ledger, &coord->start, err);
    if (code != ERR_OK)
        return code;
    struct core_config config = {
        .start = coord->start,
        .heartbeat_ms = coord->options.heartbeat_ms,
        .lease_ms = coord->options.lease_ms,
        .order_deadline_ms = coord->options.order_deadline_ms,
        .job_wait_ms = coord->options.job_wait_ms,
        .audit_ms = coord->options.audit_ms,
        .running_max = coord->options.running_max,
        .servers_wanted = (uint32_t)coord->cluster->roles[TASK_PS].count,
        .recover_ms = coord->options.recover_ms,
        .wall_ms = clock_wall_ms(),
    };
    coord->core = core_new(&config);
    coord->core_timer = loop_timer_new(coord->loop, on_core_timer, coord);
    coord->held_timer = loop_timer_new(coord->loop, on_held_timer, coord);
    coord->held_tail = &coord->held;
    return ledger_load(coord->ledger, on_record, coord, err);
}

void coord_core_begin(struct coord *coord)
{
    ledger_begin(coord->ledger);
    core_start(coord->core, clock_now_ns());
    coord_drain(coord);
}

void coord_core_close_ledger(struct coord *coord, uint32_t deadline_ms)
{
    ledger_close(coord->ledger, deadline_ms);
    coord->ledger = NULL;
}

void coord_core_done(struct coord *coord)
{
    coord_core_close_ledger(coord, 1000);
    loop_timer_free(coord->core_timer);
    loop_timer_free(coord->held_timer);
    core_free(coord->core);
    while (coord->held) {
        struct held_reply *next = coord->held->next;
        free((char *)coord->held->act.text);
        free(coord->held);
        coord->held = next;
    }
    free(coord->records);
    free(coord->stuck_text);
}
