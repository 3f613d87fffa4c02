/* SPDX-License-Identifier: Apache-2.0 */
/* plan: where each variable of a job lives. Splits variables into slices of rows, and places the
 * slices on the shards of the servers. A pure function of its arguments: the same job on the same
 * servers in the same order gets the same plan, on every machine and after every restart.
 *
 * Partitioners, with TensorFlow's formulas (sharded_variable.py); d rows of r bytes, along axis 0
 * only:
 *   fixed_shards  min(num_shards, d)
 *   min_size      max(1, min(d, max_shards, ceil(d * r / min_shard_bytes))). The ceil is
 *                 TensorFlow's and kept: shards may be smaller than min_shard_bytes, though more
 *                 than half of it.
 *   max_size      ceil(d / max(1, floor(max_shard_bytes / r))), at most max_shards when that is not
 *                 0. A row is never split, so a shard may be larger than max_shard_bytes.
 * All counts are at most d. Layout "div": the first d % count shards have one row more than the
 * others. Variables of rank 0 are one row of one element, never split.
 *
 * Placement:
 *   by_size       slices by falling bytes, ties by index; each onto the shard that holds the fewest
 *                 bytes, ties to the server that holds the fewest, then to the first in the order
 *                 below.
 *   round_robin   slices in order of index, one after another over the shards in the order below.
 *                 This is TensorFlow's counter: it counts slices and does not look at their size.
 * Order of shards: shard 0 of every server, then shard 1 of every server, ... so neighbours are on
 * different servers.
 *
 * Owns    a plan copies all it keeps. struct plan_server lends its strings for the call.
 * Thread  any; no state.
 * Units   bytes of a slice are those of its values and, for a trainable variable, of its
 *         optimizer slots, at 4 bytes an element each.
 * Errors  ERR_INVALID names the variable (a dimension of 0, too many slices, sizes beyond 64
 *         bits); ERR_UNAVAILABLE: there are variables and no shard; ERR_NO_MEMORY: a budget does
 *         not suffice.
 */
#ifndef COORDINATORD_PLAN_PLAN_H
#define COORDINATORD_PLAN_PLAN_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/spec/job_spec.h"
#include "models/zoo/model.h"
#include "proto/common.pb-c.h"

struct plan_server {
    const char *name;      /* "ps:0" */
    const char *address;   /* host:port that workers dial */
    uint32_t shard_count;  /* threads that own variables */
    uint64_t budget_bytes; /* left for this job; UINT64_MAX: no bound */
};

struct plan_slice {
    uint32_t index;      /* in slices */
    uint32_t var;        /* in vars */
    uint32_t part;       /* of the variable, from 0 */
    uint32_t part_count; /* 1: the whole variable */
    uint64_t row_offset;
    uint64_t rows;
    uint32_t server; /* position in the array of servers */
    uint32_t shard;  /* on that server */
    uint64_t bytes;
};

struct plan_target {
    uint32_t server;
    uint32_t shard;
    uint64_t slice_count;
    uint64_t bytes;
};

struct plan {
    struct model_var *vars; /* copies */
    size_t var_count;
    struct plan_slice *slices; /* by variable, then by row */
    size_t slice_count;
    struct plan_target *targets; /* every shard there is, by server, then by shard */
    size_t target_count;
    uint32_t server_count;
    uint64_t parameters; /* elements of the trainable variables */
    uint64_t bytes;      /* of all slices */
};

/* How many shards the partitioner makes of a variable. rank 0, or any dimension 0: 1. */
uint64_t plan_part_count(const struct partitioner_spec *partitioner, uint32_t rank,
                         const uint64_t *shape, uint64_t element_bytes);
/* The rows of one part in the div layout. part < part_count <= rows. */
void plan_part_rows(uint64_t rows, uint64_t part_count, uint64_t part, uint64_t *ret_offset,
                    uint64_t *ret_rows);

MUST_CHECK enum err_code plan_build(const struct model_var *vars, size_t var_count,
                                    const struct partitioner_spec *partitioner,
                                    enum placement_kind placement, uint32_t slot_count,
                                    const struct plan_server *servers, uint32_t server_count,
                                    struct plan **ret_plan, struct err *err);
/* The same for the variables of a graph, in the way the job asks for. */
MUST_CHECK enum err_code plan_build_graph(const struct graph *graph, const struct job_spec *spec,
                                          const struct plan_server *servers, uint32_t server_count,
                                          struct plan **ret_plan, struct err *err);
void plan_free(struct plan *plan);
DEFINE_AUTO(plan)

/* servers as they were given to plan_build. */
MUST_CHECK enum err_code plan_check_budgets(const struct plan *plan,
                                            const struct plan_server *servers, struct err *err);
/* Shards that hold at least one slice. */
size_t plan_used_targets(const struct plan *plan);
uint64_t plan_server_bytes(const struct plan *plan, uint32_t server);
/* "name" of a whole variable, "name/part_1" of a part; for people. */
void plan_slice_name(const struct plan *plan, size_t slice_index, char *ret_name, size_t name_size);

/* The message; end it with plan_proto_free. Servers are listed also when nothing is placed on them.
 */
MUST_CHECK enum err_code plan_to_proto(const struct plan *plan, const struct plan_server *servers,
                                       Steadfast__V1__Plan **ret_message, struct err *err);
void plan_proto_free(Steadfast__V1__Plan *message);

#endif
