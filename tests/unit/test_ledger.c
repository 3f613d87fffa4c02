/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger keeps what it confirmed, as ranges, through restarts, kills and a full disk, and
 * refuses strangers. */
#include "coordinatord/ledger/ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/rand.h"
#include "coordinatord/ledger/ledger_db.h"
#include "tests/harness.h"

/* ---- what the writer thread said ------------------------------------------------------------- */

struct heard {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t written;
    bool is_stuck;
    unsigned stuck_count;
    char stuck_text[ERR_TEXT_SIZE];
};

static void on_written(void *arg, uint64_t seq)
{
    struct heard *heard = arg;
    pthread_mutex_lock(&heard->lock);
    heard->written = seq;
    pthread_cond_broadcast(&heard->changed);
    pthread_mutex_unlock(&heard->lock);
}

static void on_stuck(void *arg, bool is_stuck, const char *text)
{
    struct heard *heard = arg;
    pthread_mutex_lock(&heard->lock);
    heard->is_stuck = is_stuck;
    if (is_stuck) {
        heard->stuck_count++;
        snprintf(heard->stuck_text, sizeof(heard->stuck_text), "%s", text);
    }
    pthread_cond_broadcast(&heard->changed);
    pthread_mutex_unlock(&heard->lock);
}

static struct heard *heard_new(void)
{
    struct heard *heard = base_alloc(sizeof(*heard));
    pthread_mutex_init(&heard->lock, NULL);
    pthread_cond_init(&heard->changed, NULL);
    return heard;
}

static void heard_free(struct heard *heard)
{
    pthread_cond_destroy(&heard->changed);
    pthread_mutex_destroy(&heard->lock);
    free(heard);
}

static bool wait_heard(struct heard *heard, uint64_t seq, int is_stuck, int limit_s)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_sec += limit_s;
    pthread_mutex_lock(&heard->lock);
    int rc = 0;
    while (rc == 0 &&
           (heard->written < seq || (is_stuck >= 0 && heard->is_stuck != (is_stuck == 1))))
        rc = pthread_cond_timedwait(&heard->changed, &heard->lock, &at);
    pthread_mutex_unlock(&heard->lock);
    return rc == 0;
}

static struct ledger_callbacks callbacks_of(struct heard *heard)
{
    return (struct ledger_callbacks){on_written, on_stuck, heard};
}

/* ---- what a load yields, as text: one line a record
 * ---------------------------------------------- */

struct dump {
    char text[8192];
    size_t used;
    struct ranges acked;
    uint64_t acked_records;
};

static enum err_code dump_record(void *arg, const struct core_record *r, struct err *err)
{
    struct dump *dump = arg;
    (void)err;
    CHECK_U64(r->seq, 0);
    if (r->kind == CORE_REC_ACKED) {
        ranges_add_range(&dump->acked, r->first, r->last);
        dump->acked_records++;
    }
    if (dump->used + 300 < sizeof(dump->text))
        dump->used +=
            (size_t)snprintf(dump->text + dump->used, sizeof(dump->text) - dump->used,
                             "%d job=%llu %llu..%llu %llu %llu ms=%llu %g %g [%s] [%s]\n", r->kind,
                             (unsigned long long)r->job, (unsigned long long)r->first,
                             (unsigned long long)r->last, (unsigned long long)r->number,
                             (unsigned long long)r->number2, (unsigned long long)r->wall_ms, r->x,
                             r->y, r->text ? r->text : "-", r->text2 ? r->text2 : "-");
    return ERR_OK;
}

static struct ledger *open_ok(const char *dir, struct heard *heard, uint64_t *ret_start)
{
    struct err err = {0};
    struct ledger *ledger = NULL;
    struct ledger_callbacks callbacks = callbacks_of(heard);
    CHECK_OK(ledger_open(dir, &callbacks, &ledger, ret_start, &err));
    return ledger;
}

static struct dump *reload(const char *dir)
{
    struct err err = {0};
    struct heard *heard = heard_new();
    uint64_t start;
    struct ledger *ledger = open_ok(dir, heard, &start);
    struct dump *dump = base_alloc(sizeof(*dump));
    CHECK_OK(ledger_load(ledger, dump_record, dump, &err));
    ledger_close(ledger, 100);
    heard_free(heard);
    return dump;
}

static void dump_free(struct dump *dump)
{
    ranges_done(&dump->acked);
    free(dump);
}

static void post_wait(const char *dir, struct core_record *records, size_t count)
{
    struct heard *heard = heard_new();
    uint64_t start;
    struct ledger *ledger = open_ok(dir, heard, &start);
    ledger_begin(ledger);
    for (size_t i = 0; i < count; i++)
        records[i].seq = i + 1;
    ledger_post(ledger, records, count);
    CHECK(wait_heard(heard, count, -1, 10));
    ledger_close(ledger, 1000);
    heard_free(heard);
}

static struct core_record job_record(uint64_t job)
{
    return (struct core_record){.kind = CORE_REC_JOB,
                                .job = job,
                                .text = "fashion",
                                .text2 = "{\"name\": \"fashion\"}",
                                .wall_ms = 17};
}

static struct core_record acked_record(uint64_t job, uint64_t first, uint64_t last)
{
    return (struct core_record){.kind = CORE_REC_ACKED,
                                .job = job,
                                .first = first,
                                .last = last,
                                .number = 3,
                                .number2 = 640};
}

/* ---- contents
 * ------------------------------------------------------------------------------------ */

TEST(every_kind_of_record_comes_back_in_the_order_that_replay_wants)
{
    struct core_record records[] = {
        job_record(7),
        {.kind = CORE_REC_STATE, .job = 7, .number = CORE_JOB_RUNNING, .text = "it's running"},
        {.kind = CORE_REC_PLACED, .job = 7, .number = 2, .text = "ps:0/1 ps:1/1"},
        acked_record(7, 10, 19),
        {.kind = CORE_REC_EVAL, .job = 7, .first = 1, .number = 20, .x = 0.5, .y = 0.875},
        {.kind = CORE_REC_ABANDONED,
         .job = 7,
         .first = 20,
         .number = 5,
         .text = "IO",
         .text2 = "no such file"},
        acked_record(7, 0, 9),
        {.kind = CORE_REC_CKPT, .job = 7, .number = 1, .first = 20, .text = "/c/ckpt-1"},
        {.kind = CORE_REC_FINAL,
         .job = 7,
         .text = "ps:1",
         .first = 0,
         .number = 20,
         .number2 = 4096},
        {.kind = CORE_REC_FINAL,
         .job = 7,
         .text = "ps:0",
         .first = 0,
         .number = 20,
         .number2 = 8192},
        {.kind = CORE_REC_COUNTS, .job = 7, .number = 4, .number2 = 3, .first = 0, .last = 0},
        {.kind = CORE_REC_STATE, .job = 7, .number = CORE_JOB_SUCCEEDED},
        job_record(8),
    };
    post_wait(test_dir(), records, ARRAY_SIZE(records));
    struct dump *dump = reload(test_dir());
    CHECK_STR(dump->text, "1 job=7 0..0 0 0 ms=17 0 0 [fashion] [{\"name\": \"fashion\"}]\n"
                          "2 job=7 0..0 3 0 ms=0 0 0 [-] [-]\n"
                          "3 job=7 0..0 2 0 ms=0 0 0 [ps:0/1 ps:1/1] [-]\n"
                          "5 job=7 0..19 3 640 ms=0 0 0 [-] [-]\n"
                          "6 job=7 20..0 5 0 ms=0 0 0 [IO] [no such file]\n"
                          "7 job=7 1..0 20 0 ms=0 0.5 0.875 [-] [-]\n"
                          "8 job=7 20..0 1 0 ms=0 0 0 [/c/ckpt-1] [-]\n"
                          "9 job=7 0..0 20 8192 ms=0 0 0 [ps:0] [-]\n"
                          "9 job=7 0..0 20 4096 ms=0 0 0 [ps:1] [-]\n"
                          "10 job=7 0..0 4 3 ms=0 0 0 [-] [-]\n"
                          "1 job=8 0..0 0 0 ms=17 0 0 [fashion] [{\"name\": \"fashion\"}]\n");
    dump_free(dump);
}

TEST(a_reset_forgets_what_came_before_it_and_keeps_what_follows_within_one_commit)
{
    struct core_record records[] = {
        job_record(1),
        acked_record(1, 0, 99),
        {.kind = CORE_REC_ABANDONED, .job = 1, .first = 100, .number = 5, .text = "IO"},
        {.kind = CORE_REC_EVAL, .job = 1, .first = 1, .number = 50},
        {.kind = CORE_REC_CKPT, .job = 1, .number = 1, .first = 40, .text = "/c/ckpt-1"},
        {.kind = CORE_REC_RESET, .job = 1},
        acked_record(1, 0, 39),
        acked_record(1, 41, 41),
    };
    post_wait(test_dir(), records, ARRAY_SIZE(records));
    struct dump *dump = reload(test_dir());
    CHECK_STR(dump->text, "1 job=1 0..0 0 0 ms=17 0 0 [fashion] [{\"name\": \"fashion\"}]\n"
                          "5 job=1 0..39 3 640 ms=0 0 0 [-] [-]\n"
                          "5 job=1 41..41 3 640 ms=0 0 0 [-] [-]\n"
                          "8 job=1 40..0 1 0 ms=0 0 0 [/c/ckpt-1] [-]\n");
    dump_free(dump);
}

TEST(acked_ranges_in_the_table_equal_a_set_under_random_posts_and_stay_merged)
{
    enum { STEPS = 300, POSTS = 400 };
    struct err err = {0};
    AUTO_MEM char *path = base_asprintf("%s/ledger.db", test_dir());
    for (uint64_t seed = 0; seed < 5; seed++) {
        AUTO(ledger_db) db = NULL;
        unlink(path);
        CHECK_OK(ledger_db_open(path, &db, &err));
        struct core_record jobs[] = {job_record(1), job_record(2)};
        CHECK_OK(ledger_db_apply(db, jobs, 2, &err));
        struct ranges want[2] = {0};
        struct core_record batch[16];
        size_t count = 0;
        for (uint64_t i = 0; i < POSTS; i++) {
            uint64_t key = rand_key(seed, RAND_TEST, i, 1);
            uint64_t job = rand_u64(key, 0) % 2;
            uint64_t first = rand_u64(key, 1) % STEPS;
            uint64_t last = first + rand_u64(key, 2) % 3;
            if (rand_u64(key, 4) % 50 == 0) {
                batch[count++] = (struct core_record){.kind = CORE_REC_RESET, .job = job + 1};
                ranges_clear(&want[job]);
            } else {
                batch[count++] = acked_record(job + 1, first, last);
                ranges_add_range(&want[job], first, last);
            }
            if (count == ARRAY_SIZE(batch) || rand_u64(key, 3) % 4 == 0 || i == POSTS - 1) {
                CHECK_OK(ledger_db_apply(db, batch, count, &err));
                count = 0;
                uint64_t rows;
                CHECK_OK(ledger_db_range_count(db, &rows, &err));
                CHECK_U64(rows, want[0].count + want[1].count);
            }
        }
        struct dump *dump = base_alloc(sizeof(*dump));
        CHECK_OK(ledger_db_load(db, dump_record, dump, &err));
        ranges_add_range(&want[0], 0, 0);
        struct ranges both = {0};
        ranges_copy(&both, &want[1]);
        for (size_t r = 0; r < want[0].count; r++)
            ranges_add_range(&both, want[0].items[r].first, want[0].items[r].last);
        ranges_add_range(&dump->acked, 0, 0);
        CHECK(ranges_equal(&dump->acked, &both));
        ranges_done(&both);
        ranges_done(&want[0]);
        ranges_done(&want[1]);
        dump_free(dump);
    }
}

TEST(each_open_counts_one_start_and_old_ended_jobs_are_pruned)
{
    struct heard *heard = heard_new();
    for (uint64_t want = 1; want <= 3; want++) {
        uint64_t start;
        struct ledger *ledger = open_ok(test_dir(), heard, &start);
        CHECK_U64(start, want);
        ledger_close(ledger, 100);
    }
    heard_free(heard);

    enum { JOBS = LIMIT_JOBS_KEPT + 5 };
    struct core_record *records = base_alloc((size_t)3 * JOBS * sizeof(*records));
    for (uint64_t i = 0; i < JOBS; i++) {
        records[3 * i] = job_record(i + 1);
        records[3 * i + 1] = acked_record(i + 1, 0, 1);
        records[3 * i + 2] =
            (struct core_record){.kind = CORE_REC_STATE,
                                 .job = i + 1,
                                 .number = i == 1 ? CORE_JOB_PAUSED : CORE_JOB_CANCELLED};
    }
    post_wait(test_dir(), records, (size_t)3 * JOBS);
    free(records);
    struct dump *dump = reload(test_dir());
    /* Of 1,004 ended jobs the oldest four (1, 3, 4, 5) are gone; job 2 has not ended. */
    CHECK_U64(dump->acked_records, LIMIT_JOBS_KEPT + 1);
    CHECK(strncmp(dump->text, "1 job=2 ", 8) == 0);
    CHECK(strstr(dump->text, "\n1 job=6 ") != NULL && strstr(dump->text, "job=5 ") == NULL);
    dump_free(dump);
}

/* ---- durability
 * ---------------------------------------------------------------------------------- */

struct killed {
    int fd;
    _Atomic uint64_t written;
};

static void tell_written(void *arg, uint64_t seq)
{
    struct killed *killed = arg;
    ssize_t n = write(killed->fd, &seq, sizeof(seq));
    (void)n;
    killed->written = seq;
}

static void ignore_stuck(void *arg, bool is_stuck, const char *text)
{
    (void)arg, (void)is_stuck, (void)text;
}

/* Record seq, from 2: the steps of four streams, interleaved. */
static uint64_t step_of_seq(uint64_t seq)
{
    uint64_t i = seq - 2;
    return (i % 4) * 100000000 + i / 4;
}

/* Posts single steps with a window that keeps the commits coming, until killed. */
static _Noreturn void post_until_killed(const char *dir, int fd)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* when the test itself is ended for its time */
    struct killed killed = {.fd = fd};
    struct ledger_callbacks callbacks = {tell_written, ignore_stuck, &killed};
    struct ledger *ledger = NULL;
    uint64_t start;
    struct err err = {0};
    if (ledger_open(dir, &callbacks, &ledger, &start, &err) != ERR_OK)
        _exit(1);
    ledger_begin(ledger);
    struct core_record record = job_record(1);
    record.seq = 1;
    ledger_post(ledger, &record, 1);
    for (uint64_t seq = 2;; seq++) {
        while (seq - killed.written > 2000)
            sched_yield();
        record = acked_record(1, step_of_seq(seq), step_of_seq(seq));
        record.seq = seq;
        ledger_post(ledger, &record, 1);
    }
}

TEST(what_was_confirmed_is_there_after_kill_9_at_any_moment)
{
    for (uint64_t round = 0; round < 8; round++) {
        AUTO_MEM char *dir = base_asprintf("%s/%llu", test_dir(), (unsigned long long)round);
        CHECK(mkdir(dir, 0700) == 0);
        int fds[2];
        CHECK(pipe(fds) == 0);
        pid_t pid = fork();
        if (pid == 0)
            post_until_killed(dir, fds[1]);
        close(fds[1]);
        /* Kill after a drawn number of commits, plus a drawn part of the next. */
        uint64_t commits = 1 + rand_u64(rand_key(round, RAND_TEST, 0, 0), 0) % 12;
        uint64_t confirmed = 0;
        for (uint64_t i = 0; i < commits; i++)
            CHECK(read(fds[0], &confirmed, sizeof(confirmed)) == sizeof(confirmed));
        for (volatile uint64_t spin = 0;
             spin < rand_u64(rand_key(round, RAND_TEST, 1, 0), 0) % 400000;)
            spin = spin + 1;
        kill(pid, SIGKILL);
        CHECK(waitpid(pid, NULL, 0) == pid);
        uint64_t seq;
        while (read(fds[0], &seq, sizeof(seq)) == sizeof(seq))
            confirmed = seq;
        close(fds[0]);

        struct dump *dump = reload(dir);
        for (seq = 2; seq <= confirmed; seq++)
            CHECK(ranges_has(&dump->acked, step_of_seq(seq)));
        /* A transaction is whole: the first unwritten step ends all four streams within one of each
         * other. */
        uint64_t total = ranges_total(&dump->acked);
        for (seq = 2; seq < 2 + total; seq++)
            CHECK(ranges_has(&dump->acked, step_of_seq(seq)));
        CHECK(dump->acked_records <= 4);
        dump_free(dump);
    }
}

static void fill_until_stuck(const char *dir, struct heard *heard, struct ledger **ret_ledger,
                             uint64_t *ret_seq)
{
    uint64_t start;
    struct ledger *ledger = open_ok(dir, heard, &start);
    ledger_begin(ledger);
    struct core_record record = job_record(1);
    record.seq = 1;
    ledger_post(ledger, &record, 1);
    uint64_t seq = 1;
    bool is_stuck = false;
    while (!is_stuck && seq < 400000) {
        for (int i = 0; i < 2000; i++) {
            seq++;
            record = acked_record(1, 2 * seq, 2 * seq); /* no two touch: each is a row */
            record.seq = seq;
            ledger_post(ledger, &record, 1);
        }
        struct timespec at;
        clock_gettime(CLOCK_REALTIME, &at);
        at.tv_sec += 10;
        pthread_mutex_lock(&heard->lock);
        int rc = 0;
        while (rc == 0 && heard->written < seq && !heard->is_stuck)
            rc = pthread_cond_timedwait(&heard->changed, &heard->lock, &at);
        is_stuck = heard->is_stuck;
        pthread_mutex_unlock(&heard->lock);
        CHECK(rc == 0);
    }
    CHECK(is_stuck);
    *ret_ledger = ledger;
    *ret_seq = seq;
}

static void check_all_there(const char *dir, uint64_t seq)
{
    struct dump *dump = reload(dir);
    CHECK_U64(ranges_total(&dump->acked), seq - 1);
    for (uint64_t s = 2; s <= seq; s++)
        CHECK(ranges_has(&dump->acked, 2 * s));
    dump_free(dump);
}

/* Posts more while stuck, makes room, and finds everything written. */
static void check_recovers(const char *dir, void (*make_room)(void))
{
    struct heard *heard = heard_new();
    struct ledger *ledger;
    uint64_t seq;
    fill_until_stuck(dir, heard, &ledger, &seq);
    CHECK(strstr(heard->stuck_text, "ledger.db") != NULL);
    uint64_t written = heard->written;
    CHECK(written < seq);
    for (int i = 0; i < 100; i++) {
        struct core_record record = acked_record(1, 2 * (seq + 1), 2 * (seq + 1));
        record.seq = ++seq;
        ledger_post(ledger, &record, 1);
    }
    make_room();
    CHECK(wait_heard(heard, seq, 0, 10));
    CHECK_U64(heard->stuck_count, 1); /* said once, however often it was tried */
    ledger_close(ledger, 1000);
    heard_free(heard);
    check_all_there(dir, seq);
}

static const char *full_mount;

static void remove_ballast(void)
{
    AUTO_MEM char *path = base_asprintf("%s/ballast", full_mount);
    CHECK(unlink(path) == 0);
}

TEST_LIMIT(a_full_disk_is_said_once_and_nothing_is_lost_when_space_is_back, 40)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        test_skip("no mount namespace of its own: %s", strerror(errno));
    AUTO_MEM char *dir = base_asprintf("%s/full", test_dir());
    CHECK(mkdir(dir, 0700) == 0);
    if (mount("tmpfs", dir, "tmpfs", 0, "size=6m") != 0)
        test_skip("cannot mount a tmpfs: %s", strerror(errno));
    full_mount = dir;
    AUTO_MEM char *path = base_asprintf("%s/ballast", dir);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && posix_fallocate(fd, 0, 5 << 20) == 0);
    close(fd);
    log_set_level(LOG_ERROR);
    check_recovers(dir, remove_ballast);
    CHECK(umount2(dir, MNT_DETACH) == 0);
}

static void raise_file_size(void)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static void lower_file_size(rlim_t bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = bytes;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

TEST_LIMIT(a_file_size_limit_is_treated_like_a_full_disk, 40)
{
    lower_file_size(256 << 10);
    check_recovers(test_dir(), raise_file_size);
}

TEST(closing_a_stuck_ledger_ends_by_its_deadline_and_leaves_what_was_confirmed)
{
    lower_file_size(256 << 10);
    struct heard *heard = heard_new();
    struct ledger *ledger;
    uint64_t seq;
    fill_until_stuck(test_dir(), heard, &ledger, &seq);
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    ledger_close(ledger, 300);
    clock_gettime(CLOCK_MONOTONIC, &after);
    CHECK(after.tv_sec - before.tv_sec < 5);
    uint64_t written = heard->written;
    heard_free(heard);
    raise_file_size();
    struct dump *dump = reload(test_dir());
    CHECK_U64(ranges_total(&dump->acked), written - 1);
    dump_free(dump);
}

TEST(close_writes_what_was_posted)
{
    struct heard *heard = heard_new();
    uint64_t start;
    struct ledger *ledger = open_ok(test_dir(), heard, &start);
    ledger_begin(ledger);
    struct core_record records[] = {job_record(1), acked_record(1, 5, 9)};
    ledger_post(ledger, records, 2);
    ledger_close(ledger, 2000);
    heard_free(heard);
    struct dump *dump = reload(test_dir());
    CHECK_U64(ranges_total(&dump->acked), 5);
    dump_free(dump);
}

/* ---- refusals
 * ------------------------------------------------------------------------------------ */

static enum err_code open_code(const char *dir, struct err *err)
{
    struct ledger_callbacks callbacks = {tell_written, ignore_stuck, NULL};
    struct ledger *ledger = NULL;
    uint64_t start = 77;
    enum err_code code = ledger_open(dir, &callbacks, &ledger, &start, err);
    if (code != ERR_OK) {
        CHECK(!ledger && start == 77);
    } else {
        ledger_close(ledger, 100);
    }
    return code;
}

TEST(a_second_coordinator_on_the_same_directory_is_refused)
{
    struct err err = {0};
    struct heard *heard = heard_new();
    uint64_t start;
    struct ledger *ledger = open_ok(test_dir(), heard, &start);
    CHECK(open_code(test_dir(), &err) == ERR_EXISTS);
    CHECK(strstr(err.text, test_dir()) && strstr(err.text, "another coordinator"));
    ledger_close(ledger, 100);
    heard_free(heard);
    CHECK_OK(open_code(test_dir(), &err));
}

static void write_db(const char *text, const char *sql)
{
    AUTO_MEM char *path = base_asprintf("%s/ledger.db", test_dir());
    unlink(path);
    if (text) {
        int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        CHECK(fd >= 0);
        for (int i = 0; i < 200; i++)
            CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
        close(fd);
        return;
    }
    sqlite3 *db;
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
}

TEST(what_is_not_our_ledger_is_refused_by_name_and_left_as_it_was)
{
    struct err err = {0};
    write_db("not a database at all. ", NULL);
    CHECK(open_code(test_dir(), &err) == ERR_CORRUPT);
    CHECK(strstr(err.text, "ledger.db") && strstr(err.text, "not a database"));

    write_db(NULL, "CREATE TABLE songs(name TEXT); INSERT INTO songs VALUES('x')");
    CHECK(open_code(test_dir(), &err) == ERR_CORRUPT);
    CHECK(strstr(err.text, "ledger.db") && strstr(err.text, "another program"));

    write_db(NULL, "PRAGMA application_id = 42; CREATE TABLE t(x)");
    CHECK(open_code(test_dir(), &err) == ERR_CORRUPT);
    CHECK(strstr(err.text, "0x0000002a"));
    AUTO_MEM char *wal = base_asprintf("%s/ledger.db-wal", test_dir());
    CHECK(access(wal, F_OK) != 0);
}

TEST(a_newer_schema_and_a_foreign_schema_under_our_name_are_refused)
{
    struct err err = {0};
    write_db(NULL,
             "PRAGMA application_id = 0x53464c44; PRAGMA user_version = 9; CREATE TABLE t(x)");
    CHECK(open_code(test_dir(), &err) == ERR_CORRUPT);
    CHECK(strstr(err.text, "ledger.db") && strstr(err.text, "version 9"));

    write_db(NULL,
             "PRAGMA application_id = 0x53464c44; PRAGMA user_version = 1; CREATE TABLE t(x)");
    CHECK(open_code(test_dir(), &err) == ERR_CORRUPT);
    CHECK(strstr(err.text, "ledger.db"));
}

/* As the first version made them. */
static const char schema_1[] =
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE jobs(job INTEGER PRIMARY KEY, name TEXT, spec TEXT, resume INTEGER NOT NULL,"
    " first INTEGER NOT NULL, last INTEGER NOT NULL, number2 INTEGER NOT NULL,"
    " wall_ms INTEGER NOT NULL, state INTEGER, reason TEXT, state_ms INTEGER,"
    " generation INTEGER, servers TEXT,"
    " reissues INTEGER NOT NULL DEFAULT 0, images INTEGER NOT NULL DEFAULT 0,"
    " duplicates INTEGER, reissues_end INTEGER, lost INTEGER, repeated INTEGER);"
    "CREATE TABLE acked(job INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,"
    " PRIMARY KEY(job, first)) WITHOUT ROWID;"
    "CREATE TABLE abandoned(job INTEGER NOT NULL, step INTEGER NOT NULL, attempts INTEGER"
    " NOT NULL, code TEXT, words TEXT, PRIMARY KEY(job, step)) WITHOUT ROWID;"
    "CREATE TABLE evals(job INTEGER NOT NULL, epoch INTEGER NOT NULL, step INTEGER NOT NULL,"
    " loss REAL, accuracy REAL, PRIMARY KEY(job, epoch)) WITHOUT ROWID;"
    "CREATE TABLE ckpts(job INTEGER NOT NULL, number INTEGER NOT NULL, step INTEGER NOT NULL,"
    " path TEXT, PRIMARY KEY(job, number)) WITHOUT ROWID;"
    "CREATE TABLE finals(job INTEGER NOT NULL, server TEXT NOT NULL, shard INTEGER NOT NULL,"
    " applied INTEGER NOT NULL, bytes INTEGER NOT NULL, PRIMARY KEY(job, server, shard))"
    " WITHOUT ROWID;"
    "INSERT INTO meta VALUES('start', 0);"
    "INSERT INTO meta VALUES('ledger', random() & 9223372036854775807 | 1);";

TEST(a_ledger_of_the_first_version_opens_and_counts_on)
{
    struct err err = {0};
    AUTO_MEM char *sql = base_asprintf(
        "PRAGMA application_id = 0x53464c44; PRAGMA user_version = 1; %s"
        "INSERT INTO jobs(job, name, spec, resume, first, last, number2, wall_ms, state, reason,"
        " state_ms, generation, servers, reissues, images)"
        " VALUES(1, 'a', '{}', 0, 10, 20, 0, 77, 1, 'why', 88, 3, 'ps:0/1', 4, 640);"
        "INSERT INTO acked VALUES(1, 5, 9);",
        schema_1);
    write_db(NULL, sql);
    for (int opened = 0; opened < 2; opened++) { /* once changed it is one of ours */
        AUTO(ledger_db) db = NULL;
        AUTO_MEM char *path = base_asprintf("%s/ledger.db", test_dir());
        CHECK_OK(ledger_db_open(path, &db, &err));
        if (!opened) {
            struct core_record records[] = {{.seq = 1,
                                             .kind = CORE_REC_ISSUED,
                                             .job = 1,
                                             .first = 8,
                                             .last = 12,
                                             .number = 5,
                                             .number2 = 640},
                                            {.seq = 2,
                                             .kind = CORE_REC_ISSUED,
                                             .job = 1,
                                             .first = 13,
                                             .last = 13,
                                             .number = 6,
                                             .number2 = 640}};
            CHECK_OK(ledger_db_apply(db, records, 2, &err));
        }
        struct dump *dump = base_alloc(sizeof(*dump));
        CHECK_OK(ledger_db_load(db, dump_record, dump, &err));
        AUTO_MEM char *issued = base_asprintf("%d job=1 8..13 6 640 ",
                                              CORE_REC_ISSUED); /* one range, the last counts */
        AUTO_MEM char *acked = base_asprintf("%d job=1 5..9 6 640 ", CORE_REC_ACKED);
        CHECK(strstr(dump->text, issued) && strstr(dump->text, acked));
        dump_free(dump);
    }
}

TEST(what_was_issued_stays_when_the_rest_is_forgotten)
{
    struct err err = {0};
    struct core_record records[] = {
        job_record(1),
        {.seq = 2, .kind = CORE_REC_ISSUED, .job = 1, .first = 3, .last = 7},
        acked_record(1, 5, 6),
        {.seq = 4, .kind = CORE_REC_RESET, .job = 1},
        {.seq = 5,
         .kind = CORE_REC_STATE,
         .job = 1,
         .number = 1,
         .number2 = 4711,
         .wall_ms = 4712}};
    AUTO(ledger_db) db = NULL;
    AUTO_MEM char *path = base_asprintf("%s/ledger.db", test_dir());
    CHECK_OK(ledger_db_open(path, &db, &err));
    CHECK_OK(ledger_db_apply(db, records, ARRAY_SIZE(records), &err));
    struct dump *dump = base_alloc(sizeof(*dump));
    CHECK_OK(ledger_db_load(db, dump_record, dump, &err));
    AUTO_MEM char *issued = base_asprintf("%d job=1 3..7 ", CORE_REC_ISSUED);
    CHECK(strstr(dump->text, issued) && dump->acked_records == 0);
    CHECK(strstr(dump->text, "4711 ms=4712")); /* when it first ran */
    dump_free(dump);
}

TEST(rows_that_no_record_can_have_made_are_refused_at_load)
{
    struct err err = {0};
    struct core_record records[] = {job_record(1), acked_record(1, 5, 9)};
    post_wait(test_dir(), records, 2);
    AUTO_MEM char *path = base_asprintf("%s/ledger.db", test_dir());
    sqlite3 *raw;
    CHECK(sqlite3_open(path, &raw) == SQLITE_OK);
    CHECK(sqlite3_exec(raw, "UPDATE acked SET last = 2", NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(raw);
    AUTO(ledger_db) db = NULL;
    CHECK_OK(ledger_db_open(path, &db, &err));
    struct dump *dump = base_alloc(sizeof(*dump));
    CHECK(ledger_db_load(db, dump_record, dump, &err) == ERR_CORRUPT);
    CHECK(strstr(err.text, "job 1") && strstr(err.text, "5..2"));
    dump_free(dump);
}

TEST(a_truncated_ledger_is_refused)
{
    struct err err = {0};
    struct core_record records[] = {job_record(1), acked_record(1, 5, 9)};
    post_wait(test_dir(), records, 2);
    AUTO_MEM char *path = base_asprintf("%s/ledger.db", test_dir());
    CHECK(truncate(path, 6000) == 0);
    CHECK(open_code(test_dir(), &err) == ERR_CORRUPT);
    CHECK(strstr(err.text, "ledger.db"));
}

TEST(a_missing_state_directory_is_named)
{
    struct err err = {0};
    AUTO_MEM char *dir = base_asprintf("%s/nowhere", test_dir());
    CHECK(open_code(dir, &err) == ERR_NOT_FOUND);
    CHECK(strstr(err.text, dir));
}

TEST(a_state_directory_that_cannot_be_written_is_named)
{
    struct err err = {0};
    CHECK(chmod(test_dir(), 0555) == 0);
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0)
        test_skip("cannot become a user without rights: %s", strerror(errno));
    CHECK(open_code(test_dir(), &err) == ERR_IO);
    CHECK(strstr(err.text, test_dir()) && strstr(err.text, "Permission denied"));
}
