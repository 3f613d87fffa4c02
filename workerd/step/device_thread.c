/* SPDX-License-Identifier: Apache-2.0 */
/* device_thread: a task thread and the calls of exec.h. */
#include "workerd/step/device_thread.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "workerd/exchange/push.h"

#define BOX_CAPACITY                                                                               \
    1024 /* not a bound: requests are bounded by their owners and posted always                    \
          */

struct device_thread {
    struct inbox *inbox;
    struct device_options options;
    struct task_thread *thread;
};

static enum err_code have_exec(struct device_thread *device, struct device_model *model,
                               struct err *err)
{
    if (model->exec)
        return ERR_OK;
    if (model->exec_err.code == ERR_OK) {
        struct exec_options options = {.device = device->options.device,
                                       .threads = device->options.threads,
                                       .fake_script = device->options.fake_script,
                                       .max_batch = model->max_batch};
        if (exec_new(model->graph, &options, &model->exec, &model->exec_err) == ERR_OK)
            return ERR_OK;
    }
    *err = model->exec_err;
    return err->code;
}

static void on_grad(size_t var_index, void *arg)
{
    struct device_request *request = arg;
    if (request->push)
        push_ready(request->push, var_index);
}

static void run_request(struct device_thread *device, struct device_request *request)
{
    request->begun_ns = clock_now_ns();
    struct err *err = &request->err;
    err->code = have_exec(device, request->model, err);
    if (err->code == ERR_OK && request->op == DEVICE_TRAIN)
        err->code = exec_train(request->model->exec, request->step, &request->batch, request->vars,
                               request->grads, on_grad, request, &request->loss_mean, err);
    else if (err->code == ERR_OK)
        err->code = exec_eval(request->model->exec, &request->batch, request->vars,
                              &request->loss_sum, &request->correct, err);
    request->ended_ns = clock_now_ns();
}

static void run_task(struct task *task)
{
    struct device_request *request = (struct device_request *)task;
    struct device_thread *device = request->device;
    enum device_claim waiting = DEVICE_WAITING;
    if (request->op == DEVICE_CLOSE)
        exec_free(TAKE(request->model->exec));
    else if (atomic_compare_exchange_strong(&request->claim, &waiting, DEVICE_BEGUN))
        run_request(device, request);
    inbox_post(device->inbox, &request->done); /* the last that we touch of it */
}

static void on_done_msg(struct inbox_msg *msg)
{
    struct device_request *request = CONTAINER_OF(msg, struct device_request, done);
    request->on_done(request);
}

struct device_thread *device_thread_new(struct inbox *inbox, const struct device_options *options)
{
    struct device_thread *device = base_alloc(sizeof(*device));
    device->inbox = inbox;
    device->options = *options;
    device->thread = task_thread_new("device", BOX_CAPACITY);
    return device;
}

void device_thread_free(struct device_thread *device)
{
    if (!device)
        return;
    task_thread_free(device->thread);
    free(device);
}

void device_thread_post(struct device_thread *device, struct device_request *request)
{
    request->device = device;
    request->task.run = run_task;
    request->done.on_loop = on_done_msg;
    request->err.code = ERR_OK;
    request->begun_ns = 0;
    request->ended_ns = 0;
    atomic_store(&request->claim, DEVICE_WAITING);
    enum err_code code = task_thread_post_always(device->thread, &request->task);
    ASSERT(code == ERR_OK); /* the thread is not being freed */
}

bool device_request_take_back(struct device_request *request)
{
    enum device_claim waiting = DEVICE_WAITING;
    return atomic_compare_exchange_strong(&request->claim, &waiting, DEVICE_TAKEN_BACK);
}
