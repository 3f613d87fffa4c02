/* SPDX-License-Identifier: Apache-2.0 */
/* ledger: group commit around ledger_db. Two batches change places: the loop fills one while the
 * writer thread commits the other, so a commit takes in whatever was posted during the one before
 * it.
 *
 *   idle --(posted)--> committing --(committed)--> idle or committing
 *   committing --(failed: said once)--> stuck --(a second later)--> committing the same batch again
 *   idle or stuck past the deadline --(closing)--> ended
 */
#include "coordinatord/ledger/ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinatord/ledger/ledger_db.h"

#define RETRY_MS   1000 /* a full disk is emptied by people */
#define OPEN_TRIES 10   /* a second apart; then whoever started us may say so and start us again */

struct batch {
    struct core_record *records; /* strings are the batch's own */
    size_t count;
    size_t capacity;
    uint64_t last_seq;
};

struct ledger {
    uint64_t id;
    char *dir;
    struct ledger_callbacks callbacks;
    struct ledger_db *db; /* the writer's between ledger_begin and the join */
    int lock_fd;
    pthread_t thread;
    bool is_begun;
    pthread_mutex_t lock; /* guards what follows up to committing */
    pthread_cond_t wake;  /* posted or closing; monotonic clock */
    struct batch posted;
    uint64_t close_ns; /* UINT64_MAX: not closing */
    bool is_closing;
    struct batch committing; /* the writer's alone */
};

/* ---- batches --------------------------------------------------------------------------------- */

static void batch_clear(struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        free((char *)batch->records[i].text);
        free((char *)batch->records[i].text2);
    }
    batch->count = 0;
}

/* Adds a record; an ACKED or ISSUED one that goes on where the last one of its job ended makes that one
 * longer. */
static void batch_add(struct batch *batch, const struct core_record *record)
{
    batch->last_seq = record->seq;
    bool is_range = record->kind == CORE_REC_ACKED || record->kind == CORE_REC_ISSUED;
    if (is_range && batch->count) {
        struct core_record *tail = &batch->records[batch->count - 1];
        if (tail->kind == record->kind && tail->job == record->job &&
            tail->last + 1 == record->first) {
            tail->seq = record->seq;
            tail->last = record->last;
            tail->number = record->number;
            tail->number2 = record->number2;
            return;
        }
    }
    if (batch->count == batch->capacity) {
        batch->capacity = MAX(batch->capacity * 2, (size_t)256);
        batch->records = base_realloc(batch->records, batch->capacity * sizeof(*batch->records));
    }
    struct core_record *copy = &batch->records[batch->count++];
    *copy = *record;
    copy->text = record->text ? base_strdup(record->text) : NULL;
    copy->text2 = record->text2 ? base_strdup(record->text2) : NULL;
}

/* ---- writer thread --------------------------------------------------------------------------- */

/* Waits with the lock held. */
static void wait_until(struct ledger *ledger, uint64_t deadline_ns)
{
    struct timespec at = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
                          .tv_nsec = (long)(deadline_ns % NS_PER_S)};
    pthread_cond_timedwait(&ledger->wake, &ledger->lock, &at);
}

/* Real time even where a test has put its own clock in: the condition variable knows no other. */
static uint64_t monotonic_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* Takes what was posted; false when closing and there is nothing more. */
static bool take_posted(struct ledger *ledger)
{
    pthread_mutex_lock(&ledger->lock);
    while (ledger->posted.count == 0 && !ledger->is_closing)
        pthread_cond_wait(&ledger->wake,
                          &ledger->lock); /* ended by post or close, both the loop's */
    struct batch taken = ledger->posted;
    ledger->posted = ledger->committing;
    ledger->committing = taken;
    pthread_mutex_unlock(&ledger->lock);
    return taken.count > 0;
}

/* Waits before the next try; false when the ledger closes and its deadline has passed. */
static bool wait_retry(struct ledger *ledger)
{
    uint64_t retry_ns = monotonic_ns() + RETRY_MS * NS_PER_MS;
    pthread_mutex_lock(&ledger->lock);
    bool was_closing = ledger->is_closing;
    for (;;) {
        uint64_t now_ns = monotonic_ns();
        if (ledger->is_closing && (now_ns >= ledger->close_ns || !was_closing))
            break; /* one last try at once when the close arrives, none after its deadline */
        if (now_ns >= retry_ns)
            break;
        wait_until(ledger, MIN(retry_ns, ledger->close_ns));
    }
    bool is_over = ledger->is_closing && was_closing && monotonic_ns() >= ledger->close_ns;
    pthread_mutex_unlock(&ledger->lock);
    return !is_over;
}

static bool commit_batch(struct ledger *ledger)
{
    struct batch *batch = &ledger->committing;
    bool is_stuck = false;
    for (;;) {
        struct err err = {0};
        if (ledger_db_apply(ledger->db, batch->records, batch->count, &err) == ERR_OK)
            break;
        if (!is_stuck) {
            log_error("ledger.stuck", "records=%zu retry_ms=%d err=\"%s\"", batch->count, RETRY_MS,
                      err.text);
            ledger->callbacks.on_stuck(ledger->callbacks.arg, true, err.text);
            is_stuck = true;
        }
        if (!wait_retry(ledger))
            return false;
    }
    uint64_t seq = batch->last_seq;
    batch_clear(batch);
    if (is_stuck) {
        log_warn("ledger.unstuck", "dir=\"%s\" seq=%" PRIu64, ledger->dir, seq);
        ledger->callbacks.on_stuck(ledger->callbacks.arg, false, "the ledger can be written again");
    }
    ledger->callbacks.on_written(ledger->callbacks.arg, seq);
    return true;
}

static void *write_loop(void *arg)
{
    struct ledger *ledger = arg;
    while (take_posted(ledger))
        if (!commit_batch(ledger))
            break;
    return NULL;
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* The lock is the open file's: the kernel drops it with the process, however that ends. */
static enum err_code lock_dir(struct ledger *ledger, struct err *err)
{
    AUTO_MEM char *path = base_asprintf("%s/ledger.lock", ledger->dir);
    ledger->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
    if (ledger->lock_fd < 0)
        return err_from_errno(err, errno, "state directory %s: cannot create ledger.lock",
                              ledger->dir);
    if (flock(ledger->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return ERR_OK;
    if (errno == EWOULDBLOCK)
        return err_set(err, ERR_EXISTS, "state directory %s: another coordinator holds ledger.lock",
                       ledger->dir);
    return err_from_errno(err, errno, "state directory %s: cannot lock ledger.lock", ledger->dir);
}

static void ledger_free(struct ledger *ledger)
{
    if (!ledger)
        return;
    batch_clear(&ledger->posted);
    batch_clear(&ledger->committing);
    free(ledger->posted.records);
    free(ledger->committing.records);
    ledger_db_free(ledger->db);
    base_close_fd(&ledger->lock_fd); /* after the database: the next one may open it at once */
    pthread_cond_destroy(&ledger->wake);
    pthread_mutex_destroy(&ledger->lock);
    free(ledger->dir);
    free(ledger);
}
DEFINE_AUTO(ledger)

/* The file, this start counted in it. */
static enum err_code open_db(struct ledger *ledger, uint64_t *ret_start, struct err *err)
{
    AUTO_MEM char *path = base_asprintf("%s/ledger.db", ledger->dir);
    enum err_code code = ledger->lock_fd >= 0 ? ERR_OK : lock_dir(ledger, err);
    if (code == ERR_OK)
        code = ledger_db_open(path, &ledger->db, err);
    if (code == ERR_OK)
        code = ledger_db_count_start(ledger->db, LIMIT_JOBS_KEPT, ret_start, &ledger->id, err);
    if (code == ERR_OK)
        return ERR_OK;
    ledger_db_free(ledger->db);
    ledger->db = NULL;
    return code;
}

enum err_code ledger_open(const char *state_dir, const struct ledger_callbacks *callbacks,
                          struct ledger **ret_ledger, uint64_t *ret_start, struct err *err)
{
    AUTO(ledger) ledger = base_alloc(sizeof(*ledger));
    ledger->dir = base_strdup(state_dir);
    ledger->callbacks = *callbacks;
    ledger->lock_fd = -1;
    ledger->close_ns = UINT64_MAX;
    pthread_mutex_init(&ledger->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&ledger->wake, &attr);
    pthread_condattr_destroy(&attr);

    enum err_code code = open_db(ledger, ret_start, err);
    for (int tried = 1; err_passes(code) && tried < OPEN_TRIES; tried++) {
        if (tried == 1)
            log_warn("ledger.waiting", "tries=%d retry_ms=%d err=\"%s\"", OPEN_TRIES, RETRY_MS,
                     err->text);
        struct timespec pause = {.tv_sec = RETRY_MS / 1000};
        nanosleep(&pause, NULL); /* before there is a loop that could wait */
        code = open_db(ledger, ret_start, err);
    }
    if (code != ERR_OK)
        return code;
    *ret_ledger = TAKE(ledger);
    return ERR_OK;
}

uint64_t ledger_id(const struct ledger *ledger)
{
    return ledger->id;
}

enum err_code ledger_load(struct ledger *ledger,
                          enum err_code (*on_record)(void *arg, const struct core_record *record,
                                                     struct err *err),
                          void *arg, struct err *err)
{
    ASSERT(!ledger->is_begun);
    return ledger_db_load(ledger->db, on_record, arg, err);
}

void ledger_begin(struct ledger *ledger)
{
    ASSERT(!ledger->is_begun);
    int rc = pthread_create(&ledger->thread, NULL, write_loop, ledger);
    ASSERT(rc == 0);
    ledger->is_begun = true;
}

void ledger_post(struct ledger *ledger, const struct core_record *records, size_t count)
{
    if (count == 0)
        return;
    pthread_mutex_lock(&ledger->lock);
    ASSERT(!ledger->is_closing);
    bool was_empty = ledger->posted.count == 0;
    for (size_t i = 0; i < count; i++)
        batch_add(&ledger->posted, &records[i]);
    pthread_mutex_unlock(&ledger->lock);
    if (was_empty)
        pthread_cond_signal(&ledger->wake);
}

void ledger_close(struct ledger *ledger, uint32_t deadline_ms)
{
    if (!ledger)
        return;
    pthread_mutex_lock(&ledger->lock);
    ledger->is_closing = true;
    ledger->close_ns = monotonic_ns() + deadline_ms * NS_PER_MS;
    pthread_mutex_unlock(&ledger->lock);
    if (ledger->is_begun) {
        pthread_cond_signal(&ledger->wake);
        pthread_join(ledger->thread, NULL);
    }
    size_t lost = ledger->posted.count + ledger->committing.count;
    if (lost)
        log_error("ledger.unwritten", "dir=\"%s\" records=%zu after_ms=%u", ledger->dir, lost,
                  deadline_ms);
    ledger_free(ledger);
}
