/* SPDX-License-Identifier: Apache-2.0 */
/* op_case: a small graph with inputs of its own, run on one device or another.
 *
 * Values are drawn from the case's seed: normal ones, or small whole numbers, with which products
 * and sums are exact in f32, so that two backends must agree to the bit even on ties. */
#ifndef TESTS_PARITY_OP_CASE_H
#define TESTS_PARITY_OP_CASE_H

#include <stdio.h>
#include <stdlib.h>

#include "common/base/rand.h"
#include "kernels/program/device_table.h"
#include "kernels/program/program.h"
#include "tests/harness.h"

enum op_values { VALUES_NORMAL, VALUES_WHOLE };

#define CASE_TENSORS 64

struct op_case {
    struct graph *graph;
    enum dtype dtype; /* of all float tensors */
    enum op_values values;
    uint64_t seed;
    uint32_t batch;
    void *data[CASE_TENSORS]; /* of inputs, by tensor */
};

#define DIMS(...)                                                                                  \
    (const uint64_t[]){__VA_ARGS__},                                                               \
        (uint32_t)(sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

static inline void case_init(struct op_case *c, enum dtype dtype, enum op_values values,
                             uint32_t batch, uint64_t seed)
{
    *c = (struct op_case){
        .graph = graph_new(), .dtype = dtype, .values = values, .batch = batch, .seed = seed};
}

static inline void case_done(struct op_case *c)
{
    for (size_t t = 0; t < CASE_TENSORS; t++)
        free(c->data[t]);
    graph_free(c->graph);
}

static inline size_t case_add(struct op_case *c, const struct tensor_shape *shape)
{
    struct err err = {0};
    char name[32];
    size_t tensor;
    snprintf(name, sizeof(name), "in%zu", c->graph->tensor_count);
    CHECK_OK(graph_add_input(c->graph, name, shape, &tensor, &err));
    CHECK(tensor < CASE_TENSORS);
    return tensor;
}

/* A float input with values of its own. */
static inline size_t case_input(struct op_case *c, const uint64_t *dims, uint32_t rank)
{
    struct tensor_shape shape = {.dtype = c->dtype, .rank = rank};
    memcpy(shape.dims, dims, rank * sizeof(*dims));
    size_t tensor = case_add(c, &shape);
    uint64_t count = tensor_shape_elements(&shape, c->batch);
    uint64_t key = rand_key(c->seed, RAND_TEST, tensor, 0);
    c->data[tensor] = base_alloc(count * sizeof(double));
    for (uint64_t i = 0; i < count; i++) {
        double v = c->values == VALUES_WHOLE ? (double)(rand_u64(key, i) % 7) - 3
                                             : (double)rand_normal(key, i);
        if (c->dtype == DTYPE_F64)
            ((double *)c->data[tensor])[i] = v;
        else
            ((float *)c->data[tensor])[i] = (float)v;
    }
    return tensor;
}

static inline size_t case_labels(struct op_case *c, uint64_t class_count)
{
    struct tensor_shape shape = {.dtype = DTYPE_I32, .rank = 1, .dims = {DIM_BATCH}};
    size_t tensor = case_add(c, &shape);
    int32_t *labels = base_alloc(c->batch * sizeof(*labels));
    for (uint64_t i = 0; i < c->batch; i++)
        labels[i] = (int32_t)(rand_u64(rand_key(c->seed, RAND_TEST, tensor, 0), i) % class_count);
    c->data[tensor] = labels;
    return tensor;
}

static inline const size_t *case_node(struct op_case *c, enum op_kind op,
                                      const struct op_attrs *attrs, const size_t *in,
                                      size_t in_count, size_t out_count)
{
    struct err err = {0};
    char name[32];
    size_t out[OP_OUT_MAX];
    snprintf(name, sizeof(name), "node%zu", c->graph->node_count);
    CHECK_OK(graph_add_node(c->graph, op, name, attrs, in, in_count, out, out_count, &err));
    return c->graph->nodes[c->graph->node_count - 1].out;
}

/* Runs the graph for one output on that many threads; the caller frees it. Floats of the case's
 * type. */
static inline void *case_run_on(const struct op_case *c, const char *device_name, uint32_t threads,
                                size_t output)
{
    struct err err = {0};
    struct device_options options = {.threads = threads};
    struct device *device = NULL;
    struct program *program = NULL;
    void *arena = NULL;
    const struct tensor_shape *shape = &c->graph->tensors[output].shape;
    void *outputs[CASE_TENSORS] = {0};
    CHECK(c->graph->tensor_count <= CASE_TENSORS);
    outputs[output] = base_alloc((tensor_shape_elements(shape, c->batch) + 1) * sizeof(double));
    CHECK_OK(device_open(device_name, &options, &device, &err));
    CHECK_OK(program_new(device, c->graph, c->batch, &output, 1, &program, &err));
    CHECK_OK(device->ops->buf_new(device, program_arena_bytes(program), &arena, &err));
    memset(arena, 0xff,
           program_arena_bytes(program)); /* NaN: what is read before it is written shows */
    struct program_io io = {.inputs = (const void *const *)c->data, .outputs = outputs};
    CHECK_OK(program_run(program, arena, &io, &err));
    device->ops->buf_free(device, arena, program_arena_bytes(program));
    program_free(program);
    device_close(device);
    return outputs[output];
}

static inline void *case_run(const struct op_case *c, const char *device_name, size_t output)
{
    return case_run_on(c, device_name, 1, output);
}

#endif
