/* SPDX-License-Identifier: Apache-2.0 */
/* update_rule: what becomes of a complete contribution, which is one step's gradients on one shard.
 * The server's half of coordinatord/rule; the job's consistency picks both. A new rule is one file
 * and one row in update_rule.c.
 *
 * The shard has asked before: the contribution is of this generation, its session is not fenced, and
 * some group lacks the step. The rule decides what is computed into which buffer, and when that is
 * published. It does so by what the shard offers in struct update_shard, because waiting for a
 * buffer, fences and the shard's lock are the shard's affair.
 *
 * What the next rules will do here:
 *   bounded staleness (k)    the same as async: the coordinator alone holds steps back.
 *   sync (R replicas)        contribute adds the gradients, in replica order whatever the order of
 *                            arrival, into an accumulator, and takes `next` only for the last one:
 *                            one optimizer step into it. Accumulators are buffers of the job's pool,
 *                            so values_new has to reserve them, and belong to the values (restored and
 *                            dropped with them); a step is marked when its contribution was added,
 *                            and a snapshot saves no mark of an update that is not published.
 *   ... its publishing       `publish` is a second function of the row: the finished buffer is kept
 *                            in the values until the first pull of version v + 1 or the order that
 *                            opens it (shard_pull, psd/order); until then readers get v. The clip
 *                            scale of the global norm comes with that order, so such a rule keeps
 *                            the sum of squares of its accumulator, answers it with the push, and
 *                            computes at publication.
 *   backup replicas (b)      as sync, but the first R of R + b are added; what comes later is marked
 *                            without being added.
 *
 * Owns    nothing: rules are constants; an update belongs to the shard for one call.
 * Thread  contribute: the shard's, without its lock.
 */
#ifndef PSD_RULE_UPDATE_RULE_H
#define PSD_RULE_UPDATE_RULE_H

#include "common/spec/job_spec.h"
#include "psd/values/values.h"

struct update;

/* What the shard offers. */
struct update_shard {
    /* A buffer for the next values. Waits while readers hold them all; a fence, a drop or a newer
     * generation ends that with the reason, and then nothing was changed. Once it is given the
     * update runs to its commit: a fence waits for it. */
    enum err_code (*next)(struct update *update, struct buf **ret_next, struct err *err);
    /* Marks the step and publishes, in one move; takes over what next gave. */
    void (*commit)(struct update *update, struct buf *take_next);
};

struct update { /* one contribution being worked on */
    const struct update_shard *shard;
    struct values *values;
    uint64_t step;
    const float *grads;
    /* Set by the rule: the position of a slice whose gradient had a NaN or an infinity, or -1. */
    int64_t bad_slice;
};

struct update_rule {
    MUST_CHECK enum err_code (*contribute)(struct update *update, struct err *err);
};

const struct update_rule *update_rule_of(enum consistency_mode mode);

#endif
