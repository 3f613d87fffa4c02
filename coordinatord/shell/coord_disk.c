/* SPDX-License-Identifier: Apache-2.0 */
/* coord_disk: what may take time, on a thread of its own. A task carries copies in and results out;
 * its answer runs on the loop. A task that met something used up (descriptors, memory, space), and
 * that is allowed to, is tried again every second: it waits in a list of the loop's.
 */
#include "common/base/log.h"
#include "coordinatord/shell/coord_int.h"

#define RETRY_MS 1000

static void post(struct disk_task *task)
{
    struct coord *coord = task->coord;
    if (task_thread_post_always(coord->disk, &task->task) != ERR_OK) {
        err_set(&task->err, ERR_CANCELLED, "the coordinator is stopping");
        task->answer(task);
    }
}

static bool wants_again(const struct disk_task *task)
{
    if (task->err.code == ERR_OK || !task->tries_left || task->coord->is_stopping)
        return false;
    return task->wants_again ? task->wants_again(task) : err_passes(task->err.code);
}

static void answer(void *arg)
{
    struct disk_task *task = arg;
    struct coord *coord = task->coord;
    if (!wants_again(task)) {
        task->answer(task);
        return;
    }
    if (!task->is_said)
        log_warn("disk.waiting", "tries=%u retry_ms=%d code=%s %s", task->tries_left, RETRY_MS,
                 err_name(task->err.code), task->err.text);
    task->is_said = true;
    task->tries_left--;
    task->err = (struct err){0};
    if (!coord->disk_waiting)
        loop_timer_once(coord->disk_timer, RETRY_MS);
    task->next = coord->disk_waiting;
    coord->disk_waiting = task;
}

static void run(struct task *base)
{
    struct disk_task *task = (struct disk_task *)base;
    task->work(task);
    rpc_env_post(task->coord->env, answer, task);
}

static void post_waiting(struct coord *coord)
{
    struct disk_task *task = coord->disk_waiting;
    coord->disk_waiting = NULL;
    while (task) {
        struct disk_task *next = task->next;
        post(task);
        task = next;
    }
}

static void on_timer(void *arg)
{
    post_waiting(arg);
}

void coord_disk_post(struct coord *coord, struct disk_task *take_task)
{
    take_task->task.run = run;
    take_task->coord = coord;
    post(take_task);
}

void coord_disk_init(struct coord *coord)
{
    coord->disk = task_thread_new("disk", 1024);
    coord->disk_timer = loop_timer_new(coord->loop, on_timer, coord);
}

void coord_disk_stop(struct coord *coord)
{
    loop_timer_stop(coord->disk_timer);
    task_thread_stop(coord->disk);
    post_waiting(coord); /* each is answered: cancelled */
}

void coord_disk_done(struct coord *coord)
{
    task_thread_free(coord->disk);
    loop_timer_free(coord->disk_timer);
}
