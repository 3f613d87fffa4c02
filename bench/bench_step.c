/* SPDX-License-Identifier: Apache-2.0 */
/* bench_step: one training step of a model on one device: images per second and where the time
 * goes.
 *
 *   bench_step [MODEL [BATCH [DEVICE [THREADS [SECONDS]]]]]
 *
 * Without arguments: lenet and mlp, batch 64, cpu, one thread. The median of the steps counts, in
 * wall and in processor time: where they differ, other work had the cores. Nodes show their share
 * of the mean step.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/rand.h"
#include "kernels/program/device_table.h"
#include "kernels/program/program.h"
#include "models/graph/graph.h"
#include "models/zoo/model.h"

#define STEP_MAX 20000

struct bench {
    struct graph *graph;
    struct device *device;
    struct program *program;
    void *arena;
    const void **inputs;
    void **outputs;
    uint64_t *node_ns;
};

static void die(const struct err *err)
{
    fprintf(stderr, "bench_step: %s: %s\n", err_name(err->code), err->text);
    exit(1);
}

static void *random_tensor(const struct graph *graph, size_t tensor, uint32_t batch)
{
    const struct tensor_shape *shape = &graph->tensors[tensor].shape;
    uint64_t count = tensor_shape_elements(shape, batch);
    uint64_t key = rand_key(1, RAND_TEST, tensor, 0);
    float *data = base_alloc(count * sizeof(*data));
    for (uint64_t i = 0; i < count; i++) {
        if (shape->dtype == DTYPE_I32)
            ((int32_t *)data)[i] = (int32_t)(rand_u64(key, i) % 10);
        else
            data[i] = (tensor == graph->images ? 1.0f : 0.05f) * rand_normal(key, i);
    }
    return data;
}

static void bench_init(struct bench *b, const char *model, uint32_t batch, const char *device,
                       uint32_t threads, double *ret_compile_ms)
{
    struct err err = {0};
    uint32_t hidden[] = {512, 256};
    struct model_spec spec = {
        .name = (char *)model, .num_classes = 10, .hidden = hidden, .hidden_count = 2};
    struct device_options options = {.threads = threads};
    if (model_build(&spec, 1, 28, 28, &b->graph, &err) ||
        device_open(device, &options, &b->device, &err))
        die(&err);
    const struct graph *graph = b->graph;
    size_t *wanted = base_alloc((graph->var_count + 1) * sizeof(*wanted));
    b->inputs = base_alloc(graph->tensor_count * sizeof(*b->inputs));
    b->outputs = base_alloc(graph->tensor_count * sizeof(*b->outputs));
    b->node_ns = base_alloc((graph->node_count + 1) * sizeof(*b->node_ns));
    for (size_t t = 0; t < graph->tensor_count; t++)
        if (graph->tensors[t].kind != TENSOR_VALUE)
            b->inputs[t] = random_tensor(graph, t, batch);
    wanted[0] = graph->loss;
    b->outputs[graph->loss] = base_alloc(sizeof(float));
    for (size_t v = 0; v < graph->var_count; v++) {
        wanted[v + 1] = graph->var_grads[v];
        b->outputs[wanted[v + 1]] = base_alloc(model_var_elements(&graph->vars[v]) * sizeof(float));
    }
    uint64_t start_ns = clock_now_ns();
    if (program_new(b->device, graph, batch, wanted, graph->var_count + 1, &b->program, &err) ||
        b->device->ops->buf_new(b->device, program_arena_bytes(b->program), &b->arena, &err))
        die(&err);
    *ret_compile_ms = (double)(clock_now_ns() - start_ns) / 1e6;
    free(wanted);
}

static void bench_done(struct bench *b)
{
    for (size_t t = 0; t < b->graph->tensor_count; t++) {
        free((void *)b->inputs[t]);
        free(b->outputs[t]);
    }
    b->device->ops->buf_free(b->device, b->arena, program_arena_bytes(b->program));
    program_free(b->program);
    device_close(b->device);
    graph_free(b->graph);
    free(b->inputs);
    free(b->outputs);
    free(b->node_ns);
}

static uint64_t cpu_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void run_once(struct bench *b, uint64_t *ret_wall_ns, uint64_t *ret_cpu_ns)
{
    struct err err = {0};
    struct program_io io = {.inputs = b->inputs, .outputs = b->outputs};
    uint64_t wall_ns = clock_now_ns();
    uint64_t cpu_ns = cpu_now_ns();
    if (program_run(b->program, b->arena, &io, &err))
        die(&err);
    *ret_wall_ns = clock_now_ns() - wall_ns;
    *ret_cpu_ns = cpu_now_ns() - cpu_ns;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static double median_ms(uint64_t *ns, size_t count)
{
    size_t middle = count / 2;
    qsort(ns, count, sizeof(*ns), compare_u64);
    return (double)ns[middle] / 1e6;
}

static void bench_run(const char *model, uint32_t batch, const char *device, uint32_t threads,
                      double seconds)
{
    static uint64_t wall_ns[STEP_MAX];
    static uint64_t cpu_ns[STEP_MAX];
    struct bench b = {0};
    double compile_ms = 0;
    bench_init(&b, model, batch, device, threads, &compile_ms);
    run_once(&b, &wall_ns[0], &cpu_ns[0]);
    double first_ms = (double)wall_ns[0] / 1e6;
    for (int i = 0; i < 3; i++)
        run_once(&b, &wall_ns[0], &cpu_ns[0]);
    program_profile(b.program, b.node_ns);
    size_t count = 0;
    uint64_t end_ns = clock_now_ns() + (uint64_t)(seconds * 1e9);
    for (; count < STEP_MAX && (count < 5 || clock_now_ns() < end_ns); count++)
        run_once(&b, &wall_ns[count], &cpu_ns[count]);
    double wall_ms = median_ms(wall_ns, count);
    printf(
        "step %s batch %u %s threads %u: %.2f ms (%.2f ms of processor time, best %.2f ms), %.0f "
        "images/s; %zu steps, compile %.1f ms, first step %.1f ms, arena %.1f MiB\n",
        model, batch, device, threads, wall_ms, median_ms(cpu_ns, count), (double)wall_ns[0] / 1e6,
        batch * 1e3 / wall_ms, count, compile_ms, first_ms,
        (double)program_arena_bytes(b.program) / 1048576);
    for (size_t n = 0; n < b.graph->node_count; n++)
        printf("  %-28s %-28s %8.1f us\n", b.graph->nodes[n].name,
               op_def(b.graph->nodes[n].op)->name, (double)b.node_ns[n] / 1e3 / (double)count);
    bench_done(&b);
}

int main(int argc, char **argv)
{
    uint32_t batch = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 64;
    const char *device = argc > 3 ? argv[3] : "cpu";
    uint32_t threads = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 1;
    double seconds = argc > 5 ? strtod(argv[5], NULL) : 2.0;
    if (batch == 0) {
        fprintf(stderr, "usage: bench_step [MODEL [BATCH [DEVICE [THREADS [SECONDS]]]]]\n");
        return 2;
    }
    if (argc > 1) {
        bench_run(argv[1], batch, device, threads, seconds);
        return 0;
    }
    bench_run("lenet", batch, device, threads, seconds);
    bench_run("mlp", batch, device, threads, seconds);
    return 0;
}
