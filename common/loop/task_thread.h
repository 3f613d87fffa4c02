/* SPDX-License-Identifier: Apache-2.0 */
/* task_thread: a thread that runs tasks from a bounded box, one after another, in the order of
 * posting.
 *
 * Owns    a posted task belongs to the thread until its run function was called, which owns it
 *         from then on.
 * Thread  post from any. task_thread_free closes the box, lets the thread run what is in it, and
 *         joins; the posters have stopped before that.
 * Errors  ERR_FULL: the poster keeps the task. ERR_CANCELLED: closing.
 */
#ifndef COMMON_LOOP_TASK_THREAD_H
#define COMMON_LOOP_TASK_THREAD_H

#include "common/loop/mbox.h"

struct task_thread;

struct task {
    struct mbox_msg msg; /* first member */
    void (*run)(struct task *task);
};

struct task_thread *task_thread_new(const char *name /* at most 15 characters */, size_t capacity);
/* Closes the box, lets the thread run what is in it, and joins. Posting stays possible and is
 * refused. */
void task_thread_stop(struct task_thread *thread);
void task_thread_free(struct task_thread *thread); /* stops it, if that was not done */
DEFINE_AUTO(task_thread)
MUST_CHECK enum err_code task_thread_post(struct task_thread *thread, struct task *task);
/* Ignores the bound: for what was admitted elsewhere. Only ERR_CANCELLED is left. */
MUST_CHECK enum err_code task_thread_post_always(struct task_thread *thread, struct task *task);

#endif
