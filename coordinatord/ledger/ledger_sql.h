/* SPDX-License-Identifier: Apache-2.0 */
/* ledger_sql: every SQL text of ledger_db in one place, so that schema and statements are read
 * together.
 *
 * Numbers are 64-bit integers; the core's stay below 2^63 (LIMIT_STEPS, counts, wall time in ms). A
 * table's key starts with the job, so that one job's rows lie together and go together.
 */
#ifndef COORDINATORD_LEDGER_LEDGER_SQL_H
#define COORDINATORD_LEDGER_LEDGER_SQL_H

/* Version 2: tickets are written ahead, and when a job first ran is kept. */
#define LEDGER_SQL_ISSUED                                                                          \
    "CREATE TABLE issued(job INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,"     \
    " PRIMARY KEY(job, first)) WITHOUT ROWID;"
#define LEDGER_SQL_FROM_1                                                                          \
    LEDGER_SQL_ISSUED "ALTER TABLE jobs ADD COLUMN began_ms INTEGER NOT NULL DEFAULT 0;"

#define LEDGER_SQL_SCHEMA                                                                          \
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"               \
    "CREATE TABLE jobs(job INTEGER PRIMARY KEY, name TEXT, spec TEXT, resume INTEGER NOT NULL,"    \
    " first INTEGER NOT NULL, last INTEGER NOT NULL, number2 INTEGER NOT NULL,"                    \
    " wall_ms INTEGER NOT NULL, state INTEGER, reason TEXT, state_ms INTEGER,"                     \
    " generation INTEGER, servers TEXT,"                                                           \
    " reissues INTEGER NOT NULL DEFAULT 0, images INTEGER NOT NULL DEFAULT 0,"                     \
    " duplicates INTEGER, reissues_end INTEGER, lost INTEGER, repeated INTEGER,"                   \
    " began_ms INTEGER NOT NULL DEFAULT 0);" LEDGER_SQL_ISSUED                                     \
    "CREATE TABLE acked(job INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,"      \
    " PRIMARY KEY(job, first)) WITHOUT ROWID;"                                                     \
    "CREATE TABLE abandoned(job INTEGER NOT NULL, step INTEGER NOT NULL, attempts INTEGER"         \
    " NOT NULL, code TEXT, words TEXT, PRIMARY KEY(job, step)) WITHOUT ROWID;"                     \
    "CREATE TABLE evals(job INTEGER NOT NULL, epoch INTEGER NOT NULL, step INTEGER NOT NULL,"      \
    " loss REAL, accuracy REAL, PRIMARY KEY(job, epoch)) WITHOUT ROWID;"                           \
    "CREATE TABLE ckpts(job INTEGER NOT NULL, number INTEGER NOT NULL, step INTEGER NOT NULL,"     \
    " path TEXT, PRIMARY KEY(job, number)) WITHOUT ROWID;"                                         \
    "CREATE TABLE finals(job INTEGER NOT NULL, server TEXT NOT NULL, shard INTEGER NOT NULL,"      \
    " applied INTEGER NOT NULL, bytes INTEGER NOT NULL, PRIMARY KEY(job, server, shard))"          \
    " WITHOUT ROWID;"                                                                              \
    "INSERT INTO meta VALUES('start', 0);"                                                         \
    "INSERT INTO meta VALUES('ledger', random() & 9223372036854775807 | 1);"

/* enum, text: one prepared statement each */
#define LEDGER_SQL_STATEMENTS(X)                                                                   \
    X(BEGIN, "BEGIN IMMEDIATE")                                                                    \
    X(COMMIT, "COMMIT")                                                                            \
    X(ROLLBACK, "ROLLBACK")                                                                        \
    X(START_ADD, "UPDATE meta SET value = value + 1 WHERE key = 'start'")                          \
    X(LEDGER_GET, "SELECT value FROM meta WHERE key = 'ledger'")                                   \
    X(START_GET, "SELECT value FROM meta WHERE key = 'start'")                                     \
    X(JOB_ADD, "INSERT INTO jobs(job, name, spec, resume, first, last, number2, wall_ms)"          \
               " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT(job) DO NOTHING")              \
    X(STATE,                                                                                       \
      "UPDATE jobs SET state = ?2, reason = ?3, state_ms = ?4, began_ms = ?5 WHERE job = ?1")      \
    X(PLACED, "UPDATE jobs SET generation = ?2, servers = ?3 WHERE job = ?1")                      \
    X(RESET_ACKED, "DELETE FROM acked WHERE job = ?1")                                             \
    X(RESET_ABANDONED, "DELETE FROM abandoned WHERE job = ?1")                                     \
    X(RESET_EVALS, "DELETE FROM evals WHERE job = ?1")                                             \
    X(RANGE_LEFT, "SELECT first, last FROM acked WHERE job = ?1 AND first <= ?2"                   \
                  " ORDER BY first DESC LIMIT 1")                                                  \
    X(RANGE_LAST, "SELECT last FROM acked WHERE job = ?1 AND first <= ?2"                          \
                  " ORDER BY first DESC LIMIT 1")                                                  \
    X(RANGE_DROP, "DELETE FROM acked WHERE job = ?1 AND first BETWEEN ?2 AND ?3")                  \
    X(RANGE_ADD, "INSERT INTO acked VALUES(?1, ?2, ?3)")                                           \
    X(ISSUED_LEFT, "SELECT first, last FROM issued WHERE job = ?1 AND first <= ?2"                 \
                   " ORDER BY first DESC LIMIT 1")                                                 \
    X(ISSUED_LAST, "SELECT last FROM issued WHERE job = ?1 AND first <= ?2"                        \
                   " ORDER BY first DESC LIMIT 1")                                                 \
    X(ISSUED_DROP, "DELETE FROM issued WHERE job = ?1 AND first BETWEEN ?2 AND ?3")                \
    X(ISSUED_ADD, "INSERT INTO issued VALUES(?1, ?2, ?3)")                                         \
    X(PROGRESS, "UPDATE jobs SET reissues = ?2, images = ?3 WHERE job = ?1")                       \
    X(ABANDONED, "INSERT OR REPLACE INTO abandoned VALUES(?1, ?2, ?3, ?4, ?5)")                    \
    X(EVAL, "INSERT OR REPLACE INTO evals VALUES(?1, ?2, ?3, ?4, ?5)")                             \
    X(CKPT, "INSERT OR REPLACE INTO ckpts VALUES(?1, ?2, ?3, ?4)")                                 \
    X(FINAL, "INSERT OR REPLACE INTO finals VALUES(?1, ?2, ?3, ?4, ?5)")                           \
    X(COUNTS, "UPDATE jobs SET duplicates = ?2, reissues_end = ?3, lost = ?4, repeated = ?5"       \
              " WHERE job = ?1")                                                                   \
    X(ENDED, "SELECT job FROM jobs WHERE state >= 3 ORDER BY job DESC LIMIT 1 OFFSET ?1")          \
    X(LOAD_JOBS, "SELECT job, name, spec, resume, first, last, number2, wall_ms, state, reason,"   \
                 " state_ms, generation, servers, reissues, images, duplicates, reissues_end,"     \
                 " lost, repeated, began_ms FROM jobs ORDER BY job")                               \
    X(LOAD_ACKED, "SELECT first, last FROM acked WHERE job = ?1 ORDER BY first")                   \
    X(LOAD_ISSUED, "SELECT first, last FROM issued WHERE job = ?1 ORDER BY first")                 \
    X(LOAD_ABANDONED, "SELECT step, attempts, code, words FROM abandoned WHERE job = ?1"           \
                      " ORDER BY step")                                                            \
    X(LOAD_EVALS, "SELECT epoch, step, loss, accuracy FROM evals WHERE job = ?1 ORDER BY epoch")   \
    X(LOAD_CKPTS, "SELECT number, step, path FROM ckpts WHERE job = ?1 ORDER BY number")           \
    X(LOAD_FINALS, "SELECT server, shard, applied, bytes FROM finals WHERE job = ?1"               \
                   " ORDER BY server, shard")                                                      \
    X(RANGE_COUNT, "SELECT count(*) FROM acked")

/* Ended jobs up to ?1 leave every table (children first is not needed: there are no foreign keys).
 */
#define LEDGER_SQL_PRUNE_CHILD                                                                     \
    "DELETE FROM %s WHERE job IN (SELECT job FROM jobs WHERE state >= 3 AND job <= %lld)"
#define LEDGER_SQL_PRUNE_JOBS "DELETE FROM jobs WHERE state >= 3 AND job <= %lld"

#endif
