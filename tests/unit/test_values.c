/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of a shard: histories that differ, and what a restore into other layouts makes of them.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/rand.h"
#include "common/ckpt/ckpt_store.h"
#include "psd/ckpt/ckpt_read.h"
#include "psd/ckpt/ckpt_write.h"
#include "psd/values/values.h"
#include "tests/harness.h"

#define SPEC(optimizer_)                                                                           \
    "{\"name\": \"j\", \"seed\": 42, \"epochs\": 1, \"model\": {\"name\": \"softmax\","            \
    " \"num_classes\": 10}, \"dataset\": {\"source\": \"synthetic\", \"records\": 100,"            \
    " \"batch_size\": 10}, \"optimizer\": " optimizer_ "}"
#define ADAM                                                                                       \
    SPEC("{\"name\": \"adam\", \"learning_rate\": {\"name\": \"piecewise\","                       \
         " \"boundaries\": [3, 9], \"values\": [0.1, 0.02, 0.5]}}")

enum { ROWS = 24, COLS = 3, VARS = 2, MAX_PARTS = 6 };

/* A layout of both variables over shards: part p of variable v has rows cuts[v][p] to cuts[v][p +
 * 1] and lies on shard homes[v][p]. */
struct layout {
    size_t shards;
    size_t parts[VARS];
    uint64_t cuts[VARS][MAX_PARTS + 1];
    uint32_t homes[VARS][MAX_PARTS];
};

static void random_layout(uint64_t key, struct layout *layout)
{
    layout->shards = 1 + rand_u64(key, 0) % 4;
    for (size_t v = 0; v < VARS; v++) {
        layout->parts[v] = 1 + rand_u64(key, 1 + v) % MAX_PARTS;
        layout->cuts[v][0] = 0;
        for (size_t p = 0; p < layout->parts[v]; p++) {
            uint64_t left = ROWS - layout->cuts[v][p] - (layout->parts[v] - 1 - p);
            uint64_t rows = p + 1 == layout->parts[v] ? ROWS - layout->cuts[v][p]
                                                      : 1 + rand_u64(key, 10 + v * 10 + p) % left;
            layout->cuts[v][p + 1] = layout->cuts[v][p] + rows;
            layout->homes[v][p] = (uint32_t)(rand_u64(key, 50 + v * 10 + p) % layout->shards);
        }
    }
}

static struct values *make_shard(struct budget *budget, const char *spec_json,
                                 const struct layout *layout, uint32_t shard)
{
    struct err err;
    Steadfast__V1__Slice slices[VARS * MAX_PARTS], *list[VARS * MAX_PARTS];
    static uint64_t shape[2] = {ROWS, COLS};
    Steadfast__V1__ServerRef ref = STEADFAST__V1__SERVER_REF__INIT, *refs = &ref;
    size_t count = 0;
    for (uint32_t v = 0; v < VARS; v++)
        for (size_t p = 0; p < layout->parts[v]; p++) {
            Steadfast__V1__Slice *slice = &slices[count];
            steadfast__v1__slice__init(slice);
            slice->index = (uint32_t)count;
            slice->var = v;
            slice->name = (char *)(v ? "beta" : "alpha");
            slice->n_shape = 2;
            slice->shape = shape;
            slice->row_offset = layout->cuts[v][p];
            slice->rows = layout->cuts[v][p + 1] - layout->cuts[v][p];
            slice->shard = layout->homes[v][p];
            slice->init = STEADFAST__V1__INIT_KIND__INIT_UNIFORM;
            slice->init_value = 2.0f;
            slice->trainable = true;
            list[count++] = slice;
        }
    Steadfast__V1__Plan plan = STEADFAST__V1__PLAN__INIT;
    plan.servers = &refs;
    plan.n_servers = 1;
    plan.slices = list;
    plan.n_slices = count;
    struct slice_layout *made = NULL;
    struct job_spec *spec = NULL;
    struct values *values = NULL;
    CHECK_OK(slice_layout_new(&plan, 0, shard, (uint32_t)layout->shards, &made, &err));
    CHECK_OK(job_spec_parse(spec_json, strlen(spec_json), &spec, &err));
    CHECK_OK(values_new(budget, "test", made, spec, &values, &err));
    return values;
}

/* Not equality of numbers: 0 and -0 differ, and a NaN equals itself. */
static bool same_bits(const void *a, const void *b, size_t bytes)
{
    return memcmp(a, b, bytes) == 0;
}

/* The gradient of an element in a step. */
static float grad_of(uint32_t var, uint64_t row, uint64_t col, uint64_t step)
{
    return rand_normal(9, ((step * VARS + var) * ROWS + row) * COLS + col);
}

static bool push(struct values *values, uint64_t step)
{
    if (!values_lacks(values, step))
        return false;
    struct err err;
    float *grads = base_alloc(values_bytes(values));
    for (size_t i = 0; i < values->layout->count; i++) {
        const struct slice *slice = &values->layout->slices[i];
        for (uint64_t k = 0; k < slice->elem_count; k++)
            grads[slice->elem_offset + k] =
                grad_of(slice->var, slice->row_offset + k / COLS, k % COLS, step);
    }
    struct buf *next;
    int64_t bad;
    CHECK_OK(bufpool_get(values->pool, &next, &err));
    values_compute(values, step, grads, next->data, &bad);
    CHECK(bad == -1);
    buf_unref(values_commit(values, step, next));
    free(grads);
    return true;
}

/* Values and slots of all elements of both variables. */
struct model {
    float data[1 + OPTIM_SLOTS_MAX][VARS][ROWS][COLS];
};

static void gather(struct values *const *shards, size_t count, struct model *model)
{
    for (size_t s = 0; s < count; s++) {
        const struct values *values = shards[s];
        for (size_t i = 0; i < values->layout->count; i++) {
            const struct slice *slice = &values->layout->slices[i];
            for (uint32_t k = 0; k <= values->optim->slot_count; k++) {
                const float *from = k ? values->slots[k - 1]->data : values->now->data;
                memcpy(model->data[k][slice->var][slice->row_offset], from + slice->elem_offset,
                       slice->elem_count * sizeof(float));
            }
        }
    }
}

static void save(struct values *const *shards, size_t count, uint64_t number)
{
    struct err err;
    AUTO(ckpt_manifest) manifest = ckpt_manifest_new();
    AUTO_MEM char *partial = NULL;
    manifest->job = base_strdup("j");
    manifest->spec_json = base_strdup(ADAM);
    manifest->number = number;
    ckpt_manifest_add_var(manifest, "alpha", 2, (uint64_t[]){ROWS, COLS}, true);
    ckpt_manifest_add_var(manifest, "beta", 2, (uint64_t[]){ROWS, COLS}, true);
    CHECK_OK(ckpt_begin(test_dir(), number, &partial, &err));
    for (size_t s = 0; s < count; s++) {
        if (shards[s]->layout->count == 0)
            continue;
        AUTO(snapshot) snapshot = NULL;
        char name[64];
        uint64_t bytes;
        uint32_t crc;
        snprintf(name, sizeof(name), "server0-shard%zu.safetensors", s);
        CHECK_OK(snapshot_take(shards[s], &snapshot, &err));
        CHECK_OK(ckpt_write(snapshot, partial, name, "j", &bytes, &crc, &err));
        uint32_t file = ckpt_manifest_add_file(manifest, name, bytes, crc, snapshot->version);
        uint32_t first = (uint32_t)manifest->group_count;
        for (size_t g = 0; g < snapshot->group_count; g++)
            ckpt_manifest_add_group(manifest, snapshot->groups[g].applied,
                                    &snapshot->groups[g].marks);
        for (size_t i = 0; i < snapshot->piece_count; i++) {
            const struct snapshot_piece *piece = &snapshot->pieces[i];
            ckpt_manifest_add_slice(manifest, strcmp(piece->name, "beta") == 0, piece->row_offset,
                                    piece->rows, file, first + piece->group);
        }
    }
    CHECK_OK(ckpt_publish(test_dir(), manifest, &err));
}

TEST_LIMIT(random_restores_in_the_middle_of_random_pushes_end_with_the_bits_of_an_undisturbed_run,
           60)
{
    enum { ROUNDS = 12, LIVES = 4, STEPS = 14 };
    for (uint64_t round = 0; round < ROUNDS; round++) {
        AUTO(budget) budget = budget_new(64 << 20, false);
        struct model want = {0}, got = {0};
        /* Undisturbed: one shard, the steps in order. All later runs apply them in order too, so
         * that sums agree. */
        struct layout single = {.shards = 1, .parts = {1, 1}, .cuts = {{0, ROWS}, {0, ROWS}}};
        struct values *alone = make_shard(budget, ADAM, &single, 0);
        values_fill_initial(alone);
        for (uint64_t step = 0; step < STEPS; step++)
            CHECK(push(alone, step));
        gather(&alone, 1, &want);
        values_free(alone);

        struct values *shards[8] = {0};
        size_t count = 0;
        uint64_t saved = 0;
        for (uint64_t life = 0; life < LIVES; life++) {
            struct err err;
            struct layout layout;
            uint64_t key = rand_key(round, RAND_TEST, life, 0);
            random_layout(key, &layout);
            for (size_t s = 0; s < count; s++)
                values_free(shards[s]);
            count = layout.shards;
            AUTO_MEM char *folder = ckpt_path(test_dir(), round * 100 + saved);
            for (uint32_t s = 0; s < count; s++) {
                shards[s] = make_shard(budget, ADAM, &layout, s);
                if (life == 0)
                    values_fill_initial(shards[s]);
                else
                    CHECK_OK(ckpt_read(folder, shards[s], &err));
            }
            /* Each shard gets another prefix of the steps; the last life gets all of them. */
            for (uint32_t s = 0; s < count; s++) {
                uint64_t upto = life + 1 == LIVES ? STEPS : rand_u64(key, 100 + s) % STEPS;
                for (uint64_t step = 0; step < upto; step++)
                    push(shards[s], step);
                CHECK(values_repeated(shards[s]) == 0);
            }
            if (life + 1 < LIVES)
                save(shards, count, round * 100 + ++saved);
        }
        for (size_t s = 0; s < count; s++) {
            if (shards[s]->layout->count == 0)
                continue;
            CHECK_U64(shards[s]->group_count, 1); /* equal again, so one */
            CHECK_U64(shards[s]->segment_count, shards[s]->layout->count);
            CHECK_U64(values_applied(shards[s]), STEPS);
        }
        gather(shards, count, &got);
        CHECK(same_bits(&want, &got, sizeof(want)));
        for (size_t s = 0; s < count; s++)
            values_free(shards[s]);
    }
}

TEST(a_checkpoint_of_another_optimizer_or_shape_is_refused_by_name)
{
    struct err err;
    AUTO(budget) budget = budget_new(64 << 20, false);
    struct layout single = {.shards = 1, .parts = {1, 1}, .cuts = {{0, ROWS}, {0, ROWS}}};
    struct values *values =
        make_shard(budget, SPEC("{\"name\": \"sgd\", \"learning_rate\": 0.1}"), &single, 0);
    save(&values, 1, 1);
    values_free(values);
    AUTO_MEM char *folder = ckpt_path(test_dir(), 1);
    values = make_shard(budget, ADAM, &single, 0);
    CHECK(ckpt_read(folder, values, &err) == ERR_INVALID);
    CHECK(strstr(err.text, "alpha#adam_m") && strstr(err.text, "another optimizer"));
    values->layout->slices[0].shape[1] = COLS + 1;
    CHECK(ckpt_read(folder, values, &err) == ERR_INVALID && strstr(err.text, "shape"));
    values->layout->slices[0].name[4] = 'b';
    CHECK(ckpt_read(folder, values, &err) == ERR_INVALID && strstr(err.text, "alphb"));
    CHECK(ckpt_read("/nonexistent", values, &err) == ERR_NOT_FOUND);
    values_free(values);
}

TEST(variables_that_are_not_trained_keep_their_values)
{
    AUTO(budget) budget = budget_new(64 << 20, false);
    struct layout single = {.shards = 1, .parts = {1, 1}, .cuts = {{0, ROWS}, {0, ROWS}}};
    struct values *values = make_shard(budget, ADAM, &single, 0);
    values_fill_initial(values);
    values->layout->slices[1].is_trainable = false;
    struct model before = {0}, after = {0};
    gather(&values, 1, &before);
    CHECK(push(values, 5));
    CHECK(!push(values, 5));
    gather(&values, 1, &after);
    CHECK(!same_bits(before.data[0][0], after.data[0][0], sizeof(before.data[0][0])));
    CHECK(same_bits(before.data[0][1], after.data[0][1], sizeof(before.data[0][1])));
    CHECK_U64(values_applied(values), 1);
    values_free(values);
}

TEST(a_gradient_that_is_no_number_is_applied_and_its_variable_named)
{
    struct err err;
    AUTO(budget) budget = budget_new(64 << 20, false);
    struct layout single = {.shards = 1, .parts = {1, 1}, .cuts = {{0, ROWS}, {0, ROWS}}};
    struct values *values =
        make_shard(budget, SPEC("{\"name\": \"sgd\", \"learning_rate\": 0.1}"), &single, 0);
    float *grads = base_alloc(values_bytes(values));
    grads[ROWS * COLS + 4] = NAN;
    struct buf *next;
    int64_t bad;
    CHECK_OK(bufpool_get(values->pool, &next, &err));
    values_compute(values, 0, grads, next->data, &bad);
    CHECK(bad == 1);
    const float *after = next->data;
    CHECK(isnan(after[ROWS * COLS + 4]) && !isnan(after[ROWS * COLS + 3]));
    buf_unref(next);
    free(grads);
    values_free(values);
}

TEST(bad_plans_are_refused_with_the_slice)
{
    struct err err;
    uint64_t shape[9] = {4, 2, 1, 1, 1, 1, 1, 1, 1};
    Steadfast__V1__ServerRef ref = STEADFAST__V1__SERVER_REF__INIT, *refs = &ref;
    Steadfast__V1__Slice good = STEADFAST__V1__SLICE__INIT, bad[12], *list[2];
    good.index = 3;
    good.name = (char *)"w";
    good.shape = shape;
    good.n_shape = 2;
    good.rows = 4;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        bad[i] = good;
    bad[0].name = (char *)"";
    bad[1].n_shape = 9;
    bad[2].rows = 0;
    bad[3].rows = 5;
    bad[4].row_offset = 1;
    bad[5].row_offset = UINT64_MAX;
    bad[6].server = 1;
    bad[7].shard = 2;
    bad[8].init = 9;
    bad[9].init_value = INFINITY;
    uint64_t zero[2] = {0, 2}, huge[2] = {1ull << 40, 1ull << 40};
    bad[10].shape = zero;
    bad[11].shape = huge;
    bad[11].rows = 1;
    Steadfast__V1__Plan plan = STEADFAST__V1__PLAN__INIT;
    plan.servers = &refs;
    plan.n_servers = 1;
    plan.slices = list;
    plan.n_slices = 1;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        AUTO(slice_layout) layout = NULL;
        list[0] = &bad[i];
        if (slice_layout_new(&plan, 0, 0, 2, &layout, &err) != ERR_INVALID ||
            !strstr(err.text, "slice 3"))
            test_fail(__FILE__, __LINE__, "case %zu: %s", i, err.text);
    }
    AUTO(slice_layout) layout = NULL;
    list[0] = list[1] = &good;
    plan.n_slices = 2;
    CHECK(slice_layout_new(&plan, 0, 0, 2, &layout, &err) == ERR_INVALID &&
          strstr(err.text, "twice"));
    CHECK(slice_layout_new(&plan, 1, 0, 2, &layout, &err) == ERR_INVALID);
    CHECK(slice_layout_new(NULL, 0, 0, 2, &layout, &err) == ERR_INVALID);
    plan.n_slices = 1;
    CHECK_OK(slice_layout_new(&plan, 0, 0, 2, &layout, &err));
    CHECK_U64(layout->elem_count, 8);
}
