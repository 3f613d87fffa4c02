/* SPDX-License-Identifier: Apache-2.0 */
/* coord_plan: from a job and the servers that are there to the message that says where every slice
 * lives.
 *
 * Owns    the caller owns the message; plan_proto_free (plan.h) ends it.
 * Thread: any; pure but for reading data headers.
 * Errors  those of model_build and plan: ERR_INVALID naming the field, ERR_NO_MEMORY naming the
 *         server.
 */
#ifndef COORDINATORD_SHELL_COORD_PLAN_H
#define COORDINATORD_SHELL_COORD_PLAN_H

#include "common/base/err.h"
#include "coordinatord/core/core.h"
#include "proto/common.pb-c.h"

struct coord_plan_facts {
    uint64_t parameters;
    size_t target_count;    /* (server, shard) pairs, servers first */
    uint64_t *target_bytes; /* values and slots; free() it */
};

struct data_facts { /* of a job's data sets */
    uint64_t records;
    uint64_t eval_records;
    uint64_t channels, height, width;
};

/* The model fits images of this size. */
MUST_CHECK enum err_code coord_plan_check(const struct job_spec *spec,
                                          const struct data_facts *facts, struct err *err);
/* ret_facts may be NULL. ret_shard_count: pairs that hold at least one slice. */
MUST_CHECK enum err_code coord_plan_make(const struct job_spec *spec, const struct data_facts *data,
                                         const struct core_server_ref *servers, size_t server_count,
                                         Steadfast__V1__Plan **ret_plan, uint32_t *ret_shard_count,
                                         struct coord_plan_facts *ret_facts, struct err *err);

#endif
