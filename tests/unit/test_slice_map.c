/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that are right map every element once; plans that are wrong are refused by slice, value and
 * want. */
#include "workerd/exchange/slice_map.h"

#include <stdlib.h>

#include "common/base/rand.h"
#include "tests/harness.h"

static const uint64_t shape_a[] = {10, 3};
static const uint64_t shape_b[] = {4};
static const struct slice_var vars[] = {{"a", 2, shape_a}, {"b", 1, shape_b}, {"scale", 0, NULL}};
enum { VARS = 3, SLICES = 4 };

/* a in rows 0..6 on server 1 shard 0 and rows 7..9 on server 0 shard 2; b and scale on server 1
 * shard 0. */
static Steadfast__V1__ServerRef servers[2];
static Steadfast__V1__Slice slices[SLICES];
static Steadfast__V1__ServerRef *server_ptrs[2] = {&servers[0], &servers[1]};
static Steadfast__V1__Slice *slice_ptrs[SLICES] = {&slices[0], &slices[1], &slices[2], &slices[3]};
static Steadfast__V1__Plan plan;

static void set_slice(uint32_t index, uint32_t var, uint64_t row_offset, uint64_t rows,
                      uint32_t server, uint32_t shard)
{
    Steadfast__V1__Slice *slice = &slices[index];
    steadfast__v1__slice__init(slice);
    slice->index = index;
    slice->var = var;
    slice->name = (char *)vars[var].name;
    slice->n_shape = vars[var].rank;
    slice->shape = (uint64_t *)vars[var].shape;
    slice->row_offset = row_offset;
    slice->rows = rows;
    slice->server = server;
    slice->shard = shard;
}

static void make_plan(void)
{
    for (int i = 0; i < 2; i++) {
        steadfast__v1__server_ref__init(&servers[i]);
        servers[i].name = (char *)(i ? "ps:1" : "ps:0");
        servers[i].address = (char *)"127.0.0.1:1";
    }
    set_slice(0, 0, 0, 7, 1, 0);
    set_slice(1, 0, 7, 3, 0, 2);
    set_slice(2, 1, 0, 4, 1, 0);
    set_slice(3, 2, 0, 1, 1, 0);
    steadfast__v1__plan__init(&plan);
    plan.n_servers = 2;
    plan.servers = server_ptrs;
    plan.n_slices = SLICES;
    plan.slices = slice_ptrs;
}

static void check_refused(const char *word, const char *word2)
{
    struct err err = {0};
    struct slice_map *map = NULL;
    enum err_code code = slice_map_new(&plan, vars, VARS, &map, &err);
    if (code != ERR_INVALID || !strstr(err.text, word) || !strstr(err.text, word2))
        test_fail(__FILE__, __LINE__, "%s \"%s\", want INVALID with \"%s\" and \"%s\"",
                  err_name(code), err.text, word, word2);
    CHECK(map == NULL);
}

struct copy {
    float *vars[VARS];
    const uint8_t *payload;
    uint64_t offset;
};

static void copy_run(void *arg, uint32_t var_index, uint64_t var_byte, uint64_t in_range,
                     size_t bytes)
{
    struct copy *copy = arg;
    memcpy((uint8_t *)copy->vars[var_index] + var_byte, copy->payload + copy->offset + in_range,
           bytes);
}

TEST(payloads_in_any_chunks_fill_the_variables)
{
    struct err err;
    make_plan();
    AUTO(slice_map) map = NULL;
    CHECK_OK(slice_map_new(&plan, vars, VARS, &map, &err));
    CHECK_U64(map->shard_count, 2);
    CHECK_U64(map->shards[0].server_index, 0);
    CHECK_U64(map->shards[0].shard, 2);
    CHECK_U64(map->shards[0].payload_bytes, 9 * sizeof(float));
    CHECK_U64(map->shards[1].piece_count, 3);
    CHECK_U64(map->shards[1].payload_bytes, 26 * sizeof(float));
    CHECK_U64(map->var_elements[0], 30);
    CHECK_U64(map->var_elements[2], 1);
    float payload0[9], payload1[26];
    for (int i = 0; i < 9; i++)
        payload0[i] = (float)(21 + i);
    for (int i = 0; i < 21; i++)
        payload1[i] = (float)i;
    for (int i = 0; i < 4; i++)
        payload1[21 + i] = (float)(100 + i);
    payload1[25] = 200;
    for (uint64_t chunk = 1; chunk <= sizeof(payload1);
         chunk++) { /* borders inside elements as well */
        float a[30] = {0}, b[4] = {0}, scale[1] = {0};
        const void *payloads[2] = {payload0, payload1};
        for (size_t s = 0; s < 2; s++) {
            struct copy copy = {.vars = {a, b, scale}, .payload = payloads[s]};
            for (; copy.offset < map->shards[s].payload_bytes; copy.offset += chunk)
                slice_map_walk(&map->shards[s], copy.offset,
                               MIN(chunk, map->shards[s].payload_bytes - copy.offset), copy_run,
                               &copy);
        }
        for (int i = 0; i < 30; i++)
            CHECK_NEAR(a[i], i, 0);
        for (int i = 0; i < 4; i++)
            CHECK_NEAR(b[i], 100 + i, 0);
        CHECK_NEAR(scale[0], 200, 0);
    }
}

TEST(a_plan_without_variables_has_no_shards)
{
    struct err err;
    steadfast__v1__plan__init(&plan);
    AUTO(slice_map) map = NULL;
    CHECK_OK(slice_map_new(&plan, NULL, 0, &map, &err));
    CHECK_U64(map->shard_count, 0);
}

TEST(the_order_of_slices_in_the_message_does_not_matter)
{
    struct err err;
    make_plan();
    Steadfast__V1__Slice *turned[SLICES] = {&slices[3], &slices[1], &slices[2], &slices[0]};
    plan.slices = turned;
    AUTO(slice_map) map = NULL;
    CHECK_OK(slice_map_new(&plan, vars, VARS, &map, &err));
    CHECK_U64(map->shards[1].pieces[0].var_index, 0);
    CHECK_U64(map->shards[1].pieces[2].var_index, 2);
    plan.slices = slice_ptrs;
}

TEST(wrong_plans_are_refused)
{
    make_plan();
    slices[1].row_offset = 6;
    check_refused("slice 1 of \"a\" begins at row 6", "want row 7");
    make_plan();
    slices[0].rows = 6;
    check_refused("slice 1", "want row 6");
    make_plan();
    slices[1].rows = 2;
    check_refused("slices cover 9 rows of \"a\"", "want 10");
    make_plan();
    slices[1].rows = 4;
    check_refused("slice 1 has rows 7 to 11", "want some of 10");
    make_plan();
    slices[1].rows = UINT64_MAX;
    check_refused("slice 1", "want some of 10");
    make_plan();
    slices[1].row_offset = UINT64_MAX - 1;
    check_refused("slice 1", "want some of 10");
    make_plan();
    slices[2].server = 2;
    check_refused("slice 2 lives on server 2", "want one of 2 servers");
    make_plan();
    slices[2].shard = 64;
    check_refused("shard 64", "less than 64");
    make_plan();
    slices[3].var = 3;
    check_refused("slice 3 is of variable 3", "want less than 3");
    make_plan();
    slices[3].index = 4;
    check_refused("slice index 4", "want less than 4");
    make_plan();
    slices[3].index = 2;
    check_refused("two slices have index 2", "want one");
    make_plan();
    slices[2].name = (char *)"c";
    check_refused("slice 2 is of \"c\"", "want the model's \"b\"");
    make_plan();
    slices[2].n_shape = 0;
    check_refused("slice 2", "0 dimensions");
    make_plan();
    plan.n_slices = 3;
    check_refused("slices cover 0 rows of \"scale\"", "want 1");
    make_plan();
    servers[1].address = (char *)"";
    check_refused("server 1 (\"ps:1\") has no address", "want host:port");
}
