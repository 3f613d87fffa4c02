/* SPDX-License-Identifier: Apache-2.0 */
/* device_thread: the only thread that calls into one device.
 *
 * Requests run in the order of posting. A request that the thread has not begun can be taken back
 * from the loop thread; which of the two came first is decided by one atomic word:
 *
 *   DEVICE_WAITING --(device thread)--> DEVICE_BEGUN
 *                  --(loop thread)----> DEVICE_TAKEN_BACK: passes through without running
 *
 * A model's exec, and with it the backend's memory, is made with the first request that needs it,
 * so that a worker without work has none.
 *
 * Owns    the thread; the exec of each model from its first request to DEVICE_CLOSE.
 * Thread  new, post, take_back and free on the loop's; on_done on the loop's.
 * Bounds  requests live in their steps and jobs, which are bounded.
 * Errors  those of exec.h in request->err. A model whose exec cannot be made fails each request
 *         with that error.
 */
#ifndef WORKERD_STEP_DEVICE_THREAD_H
#define WORKERD_STEP_DEVICE_THREAD_H

#include <stdatomic.h>

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/loop/inbox.h"
#include "common/loop/task_thread.h"
#include "workerd/step/exec.h"

struct device_thread;
struct push;

/* One model on one device; embedded in the job. */
struct device_model {
    const struct graph *graph;
    uint32_t max_batch;
    struct exec *exec;   /* the device thread's */
    struct err exec_err; /* the device thread's: why there is none */
};

enum device_op { DEVICE_TRAIN, DEVICE_EVAL, DEVICE_CLOSE };
enum device_claim { DEVICE_WAITING, DEVICE_BEGUN, DEVICE_TAKEN_BACK };

struct device_request {
    struct task task; /* first member: the thread hands it back */
    struct inbox_msg done;
    struct device_thread *device;
    _Atomic(enum device_claim) claim;

    enum device_op op;
    struct device_model *model;
    uint64_t step;
    struct batch batch;
    const float *const *vars;
    float *const *grads;
    struct push *push; /* told of complete gradients; NULL: nobody is */
    void (*on_done)(struct device_request *request);

    struct err err;    /* code ERR_OK: the results are there */
    float loss_mean;   /* train */
    double loss_sum;   /* eval */
    uint32_t correct;  /* eval */
    uint64_t begun_ns; /* 0: taken back */
    uint64_t ended_ns;
};

struct device_options {
    const char *device; /* as exec_options; borrowed */
    uint32_t threads;
    const char *fake_script; /* borrowed */
};

struct device_thread *device_thread_new(struct inbox *inbox, const struct device_options *options);
/* Runs what was posted, then joins. Their on_done are still to come: run the loop before freeing
 * the inbox. */
void device_thread_free(struct device_thread *device);
DEFINE_AUTO(device_thread)
void device_thread_post(struct device_thread *device, struct device_request *request);
/* True: the request will not run; on_done still comes. */
bool device_request_take_back(struct device_request *request);

#endif
