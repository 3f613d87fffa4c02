/* SPDX-License-Identifier: Apache-2.0 */
/* inbox: a stack that is taken whole and turned round, and one uv_async for it. */
#include "common/loop/inbox.h"

#include <stdatomic.h>
#include <stdlib.h>

struct inbox {
    uv_async_t wake; /* first: uv_close hands the handle back */
    _Atomic(struct inbox_msg *) newest;
};

static void drain(uv_async_t *handle)
{
    struct inbox *inbox = (struct inbox *)handle;
    struct inbox_msg *msg = atomic_exchange_explicit(&inbox->newest, NULL, memory_order_acquire);
    struct inbox_msg *oldest = NULL;
    while (msg) {
        struct inbox_msg *next = msg->next;
        msg->next = oldest;
        oldest = msg;
        msg = next;
    }
    while (oldest) {
        msg = oldest;
        oldest = msg->next;
        msg->on_loop(msg);
    }
}

struct inbox *inbox_new(uv_loop_t *loop)
{
    struct inbox *inbox = base_alloc(sizeof(*inbox));
    int rc = uv_async_init(loop, &inbox->wake, drain);
    ASSERT(rc == 0);
    return inbox;
}

static void free_handle(uv_handle_t *handle)
{
    free(handle);
}

void inbox_free(struct inbox *inbox)
{
    if (!inbox)
        return;
    ASSERT(!atomic_load(&inbox->newest));
    uv_close((uv_handle_t *)&inbox->wake, free_handle);
}

void inbox_post(struct inbox *inbox, struct inbox_msg *msg)
{
    struct inbox_msg *head = atomic_load_explicit(&inbox->newest, memory_order_relaxed);
    do {
        msg->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&inbox->newest, &head, msg,
                                                    memory_order_release, memory_order_relaxed));
    if (!head)
        uv_async_send(&inbox->wake);
}
