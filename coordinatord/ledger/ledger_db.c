/* SPDX-License-Identifier: Apache-2.0 */
/* ledger_db: opening and closing the database: whose it is, its schema, what a start counts and
 * prunes. Records go in by ledger_db_write.c and come out by ledger_db_load.c.
 */
#include "coordinatord/ledger/ledger_db.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coordinatord/ledger/ledger_db_int.h"

static enum err_code pragma_number(struct ledger_db *db, const char *text, int64_t *ret_value,
                                   struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(db->sql, text, -1, &stmt, NULL) != SQLITE_OK)
        return ledger_stmt_err(err, db, text);
    int rc = sqlite3_step(stmt);
    enum err_code code = ERR_OK;
    if (rc == SQLITE_ROW)
        *ret_value = sqlite3_column_int64(stmt, 0);
    else
        code = ledger_stmt_err(err, db, text);
    sqlite3_finalize(stmt);
    return code;
}

/* Refuses what is not ours before anything is written to it; ret_is_new: an empty file;
 * ret_is_old: of an earlier version. */
static enum err_code check_identity(struct ledger_db *db, bool *ret_is_new, bool *ret_is_old,
                                    struct err *err)
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
    *ret_is_old = version < LEDGER_DB_VERSION;
    return ERR_OK;
}

/* Says what is damaged, if anything; a ledger is small (ranges), so this takes milliseconds. */
static enum err_code check_pages(struct ledger_db *db, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(db->sql, "PRAGMA quick_check(1)", -1, &stmt, NULL) != SQLITE_OK)
        return ledger_stmt_err(err, db, "quick_check");
    enum err_code code = ERR_OK;
    if (sqlite3_step(stmt) != SQLITE_ROW)
        code = ledger_stmt_err(err, db, "quick_check");
    else if (strcmp((const char *)sqlite3_column_text(stmt, 0), "ok") != 0)
        code = err_set(err, ERR_CORRUPT, "ledger %s: damaged: %s", db->path,
                       (const char *)sqlite3_column_text(stmt, 0));
    sqlite3_finalize(stmt);
    return code;
}

/* Tables made or changed, and the identity beside them: whole or not there. */
static enum err_code change_schema(struct ledger_db *db, const char *text, struct err *err)
{
    char pragmas[128];
    sqlite3_snprintf(sizeof(pragmas), pragmas,
                     "PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT",
                     LEDGER_DB_APPLICATION_ID, LEDGER_DB_VERSION);
    enum err_code code = ledger_stmt_exec(db, "BEGIN IMMEDIATE", err);
    if (code == ERR_OK)
        code = ledger_stmt_exec(db, text, err);
    if (code == ERR_OK)
        code = ledger_stmt_exec(db, pragmas, err);
    if (code != ERR_OK && !sqlite3_get_autocommit(db->sql))
        sqlite3_exec(db->sql, "ROLLBACK", NULL, NULL, NULL);
    return code;
}

/* SQLite opens for reading what it cannot open for writing, whatever the reason was. */
static enum err_code check_writable(struct ledger_db *db, struct err *err)
{
    if (sqlite3_db_readonly(db->sql, "main") == 0)
        return ERR_OK;
    if (access(db->path, W_OK) != 0)
        return err_from_errno(err, errno, "ledger %s: cannot be written", db->path);
    return err_set(err, ERR_FULL, "ledger %s: could not be opened for writing just now", db->path);
}

static enum err_code change_from_1(struct ledger_db *db, struct err *err)
{
    int64_t columns = 0;
    enum err_code code =
        pragma_number(db, "SELECT count(*) FROM pragma_table_info('jobs')", &columns, err);
    if (code != ERR_OK)
        return code;
    if (columns == 0)
        return err_set(err, ERR_CORRUPT, "ledger %s: schema version 1 without a table \"jobs\"",
                       db->path);
    return change_schema(db, LEDGER_SQL_FROM_1, err);
}

enum err_code ledger_db_open(const char *path, struct ledger_db **ret_db, struct err *err)
{
    AUTO(ledger_db) db = base_alloc(sizeof(*db));
    db->path = base_strdup(path);
    int flags =
        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    if (sqlite3_open_v2(path, &db->sql, flags, NULL) != SQLITE_OK)
        return ledger_stmt_err(err, db, "open");
    sqlite3_busy_timeout(db->sql, 2000); /* somebody looks into it with sqlite3(1) */

    bool is_new = false;
    bool is_old = false;
    enum err_code code = check_writable(db, err);
    if (code == ERR_OK)
        code = check_identity(db, &is_new, &is_old, err);
    if (code == ERR_OK)
        code = ledger_stmt_exec(
            db,
            "PRAGMA locking_mode = EXCLUSIVE;" /* no shared memory file, no lock calls per commit */
            "PRAGMA journal_mode = WAL;"
            "PRAGMA synchronous = FULL;"
            "PRAGMA foreign_keys = OFF;"
            "PRAGMA journal_size_limit = 16777216;", /* a burst leaves no large file behind */
            err);
    if (code == ERR_OK && is_new)
        code = change_schema(db, LEDGER_SQL_SCHEMA, err);
    if (code == ERR_OK)
        code = check_pages(db, err);
    if (code == ERR_OK && is_old)
        code = change_from_1(db, err);
    if (code == ERR_OK)
        code = ledger_stmt_prepare_all(db, err);
    struct stat st;
    if (code == ERR_OK && stat(path, &st) != 0)
        code = err_from_errno(err, errno, "ledger %s: stat", path);
    if (code != ERR_OK)
        return code;
    db->device = st.st_dev;
    db->inode = st.st_ino;
    *ret_db = TAKE(db);
    return ERR_OK;
}

void ledger_db_free(struct ledger_db *db)
{
    if (!db)
        return;
    ledger_stmt_finalize_all(db);
    sqlite3_close(db->sql);
    ledger_write_done(&db->write);
    free(db->path);
    free(db);
}

static enum err_code prune_ended(struct ledger_db *db, uint32_t jobs_kept, struct err *err)
{
    static const char *const children[] = {"acked", "issued", "abandoned",
                                           "evals", "ckpts",  "finals"};
    sqlite3_stmt *stmt = ledger_stmt_use(db, SQL_ENDED);
    ledger_stmt_bind_u64(stmt, 1, jobs_kept);
    bool has_any = false;
    uint64_t last = 0;
    enum err_code code = ledger_stmt_query_u64(db, stmt, &has_any, &last, err);
    if (code != ERR_OK || !has_any)
        return code;
    char text[160];
    for (size_t i = 0; i < ARRAY_SIZE(children) && code == ERR_OK; i++) {
        sqlite3_snprintf(sizeof(text), text, LEDGER_SQL_PRUNE_CHILD, children[i], (long long)last);
        code = ledger_stmt_exec(db, text, err);
    }
    sqlite3_snprintf(sizeof(text), text, LEDGER_SQL_PRUNE_JOBS, (long long)last);
    return code == ERR_OK ? ledger_stmt_exec(db, text, err) : code;
}

enum err_code ledger_db_count_start(struct ledger_db *db, uint32_t jobs_kept, uint64_t *ret_start,
                                    uint64_t *ret_id, struct err *err)
{
    uint64_t start = 0;
    uint64_t id = 0;
    bool has_start = false;
    bool has_id = false;
    enum err_code code = ledger_stmt_begin(db, err);
    if (code == ERR_OK)
        code = ledger_stmt_run(db, ledger_stmt_use(db, SQL_START_ADD), err);
    if (code == ERR_OK)
        code =
            ledger_stmt_query_u64(db, ledger_stmt_use(db, SQL_START_GET), &has_start, &start, err);
    if (code == ERR_OK)
        code = ledger_stmt_query_u64(db, ledger_stmt_use(db, SQL_LEDGER_GET), &has_id, &id, err);
    if (code == ERR_OK && (!has_start || !has_id))
        code = err_set(err, ERR_CORRUPT, "ledger %s: table meta has no row \"%s\"", db->path,
                       has_start ? "ledger" : "start");
    if (code == ERR_OK)
        code = prune_ended(db, jobs_kept, err);
    if (code == ERR_OK)
        code = ledger_stmt_commit(db, err);
    if (code != ERR_OK) {
        ledger_stmt_rollback(db);
        return code;
    }
    *ret_start = start;
    *ret_id = id;
    return ERR_OK;
}
