/* SPDX-License-Identifier: Apache-2.0 */
/* input_pool: the threads that read and decode, so that neither loop nor device waits for a disk.
 *
 * Owns    its threads. A submitted task belongs to the pool until on_done is called.
 * Thread  submit, new and free on the loop's; run on an input thread; on_done on the loop's.
 * Bounds  a task lives in its slot or job, so there are never more than those.
 */
#ifndef WORKERD_INPUT_INPUT_POOL_H
#define WORKERD_INPUT_INPUT_POOL_H

#include "common/base/base.h"
#include "common/loop/inbox.h"
#include "common/loop/task_thread.h"

struct input_pool;

struct input_task {
    struct task task; /* first member: the thread hands it back */
    struct inbox_msg done;
    struct input_pool *pool;
    void (*run)(struct input_task *task);
    void (*on_done)(struct input_task *task); /* may free or submit it again */
};

struct input_pool *input_pool_new(struct inbox *inbox, uint32_t thread_count);
/* Runs what was submitted, then joins. Their on_done are still to come: run the loop before freeing
 * the inbox. */
void input_pool_free(struct input_pool *pool);
DEFINE_AUTO(input_pool)
void input_pool_submit(struct input_pool *pool, struct input_task *task);

#endif
