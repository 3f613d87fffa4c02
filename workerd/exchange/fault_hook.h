/* SPDX-License-Identifier: Apache-2.0 */
/* fault_hook: for tests only. Makes this process kill or stop itself at an exact point of a step.
 *
 * The environment variable STEADFAST_WORKER_KILL holds one of
 *
 *   before_push:STEP       SIGKILL when the first gradients of STEP are ready, before a byte of
 *                          them is sent
 *   during_push:STEP       SIGKILL after the first shard answered, while the others lack their last
 *                          chunk (a job with one shard: the same as after_push)
 *   after_push:STEP        SIGKILL when every shard has answered, before the step is reported
 *   stop_before_push:STEP  SIGSTOP at the same place as before_push; the test sends SIGCONT
 *
 * STEP is the number of the training step, in whatever job. Each point is hit once a process.
 *
 * Thread  read-only once parsed, but for is_spent: one point is only ever reached under one lock or
 *         on one thread.
 * Errors  ERR_INVALID shows the value and what was wanted.
 */
#ifndef WORKERD_EXCHANGE_FAULT_HOOK_H
#define WORKERD_EXCHANGE_FAULT_HOOK_H

#include "common/base/base.h"
#include "common/base/err.h"

enum fault_point {
    FAULT_NONE,
    FAULT_BEFORE_PUSH,
    FAULT_DURING_PUSH,
    FAULT_AFTER_PUSH,
    FAULT_STOP_BEFORE_PUSH,
};

struct fault_hook {
    enum fault_point point;
    uint64_t step;
    bool is_spent;
};

/* text NULL or "": no fault. */
MUST_CHECK enum err_code fault_hook_parse(const char *text, struct fault_hook *ret_hook,
                                          struct err *err);
bool fault_hook_is_armed(const struct fault_hook *hook, enum fault_point point, uint64_t step);
/* Does not return from a kill; returns after SIGCONT from a stop; does nothing when not armed. */
void fault_hook_hit(struct fault_hook *hook, enum fault_point point, uint64_t step);

#endif
