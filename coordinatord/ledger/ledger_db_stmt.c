/* SPDX-License-Identifier: Apache-2.0 */
/* ledger_db_stmt: SQLite as the other files of ledger_db see it. */
#include <errno.h>
#include <sys/stat.h>

#include "coordinatord/ledger/ledger_db_int.h"

static const char *const statement_text[SQL_COUNT] = {
#define X(name, text) [SQL_##name] = text,
    LEDGER_SQL_STATEMENTS(X)
#undef X
};

/* Of the call that failed. SQLite keeps it with the connection, but for a COMMIT, where only the file
 * knows it: the write-ahead log, or the database when the log is moved into it. */
static int last_errno(const struct ledger_db *db)
{
    int errnum = sqlite3_system_errno(db->sql);
    sqlite3_file *log = NULL;
    if (!errnum)
        sqlite3_file_control(db->sql, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
    if (!errnum && log && log->pMethods)
        log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &errnum);
    if (!errnum)
        sqlite3_file_control(db->sql, "main", SQLITE_FCNTL_LAST_ERRNO, &errnum);
    return errnum;
}

/* The one place where SQLite's codes become ours. */
enum err_code ledger_stmt_err(struct err *err, const struct ledger_db *db, const char *what)
{
    int code = sqlite3_extended_errcode(db->sql);
    int primary = code & 0xff;
    const char *words = sqlite3_errmsg(db->sql);
    if (primary == SQLITE_NOTADB || primary == SQLITE_CORRUPT)
        return err_set(err, ERR_CORRUPT, "ledger %s: %s: %s", db->path, what, words);
    if (primary == SQLITE_FULL)
        return err_set(err, ERR_FULL, "ledger %s: %s: %s (disk full, quota or file size limit)",
                       db->path, what, words);
    if (primary == SQLITE_NOMEM || code == SQLITE_IOERR_NOMEM)
        return err_set(err, ERR_NO_MEMORY, "ledger %s: %s: %s", db->path, what, words);
    int errnum = last_errno(db);
    /* A file of the ledger that is not there, where we make what is missing: SQLite opened something
     * in vain and looked for another since. */
    if (primary == SQLITE_CANTOPEN && (errnum == 0 || errnum == ENOENT))
        return err_set(err, ERR_FULL, "ledger %s: %s: %s just now", db->path, what, words);
    if ((primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN) && errnum != 0) {
        enum err_code ours =
            err_from_errno(err, errnum, "ledger %s: %s: %s", db->path, what, words);
        if (err_passes(ours))
            return ours;
        if (err) /* not "there is none": it vanished under us */
            err->code = ERR_IO;
        return ERR_IO;
    }
    return err_set(err, ERR_IO, "ledger %s: %s: %s", db->path, what, words);
}

sqlite3_stmt *ledger_stmt_use(struct ledger_db *db, enum ledger_statement which)
{
    sqlite3_stmt *stmt = db->statements[which];
    sqlite3_reset(stmt); /* its error was seen when it was stepped */
    return stmt;
}

/* Binding fails only on a wrong index or without memory; both are ours to die of. */
void ledger_stmt_bind_u64(sqlite3_stmt *stmt, int index, uint64_t value)
{
    int rc = sqlite3_bind_int64(stmt, index, (sqlite3_int64)value);
    ASSERT(rc == SQLITE_OK);
}

/* Runs a statement that yields no row. */
enum err_code ledger_stmt_run(struct ledger_db *db, sqlite3_stmt *stmt, struct err *err)
{
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_DONE)
        return ERR_OK;
    enum err_code code = ledger_stmt_err(err, db, sqlite3_sql(stmt));
    sqlite3_reset(stmt);
    return code;
}

/* Runs a statement to its next row; *ret_row is false after the last. */
enum err_code ledger_stmt_next_row(struct ledger_db *db, sqlite3_stmt *stmt, bool *ret_row,
                                   struct err *err)
{
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW || rc == SQLITE_DONE) {
        *ret_row = rc == SQLITE_ROW;
        if (rc == SQLITE_DONE)
            sqlite3_reset(stmt);
        return ERR_OK;
    }
    enum err_code code = ledger_stmt_err(err, db, sqlite3_sql(stmt));
    sqlite3_reset(stmt);
    return code;
}

/* The first column of a statement's only row; ret_found is false when there is none. */
enum err_code ledger_stmt_query_u64(struct ledger_db *db, sqlite3_stmt *stmt, bool *ret_found,
                                    uint64_t *ret_value, struct err *err)
{
    enum err_code code = ledger_stmt_next_row(db, stmt, ret_found, err);
    if (code != ERR_OK || !*ret_found)
        return code;
    *ret_value = (uint64_t)sqlite3_column_int64(stmt, 0);
    sqlite3_reset(stmt);
    return ERR_OK;
}

enum err_code ledger_stmt_exec(struct ledger_db *db, const char *text, struct err *err)
{
    if (sqlite3_exec(db->sql, text, NULL, NULL, NULL) == SQLITE_OK)
        return ERR_OK;
    return ledger_stmt_err(err, db, text);
}

/* ---- transactions ---------------------------------------------------------------------------- */

/* What is written has to go to the file at the path. */
static enum err_code check_place(const struct ledger_db *db, struct err *err)
{
    struct stat st;
    if (stat(db->path, &st) != 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            return err_from_errno(err, errno, "ledger %s: stat", db->path);
    } else if (st.st_dev == db->device && st.st_ino == db->inode) {
        return ERR_OK;
    }
    return err_set(
        err, ERR_IO,
        "ledger %s: the file was removed or replaced while it is in use; put it back, or "
        "start the coordinator anew with the ledger there is",
        db->path);
}

enum err_code ledger_stmt_begin(struct ledger_db *db, struct err *err)
{
    enum err_code code = check_place(db, err);
    if (code != ERR_OK)
        return code;
    return ledger_stmt_run(db, ledger_stmt_use(db, SQL_BEGIN), err);
}

/* After a failure SQLite may have rolled back by itself (disk full, I/O error, no memory). */
void ledger_stmt_rollback(struct ledger_db *db)
{
    for (size_t i = 0; i < SQL_COUNT; i++)
        sqlite3_reset(db->statements[i]);
    if (!sqlite3_get_autocommit(db->sql)) {
        sqlite3_step(db->statements[SQL_ROLLBACK]);
        sqlite3_reset(db->statements[SQL_ROLLBACK]);
    }
}

enum err_code ledger_stmt_commit(struct ledger_db *db, struct err *err)
{
    enum err_code code = ledger_stmt_run(db, ledger_stmt_use(db, SQL_COMMIT), err);
    sqlite3_reset(db->statements[SQL_COMMIT]);
    ASSERT(code != ERR_OK || sqlite3_get_autocommit(db->sql));
    return code;
}

/* ---- all of them ------------------------------------------------------------------------------ */

enum err_code ledger_stmt_prepare_all(struct ledger_db *db, struct err *err)
{
    for (size_t i = 0; i < SQL_COUNT; i++)
        if (sqlite3_prepare_v3(db->sql, statement_text[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &db->statements[i], NULL) != SQLITE_OK) {
            /* Our identity, but not our tables. */
            return err_set(err, ERR_CORRUPT, "ledger %s: %s", db->path, sqlite3_errmsg(db->sql));
        }
    return ERR_OK;
}

void ledger_stmt_finalize_all(struct ledger_db *db)
{
    for (size_t i = 0; i < SQL_COUNT; i++)
        sqlite3_finalize(db->statements[i]);
}
