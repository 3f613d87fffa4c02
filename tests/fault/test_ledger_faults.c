/* SPDX-License-Identifier: Apache-2.0 */
/* Every system call that a commit of the ledger makes fails once, in turn, in each way a disk has:
 * the commit says so, what was committed before is kept, and the same records can be written again.
 * This program's own calls stand in front of those that SQLite would make in the C library. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/ranges.h"
#include "coordinatord/ledger/ledger_db.h"
#include "tests/harness.h"

static long fail_at = -1; /* which call fails; -1: none */
static long calls;
static int fail_errno;
static bool is_torn; /* a failing write writes half first */

static bool fails_now(void)
{
    return fail_at >= 0 && calls++ == fail_at;
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t offset)
{
    if (fails_now()) {
        if (is_torn)
            (void)!syscall(SYS_pwrite64, fd, data, bytes / 2, offset);
        errno = fail_errno;
        return -1;
    }
    return syscall(SYS_pwrite64, fd, data, bytes, offset);
}

int fdatasync(int fd)
{
    if (fails_now()) {
        errno = fail_errno;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}

int ftruncate64(int fd, off64_t bytes)
{
    if (fails_now()) {
        errno = fail_errno;
        return -1;
    }
    return (int)syscall(SYS_ftruncate, fd, bytes);
}

int open64(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    int mode = flags & O_CREAT ? va_arg(ap, int) : 0;
    va_end(ap);
    if (fails_now()) {
        errno = fail_errno;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static enum err_code gather(void *arg, const struct core_record *record, struct err *err)
{
    (void)err;
    if (record->kind == CORE_REC_ACKED)
        ranges_add_range(arg, record->first, record->last);
    return ERR_OK;
}

static struct ranges held_by(struct ledger_db *db)
{
    struct err err;
    struct ranges held;
    ranges_init(&held);
    CHECK_OK(ledger_db_load(db, gather, &held, &err));
    return held;
}

/* Each commit acknowledges two steps that touch no others: two rows more. */
static enum err_code commit(struct ledger_db *db, uint64_t number, struct err *err)
{
    struct core_record records[2];
    for (uint64_t i = 0; i < 2; i++) {
        uint64_t step = 4 * number + 2 * i;
        records[i] =
            (struct core_record){.kind = CORE_REC_ACKED, .job = 1, .first = step, .last = step};
    }
    return ledger_db_apply(db, records, 2, err);
}

static void open_with_job(const char *path, struct ledger_db **ret_db)
{
    struct err err;
    struct core_record job = {.kind = CORE_REC_JOB, .job = 1, .text = "j", .text2 = "{}"};
    CHECK_OK(ledger_db_open(path, ret_db, &err));
    CHECK_OK(ledger_db_apply(*ret_db, &job, 1, &err));
}

static void fail_each_in_turn(int errnum, enum err_code want)
{
    struct err err = {0};
    AUTO(ledger_db) db = NULL;
    AUTO_MEM char *path = base_asprintf("%s/ledger-%d.db", test_dir(), errnum);
    fail_errno = errnum;
    open_with_job(path, &db);
    uint64_t done = 0;
    unsigned failures = 0;
    for (long n = 0;; n++) {
        calls = 0;
        fail_at = n;
        enum err_code code = commit(db, done, &err);
        bool was_hit = calls > n;
        fail_at = -1;
        if (was_hit) {
            failures++;
            CHECK(code == want); /* no failure is passed over */
            CHECK(strstr(err.text, path) != NULL);
            struct ranges held = held_by(db);
            CHECK_U64(ranges_total(&held), 2 * done);
            ranges_done(&held);
            CHECK_OK(commit(db, done, &err)); /* the same again, once there is space */
        } else {
            CHECK_OK(code);
        }
        done++;
        if (!was_hit)
            break;
    }
    CHECK(failures >= 2); /* pages and the sync at least */
    ledger_db_free(db);
    db = NULL;
    CHECK_OK(ledger_db_open(path, &db, &err)); /* what was said to be durable is in the file */
    struct ranges held = held_by(db);
    CHECK_U64(ranges_total(&held), 2 * done);
    ranges_done(&held);
}

TEST(whichever_call_of_a_commit_fails_nothing_is_lost_and_it_can_be_repeated)
{
    fail_each_in_turn(ENOSPC, ERR_FULL);
    fail_each_in_turn(EDQUOT, ERR_FULL);
    fail_each_in_turn(EIO, ERR_IO);
}

TEST(a_torn_write_of_a_commit_is_no_part_of_the_ledger)
{
    is_torn = true;
    fail_each_in_turn(ENOSPC, ERR_FULL);
}

TEST(a_start_without_descriptors_or_space_is_worth_trying_again_and_then_finds_everything)
{
    static const int errnums[] = {EMFILE, ENFILE, ENOSPC, EDQUOT};
    struct err err = {0};
    AUTO(ledger_db) db = NULL;
    AUTO_MEM char *path = base_asprintf("%s/ledger.db", test_dir());
    open_with_job(path, &db);
    CHECK_OK(commit(db, 0, &err));
    ledger_db_free(db);
    db = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(errnums); i++) {
        unsigned failures = 0;
        fail_errno = errnums[i];
        for (long n = 0;; n++) {
            uint64_t start = 0, id = 0;
            calls = 0;
            fail_at = n;
            enum err_code code = ledger_db_open(path, &db, &err);
            if (code == ERR_OK)
                code = ledger_db_count_start(db, 100, &start, &id, &err);
            bool was_hit = calls > n;
            fail_at = -1;
            if (code != ERR_OK) {
                failures++;
                CHECK(err_passes(code) && strstr(err.text, path) != NULL);
            }
            ledger_db_free(db);
            db = NULL;
            if (!was_hit)
                break;
        }
        CHECK(failures >= 2);
    }
    CHECK_OK(ledger_db_open(path, &db, &err));
    struct ranges held = held_by(db);
    CHECK_U64(ranges_total(&held), 2);
    ranges_done(&held);
}
