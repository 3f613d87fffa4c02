/* SPDX-License-Identifier: Apache-2.0 */
/* sim_ledger: what ledger.h promises, in memory. Records wait, one commit at a time takes all that
 * waited when it began, and a crash of the coordinator keeps what was committed: of a commit under
 * way either all or nothing. */
#include <string.h>

#include "common/spec/job_spec.h"
#include "tests/sim/sim_int.h"

struct sim_rows *sim_rows_of(struct sim_tables *tables, uint64_t job)
{
    for (size_t i = 0; i < tables->count; i++)
        if (tables->rows[i].number == job)
            return &tables->rows[i];
    return NULL;
}

size_t sim_ledger_backlog(const struct sim *sim)
{
    return sim->ledger.queue_count;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void add(struct core_record **list, size_t *count, const struct core_record *record)
{
    if ((*count & (*count - 1)) == 0) { /* grows at powers of two */
        struct core_record *more = sim_alloc(MAX(*count * 2, (size_t)2) * sizeof(*more));
        if (*count)
            memcpy(more, *list, *count * sizeof(*more));
        *list = more;
    }
    (*list)[(*count)++] = *record;
}

static struct sim_job *job_of_spec(struct sim *sim, const char *spec)
{
    for (uint32_t i = 0; i < sim->job_count; i++)
        if (strcmp(sim->jobs[i].spec_json, spec) == 0)
            return &sim->jobs[i];
    sim_fail(sim, "a job record holds a spec that nobody submitted: %s", spec);
}

static void add_job(struct sim *sim, struct sim_tables *tables, const struct core_record *r)
{
    if (sim_rows_of(tables, r->job))
        sim_fail(sim, "job %llu is recorded twice", (unsigned long long)r->job);
    if (tables->count == ARRAY_SIZE(tables->rows))
        sim_fail(sim, "%zu jobs are recorded and one more", tables->count);
    struct sim_job *job = job_of_spec(sim, r->text2);
    tables->rows[tables->count++] = (struct sim_rows){
        .number = r->job,
        .job = job,
        .name = r->text,
        .spec = r->text2,
        .first = r->first,
        .last = r->last,
        .resume = r->number,
        .wall_ms = r->wall_ms,
        .acked = sim_alloc(job->steps_total),
        .issued = sim_alloc(job->steps_total),
        .abandoned = sim_alloc(job->steps_total),
    };
}

static uint64_t count_acked(const struct sim_rows *rows)
{
    uint64_t count = 0;
    for (uint64_t step = 0; step < rows->job->steps_total; step++)
        count += rows->acked[step];
    return count;
}

/* The strings of the record live in the arena. */
static void apply(struct sim *sim, struct sim_tables *tables, const struct core_record *r)
{
    if (r->kind == CORE_REC_JOB) {
        add_job(sim, tables, r);
        return;
    }
    struct sim_rows *rows = sim_rows_of(tables, r->job);
    if (!rows)
        sim_fail(sim, "a record of kind %d names job %llu, which is not recorded", (int)r->kind,
                 (unsigned long long)r->job);
    uint64_t total = rows->job->steps_total;
    switch (r->kind) {
    case CORE_REC_STATE:
        rows->has_state = true;
        rows->state = r->number;
        rows->reason = r->text;
        rows->began_ms = r->number2;
        rows->state_ms = r->wall_ms;
        break;
    case CORE_REC_PLACED:
        rows->has_placement = true;
        rows->generation = r->number;
        rows->servers = r->text;
        break;
    case CORE_REC_RESET:
        rows->acked_before_reset = count_acked(rows);
        memset(rows->acked, 0, total);
        memset(rows->abandoned, 0, total);
        rows->eval_count = 0;
        rows->abandoned_count = 0;
        break;
    case CORE_REC_ACKED:
        if (r->first > r->last || r->last >= total)
            sim_fail(sim, "acknowledged %llu..%llu of %llu steps", (unsigned long long)r->first,
                     (unsigned long long)r->last, (unsigned long long)total);
        memset(rows->acked + r->first, 1, r->last - r->first + 1);
        rows->reissues = r->number;
        rows->images = r->number2;
        break;
    case CORE_REC_ISSUED:
        if (r->first > r->last || r->last >= total)
            sim_fail(sim, "issued %llu..%llu of %llu steps", (unsigned long long)r->first,
                     (unsigned long long)r->last, (unsigned long long)total);
        memset(rows->issued + r->first, 1, r->last - r->first + 1);
        rows->reissues = r->number;
        rows->images = r->number2;
        break;
    case CORE_REC_ABANDONED:
        if (r->first >= total)
            sim_fail(sim, "abandoned %llu of %llu steps", (unsigned long long)r->first,
                     (unsigned long long)total);
        if (!rows->abandoned[r->first])
            add(&rows->abandoned_records, &rows->abandoned_count, r);
        rows->abandoned[r->first] = 1;
        break;
    case CORE_REC_EVAL:
        for (size_t i = 0; i < rows->eval_count; i++)
            if (rows->evals[i].first == r->first)
                sim_fail(sim, "epoch %llu of job %llu is evaluated twice",
                         (unsigned long long)r->first, (unsigned long long)r->job);
        add(&rows->evals, &rows->eval_count, r);
        break;
    case CORE_REC_CKPT:
        for (size_t i = 0; i < rows->ckpt_count; i++)
            if (rows->ckpts[i].number == r->number)
                sim_fail(sim, "checkpoint %llu of job %llu is recorded twice",
                         (unsigned long long)r->number, (unsigned long long)r->job);
        add(&rows->ckpts, &rows->ckpt_count, r);
        break;
    case CORE_REC_FINAL:
        for (size_t i = 0; i < rows->final_count; i++) {
            if (rows->finals[i].first == r->first && strcmp(rows->finals[i].text, r->text) == 0) {
                rows->finals[i] = *r;
                return;
            }
        }
        if (rows->final_count == ARRAY_SIZE(rows->finals))
            sim_fail(sim, "job %llu ends with more than %zu shards", (unsigned long long)r->job,
                     rows->final_count);
        rows->finals[rows->final_count++] = *r;
        break;
    case CORE_REC_COUNTS:
        rows->has_counts = true;
        rows->counts = *r;
        break;
    case CORE_REC_JOB:
        break;
    }
}

static void copy_tables(struct sim_tables *to, const struct sim_tables *from)
{
    *to = *from;
    for (size_t i = 0; i < to->count; i++) {
        struct sim_rows *rows = &to->rows[i];
        rows->acked = sim_copy(rows->acked, rows->job->steps_total);
        rows->abandoned = sim_copy(rows->abandoned, rows->job->steps_total);
        rows->issued = sim_copy(rows->issued, rows->job->steps_total);
        /* add() grows at powers of two and may write into a shared tail: give this copy its own. */
        struct core_record **lists[] = {&rows->evals, &rows->ckpts, &rows->abandoned_records};
        const size_t counts[] = {rows->eval_count, rows->ckpt_count, rows->abandoned_count};
        for (size_t l = 0; l < ARRAY_SIZE(lists); l++) {
            size_t room = 2;
            while (room < counts[l])
                room *= 2;
            struct core_record *own = sim_alloc(room * sizeof(*own));
            if (counts[l])
                memcpy(own, *lists[l], counts[l] * sizeof(*own));
            *lists[l] = own;
        }
    }
}

/* ---- commits --------------------------------------------------------------------------------- */

static struct core_record *queued(struct sim *sim, size_t index)
{
    return &sim->ledger.queue[sim->ledger.queue_head + index];
}

static void make_durable(struct sim *sim, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct core_record *record = queued(sim, i);
        if (sim->options.bug == SIM_BUG_LEDGER_LOSES_RECORD && record->kind == CORE_REC_ACKED &&
            sim_chance(sim, 50))
            continue;
        apply(sim, &sim->ledger.durable, record);
        struct sim_rows *rows = sim_rows_of(&sim->ledger.durable, record->job);
        if (record->kind == CORE_REC_ACKED)
            for (uint64_t step = record->first; step <= record->last; step++)
                rows->job->durable_generation[step] = rows->has_placement ? rows->generation : 0;
    }
}

static void confirm(struct sim *sim, size_t count)
{
    struct sim_ledger *ledger = &sim->ledger;
    uint64_t seq = queued(sim, count - 1)->seq;
    for (size_t i = 0; i < count; i++) {
        const struct core_record *r = queued(sim, i);
        struct sim_rows *rows = sim_rows_of(&ledger->emitted, r->job);
        if (r->kind == CORE_REC_ACKED)
            for (uint64_t step = r->first; step <= r->last; step++)
                rows->job->told[step] = rows->acked[step]; /* unless a RESET follows already */
    }
    ledger->queue_head += count;
    ledger->queue_count -= count;
    ledger->batch_count = 0;
    sim_trace(sim, "ledger: written up to %llu", (unsigned long long)seq);
    SIM_CORE(sim, core_on_journal_written(sim->core, sim->now_ns, seq));
    sim_coord_written(sim, seq);
    sim_check_written(sim);
}

static void begin_commit(struct sim *sim);

static void committed(struct sim *sim, const struct sim_event *event)
{
    struct sim_ledger *ledger = &sim->ledger;
    if (!sim->core || event->a != sim->core_life)
        return;
    if (sim->now_ns < ledger->stuck_until_ns) {
        if (!ledger->is_stuck_told) {
            ledger->is_stuck_told = true;
            sim_trace(sim, "ledger: stuck");
            SIM_CORE(sim, core_on_journal_stuck(sim->core, sim->now_ns, true, "disk full"));
        }
        sim_again(sim, event, sim->now_ns + 100 * NS_PER_MS);
        return;
    }
    size_t count = ledger->batch_count;
    bool was_early = sim->options.bug == SIM_BUG_LEDGER_CONFIRMS_EARLY;
    if (!was_early)
        make_durable(sim, count);
    if (ledger->is_stuck_told) {
        ledger->is_stuck_told = false;
        SIM_CORE(sim, core_on_journal_stuck(sim->core, sim->now_ns, false, "written again"));
    }
    if (was_early && sim_chance(sim, 900))
        make_durable(sim, count); /* and the rest in memory only */
    confirm(sim, count);
    if (ledger->queue_count && ledger->batch_count == 0)
        begin_commit(sim);
}

static void begin_commit(struct sim *sim)
{
    struct sim_ledger *ledger = &sim->ledger;
    ledger->batch_count = ledger->queue_count;
    uint64_t took_ns = ledger->commit_ns / 2 + sim_below(sim, ledger->commit_ns);
    if (sim_chance(sim, 20))
        took_ns *= 20;
    sim_at(sim, sim->now_ns + took_ns, committed, NULL, NULL, sim->core_life, 0);
}

void sim_ledger_post(struct sim *sim, const struct core_record *record)
{
    struct sim_ledger *ledger = &sim->ledger;
    if (record->seq != ++ledger->next_seq)
        sim_fail(sim, "record %llu comes after %llu", (unsigned long long)record->seq,
                 (unsigned long long)ledger->next_seq - 1);
    if (ledger->queue_head + ledger->queue_count == ledger->queue_capacity) {
        size_t capacity = MAX(ledger->queue_count * 2, (size_t)256);
        struct core_record *queue = sim_alloc(capacity * sizeof(*queue));
        if (ledger->queue_count)
            memcpy(queue, ledger->queue + ledger->queue_head, ledger->queue_count * sizeof(*queue));
        ledger->queue = queue;
        ledger->queue_head = 0;
        ledger->queue_capacity = capacity;
    }
    struct core_record copy = *record;
    copy.text = sim_copy_text(record->text);
    copy.text2 = sim_copy_text(record->text2);
    ledger->queue[ledger->queue_head + ledger->queue_count++] = copy;
    apply(sim, &ledger->emitted, &copy);
    if (record->kind == CORE_REC_RESET) {
        struct sim_rows *rows = sim_rows_of(&ledger->emitted, record->job);
        memset(rows->job->told, 0, rows->job->steps_total);
    }
    if (ledger->batch_count == 0)
        begin_commit(sim);
}

/* ---- crash and replay ------------------------------------------------------------------------ */

void sim_ledger_crash(struct sim *sim)
{
    struct sim_ledger *ledger = &sim->ledger;
    if (ledger->batch_count && sim->now_ns >= ledger->stuck_until_ns && sim_chance(sim, 500))
        make_durable(sim, ledger->batch_count); /* written, and nobody was told */
    ledger->queue_head = 0;
    ledger->queue_count = 0;
    ledger->queue_capacity = 0;
    ledger->batch_count = 0;
    ledger->next_seq = 0;
    ledger->is_stuck_told = false;
    copy_tables(&ledger->emitted, &ledger->durable);
    sim_check_written_ahead(sim);
}

static void replay(struct sim *sim, const struct core_record *record)
{
    struct err err = {0};
    if (core_replay(sim->core, record, &err) != ERR_OK)
        sim_fail(sim, "replay refuses a record of kind %d: %s: %s", (int)record->kind,
                 err_name(err.code), err.text);
}

static void replay_list(struct sim *sim, const struct core_record *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct core_record record = list[i];
        record.seq = 0;
        replay(sim, &record);
    }
}

static void replay_ranges(struct sim *sim, const struct sim_rows *rows, enum core_record_kind kind,
                          const uint8_t *set)
{
    for (uint64_t step = 0; step < rows->job->steps_total; step++) {
        if (!set[step])
            continue;
        struct core_record record = {.kind = kind,
                                     .job = rows->number,
                                     .first = step,
                                     .number = rows->reissues,
                                     .number2 = rows->images};
        while (step + 1 < rows->job->steps_total && set[step + 1])
            step++;
        record.last = step;
        replay(sim, &record);
    }
}

void sim_ledger_replay(struct sim *sim)
{
    for (size_t i = 0; i < sim->ledger.durable.count; i++) {
        struct sim_rows *rows = &sim->ledger.durable.rows[i];
        struct core_record record = {.kind = CORE_REC_JOB,
                                     .job = rows->number,
                                     .first = rows->first,
                                     .last = rows->last,
                                     .number = rows->resume,
                                     .wall_ms = rows->wall_ms,
                                     .text = rows->name,
                                     .text2 = rows->spec};
        replay(sim, &record);
        if (rows->has_state) {
            record = (struct core_record){.kind = CORE_REC_STATE,
                                          .job = rows->number,
                                          .number = rows->state,
                                          .number2 = rows->began_ms,
                                          .wall_ms = rows->state_ms,
                                          .text = rows->reason};
            replay(sim, &record);
        }
        if (rows->has_placement) {
            record = (struct core_record){.kind = CORE_REC_PLACED,
                                          .job = rows->number,
                                          .number = rows->generation,
                                          .text = rows->servers};
            replay(sim, &record);
        }
        replay_ranges(sim, rows, CORE_REC_ISSUED, rows->issued);
        replay_ranges(sim, rows, CORE_REC_ACKED, rows->acked);
        replay_list(sim, rows->abandoned_records, rows->abandoned_count);
        replay_list(sim, rows->evals, rows->eval_count);
        replay_list(sim, rows->ckpts, rows->ckpt_count);
        replay_list(sim, rows->finals, rows->final_count);
        if (rows->has_counts)
            replay_list(sim, &rows->counts, 1);
    }
}
