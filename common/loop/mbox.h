/* SPDX-License-Identifier: Apache-2.0 */
/* mbox: a bounded box of messages into one thread that is not the loop (a shard, a device, a disk
 * writer).
 *
 * Intrusive: the message's first member is a struct mbox_msg. A posted message belongs to the
 * receiver. A full box says ERR_FULL and the poster keeps its message. Messages come out in the
 * order of posting.
 *
 * Thread  post from any, take from one. Join or stop the posters before mbox_free.
 */
#ifndef COMMON_LOOP_MBOX_H
#define COMMON_LOOP_MBOX_H

#include "common/base/base.h"
#include "common/base/err.h"

struct mbox;

struct mbox_msg {
    struct mbox_msg *next;
};

struct mbox *mbox_new(size_t capacity);
void mbox_free(struct mbox *box); /* empty and closed */
DEFINE_AUTO(mbox)
MUST_CHECK enum err_code mbox_post(struct mbox *box,
                                   struct mbox_msg *msg); /* ERR_FULL, ERR_CANCELLED (closed) */
/* Ignores the bound: for the answers to messages that were admitted under it. ERR_CANCELLED when
 * closed. */
MUST_CHECK enum err_code mbox_post_always(struct mbox *box, struct mbox_msg *msg);
/* Waits until deadline_ns (monotonic; UINT64_MAX: for ever, which a close ends). NULL: deadline, or
 * closed and empty. */
struct mbox_msg *mbox_take(struct mbox *box, uint64_t deadline_ns);
void mbox_close(struct mbox *box);

#endif
