/* SPDX-License-Identifier: Apache-2.0 */
/* host_flags: a cluster as the host-list flags of TF-CNN describe it.
 *
 * Owns    nothing. Thread: any.
 * Errors  ERR_INVALID with flag, value, wanted; ERR_NO_MEMORY.
 */
#ifndef COMMON_SPEC_HOST_FLAGS_H
#define COMMON_SPEC_HOST_FLAGS_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/spec/cluster_spec.h"

/* --job_name --task_index --ps_hosts --worker_hosts --controller_host; NULL for a flag not given.
 */
MUST_CHECK enum err_code host_flags_parse(const char *job_name, const char *task_index,
                                          const char *ps_hosts, const char *worker_hosts,
                                          const char *controller_host,
                                          struct cluster_spec **ret_spec, struct err *err);

#endif
