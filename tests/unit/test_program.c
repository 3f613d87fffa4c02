/* SPDX-License-Identifier: Apache-2.0 */
/* Programs on devices made for the test: ref or cpu with some slots replaced. */
#include "kernels/program/device_table.h"
#include "kernels/program/program.h"
#include "models/zoo/model.h"

#include <stdlib.h>

#include "kernels/cpu/device_cpu.h"
#include "kernels/ref/device_ref.h"
#include "tests/harness.h"

static struct err err;

/* What the replaced slots do and note. */
static struct {
    const struct device_ops *base;
    size_t run_count;
    size_t fail_at;   /* number of the op_run that fails */
    uint64_t marks;   /* given out */
    uint64_t waited;  /* the highest waited for */
    size_t out_count; /* outputs handed over */
    size_t outputs[16];
    uint64_t waited_at[16];
} spy;

static enum err_code spy_run(struct device *device, struct device_op *op,
                             const struct device_call *call, struct err *err_)
{
    if (spy.run_count++ == spy.fail_at)
        return err_set(err_, ERR_DEVICE, "out of luck");
    return spy.base->op_run(device, op, call, err_);
}

static enum err_code spy_mark(struct device *device, uint64_t *ret_mark, struct err *err_)
{
    (void)device;
    (void)err_;
    *ret_mark = ++spy.marks;
    return ERR_OK;
}

static enum err_code spy_wait(struct device *device, uint64_t mark, struct err *err_)
{
    (void)device;
    (void)err_;
    spy.waited = MAX(spy.waited, mark);
    return ERR_OK;
}

static void on_output(size_t tensor, void *arg)
{
    (void)arg;
    CHECK(spy.out_count < ARRAY_SIZE(spy.outputs));
    spy.outputs[spy.out_count] = tensor;
    spy.waited_at[spy.out_count++] = spy.waited;
}

struct fixture {
    struct graph *graph;
    struct device *device;
    struct device_ops ops;
    void *arena;
    const void *inputs[64];
    void *outputs[64];
};

static void fixture_init(struct fixture *f, const struct device_ops *base, bool is_async)
{
    memset(f, 0, sizeof(*f));
    memset(&spy, 0, sizeof(spy));
    spy.base = base;
    spy.fail_at = SIZE_MAX;
    struct model_spec spec = {.name = (char *)"lenet", .num_classes = 3};
    CHECK_OK(model_build(&spec, 1, 8, 8, &f->graph, &err));
    CHECK_OK(base->open(&(struct device_options){0}, &f->device, &err));
    f->ops = *base;
    f->ops.op_run = spy_run;
    if (is_async) {
        f->ops.mark = spy_mark;
        f->ops.wait = spy_wait;
    }
    f->device->ops = &f->ops;
    CHECK(f->graph->tensor_count <= ARRAY_SIZE(f->inputs));
    for (size_t t = 0; t < f->graph->tensor_count; t++) {
        const struct tensor_shape *shape = &f->graph->tensors[t].shape;
        if (shape->dtype == DTYPE_OPAQUE)
            continue;
        f->inputs[t] = base_alloc((tensor_shape_elements(shape, 2) + 1) * sizeof(float));
        f->outputs[t] = base_alloc((tensor_shape_elements(shape, 2) + 1) * sizeof(float));
    }
}

static void fixture_done(struct fixture *f)
{
    for (size_t t = 0; t < f->graph->tensor_count; t++) {
        free((void *)f->inputs[t]);
        free(f->outputs[t]);
    }
    f->device->ops = spy.base;
    device_close(f->device);
    graph_free(f->graph);
}

static enum err_code compile_and_run(struct fixture *f, const size_t *outputs, size_t count)
{
    struct program *program = NULL;
    void *arena = NULL;
    struct program_io io = {.inputs = f->inputs, .outputs = f->outputs, .on_output = on_output};
    CHECK_OK(program_new(f->device, f->graph, 2, outputs, count, &program, &err));
    CHECK_OK(f->ops.buf_new(f->device, program_arena_bytes(program), &arena, &err));
    enum err_code code = program_run(program, arena, &io, &err);
    f->ops.buf_free(f->device, arena, program_arena_bytes(program));
    program_free(program);
    return code;
}

TEST(a_program_runs_only_what_its_outputs_need)
{
    struct fixture f;
    fixture_init(&f, &device_ref_ops, false);
    CHECK_OK(compile_and_run(&f, &f.graph->log_prob, 1));
    CHECK_U64(spy.run_count, f.graph->forward_node_count);
    spy.run_count = 0;
    size_t first_conv = f.graph->nodes[0].out[0];
    CHECK_OK(compile_and_run(&f, &first_conv, 1));
    CHECK_U64(spy.run_count, 1);
    struct program *program = NULL;
    CHECK_OK(program_new(f.device, f.graph, 2, &first_conv, 1, &program, &err));
    CHECK(program_uses(program, f.graph->images) && !program_uses(program, f.graph->labels));
    CHECK(program_uses(program, f.graph->var_tensors[0]) &&
          !program_uses(program, f.graph->var_tensors[2]));
    program_free(program);
    fixture_done(&f);
}

TEST(a_device_that_works_behind_is_waited_for_before_an_output_is_handed_over)
{
    struct fixture f;
    fixture_init(&f, &device_ref_ops, true);
    size_t outputs[] = {f.graph->loss, f.graph->var_grads[0], f.graph->var_grads[7]};
    CHECK_OK(compile_and_run(&f, outputs, 3));
    CHECK_U64(spy.out_count, 3);
    CHECK(spy.outputs[0] == outputs[0] && spy.outputs[1] == outputs[2] &&
          spy.outputs[2] == outputs[1]);
    for (uint64_t i = 0; i < 3; i++)
        CHECK_U64(spy.waited_at[i], i + 1);
    fixture_done(&f);
}

TEST(a_device_that_works_at_once_hands_over_as_it_goes)
{
    static const struct device_ops *const bases[] = {&device_ref_ops, &device_cpu_ops};
    for (size_t i = 0; i < ARRAY_SIZE(bases); i++) {
        struct fixture f;
        fixture_init(&f, bases[i], false);
        size_t outputs[] = {f.graph->loss, f.graph->var_grads[7], f.graph->var_grads[0]};
        spy.fail_at = f.graph->forward_node_count + 2; /* in the backward half, after a gradient */
        CHECK(compile_and_run(&f, outputs, 3) == ERR_DEVICE);
        CHECK_U64(spy.out_count, 2);
        CHECK(spy.outputs[0] == outputs[0] && spy.outputs[1] == outputs[1]);
        fixture_done(&f);
    }
}

TEST(a_failure_names_the_node_and_waits_for_what_was_begun)
{
    struct fixture f;
    fixture_init(&f, &device_ref_ops, true);
    size_t outputs[] = {f.graph->loss, f.graph->var_grads[0]};
    spy.fail_at = 3; /* conv1 */
    CHECK(compile_and_run(&f, outputs, 2) == ERR_DEVICE);
    CHECK_STR(err.text, "node conv1 (Conv): out of luck");
    CHECK(spy.out_count == 0 && spy.waited == spy.marks && spy.waited > 0);
    fixture_done(&f);
}

TEST(an_operator_that_a_backend_lacks_is_refused_by_name)
{
    struct fixture f;
    fixture_init(&f, &device_cpu_ops, false);
    f.graph->tensors[f.graph->images].shape.dtype = DTYPE_F64;
    f.graph->tensors[f.graph->var_tensors[0]].shape.dtype = DTYPE_F64;
    size_t conv = f.graph->nodes[0].out[0];
    struct program *program = NULL;
    CHECK(program_new(f.device, f.graph, 2, &conv, 1, &program, &err) == ERR_INVALID);
    CHECK_STR(err.text, "tensor images: device cpu computes in f32 only");
    CHECK(!program);
    fixture_done(&f);
}

TEST(a_slot_that_a_backend_lacks_says_so)
{
    struct device *device = NULL;
    struct device_tensor tensor = {.name = "x"};
    CHECK_OK(device_open("cpu", &(struct device_options){0}, &device, &err));
    CHECK(device->ops->upload(device, &tensor, NULL, NULL, &err) == ERR_DEVICE);
    CHECK_STR(err.text, "device cpu has no upload (of x)");
    CHECK(device->ops->download(device, &tensor, NULL, NULL, &err) == ERR_DEVICE);
    CHECK_STR(err.text, "device cpu has no download (of x)");
    device_close(device);
}

TEST(a_buffer_that_cannot_be_had_is_an_error)
{
    struct device *device = NULL;
    void *address = NULL;
    CHECK_OK(device_open("ref", &(struct device_options){0}, &device, &err));
    CHECK(device->ops->buf_new(device, SIZE_MAX / 4, &address, &err) == ERR_NO_MEMORY);
    CHECK(!address);
    device_close(device);
}
