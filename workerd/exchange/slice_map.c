/* SPDX-License-Identifier: Apache-2.0 */
/* slice_map: the checks of a plan, one concern a function, and the walk over a payload. */
#include "workerd/exchange/slice_map.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"

static uint64_t shape_rows(const struct slice_var *var)
{
    return var->rank == 0 ? 1 : var->shape[0];
}

/* Elements of one row; the model checked that the product fits. */
static uint64_t row_elements(const struct slice_var *var)
{
    uint64_t count = 1;
    for (uint32_t i = 1; i < var->rank; i++)
        count *= var->shape[i];
    return count;
}

static enum err_code check_servers(const Steadfast__V1__Plan *plan, struct err *err)
{
    if (plan->n_servers > LIMIT_SERVERS)
        return err_set(err, ERR_INVALID, "plan: %zu servers, want at most %u", plan->n_servers,
                       LIMIT_SERVERS);
    if (plan->n_slices > LIMIT_SLICES)
        return err_set(err, ERR_INVALID, "plan: %zu slices, want at most %u", plan->n_slices,
                       LIMIT_SLICES);
    for (size_t i = 0; i < plan->n_servers; i++)
        if (plan->servers[i]->address[0] == '\0')
            return err_set(err, ERR_INVALID,
                           "plan: server %zu (\"%s\") has no address, want host:port", i,
                           plan->servers[i]->name);
    return ERR_OK;
}

static enum err_code check_slice(const Steadfast__V1__Plan *plan, const Steadfast__V1__Slice *slice,
                                 const struct slice_var *vars, size_t var_count, struct err *err)
{
    if (slice->index >= plan->n_slices)
        return err_set(err, ERR_INVALID, "plan: slice index %" PRIu32 ", want less than %zu",
                       slice->index, plan->n_slices);
    if (slice->var >= var_count)
        return err_set(err, ERR_INVALID,
                       "plan: slice %" PRIu32 " is of variable %" PRIu32 ", want less than %zu",
                       slice->index, slice->var, var_count);
    if (slice->server >= plan->n_servers || slice->shard >= LIMIT_SHARDS_PER_SERVER)
        return err_set(err, ERR_INVALID,
                       "plan: slice %" PRIu32 " lives on server %" PRIu32 " shard %" PRIu32
                       ", want one of %zu servers and a shard less than %u",
                       slice->index, slice->server, slice->shard, plan->n_servers,
                       LIMIT_SHARDS_PER_SERVER);
    const struct slice_var *var = &vars[slice->var];
    bool is_same = slice->n_shape == var->rank && strcmp(slice->name, var->name) == 0;
    for (uint32_t i = 0; is_same && i < var->rank; i++)
        is_same = slice->shape[i] == var->shape[i];
    if (!is_same)
        return err_set(err, ERR_INVALID,
                       "plan: slice %" PRIu32 " is of \"%s\" with %zu dimensions of first %" PRIu64
                       ", want the model's \"%s\" with %" PRIu32 " of first %" PRIu64,
                       slice->index, slice->name, slice->n_shape,
                       slice->n_shape ? slice->shape[0] : 1, var->name, var->rank, shape_rows(var));
    uint64_t rows = shape_rows(var);
    if (slice->rows == 0 || slice->rows > rows || slice->row_offset > rows - slice->rows)
        return err_set(err, ERR_INVALID,
                       "plan: slice %" PRIu32 " has rows %" PRIu64 " to %" PRIu64
                       " of \"%s\", want some of %" PRIu64,
                       slice->index, slice->row_offset, slice->row_offset + slice->rows, var->name,
                       rows);
    return ERR_OK;
}

static int by_var_and_row(const void *pa, const void *pb)
{
    const Steadfast__V1__Slice *a = *(Steadfast__V1__Slice *const *)pa;
    const Steadfast__V1__Slice *b = *(Steadfast__V1__Slice *const *)pb;
    if (a->var != b->var)
        return a->var < b->var ? -1 : 1;
    return a->row_offset < b->row_offset ? -1 : a->row_offset > b->row_offset;
}

static int by_home_and_index(const void *pa, const void *pb)
{
    const Steadfast__V1__Slice *a = *(Steadfast__V1__Slice *const *)pa;
    const Steadfast__V1__Slice *b = *(Steadfast__V1__Slice *const *)pb;
    if (a->server != b->server)
        return a->server < b->server ? -1 : 1;
    if (a->shard != b->shard)
        return a->shard < b->shard ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* slices are sorted by variable and row: each variable's rows come once and without a gap. */
static enum err_code check_cover(Steadfast__V1__Slice *const *slices, size_t count,
                                 const struct slice_var *vars, size_t var_count, struct err *err)
{
    size_t at = 0;
    for (uint32_t v = 0; v < var_count; v++) {
        uint64_t rows = 0;
        for (; at < count && slices[at]->var == v; at++) {
            if (slices[at]->row_offset != rows)
                return err_set(err, ERR_INVALID,
                               "plan: slice %" PRIu32 " of \"%s\" begins at row %" PRIu64
                               ", want row %" PRIu64,
                               slices[at]->index, vars[v].name, slices[at]->row_offset, rows);
            rows += slices[at]->rows;
        }
        if (rows != shape_rows(&vars[v]))
            return err_set(err, ERR_INVALID,
                           "plan: slices cover %" PRIu64 " rows of \"%s\", want %" PRIu64, rows,
                           vars[v].name, shape_rows(&vars[v]));
    }
    return ERR_OK;
}

/* slices are sorted by home and index. */
static enum err_code fill_shards(struct slice_map *map, Steadfast__V1__Slice *const *slices,
                                 size_t count, const struct slice_var *vars, struct err *err)
{
    struct slice_shard *shard = NULL;
    for (size_t i = 0; i < count; i++) {
        const Steadfast__V1__Slice *slice = slices[i];
        if (i > 0 && slices[i - 1]->index == slice->index)
            return err_set(err, ERR_INVALID, "plan: two slices have index %" PRIu32 ", want one",
                           slice->index);
        if (!shard || shard->server_index != slice->server || shard->shard != slice->shard) {
            shard = &map->shards[map->shard_count++];
            *shard = (struct slice_shard){
                .server_index = slice->server, .shard = slice->shard, .pieces = &map->pieces[i]};
        }
        uint64_t per_row = row_elements(&vars[slice->var]);
        shard->pieces[shard->piece_count++] = (struct slice_piece){
            .var_index = slice->var,
            .var_offset = slice->row_offset * per_row,
            .element_count = slice->rows * per_row,
            .payload_offset = shard->payload_bytes,
        };
        shard->payload_bytes += slice->rows * per_row * sizeof(float);
    }
    return ERR_OK;
}

static void fill_rest(struct slice_map *map, const Steadfast__V1__Plan *plan,
                      const struct slice_var *vars, size_t var_count)
{
    map->servers = base_alloc(plan->n_servers * sizeof(*map->servers));
    for (size_t i = 0; i < plan->n_servers; i++) {
        map->servers[i].name = base_strdup(plan->servers[i]->name);
        map->servers[i].address = base_strdup(plan->servers[i]->address);
    }
    map->server_count = plan->n_servers;
    map->var_elements = base_alloc(var_count * sizeof(*map->var_elements));
    for (size_t v = 0; v < var_count; v++)
        map->var_elements[v] = shape_rows(&vars[v]) * row_elements(&vars[v]);
    map->var_count = var_count;
}

enum err_code slice_map_new(const Steadfast__V1__Plan *plan, const struct slice_var *vars,
                            size_t var_count, struct slice_map **ret_map, struct err *err)
{
    enum err_code code = check_servers(plan, err);
    if (code != ERR_OK)
        return code;
    size_t count = plan->n_slices;
    AUTO_MEM Steadfast__V1__Slice **sorted = base_alloc(count * sizeof(*sorted));
    for (size_t i = 0; i < count; i++) {
        sorted[i] = plan->slices[i];
        code = check_slice(plan, sorted[i], vars, var_count, err);
        if (code != ERR_OK)
            return code;
    }
    qsort(sorted, count, sizeof(*sorted), by_var_and_row);
    code = check_cover(sorted, count, vars, var_count, err);
    if (code != ERR_OK)
        return code;
    AUTO(slice_map) map = base_alloc(sizeof(*map));
    map->shards = base_alloc(count * sizeof(*map->shards));
    map->pieces = base_alloc(count * sizeof(*map->pieces));
    qsort(sorted, count, sizeof(*sorted), by_home_and_index);
    code = fill_shards(map, sorted, count, vars, err);
    if (code != ERR_OK)
        return code;
    fill_rest(map, plan, vars, var_count);
    *ret_map = TAKE(map);
    return ERR_OK;
}

void slice_map_free(struct slice_map *map)
{
    if (!map)
        return;
    for (size_t i = 0; i < map->server_count; i++) {
        free(map->servers[i].name);
        free(map->servers[i].address);
    }
    free(map->servers);
    free(map->shards);
    free(map->pieces);
    free(map->var_elements);
    free(map);
}

/* The piece that holds a byte of the payload. */
static size_t find_piece(const struct slice_shard *shard, uint64_t offset)
{
    size_t low = 0;
    size_t high = shard->piece_count;
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (shard->pieces[mid].payload_offset <= offset)
            low = mid;
        else
            high = mid;
    }
    return low;
}

void slice_map_walk(const struct slice_shard *shard, uint64_t offset, uint64_t bytes,
                    void (*on_run)(void *arg, uint32_t var_index, uint64_t var_byte,
                                   uint64_t in_range, size_t run_bytes),
                    void *arg)
{
    ASSERT(offset <= shard->payload_bytes && bytes <= shard->payload_bytes - offset);
    uint64_t done = 0;
    for (size_t i = find_piece(shard, offset); done < bytes; i++) {
        const struct slice_piece *piece = &shard->pieces[i];
        uint64_t skip = offset + done - piece->payload_offset;
        uint64_t run = MIN(piece->element_count * sizeof(float) - skip, bytes - done);
        on_run(arg, piece->var_index, piece->var_offset * sizeof(float) + skip, done, (size_t)run);
        done += run;
    }
}
