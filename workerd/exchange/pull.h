/* SPDX-License-Identifier: Apache-2.0 */
/* pull: a copy of a job's variables, brought up to date from every shard in parallel.
 *
 * Chunks are copied from the wire straight to their place in the variables. Each shard's part of
 * the copy has a version; a shard whose version is the newest (or the pinned one) sends nothing. A
 * transfer that breaks off leaves its shard's part without a version, so it is fetched whole the
 * next time.
 *
 * Owns    the copy. It must not be read while a pull is active, nor pulled while a device reads it.
 * Thread  the loop's; chunks arrive on the io thread.
 * Errors  pull_new: ERR_NO_MEMORY. pull_start ends as exchange says; a payload that does not fit
 *         the plan is PS_FAIL with shard, offset and what was wanted.
 */
#ifndef WORKERD_EXCHANGE_PULL_H
#define WORKERD_EXCHANGE_PULL_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "workerd/exchange/exchange.h"

struct pull;

struct pull_request {
    uint64_t job;
    uint64_t generation;
    uint64_t pin; /* 0: the newest values */
    uint64_t deadline_ns;
};

MUST_CHECK enum err_code pull_new(const struct exchange_env *env, struct pull **ret_pull,
                                  struct err *err);
void pull_free(struct pull *pull); /* not active */
DEFINE_AUTO(pull)
void pull_start(struct pull *pull, const struct pull_request *request, exchange_done_fn *on_done,
                void *arg);
void pull_cancel(struct pull *pull); /* on_done still comes */
bool pull_is_active(const struct pull *pull);
const float *const *pull_vars(const struct pull *pull);
uint64_t pull_copy_ns(const struct pull *pull); /* spent by the newest one on putting in place */
uint64_t pull_version(const struct pull *pull, size_t shard_index); /* 0: none */

#endif
