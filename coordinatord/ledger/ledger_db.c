/* SPDX-License-Identifier: Apache-2.0 */
/* ledger_db: one transaction a call. Acknowledged steps of a transaction are gathered in one set a
 * job first; a set is written out before any other record of its job, so that the order of a RESET
 * and what surrounds it holds.
 */
#include "coordinatord/ledger/ledger_db.h"

#include <errno.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coordinatord/ledger/ledger_sql.h"

enum statement {
#define X(name, text) SQL_##name,
    LEDGER_SQL_STATEMENTS(X)
#undef X
        SQL_COUNT
};

static const char *const statement_text[SQL_COUNT] = {
#define X(name, text) [SQL_##name] = text,
    LEDGER_SQL_STATEMENTS(X)
#undef X
};

/* Steps of one job acknowledged in the transaction at hand and not written yet. */
struct pending {
    uint64_t job;
    struct ranges steps;
    uint64_t reissues;
    uint64_t images;
};

struct ledger_db {
    char *path;
    sqlite3 *sql;
    sqlite3_stmt *statements[SQL_COUNT];
    struct pending *pending; /* reused; those up to pending_count may hold steps */
    size_t pending_count;
    size_t pending_capacity;
};

/* The one place where SQLite's codes become ours. */
static enum err_code err_from_sqlite(struct err *err, const struct ledger_db *db, const char *what)
{
    int code = sqlite3_extended_errcode(db->sql);
    int primary = code & 0xff;
    const char *words = sqlite3_errmsg(db->sql);
    if (primary == SQLITE_NOTADB || primary == SQLITE_CORRUPT)
        return err_set(err, ERR_CORRUPT, "ledger %s: %s: %s", db->path, what, words);
    if (primary == SQLITE_FULL)
        return err_set(err, ERR_IO, "ledger %s: %s: %s (disk full, quota or file size limit)",
                       db->path, what, words);
    int errnum = sqlite3_system_errno(db->sql);
    if ((primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN) && errnum != 0)
        return err_set(err, ERR_IO, "ledger %s: %s: %s (%s)", db->path, what, words,
                       strerror(errnum));
    return err_set(err, ERR_IO, "ledger %s: %s: %s", db->path, what, words);
}

/* ---- statements ------------------------------------------------------------------------------ */

static sqlite3_stmt *use(struct ledger_db *db, enum statement which)
{
    sqlite3_stmt *stmt = db->statements[which];
    sqlite3_reset(stmt); /* its error was seen when it was stepped */
    return stmt;
}

/* Binding fails only on a wrong index or without memory; both are ours to die of. */
static void bind_u64(sqlite3_stmt *stmt, int index, uint64_t value)
{
    int rc = sqlite3_bind_int64(stmt, index, (sqlite3_int64)value);
    ASSERT(rc == SQLITE_OK);
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

/* Runs a statement that yields no row. */
static enum err_code run(struct ledger_db *db, sqlite3_stmt *stmt, struct err *err)
{
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_DONE)
        return ERR_OK;
    enum err_code code = err_from_sqlite(err, db, sqlite3_sql(stmt));
    sqlite3_reset(stmt);
    return code;
}

/* Runs a statement to its next row; *ret_row is false after the last. */
static enum err_code next_row(struct ledger_db *db, sqlite3_stmt *stmt, bool *ret_row,
                              struct err *err)
{
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW || rc == SQLITE_DONE) {
        *ret_row = rc == SQLITE_ROW;
        if (rc == SQLITE_DONE)
            sqlite3_reset(stmt);
        return ERR_OK;
    }
    enum err_code code = err_from_sqlite(err, db, sqlite3_sql(stmt));
    sqlite3_reset(stmt);
    return code;
}

/* The first column of a statement's only row; ret_found is false when there is none. */
static enum err_code query_u64(struct ledger_db *db, sqlite3_stmt *stmt, bool *ret_found,
                               uint64_t *ret_value, struct err *err)
{
    enum err_code code = next_row(db, stmt, ret_found, err);
    if (code != ERR_OK || !*ret_found)
        return code;
    *ret_value = (uint64_t)sqlite3_column_int64(stmt, 0);
    sqlite3_reset(stmt);
    return ERR_OK;
}

static enum err_code exec(struct ledger_db *db, const char *text, struct err *err)
{
    if (sqlite3_exec(db->sql, text, NULL, NULL, NULL) == SQLITE_OK)
        return ERR_OK;
    return err_from_sqlite(err, db, text);
}

/* ---- transactions ---------------------------------------------------------------------------- */

static enum err_code begin(struct ledger_db *db, struct err *err)
{
    return run(db, use(db, SQL_BEGIN), err);
}

/* After a failure SQLite may have rolled back by itself (disk full, I/O error, no memory). */
static void rollback(struct ledger_db *db)
{
    for (size_t i = 0; i < SQL_COUNT; i++)
        sqlite3_reset(db->statements[i]);
    if (!sqlite3_get_autocommit(db->sql)) {
        sqlite3_step(db->statements[SQL_ROLLBACK]);
        sqlite3_reset(db->statements[SQL_ROLLBACK]);
    }
}

static enum err_code commit(struct ledger_db *db, struct err *err)
{
    enum err_code code = run(db, use(db, SQL_COMMIT), err);
    sqlite3_reset(db->statements[SQL_COMMIT]);
    ASSERT(code != ERR_OK || sqlite3_get_autocommit(db->sql));
    return code;
}

/* ---- open ------------------------------------------------------------------------------------ */

static enum err_code pragma_number(struct ledger_db *db, const char *text, int64_t *ret_value,
                                   struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(db->sql, text, -1, &stmt, NULL) != SQLITE_OK)
        return err_from_sqlite(err, db, text);
    int rc = sqlite3_step(stmt);
    enum err_code code = ERR_OK;
    if (rc == SQLITE_ROW)
        *ret_value = sqlite3_column_int64(stmt, 0);
    else
        code = err_from_sqlite(err, db, text);
    sqlite3_finalize(stmt);
    return code;
}

/* Refuses what is not ours before anything is written to it; ret_is_new: an empty file. */
static enum err_code check_identity(struct ledger_db *db, bool *ret_is_new, struct err *err)
{
    int64_t application = 0;
    int64_t version = 0;
    int64_t tables = 0;
    enum err_code code = pragma_number(db, "PRAGMA application_id", &application, err);
    if (code == ERR_OK)
        code = pragma_number(db, "PRAGMA user_version", &version, err);
    if (code == ERR_OK)
        code = pragma_number(db, "SELECT count(*) FROM sqlite_master", &tables, err);
    if (code != ERR_OK)
        return code;
    if (application == 0 && version == 0 && tables == 0) {
        *ret_is_new = true;
        return ERR_OK;
    }
    if (application != LEDGER_DB_APPLICATION_ID)
        return err_set(err, ERR_CORRUPT,
                       "ledger %s: a database of another program (application id 0x%08" PRIx64
                       ", want 0x%08x); move it away or choose another state directory",
                       db->path, (uint64_t)application, LEDGER_DB_APPLICATION_ID);
    if (version < 1 || version > LEDGER_DB_VERSION)
        return err_set(err, ERR_CORRUPT,
                       "ledger %s: schema version %" PRId64
                       ", this program reads up to %d; use a newer one",
                       db->path, version, LEDGER_DB_VERSION);
    *ret_is_new = false;
    return ERR_OK;
}

/* Says what is damaged, if anything; a ledger is small (ranges), so this takes milliseconds. */
static enum err_code check_pages(struct ledger_db *db, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(db->sql, "PRAGMA quick_check(1)", -1, &stmt, NULL) != SQLITE_OK)
        return err_from_sqlite(err, db, "quick_check");
    enum err_code code = ERR_OK;
    if (sqlite3_step(stmt) != SQLITE_ROW)
        code = err_from_sqlite(err, db, "quick_check");
    else if (strcmp((const char *)sqlite3_column_text(stmt, 0), "ok") != 0)
        code = err_set(err, ERR_CORRUPT, "ledger %s: damaged: %s", db->path,
                       (const char *)sqlite3_column_text(stmt, 0));
    sqlite3_finalize(stmt);
    return code;
}

static enum err_code create_schema(struct ledger_db *db, struct err *err)
{
    char pragmas[128];
    sqlite3_snprintf(sizeof(pragmas), pragmas,
                     "PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT",
                     LEDGER_DB_APPLICATION_ID, LEDGER_DB_VERSION);
    enum err_code code = exec(db, "BEGIN IMMEDIATE", err);
    if (code == ERR_OK)
        code = exec(db, LEDGER_SQL_SCHEMA, err);
    if (code == ERR_OK)
        code = exec(db, pragmas,
                    err); /* the identity is part of the transaction: whole or not there */
    if (code != ERR_OK && !sqlite3_get_autocommit(db->sql))
        sqlite3_exec(db->sql, "ROLLBACK", NULL, NULL, NULL);
    return code;
}

static enum err_code prepare_all(struct ledger_db *db, struct err *err)
{
    for (size_t i = 0; i < SQL_COUNT; i++)
        if (sqlite3_prepare_v3(db->sql, statement_text[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &db->statements[i], NULL) != SQLITE_OK) {
            /* Our identity, but not our tables. */
            return err_set(err, ERR_CORRUPT, "ledger %s: %s", db->path, sqlite3_errmsg(db->sql));
        }
    return ERR_OK;
}

enum err_code ledger_db_open(const char *path, struct ledger_db **ret_db, struct err *err)
{
    AUTO(ledger_db) db = base_alloc(sizeof(*db));
    db->path = base_strdup(path);
    int flags =
        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    if (sqlite3_open_v2(path, &db->sql, flags, NULL) != SQLITE_OK)
        return err_from_sqlite(err, db, "open");
    sqlite3_busy_timeout(db->sql, 2000); /* somebody looks into it with sqlite3(1) */

    bool is_new = false;
    enum err_code code = check_identity(db, &is_new, err);
    if (code == ERR_OK)
        code = exec(
            db,
            "PRAGMA locking_mode = EXCLUSIVE;" /* no shared memory file, no lock calls per commit */
            "PRAGMA journal_mode = WAL;"
            "PRAGMA synchronous = FULL;"
            "PRAGMA foreign_keys = OFF;"
            "PRAGMA journal_size_limit = 16777216;", /* a burst leaves no large file behind */
            err);
    if (code == ERR_OK && is_new)
        code = create_schema(db, err);
    if (code == ERR_OK)
        code = check_pages(db, err);
    if (code == ERR_OK)
        code = prepare_all(db, err);
    if (code != ERR_OK)
        return code;
    *ret_db = TAKE(db);
    return ERR_OK;
}

void ledger_db_free(struct ledger_db *db)
{
    if (!db)
        return;
    for (size_t i = 0; i < SQL_COUNT; i++)
        sqlite3_finalize(db->statements[i]);
    sqlite3_close(db->sql);
    for (size_t i = 0; i < db->pending_capacity; i++)
        ranges_done(&db->pending[i].steps);
    free(db->pending);
    free(db->path);
    free(db);
}

static enum err_code prune_ended(struct ledger_db *db, uint32_t jobs_kept, struct err *err)
{
    static const char *const children[] = {"acked", "abandoned", "evals", "ckpts", "finals"};
    sqlite3_stmt *stmt = use(db, SQL_ENDED);
    bind_u64(stmt, 1, jobs_kept);
    bool has_any = false;
    uint64_t last = 0;
    enum err_code code = query_u64(db, stmt, &has_any, &last, err);
    if (code != ERR_OK || !has_any)
        return code;
    char text[160];
    for (size_t i = 0; i < ARRAY_SIZE(children) && code == ERR_OK; i++) {
        sqlite3_snprintf(sizeof(text), text, LEDGER_SQL_PRUNE_CHILD, children[i], (long long)last);
        code = exec(db, text, err);
    }
    sqlite3_snprintf(sizeof(text), text, LEDGER_SQL_PRUNE_JOBS, (long long)last);
    return code == ERR_OK ? exec(db, text, err) : code;
}

enum err_code ledger_db_count_start(struct ledger_db *db, uint32_t jobs_kept, uint64_t *ret_start,
                                    uint64_t *ret_id, struct err *err)
{
    uint64_t start = 0;
    uint64_t id = 0;
    bool has_start = false;
    bool has_id = false;
    enum err_code code = begin(db, err);
    if (code == ERR_OK)
        code = run(db, use(db, SQL_START_ADD), err);
    if (code == ERR_OK)
        code = query_u64(db, use(db, SQL_START_GET), &has_start, &start, err);
    if (code == ERR_OK)
        code = query_u64(db, use(db, SQL_LEDGER_GET), &has_id, &id, err);
    if (code == ERR_OK && (!has_start || !has_id))
        code = err_set(err, ERR_CORRUPT, "ledger %s: table meta has no row \"%s\"", db->path,
                       has_start ? "ledger" : "start");
    if (code == ERR_OK)
        code = prune_ended(db, jobs_kept, err);
    if (code == ERR_OK)
        code = commit(db, err);
    if (code != ERR_OK) {
        rollback(db);
        return code;
    }
    *ret_start = start;
    *ret_id = id;
    return ERR_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Writes one range, taking in the rows that it overlaps or touches. */
static enum err_code write_range(struct ledger_db *db, uint64_t job, struct range range,
                                 struct err *err)
{
    sqlite3_stmt *stmt = use(db, SQL_RANGE_LEFT);
    bind_u64(stmt, 1, job);
    bind_u64(stmt, 2, range.first);
    bool has_row = false;
    enum err_code code = next_row(db, stmt, &has_row, err);
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
    stmt = use(db, SQL_RANGE_LAST);
    bind_u64(stmt, 1, job);
    bind_u64(stmt, 2, range.last + 1);
    uint64_t last = 0;
    code = query_u64(db, stmt, &has_row, &last, err);
    if (code != ERR_OK)
        return code;
    if (has_row)
        range.last = MAX(range.last, last);

    stmt = use(db, SQL_RANGE_DROP);
    bind_u64(stmt, 1, job);
    bind_u64(stmt, 2, range.first);
    bind_u64(stmt, 3, range.last);
    code = run(db, stmt, err);
    if (code != ERR_OK)
        return code;
    stmt = use(db, SQL_RANGE_ADD);
    bind_u64(stmt, 1, job);
    bind_u64(stmt, 2, range.first);
    bind_u64(stmt, 3, range.last);
    return run(db, stmt, err);
}

static enum err_code flush_pending(struct ledger_db *db, struct pending *pending, struct err *err)
{
    enum err_code code = ERR_OK;
    for (size_t i = 0; i < pending->steps.count && code == ERR_OK; i++)
        code = write_range(db, pending->job, pending->steps.items[i], err);
    if (code == ERR_OK && pending->steps.count) {
        sqlite3_stmt *stmt = use(db, SQL_PROGRESS);
        bind_u64(stmt, 1, pending->job);
        bind_u64(stmt, 2, pending->reissues);
        bind_u64(stmt, 3, pending->images);
        code = run(db, stmt, err);
    }
    ranges_clear(&pending->steps);
    return code;
}

static struct pending *find_pending(struct ledger_db *db, uint64_t job)
{
    for (size_t i = 0; i < db->pending_count; i++)
        if (db->pending[i].job == job)
            return &db->pending[i];
    return NULL;
}

static void gather(struct ledger_db *db, const struct core_record *record)
{
    ASSERT(record->first <= record->last);
    struct pending *pending = find_pending(db, record->job);
    if (!pending) {
        if (db->pending_count == db->pending_capacity) {
            size_t capacity = MAX(db->pending_capacity * 2, (size_t)8);
            db->pending = base_realloc(db->pending, capacity * sizeof(*db->pending));
            memset(db->pending + db->pending_capacity, 0,
                   (capacity - db->pending_capacity) * sizeof(*db->pending));
            db->pending_capacity = capacity;
        }
        pending = &db->pending[db->pending_count++];
        pending->job = record->job;
        ranges_clear(&pending->steps);
    }
    ranges_add_range(&pending->steps, record->first, record->last);
    pending->reissues = record->number;
    pending->images = record->number2;
}

static enum err_code reset_job(struct ledger_db *db, uint64_t job, struct err *err)
{
    static const enum statement deletes[] = {SQL_RESET_ACKED, SQL_RESET_ABANDONED, SQL_RESET_EVALS};
    enum err_code code = ERR_OK;
    for (size_t i = 0; i < ARRAY_SIZE(deletes) && code == ERR_OK; i++) {
        sqlite3_stmt *stmt = use(db, deletes[i]);
        bind_u64(stmt, 1, job);
        code = run(db, stmt, err);
    }
    return code;
}

/* Binds the record of a kind that is one statement; columns in the order of ledger_sql.h. */
static sqlite3_stmt *bind_record(struct ledger_db *db, const struct core_record *r)
{
    sqlite3_stmt *stmt = NULL;
    switch (r->kind) {
    case CORE_REC_JOB:
        stmt = use(db, SQL_JOB_ADD);
        bind_text(stmt, 2, r->text);
        bind_text(stmt, 3, r->text2);
        bind_u64(stmt, 4, r->number);
        bind_u64(stmt, 5, r->first);
        bind_u64(stmt, 6, r->last);
        bind_u64(stmt, 7, r->number2);
        bind_u64(stmt, 8, r->wall_ms);
        break;
    case CORE_REC_STATE:
        stmt = use(db, SQL_STATE);
        bind_u64(stmt, 2, r->number);
        bind_text(stmt, 3, r->text);
        bind_u64(stmt, 4, r->wall_ms);
        break;
    case CORE_REC_PLACED:
        stmt = use(db, SQL_PLACED);
        bind_u64(stmt, 2, r->number);
        bind_text(stmt, 3, r->text);
        break;
    case CORE_REC_ABANDONED:
        stmt = use(db, SQL_ABANDONED);
        bind_u64(stmt, 2, r->first);
        bind_u64(stmt, 3, r->number);
        bind_text(stmt, 4, r->text);
        bind_text(stmt, 5, r->text2);
        break;
    case CORE_REC_EVAL:
        stmt = use(db, SQL_EVAL);
        bind_u64(stmt, 2, r->first);
        bind_u64(stmt, 3, r->number);
        bind_double(stmt, 4, r->x);
        bind_double(stmt, 5, r->y);
        break;
    case CORE_REC_CKPT:
        stmt = use(db, SQL_CKPT);
        bind_u64(stmt, 2, r->number);
        bind_u64(stmt, 3, r->first);
        bind_text(stmt, 4, r->text);
        break;
    case CORE_REC_FINAL:
        stmt = use(db, SQL_FINAL);
        bind_text(stmt, 2, r->text ? r->text : "");
        bind_u64(stmt, 3, r->first);
        bind_u64(stmt, 4, r->number);
        bind_u64(stmt, 5, r->number2);
        break;
    case CORE_REC_COUNTS:
        stmt = use(db, SQL_COUNTS);
        bind_u64(stmt, 2, r->number);
        bind_u64(stmt, 3, r->number2);
        bind_u64(stmt, 4, r->first);
        bind_u64(stmt, 5, r->last);
        break;
    case CORE_REC_RESET:
    case CORE_REC_ACKED:
        break;
    }
    ASSERT(stmt);
    bind_u64(stmt, 1, r->job);
    return stmt;
}

static enum err_code apply_one(struct ledger_db *db, const struct core_record *record,
                               struct err *err)
{
    if (record->kind == CORE_REC_ACKED) {
        gather(db, record);
        return ERR_OK;
    }
    struct pending *pending = find_pending(db, record->job);
    if (pending) {
        enum err_code code = flush_pending(db, pending, err);
        if (code != ERR_OK)
            return code;
    }
    if (record->kind == CORE_REC_RESET)
        return reset_job(db, record->job, err);
    return run(db, bind_record(db, record), err);
}

enum err_code ledger_db_apply(struct ledger_db *db, const struct core_record *records, size_t count,
                              struct err *err)
{
    db->pending_count = 0;
    enum err_code code = begin(db, err);
    for (size_t i = 0; i < count && code == ERR_OK; i++)
        code = apply_one(db, &records[i], err);
    for (size_t i = 0; i < db->pending_count && code == ERR_OK; i++)
        code = flush_pending(db, &db->pending[i], err);
    if (code == ERR_OK)
        code = commit(db, err);
    if (code != ERR_OK)
        rollback(db);
    return code;
}

/* ---- reading --------------------------------------------------------------------------------- */

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

static struct core_record acked_of(sqlite3_stmt *stmt)
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
static enum err_code load_rows(const struct load *load, enum statement which,
                               enum core_record_kind kind,
                               struct core_record (*read)(sqlite3_stmt *stmt),
                               const struct core_record *job, struct err *err)
{
    sqlite3_stmt *stmt = use(load->db, which);
    bind_u64(stmt, 1, job->job);
    for (;;) {
        bool has_row = false;
        enum err_code code = next_row(load->db, stmt, &has_row, err);
        if (code != ERR_OK || !has_row)
            return code;
        struct core_record record = read(stmt);
        record.kind = kind;
        record.job = job->job;
        if (kind == CORE_REC_ACKED) {
            if (record.first > record.last || record.last >= LIMIT_STEPS)
                return err_set(err, ERR_CORRUPT,
                               "ledger %s: job %" PRIu64 ": acknowledged range %" PRIu64
                               "..%" PRIu64 ", want first <= last < 2^48",
                               load->db->path, job->job, record.first, record.last);
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
        enum statement which;
        enum core_record_kind kind;
        struct core_record (*read)(sqlite3_stmt *stmt);
    } tables[] = {
        {SQL_LOAD_ACKED, CORE_REC_ACKED, acked_of},
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
    sqlite3_stmt *row = use(db, SQL_LOAD_JOBS);
    for (;;) {
        bool has_row = false;
        enum err_code code = next_row(db, row, &has_row, err);
        if (code == ERR_OK && has_row)
            code = load_job(&load, row, err);
        if (code != ERR_OK || !has_row) {
            rollback(db); /* ends the open reads */
            return code;
        }
    }
}

enum err_code ledger_db_range_count(struct ledger_db *db, uint64_t *ret_count, struct err *err)
{
    bool has_row = false;
    uint64_t count = 0;
    enum err_code code = query_u64(db, use(db, SQL_RANGE_COUNT), &has_row, &count, err);
    if (code == ERR_OK)
        *ret_count = count;
    return code;
}
