/* SPDX-License-Identifier: Apache-2.0 */
/* ledger_db_load: the tables, job by job, as the records that made them. */
#include <inttypes.h>

#include "coordinatord/ledger/ledger_db_int.h"

struct load {
    struct ledger_db *db;
    enum err_code (*on_record)(void *arg, const struct core_record *record, struct err *err);
    void *arg;
};

static uint64_t column_u64(sqlite3_stmt *stmt, int index)
{
    return (uint64_t)sqlite3_column_int64(stmt, index);
}

static const char *column_text(sqlite3_stmt *stmt, int index)
{
    return (const char *)sqlite3_column_text(stmt, index); /* NULL for NULL */
}

static bool column_is_null(sqlite3_stmt *stmt, int index)
{
    return sqlite3_column_type(stmt, index) == SQLITE_NULL;
}

static struct core_record range_of(sqlite3_stmt *stmt)
{
    return (struct core_record){.first = column_u64(stmt, 0), .last = column_u64(stmt, 1)};
}

static struct core_record abandoned_of(sqlite3_stmt *stmt)
{
    return (struct core_record){.first = column_u64(stmt, 0),
                                .number = column_u64(stmt, 1),
                                .text = column_text(stmt, 2),
                                .text2 = column_text(stmt, 3)};
}

static struct core_record eval_of(sqlite3_stmt *stmt)
{
    return (struct core_record){.first = column_u64(stmt, 0),
                                .number = column_u64(stmt, 1),
                                .x = sqlite3_column_double(stmt, 2),
                                .y = sqlite3_column_double(stmt, 3)};
}

static struct core_record ckpt_of(sqlite3_stmt *stmt)
{
    return (struct core_record){
        .number = column_u64(stmt, 0), .first = column_u64(stmt, 1), .text = column_text(stmt, 2)};
}

static struct core_record final_of(sqlite3_stmt *stmt)
{
    return (struct core_record){.text = column_text(stmt, 0),
                                .first = column_u64(stmt, 1),
                                .number = column_u64(stmt, 2),
                                .number2 = column_u64(stmt, 3)};
}

/* Hands out every row of one of a job's tables. */
static enum err_code load_rows(const struct load *load, enum ledger_statement which,
                               enum core_record_kind kind,
                               struct core_record (*read)(sqlite3_stmt *stmt),
                               const struct core_record *job, struct err *err)
{
    sqlite3_stmt *stmt = ledger_stmt_use(load->db, which);
    ledger_stmt_bind_u64(stmt, 1, job->job);
    for (;;) {
        bool has_row = false;
        enum err_code code = ledger_stmt_next_row(load->db, stmt, &has_row, err);
        if (code != ERR_OK || !has_row)
            return code;
        struct core_record record = read(stmt);
        record.kind = kind;
        record.job = job->job;
        if (kind == CORE_REC_ACKED || kind == CORE_REC_ISSUED) {
            if (record.first > record.last || record.last >= LIMIT_STEPS)
                return err_set(err, ERR_CORRUPT,
                               "ledger %s: job %" PRIu64 ": %s range %" PRIu64 "..%" PRIu64
                               ", want first <= last < 2^48",
                               load->db->path, job->job,
                               kind == CORE_REC_ACKED ? "acknowledged" : "issued", record.first,
                               record.last);
            record.number = job->number;
            record.number2 = job->number2;
        }
        code = load->on_record(load->arg, &record, err);
        if (code != ERR_OK)
            return code;
    }
}

static enum err_code load_job(const struct load *load, sqlite3_stmt *row, struct err *err)
{
    struct core_record record = {.kind = CORE_REC_JOB,
                                 .job = column_u64(row, 0),
                                 .text = column_text(row, 1),
                                 .text2 = column_text(row, 2),
                                 .number = column_u64(row, 3),
                                 .first = column_u64(row, 4),
                                 .last = column_u64(row, 5),
                                 .number2 = column_u64(row, 6),
                                 .wall_ms = column_u64(row, 7)};
    uint64_t job = record.job;
    enum err_code code = load->on_record(load->arg, &record, err);
    if (code == ERR_OK && !column_is_null(row, 8)) {
        record = (struct core_record){.kind = CORE_REC_STATE,
                                      .job = job,
                                      .number = column_u64(row, 8),
                                      .text = column_text(row, 9),
                                      .number2 = column_u64(row, 19),
                                      .wall_ms = column_u64(row, 10)};
        if (record.number > CORE_JOB_CANCELLED)
            return err_set(err, ERR_CORRUPT,
                           "ledger %s: job %" PRIu64 ": state %" PRIu64 ", want 0 to %d",
                           load->db->path, job, record.number, CORE_JOB_CANCELLED);
        code = load->on_record(load->arg, &record, err);
    }
    if (code == ERR_OK && !column_is_null(row, 11)) {
        record = (struct core_record){.kind = CORE_REC_PLACED,
                                      .job = job,
                                      .number = column_u64(row, 11),
                                      .text = column_text(row, 12)};
        code = load->on_record(load->arg, &record, err);
    }
    record = (struct core_record){
        .job = job, .number = column_u64(row, 13), .number2 = column_u64(row, 14)};
    static const struct {
        enum ledger_statement which;
        enum core_record_kind kind;
        struct core_record (*read)(sqlite3_stmt *stmt);
    } tables[] = {
        {SQL_LOAD_ISSUED, CORE_REC_ISSUED, range_of},
        {SQL_LOAD_ACKED, CORE_REC_ACKED, range_of},
        {SQL_LOAD_ABANDONED, CORE_REC_ABANDONED, abandoned_of},
        {SQL_LOAD_EVALS, CORE_REC_EVAL, eval_of},
        {SQL_LOAD_CKPTS, CORE_REC_CKPT, ckpt_of},
        {SQL_LOAD_FINALS, CORE_REC_FINAL, final_of},
    };
    for (size_t i = 0; i < ARRAY_SIZE(tables) && code == ERR_OK; i++)
        code = load_rows(load, tables[i].which, tables[i].kind, tables[i].read, &record, err);
    if (code == ERR_OK && !column_is_null(row, 15)) {
        record = (struct core_record){.kind = CORE_REC_COUNTS,
                                      .job = job,
                                      .number = column_u64(row, 15),
                                      .number2 = column_u64(row, 16),
                                      .first = column_u64(row, 17),
                                      .last = column_u64(row, 18)};
        code = load->on_record(load->arg, &record, err);
    }
    return code;
}

enum err_code ledger_db_load(struct ledger_db *db,
                             enum err_code (*on_record)(void *arg, const struct core_record *record,
                                                        struct err *err),
                             void *arg, struct err *err)
{
    struct load load = {db, on_record, arg};
    sqlite3_stmt *row = ledger_stmt_use(db, SQL_LOAD_JOBS);
    for (;;) {
        bool has_row = false;
        enum err_code code = ledger_stmt_next_row(db, row, &has_row, err);
        if (code == ERR_OK && has_row)
            code = load_job(&load, row, err);
        if (code != ERR_OK || !has_row) {
            ledger_stmt_rollback(db); /* ends the open reads */
            return code;
        }
    }
}

enum err_code ledger_db_range_count(struct ledger_db *db, uint64_t *ret_count, struct err *err)
{
    bool has_row = false;
    uint64_t count = 0;
    enum err_code code =
        ledger_stmt_query_u64(db, ledger_stmt_use(db, SQL_RANGE_COUNT), &has_row, &count, err);
    if (code == ERR_OK)
        *ret_count = count;
    return code;
}
