/* SPDX-License-Identifier: Apache-2.0 */
/* Each operator of the cpu device whose loop is our own, on 1, 2 and 3 threads: the same bits, in
 * sizes that are shared out and in sizes that are not. In whole training steps the forward half
 * keeps its bits too; the gradients of weights do not, since oneDNN sums over a batch in one part a
 * thread, so they are held to the rounding of such a sum. */
#include <stdatomic.h>

#include "kernels/cpu/cpu_team.h"
#include "models/zoo/model.h"
#include "tests/parity/op_case.h"

static void same_on_any_count(const struct op_case *c, size_t output)
{
    const struct tensor_shape *shape = &c->graph->tensors[output].shape;
    uint64_t count = tensor_shape_elements(shape, c->batch);
    float *one = case_run_on(c, "cpu", 1, output);
    for (uint32_t threads = 2; threads <= 3; threads++) {
        float *more = case_run_on(c, "cpu", threads, output);
        for (uint64_t i = 0; i < count; i++)
            if (memcmp(&one[i], &more[i], sizeof(float)) != 0)
                test_fail(__FILE__, __LINE__, "%s: element %llu is %a on %u threads, %a on one",
                          c->graph->tensors[output].name, (unsigned long long)i, (double)more[i],
                          threads, (double)one[i]);
        free(more);
    }
    free(one);
}

/* Largest difference allowed, of the largest value. */
#define TOLERANCE 2e-5

static void close_on_any_count(const struct op_case *c, size_t output)
{
    uint64_t count = tensor_shape_elements(&c->graph->tensors[output].shape, c->batch);
    float *one = case_run_on(c, "cpu", 1, output);
    double largest = 0;
    for (uint64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)one[i]));
    CHECK(largest > 0);
    for (uint32_t threads = 2; threads <= 3; threads++) {
        float *more = case_run_on(c, "cpu", threads, output);
        for (uint64_t i = 0; i < count; i++)
            CHECK_NEAR(more[i], one[i], TOLERANCE * largest);
        free(more);
    }
    free(one);
}

struct cover {
    _Atomic unsigned *seen;
    _Atomic unsigned calls;
};

static void cover_run(const void *arg, size_t first, size_t end)
{
    struct cover *cover = (struct cover *)arg;
    atomic_fetch_add(&cover->calls, 1);
    for (size_t i = first; i < end; i++)
        atomic_fetch_add(&cover->seen[i], 1);
}

TEST(a_loop_is_covered_once_and_only_shared_out_when_it_is_large)
{
    static const size_t units[] = {0, 1, 2, 3, 7, 100, 1000, 4099};
    static const size_t costs[] = {0, 1, 64, 5000, 65536, 1000000};
    for (size_t u = 0; u < ARRAY_SIZE(units); u++)
        for (size_t k = 0; k < ARRAY_SIZE(costs); k++)
            for (uint32_t threads = 0; threads <= 4; threads++) {
                AUTO_MEM _Atomic unsigned *seen = base_alloc((units[u] + 1) * sizeof(*seen));
                struct cover cover = {.seen = seen};
                cpu_team_run(threads, cover_run, &cover, units[u], costs[k]);
                for (size_t i = 0; i < units[u]; i++)
                    CHECK_U64(seen[i], 1);
                if (threads < 2 || units[u] * costs[k] < 100000 || units[u] < 2)
                    CHECK_U64(cover.calls, 1);
                if (threads >= 2 && units[u] >= 2 && units[u] * costs[k] > 1000000)
                    CHECK(cover.calls > 1);
            }
}

TEST_LIMIT(elementwise_operators_give_the_same_bits_on_any_number_of_threads, 60)
{
    static const uint64_t widths[] = {7, 4001, 100003};
    for (size_t i = 0; i < ARRAY_SIZE(widths); i++) {
        struct op_case c;
        case_init(&c, DTYPE_F32, VALUES_NORMAL, 3, i);
        size_t a = case_input(&c, DIMS(DIM_BATCH, widths[i]));
        size_t b = case_input(&c, DIMS(DIM_BATCH, widths[i]));
        size_t sum = case_node(&c, OP_ADD, NULL, (size_t[]){a, b}, 2, 1)[0];
        same_on_any_count(&c, sum);
        size_t relu = case_node(&c, OP_RELU, NULL, &sum, 1, 1)[0];
        same_on_any_count(&c, relu);
        same_on_any_count(&c, case_node(&c, OP_RELU_GRAD, NULL, (size_t[]){a, relu}, 2, 1)[0]);
        struct op_attrs flat = {
            .target = {.dtype = DTYPE_F32, .rank = 3, .dims = {DIM_BATCH, 1, widths[i]}}};
        same_on_any_count(&c, case_node(&c, OP_RESHAPE, &flat, &a, 1, 1)[0]);
        case_done(&c);
    }
}

TEST_LIMIT(row_operators_give_the_same_bits_on_any_number_of_threads, 60)
{
    static const uint64_t sizes[][2] = {{3, 10}, {257, 1000}, {1000, 33}, {70, 5003}};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct op_case c;
        case_init(&c, DTYPE_F32, VALUES_NORMAL, (uint32_t)sizes[i][0], i);
        size_t x = case_input(&c, DIMS(DIM_BATCH, sizes[i][1]));
        size_t labels = case_labels(&c, sizes[i][1]);
        same_on_any_count(&c, case_node(&c, OP_REDUCE_SUM, NULL, &x, 1, 1)[0]);
        same_on_any_count(&c, case_node(&c, OP_SOFTMAX, NULL, &x, 1, 1)[0]);
        const size_t *loss = case_node(&c, OP_SOFTMAX_LOSS, NULL, (size_t[]){x, labels}, 2, 2);
        size_t log_prob = loss[1];
        same_on_any_count(&c, loss[0]);
        same_on_any_count(&c, log_prob);
        same_on_any_count(
            &c, case_node(&c, OP_SOFTMAX_LOSS_GRAD, NULL, (size_t[]){log_prob, labels}, 2, 1)[0]);
        case_done(&c);
    }
}

TEST_LIMIT(gemm_with_bias_gives_the_same_bits_on_any_number_of_threads, 60)
{
    struct op_case c;
    case_init(&c, DTYPE_F32, VALUES_WHOLE, 300, 1);
    size_t x = case_input(&c, DIMS(DIM_BATCH, 5));
    size_t w = case_input(&c, DIMS(5, 2001));
    size_t b = case_input(&c, DIMS(2001));
    same_on_any_count(&c, case_node(&c, OP_GEMM, NULL, (size_t[]){x, w, b}, 3, 1)[0]);
    case_done(&c);
}

TEST_LIMIT(max_pooling_gives_the_same_bits_on_any_number_of_threads, 60)
{
    for (uint32_t blocked = 0; blocked < 2; blocked++)
        for (uint32_t stride = 1; stride <= 2; stride++) {
            struct op_case c;
            struct op_attrs attrs = {.kernel = {2, 2}, .strides = {stride, stride}};
            case_init(&c, DTYPE_F32, VALUES_WHOLE, 9, stride);
            size_t x = case_input(&c, DIMS(DIM_BATCH, 19, 28, 28));
            if (blocked) {
                size_t w = case_input(&c, DIMS(19, 19, 1, 1));
                x = case_node(&c, OP_CONV, NULL, (size_t[]){x, w}, 2, 1)[0];
            }
            const size_t *out = case_node(&c, OP_MAX_POOL, &attrs, &x, 1, 2);
            size_t workspace = out[1];
            same_on_any_count(&c, out[0]);
            attrs = c.graph->nodes[c.graph->node_count - 1].attrs;
            attrs.target = c.graph->tensors[x].shape;
            size_t dy =
                case_input(&c, DIMS(DIM_BATCH, 19, stride == 1 ? 27 : 14, stride == 1 ? 27 : 14));
            same_on_any_count(
                &c, case_node(&c, OP_MAX_POOL_GRAD, &attrs, (size_t[]){dy, workspace}, 2, 1)[0]);
            case_done(&c);
        }
}

static void check_step(const char *name)
{
    struct err err = {0};
    uint32_t hidden[] = {512, 256};
    struct model_spec spec = {
        .name = (char *)name, .num_classes = 10, .hidden = hidden, .hidden_count = 2};
    struct op_case c = {.dtype = DTYPE_F32, .batch = 64, .seed = 3};
    CHECK_OK(model_build(&spec, 1, 28, 28, &c.graph, &err));
    for (size_t t = 0; t < c.graph->tensor_count; t++) {
        const struct tensor_shape *shape = &c.graph->tensors[t].shape;
        if (c.graph->tensors[t].kind == TENSOR_VALUE)
            continue;
        uint64_t count = tensor_shape_elements(shape, c.batch);
        c.data[t] = base_alloc(count * sizeof(float));
        for (uint64_t i = 0; i < count; i++) {
            if (shape->dtype == DTYPE_I32)
                ((int32_t *)c.data[t])[i] = (int32_t)(i % 10);
            else
                ((float *)c.data[t])[i] = 0.05f * rand_normal(rand_key(3, RAND_TEST, t, 0), i);
        }
    }
    same_on_any_count(&c, c.graph->loss);
    for (size_t v = 0; v < c.graph->var_count; v++)
        close_on_any_count(&c, c.graph->var_grads[v]);
    case_done(&c);
}

TEST_LIMIT(a_step_of_mlp_agrees_on_any_number_of_threads_and_its_loss_to_the_bit, 60)
{
    check_step("mlp");
}

TEST_LIMIT(a_step_of_lenet_agrees_on_any_number_of_threads_and_its_loss_to_the_bit, 120)
{
    check_step("lenet");
}
