/* SPDX-License-Identifier: Apache-2.0 */
/* plan: split, place, add up, and write down as a message. */
#include "coordinatord/plan/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ELEMENT_BYTES = 4 }; /* everything a server holds is f32 */

/* ---- splitting ------------------------------------------------------------------------------- */

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* Elements of one row; false when they do not fit 64 bits. Rank 0 is one row of one. */
static bool row_elements(uint32_t rank, const uint64_t *shape, uint64_t *ret_elements)
{
    uint64_t elements = 1;
    for (uint32_t d = 1; d < rank; d++)
        if (__builtin_mul_overflow(elements, shape[d], &elements))
            return false;
    *ret_elements = elements;
    return true;
}

uint64_t plan_part_count(const struct partitioner_spec *partitioner, uint32_t rank,
                         const uint64_t *shape, uint64_t element_bytes)
{
    uint64_t row_bytes;
    uint64_t bytes;
    if (rank == 0 || shape[0] == 0 || !row_elements(rank, shape, &row_bytes) || row_bytes == 0 ||
        __builtin_mul_overflow(row_bytes, element_bytes, &row_bytes) ||
        __builtin_mul_overflow(row_bytes, shape[0], &bytes))
        return 1;
    uint64_t rows = shape[0];
    uint64_t count = 1;
    switch (partitioner->kind) {
    case PARTITION_NONE:
        break;
    case PARTITION_FIXED:
        count = partitioner->num_shards;
        break;
    case PARTITION_MIN_SIZE:
        ASSERT(partitioner->min_shard_bytes > 0);
        count = MIN(partitioner->max_shards, ceil_div(bytes, partitioner->min_shard_bytes));
        break;
    case PARTITION_MAX_SIZE:
        count = ceil_div(rows, MAX(partitioner->max_shard_bytes / row_bytes, 1));
        if (partitioner->max_shards > 0)
            count = MIN(count, partitioner->max_shards);
        break;
    }
    return MAX(MIN(count, rows), 1);
}

void plan_part_rows(uint64_t rows, uint64_t part_count, uint64_t part, uint64_t *ret_offset,
                    uint64_t *ret_rows)
{
    ASSERT(part < part_count && part_count <= rows);
    uint64_t base = rows / part_count;
    uint64_t extra = rows % part_count;
    *ret_offset = part * base + MIN(part, extra);
    *ret_rows = base + (part < extra);
}

/* Bytes of the variable with its slots, checked: every slice's share fits too. */
static enum err_code check_var(const struct model_var *var, uint32_t slot_count,
                               uint64_t *ret_row_bytes, struct err *err)
{
    if (var->rank > LIMIT_RANK)
        return err_set(err, ERR_INVALID, "variable %s: rank %" PRIu32 ": want at most %d",
                       var->name, var->rank, LIMIT_RANK);
    for (uint32_t d = 0; d < var->rank; d++)
        if (var->shape[d] == 0)
            return err_set(err, ERR_INVALID,
                           "variable %s: dimension %" PRIu32 " is 0: want 1 or more", var->name, d);
    uint64_t per_element = ELEMENT_BYTES * (1ull + (var->is_trainable ? slot_count : 0));
    uint64_t row_bytes;
    uint64_t bytes;
    if (!row_elements(var->rank, var->shape, &row_bytes) ||
        __builtin_mul_overflow(row_bytes, per_element, &row_bytes) ||
        __builtin_mul_overflow(row_bytes, var->rank ? var->shape[0] : 1, &bytes) ||
        bytes > INT64_MAX / LIMIT_VARIABLES) /* so that no sum of them overflows */
        return err_set(err, ERR_INVALID,
                       "variable %s: its size in bytes is too large: want at most %" PRId64,
                       var->name, INT64_MAX / LIMIT_VARIABLES);
    *ret_row_bytes = row_bytes;
    return ERR_OK;
}

static enum err_code split_vars(struct plan *plan, const struct partitioner_spec *partitioner,
                                uint32_t slot_count, struct err *err)
{
    uint64_t total = 0;
    uint64_t row_bytes;
    for (size_t v = 0; v < plan->var_count; v++) {
        const struct model_var *var = &plan->vars[v];
        enum err_code code = check_var(var, slot_count, &row_bytes, err);
        if (code != ERR_OK)
            return code;
        uint64_t parts = plan_part_count(partitioner, var->rank, var->shape, ELEMENT_BYTES);
        if (parts > LIMIT_SLICES - total)
            return err_set(err, ERR_INVALID,
                           "variable %s: %" PRIu64 " parts of it make %" PRIu64
                           " slices of the job: want at most %d; use fewer or larger shards",
                           var->name, parts, total + parts, LIMIT_SLICES);
        total += parts;
    }
    plan->slices = calloc(MAX(total, 1), sizeof(*plan->slices));
    if (!plan->slices)
        return err_set(err, ERR_NO_MEMORY, "out of memory for %" PRIu64 " slices", total);
    for (size_t v = 0; v < plan->var_count; v++) {
        const struct model_var *var = &plan->vars[v];
        enum err_code code = check_var(var, slot_count, &row_bytes, err);
        ASSERT(code == ERR_OK);
        uint64_t rows = var->rank ? var->shape[0] : 1;
        uint64_t parts = plan_part_count(partitioner, var->rank, var->shape, ELEMENT_BYTES);
        for (uint64_t part = 0; part < parts; part++) {
            struct plan_slice *slice = &plan->slices[plan->slice_count];
            slice->index = (uint32_t)plan->slice_count++;
            slice->var = (uint32_t)v;
            slice->part = (uint32_t)part;
            slice->part_count = (uint32_t)parts;
            plan_part_rows(rows, parts, part, &slice->row_offset, &slice->rows);
            slice->bytes = slice->rows * row_bytes;
            plan->bytes += slice->bytes;
        }
        if (var->is_trainable) /* row_bytes counts the slots too */
            plan->parameters += rows * (row_bytes / (ELEMENT_BYTES * (1ull + slot_count)));
    }
    ASSERT(plan->slice_count == total);
    return ERR_OK;
}

/* ---- placing --------------------------------------------------------------------------------- */

static enum err_code list_targets(struct plan *plan, const struct plan_server *servers,
                                  struct err *err)
{
    for (uint32_t s = 0; s < plan->server_count; s++) {
        ASSERT(servers[s].shard_count <= LIMIT_SHARDS_PER_SERVER);
        plan->target_count += servers[s].shard_count;
    }
    if (plan->slice_count > 0 && plan->target_count == 0)
        return err_set(err, ERR_UNAVAILABLE, "no parameter server to place %zu variables on",
                       plan->var_count);
    plan->targets = calloc(MAX(plan->target_count, 1), sizeof(*plan->targets));
    if (!plan->targets)
        return err_set(err, ERR_NO_MEMORY, "out of memory for %zu shards", plan->target_count);
    size_t t = 0;
    for (uint32_t s = 0; s < plan->server_count; s++)
        for (uint32_t shard = 0; shard < servers[s].shard_count; shard++)
            plan->targets[t++] = (struct plan_target){.server = s, .shard = shard};
    return ERR_OK;
}

static void put_on(struct plan_slice *slice, struct plan_target *target)
{
    slice->server = target->server;
    slice->shard = target->shard;
    target->slice_count++;
    target->bytes += slice->bytes;
}

/* Positions in targets, shard 0 of every server first. */
static void order_targets(const struct plan *plan, size_t *ret_order)
{
    size_t count = 0;
    for (uint32_t shard = 0; shard < LIMIT_SHARDS_PER_SERVER && count < plan->target_count; shard++)
        for (size_t t = 0; t < plan->target_count; t++)
            if (plan->targets[t].shard == shard)
                ret_order[count++] = t;
    ASSERT(count == plan->target_count);
}

static enum err_code place_round_robin(struct plan *plan, struct err *err)
{
    AUTO_MEM size_t *order = calloc(MAX(plan->target_count, 1), sizeof(*order));
    if (!order)
        return err_set(err, ERR_NO_MEMORY, "out of memory for %zu shards", plan->target_count);
    order_targets(plan, order);
    for (size_t i = 0; i < plan->slice_count; i++)
        put_on(&plan->slices[i], &plan->targets[order[i % plan->target_count]]);
    return ERR_OK;
}

static int compare_bytes(const void *a, const void *b)
{
    const struct plan_slice *x = *(struct plan_slice *const *)a;
    const struct plan_slice *y = *(struct plan_slice *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->index < y->index ? -1 : 1;
}

struct server_load {
    uint64_t bytes;
    struct plan_target *first; /* its shards */
    uint32_t shard_count;
    struct plan_target *least; /* of them the one with the fewest bytes; NULL: it has none */
};

static void find_least(struct server_load *load)
{
    load->least = NULL;
    for (uint32_t i = 0; i < load->shard_count; i++)
        if (!load->least || load->first[i].bytes < load->least->bytes)
            load->least = &load->first[i];
}

/* Fewer bytes on the shard, then on the server, then the lower shard; equal: no. */
static bool is_better(const struct server_load *a, const struct server_load *b)
{
    if (!a->least || !b->least)
        return a->least && !b->least;
    if (a->least->bytes != b->least->bytes)
        return a->least->bytes < b->least->bytes;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes;
    return a->least->shard < b->least->shard;
}

/* Slices times servers, 16 million comparisons at the limits, is the whole cost. */
static void place_by_size(struct plan *plan, struct plan_slice **sorted, struct server_load *loads)
{
    for (size_t t = 0; t < plan->target_count; t++) {
        struct server_load *load = &loads[plan->targets[t].server];
        if (load->shard_count++ == 0)
            load->first = &plan->targets[t];
    }
    for (uint32_t s = 0; s < plan->server_count; s++)
        find_least(&loads[s]);
    for (size_t i = 0; i < plan->slice_count; i++)
        sorted[i] = &plan->slices[i];
    qsort(sorted, plan->slice_count, sizeof(struct plan_slice *), compare_bytes);
    for (size_t i = 0; i < plan->slice_count; i++) {
        struct server_load *best = &loads[0];
        for (uint32_t s = 1; s < plan->server_count; s++)
            if (is_better(&loads[s], best))
                best = &loads[s];
        ASSERT(best->least); /* there is a shard, and one with fewer bytes is better than none */
        put_on(sorted[i], best->least);
        best->bytes += sorted[i]->bytes;
        find_least(best);
    }
}

static enum err_code place(struct plan *plan, enum placement_kind placement, struct err *err)
{
    if (plan->slice_count == 0)
        return ERR_OK;
    if (placement == PLACEMENT_ROUND_ROBIN)
        return place_round_robin(plan, err);
    AUTO_MEM struct plan_slice **sorted = calloc(plan->slice_count, sizeof(struct plan_slice *));
    AUTO_MEM struct server_load *loads = calloc(plan->server_count, sizeof(*loads));
    if (!sorted || !loads)
        return err_set(err, ERR_NO_MEMORY, "out of memory for %zu slices", plan->slice_count);
    place_by_size(plan, sorted, loads);
    return ERR_OK;
}

/* ---- the plan -------------------------------------------------------------------------------- */

static enum err_code copy_vars(struct plan *plan, const struct model_var *vars, size_t var_count,
                               struct err *err)
{
    if (var_count > LIMIT_VARIABLES)
        return err_set(err, ERR_INVALID, "%zu variables: want at most %d", var_count,
                       LIMIT_VARIABLES);
    plan->vars = calloc(MAX(var_count, 1), sizeof(*plan->vars));
    if (!plan->vars)
        return err_set(err, ERR_NO_MEMORY, "out of memory for %zu variables", var_count);
    for (size_t v = 0; v < var_count; v++) {
        plan->vars[v] = vars[v];
        plan->vars[v].name = strdup(vars[v].name);
        plan->var_count++;
        if (!plan->vars[v].name)
            return err_set(err, ERR_NO_MEMORY, "out of memory for %zu variables", var_count);
    }
    return ERR_OK;
}

enum err_code plan_build(const struct model_var *vars, size_t var_count,
                         const struct partitioner_spec *partitioner, enum placement_kind placement,
                         uint32_t slot_count, const struct plan_server *servers,
                         uint32_t server_count, struct plan **ret_plan, struct err *err)
{
    ASSERT(server_count <= LIMIT_SERVERS);
    AUTO(plan) plan = calloc(1, sizeof(*plan));
    if (!plan)
        return err_set(err, ERR_NO_MEMORY, "out of memory for a plan");
    plan->server_count = server_count;
    enum err_code code = copy_vars(plan, vars, var_count, err);
    if (code == ERR_OK)
        code = split_vars(plan, partitioner, slot_count, err);
    if (code == ERR_OK)
        code = list_targets(plan, servers, err);
    if (code == ERR_OK)
        code = place(plan, placement, err);
    if (code == ERR_OK)
        *ret_plan = TAKE(plan);
    return code;
}

enum err_code plan_build_graph(const struct graph *graph, const struct job_spec *spec,
                               const struct plan_server *servers, uint32_t server_count,
                               struct plan **ret_plan, struct err *err)
{
    size_t var_count = graph_var_count(graph);
    AUTO_MEM struct model_var *vars = calloc(MAX(var_count, 1), sizeof(*vars));
    if (!vars)
        return err_set(err, ERR_NO_MEMORY, "out of memory for %zu variables", var_count);
    for (size_t v = 0; v < var_count; v++)
        vars[v] = *graph_var(graph, v); /* names stay the graph's */
    return plan_build(vars, var_count, &spec->partitioner, spec->placement,
                      optimizer_slot_count(spec->optimizer.kind), servers, server_count, ret_plan,
                      err);
}

void plan_free(struct plan *plan)
{
    if (!plan)
        return;
    for (size_t v = 0; v < plan->var_count; v++)
        free(plan->vars[v].name);
    free(plan->vars);
    free(plan->slices);
    free(plan->targets);
    free(plan);
}

size_t plan_used_targets(const struct plan *plan)
{
    size_t used = 0;
    for (size_t t = 0; t < plan->target_count; t++)
        used += plan->targets[t].slice_count > 0;
    return used;
}

uint64_t plan_server_bytes(const struct plan *plan, uint32_t server)
{
    uint64_t bytes = 0;
    for (size_t t = 0; t < plan->target_count; t++)
        if (plan->targets[t].server == server)
            bytes += plan->targets[t].bytes;
    return bytes;
}

enum err_code plan_check_budgets(const struct plan *plan, const struct plan_server *servers,
                                 struct err *err)
{
    for (uint32_t s = 0; s < plan->server_count; s++) {
        uint64_t needed = plan_server_bytes(plan, s);
        if (needed > servers[s].budget_bytes)
            return err_set(err, ERR_NO_MEMORY,
                           "server %s: the job needs %" PRIu64
                           " bytes there (values and optimizer slots), %" PRIu64
                           " are available; add servers, raise its memory budget, or split large "
                           "variables with variable_partitioner",
                           servers[s].name, needed, servers[s].budget_bytes);
    }
    return ERR_OK;
}

void plan_slice_name(const struct plan *plan, size_t slice_index, char *ret_name, size_t name_size)
{
    ASSERT(slice_index < plan->slice_count);
    const struct plan_slice *slice = &plan->slices[slice_index];
    const char *name = plan->vars[slice->var].name;
    if (slice->part_count == 1)
        snprintf(ret_name, name_size, "%s", name);
    else
        snprintf(ret_name, name_size, "%s/part_%" PRIu32, name, slice->part);
}

/* ---- the message ----------------------------------------------------------------------------- */

static Steadfast__V1__ServerRef *server_to_proto(const struct plan_server *server)
{
    Steadfast__V1__ServerRef *ref = malloc(sizeof(*ref));
    if (!ref)
        return NULL;
    steadfast__v1__server_ref__init(ref);
    ref->name = strdup(server->name);
    ref->address = strdup(server->address);
    if (ref->name && ref->address)
        return ref;
    free(ref->name);
    free(ref->address);
    free(ref);
    return NULL;
}

static Steadfast__V1__Slice *slice_to_proto(const struct plan_slice *slice,
                                            const struct model_var *var)
{
    static_assert((int)INIT_KIND_UNIFORM == (int)STEADFAST__V1__INIT_KIND__INIT_UNIFORM,
                  "the numbers of init_kind are the message's");
    Steadfast__V1__Slice *out = malloc(sizeof(*out));
    if (!out)
        return NULL;
    steadfast__v1__slice__init(out);
    out->index = slice->index;
    out->var = slice->var;
    out->row_offset = slice->row_offset;
    out->rows = slice->rows;
    out->server = slice->server;
    out->shard = slice->shard;
    out->init = (Steadfast__V1__InitKind)var->init;
    out->init_value = var->init_value;
    out->trainable = var->is_trainable;
    char *name = strdup(var->name);
    uint64_t *shape = calloc(MAX(var->rank, 1), sizeof(*shape));
    if (!name || !shape) {
        free(name);
        free(shape);
        free(out);
        return NULL;
    }
    memcpy(shape, var->shape, var->rank * sizeof(*shape));
    out->name = name;
    out->n_shape = var->rank;
    out->shape = shape;
    return out;
}

enum err_code plan_to_proto(const struct plan *plan, const struct plan_server *servers,
                            Steadfast__V1__Plan **ret_message, struct err *err)
{
    Steadfast__V1__Plan *message = malloc(sizeof(*message));
    if (!message)
        return err_set(err, ERR_NO_MEMORY, "out of memory for a plan");
    steadfast__v1__plan__init(message);
    message->servers = calloc(MAX(plan->server_count, 1), sizeof(Steadfast__V1__ServerRef *));
    message->slices = calloc(MAX(plan->slice_count, 1), sizeof(Steadfast__V1__Slice *));
    bool is_full = message->servers && message->slices;
    for (uint32_t s = 0; is_full && s < plan->server_count; s++) {
        message->servers[s] = server_to_proto(&servers[s]);
        is_full = message->servers[s] != NULL;
        message->n_servers += is_full;
    }
    for (size_t i = 0; is_full && i < plan->slice_count; i++) {
        message->slices[i] = slice_to_proto(&plan->slices[i], &plan->vars[plan->slices[i].var]);
        is_full = message->slices[i] != NULL;
        message->n_slices += is_full;
    }
    if (!is_full) {
        plan_proto_free(message);
        return err_set(err, ERR_NO_MEMORY, "out of memory for a plan of %zu slices",
                       plan->slice_count);
    }
    *ret_message = message;
    return ERR_OK;
}

void plan_proto_free(Steadfast__V1__Plan *message)
{
    if (message)
        steadfast__v1__plan__free_unpacked(message, NULL);
}
