/* SPDX-License-Identifier: Apache-2.0 */
/* Every operator and gradient on cpu against ref: odd sizes, batch 1, channels that fill no block,
 * and chains in which tensors keep a blocked layout. */
#include "tests/parity/op_case.h"

/* Largest error allowed, of the largest value: f32 sums of some hundred products. */
#define TOLERANCE 2e-5

static void agree(const struct op_case *c, size_t output)
{
    const struct tensor_shape *shape = &c->graph->tensors[output].shape;
    uint64_t count = tensor_shape_elements(shape, c->batch);
    float *cpu = case_run(c, "cpu", output);
    float *ref = case_run(c, "ref", output);
    double largest = 0;
    for (uint64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)ref[i]));
    CHECK(largest > 0); /* a case that only compares zeros would prove nothing */
    double tolerance = c->values == VALUES_WHOLE ? 0 : TOLERANCE * largest;
    for (uint64_t i = 0; i < count; i++) {
        double error = fabs((double)cpu[i] - (double)ref[i]);
        if (!(error <= tolerance))
            test_fail(__FILE__, __LINE__,
                      "%s, batch %u, seed %llu: element %llu of %s is %.9g on cpu, %.9g on ref",
                      op_def(c->graph->nodes[c->graph->node_count - 1].op)->name, c->batch,
                      (unsigned long long)c->seed, (unsigned long long)i,
                      c->graph->tensors[output].name, (double)cpu[i], (double)ref[i]);
    }
    free(cpu);
    free(ref);
}

struct conv_row {
    uint64_t batch, c, h, w, o, kh, kw;
    uint32_t sh, sw;
    uint32_t pads[4];
    enum auto_pad auto_pad;
};

static const struct conv_row conv_rows[] = {
    {2, 1, 28, 28, 32, 5, 5, 1, 1, {0}, AUTO_PAD_SAME_UPPER},
    {2, 32, 14, 14, 64, 5, 5, 1, 1, {0}, AUTO_PAD_SAME_UPPER},
    {1, 3, 7, 9, 5, 3, 3, 1, 1, {1, 1, 1, 1}, AUTO_PAD_NOTSET},
    {3, 17, 8, 5, 19, 3, 2, 2, 1, {0}, AUTO_PAD_SAME_UPPER},
    {1, 16, 6, 6, 16, 1, 1, 1, 1, {0}, AUTO_PAD_VALID},
    {5, 7, 11, 11, 33, 3, 3, 2, 2, {0, 1, 1, 0}, AUTO_PAD_NOTSET},
    {1, 4, 13, 1, 8, 5, 1, 3, 1, {0}, AUTO_PAD_SAME_LOWER},
    {4, 3, 16, 16, 24, 7, 7, 2, 2, {0}, AUTO_PAD_SAME_UPPER},
    {2, 48, 5, 5, 10, 5, 5, 1, 1, {0}, AUTO_PAD_VALID}, /* 1x1 output */
};

static struct op_attrs conv_attrs(const struct conv_row *r)
{
    struct op_attrs attrs = {.strides = {r->sh, r->sw}, .auto_pad = r->auto_pad};
    memcpy(attrs.pads, r->pads, sizeof(attrs.pads));
    return attrs;
}

static void conv_case(const struct conv_row *r, enum op_values values, bool has_bias)
{
    struct op_case c;
    struct op_attrs attrs = conv_attrs(r);
    case_init(&c, DTYPE_F32, values, (uint32_t)r->batch, (uint64_t)(r - conv_rows));
    size_t x = case_input(&c, DIMS(DIM_BATCH, r->c, r->h, r->w));
    size_t w = case_input(&c, DIMS(r->o, r->c, r->kh, r->kw));
    size_t b = case_input(&c, DIMS(r->o));
    size_t y = case_node(&c, OP_CONV, &attrs, (size_t[]){x, w, b}, has_bias ? 3 : 2, 1)[0];
    agree(&c, y);
    const struct tensor_shape out = c.graph->tensors[y].shape;
    size_t dy = case_input(&c, out.dims, 4);
    attrs = c.graph->nodes[0].attrs;
    attrs.target = c.graph->tensors[x].shape;
    agree(&c, case_node(&c, OP_CONV_GRAD_DATA, &attrs, (size_t[]){w, dy}, 2, 1)[0]);
    attrs.target = c.graph->tensors[w].shape;
    const size_t *grads =
        case_node(&c, OP_CONV_GRAD_WEIGHTS, &attrs, (size_t[]){x, dy}, 2, has_bias ? 2 : 1);
    agree(&c, grads[0]);
    if (has_bias)
        agree(&c, grads[1]);
    case_done(&c);
}

TEST(conv_and_its_gradients_agree)
{
    for (size_t i = 0; i < ARRAY_SIZE(conv_rows); i++) {
        conv_case(&conv_rows[i], VALUES_NORMAL, true);
        conv_case(&conv_rows[i], VALUES_NORMAL, false);
    }
}

TEST(conv_is_exact_on_small_whole_numbers)
{
    for (size_t i = 0; i < ARRAY_SIZE(conv_rows); i++)
        conv_case(&conv_rows[i], VALUES_WHOLE, true);
}

struct pool_row {
    uint64_t batch, c, h, w;
    uint32_t kh, kw, sh, sw;
    uint32_t pads[4];
    enum auto_pad auto_pad;
};

static const struct pool_row pool_rows[] = {
    {2, 32, 28, 28, 2, 2, 2, 2, {0}, AUTO_PAD_NOTSET},
    {1, 3, 7, 9, 3, 3, 2, 2, {1, 1, 1, 1}, AUTO_PAD_NOTSET}, /* overlapping, padded */
    {3, 17, 8, 5, 2, 3, 1, 2, {0}, AUTO_PAD_SAME_UPPER},
    {1, 1, 5, 5, 5, 5, 1, 1, {0}, AUTO_PAD_NOTSET},   /* all of it */
    {2, 10, 11, 6, 2, 2, 3, 3, {0}, AUTO_PAD_NOTSET}, /* gaps between windows */
    {2, 20, 9, 9, 3, 3, 3, 3, {2, 0, 1, 2}, AUTO_PAD_NOTSET},
    {1, 16, 3, 3, 1, 1, 1, 1, {0}, AUTO_PAD_NOTSET},
    {2, 8, 7, 7, 2, 2, 2, 2, {0}, AUTO_PAD_NOTSET}, /* the last row and column in no window */
};

/* after_conv: the pool reads and its gradient meets a tensor in blocked layout, on whole numbers
 * with many ties. */
static void pool_case(const struct pool_row *r, enum op_values values, bool after_conv)
{
    struct op_case c;
    struct op_attrs attrs = {
        .kernel = {r->kh, r->kw}, .strides = {r->sh, r->sw}, .auto_pad = r->auto_pad};
    memcpy(attrs.pads, r->pads, sizeof(attrs.pads));
    case_init(&c, DTYPE_F32, values, (uint32_t)r->batch, (uint64_t)(r - pool_rows));
    size_t x = case_input(&c, DIMS(DIM_BATCH, r->c, r->h, r->w));
    if (after_conv) {
        size_t w = case_input(&c, DIMS(r->c, r->c, 1, 1));
        x = case_node(&c, OP_CONV, NULL, (size_t[]){x, w}, 2, 1)[0];
    }
    const size_t *out = case_node(&c, OP_MAX_POOL, &attrs, &x, 1, 2);
    size_t y = out[0];
    size_t workspace = out[1];
    agree(&c, y);
    attrs = c.graph->nodes[c.graph->node_count - 1].attrs;
    attrs.target = c.graph->tensors[x].shape;
    const struct tensor_shape shape = c.graph->tensors[y].shape;
    size_t dy = case_input(&c, shape.dims, 4);
    size_t dx = case_node(&c, OP_MAX_POOL_GRAD, &attrs, (size_t[]){dy, workspace}, 2, 1)[0];
    agree(&c, dx);
    if (after_conv) { /* back through the convolution: dx stays blocked */
        struct op_attrs conv = c.graph->nodes[0].attrs;
        size_t w = c.graph->nodes[0].in[1];
        conv.target = c.graph->tensors[c.graph->nodes[0].in[0]].shape;
        agree(&c, case_node(&c, OP_CONV_GRAD_DATA, &conv, (size_t[]){w, dx}, 2, 1)[0]);
    }
    case_done(&c);
}

TEST(max_pool_and_its_gradient_agree)
{
    for (size_t i = 0; i < ARRAY_SIZE(pool_rows); i++)
        pool_case(&pool_rows[i], VALUES_NORMAL, false);
}

TEST(max_pool_breaks_ties_alike_in_every_layout)
{
    for (size_t i = 0; i < ARRAY_SIZE(pool_rows); i++) {
        pool_case(&pool_rows[i], VALUES_WHOLE, false);
        pool_case(&pool_rows[i], VALUES_WHOLE, true);
    }
}

TEST(max_pool_of_minus_infinity_and_nan_agrees)
{
    struct op_case c;
    struct op_attrs attrs = {.kernel = {2, 2}, .strides = {2, 2}};
    case_init(&c, DTYPE_F32, VALUES_WHOLE, 1, 0);
    size_t x = case_input(&c, DIMS(DIM_BATCH, 1, 4, 4));
    static const float values[16] = {-INFINITY, -INFINITY, 1,   NAN,     -INFINITY, -INFINITY,
                                     2,         3,         NAN, NAN,     5,         5,
                                     7,         NAN,       5,   INFINITY};
    memcpy(c.data[x], values, sizeof(values));
    const size_t *out = case_node(&c, OP_MAX_POOL, &attrs, &x, 1, 2);
    size_t y = out[0];
    attrs.target = c.graph->tensors[x].shape;
    size_t dy = case_input(&c, DIMS(DIM_BATCH, 1, 2, 2));
    static const float ones[4] = {1, 2, 3, 4};
    memcpy(c.data[dy], ones, sizeof(ones));
    size_t dx =
        case_node(&c, OP_MAX_POOL_GRAD, &attrs, (size_t[]){dy, c.graph->nodes[0].out[1]}, 2, 1)[0];
    static const float want_dx[16] = {1, 0, 0, 2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 4};
    static const char *const devices[] = {"ref", "cpu"};
    for (size_t i = 0; i < 2; i++) {
        float *got = case_run(&c, devices[i], y);
        CHECK(got[0] == -INFINITY && isnan(got[1]) && isnan(got[2]) && got[3] == INFINITY);
        free(got);
        got = case_run(&c, devices[i], dx);
        for (size_t k = 0; k < 16; k++)
            CHECK(got[k] == want_dx[k]);
        free(got);
    }
    case_done(&c);
}

TEST(relu_and_its_gradient_agree_in_every_layout)
{
    static const uint64_t sizes[][3] = {{2, 1, 9}, {3, 5, 7}, {16, 4, 4}, {19, 3, 2}};
    for (uint32_t blocked = 0; blocked < 2; blocked++)
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
            struct op_case c;
            case_init(&c, DTYPE_F32, VALUES_WHOLE, 3, i);
            const uint64_t *s = sizes[i];
            size_t x = case_input(&c, DIMS(DIM_BATCH, s[0], s[1], s[2]));
            size_t dy = case_input(&c, DIMS(DIM_BATCH, s[0], s[1], s[2]));
            if (blocked) {
                size_t w = case_input(&c, DIMS(s[0], s[0], 1, 1));
                x = case_node(&c, OP_CONV, NULL, (size_t[]){x, w}, 2, 1)[0];
            }
            size_t y = case_node(&c, OP_RELU, NULL, &x, 1, 1)[0];
            agree(&c, y);
            agree(&c, case_node(&c, OP_RELU_GRAD, NULL, (size_t[]){dy, y}, 2, 1)[0]);
            case_done(&c);
        }
}

TEST(add_agrees_when_its_inputs_come_in_different_layouts)
{
    for (uint32_t order = 0; order < 2; order++) {
        struct op_case c;
        case_init(&c, DTYPE_F32, VALUES_WHOLE, 2, order);
        size_t a = case_input(&c, DIMS(DIM_BATCH, 19, 5, 3));
        size_t w = case_input(&c, DIMS(19, 19, 3, 3));
        struct op_attrs same = {.auto_pad = AUTO_PAD_SAME_UPPER};
        size_t b = case_node(&c, OP_CONV, &same, (size_t[]){a, w}, 2, 1)[0];
        size_t in[2] = {order ? a : b, order ? b : a};
        size_t y = case_node(&c, OP_ADD, NULL, in, 2, 1)[0];
        agree(&c, y);
        size_t z = case_node(&c, OP_ADD, NULL, (size_t[]){y, y}, 2, 1)[0];
        agree(&c, case_node(&c, OP_CONV, &same, (size_t[]){z, w}, 2, 1)[0]);
        agree(&c, y); /* with and without a reader after it */
        case_done(&c);
    }
}

TEST(flatten_and_reshape_agree_from_every_layout)
{
    for (uint32_t blocked = 0; blocked < 2; blocked++) {
        struct op_case c;
        case_init(&c, DTYPE_F32, VALUES_WHOLE, 3, blocked);
        size_t x = case_input(&c, DIMS(DIM_BATCH, 19, 2, 3));
        if (blocked) {
            size_t w = case_input(&c, DIMS(19, 19, 1, 1));
            x = case_node(&c, OP_CONV, NULL, (size_t[]){x, w}, 2, 1)[0];
        }
        size_t flat = case_node(&c, OP_FLATTEN, NULL, &x, 1, 1)[0];
        agree(&c, flat);
        struct op_attrs attrs = {.target = {.rank = 4, .dims = {DIM_BATCH, 2, 19, 3}}};
        size_t y = case_node(&c, OP_RESHAPE, &attrs, &flat, 1, 1)[0];
        agree(&c, y);
        agree(&c, case_node(&c, OP_RELU, NULL, &y, 1, 1)[0]);
        case_done(&c);
    }
}

TEST(gemm_agrees_with_every_transpose_and_size)
{
    static const uint64_t sizes[][3] = {
        {1, 1, 1}, {1, 10, 512}, {13, 7, 31}, {64, 512, 100}, {5, 128, 1}};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
        for (unsigned flags = 0; flags < 8; flags++) {
            struct op_case c;
            uint64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
            struct op_attrs attrs = {.trans_a = flags & 1, .trans_b = flags & 2};
            case_init(&c, DTYPE_F32, VALUES_NORMAL, 1, i);
            size_t a = attrs.trans_a ? case_input(&c, DIMS(k, m)) : case_input(&c, DIMS(m, k));
            size_t b = attrs.trans_b ? case_input(&c, DIMS(n, k)) : case_input(&c, DIMS(k, n));
            size_t bias = case_input(&c, DIMS(n));
            agree(&c,
                  case_node(&c, OP_GEMM, &attrs, (size_t[]){a, b, bias}, flags & 4 ? 3 : 2, 1)[0]);
            case_done(&c);
        }
}

TEST(reduce_sum_agrees)
{
    static const uint64_t sizes[][2] = {{1, 1}, {1, 129}, {64, 10}, {7, 300}, {1000, 3}};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct op_case c;
        case_init(&c, DTYPE_F32, VALUES_NORMAL, 1, i);
        size_t x = case_input(&c, DIMS(sizes[i][0], sizes[i][1]));
        agree(&c, case_node(&c, OP_REDUCE_SUM, NULL, &x, 1, 1)[0]);
        case_done(&c);
    }
}

TEST(softmax_its_loss_and_gradient_agree)
{
    static const uint64_t sizes[][2] = {{1, 2}, {64, 10}, {3, 1001}, {17, 5}};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct op_case c;
        case_init(&c, DTYPE_F32, VALUES_NORMAL, (uint32_t)sizes[i][0], i);
        size_t x = case_input(&c, DIMS(DIM_BATCH, sizes[i][1]));
        size_t labels = case_labels(&c, sizes[i][1]);
        agree(&c, case_node(&c, OP_SOFTMAX, NULL, &x, 1, 1)[0]);
        const size_t *out = case_node(&c, OP_SOFTMAX_LOSS, NULL, (size_t[]){x, labels}, 2, 2);
        size_t loss = out[0];
        size_t log_prob = out[1];
        agree(&c, loss);
        agree(&c, log_prob);
        agree(&c, case_node(&c, OP_SOFTMAX_LOSS_GRAD, NULL, (size_t[]){log_prob, labels}, 2, 1)[0]);
        case_done(&c);
    }
}

TEST(softmax_loss_of_large_scores_is_finite_and_agrees)
{
    struct op_case c;
    case_init(&c, DTYPE_F32, VALUES_NORMAL, 4, 1);
    size_t x = case_input(&c, DIMS(DIM_BATCH, 6));
    size_t labels = case_labels(&c, 6);
    for (size_t i = 0; i < 24; i++)
        ((float *)c.data[x])[i] *= 500;
    size_t loss = case_node(&c, OP_SOFTMAX_LOSS, NULL, (size_t[]){x, labels}, 2, 2)[0];
    agree(&c, loss);
    case_done(&c);
}
