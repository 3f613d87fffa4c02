/* SPDX-License-Identifier: Apache-2.0 */
#include "workerd/step/exec.h"

#include <stdlib.h>

#include "common/base/rand.h"
#include "models/graph/graph.h"
#include "models/zoo/model.h"
#include "tests/harness.h"

static struct err err;

#define SIDE     12
#define PIXELS   ((size_t)SIDE * SIDE)
#define CLASSES  5
#define EXAMPLES 64

/* A planted set: each class has a pattern of its own, each example is its pattern plus noise. */
struct fixture {
    struct graph *graph;
    struct exec *exec;
    float images[EXAMPLES * PIXELS];
    int32_t labels[EXAMPLES];
    float **vars;
    float **grads;
    size_t *elements;
    size_t var_count;
    size_t order[64]; /* variables in the order of on_grad */
    size_t order_count;
};

static void open_exec(struct fixture *f, const char *device)
{
    struct exec_options options = {.device = device, .max_batch = EXAMPLES};
    CHECK_OK(exec_new(f->graph, &options, &f->exec, &err));
}

static void fixture_init(struct fixture *f, const char *model, const char *device)
{
    memset(f, 0, sizeof(*f));
    uint32_t hidden[] = {24, 17};
    struct model_spec spec = {
        .name = (char *)model, .num_classes = CLASSES, .hidden = hidden, .hidden_count = 2};
    CHECK_OK(model_build(&spec, 1, SIDE, SIDE, &f->graph, &err));
    open_exec(f, device);
    for (size_t i = 0; i < EXAMPLES; i++) {
        f->labels[i] = (int32_t)(rand_u64(rand_key(1, RAND_TEST, 0, 0), i) % CLASSES);
        for (size_t p = 0; p < PIXELS; p++)
            f->images[i * PIXELS + p] =
                rand_normal(rand_key(2, RAND_TEST, (uint64_t)f->labels[i], 0), p) +
                0.5f * rand_normal(rand_key(3, RAND_TEST, i, 0), p);
    }
    f->var_count = graph_var_count(f->graph);
    f->vars = base_alloc(f->var_count * sizeof(*f->vars));
    f->grads = base_alloc(f->var_count * sizeof(*f->grads));
    f->elements = base_alloc(f->var_count * sizeof(*f->elements));
    for (size_t v = 0; v < f->var_count; v++) {
        const struct model_var *var = graph_var(f->graph, v);
        f->elements[v] = model_var_elements(var);
        f->vars[v] = base_alloc(f->elements[v] * sizeof(float));
        f->grads[v] = base_alloc(f->elements[v] * sizeof(float));
        for (size_t i = 0; var->init == INIT_KIND_TRUNCATED_NORMAL && i < f->elements[v]; i++)
            f->vars[v][i] =
                var->init_value * rand_truncated_normal(rand_key(4, RAND_INIT, v, 0), i);
    }
}

static void fixture_done(struct fixture *f)
{
    for (size_t v = 0; v < f->var_count; v++) {
        free(f->vars[v]);
        free(f->grads[v]);
    }
    free(f->vars);
    free(f->grads);
    free(f->elements);
    exec_free(f->exec);
    graph_free(f->graph);
}

static void on_grad(size_t var_index, void *arg)
{
    struct fixture *f = arg;
    CHECK(f->order_count < ARRAY_SIZE(f->order));
    f->order[f->order_count++] = var_index;
}

static enum err_code step(struct fixture *f, uint64_t number, uint32_t first, uint32_t count,
                          float *ret_loss)
{
    struct batch batch = {
        .count = count, .images = f->images + first * PIXELS, .labels = f->labels + first};
    f->order_count = 0;
    return exec_train(f->exec, number, &batch, (const float *const *)f->vars, f->grads, on_grad, f,
                      ret_loss, &err);
}

static void descend(struct fixture *f, float rate)
{
    for (size_t v = 0; v < f->var_count; v++)
        for (size_t i = 0; i < f->elements[v]; i++)
            f->vars[v][i] -= rate * f->grads[v][i];
}

static uint32_t eval(struct fixture *f, uint32_t count, double *ret_loss)
{
    struct batch batch = {.count = count, .images = f->images, .labels = f->labels};
    uint32_t correct = 0;
    CHECK_OK(exec_eval(f->exec, &batch, (const float *const *)f->vars, ret_loss, &correct, &err));
    return correct;
}

static void check_learns(const char *model, const char *device, uint64_t steps, float rate)
{
    struct fixture f;
    fixture_init(&f, model, device);
    double before = 0;
    double after = 0;
    float loss = 0;
    eval(&f, EXAMPLES, &before);
    for (uint64_t s = 0; s < steps; s++) {
        CHECK_OK(step(&f, s, (uint32_t)(s * 16 % EXAMPLES), 16, &loss));
        descend(&f, rate);
    }
    uint32_t correct = eval(&f, EXAMPLES, &after);
    CHECK(after < before / 4);
    CHECK(correct >= EXAMPLES - 2);
    fixture_done(&f);
}

TEST(softmax_learns_a_planted_set_on_cpu)
{
    check_learns("softmax", "cpu", 40, 0.05f);
}

TEST(mlp_learns_a_planted_set_on_cpu)
{
    check_learns("mlp", "cpu", 60, 0.05f);
}

TEST(lenet_learns_a_planted_set_on_cpu)
{
    check_learns("lenet", "cpu", 40, 0.02f);
}

TEST(softmax_learns_a_planted_set_on_ref)
{
    check_learns("softmax", "ref", 40, 0.05f);
}

static void check_agree(const char *model, uint32_t batch, uint64_t steps)
{
    struct fixture cpu;
    struct fixture ref;
    fixture_init(&cpu, model, "cpu");
    fixture_init(&ref, model, "ref");
    for (uint64_t s = 0; s < steps; s++) {
        float cpu_loss = 0;
        float ref_loss = 0;
        CHECK_OK(step(&cpu, s, (uint32_t)s, batch, &cpu_loss));
        CHECK_OK(step(&ref, s, (uint32_t)s, batch, &ref_loss));
        CHECK_NEAR(cpu_loss, ref_loss, 1e-4);
        CHECK_U64(cpu.order_count, ref.order_count);
        for (size_t v = 0; v < cpu.var_count; v++) {
            CHECK_U64(cpu.order[v], ref.order[v]);
            double largest = 0;
            double error = 0;
            for (size_t i = 0; i < cpu.elements[v]; i++) {
                largest = fmax(largest, fabs((double)ref.grads[v][i]));
                double e = fabs((double)cpu.grads[v][i] - (double)ref.grads[v][i]);
                error = e <= error ? error : e;
            }
            CHECK_NEAR(error, 0, 1e-4 * largest + 1e-7);
        }
        descend(&cpu, 0.02f);
        descend(&ref, 0.02f);
    }
    fixture_done(&cpu);
    fixture_done(&ref);
}

TEST(cpu_and_ref_agree_on_softmax_over_several_steps)
{
    check_agree("softmax", 13, 5);
}

TEST(cpu_and_ref_agree_on_mlp_over_several_steps)
{
    check_agree("mlp", 13, 5);
}

TEST_LIMIT(cpu_and_ref_agree_on_lenet_over_several_steps, 60)
{
    check_agree("lenet", 3, 4);
}

TEST(every_gradient_is_reported_once_and_the_last_layer_first)
{
    struct fixture f;
    fixture_init(&f, "lenet", "cpu");
    float loss = 0;
    CHECK_OK(step(&f, 0, 0, 4, &loss));
    CHECK_U64(f.order_count, 8);
    bool seen[8] = {0};
    for (size_t i = 0; i < 8; i++) {
        CHECK(!seen[f.order[i]]);
        seen[f.order[i]] = true;
        CHECK_U64(f.order[i] / 2, 3 - i / 2); /* two variables a layer */
    }
    fixture_done(&f);
}

TEST(a_step_repeated_gives_the_same_bits)
{
    struct fixture f;
    struct fixture again;
    fixture_init(&f, "lenet", "cpu");
    fixture_init(&again, "lenet", "cpu");
    float loss[3] = {0};
    CHECK_OK(step(&f, 0, 0, 32, &loss[0]));
    CHECK_OK(step(&again, 0, 5, 7, &loss[1])); /* other sizes between do not matter */
    CHECK_OK(step(&again, 9, 0, 32, &loss[1]));
    CHECK(loss[0] == loss[1]);
    for (size_t v = 0; v < f.var_count; v++)
        CHECK(memcmp(f.grads[v], again.grads[v], f.elements[v] * sizeof(float)) == 0);
    CHECK_OK(step(&again, 10, 0, 32, &loss[2]));
    CHECK(loss[2] == loss[1]);
    for (size_t v = 0; v < f.var_count; v++)
        CHECK(memcmp(f.grads[v], again.grads[v], f.elements[v] * sizeof(float)) == 0);
    fixture_done(&f);
    fixture_done(&again);
}

TEST(two_threads_repeat_their_bits)
{
    struct fixture f;
    struct fixture again;
    struct exec_options options = {.device = "cpu", .threads = 2, .max_batch = EXAMPLES};
    float loss[2] = {0};
    fixture_init(&f, "lenet", "cpu");
    fixture_init(&again, "lenet", "cpu");
    exec_free(f.exec);
    exec_free(again.exec);
    CHECK_OK(exec_new(f.graph, &options, &f.exec, &err));
    CHECK_OK(exec_new(again.graph, &options, &again.exec, &err));
    for (uint64_t s = 0; s < 3; s++) {
        CHECK_OK(step(&f, s, 0, 30, &loss[0]));
        CHECK_OK(step(&again, s, 0, 30, &loss[1]));
        CHECK(loss[0] == loss[1]);
        for (size_t v = 0; v < f.var_count; v++)
            CHECK(memcmp(f.grads[v], again.grads[v], f.elements[v] * sizeof(float)) == 0);
        descend(&f, 0.02f);
        descend(&again, 0.02f);
    }
    fixture_done(&f);
    fixture_done(&again);
}

TEST(more_batch_sizes_than_are_kept_give_the_same_bits)
{
    struct fixture f;
    fixture_init(&f, "mlp", "cpu");
    float loss[21] = {0};
    for (uint32_t count = 1; count <= 20; count++)
        CHECK_OK(step(&f, count, 0, count, &loss[count]));
    for (uint32_t count = 20; count >= 1; count--) {
        float again = 0;
        CHECK_OK(step(&f, count, 0, count, &again));
        CHECK(again == loss[count]);
    }
    fixture_done(&f);
}

static void check_nan(const char *model, const char *device)
{
    struct fixture f;
    fixture_init(&f, model, device);
    float loss = 0;
    double eval_loss = 0;
    f.images[2 * PIXELS + 77] = NAN;
    CHECK_OK(step(&f, 0, 0, 4, &loss));
    CHECK(isnan(loss));
    eval(&f, 4, &eval_loss);
    CHECK(isnan(eval_loss));
    f.images[2 * PIXELS + 77] = 0;
    CHECK_OK(step(&f, 0, 0, 4, &loss));
    CHECK(isfinite(loss));
    f.vars[1][1] = NAN; /* a bias of the first layer */
    CHECK_OK(step(&f, 0, 0, 4, &loss));
    CHECK(isnan(loss));
    fixture_done(&f);
}

TEST(a_nan_shows_in_the_loss)
{
    check_nan("softmax", "cpu");
    check_nan("mlp", "cpu");
    check_nan("lenet", "cpu");
    check_nan("lenet", "ref");
}

TEST(evaluation_is_the_sum_over_examples_whatever_the_batch)
{
    struct fixture f;
    fixture_init(&f, "lenet", "cpu");
    double whole = 0;
    double parts = 0;
    uint32_t correct = eval(&f, EXAMPLES, &whole);
    uint32_t correct_parts = 0;
    for (uint32_t i = 0; i < EXAMPLES; i += 16) {
        struct batch batch = {.count = 16, .images = f.images + i * PIXELS, .labels = f.labels + i};
        double loss = 0;
        uint32_t c = 0;
        CHECK_OK(exec_eval(f.exec, &batch, (const float *const *)f.vars, &loss, &c, &err));
        parts += loss;
        correct_parts += c;
    }
    CHECK_NEAR(parts, whole, 1e-3);
    CHECK_U64(correct_parts, correct);
    float mean = 0;
    CHECK_OK(step(&f, 0, 0, EXAMPLES, &mean));
    CHECK_NEAR(mean, whole / EXAMPLES, 1e-5);
    fixture_done(&f);
}

TEST(an_evaluation_batch_larger_than_a_chunk_counts_every_example)
{
    struct fixture f;
    fixture_init(&f, "softmax", "cpu");
    static const uint32_t many = 300;
    float *images = base_alloc(many * PIXELS * sizeof(*images));
    int32_t labels[300];
    double one = 0;
    double all = 0;
    for (size_t i = 0; i < many; i++) {
        memcpy(images + i * PIXELS, f.images, PIXELS * sizeof(*images));
        labels[i] = f.labels[0];
    }
    uint32_t correct = eval(&f, 1, &one);
    struct batch batch = {.count = many, .images = images, .labels = labels};
    uint32_t correct_all = 0;
    CHECK_OK(exec_eval(f.exec, &batch, (const float *const *)f.vars, &all, &correct_all, &err));
    CHECK_U64(correct_all, (uint64_t)many * correct);
    CHECK_NEAR(all, many * one, 1e-3);
    free(images);
    fixture_done(&f);
}

TEST(a_label_out_of_range_is_refused_and_nothing_is_written)
{
    struct fixture f;
    fixture_init(&f, "softmax", "cpu");
    float loss = 17;
    f.grads[0][0] = 18;
    f.labels[3] = CLASSES;
    CHECK(step(&f, 0, 0, 4, &loss) == ERR_INVALID);
    CHECK_STR(err.text, "label 5 of example 3 in the batch: want 0 to 4");
    f.labels[3] = -1;
    CHECK(step(&f, 0, 0, 4, &loss) == ERR_INVALID);
    CHECK_STR(err.text, "label -1 of example 3 in the batch: want 0 to 4");
    CHECK(loss == 17 && f.grads[0][0] == 18 && f.order_count == 0);
    double sum = 19;
    uint32_t correct = 20;
    struct batch batch = {.count = 4, .images = f.images, .labels = f.labels};
    CHECK(exec_eval(f.exec, &batch, (const float *const *)f.vars, &sum, &correct, &err) ==
          ERR_INVALID);
    CHECK(sum == 19 && correct == 20);
    fixture_done(&f);
}

TEST(a_batch_of_a_wrong_size_is_refused)
{
    struct fixture f;
    fixture_init(&f, "softmax", "cpu");
    float loss = 0;
    CHECK(step(&f, 0, 0, EXAMPLES + 1, &loss) == ERR_INVALID);
    CHECK_STR(err.text, "a batch of 65, want up to 64");
    CHECK(step(&f, 0, 0, 0, &loss) == ERR_INVALID);
    CHECK_STR(err.text, "a batch of 0, want 1 to 64");
    fixture_done(&f);
}

TEST(noop_runs_everywhere_and_loses_nothing)
{
    static const char *const devices[] = {"ref", "cpu", "fake"};
    for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
        struct fixture f;
        fixture_init(&f, "noop", devices[i]);
        float loss = 1;
        double sum = 1;
        CHECK_OK(step(&f, 0, 0, 4, &loss));
        CHECK(loss == 0 && f.order_count == 0);
        CHECK_U64(eval(&f, 4, &sum), 0);
        CHECK(sum == 0);
        fixture_done(&f);
    }
}

TEST(a_device_that_is_not_there_is_refused)
{
    struct fixture f;
    fixture_init(&f, "softmax", "ref");
    struct exec *exec = NULL;
    struct exec_options options = {.device = "cuda", .max_batch = 1};
    CHECK(exec_new(f.graph, &options, &exec, &err) == ERR_NOT_FOUND);
    CHECK_STR(err.text, "device \"cuda\": this build has no CUDA backend, want ref, cpu or fake");
    options.device = "gpu";
    CHECK(exec_new(f.graph, &options, &exec, &err) == ERR_INVALID);
    CHECK_STR(err.text, "device \"gpu\": want ref, cpu or fake");
    CHECK(!exec);
    fixture_done(&f);
}
