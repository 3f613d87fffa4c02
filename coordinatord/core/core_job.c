/* SPDX-License-Identifier: Apache-2.0 */
/* core_job: the phases of a job.
 *
 *   QUEUED -> LOOKING -> PLANNING -> PLACING -> TRAINING -> FINISHING -> ENDED
 *                ^                               |    ^
 *                |  new or emptied servers       v    | the same servers, intact
 *                +----------------------------- WAITING <- RECOVERING (after a restart)
 *
 * core_job_advance looks at one job and makes every move that is possible now; it is called at the
 * end of each event. Moves that need an answer from outside wait in their phase with a deadline.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinatord/core/core_int.h"

#define CORE_STALL_NS (10 * NS_PER_S) /* no progress for so long: say who holds what */
#define PRUNE_STEPS   1024            /* the watermark moved so far: tell the shards */

/* ---- objects --------------------------------------------------------------------------------- */

struct job *core_job_of(const struct core *core, uint64_t number)
{
    size_t low = 0;
    size_t high = core->job_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (core->jobs[mid]->number < number)
            low = mid + 1;
        else
            high = mid;
    }
    return low < core->job_count && core->jobs[low]->number == number ? core->jobs[low] : NULL;
}

bool core_job_is_active(const struct job *job)
{
    return job->state == CORE_JOB_QUEUED || job->state == CORE_JOB_RUNNING ||
           job->state == CORE_JOB_PAUSED;
}

static void init_order(struct job *job)
{
    const struct job_spec *spec = job->spec;
    if (spec->dataset.source == DATA_NONE) {
        job->records = spec->max_steps;
        data_order_init(&job->order, spec->seed, spec->max_steps, 1, 0);
    } else {
        data_order_init(&job->order, spec->seed, job->records, spec->dataset.batch_size,
                        spec->dataset.shuffle_buffer);
    }
    job->steps_per_epoch = job->order.steps_per_epoch;
    job->steps_total = job->steps_per_epoch * spec->epochs;
    if (spec->max_steps)
        job->steps_total = MIN(job->steps_total, spec->max_steps);
}

struct job *core_job_new(struct core *core, uint64_t number, const char *name,
                         struct job_spec *take_spec, const char *spec_json, uint64_t records,
                         uint64_t eval_records, bool is_resume, uint64_t wall_ms)
{
    struct job *job = base_alloc(sizeof(*job));
    job->number = number;
    job->name = base_strdup(name);
    job->spec = take_spec;
    job->spec_json = base_strdup(spec_json);
    job->records = MAX(records, (uint64_t)1);
    job->eval_records = eval_records;
    job->is_resume = is_resume;
    job->submitted_ms = wall_ms;
    job->wants_servers = strcmp(take_spec->model.name, "noop") != 0;
    job->reason = base_strdup("");
    job->ckpt.published_step = UINT64_MAX;
    map_init(&job->troubles);
    init_order(job);
    core->jobs = base_realloc(core->jobs, (core->job_count + 1) * sizeof(struct job *));
    core->jobs[core->job_count++] = job;
    core->live = base_realloc(core->live, (core->live_count + 1) * sizeof(struct job *));
    core->live[core->live_count++] = job;
    return job;
}

static void forget_servers(struct job *job)
{
    for (size_t i = 0; i < job->server_count; i++) {
        free(job->servers[i].name);
        free(job->servers[i].address);
    }
    free(job->servers);
    job->servers = NULL;
    job->server_count = 0;
    for (size_t i = 0; i < job->shard_count; i++)
        job->final_duplicates += job->shards[i].duplicates;
    job->shard_count = 0;
}

static void forget_troubles(struct job *job)
{
    void *trouble;
    for (size_t at = 0; (trouble = map_next(&job->troubles, &at));)
        free(trouble);
    map_done(&job->troubles);
    map_init(&job->troubles);
}

/* Steps, evaluations, abandoned: as if the job had not begun. Checkpoints stay. */
void core_job_forget_progress(struct job *job)
{
    ranges_clear(&job->acked);
    ranges_clear(&job->finished);
    ranges_clear(&job->settled);
    ranges_clear(&job->abandoned);
    ranges_clear(&job->issued);
    ranges_clear(&job->again);
    core_suspect_clear_all(&job->suspicion);
    forget_troubles(job);
    job->acked_count = 0;
    job->eval_count = 0;
    job->evaluated_epochs = 0;
    job->pruned = 0;
    job->lease_count = 0;
    for (size_t i = 0; i < job->abandoned_count; i++)
        free(job->abandoned_list[i].text);
    job->abandoned_count = 0;
}

void core_job_free(struct job *job)
{
    if (!job)
        return;
    forget_servers(job);
    core_job_forget_progress(job);
    map_done(&job->troubles);
    struct ranges *sets[] = {&job->acked,      &job->finished,   &job->settled,    &job->abandoned,
                             &job->issued,     &job->again,      &job->eval.again, &job->eval.done,
                             &job->ckpt.acked, &job->audit.acked};
    for (size_t i = 0; i < ARRAY_SIZE(sets); i++)
        ranges_done(sets[i]);
    core_suspect_done(&job->suspicion);
    core_suspect_done(&job->eval.suspicion);
    for (size_t i = 0; i < job->ckpt_count; i++)
        free(job->ckpts[i].path);
    for (size_t i = 0; i < job->notice_count; i++)
        free(job->notices[i]);
    free(job->ckpts);
    free(job->evals);
    free(job->abandoned_list);
    free(job->shards);
    free(job->leases);
    free(job->ckpt.requests);
    free(job->restore_directory);
    free(job->reason);
    free(job->name);
    free(job->spec_json);
    job_spec_free(job->spec);
    free(job);
}

void core_job_add_eval(struct job *job, const struct core_eval *eval)
{
    job->evals = base_realloc(job->evals, (job->eval_count + 1) * sizeof(*job->evals));
    job->evals[job->eval_count++] = *eval;
    job->evaluated_epochs = MAX(job->evaluated_epochs, (uint64_t)eval->epoch);
}

void core_job_add_ckpt(struct job *job, uint64_t number, uint64_t step, const char *path)
{
    job->ckpts = base_realloc(job->ckpts, (job->ckpt_count + 1) * sizeof(*job->ckpts));
    job->ckpts[job->ckpt_count++] = (struct core_ckpt){number, step, base_strdup(path)};
    uint32_t keep = job->spec->checkpoint.max_to_keep;
    while (keep && job->ckpt_count > keep) { /* the sweep in the directory keeps as many */
        free(job->ckpts[0].path);
        memmove(job->ckpts, job->ckpts + 1, --job->ckpt_count * sizeof(*job->ckpts));
    }
    job->ckpt.last_number = MAX(job->ckpt.last_number, number);
}

void core_job_add_abandoned(struct job *job, uint64_t step, uint32_t attempts, enum err_code code,
                            const char *text)
{
    job->abandoned_list = base_realloc(job->abandoned_list,
                                       (job->abandoned_count + 1) * sizeof(*job->abandoned_list));
    job->abandoned_list[job->abandoned_count++] =
        (struct core_abandoned){step, attempts, code, base_strdup(text ? text : "")};
    ranges_add(&job->abandoned, step);
    ranges_add(&job->finished, step);
    ranges_add(&job->settled, step);
}

/* ---- state and phase ------------------------------------------------------------------------- */

void core_job_set_state(struct core *core, struct job *job, enum core_job_state state,
                        const char *reason)
{
    bool is_change = job->state != state;
    if (!is_change && strcmp(job->reason, reason) == 0)
        return;
    char *copy = base_strdup(reason);
    free(job->reason);
    job->reason = copy;
    job->state = state;
    if (is_change) {
        struct core_record record = {
            .kind = CORE_REC_STATE, .job = job->number, .number = (uint64_t)state, .text = reason};
        core_record(core, &record);
    }
    core_act_add(core, CORE_ACT_CHANGED)->job = job->number;
}

void core_job_set_phase(struct core *core, struct job *job, enum phase phase)
{
    job->phase = phase;
    job->phase_ns = core->now_ns;
    job->progress_ns = core->now_ns;
    job->stall_ns = core->now_ns + CORE_STALL_NS;
    core_arm(core, job->stall_ns);
    core_act_add(core, CORE_ACT_CHANGED)->job = job->number;
}

static void close_on_workers(struct core *core, const struct job *job)
{
    for (size_t i = 0; i < core->member_count; i++) {
        struct member *worker = core->members[i];
        for (size_t o = 0; o < worker->opened_count; o++) {
            if (worker->opened[o].job != job->number)
                continue;
            worker->opened[o] = worker->opened[--worker->opened_count];
            if (worker->conn != CORE_NO_CONN) {
                struct core_act *act = core_act_add(core, CORE_ACT_CLOSE);
                act->conn = worker->conn;
                act->job = job->number;
            }
            break;
        }
    }
}

static void record_accounting(struct core *core, struct job *job)
{
    uint64_t duplicates = job->final_duplicates;
    for (size_t i = 0; i < job->shard_count; i++) {
        const struct shard_view *shard = &job->shards[i];
        struct core_record record = {.kind = CORE_REC_FINAL,
                                     .job = job->number,
                                     .text = job->servers[shard->server_index].name,
                                     .first = shard->shard,
                                     .number = shard->applied,
                                     .number2 = shard->bytes};
        core_record(core, &record);
        duplicates += shard->duplicates;
    }
    struct core_record record = {.kind = CORE_REC_COUNTS,
                                 .job = job->number,
                                 .number = duplicates,
                                 .number2 = job->reissued,
                                 .first = job->lost,
                                 .last = job->repeated};
    core_record(core, &record);
}

void core_job_end(struct core *core, struct job *job, enum core_job_state state, enum err_code code,
                  const char *reason)
{
    ASSERT(core_job_is_active(job));
    core_sched_revoke_job(core, job);
    core_ckpt_stop(core, job, code == ERR_OK ? ERR_CANCELLED : code, reason, true);
    core_eval_stop(core, job);
    core_order_fail_job(core, job);
    close_on_workers(core, job);
    record_accounting(core, job);
    job->end_ns = core->now_ns;
    core_job_set_state(core, job, state, reason);
    core_job_set_phase(core, job, PHASE_ENDED);
    job->end_seq = core->next_seq;
    core->drops_due++;
    size_t at = 0;
    while (core->live[at] != job)
        at++;
    memmove(core->live + at, core->live + at + 1, (--core->live_count - at) * sizeof(struct job *));
    ranges_clear(&job->again);
    job->lease_count = 0;
    core->is_fill_due = true;
}

/* Variables are let go only when the ledger knows of the end: a coordinator that dies before that
 * goes on with the job where it was. */
void core_job_drop_ended(struct core *core)
{
    for (size_t i = 0; i < core->job_count && core->drops_due; i++) {
        struct job *job = core->jobs[i];
        if (job->end_seq == 0 || job->end_seq > core->written_seq)
            continue;
        job->end_seq = 0;
        core->drops_due--;
        for (size_t s = 0; s < job->server_count; s++) {
            struct member *server = core_member_named(core, CORE_SERVER, job->servers[s].name);
            if (server && core_member_is_here(server))
                core_order_drop(core, server, job->number);
        }
    }
}

/* ---- servers --------------------------------------------------------------------------------- */

/* "ps:2" before "ps:10". */
static int compare_servers(const void *a, const void *b)
{
    const struct member *x = *(struct member *const *)a;
    const struct member *y = *(struct member *const *)b;
    size_t xn = strlen(x->name);
    size_t yn = strlen(y->name);
    return xn != yn ? (xn < yn ? -1 : 1) : strcmp(x->name, y->name);
}

static size_t servers_here(const struct core *core, struct member **ret_servers)
{
    size_t count = 0;
    for (size_t i = 0; i < core->member_count && count < LIMIT_SERVERS; i++)
        if (core->members[i]->role == CORE_SERVER && core->members[i]->state == MEMBER_ATTACHED &&
            !core->members[i]->is_leaving)
            ret_servers[count++] = core->members[i];
    qsort(ret_servers, count, sizeof(struct member *), compare_servers);
    return count;
}

bool core_job_has_enough_servers(const struct core *core, const struct job *job)
{
    struct member *servers[LIMIT_SERVERS];
    if (!job->wants_servers)
        return true;
    return servers_here(core, servers) >= MAX(core->config.servers_wanted, 1u);
}

static void ask_for_plan(struct core *core, struct job *job)
{
    struct core_server_ref *refs = core_arena(core, (job->server_count + 1) * sizeof(*refs));
    for (size_t i = 0; i < job->server_count; i++) {
        const struct member *server = core_member_named(core, CORE_SERVER, job->servers[i].name);
        refs[i] = (struct core_server_ref){
            .conn = server ? server->conn : CORE_NO_CONN,
            .name = job->servers[i].name,
            .address = job->servers[i].address,
            .shard_count = job->servers[i].shard_count,
            .memory_bytes = server ? server->memory_bytes : 0,
        };
    }
    struct core_act *act = core_act_add(core, CORE_ACT_PLAN);
    act->job = job->number;
    act->generation = job->generation;
    act->servers = refs;
    act->count = job->server_count;
}

void core_job_begin_plan(struct core *core, struct job *job)
{
    struct member *servers[LIMIT_SERVERS];
    size_t count = job->wants_servers ? servers_here(core, servers) : 0;
    forget_servers(job);
    job->servers = base_alloc((count + 1) * sizeof(*job->servers));
    job->server_count = count;
    for (size_t i = 0; i < count; i++)
        job->servers[i] = (struct job_server){.name = base_strdup(servers[i]->name),
                                              .address = base_strdup(servers[i]->address),
                                              .shard_count = servers[i]->shard_count,
                                              .has_slices = true,
                                              .incarnation = servers[i]->incarnation};
    job->generation++;
    job->is_replayed_placement = false;
    core_job_set_phase(core, job, PHASE_PLANNING);
    ask_for_plan(core, job);
}

/* The checkpoints that are this job's past: with resume whatever the directory holds, else what it
 * wrote itself. UINT64_MAX: none. */
uint64_t core_job_first_ckpt(const struct job *job)
{
    return job->is_resume ? 0 : job->ckpt_count ? job->ckpts[0].number : UINT64_MAX;
}

void core_job_begin_looking(struct core *core, struct job *job)
{
    core_job_set_phase(core, job, PHASE_LOOKING);
    if (!job->spec->checkpoint.directory)
        return;
    struct core_act *act = core_act_add(core, CORE_ACT_FIND_CKPT);
    act->job = job->number;
    act->number = core_job_first_ckpt(job);
}

size_t core_job_holders(const struct job *job)
{
    size_t count = 0;
    for (size_t i = 0; i < job->server_count; i++)
        count += job->servers[i].has_slices;
    return count;
}

static bool is_server_intact(struct core *core, const struct job_server *server)
{
    if (!server->has_slices)
        return true;
    const struct member *member = core_member_named(core, CORE_SERVER, server->name);
    return member && core_member_is_here(member) && server->is_created &&
           member->incarnation == server->incarnation;
}

static bool all_servers_intact(struct core *core, const struct job *job)
{
    if (job->wants_servers && !job->server_count)
        return false; /* never placed */
    for (size_t i = 0; i < job->server_count; i++)
        if (!is_server_intact(core, &job->servers[i]))
            return false;
    return true;
}

static const char *missing_servers(struct core *core, const struct job *job)
{
    const char *text = "";
    for (size_t i = 0; i < job->server_count; i++)
        if (!is_server_intact(core, &job->servers[i]))
            text = core_arena_text(core, "%s %s at %s", text, job->servers[i].name,
                                   job->servers[i].address);
    return text;
}

void core_job_server_lost(struct core *core, struct member *server)
{
    for (size_t j = 0; j < core->live_count; j++) {
        struct job *job = core->live[j];
        bool is_used = false;
        for (size_t i = 0; i < job->server_count; i++)
            is_used = is_used || (job->servers[i].has_slices &&
                                  strcmp(job->servers[i].name, server->name) == 0);
        if (!is_used || job->phase == PHASE_QUEUED || job->phase == PHASE_LOOKING ||
            job->phase == PHASE_WAITING || job->phase == PHASE_RECOVERING)
            continue;
        core_ckpt_stop(core, job, ERR_UNAVAILABLE, "a server was lost", false);
        if (job->eval.phase == EVAL_PINNING) /* asked for again when training goes on */
            core_eval_stop(core, job);
        core_sched_revoke_job(core, job);
        job->audit.phase = AUDIT_NONE;
        core_notice(core, job, "%s at %s was lost; the job is paused", server->name,
                    server->address);
        core_job_set_state(
            core, job, CORE_JOB_PAUSED,
            core_arena_text(core, "waiting for %s at %s", server->name, server->address));
        bool is_placed = job->phase == PHASE_TRAINING || job->phase == PHASE_FINISHING;
        if (!is_placed) /* nothing was trained in this generation yet: place it again */
            for (size_t i = 0; i < job->server_count; i++)
                job->servers[i].is_created = false;
        core_job_set_phase(core, job, PHASE_WAITING);
    }
}

/* A server that was away when a job ended, or was never answered, still holds it. */
static void drop_leftovers(struct core *core, struct member *server, const struct core_hello *hello)
{
    for (size_t s = 0; s < hello->shard_state_count; s++) {
        uint64_t number = hello->shards[s].job;
        const struct job *job = core_job_of(core, number);
        bool is_told = false;
        for (size_t before = 0; before < s; before++)
            is_told = is_told || hello->shards[before].job == number;
        if (!is_told && (!job || (!core_job_is_active(job) && job->end_seq == 0)))
            core_order_drop(core, server, number);
    }
}

void core_job_server_here(struct core *core, struct member *server, const struct core_hello *hello)
{
    drop_leftovers(core, server, hello);
    for (size_t j = 0; j < core->live_count; j++) {
        struct job *job = core->live[j];
        for (size_t i = 0; i < job->server_count; i++) {
            struct job_server *slot = &job->servers[i];
            if (strcmp(slot->name, server->name) != 0)
                continue;
            bool has_it = false;
            for (size_t s = 0; s < hello->shard_state_count; s++)
                has_it = has_it || (hello->shards[s].job == job->number &&
                                    hello->shards[s].generation == job->generation);
            if (job->is_replayed_placement) { /* which process made them is not known */
                slot->is_created = has_it;
                slot->incarnation = server->incarnation;
            } else if (slot->incarnation != server->incarnation || (slot->is_created && !has_it)) {
                slot->is_created = false; /* a new process, or one that forgot */
            }
            free(slot->address);
            slot->address = base_strdup(server->address);
        }
    }
}

/* ---- moves ----------------------------------------------------------------------------------- */

void core_job_begin_training(struct core *core, struct job *job)
{
    core_sched_begin_epochs(job);
    job->is_accounting_final = false;
    job->ckpt.final_tries = 0;
    job->ckpt.retry_ns = 0;
    core_job_set_state(core, job, CORE_JOB_RUNNING, "");
    core_job_set_phase(core, job, PHASE_TRAINING);
    job->slot_ns = core->now_ns;
    job->audit.next_ns = core->now_ns + core->config.audit_ms * NS_PER_MS;
    core->is_fill_due = true;
    /* An evaluation that a restart interrupted is made of the version of now. */
    bool is_missing = job->spec->has_eval && job->epoch > 0 &&
                      job->evaluated_epochs >= job->epoch &&
                      (job->eval_count == 0 || job->evals[job->eval_count - 1].epoch < job->epoch);
    if (is_missing && job->eval.phase == EVAL_NONE && job->generation == job->replayed_generation)
        core_eval_start(core, job, job->epoch);
}

/* Servers are there again. With all of them as they were, training goes on; else everything is
 * restored. */
static void leave_waiting(struct core *core, struct job *job)
{
    if (all_servers_intact(core, job)) {
        core_notice(core, job, "all servers are back with their variables; training goes on");
        if (job->is_replayed_placement) {
            job->recovery = RECOVER_SERVERS;
            core_job_set_phase(core, job, PHASE_RECOVERING);
        } else {
            core_job_begin_training(core, job);
        }
        return;
    }
    if (!core_job_has_enough_servers(core, job)) {
        core_job_set_state(
            core, job, job->state,
            core_arena_text(core, "waiting for servers:%s", missing_servers(core, job)));
        return;
    }
    core_sched_revoke_job(core, job);
    core_eval_stop(core, job); /* what it pinned is gone */
    core_job_begin_looking(core, job);
}

/* A generation is used only after the ledger has it: a coordinator that dies before that would
 * count to the same number again, for another content. */
static void check_placed(struct core *core, struct job *job)
{
    if (core->written_seq < job->placed_seq)
        return;
    if (!job->is_ordered) {
        job->is_ordered = true;
        core_order_all(core, ORDER_CREATE, job, 0);
    }
    for (size_t i = 0; i < job->server_count; i++)
        if (job->servers[i].has_slices && !job->servers[i].is_created)
            return;
    core_job_begin_training(core, job);
}

static void check_recovered(struct core *core, struct job *job)
{
    if (job->recovery == RECOVER_NONE) {
        job->recovery = RECOVER_SLICES;
        ask_for_plan(core, job);
    }
    if (job->recovery == RECOVER_SLICES)
        return; /* the shell's answer is on its way */
    if (all_servers_intact(core, job)) {
        if (job->recovery == RECOVER_SERVERS) {
            job->recovery = RECOVER_ADDRESSES;
            ask_for_plan(core, job);
        } else if (job->recovery == RECOVER_DONE) {
            job->is_replayed_placement = false;
            core_job_begin_training(core, job);
        }
        return;
    }
    bool is_over = core->now_ns >= job->phase_ns + core->config.recover_ms * NS_PER_MS;
    bool is_emptied = false;
    for (size_t i = 0; i < job->server_count; i++) {
        const struct member *server = core_member_named(core, CORE_SERVER, job->servers[i].name);
        is_emptied = is_emptied || (server && core_member_is_here(server) &&
                                    job->servers[i].has_slices && !job->servers[i].is_created);
    }
    if (is_over || is_emptied) {
        core_job_set_state(
            core, job, CORE_JOB_PAUSED,
            core_arena_text(core, "waiting for servers:%s", missing_servers(core, job)));
        core_job_set_phase(core, job, PHASE_WAITING);
    } else {
        core_arm(core, job->phase_ns + core->config.recover_ms * NS_PER_MS);
    }
}

static void prune(struct core *core, struct job *job)
{
    uint64_t low = ranges_watermark(&job->settled);
    if (low >= job->pruned + PRUNE_STEPS) {
        job->pruned = low;
        core_order_all(core, ORDER_PRUNE, job, low);
    }
}

static void check_training(struct core *core, struct job *job)
{
    prune(core, job);
    core_ckpt_advance(core, job);
    if (!core_job_is_active(job) || job->phase != PHASE_TRAINING)
        return;
    uint64_t low = ranges_watermark(&job->settled);
    if (low >= job->steps_total) {
        core_job_set_phase(core, job, PHASE_FINISHING);
    } else if (job->spec->has_eval && job->eval.phase == EVAL_NONE &&
               low >= ((uint64_t)job->epoch + 1) * job->steps_per_epoch &&
               job->evaluated_epochs <= job->epoch) {
        core_eval_start(core, job, job->epoch + 1);
    }
}

static void check_finishing(struct core *core, struct job *job)
{
    uint32_t last_epoch =
        (uint32_t)((job->steps_total + job->steps_per_epoch - 1) / job->steps_per_epoch);
    bool has_last = job->eval_count && job->evals[job->eval_count - 1].epoch >= last_epoch;
    if (job->eval.phase != EVAL_NONE)
        return;
    if (job->spec->has_eval && !has_last && job->evaluated_epochs < last_epoch) {
        core_eval_start(core, job, last_epoch);
        return;
    }
    bool wants_ckpt =
        job->spec->checkpoint.directory && job->ckpt.published_step != job->acked_count;
    if (wants_ckpt && job->ckpt.phase == CKPT_NONE && !job->ckpt.is_wanted) {
        /* Without it the weights would be gone with the job, so it does not end well without it. */
        if (job->ckpt.final_tries >= CORE_FINAL_CKPT_TRIES) {
            core_job_end(core, job, CORE_JOB_FAILED, ERR_IO,
                         "all steps are done, but the last checkpoint could not be written (see "
                         "the notices)");
            return;
        }
        if (core->now_ns < job->ckpt.retry_ns) {
            core_arm(core, job->ckpt.retry_ns);
            return;
        }
        job->ckpt.final_tries++;
        job->ckpt.retry_ns = core->now_ns + NS_PER_S;
        job->ckpt.is_wanted = true;
    }
    core_ckpt_advance(core, job);
    if (!core_job_is_active(job) || job->phase != PHASE_FINISHING || job->ckpt.phase != CKPT_NONE ||
        job->ckpt.is_wanted)
        return;
    if (!job->is_accounting_final)
        core_audit_start(core, job, true); /* without servers it is done at once */
    if (!job->is_accounting_final)
        return;
    char reason[160] = "";
    if (job->abandoned_count)
        snprintf(reason, sizeof(reason), "%zu steps were abandoned, the first is %" PRIu64,
                 job->abandoned_count, job->abandoned_list[0].step);
    core_job_end(core, job, CORE_JOB_SUCCEEDED, ERR_OK, reason);
}

void core_job_advance(struct core *core, struct job *job)
{
    enum phase before;
    do {
        before = job->phase;
        switch (job->phase) {
        case PHASE_QUEUED: {
            size_t running = 0;
            for (size_t i = 0; i < core->live_count; i++)
                running += core->live[i]->phase != PHASE_QUEUED;
            if (running >= core->config.running_max)
                break;
            if (!core_job_has_enough_servers(core, job)) {
                core_job_set_state(core, job, CORE_JOB_QUEUED, "waiting for parameter servers");
                break;
            }
            core_job_set_state(core, job, CORE_JOB_RUNNING, "");
            core_job_begin_looking(core, job);
            break;
        }
        case PHASE_LOOKING: /* without a directory there is nothing to look for */
            if (job->spec->checkpoint.directory)
                break;
            if (!core_job_has_enough_servers(core, job)) {
                core_job_set_phase(core, job, PHASE_WAITING);
                break;
            }
            if (job->generation && job->acked_count)
                core_notice(core, job,
                            "there is no checkpoint: all %" PRIu64 " acknowledged steps are redone",
                            job->acked_count);
            core_job_forget_progress(job);
            if (job->generation) {
                struct core_record record = {.kind = CORE_REC_RESET, .job = job->number};
                core_record(core, &record);
            }
            core_job_begin_plan(core, job);
            break;
        case PHASE_PLANNING:
            break;
        case PHASE_PLACING:
            check_placed(core, job);
            break;
        case PHASE_TRAINING:
            check_training(core, job);
            break;
        case PHASE_FINISHING:
            check_finishing(core, job);
            break;
        case PHASE_RECOVERING:
            check_recovered(core, job);
            break;
        case PHASE_WAITING:
            leave_waiting(core, job);
            break;
        case PHASE_ENDED:
            break;
        }
    } while (job->phase != before);
}

void core_job_advance_all(struct core *core)
{
    for (size_t i = 0; i < core->live_count;) {
        struct job *job = core->live[i];
        core_job_advance(core, job);
        if (i < core->live_count && core->live[i] == job)
            i++; /* else it ended and left the list */
    }
}
