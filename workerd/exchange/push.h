/* SPDX-License-Identifier: Apache-2.0 */
/* push: one step's gradients on their way to every shard.
 *
 * The device thread says which variable's gradient is complete; its bytes leave at once, in chunks,
 * as slices borrowed from the gradient arrays. A shard's call is opened with its first gradient. A
 * call that broke off is begun again from the gradients that are complete; that is safe, since a
 * shard that applied the step already answers "done before".
 *
 *   idle --push_begin--> active --(every shard answered, or gave up: on_done)--> done
 *    ^                                                                             |
 *    +------------ on_idle <---- no call borrows the arrays any more <-------------+
 *
 * Owns    the gradient arrays. They are written by the device between push_begin and the last
 *         push_ready, and must not be touched again until push_is_idle.
 * Thread  the loop's; push_ready on a device thread; chunks are sent from any thread under the
 * lock. Bounds  PUSH_WINDOW_CHUNKS of a shard are handed to the network at a time. Errors push_new:
 * ERR_NO_MEMORY. Ends as exchange says.
 */
#ifndef WORKERD_EXCHANGE_PUSH_H
#define WORKERD_EXCHANGE_PUSH_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "workerd/exchange/exchange.h"

struct push;
struct fault_hook;

struct push_request {
    uint64_t job;
    uint64_t generation;
    uint64_t step;
    uint64_t attempt;
    uint64_t session;
    const uint64_t *pulled_versions; /* per shard of the map; copied */
    uint64_t deadline_ns;
};

struct push_result {
    bool is_duplicate;  /* some shard had marked the step before */
    uint64_t staleness; /* largest over the shards, updates */
    /* Processor time, over all shards: packing here; putting in place and the optimizer there. */
    uint64_t serialise_ns, copy_ns, apply_ns;
};

/* is_trainable[v]: false means that no gradient comes; zeros are sent. hook may be NULL. */
MUST_CHECK enum err_code push_new(const struct exchange_env *env, const bool *is_trainable,
                                  struct fault_hook *hook, void (*on_idle)(void *arg), void *arg,
                                  struct push **ret_push, struct err *err);
void push_free(struct push *push); /* idle */
DEFINE_AUTO(push)
float *const *push_grads(const struct push *push);
void push_begin(struct push *push, const struct push_request *request, exchange_done_fn *on_done,
                void *arg);
/* Device thread: the gradient of a variable is complete. */
void push_ready(struct push *push, size_t var_index);
void push_cancel(struct push *push); /* on_done still comes; push_ready does nothing any more */
bool push_is_idle(const struct push *push);
/* In on_done with PS_OK. */
struct push_result push_result_of(const struct push *push);

#endif
