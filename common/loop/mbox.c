/* SPDX-License-Identifier: Apache-2.0 */
/* mbox: a linked list under one lock; the receiver sleeps on a condition with a monotonic deadline.
 */
#include "common/loop/mbox.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/clock.h"

struct mbox {
    pthread_mutex_t lock; /* guards all below; a leaf: nothing is taken under it */
    pthread_cond_t filled;
    struct mbox_msg *head;
    struct mbox_msg **tail;
    size_t count;
    size_t capacity;
    bool is_closed;
};

struct mbox *mbox_new(size_t capacity)
{
    ASSERT(capacity > 0);
    struct mbox *box = base_alloc(sizeof(*box));
    box->capacity = capacity;
    box->tail = &box->head;
    pthread_mutex_init(&box->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&box->filled, &attr);
    pthread_condattr_destroy(&attr);
    return box;
}

void mbox_free(struct mbox *box)
{
    if (!box)
        return;
    ASSERT(!box->head);
    pthread_cond_destroy(&box->filled);
    pthread_mutex_destroy(&box->lock);
    free(box);
}

static enum err_code post(struct mbox *box, struct mbox_msg *msg, bool is_bounded)
{
    enum err_code code = ERR_OK;
    pthread_mutex_lock(&box->lock);
    if (box->is_closed) {
        code = ERR_CANCELLED;
    } else if (is_bounded && box->count >= box->capacity) {
        code = ERR_FULL;
    } else {
        msg->next = NULL;
        *box->tail = msg;
        box->tail = &msg->next;
        if (box->count++ == 0)
            pthread_cond_signal(&box->filled);
    }
    pthread_mutex_unlock(&box->lock);
    return code;
}

enum err_code mbox_post(struct mbox *box, struct mbox_msg *msg)
{
    return post(box, msg, true);
}

enum err_code mbox_post_always(struct mbox *box, struct mbox_msg *msg)
{
    return post(box, msg, false);
}

struct mbox_msg *mbox_take(struct mbox *box, uint64_t deadline_ns)
{
    pthread_mutex_lock(&box->lock);
    while (!box->head && !box->is_closed) {
        if (deadline_ns == UINT64_MAX) {
            pthread_cond_wait(&box->filled, &box->lock);
        } else {
            struct timespec ts = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
                                  .tv_nsec = (long)(deadline_ns % NS_PER_S)};
            if (pthread_cond_timedwait(&box->filled, &box->lock, &ts) != 0)
                break;
        }
    }
    struct mbox_msg *msg = box->head;
    if (msg) {
        box->head = msg->next;
        if (!box->head)
            box->tail = &box->head;
        box->count--;
        msg->next = NULL;
    }
    pthread_mutex_unlock(&box->lock);
    return msg;
}

void mbox_close(struct mbox *box)
{
    pthread_mutex_lock(&box->lock);
    box->is_closed = true;
    pthread_cond_broadcast(&box->filled);
    pthread_mutex_unlock(&box->lock);
}
