/* SPDX-License-Identifier: Apache-2.0 */
/* bench_train: the same training in one process, without coordinator, servers or network: input,
 * forward, backward and the optimizer, on one device with one thread. What bench_exchange.py
 * compares clusters with.
 *
 *   bench_train [MODEL [BATCH [SECONDS]]]     default lenet 64 4
 *
 * Prints steps/s over all steps after the first ten, and where the time went.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/rand.h"
#include "common/spec/job_spec.h"
#include "models/graph/graph.h"
#include "models/zoo/model.h"
#include "psd/optim/optim.h"
#include "workerd/exchange/tensor_set.h"
#include "workerd/input/input.h"
#include "workerd/step/exec.h"

#define WARM_UP 10

static void die(const struct err *err)
{
    fprintf(stderr, "bench_train: %s: %s\n", err_name(err->code), err->text);
    exit(1);
}

struct train {
    struct job_spec *spec;
    struct input *input;
    struct graph *graph;
    struct exec *exec;
    struct tensor_set *vars[2]; /* read, written; swapped by each update */
    struct tensor_set *grads;
    struct tensor_set *momentum;
    float *images;
    int32_t *labels;
    uint64_t *records;
    uint64_t input_ns, compute_ns, update_ns;
};

static void on_grad(size_t var_index, void *arg)
{
    (void)var_index;
    (void)arg;
}

static void train_init(struct train *t, const char *model, uint32_t batch)
{
    struct err err = {0};
    char json[1024];
    int n = snprintf(
        json, sizeof(json),
        "{\"name\":\"one\",\"seed\":1,\"epochs\":1,\"model\":{\"name\":\"%s\",\"num_classes\":10%s}"
        ","
        "\"dataset\":{\"source\":\"synthetic\",\"records\":51200,\"height\":28,\"width\":28,"
        "\"channels\":1,\"num_classes\":10,\"batch_size\":%" PRIu32 "},"
        "\"optimizer\":{\"name\":\"momentum\",\"momentum\":0.9,\"learning_rate\":0.002}}",
        model, strcmp(model, "mlp") == 0 ? ",\"hidden\":[512,256]" : "", batch);
    struct exec_options options = {.device = "cpu", .threads = 1, .max_batch = batch};
    if (job_spec_parse(json, (size_t)n, &t->spec, &err) ||
        input_open(&t->spec->dataset, 10, 1, 0, &t->input, &err) ||
        model_build(&t->spec->model, 1, 28, 28, &t->graph, &err) ||
        exec_new(t->graph, &options, &t->exec, &err))
        die(&err);
    size_t count = t->graph->var_count;
    uint64_t *elements = base_alloc(count * sizeof(*elements));
    for (size_t v = 0; v < count; v++)
        elements[v] = model_var_elements(&t->graph->vars[v]);
    struct tensor_set **sets[] = {&t->vars[0], &t->vars[1], &t->grads, &t->momentum};
    for (size_t i = 0; i < ARRAY_SIZE(sets); i++)
        if (tensor_set_new(elements, count, sets[i], &err))
            die(&err);
    for (size_t v = 0; v < count; v++)
        for (uint64_t i = 0; i < elements[v]; i++)
            t->vars[0]->vars[v][i] = 0.03f * rand_normal(rand_key(1, RAND_TEST, v, 0), i);
    free(elements);
    t->images = base_alloc((size_t)batch * 28 * 28 * sizeof(*t->images));
    t->labels = base_alloc(batch * sizeof(*t->labels));
    t->records = base_alloc(batch * sizeof(*t->records));
}

static void train_step(struct train *t, uint32_t batch, uint64_t step)
{
    struct err err = {0};
    float loss;
    uint64_t begin_ns = clock_now_ns();
    for (uint32_t i = 0; i < batch; i++)
        t->records[i] = (step * batch + i) % t->spec->dataset.records;
    if (input_fill(t->input, t->records, batch, t->images, t->labels, &err))
        die(&err);
    uint64_t filled_ns = clock_now_ns();
    struct batch b = {.count = batch, .images = t->images, .labels = t->labels};
    if (exec_train(t->exec, step, &b, (const float *const *)t->vars[0]->vars, t->grads->vars,
                   on_grad, NULL, &loss, &err))
        die(&err);
    uint64_t computed_ns = clock_now_ns();
    for (size_t v = 0; v < t->graph->var_count; v++) {
        struct optim_args args = {.values = t->vars[0]->vars[v],
                                  .grads = t->grads->vars[v],
                                  .next = t->vars[1]->vars[v],
                                  .slots = {t->momentum->vars[v]},
                                  .count = model_var_elements(&t->graph->vars[v]),
                                  .applied = step,
                                  .rate = 0.002};
        optim_of(OPTIMIZER_MOMENTUM)->apply(&t->spec->optimizer, &args, optim_isa_best());
    }
    struct tensor_set *old = t->vars[0];
    t->vars[0] = t->vars[1];
    t->vars[1] = old;
    uint64_t end_ns = clock_now_ns();
    t->input_ns += filled_ns - begin_ns;
    t->compute_ns += computed_ns - filled_ns;
    t->update_ns += end_ns - computed_ns;
}

static void train_done(struct train *t)
{
    exec_free(t->exec);
    graph_free(t->graph);
    input_unref(t->input);
    job_spec_free(t->spec);
    for (int i = 0; i < 2; i++)
        tensor_set_free(t->vars[i]);
    tensor_set_free(t->grads);
    tensor_set_free(t->momentum);
    free(t->images);
    free(t->labels);
    free(t->records);
}

int main(int argc, char **argv)
{
    const char *model = argc > 1 ? argv[1] : "lenet";
    uint32_t batch = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 64;
    double seconds = argc > 3 ? strtod(argv[3], NULL) : 4.0;
    if (batch == 0 || seconds <= 0) {
        fprintf(stderr, "usage: bench_train [MODEL [BATCH [SECONDS]]]\n");
        return 2;
    }
    struct train t = {0};
    train_init(&t, model, batch);
    uint64_t step = 0;
    while (step < WARM_UP)
        train_step(&t, batch, step++);
    t.input_ns = t.compute_ns = t.update_ns = 0;
    uint64_t begin_ns = clock_now_ns();
    uint64_t end_ns = begin_ns + (uint64_t)(seconds * 1e9);
    while (clock_now_ns() < end_ns)
        train_step(&t, batch, step++);
    double s = (double)(clock_now_ns() - begin_ns) / 1e9;
    double steps = (double)(step - WARM_UP);
    printf("one process, %s batch %" PRIu32
           ": %.2f steps/s; input %.2f, compute %.2f, update %.2f ms\n",
           model, batch, steps / s, (double)t.input_ns / 1e6 / steps,
           (double)t.compute_ns / 1e6 / steps, (double)t.update_ns / 1e6 / steps);
    train_done(&t);
    return 0;
}
