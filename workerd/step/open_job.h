/* SPDX-License-Identifier: Apache-2.0 */
/* open_job: all that this worker has for one job: the spec, the network, data sets, channels,
 * copies of variables and gradient arrays.
 *
 *   open_job_new --> OPENING --(input thread: spec, headers, graph, plan)--> READY
 *                                                           (something wrong)--> BROKEN
 *
 *   open_job_close from any state: nothing new is begun; freed by open_job_try_free when the last
 *   borrower is done.
 *
 * Two copies of the variables, for pulling ahead: one is pulled for the next step while the device
 * reads the other. Two sets of gradients: one is pushed while the device fills the other. What is
 * not used takes no memory, since its pages are never touched. A third copy holds the variables of
 * the pinned version that evaluation reads, made with the first evaluation ticket and kept for the
 * next ones of the same pin.
 *
 * Owns    everything in it.
 * Thread  the loop's; spec, graph and data sets are immutable once READY and read by device and
 *         input threads, too.
 * Errors  BROKEN with the code and text of the first thing that failed: the spec, a data file, the
 *         model, the plan, memory.
 */
#ifndef WORKERD_STEP_OPEN_JOB_H
#define WORKERD_STEP_OPEN_JOB_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/spec/data_order.h"
#include "common/spec/job_spec.h"
#include "proto/fleet.pb-c.h"
#include "workerd/exchange/exchange.h"
#include "workerd/input/input_pool.h"
#include "workerd/step/device_thread.h"

struct fault_hook;
struct input;
struct open_job;
struct pull;
struct push;
struct rpc_env;
struct stage;
struct step;

#define JOB_COPIES 2
#define JOB_STAGED 3 /* one computed, one ready, one being filled */

/* What a job borrows from the worker. */
struct job_env {
    struct loop *loop;
    struct inbox *inbox;
    struct rpc_env *rpc;
    struct input_pool *pool;
    struct device_thread *device;
    struct fault_hook *hook;      /* NULL: none */
    bool pulls_ahead;             /* see step_run.h */
    void (*on_change)(void *arg); /* something became free or ready: look at the steps again */
    void (*on_unborrowed)(struct open_job *job,
                          void *arg); /* closing: maybe open_job_try_free now */
    void *arg;
};

enum open_job_state { JOB_OPENING, JOB_READY, JOB_BROKEN };

struct job_copy {
    struct pull *pull;
    struct open_job *job;
    struct step
        *user; /* whom it is pulled for or read by; NULL: free unless the pull is still active */
};

struct job_push {
    struct push *push;
    struct open_job *job;
    struct step *user; /* whose gradients the device fills or the network carries */
    struct err err;    /* why the push of user ended early */
};

struct job_pinned {
    struct pull *pull; /* NULL: no evaluation yet */
    uint64_t pin;
    bool is_ready;
    uint32_t reader_count; /* steps on the device that read it */
};

struct open_job {
    uint64_t job;
    uint64_t generation;
    char *name;
    enum open_job_state state;
    bool is_closing;
    struct err err;
    const struct job_env *env;
    struct open_job *next; /* in the worker's list */

    struct job_spec *spec;
    struct graph *graph;
    struct input *train;
    struct input *eval; /* NULL: the job has none */
    struct data_order order;
    struct slice_map *map;
    bool *is_trainable;
    uint32_t max_batch;
    int32_t *no_labels; /* max_batch zeros, for a job without data */

    struct ps_links *links;
    struct exchange_env exchange_env;
    struct stage *stage;
    struct job_copy copies[JOB_COPIES];
    struct job_push pushes[JOB_COPIES];
    struct job_pinned pinned;
    uint32_t step_count;    /* steps that point here */
    uint32_t pushing_count; /* steps computed and not answered by every shard yet */

    struct input_task open_task;
    bool is_task_active;
    char *spec_json;           /* until READY */
    Steadfast__V1__Plan *plan; /* until READY */
    struct device_model model;
    struct device_request close_request;
    bool is_device_closing;
    bool is_device_closed;
};

/* Copies what it needs of the message. */
struct open_job *open_job_new(const struct job_env *env, const Steadfast__V1__JobOpen *message);
/* Its steps are gone or on the way out. */
void open_job_close(struct open_job *job);
/* True: it was freed. False: somebody borrows of it still; on_unborrowed tells when to ask again.
 */
bool open_job_try_free(struct open_job *job);

/* Record numbers of a batch into records (max_batch entries). ERR_INVALID: there is no such batch.
 */
MUST_CHECK enum err_code open_job_train_batch(const struct open_job *job, uint32_t epoch,
                                              uint64_t batch, uint64_t *records,
                                              uint32_t *ret_count, struct err *err);
MUST_CHECK enum err_code open_job_eval_batch(const struct open_job *job, uint64_t batch,
                                             uint64_t *records, uint32_t *ret_count,
                                             struct err *err);
/* Has the copy for pinned variables afterwards. */
MUST_CHECK enum err_code open_job_have_pinned(struct open_job *job, struct err *err);

#endif
