/* SPDX-License-Identifier: Apache-2.0 */
/* exec: runs a model's forward and backward graph on one device.
 *
 * Variables and gradients cross this door as host arrays in canonical layout, one per variable in
 * graph order; what the device keeps (blocked weights, activations, workspaces) is private and
 * planned once.
 *
 * Owns    the compiled graphs per batch size (the short last batch makes a second one) and all
 * activations. Borrows the graph for its life; vars, grads and batch for the length of a call.
 * Thread  exec_new, every call and exec_free on one and the same device thread.
 * Units   images f32 N,C,H,W; labels class numbers; loss in nats.
 * Errors  ERR_DEVICE from the library, ERR_NO_MEMORY, ERR_INVALID (label out of range, batch too
 * large).
 */
#ifndef WORKERD_STEP_EXEC_H
#define WORKERD_STEP_EXEC_H

#include "common/base/base.h"
#include "common/base/err.h"

struct exec;
struct graph;

struct batch {
    uint32_t count;
    const float *images;
    const int32_t *labels;
};

struct exec_options {
    const char *device; /* "cpu", "ref", "fake" */
    uint32_t threads;   /* cpu: OpenMP threads of this device; 0: 1 */
    const char
        *fake_script; /* fake: "step_us=500 fail_at=7,9 ..." (kernels/fake); NULL: takes no time */
    uint32_t max_batch;
};

MUST_CHECK enum err_code exec_new(const struct graph *graph, const struct exec_options *options,
                                  struct exec **ret_exec, struct err *err);
void exec_free(struct exec *exec);
DEFINE_AUTO(exec)
/* vars[i] and grads[i] have the elements of variable i. Calls on_grad(var, arg) as each gradient is
 * complete, in the order in which backward makes them (the last layer first); every trainable
 * variable exactly once. step seeds random operators and the fake script. */
MUST_CHECK enum err_code exec_train(struct exec *exec, uint64_t step, const struct batch *batch,
                                    const float *const *vars, float *const *grads,
                                    void (*on_grad)(size_t var_index, void *arg), void *arg,
                                    float *ret_loss_mean, struct err *err);
MUST_CHECK enum err_code exec_eval(struct exec *exec, const struct batch *batch,
                                   const float *const *vars, double *ret_loss_sum,
                                   uint32_t *ret_correct, struct err *err);

#endif
