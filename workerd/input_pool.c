/* SPDX-License-Identifier: Apache-2.0 */
/* input_pool: a box and a thread each; tasks go round. */
#include "workerd/input_pool.h"

#include <pthread.h>
#include <stdlib.h>

#define BOX_CAPACITY 1024 /* not a bound: tasks are bounded by their owners and posted always */

struct input_thread {
    struct input_pool *pool;
    struct mbox *box;
    pthread_t thread;
};

struct input_pool {
    struct inbox *inbox;
    struct input_thread *threads;
    uint32_t thread_count;
    uint32_t next;
};

static void on_done_msg(struct inbox_msg *msg)
{
    struct input_task *task = CONTAINER_OF(msg, struct input_task, done);
    task->on_done(task);
}

static void *run_thread(void *arg)
{
    struct input_thread *self = arg;
    struct mbox_msg *msg;
    while ((msg = mbox_take(self->box, UINT64_MAX)) != NULL) {
        struct input_task *task = (struct input_task *)msg;
        task->run(task);
        inbox_post(self->pool->inbox, &task->done);
    }
    return NULL;
}

struct input_pool *input_pool_new(struct inbox *inbox, uint32_t thread_count)
{
    ASSERT(thread_count > 0);
    struct input_pool *pool = base_alloc(sizeof(*pool));
    pool->inbox = inbox;
    pool->thread_count = thread_count;
    pool->threads = base_alloc(thread_count * sizeof(*pool->threads));
    for (uint32_t i = 0; i < thread_count; i++) {
        struct input_thread *thread = &pool->threads[i];
        thread->pool = pool;
        thread->box = mbox_new(BOX_CAPACITY);
        int rc = pthread_create(&thread->thread, NULL, run_thread, thread);
        ASSERT(rc == 0 && "the system refuses a thread at start");
        pthread_setname_np(thread->thread, "input");
    }
    return pool;
}

void input_pool_free(struct input_pool *pool)
{
    if (!pool)
        return;
    for (uint32_t i = 0; i < pool->thread_count; i++)
        mbox_close(pool->threads[i].box);
    for (uint32_t i = 0; i < pool->thread_count; i++) {
        pthread_join(pool->threads[i].thread, NULL);
        mbox_free(pool->threads[i].box);
    }
    free(pool->threads);
    free(pool);
}

void input_pool_submit(struct input_pool *pool, struct input_task *task)
{
    task->pool = pool;
    task->done.on_loop = on_done_msg;
    enum err_code code = mbox_post_always(pool->threads[pool->next].box, &task->msg);
    ASSERT(code == ERR_OK); /* the pool is not being freed */
    pool->next = (pool->next + 1) % pool->thread_count;
}
