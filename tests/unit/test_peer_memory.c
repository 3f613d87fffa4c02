/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/peer_memory.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness.h"

/* What a child tells its parent: who it is and what it lends. */
struct lent {
    struct peer_ref ref;
    struct peer_loan loan;
};

struct child {
    pid_t pid;
    int ask;  /* a byte here: break the seal and write anew; then it answers */
    int said; /* struct lent, then a byte an answer */
    struct lent lent;
};

#define LENT_BYTES ((size_t)3 << 20)

static _Noreturn void live(int ask, int said)
{
    uint8_t *bytes =
        mmap(NULL, LENT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static struct peer_seal seal;
    if (bytes == MAP_FAILED)
        _exit(1);
    for (size_t i = 0; i < LENT_BYTES; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 4096);
    peer_seal_init(&seal);
    struct lent lent = {.ref = peer_memory_self(),
                        .loan = {.pid = (uint32_t)getpid(),
                                 .address = (uintptr_t)bytes,
                                 .seal_address = (uintptr_t)&seal,
                                 .seal = seal.value}};
    char byte = 0;
    if (write(said, &lent, sizeof(lent)) != sizeof(lent))
        _exit(1);
    while (read(ask, &byte, 1) == 1) {
        if (byte == 'b') {
            peer_seal_break(&seal);
            memset(bytes, 0, LENT_BYTES);
        } else {
            peer_seal_end(&seal);
            munmap(bytes, LENT_BYTES);
        }
        if (write(said, &byte, 1) != 1)
            _exit(1);
    }
    _exit(0);
}

static struct child child_new(void)
{
    struct child child;
    int ask[2], said[2];
    CHECK(pipe(ask) == 0 && pipe(said) == 0);
    child.pid = fork();
    CHECK(child.pid >= 0);
    if (child.pid == 0) {
        close(ask[1]); /* so that the end of the parent is the end of the child */
        close(said[0]);
        live(ask[0], said[1]);
    }
    close(ask[0]);
    close(said[1]);
    child.ask = ask[1];
    child.said = said[0];
    CHECK(read(child.said, &child.lent, sizeof(child.lent)) == (ssize_t)sizeof(child.lent));
    return child;
}

static void child_tell(struct child *child, char byte)
{
    char answer;
    CHECK(write(child->ask, &byte, 1) == 1 && read(child->said, &answer, 1) == 1 && answer == byte);
}

static void child_end(struct child *child)
{
    close(child->ask);
    CHECK(waitpid(child->pid, NULL, 0) == child->pid);
    close(child->said);
}

static bool is_allowed(struct child *child)
{
    uint8_t secret[PEER_SECRET_BYTES];
    return peer_memory_secret_of(child->lent.ref, secret);
}

TEST(the_secret_of_a_child_can_be_read_and_is_not_ours)
{
    uint8_t secret[PEER_SECRET_BYTES];
    uint8_t ours[PEER_SECRET_BYTES];
    struct child child = child_new(); /* draws its own: ours is drawn later */
    if (!is_allowed(&child))
        test_skip("this system does not let a process read its child's memory");
    CHECK(peer_memory_secret_of(child.lent.ref, secret));
    CHECK(!peer_memory_is_our_secret(secret, sizeof(secret)));
    CHECK(peer_memory_secret_of(peer_memory_self(), ours));
    CHECK(peer_memory_is_our_secret(ours, sizeof(ours)));
    CHECK(!peer_memory_is_our_secret(ours, sizeof(ours) - 1));
    child_end(&child);
}

TEST(a_loan_is_copied_into_many_pieces_while_its_seal_holds)
{
    struct child child = child_new();
    if (!is_allowed(&child))
        test_skip("this system does not let a process read its child's memory");
    enum { PIECES = 1500 };
    struct err err;
    static struct iovec iov[PIECES];
    uint8_t *copy = base_alloc(LENT_BYTES);
    size_t piece = LENT_BYTES / PIECES, at = 0;
    for (size_t i = 0; i < PIECES; i++) { /* the pieces lie the other way round in our memory */
        size_t bytes = i + 1 < PIECES ? piece : LENT_BYTES - at;
        iov[i] = (struct iovec){.iov_base = copy + LENT_BYTES - at - bytes, .iov_len = bytes};
        at += bytes;
    }
    CHECK_OK(peer_memory_read(&child.lent.loan, iov, PIECES, &err));
    at = 0;
    for (size_t i = 0; i < PIECES; i++)
        for (size_t k = 0; k < iov[i].iov_len; k++, at++)
            CHECK(((uint8_t *)iov[i].iov_base)[k] == (uint8_t)(at * 7 + at / 4096));
    free(copy);
    child_end(&child);
}

TEST(a_broken_seal_a_returned_loan_and_a_dead_owner_are_unavailable)
{
    struct err err;
    uint8_t bytes[4096];
    struct iovec iov = {bytes, sizeof(bytes)};
    struct child child = child_new();
    if (!is_allowed(&child))
        test_skip("this system does not let a process read its child's memory");
    struct peer_loan loan = child.lent.loan;
    CHECK_OK(peer_memory_read(&loan, &iov, 1, &err));
    child_tell(&child, 'b');
    CHECK(peer_memory_read(&loan, &iov, 1, &err) == ERR_UNAVAILABLE);
    loan.seal += 2; /* the new one is as good as the old one was */
    CHECK_OK(peer_memory_read(&loan, &iov, 1, &err));
    child_tell(&child, 'e');
    CHECK(peer_memory_read(&loan, &iov, 1, &err) == ERR_UNAVAILABLE);
    kill(child.pid, SIGKILL);
    child_end(&child);
    CHECK(peer_memory_read(&loan, &iov, 1, &err) == ERR_UNAVAILABLE);
    CHECK(!is_allowed(&child));
}

TEST(a_process_that_lends_nothing_reads_nothing)
{
    struct err err;
    uint8_t bytes[16];
    struct iovec iov = {bytes, sizeof(bytes)};
    struct child child = child_new();
    peer_memory_enable(false);
    CHECK(peer_memory_self().pid == 0);
    CHECK(!peer_memory_secret_of(child.lent.ref, bytes));
    CHECK(peer_memory_read(&child.lent.loan, &iov, 1, &err) == ERR_UNAVAILABLE);
    CHECK(!peer_memory_is_our_secret(bytes, sizeof(bytes)));
    child_end(&child);
}
