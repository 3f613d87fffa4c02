/* SPDX-License-Identifier: Apache-2.0 */
/* ledger: the coordinator's durable memory in SQLite (WAL, synchronous FULL), one writer thread,
 * group commit.
 *
 * Records of the core are applied to tables (jobs, acked ranges, abandoned, evals, checkpoints,
 * placements, finals); acknowledged steps are kept as ranges. All records posted while a commit
 * runs make up the next transaction. A commit that fails (disk full, I/O error) is said once, and
 * tried again every second with the same records; nothing posted is dropped.
 *
 * Owns    the database file `ledger.db` and the lock file in the state directory (a second
 *         coordinator on the same directory is refused). Copies records when posted.
 * Thread  open, load, post, close: the loop's. on_written and on_stuck are called on the writer
 *         thread; they must only hand over (rpc_env_post, uv_async).
 * Errors  ERR_IO, ERR_FULL (no space left) with path and SQLite's words; ERR_NOT_FOUND: no such state directory; ERR_CORRUPT
 *         when the file is not our ledger or a newer version; ERR_EXISTS: another coordinator holds
 *         the directory.
 */
#ifndef COORDINATORD_LEDGER_LEDGER_H
#define COORDINATORD_LEDGER_LEDGER_H

#include "common/base/err.h"
#include "coordinatord/core/core.h"

struct ledger;

struct ledger_callbacks {
    void (*on_written)(void *arg, uint64_t seq);
    void (*on_stuck)(void *arg, bool is_stuck, const char *text);
    void *arg;
};

/* Opens or creates, counts this start durably, prunes ended jobs beyond LIMIT_JOBS_KEPT. Where no
 * space, descriptors or memory are left it waits for some, ten seconds at most. */
MUST_CHECK enum err_code ledger_open(const char *state_dir,
                                     const struct ledger_callbacks *callbacks,
                                     struct ledger **ret_ledger, uint64_t *ret_start,
                                     struct err *err);
/* Drawn when the ledger was made: tells its jobs from those of another one with the same numbers. */
uint64_t ledger_id(const struct ledger *ledger);
/* Calls on_record for all that is held, as records that core_replay takes: per job JOB, STATE,
 * PLACED, ISSUED..., ACKED..., ABANDONED..., EVAL..., CKPT..., FINAL..., COUNTS, jobs by rising number. Before
 * ledger_begin. */
MUST_CHECK enum err_code ledger_load(struct ledger *ledger,
                                     enum err_code (*on_record)(void *arg,
                                                                const struct core_record *record,
                                                                struct err *err),
                                     void *arg, struct err *err);
void ledger_begin(struct ledger *ledger); /* starts the writer thread */
/* Records in rising seq. */
void ledger_post(struct ledger *ledger, const struct core_record *records, size_t count);
/* Writes what was posted (bounded by deadline_ms when the disk is stuck), joins, closes. */
void ledger_close(struct ledger *ledger, uint32_t deadline_ms);

#endif
