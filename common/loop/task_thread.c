/* SPDX-License-Identifier: Apache-2.0 */
/* task_thread: a box and the thread that empties it. */
#include "common/loop/task_thread.h"

#include <pthread.h>
#include <stdlib.h>

struct task_thread {
    struct mbox *box;
    pthread_t thread;
    bool is_joined;
};

static void *main_of(void *arg)
{
    struct task_thread *self = arg;
    struct mbox_msg *msg;
    while ((msg = mbox_take(self->box, UINT64_MAX))) {
        struct task *task = CONTAINER_OF(msg, struct task, msg);
        task->run(task);
    }
    return NULL;
}

struct task_thread *task_thread_new(const char *name, size_t capacity)
{
    struct task_thread *self = base_alloc(sizeof(*self));
    self->box = mbox_new(capacity);
    int rc = pthread_create(&self->thread, NULL, main_of, self);
    ASSERT(rc == 0);
    pthread_setname_np(self->thread, name);
    return self;
}

void task_thread_stop(struct task_thread *thread)
{
    if (thread->is_joined)
        return;
    mbox_close(thread->box);
    pthread_join(thread->thread, NULL);
    thread->is_joined = true;
}

void task_thread_free(struct task_thread *thread)
{
    if (!thread)
        return;
    task_thread_stop(thread);
    mbox_free(thread->box);
    free(thread);
}

enum err_code task_thread_post(struct task_thread *thread, struct task *task)
{
    return mbox_post(thread->box, &task->msg);
}

enum err_code task_thread_post_always(struct task_thread *thread, struct task *task)
{
    return mbox_post_always(thread->box, &task->msg);
}
