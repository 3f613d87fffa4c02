/* SPDX-License-Identifier: Apache-2.0 */
/* ledger_db_write: one transaction a call. Acknowledged and issued steps of a transaction are gathered
 * in two sets a job first; they are written out before any other record of its job, so that the order of a
 * RESET and what surrounds it holds.
 */
#include <stdlib.h>
#include <string.h>

#include "coordinatord/ledger/ledger_db_int.h"

/* Steps of one job acknowledged or issued in the transaction at hand and not written yet. */
struct ledger_pending {
    uint64_t job;
    bool is_any;
    struct ranges acked;
    struct ranges issued;
    uint64_t reissues;
    uint64_t images;
};

void ledger_write_done(struct ledger_write *write)
{
    for (size_t i = 0; i < write->capacity; i++) {
        ranges_done(&write->items[i].acked);
        ranges_done(&write->items[i].issued);
    }
    free(write->items);
}

static void bind_double(sqlite3_stmt *stmt, int index, double value)
{
    int rc = sqlite3_bind_double(stmt, index, value);
    ASSERT(rc == SQLITE_OK);
}

static void bind_text(sqlite3_stmt *stmt, int index, const char *text)
{
    int rc = text ? sqlite3_bind_text(stmt, index, text, -1, SQLITE_STATIC)
                  : sqlite3_bind_null(stmt, index);
    ASSERT(rc == SQLITE_OK);
}

struct range_table { /* the statements of a table of ranges */
    enum ledger_statement left;
    enum ledger_statement last;
    enum ledger_statement drop;
    enum ledger_statement add;
};

static const struct range_table acked_table = {SQL_RANGE_LEFT, SQL_RANGE_LAST, SQL_RANGE_DROP,
                                               SQL_RANGE_ADD};
static const struct range_table issued_table = {SQL_ISSUED_LEFT, SQL_ISSUED_LAST, SQL_ISSUED_DROP,
                                                SQL_ISSUED_ADD};

/* Writes one range, taking in the rows that it overlaps or touches. */
static enum err_code write_range(struct ledger_db *db, const struct range_table *table,
                                 uint64_t job, struct range range, struct err *err)
{
    sqlite3_stmt *stmt = ledger_stmt_use(db, table->left);
    ledger_stmt_bind_u64(stmt, 1, job);
    ledger_stmt_bind_u64(stmt, 2, range.first);
    bool has_row = false;
    enum err_code code = ledger_stmt_next_row(db, stmt, &has_row, err);
    if (code != ERR_OK)
        return code;
    if (has_row) {
        uint64_t first = (uint64_t)sqlite3_column_int64(stmt, 0);
        uint64_t last = (uint64_t)sqlite3_column_int64(stmt, 1);
        sqlite3_reset(stmt);
        if (last >= range.last)
            return ERR_OK; /* all of it is there */
        if (last + 1 >= range.first)
            range.first = first;
    }
    stmt = ledger_stmt_use(db, table->last);
    ledger_stmt_bind_u64(stmt, 1, job);
    ledger_stmt_bind_u64(stmt, 2, range.last + 1);
    uint64_t last = 0;
    code = ledger_stmt_query_u64(db, stmt, &has_row, &last, err);
    if (code != ERR_OK)
        return code;
    if (has_row)
        range.last = MAX(range.last, last);

    stmt = ledger_stmt_use(db, table->drop);
    ledger_stmt_bind_u64(stmt, 1, job);
    ledger_stmt_bind_u64(stmt, 2, range.first);
    ledger_stmt_bind_u64(stmt, 3, range.last);
    code = ledger_stmt_run(db, stmt, err);
    if (code != ERR_OK)
        return code;
    stmt = ledger_stmt_use(db, table->add);
    ledger_stmt_bind_u64(stmt, 1, job);
    ledger_stmt_bind_u64(stmt, 2, range.first);
    ledger_stmt_bind_u64(stmt, 3, range.last);
    return ledger_stmt_run(db, stmt, err);
}

static enum err_code flush_pending(struct ledger_db *db, struct ledger_pending *pending,
                                   struct err *err)
{
    enum err_code code = ERR_OK;
    for (size_t i = 0; i < pending->issued.count && code == ERR_OK; i++)
        code = write_range(db, &issued_table, pending->job, pending->issued.items[i], err);
    for (size_t i = 0; i < pending->acked.count && code == ERR_OK; i++)
        code = write_range(db, &acked_table, pending->job, pending->acked.items[i], err);
    if (code == ERR_OK && pending->is_any) {
        sqlite3_stmt *stmt = ledger_stmt_use(db, SQL_PROGRESS);
        ledger_stmt_bind_u64(stmt, 1, pending->job);
        ledger_stmt_bind_u64(stmt, 2, pending->reissues);
        ledger_stmt_bind_u64(stmt, 3, pending->images);
        code = ledger_stmt_run(db, stmt, err);
    }
    ranges_clear(&pending->acked);
    ranges_clear(&pending->issued);
    pending->is_any = false;
    return code;
}

static struct ledger_pending *find_pending(struct ledger_db *db, uint64_t job)
{
    for (size_t i = 0; i < db->write.count; i++)
        if (db->write.items[i].job == job)
            return &db->write.items[i];
    return NULL;
}

static void gather(struct ledger_db *db, const struct core_record *record)
{
    ASSERT(record->first <= record->last);
    struct ledger_pending *pending = find_pending(db, record->job);
    if (!pending) {
        if (db->write.count == db->write.capacity) {
            size_t capacity = MAX(db->write.capacity * 2, (size_t)8);
            db->write.items = base_realloc(db->write.items, capacity * sizeof(*db->write.items));
            memset(db->write.items + db->write.capacity, 0,
                   (capacity - db->write.capacity) * sizeof(*db->write.items));
            db->write.capacity = capacity;
        }
        pending = &db->write.items[db->write.count++];
        pending->job = record->job;
        ranges_clear(&pending->acked);
        ranges_clear(&pending->issued);
    }
    ranges_add_range(record->kind == CORE_REC_ACKED ? &pending->acked : &pending->issued,
                     record->first, record->last);
    pending->is_any = true;
    pending->reissues = record->number;
    pending->images = record->number2;
}

static enum err_code reset_job(struct ledger_db *db, uint64_t job, struct err *err)
{
    static const enum ledger_statement deletes[] = {SQL_RESET_ACKED, SQL_RESET_ABANDONED,
                                                    SQL_RESET_EVALS};
    enum err_code code = ERR_OK;
    for (size_t i = 0; i < ARRAY_SIZE(deletes) && code == ERR_OK; i++) {
        sqlite3_stmt *stmt = ledger_stmt_use(db, deletes[i]);
        ledger_stmt_bind_u64(stmt, 1, job);
        code = ledger_stmt_run(db, stmt, err);
    }
    return code;
}

/* Binds the record of a kind that is one statement; columns in the order of ledger_sql.h. */
static sqlite3_stmt *bind_record(struct ledger_db *db, const struct core_record *r)
{
    sqlite3_stmt *stmt = NULL;
    switch (r->kind) {
    case CORE_REC_JOB:
        stmt = ledger_stmt_use(db, SQL_JOB_ADD);
        bind_text(stmt, 2, r->text);
        bind_text(stmt, 3, r->text2);
        ledger_stmt_bind_u64(stmt, 4, r->number);
        ledger_stmt_bind_u64(stmt, 5, r->first);
        ledger_stmt_bind_u64(stmt, 6, r->last);
        ledger_stmt_bind_u64(stmt, 7, r->number2);
        ledger_stmt_bind_u64(stmt, 8, r->wall_ms);
        break;
    case CORE_REC_STATE:
        stmt = ledger_stmt_use(db, SQL_STATE);
        ledger_stmt_bind_u64(stmt, 2, r->number);
        bind_text(stmt, 3, r->text);
        ledger_stmt_bind_u64(stmt, 4, r->wall_ms);
        ledger_stmt_bind_u64(stmt, 5, r->number2);
        break;
    case CORE_REC_PLACED:
        stmt = ledger_stmt_use(db, SQL_PLACED);
        ledger_stmt_bind_u64(stmt, 2, r->number);
        bind_text(stmt, 3, r->text);
        break;
    case CORE_REC_ABANDONED:
        stmt = ledger_stmt_use(db, SQL_ABANDONED);
        ledger_stmt_bind_u64(stmt, 2, r->first);
        ledger_stmt_bind_u64(stmt, 3, r->number);
        bind_text(stmt, 4, r->text);
        bind_text(stmt, 5, r->text2);
        break;
    case CORE_REC_EVAL:
        stmt = ledger_stmt_use(db, SQL_EVAL);
        ledger_stmt_bind_u64(stmt, 2, r->first);
        ledger_stmt_bind_u64(stmt, 3, r->number);
        bind_double(stmt, 4, r->x);
        bind_double(stmt, 5, r->y);
        break;
    case CORE_REC_CKPT:
        stmt = ledger_stmt_use(db, SQL_CKPT);
        ledger_stmt_bind_u64(stmt, 2, r->number);
        ledger_stmt_bind_u64(stmt, 3, r->first);
        bind_text(stmt, 4, r->text);
        break;
    case CORE_REC_FINAL:
        stmt = ledger_stmt_use(db, SQL_FINAL);
        bind_text(stmt, 2, r->text ? r->text : "");
        ledger_stmt_bind_u64(stmt, 3, r->first);
        ledger_stmt_bind_u64(stmt, 4, r->number);
        ledger_stmt_bind_u64(stmt, 5, r->number2);
        break;
    case CORE_REC_COUNTS:
        stmt = ledger_stmt_use(db, SQL_COUNTS);
        ledger_stmt_bind_u64(stmt, 2, r->number);
        ledger_stmt_bind_u64(stmt, 3, r->number2);
        ledger_stmt_bind_u64(stmt, 4, r->first);
        ledger_stmt_bind_u64(stmt, 5, r->last);
        break;
    case CORE_REC_RESET:
    case CORE_REC_ACKED:
    case CORE_REC_ISSUED:
        break;
    }
    ASSERT(stmt);
    ledger_stmt_bind_u64(stmt, 1, r->job);
    return stmt;
}

static enum err_code apply_one(struct ledger_db *db, const struct core_record *record,
                               struct err *err)
{
    if (record->kind == CORE_REC_ACKED || record->kind == CORE_REC_ISSUED) {
        gather(db, record);
        return ERR_OK;
    }
    struct ledger_pending *pending = find_pending(db, record->job);
    if (pending) {
        enum err_code code = flush_pending(db, pending, err);
        if (code != ERR_OK)
            return code;
    }
    if (record->kind == CORE_REC_RESET)
        return reset_job(db, record->job, err);
    return ledger_stmt_run(db, bind_record(db, record), err);
}

enum err_code ledger_db_apply(struct ledger_db *db, const struct core_record *records, size_t count,
                              struct err *err)
{
    db->write.count = 0;
    enum err_code code = ledger_stmt_begin(db, err);
    for (size_t i = 0; i < count && code == ERR_OK; i++)
        code = apply_one(db, &records[i], err);
    for (size_t i = 0; i < db->write.count && code == ERR_OK; i++)
        code = flush_pending(db, &db->write.items[i], err);
    if (code == ERR_OK)
        code = ledger_stmt_commit(db, err);
    if (code != ERR_OK)
        ledger_stmt_rollback(db);
    return code;
}
