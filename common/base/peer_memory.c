/* SPDX-License-Identifier: Apache-2.0 */
/* peer_memory: process_vm_readv, then a look at the seal. */
#include "common/base/peer_memory.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/tsan.h"

#define IOV_BATCH 256 /* pieces a system call; IOV_MAX is 1,024 */

static bool is_disabled;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint8_t secret[PEER_SECRET_BYTES];

/* Between this process and another one, where the thread sanitizer, which has no fences, does not
 * look. */
static void fence(void)
{
#if !HAS_TSAN
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

static void draw(void *bytes, size_t count)
{
    ssize_t got = getrandom(bytes, count, 0);
    ASSERT(got == (ssize_t)count); /* up to 256 bytes are never cut short */
}

static void draw_secret(void)
{
    draw(secret, sizeof(secret));
}

void peer_memory_enable(bool enabled)
{
    is_disabled = !enabled;
}

struct peer_ref peer_memory_self(void)
{
    if (is_disabled)
        return (struct peer_ref){0};
    pthread_once(&once, draw_secret);
    return (struct peer_ref){.pid = (uint32_t)getpid(), .secret_address = (uintptr_t)secret};
}

bool peer_memory_is_our_secret(const void *bytes, size_t count)
{
    pthread_once(&once, draw_secret);
    return !is_disabled && count == sizeof(secret) && memcmp(bytes, secret, count) == 0;
}

static enum err_code read_all(uint32_t pid, const struct iovec *iov, size_t iov_count,
                              uint64_t address, struct err *err)
{
    size_t bytes = 0;
    for (size_t i = 0; i < iov_count; i++)
        bytes += iov[i].iov_len;
    struct iovec remote = {.iov_base = (void *)(uintptr_t)address, .iov_len = bytes};
    ssize_t got = process_vm_readv((pid_t)pid, iov, iov_count, &remote, 1, 0);
    if (got < 0)
        return err_set(err, ERR_UNAVAILABLE, "memory of process %u: %zu bytes: %s", pid, bytes,
                       strerror(errno));
    if ((size_t)got != bytes)
        return err_set(err, ERR_UNAVAILABLE, "memory of process %u: only %zd of %zu bytes", pid,
                       got, bytes);
    return ERR_OK;
}

bool peer_memory_secret_of(struct peer_ref peer, uint8_t ret_secret[PEER_SECRET_BYTES])
{
    if (is_disabled || peer.pid == 0)
        return false;
    uint8_t got[PEER_SECRET_BYTES];
    struct iovec local = {.iov_base = got, .iov_len = sizeof(got)};
    if (read_all(peer.pid, &local, 1, peer.secret_address, NULL) != ERR_OK)
        return false;
    memcpy(ret_secret, got, sizeof(got));
    return true;
}

void peer_seal_init(struct peer_seal *seal)
{
    uint64_t value;
    draw(&value, sizeof(value));
    __atomic_store_n(&seal->value, value | 1, __ATOMIC_SEQ_CST);
}

void peer_seal_break(struct peer_seal *seal)
{
    /* By 2, so that it is never 0. The fence keeps the writes that follow behind it. */
    __atomic_add_fetch(&seal->value, 2, __ATOMIC_SEQ_CST);
    fence();
}

void peer_seal_end(struct peer_seal *seal)
{
    __atomic_store_n(&seal->value, 0, __ATOMIC_SEQ_CST);
    fence();
}

enum err_code peer_memory_read(const struct peer_loan *loan, const struct iovec *iov,
                               size_t iov_count, struct err *err)
{
    if (is_disabled || loan->pid == 0)
        return err_set(err, ERR_UNAVAILABLE, "memory of other processes is not read here");
    uint64_t address = loan->address;
    for (size_t at = 0; at < iov_count; at += IOV_BATCH) {
        size_t count = MIN(iov_count - at, (size_t)IOV_BATCH);
        enum err_code code = read_all(loan->pid, iov + at, count, address, err);
        if (code != ERR_OK)
            return code;
        for (size_t i = 0; i < count; i++)
            address += iov[at + i].iov_len;
    }
    /* The owner breaks the seal, then writes; so we copy, then look at the seal. */
    fence();
    uint64_t seal = 0;
    struct iovec local = {.iov_base = &seal, .iov_len = sizeof(seal)};
    enum err_code code = read_all(loan->pid, &local, 1, loan->seal_address, err);
    if (code == ERR_OK && seal != loan->seal)
        code = err_set(err, ERR_UNAVAILABLE, "memory of process %u: used for other things by now",
                       loan->pid);
    return code;
}
