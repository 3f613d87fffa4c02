/* SPDX-License-Identifier: Apache-2.0 */
/* ledger_db_int: what the files of ledger_db share.
 *
 *   ledger_db.c        opening, schema, the count of starts; on top of the others
 *   ledger_db_write.c  records into tables
 *   ledger_db_load.c   tables into records
 *   ledger_db_stmt.c   statements, transactions, SQLite's errors; below the others
 */
#ifndef COORDINATORD_LEDGER_LEDGER_DB_INT_H
#define COORDINATORD_LEDGER_LEDGER_DB_INT_H

#include <sqlite3.h>
#include <sys/types.h>

#include "coordinatord/ledger/ledger_db.h"
#include "coordinatord/ledger/ledger_sql.h"

enum ledger_statement {
#define X(name, text) SQL_##name,
    LEDGER_SQL_STATEMENTS(X)
#undef X
        SQL_COUNT
};

struct ledger_pending; /* whole in ledger_db_write.c */

struct ledger_write {
    struct ledger_pending *items; /* reused; those up to count may hold steps */
    size_t count;
    size_t capacity;
};

struct ledger_db {
    char *path;   /* ledger_db.c */
    sqlite3 *sql; /* ledger_db.c opens and closes it, all use it */
    dev_t device; /* ledger_db.c, with inode: the file that is open */
    ino_t inode;
    sqlite3_stmt *statements[SQL_COUNT]; /* ledger_db_stmt.c */
    struct ledger_write write;           /* ledger_db_write.c */
};

/* ---- ledger_db_stmt.c ------------------------------------------------------------------------ */

/* The one place where SQLite's codes become ours. */
enum err_code ledger_stmt_err(struct err *err, const struct ledger_db *db, const char *what);
MUST_CHECK enum err_code ledger_stmt_prepare_all(struct ledger_db *db, struct err *err);
void ledger_stmt_finalize_all(struct ledger_db *db); /* those that were prepared */

/* A statement, reset, its values as they were; bind all of them again. */
sqlite3_stmt *ledger_stmt_use(struct ledger_db *db, enum ledger_statement which);
void ledger_stmt_bind_u64(sqlite3_stmt *stmt, int index, uint64_t value);
/* Runs a statement that yields no row. */
MUST_CHECK enum err_code ledger_stmt_run(struct ledger_db *db, sqlite3_stmt *stmt, struct err *err);
/* Runs a statement to its next row; *ret_row is false after the last. */
MUST_CHECK enum err_code ledger_stmt_next_row(struct ledger_db *db, sqlite3_stmt *stmt,
                                              bool *ret_row, struct err *err);
/* The first column of a statement's only row; *ret_found is false when there is none. */
MUST_CHECK enum err_code ledger_stmt_query_u64(struct ledger_db *db, sqlite3_stmt *stmt,
                                               bool *ret_found, uint64_t *ret_value,
                                               struct err *err);
/* Any SQL text, without values. */
MUST_CHECK enum err_code ledger_stmt_exec(struct ledger_db *db, const char *text, struct err *err);

/* ERR_IO also when somebody removed or replaced the file. */
MUST_CHECK enum err_code ledger_stmt_begin(struct ledger_db *db, struct err *err);
MUST_CHECK enum err_code ledger_stmt_commit(struct ledger_db *db, struct err *err);
/* Ends open reads, too. Nothing to do when SQLite has rolled back by itself. */
void ledger_stmt_rollback(struct ledger_db *db);

/* ---- ledger_db_write.c ----------------------------------------------------------------------- */

void ledger_write_done(struct ledger_write *write);

#endif
