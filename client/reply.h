/* SPDX-License-Identifier: Apache-2.0 */
/* reply: the coordinator's messages as the structs of steadfast.h.
 *
 * Each function takes over `take_message` (unpacked with the system allocator), also when it fails:
 * the result's strings point into it, and the result's free ends it.
 *
 * Thread  any.
 * Errors  ERR_NO_MEMORY; ERR_CORRUPT: a plan or a state that makes no sense.
 */
#ifndef CLIENT_REPLY_H
#define CLIENT_REPLY_H

#include "client/steadfast.h"
#include "common/base/base.h"
#include "common/base/err.h"
#include "proto/coord.pb-c.h"

MUST_CHECK enum err_code reply_to_job(Steadfast__V1__JobStatus *take_message,
                                      struct steadfast_job **ret_job, struct err *err);
MUST_CHECK enum err_code reply_to_job_list(Steadfast__V1__JobList *take_message,
                                           struct steadfast_job_list **ret_list, struct err *err);
MUST_CHECK enum err_code reply_to_plan(Steadfast__V1__PlanReply *take_message,
                                       struct steadfast_plan **ret_plan, struct err *err);
MUST_CHECK enum err_code reply_to_cluster(Steadfast__V1__ClusterStatus *take_message,
                                          struct steadfast_cluster **ret_cluster, struct err *err);

#endif
