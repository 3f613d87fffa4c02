/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of ref, and the derivation of backward graphs, against central finite differences
 * in double.
 *
 * Operators: s(inputs) = sum of r * y with fixed random r, so dy = r; every element of every input
 * is moved by +-h. Models: the loss, over a sample of the elements of every variable. Error of a
 * central difference: h^2 f'''/6 + 1e-16 |f| / h, about 1e-10 at h = 1e-5. Values lie far from the
 * kinks of ReLU and max with respect to h, or the case says how. */
#include "models/graph/graph_grad.h"
#include "models/zoo/model.h"
#include "models/zoo/net.h"
#include "tests/parity/op_case.h"

#define H         1e-5
#define TOLERANCE 1e-7

static double *f64(const struct op_case *c, size_t tensor)
{
    return c->data[tensor];
}

static double scalar_of(const struct op_case *c, size_t y, size_t r)
{
    double *out = case_run(c, "ref", y);
    double sum = 0;
    uint64_t count = tensor_shape_elements(&c->graph->tensors[y].shape, c->batch);
    for (uint64_t i = 0; i < count; i++)
        sum += out[i] * (r == GRAPH_NONE ? 1.0 : f64(c, r)[i]);
    free(out);
    return sum;
}

/* grad is the gradient of sum(r * y) by input x; r NONE: of y, a scalar. Every stride-th element.
 */
static void check_grad(const struct op_case *c, size_t x, size_t y, size_t r, size_t grad,
                       uint64_t stride)
{
    double *analytic = case_run(c, "ref", grad);
    uint64_t count = tensor_shape_elements(&c->graph->tensors[x].shape, c->batch);
    double largest = 0;
    for (uint64_t i = 0; i < count; i += stride) {
        double at = f64(c, x)[i];
        f64(c, x)[i] = at + H;
        double plus = scalar_of(c, y, r);
        f64(c, x)[i] = at - H;
        double minus = scalar_of(c, y, r);
        f64(c, x)[i] = at;
        double numeric = (plus - minus) / (2 * H);
        double tolerance = TOLERANCE * (1 + fabs(numeric));
        if (!(fabs(numeric - analytic[i]) <= tolerance))
            test_fail(__FILE__, __LINE__, "element %llu of the gradient by %s is %.12g, want %.12g",
                      (unsigned long long)i, c->graph->tensors[x].name, analytic[i], numeric);
        largest = fmax(largest, fabs(numeric));
    }
    CHECK(largest > 0);
    free(analytic);
}

static size_t weights_of(struct op_case *c, size_t y)
{
    const struct tensor_shape shape = c->graph->tensors[y].shape;
    return case_input(c, shape.dims, shape.rank);
}

TEST(conv_gradients_are_right)
{
    static const struct {
        uint64_t c, h, w, o, k;
        uint32_t stride;
        enum auto_pad pad;
    } rows[] = {
        {1, 5, 4, 2, 3, 1, AUTO_PAD_SAME_UPPER},
        {2, 5, 6, 3, 3, 2, AUTO_PAD_SAME_LOWER},
        {3, 4, 4, 2, 2, 1, AUTO_PAD_VALID},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct op_case c;
        case_init(&c, DTYPE_F64, VALUES_NORMAL, 2, i);
        size_t x = case_input(&c, DIMS(DIM_BATCH, rows[i].c, rows[i].h, rows[i].w));
        size_t w = case_input(&c, DIMS(rows[i].o, rows[i].c, rows[i].k, rows[i].k));
        size_t b = case_input(&c, DIMS(rows[i].o));
        struct op_attrs attrs = {.strides = {rows[i].stride, rows[i].stride},
                                 .auto_pad = rows[i].pad};
        size_t y = case_node(&c, OP_CONV, &attrs, (size_t[]){x, w, b}, 3, 1)[0];
        size_t r = weights_of(&c, y);
        attrs = c.graph->nodes[0].attrs;
        attrs.target = c.graph->tensors[x].shape;
        size_t dx = case_node(&c, OP_CONV_GRAD_DATA, &attrs, (size_t[]){w, r}, 2, 1)[0];
        attrs.target = c.graph->tensors[w].shape;
        case_node(&c, OP_CONV_GRAD_WEIGHTS, &attrs, (size_t[]){x, r}, 2, 2);
        const size_t *dw = c.graph->nodes[2].out;
        check_grad(&c, x, y, r, dx, 1);
        check_grad(&c, w, y, r, dw[0], 1);
        check_grad(&c, b, y, r, dw[1], 1);
        case_done(&c);
    }
}

TEST(max_pool_gradient_is_right)
{
    static const struct {
        uint32_t kernel, stride, pad;
    } rows[] = {{2, 2, 0}, {3, 1, 1}, {3, 2, 0}, {2, 3, 0}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct op_case c;
        case_init(&c, DTYPE_F64, VALUES_NORMAL, 2, i);
        size_t x = case_input(&c, DIMS(DIM_BATCH, 2, 7, 5));
        struct op_attrs attrs = {.kernel = {rows[i].kernel, rows[i].kernel},
                                 .strides = {rows[i].stride, rows[i].stride}};
        for (size_t p = 0; p < 4; p++)
            attrs.pads[p] = rows[i].pad;
        size_t y = case_node(&c, OP_MAX_POOL, &attrs, &x, 1, 2)[0];
        size_t r = weights_of(&c, y);
        attrs.target = c.graph->tensors[x].shape;
        size_t dx = case_node(&c, OP_MAX_POOL_GRAD, &attrs, (size_t[]){r, c.graph->nodes[0].out[1]},
                              2, 1)[0];
        check_grad(&c, x, y, r, dx, 1);
        case_done(&c);
    }
}

TEST(relu_gradient_is_right)
{
    struct op_case c;
    case_init(&c, DTYPE_F64, VALUES_NORMAL, 3, 0);
    size_t x = case_input(&c, DIMS(DIM_BATCH, 11));
    size_t y = case_node(&c, OP_RELU, NULL, &x, 1, 1)[0];
    size_t r = weights_of(&c, y);
    check_grad(&c, x, y, r, case_node(&c, OP_RELU_GRAD, NULL, (size_t[]){r, y}, 2, 1)[0], 1);
    case_done(&c);
}

TEST(softmax_loss_gradient_is_right)
{
    struct op_case c;
    case_init(&c, DTYPE_F64, VALUES_NORMAL, 4, 0);
    size_t x = case_input(&c, DIMS(DIM_BATCH, 7));
    size_t labels = case_labels(&c, 7);
    case_node(&c, OP_SOFTMAX_LOSS, NULL, (size_t[]){x, labels}, 2, 2);
    const struct graph_node node = c.graph->nodes[0];
    size_t dx = case_node(&c, OP_SOFTMAX_LOSS_GRAD, NULL, (size_t[]){node.out[1], labels}, 2, 1)[0];
    check_grad(&c, x, node.out[0], GRAPH_NONE, dx, 1);
    case_done(&c);
}

/* Makes variables of inputs and lets graph_grad derive the rest: what is checked is the chain rule
 * of op_grad.c. */
static size_t case_var(struct op_case *c, const char *name, const uint64_t *dims, uint32_t rank)
{
    struct err err = {0};
    size_t tensor;
    struct model_var var = {.name = (char *)name, .rank = rank, .is_trainable = true};
    memcpy(var.shape, dims, rank * sizeof(*dims));
    CHECK_OK(graph_add_var(c->graph, &var, &tensor, &err));
    c->graph->tensors[tensor].shape.dtype = DTYPE_F64;
    CHECK(tensor < CASE_TENSORS);
    uint64_t count = model_var_elements(&var);
    c->data[tensor] = base_alloc(count * sizeof(double));
    for (uint64_t i = 0; i < count; i++)
        f64(c, tensor)[i] = 0.5 * (double)rand_normal(rand_key(c->seed, RAND_TEST, tensor, 1), i);
    return tensor;
}

static void close_with_loss(struct op_case *c, size_t logits)
{
    struct err err = {0};
    size_t labels = case_labels(c, c->graph->tensors[logits].shape.dims[1]);
    const size_t *out = case_node(c, OP_SOFTMAX_LOSS, NULL, (size_t[]){logits, labels}, 2, 2);
    c->graph->loss = out[0];
    c->graph->log_prob = out[1];
    c->graph->forward_node_count = c->graph->node_count;
    CHECK_OK(graph_grad_add(c->graph, &err));
    CHECK_OK(graph_check(c->graph, &err));
    for (size_t v = 0; v < c->graph->var_count; v++)
        check_grad(c, c->graph->var_tensors[v], c->graph->loss, GRAPH_NONE, c->graph->var_grads[v],
                   1);
}

TEST(gemm_gradients_are_right_with_every_transpose)
{
    for (unsigned flags = 0; flags < 4; flags++) {
        struct op_case c;
        struct op_attrs attrs = {.trans_a = flags & 1, .trans_b = flags & 2};
        case_init(&c, DTYPE_F64, VALUES_NORMAL, 3, flags);
        size_t a = attrs.trans_a ? case_var(&c, "a", DIMS(4, 3)) : case_var(&c, "a", DIMS(3, 4));
        size_t b = attrs.trans_b ? case_var(&c, "b", DIMS(5, 4)) : case_var(&c, "b", DIMS(4, 5));
        size_t bias = case_var(&c, "c", DIMS(5));
        size_t y = case_node(&c, OP_GEMM, &attrs, (size_t[]){a, b, bias}, 3, 1)[0];
        size_t x = case_input(&c, DIMS(DIM_BATCH, 3)); /* brings the batch that labels want */
        y = case_node(&c, OP_GEMM, NULL, (size_t[]){x, y}, 2, 1)[0];
        close_with_loss(&c, y);
        case_done(&c);
    }
}

TEST(a_variable_used_twice_and_a_sum_of_branches_have_right_gradients)
{
    struct op_case c;
    case_init(&c, DTYPE_F64, VALUES_NORMAL, 3, 5);
    size_t x = case_input(&c, DIMS(DIM_BATCH, 6));
    size_t a = case_var(&c, "a", DIMS(6, 6));
    size_t b = case_var(&c, "b", DIMS(6, 6));
    size_t h = case_node(&c, OP_GEMM, NULL, (size_t[]){x, a}, 2, 1)[0];
    size_t p = case_node(&c, OP_RELU, NULL, &h, 1, 1)[0];
    size_t q = case_node(&c, OP_GEMM, NULL, (size_t[]){p, a}, 2, 1)[0];
    size_t s = case_node(&c, OP_ADD, NULL, (size_t[]){p, q}, 2, 1)[0]; /* a residual */
    size_t t = case_node(&c, OP_GEMM, NULL, (size_t[]){s, b}, 2, 1)[0];
    size_t u = case_node(&c, OP_ADD, NULL, (size_t[]){t, t}, 2, 1)[0]; /* both inputs the same */
    close_with_loss(&c, u);
    case_done(&c);
}

TEST(two_variables_with_one_gradient_have_a_tensor_each)
{
    struct op_case c;
    case_init(&c, DTYPE_F64, VALUES_NORMAL, 3, 6);
    size_t x = case_input(&c, DIMS(DIM_BATCH, 4));
    size_t a = case_var(&c, "a", DIMS(4, 5));
    size_t b = case_var(&c, "b", DIMS(4, 5));
    size_t sum = case_node(&c, OP_ADD, NULL, (size_t[]){a, b}, 2, 1)[0];
    close_with_loss(&c, case_node(&c, OP_GEMM, NULL, (size_t[]){x, sum}, 2, 1)[0]);
    CHECK(c.graph->var_grads[0] != c.graph->var_grads[1]);
    case_done(&c);
}

static void check_model(const char *name, uint64_t side, uint64_t stride)
{
    struct err err = {0};
    uint32_t hidden[] = {9, 7};
    struct model_spec spec = {
        .name = (char *)name, .num_classes = 4, .hidden = hidden, .hidden_count = 2};
    struct op_case c = {.dtype = DTYPE_F64, .batch = 2, .seed = 11};
    CHECK_OK(model_build(&spec, 2, side, side, &c.graph, &err));
    struct graph *graph = c.graph;
    CHECK(graph->tensor_count <= CASE_TENSORS);
    for (size_t t = 0; t < graph->tensor_count; t++) {
        struct tensor_shape *shape = &graph->tensors[t].shape;
        if (shape->dtype == DTYPE_F32)
            shape->dtype = DTYPE_F64;
        if (graph->tensors[t].kind == TENSOR_VALUE)
            continue;
        uint64_t key = rand_key(c.seed, RAND_TEST, t, 0);
        uint64_t count = tensor_shape_elements(shape, c.batch);
        c.data[t] = base_alloc(count * sizeof(double));
        for (uint64_t i = 0; i < count; i++) {
            if (shape->dtype == DTYPE_I32)
                ((int32_t *)c.data[t])[i] = (int32_t)(rand_u64(key, i) % 4);
            else
                f64(&c, t)[i] = (t == graph->images ? 1.0 : 0.2) * (double)rand_normal(key, i);
        }
    }
    for (size_t v = 0; v < graph->var_count; v++) {
        uint64_t count = model_var_elements(&graph->vars[v]);
        check_grad(&c, graph->var_tensors[v], graph->loss, GRAPH_NONE, graph->var_grads[v],
                   count > stride ? count / stride : 1);
    }
    case_done(&c);
}

TEST(the_gradients_of_whole_models_are_right)
{
    check_model("softmax", 5, 400);
    check_model("mlp", 5, 100);
}

TEST_LIMIT(the_gradients_of_lenet_are_right, 60)
{
    check_model("lenet", 6, 12);
}
