/* SPDX-License-Identifier: Apache-2.0 */
/* coord_disk: what may take time, on a thread of its own. A task carries copies in and results out;
 * its answer runs on the loop. */
#include "coordinatord/shell/coord_int.h"

static void answer(void *arg)
{
    struct disk_task *task = arg;
    task->answer(task);
}

static void run(struct task *base)
{
    struct disk_task *task = (struct disk_task *)base;
    task->work(task);
    rpc_env_post(task->coord->env, answer, task);
}

void coord_disk_post(struct coord *coord, struct disk_task *take_task)
{
    take_task->task.run = run;
    take_task->coord = coord;
    if (task_thread_post_always(coord->disk, &take_task->task) != ERR_OK) {
        err_set(&take_task->err, ERR_CANCELLED, "the coordinator is stopping");
        take_task->answer(take_task);
    }
}
