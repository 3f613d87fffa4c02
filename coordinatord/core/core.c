/* SPDX-License-Identifier: Apache-2.0 */
/* core: life of the machine, the events, the action list and the next deadline. */
#include "coordinatord/core/core.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinatord/core/core_int.h"

#define ARENA_BLOCK 65536u

/* ---- actions --------------------------------------------------------------------------------- */

void *core_arena(struct core *core, size_t size)
{
    size = (size + 15) & ~(size_t)15;
    struct arena_block *block = core->arena;
    if (!block || block->size - block->used < size) {
        size_t room = MAX(size, (size_t)ARENA_BLOCK);
        block = base_alloc(sizeof(*block) + room);
        block->size = room;
        block->next = core->arena;
        core->arena = block;
    }
    void *p = block->data + block->used;
    block->used += size;
    memset(p, 0, size);
    return p;
}

/* Keeps one block, so that the common event allocates nothing. */
static void arena_reset(struct core *core)
{
    while (core->arena && core->arena->next) {
        struct arena_block *next = core->arena->next;
        free(core->arena);
        core->arena = next;
    }
    if (core->arena)
        core->arena->used = 0;
}

const char *core_arena_text(struct core *core, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    ASSERT(n >= 0);
    char *text = core_arena(core, (size_t)n + 1);
    va_start(ap, fmt);
    vsnprintf(text, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return text;
}

struct core_act *core_act_add(struct core *core, enum core_act_kind kind)
{
    if (core->act_count == core->act_capacity) {
        core->act_capacity = MAX(core->act_capacity * 2, (size_t)64);
        core->acts = base_realloc(core->acts, core->act_capacity * sizeof(*core->acts));
    }
    struct core_act *act = &core->acts[core->act_count++];
    *act = (struct core_act){.kind = kind};
    return act;
}

size_t core_take_actions(struct core *core, const struct core_act **ret_acts)
{
    size_t count = core->is_taken ? 0 : core->act_count;
    *ret_acts = core->acts;
    core->is_taken = true;
    return count;
}

void core_event_begin(struct core *core, uint64_t now_ns)
{
    if (core->is_taken) {
        core->act_count = 0;
        core->is_taken = false;
        arena_reset(core);
    }
    core->now_ns = MAX(core->now_ns, now_ns);
}

/* What an event may have made possible: phases first, since they open jobs, then tickets, then the
 * acknowledgements collected on the way. */
void core_event_end(struct core *core)
{
    if (core->is_started) {
        core_job_advance_all(core);
        if (core->is_fill_due) {
            core->is_fill_due = false;
            core_sched_fill_all(core);
        }
    }
    core_sched_flush_acks(core);
}

void core_arm(struct core *core, uint64_t deadline_ns)
{
    core->deadline_ns = MIN(core->deadline_ns, deadline_ns);
}

uint64_t core_record(struct core *core, const struct core_record *record)
{
    struct core_act *act = core_act_add(core, CORE_ACT_JOURNAL);
    act->job = record->job;
    act->record = *record;
    act->record.seq = ++core->next_seq;
    if (record->text)
        act->record.text = core_arena_text(core, "%s", record->text);
    if (record->text2)
        act->record.text2 = core_arena_text(core, "%s", record->text2);
    return act->record.seq;
}

void core_reply(struct core *core, uint64_t request, enum err_code code, uint64_t job,
                const char *text)
{
    struct core_act *act = core_act_add(core, CORE_ACT_REPLY);
    act->request = request;
    act->code = code;
    act->job = job;
    act->text = core_arena_text(core, "%s", text);
}

void core_notice(struct core *core, struct job *job, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (job) {
        if (job->notice_count == LIMIT_NOTICES) {
            free(job->notices[0]);
            memmove(job->notices, job->notices + 1, (LIMIT_NOTICES - 1) * sizeof(job->notices[0]));
            job->notice_count--;
        }
        job->notices[job->notice_count++] = base_strdup(text);
    }
    struct core_act *act = core_act_add(core, CORE_ACT_NOTICE);
    act->job = job ? job->number : 0;
    act->text = core_arena_text(core, "%s", text);
}

/* ---- life ------------------------------------------------------------------------------------ */

struct core *core_new(const struct core_config *config)
{
    ASSERT(config->start > 0 && config->lease_ms > 0 && config->running_max > 0);
    struct core *core = base_alloc(sizeof(*core));
    core->config = *config;
    core->deadline_ns = UINT64_MAX;
    core->next_session = config->start << 32;
    core->next_attempt = config->start << 32;
    core->next_pin = config->start << 32;
    core->next_order = config->start << 32;
    core->next_job = 1;
    map_init(&core->by_conn);
    map_init(&core->by_session);
    return core;
}

void core_free(struct core *core)
{
    if (!core)
        return;
    for (size_t i = 0; i < core->member_count; i++)
        core_member_free(core->members[i]);
    free(core->members);
    for (size_t i = 0; i < core->job_count; i++)
        core_job_free(core->jobs[i]);
    free(core->jobs);
    while (core->orders) {
        struct order *next = core->orders->next;
        free(core->orders);
        core->orders = next;
    }
    while (core->arena) {
        struct arena_block *next = core->arena->next;
        free(core->arena);
        core->arena = next;
    }
    map_done(&core->by_conn);
    map_done(&core->by_session);
    free(core->pending);
    free(core->acts);
    free(core->stuck_text);
    free(core->live);
    free(core->view_shards);
    free(core->view_servers);
    free(core);
}

/* ---- replay ---------------------------------------------------------------------------------- */

static enum err_code replay_job(struct core *core, const struct core_record *record,
                                struct err *err)
{
    struct job_spec *spec = NULL;
    if (record->job < core->next_job)
        return err_set(err, ERR_CORRUPT, "ledger: job %llu comes twice or out of order",
                       (unsigned long long)record->job);
    enum err_code code = job_spec_parse(record->text2, strlen(record->text2), &spec, err);
    if (code != ERR_OK) {
        err_prefix(err, "ledger: spec of job %llu", (unsigned long long)record->job);
        return ERR_CORRUPT;
    }
    core_job_new(core, record->job, record->text, spec, record->text2, record->first, record->last,
                 record->number != 0, record->wall_ms);
    core->next_job = record->job + 1;
    return ERR_OK;
}

/* "ps:0/1 ps:1/2": names with the number of their shards. */
static enum err_code replay_placed(struct job *job, const struct core_record *record,
                                   struct err *err)
{
    char *text AUTO_MEM = base_strdup(record->text);
    char *save = NULL;
    size_t count = 0;
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *slash = strrchr(word, '/');
        if (!slash || count == LIMIT_SERVERS)
            return err_set(err, ERR_CORRUPT,
                           "ledger: job %llu: placement \"%s\", want name/shards ...",
                           (unsigned long long)job->number, record->text);
        *slash = '\0';
        job->servers = base_realloc(job->servers, (count + 1) * sizeof(*job->servers));
        job->servers[count++] = (struct job_server){
            .name = base_strdup(word),
            .address = base_strdup(""),
            .shard_count = (uint32_t)strtoul(slash + 1, NULL, 10),
            .has_slices = true, /* until the plan says else */
        };
        job->server_count = count; /* kept true, so that a failure leaves nothing behind */
    }
    job->generation = record->number;
    job->replayed_generation = record->number;
    job->is_replayed_placement = true;
    return ERR_OK;
}

static void replay_final(struct job *job, const struct core_record *record)
{
    size_t at = 0;
    while (at < job->server_count && strcmp(job->servers[at].name, record->text) != 0)
        at++;
    if (at == job->server_count)
        return;
    struct core_shard_state state = {
        .shard = (uint32_t)record->first, .applied = record->number, .bytes = record->number2};
    core_audit_shard(job, at, &state);
}

enum err_code core_replay(struct core *core, const struct core_record *record, struct err *err)
{
    ASSERT(!core->is_started);
    if (record->kind == CORE_REC_JOB)
        return replay_job(core, record, err);
    struct job *job = core_job_of(core, record->job);
    if (!job)
        return err_set(err, ERR_CORRUPT, "ledger: record %d names job %llu, which is not there",
                       (int)record->kind, (unsigned long long)record->job);
    switch (record->kind) {
    case CORE_REC_STATE:
        if (record->number > CORE_JOB_CANCELLED)
            return err_set(err, ERR_CORRUPT, "ledger: job %llu: state %llu, want 0 to 5",
                           (unsigned long long)job->number, (unsigned long long)record->number);
        job->state = (enum core_job_state)record->number;
        free(job->reason);
        job->reason = base_strdup(record->text ? record->text : "");
        break;
    case CORE_REC_PLACED:
        return replay_placed(job, record, err);
    case CORE_REC_RESET:
        core_job_forget_progress(job);
        break;
    case CORE_REC_ACKED:
        if (record->first > record->last || record->last >= job->steps_total)
            return err_set(err, ERR_CORRUPT,
                           "ledger: job %llu: acknowledged %llu to %llu of %llu steps",
                           (unsigned long long)job->number, (unsigned long long)record->first,
                           (unsigned long long)record->last, (unsigned long long)job->steps_total);
        job->acked_count += ranges_add_range(&job->acked, record->first, record->last);
        ranges_add_range(&job->finished, record->first, record->last);
        ranges_add_range(&job->settled, record->first, record->last);
        job->reissued = record->number;
        job->images = record->number2;
        break;
    case CORE_REC_ABANDONED:
        core_job_add_abandoned(job, record->first, (uint32_t)record->number,
                               err_from_name(record->text), record->text2);
        break;
    case CORE_REC_EVAL: {
        struct core_eval eval = {(uint32_t)record->first, record->number, record->x, record->y};
        core_job_add_eval(job, &eval);
        break;
    }
    case CORE_REC_CKPT:
        core_job_add_ckpt(job, record->number, record->first, record->text);
        job->ckpt.last_step = MIN(record->first, job->acked_count);
        job->ckpt.published_step = record->first;
        break;
    case CORE_REC_FINAL:
        replay_final(job, record);
        break;
    case CORE_REC_COUNTS:
        job->final_duplicates = record->number;
        job->reissued = record->number2;
        job->lost = record->first;
        job->repeated = record->last;
        /* only a job that succeeded had all marks read at its end; the ledger gives its state first
         */
        job->is_accounting_final = job->state == CORE_JOB_SUCCEEDED;
        break;
    case CORE_REC_JOB:
    default:
        return err_set(err, ERR_CORRUPT, "ledger: record kind %d is unknown", (int)record->kind);
    }
    return ERR_OK;
}

void core_start(struct core *core, uint64_t now_ns)
{
    core_event_begin(core, now_ns);
    core->is_started = true;
    core->start_ns = now_ns;
    for (size_t i = 0; i < core->job_count; i++) {
        struct job *job = core->jobs[i];
        ranges_copy(&job->issued, &job->finished);
        job->begin_ns = now_ns;
        if (job->state == CORE_JOB_QUEUED) {
            core_job_set_phase(core, job, PHASE_QUEUED);
        } else if (job->state == CORE_JOB_RUNNING || job->state == CORE_JOB_PAUSED) {
            job->state = CORE_JOB_RUNNING;
            if (job->is_replayed_placement)
                core_job_set_phase(core, job, PHASE_RECOVERING);
            else
                core_job_begin_looking(core, job); /* it was not placed yet */
            job->hold_until_ns = now_ns + (uint64_t)core->config.recover_ms * NS_PER_MS / 2;
            core_arm(core, job->hold_until_ns);
        } else {
            job->phase = PHASE_ENDED;
        }
    }
    size_t live = 0;
    for (size_t i = 0; i < core->live_count; i++)
        if (core_job_is_active(core->live[i]))
            core->live[live++] = core->live[i];
    core->live_count = live;
    core_event_end(core);
}

/* ---- the deadline ---------------------------------------------------------------------------- */

uint64_t core_next_deadline(const struct core *core)
{
    return core->deadline_ns;
}

void core_on_timer(struct core *core, uint64_t now_ns)
{
    if (now_ns < core->deadline_ns)
        return;
    core_event_begin(core, now_ns);
    core->deadline_ns = UINT64_MAX; /* the checks arm it again */
    core_member_check(core);
    core_order_check(core);
    core_job_check(core);
    core->is_fill_due = true;
    core_event_end(core);
}

/* ---- events ---------------------------------------------------------------------------------- */

void core_on_hello(struct core *core, uint64_t now_ns, uint64_t conn,
                   const struct core_hello *hello)
{
    core_event_begin(core, now_ns);
    core_member_hello(core, conn, hello);
    core_event_end(core);
}

void core_on_conn_lost(struct core *core, uint64_t now_ns, uint64_t conn)
{
    core_event_begin(core, now_ns);
    core_member_conn_lost(core, conn);
    core_event_end(core);
}

void core_on_heartbeat(struct core *core, uint64_t now_ns, uint64_t conn,
                       const struct core_shard_state *shards, size_t count)
{
    core_event_begin(core, now_ns);
    struct member *member = core_member_of_conn(core, conn);
    if (member)
        core_member_heartbeat(core, member, shards, count);
    core_event_end(core);
}

void core_on_reports(struct core *core, uint64_t now_ns, uint64_t conn,
                     const struct core_report *reports, size_t count)
{
    core_event_begin(core, now_ns);
    struct member *member = core_member_of_conn(core, conn);
    if (member && member->role == CORE_WORKER) {
        member->heard_ns = core->now_ns;
        for (size_t i = 0; i < count; i++)
            core_sched_report(core, member, &reports[i]);
        core_sched_fill(core, member);
    }
    core_event_end(core);
}

static struct order **find_order(struct core *core, uint64_t number)
{
    struct order **at = &core->orders;
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    return at;
}

void core_on_order_done(struct core *core, uint64_t now_ns, uint64_t conn, uint64_t number,
                        enum err_code code, const char *text, const struct core_shard_state *shards,
                        size_t count)
{
    core_event_begin(core, now_ns);
    struct member *server = core_member_of_conn(core, conn);
    struct order **at = find_order(core, number);
    if (server && *at && (*at)->server == server) {
        struct order order = **at;
        struct order *gone = *at;
        *at = gone->next;
        free(gone);
        server->heard_ns = core->now_ns;
        struct job *job = order.job ? core_job_of(core, order.job) : NULL;
        if (job && core_job_is_active(job) && order.generation == job->generation) {
            switch (order.kind) {
            case ORDER_CREATE:
                if (job->phase == PHASE_PLACING && code == ERR_OK) {
                    job->servers[order.server_index].is_created = true;
                    job->servers[order.server_index].incarnation = server->incarnation;
                } else if (job->phase == PHASE_PLACING) {
                    core_job_end(core, job, CORE_JOB_FAILED, code,
                                 core_arena_text(core, "%s cannot make its variables: %s: %s",
                                                 server->name, err_name(code), text ? text : ""));
                }
                break;
            case ORDER_SNAPSHOT:
                core_ckpt_snapshot_done(core, job, order.value, code, text);
                break;
            case ORDER_PIN:
                core_eval_pinned(core, job, order.value, code, text);
                break;
            case ORDER_MARKS:
                core_audit_answer(core, job, &order, code, shards, count);
                break;
            case ORDER_PRUNE:
            case ORDER_UNPIN:
            case ORDER_DROP:
            case ORDER_FENCE:
                break;
            }
        }
    }
    core_event_end(core);
}

void core_on_leaving(struct core *core, uint64_t now_ns, uint64_t conn,
                     const struct core_step_ref *refs, size_t count)
{
    core_event_begin(core, now_ns);
    struct member *member = core_member_of_conn(core, conn);
    if (member)
        core_member_leaving(core, member, refs, count);
    core_event_end(core);
}

void core_on_journal_written(struct core *core, uint64_t now_ns, uint64_t seq)
{
    core_event_begin(core, now_ns);
    ASSERT(seq <= core->next_seq);
    if (core->next_seq - core->written_seq >= CORE_JOURNAL_MAX)
        core->is_fill_due = true; /* tickets were held back */
    core->written_seq = MAX(core->written_seq, seq);
    while (core->pending_count) {
        struct pending_ack ack = core->pending[core->pending_head];
        if (ack.seq > core->written_seq)
            break;
        core->pending_head = (core->pending_head + 1) % core->pending_capacity;
        core->pending_count--;
        struct member *worker = core_member_of_session(core, ack.session);
        if (worker)
            core_sched_ack(core, worker, &ack.ref);
        struct job *job = core_job_of(core, ack.ref.job);
        if (!job || ack.generation != job->generation)
            continue; /* rolled back meanwhile: the ledger has forgotten it too */
        if (ranges_add(&job->acked, ack.ref.step)) {
            job->acked_count++;
            job->acked_here++;
            job->images_here += ack.examples;
            ranges_add(&job->settled, ack.ref.step);
            job->images += ack.examples;
            job->slot_steps[job->slot_at]++;
            job->slot_images[job->slot_at] += ack.examples;
            job->progress_ns = core->now_ns;
        }
    }
    if (core->drops_due)
        core_job_drop_ended(core);
    core_event_end(core);
}

void core_on_journal_stuck(struct core *core, uint64_t now_ns, bool is_stuck, const char *text)
{
    core_event_begin(core, now_ns);
    if (core->is_stuck != is_stuck) {
        core->is_stuck = is_stuck;
        free(core->stuck_text);
        core->stuck_text = is_stuck ? base_strdup(text ? text : "") : NULL;
        core_notice(core, NULL,
                    is_stuck ? "no steps are issued until the ledger can be written"
                             : "steps are issued again");
        for (size_t i = 0; i < core->live_count; i++) {
            core->live[i]->progress_ns = core->now_ns;
            core_act_add(core, CORE_ACT_CHANGED)->job = core->live[i]->number;
        }
        core->is_fill_due = true;
    }
    core_event_end(core);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* By their names, whatever slashes are at the end; two names of one folder are the user's to avoid.
 */
static bool is_same_directory(const char *a, const char *b)
{
    if (!a || !b)
        return false;
    size_t a_bytes = strlen(a);
    size_t b_bytes = strlen(b);
    while (a_bytes > 1 && a[a_bytes - 1] == '/')
        a_bytes--;
    while (b_bytes > 1 && b[b_bytes - 1] == '/')
        b_bytes--;
    return a_bytes == b_bytes && memcmp(a, b, a_bytes) == 0;
}

void core_submit(struct core *core, uint64_t now_ns, uint64_t request, struct job_spec *take_spec,
                 const char *spec_json, uint64_t records, uint64_t eval_records, bool resume,
                 uint64_t wall_ms)
{
    core_event_begin(core, now_ns);
    AUTO(job_spec) spec = take_spec;
    size_t active = core->live_count;
    bool is_taken = false;
    const struct job *sharer = NULL;
    for (size_t i = 0; i < active; i++) {
        is_taken = is_taken || strcmp(core->live[i]->name, spec->name) == 0;
        if (is_same_directory(core->live[i]->spec->checkpoint.directory,
                              spec->checkpoint.directory))
            sharer = core->live[i];
    }
    if (is_taken) {
        core_reply(core, request, ERR_EXISTS, 0,
                   core_arena_text(core,
                                   "name: \"%s\": a job of this name is queued or running; cancel "
                                   "it or choose another name",
                                   spec->name));
    } else if (core->is_stuck) {
        core_reply(core, request, ERR_IO, 0,
                   core_arena_text(core, "the ledger cannot be written, no job is taken: %s",
                                   core->stuck_text));
    } else if (sharer) {
        core_reply(core, request, ERR_EXISTS, 0,
                   core_arena_text(
                       core,
                       "checkpoint.directory: \"%s\": in use by job \"%s\"; want one of its own",
                       spec->checkpoint.directory, sharer->name));
    } else if (active >= LIMIT_JOBS_ACTIVE) {
        core_reply(core, request, ERR_FULL, 0,
                   core_arena_text(core, "%zu jobs are queued or running, want fewer than %d",
                                   active, LIMIT_JOBS_ACTIVE));
    } else if (resume && !spec->checkpoint.directory) {
        core_reply(core, request, ERR_INVALID, 0,
                   "checkpoint.directory: absent: want the directory to resume from");
    } else {
        uint64_t number = core->next_job++;
        struct job *job = core_job_new(core, number, spec->name, spec, spec_json, records,
                                       eval_records, resume, wall_ms);
        spec = NULL; /* the job has it */
        job->begin_ns = core->now_ns;
        core_job_set_phase(core, job, PHASE_QUEUED);
        struct core_record record = {.kind = CORE_REC_JOB,
                                     .job = number,
                                     .number = resume,
                                     .first = records,
                                     .last = eval_records,
                                     .wall_ms = wall_ms,
                                     .text = job->name,
                                     .text2 = spec_json};
        core_record(core, &record);
        core_reply(core, request, ERR_OK, number, job->name);
    }
    core_event_end(core);
}

void core_cancel(struct core *core, uint64_t now_ns, uint64_t request, uint64_t number)
{
    core_event_begin(core, now_ns);
    struct job *job = core_job_of(core, number);
    if (!job) {
        core_reply(core, request, ERR_NOT_FOUND, 0, "no such job");
    } else {
        if (core_job_is_active(job))
            core_job_end(core, job, CORE_JOB_CANCELLED, ERR_CANCELLED, "cancelled by request");
        core_reply(core, request, ERR_OK, number, "");
    }
    core_event_end(core);
}

void core_checkpoint(struct core *core, uint64_t now_ns, uint64_t request, uint64_t number)
{
    core_event_begin(core, now_ns);
    struct job *job = core_job_of(core, number);
    if (!job) {
        core_reply(core, request, ERR_NOT_FOUND, 0, "no such job");
    } else if (!job->spec->checkpoint.directory) {
        core_reply(core, request, ERR_INVALID, number, "checkpoint.directory: the job has none");
    } else if (job->phase != PHASE_TRAINING && job->phase != PHASE_FINISHING) {
        core_reply(core, request, ERR_INVALID, number,
                   core_arena_text(core, "job \"%s\" is %s: want one that is training", job->name,
                                   core_phase_name(job->phase)));
    } else {
        struct ckpt_run *ckpt = &job->ckpt;
        ckpt->requests =
            base_realloc(ckpt->requests, (ckpt->request_count + 1) * sizeof(*ckpt->requests));
        ckpt->requests[ckpt->request_count++] = request;
        ckpt->is_wanted = true;
    }
    core_event_end(core);
}
