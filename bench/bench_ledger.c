/* SPDX-License-Identifier: Apache-2.0 */
/* bench_ledger: how many acknowledged steps a second the ledger makes durable. Four workers' steps
 * arrive interleaved, one record a step, with a window of records not yet confirmed: of one (what a
 * commit costs) up to CORE_JOURNAL_MAX, as from the core.
 *
 *   bench_ledger [STATE_DIR [SECONDS]]   default: a directory under the working directory, 2 s
 */
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "coordinatord/ledger/ledger.h"

enum { WORKERS = 4, SLICE = 64 };

struct progress {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t written;
    uint64_t commits;
};

static void on_written(void *arg, uint64_t seq)
{
    struct progress *progress = arg;
    pthread_mutex_lock(&progress->lock);
    progress->written = seq;
    progress->commits++;
    pthread_cond_signal(&progress->changed);
    pthread_mutex_unlock(&progress->lock);
}

static void on_stuck(void *arg, bool is_stuck, const char *text)
{
    (void)arg;
    if (is_stuck)
        fprintf(stderr, "bench_ledger: %s\n", text);
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

/* Posts for the time given with at most `window` records unconfirmed; prints one line. */
static int measure(const char *dir, uint64_t window, double seconds)
{
    struct progress progress = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                .changed = PTHREAD_COND_INITIALIZER};
    struct ledger_callbacks callbacks = {on_written, on_stuck, &progress};
    struct ledger *ledger = NULL;
    struct err err = {0};
    uint64_t start;
    if (ledger_open(dir, &callbacks, &ledger, &start, &err) != ERR_OK) {
        fprintf(stderr, "bench_ledger: %s\n", err.text);
        return 1;
    }
    ledger_begin(ledger);
    uint64_t seq = 1;
    uint64_t job = start; /* every measurement a job of its own */
    struct core_record record = {
        .kind = CORE_REC_JOB, .seq = seq, .job = job, .text = "bench", .text2 = "{}"};
    ledger_post(ledger, &record, 1);
    uint64_t begin_ns = clock_now_ns();
    uint64_t end_ns = begin_ns + (uint64_t)(seconds * 1e9);
    uint64_t next[WORKERS];
    for (uint64_t w = 0; w < WORKERS; w++)
        next[w] = w;
    struct core_record records[SLICE];
    size_t slice = (size_t)MIN(window, (uint64_t)SLICE);
    for (uint64_t turn = 0; clock_now_ns() < end_ns; turn++) {
        pthread_mutex_lock(&progress.lock);
        while (seq + slice - progress.written > window)
            pthread_cond_wait(&progress.changed, &progress.lock);
        pthread_mutex_unlock(&progress.lock);
        /* One message of reports: a run of the steps that this worker was given. */
        uint64_t worker = turn % WORKERS;
        for (size_t i = 0; i < slice; i++) {
            records[i] = (struct core_record){.kind = CORE_REC_ACKED,
                                              .seq = ++seq,
                                              .job = job,
                                              .first = next[worker],
                                              .last = next[worker]};
            next[worker] += WORKERS;
        }
        ledger_post(ledger, records, slice);
    }
    pthread_mutex_lock(&progress.lock);
    while (progress.written < seq)
        pthread_cond_wait(&progress.changed, &progress.lock);
    double elapsed_s = (double)(clock_now_ns() - begin_ns) / 1e9;
    uint64_t commits = progress.commits;
    pthread_mutex_unlock(&progress.lock);
    ledger_close(ledger, 1000);
    double steps = (double)(seq - 1);
    printf(
        "ledger  window %6llu  %9.0f acknowledged steps/s  %6.0f commits/s  %8.1f records/commit\n",
        (unsigned long long)window, steps / elapsed_s, (double)commits / elapsed_s,
        steps / (double)commits);
    return 0;
}

int main(int argc, char **argv)
{
    char own[] = "bench-ledger-XXXXXX";
    const char *dir = argc > 1 ? argv[1] : mkdtemp(own);
    double seconds = argc > 2 ? atof(argv[2]) : 2;
    if (!dir) {
        perror("bench_ledger: mkdtemp");
        return 1;
    }
    static const uint64_t windows[] = {1, 64, 1024, CORE_JOURNAL_MAX};
    int rc = 0;
    for (size_t i = 0; i < ARRAY_SIZE(windows) && rc == 0; i++)
        rc = measure(dir, windows[i], seconds);
    if (argc <= 1)
        nftw(own, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    return rc;
}
