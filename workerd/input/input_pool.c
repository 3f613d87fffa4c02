/* SPDX-License-Identifier: Apache-2.0 */
/* input_pool: task threads that take turns, and the way back to the loop. */
#include "workerd/input/input_pool.h"

#include <stdlib.h>

#define BOX_CAPACITY 1024 /* not a bound: tasks are bounded by their owners and posted always */

struct input_pool {
    struct inbox *inbox;
    uint32_t thread_count;
    uint32_t next;
    struct task_thread *threads[];
};

struct input_pool *input_pool_new(struct inbox *inbox, uint32_t thread_count)
{
    ASSERT(thread_count > 0);
    struct input_pool *pool = base_alloc(sizeof(*pool) + thread_count * sizeof(pool->threads[0]));
    pool->inbox = inbox;
    pool->thread_count = thread_count;
    for (uint32_t i = 0; i < thread_count; i++)
        pool->threads[i] = task_thread_new("input", BOX_CAPACITY);
    return pool;
}

void input_pool_free(struct input_pool *pool)
{
    if (!pool)
        return;
    for (uint32_t i = 0; i < pool->thread_count; i++)
        task_thread_free(pool->threads[i]);
    free(pool);
}

static void on_done_msg(struct inbox_msg *msg)
{
    struct input_task *task = CONTAINER_OF(msg, struct input_task, done);
    task->on_done(task);
}

static void run_task(struct task *base)
{
    struct input_task *task = (struct input_task *)base;
    struct inbox *inbox = task->pool->inbox;
    task->run(task);
    inbox_post(inbox, &task->done); /* the last that we touch of it */
}

void input_pool_submit(struct input_pool *pool, struct input_task *task)
{
    task->pool = pool;
    task->task.run = run_task;
    task->done.on_loop = on_done_msg;
    enum err_code code = task_thread_post_always(pool->threads[pool->next], &task->task);
    ASSERT(code == ERR_OK); /* the pool is not being freed */
    pool->next = (pool->next + 1) % pool->thread_count;
}
