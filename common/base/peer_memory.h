/* SPDX-License-Identifier: Apache-2.0 */
/* peer_memory: reads the memory of another process on this machine (process_vm_readv), in place of
 * a way through the network that copies each byte three times.
 *
 * Two processes that talk anyway find out whether they may. Each holds a secret that never travels
 * unasked; a ref says where it lies. Who can read it proves, by saying it back, that it is on this
 * machine, in this name space of processes, and allowed by the kernel to look into us (same user;
 * no stricter ptrace_scope). Nobody else gets to name an address: a stranger on the network could
 * have us read, and give away, what is none of its business.
 *
 * What is lent out lies beside a seal, a word that changes before the memory is written anew. The
 * reader is told its value, copies, then looks at it again: unchanged, the copy is of what was
 * meant, whatever happened to its owner meanwhile (dead, number reused, the call given up). Seals
 * begin at a random number, so that other memory does not hold one by chance.
 *
 *   owner:   break the seal, write, tell address and seal      reader:  copy, compare the seal
 *
 * Owns    nothing. Thread: any; a seal is broken by its owner, one thread at a time.
 * Errors  ERR_UNAVAILABLE: it cannot be read (gone, not allowed, no such call on this system), or
 *         the seal was broken; take the other way.
 */
#ifndef COMMON_BASE_PEER_MEMORY_H
#define COMMON_BASE_PEER_MEMORY_H

#include <sys/uio.h>

#include "common/base/base.h"
#include "common/base/err.h"

#define PEER_SECRET_BYTES     16
#define PEER_MEMORY_MIN_BYTES 65536u /* less is sent as it is: about the cost of the messages */

struct peer_ref {
    uint32_t pid;
    uint64_t secret_address;
};

/* This process. enabled false: pid 0, which nobody reads. */
void peer_memory_enable(bool enabled); /* before threads; true unless called */
struct peer_ref peer_memory_self(void);
bool peer_memory_is_our_secret(const void *bytes, size_t count);
/* False: it cannot be read. */
bool peer_memory_secret_of(struct peer_ref peer, uint8_t ret_secret[PEER_SECRET_BYTES]);

struct peer_seal {
    uint64_t value; /* atomic; 0: what was lent is gone */
};
void peer_seal_init(struct peer_seal *seal);
/* Before the memory is written anew. */
void peer_seal_break(struct peer_seal *seal);
/* Before the memory is given back to the system. */
void peer_seal_end(struct peer_seal *seal);

struct peer_loan { /* as it travels */
    uint32_t pid;
    uint64_t address;
    uint64_t seal_address;
    uint64_t seal;
};
/* Copies iov's bytes, one piece after another, from loan->address on. */
MUST_CHECK enum err_code peer_memory_read(const struct peer_loan *loan, const struct iovec *iov,
                                          size_t iov_count, struct err *err);

#endif
