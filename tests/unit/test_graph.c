/* SPDX-License-Identifier: Apache-2.0 */
#include "models/graph/graph.h"
#include "models/zoo/model.h"

#include "models/graph/graph_grad.h"
#include "models/zoo/net.h"
#include "tests/harness.h"

static struct err err;

static struct tensor_shape shape(uint32_t rank, const uint64_t *dims)
{
    struct tensor_shape s = {.dtype = DTYPE_F32, .rank = rank};
    memcpy(s.dims, dims, rank * sizeof(*dims));
    return s;
}
#define SHAPE(...)                                                                                 \
    shape(sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (uint64_t[]){__VA_ARGS__})

static size_t input(struct graph *graph, const char *name, struct tensor_shape s)
{
    size_t tensor;
    CHECK_OK(graph_add_input(graph, name, &s, &tensor, &err));
    return tensor;
}

static size_t var(struct graph *graph, const char *name, uint32_t rank, const uint64_t *dims)
{
    size_t tensor;
    struct model_var v = {.name = (char *)name, .rank = rank, .is_trainable = true};
    memcpy(v.shape, dims, rank * sizeof(*dims));
    CHECK_OK(graph_add_var(graph, &v, &tensor, &err));
    return tensor;
}

static void refuse(enum op_kind op, const struct op_attrs *attrs, size_t in_count,
                   const struct tensor_shape *ins, size_t out_count, const char *want)
{
    AUTO(graph) graph = graph_new();
    size_t in[OP_IN_MAX + 1];
    size_t out[OP_OUT_MAX + 1];
    for (size_t i = 0; i < in_count; i++)
        in[i] = input(graph, (const char *[]){"a", "b", "c", "d", "e"}[i], ins[i]);
    CHECK(graph_add_node(graph, op, "n", attrs, in, in_count, out, out_count, &err) == ERR_INVALID);
    CHECK_STR(err.text, want);
    CHECK_U64(graph->node_count, 0);
    CHECK_U64(graph->tensor_count, in_count);
}

TEST(shapes_that_do_not_fit_are_refused_by_node_and_shape)
{
    struct tensor_shape x = SHAPE(DIM_BATCH, 3, 8, 9);
    struct tensor_shape m = SHAPE(DIM_BATCH, 12);
    struct op_attrs wide = {.kernel = {9, 2}};
    struct op_attrs pad = {.kernel = {2, 2}, .pads = {0, 2, 0, 0}};
    struct op_attrs none = {0};
    struct op_attrs target = {.target = SHAPE(2, 108)};
    refuse(OP_CONV, NULL, 2, (struct tensor_shape[]){x, SHAPE(4, 2, 3, 3)}, 1,
           "node n (Conv): kernel of shape 4,2,3,3 wants 2 channels, input has shape N,3,8,9");
    refuse(OP_CONV, NULL, 2, (struct tensor_shape[]){m, SHAPE(4, 2, 3, 3)}, 1,
           "node n (Conv): input has shape N,12, want rank 4");
    refuse(OP_CONV, NULL, 3, (struct tensor_shape[]){x, SHAPE(4, 3, 3, 3), SHAPE(5)}, 1,
           "node n (Conv): bias of shape 5, kernel of shape 4,3,3,3: want 4");
    refuse(OP_MAX_POOL, &wide, 1, &x, 2,
           "node n (MaxPool): input of shape N,3,8,9, padded by 0 and 0, is smaller than the "
           "window of 9");
    refuse(OP_MAX_POOL, &pad, 1, &x, 2,
           "node n (MaxPool): pads 2 and 0 of a window of 2: want less than the window");
    refuse(OP_MAX_POOL, &none, 1, &x, 2,
           "node n (MaxPool): window of 0, stride 1: want 1 to 65535");
    refuse(OP_GEMM, NULL, 2, (struct tensor_shape[]){m, SHAPE(13, 5)}, 1,
           "node n (Gemm): a of shape N,12 times b of shape 13,5: inner sizes differ");
    refuse(OP_GEMM, NULL, 3, (struct tensor_shape[]){m, SHAPE(12, 5), SHAPE(4)}, 1,
           "node n (Gemm): c of shape 4, want 5");
    refuse(OP_ADD, NULL, 2, (struct tensor_shape[]){m, x}, 1,
           "node n (Add): inputs of shapes N,12 and N,3,8,9, want equal ones of a floating type");
    refuse(OP_RESHAPE, &target, 1, &x, 1,
           "node n (Reshape): input of shape N,3,8,9 cannot become 2,108");
    refuse(OP_SOFTMAX_LOSS, NULL, 2, (struct tensor_shape[]){m, m}, 2,
           "node n (SoftmaxCrossEntropyLoss): labels of shape N,12 for scores of shape N,12, want "
           "one class a row");
    refuse(OP_RELU, NULL, 2, (struct tensor_shape[]){m, m}, 1,
           "node n (Relu): 2 inputs, want 1 to 1");
    refuse(OP_MAX_POOL, &none, 1, &x, 1, "node n (MaxPool): 1 outputs, want 2 to 2");
}

static void check_window(uint64_t in, uint32_t kernel, uint32_t stride, enum auto_pad auto_pad,
                         uint64_t want_out, uint32_t want_begin, uint32_t want_end)
{
    AUTO(graph) graph = graph_new();
    size_t x = input(graph, "x", SHAPE(DIM_BATCH, 1, in, in));
    size_t w = input(graph, "w", SHAPE(1, 1, kernel, kernel));
    struct op_attrs attrs = {.strides = {stride, stride}, .auto_pad = auto_pad};
    size_t y;
    CHECK_OK(graph_add_node(graph, OP_CONV, "c", &attrs, (size_t[]){x, w}, 2, &y, 1, &err));
    CHECK_U64(graph->tensors[y].shape.dims[2], want_out);
    CHECK_U64(graph->tensors[y].shape.dims[3], want_out);
    CHECK_U64(graph->nodes[0].attrs.pads[0], want_begin);
    CHECK_U64(graph->nodes[0].attrs.pads[2], want_end);
}

TEST(same_padding_is_tensorflows)
{
    check_window(28, 5, 1, AUTO_PAD_SAME_UPPER, 28, 2, 2);
    check_window(224, 7, 2, AUTO_PAD_SAME_UPPER, 112, 2, 3);
    check_window(224, 7, 2, AUTO_PAD_SAME_LOWER, 112, 3, 2);
    check_window(5, 3, 2, AUTO_PAD_SAME_UPPER, 3, 1, 1);
    check_window(6, 3, 2, AUTO_PAD_SAME_UPPER, 3, 0, 1);
    check_window(4, 1, 3, AUTO_PAD_SAME_UPPER, 2, 0, 0);
    check_window(227, 11, 4, AUTO_PAD_VALID, 55, 0, 0);
}

TEST(the_input_image_gets_no_gradient)
{
    AUTO(graph) graph = NULL;
    struct model_spec spec = {.name = (char *)"lenet", .num_classes = 10};
    CHECK_OK(model_build(&spec, 1, 28, 28, &graph, &err));
    size_t by_op[OP_COUNT] = {0};
    for (size_t n = graph->forward_node_count; n < graph->node_count; n++)
        by_op[graph->nodes[n].op]++;
    CHECK_U64(by_op[OP_CONV_GRAD_WEIGHTS], 2);
    CHECK_U64(by_op[OP_CONV_GRAD_DATA], 1); /* of conv1; conv0 reads the images */
    CHECK_U64(by_op[OP_GEMM], 4);
    CHECK_U64(by_op[OP_ADD], 0);
    for (size_t v = 0; v < graph->var_count; v++)
        CHECK(graph->var_grads[v] != GRAPH_NONE);
    CHECK_STR(graph->tensors[graph->var_grads[0]].name, "conv0/grad_weights");
    CHECK_STR(graph->tensors[graph->var_grads[1]].name, "conv0/grad_weights:1");
}

/* h = x a; y = h a: both uses of a count. */
TEST(a_tensor_that_is_read_twice_gets_the_sum_of_its_gradients)
{
    AUTO(graph) graph = graph_new();
    size_t x = input(graph, "x", SHAPE(DIM_BATCH, 4));
    struct tensor_shape labels = {.dtype = DTYPE_I32, .rank = 1};
    size_t l = input(graph, "l", labels);
    size_t a = var(graph, "a", 2, (uint64_t[]){4, 4});
    size_t h, y, out[2];
    CHECK_OK(graph_add_node(graph, OP_GEMM, "h", NULL, (size_t[]){x, a}, 2, &h, 1, &err));
    CHECK_OK(graph_add_node(graph, OP_GEMM, "y", NULL, (size_t[]){h, a}, 2, &y, 1, &err));
    CHECK_OK(
        graph_add_node(graph, OP_SOFTMAX_LOSS, "loss", NULL, (size_t[]){y, l}, 2, out, 2, &err));
    graph->loss = out[0];
    graph->forward_node_count = graph->node_count;
    CHECK_OK(graph_grad_add(graph, &err));
    CHECK_OK(graph_check(graph, &err));
    const struct graph_node *last = &graph->nodes[graph->node_count - 1];
    CHECK(last->op == OP_ADD);
    CHECK_U64(graph->var_grads[0], last->out[0]);
}

TEST(an_operator_without_a_gradient_is_refused_on_the_way_to_a_variable)
{
    AUTO(graph) graph = graph_new();
    size_t x = input(graph, "x", SHAPE(DIM_BATCH, 4));
    size_t l = input(graph, "l", (struct tensor_shape){.dtype = DTYPE_I32, .rank = 1});
    size_t a = var(graph, "a", 2, (uint64_t[]){4, 4});
    size_t h, s, out[2];
    CHECK_OK(graph_add_node(graph, OP_GEMM, "h", NULL, (size_t[]){x, a}, 2, &h, 1, &err));
    CHECK_OK(graph_add_node(graph, OP_SOFTMAX, "s", NULL, &h, 1, &s, 1, &err));
    CHECK_OK(
        graph_add_node(graph, OP_SOFTMAX_LOSS, "loss", NULL, (size_t[]){s, l}, 2, out, 2, &err));
    graph->loss = out[0];
    graph->forward_node_count = graph->node_count;
    CHECK(graph_grad_add(graph, &err) == ERR_INVALID);
    CHECK_STR(err.text, "node s (Softmax): the operator has no gradient");
}

TEST(a_variable_that_the_loss_ignores_is_refused)
{
    struct net net;
    net_init(&net, &err);
    net_images(&net, 1, 4, 4);
    var(net.graph, "idle", 1, (uint64_t[]){3});
    net_classify(&net, 3);
    struct graph *graph = NULL;
    CHECK(net_done(&net, &graph) == ERR_INVALID);
    CHECK_STR(err.text,
              "variable idle of shape 3 is trainable, but the loss does not depend on it");
}

TEST(two_tensors_of_one_name_are_refused)
{
    AUTO(graph) graph = graph_new();
    input(graph, "x", SHAPE(DIM_BATCH, 4));
    input(graph, "x", SHAPE(DIM_BATCH, 5));
    CHECK(graph_check(graph, &err) == ERR_INVALID);
    CHECK_STR(err.text, "two tensors are named x");
}
