/* SPDX-License-Identifier: Apache-2.0 */
/* inbox: messages from any thread into the loop thread.
 *
 * Intrusive and without allocation: the message lives in the object that it is about. Posting is a
 * push on a lock-free list; only the first message of a turn wakes the loop, and a turn drains the
 * whole list, in the order of posting. The number of messages is bounded by the objects they live
 * in.
 *
 * Owns    its uv handle. A posted message belongs to the loop until its on_loop is called.
 * Thread  post from any; the rest on the loop's. Stop the posters before inbox_free.
 */
#ifndef COMMON_LOOP_INBOX_H
#define COMMON_LOOP_INBOX_H

#include <uv.h>

#include "common/base/base.h"

struct inbox;

struct inbox_msg {
    struct inbox_msg *next;
    void (*on_loop)(struct inbox_msg *msg); /* set before posting; may post or free the message */
};

struct inbox *inbox_new(uv_loop_t *loop);
/* Empty. Its handle is closed by a later turn of the loop. */
void inbox_free(struct inbox *inbox);
DEFINE_AUTO(inbox)
void inbox_post(struct inbox *inbox, struct inbox_msg *msg);

#endif
