/* SPDX-License-Identifier: Apache-2.0 */
/* ledger_db: the tables of the ledger in SQLite, and the records of the core written into and read
 * from them.
 *
 * One row a job, one a range of acknowledged steps and of issued ones, one an abandoned step, evaluation, checkpoint
 * and shard of the end. Acknowledged steps that touch are merged before SQL sees them and with
 * their neighbours in the table, so a job that trained a million steps in order is one row.
 * ledger_db_apply is one transaction; applying the same records again changes nothing, which makes
 * a failed or half-known commit safe to repeat.
 *
 * Owns    the connection (WAL, synchronous FULL, exclusive) and its prepared statements.
 * Thread  one at a time: the loop's until the writer thread starts, the writer's after.
 * Errors  ERR_IO with path and SQLite's words; a file that was removed or replaced under us, too.
 *         ERR_FULL, ERR_NO_MEMORY: no space, descriptors or memory; worth trying again.
 *         ERR_CORRUPT: not a database, not ours, newer than this program, or a row that no record
 *         can have made.
 */
#ifndef COORDINATORD_LEDGER_LEDGER_DB_H
#define COORDINATORD_LEDGER_LEDGER_DB_H

#include "common/base/err.h"
#include "coordinatord/core/core.h"

#define LEDGER_DB_APPLICATION_ID 0x53464c44 /* "SFLD" */
#define LEDGER_DB_VERSION        2          /* of the schema, in user_version */

struct ledger_db;

/* Opens or creates the file, or makes one of an older version into one of this; its directory has to
 * exist. */
MUST_CHECK enum err_code ledger_db_open(const char *path, struct ledger_db **ret_db,
                                        struct err *err);
void ledger_db_free(struct ledger_db *db);
DEFINE_AUTO(ledger_db)

/* Adds one to the number of starts and deletes the oldest ended jobs beyond jobs_kept, durably. */
MUST_CHECK enum err_code ledger_db_count_start(struct ledger_db *db, uint32_t jobs_kept,
                                               uint64_t *ret_start, uint64_t *ret_id,
                                               struct err *err);
/* One durable transaction; on failure nothing of it is in. */
MUST_CHECK enum err_code ledger_db_apply(struct ledger_db *db, const struct core_record *records,
                                         size_t count, struct err *err);
/* See ledger_load. An error of on_record ends it and is passed on. */
MUST_CHECK enum err_code ledger_db_load(struct ledger_db *db,
                                        enum err_code (*on_record)(void *arg,
                                                                   const struct core_record *record,
                                                                   struct err *err),
                                        void *arg, struct err *err);
/* How many ranges of acknowledged steps the table holds, of all jobs. For tests and the bench. */
MUST_CHECK enum err_code ledger_db_range_count(struct ledger_db *db, uint64_t *ret_count,
                                               struct err *err);

#endif
