/* SPDX-License-Identifier: Apache-2.0 */
/* net: layers as nodes and variables. */
#include "models/zoo/net.h"

#include <math.h>

#include "models/graph/graph_grad.h"

/* Standard deviation of N(0, 1) cut at two; TensorFlow's constant in VarianceScaling. */
#define TRUNCATED_SD 0.87962566103423978

void net_init(struct net *net, struct err *err)
{
    *net = (struct net){.graph = graph_new(), .err = err, .top = GRAPH_NONE};
}

void net_images(struct net *net, uint64_t channels, uint64_t height, uint64_t width)
{
    struct tensor_shape images = {
        .dtype = DTYPE_F32, .rank = 4, .dims = {DIM_BATCH, channels, height, width}};
    struct tensor_shape labels = {.dtype = DTYPE_I32, .rank = 1, .dims = {DIM_BATCH}};
    if (net->code)
        return;
    net->code = graph_add_input(net->graph, "images", &images, &net->graph->images, net->err);
    if (net->code)
        return;
    net->code = graph_add_input(net->graph, "labels", &labels, &net->graph->labels, net->err);
    net->top = net->graph->images;
}

static size_t add_var(struct net *net, const struct model_var *var)
{
    size_t tensor = GRAPH_NONE;
    if (net->code == ERR_OK)
        net->code = graph_add_var(net->graph, var, &tensor, net->err);
    return tensor;
}

/* One node on top; what it makes first is the new top. */
static void add_node(struct net *net, enum op_kind op, const char *name,
                     const struct op_attrs *attrs, const size_t *in, size_t in_count,
                     size_t out_count)
{
    size_t out[OP_OUT_MAX];
    if (net->code)
        return;
    net->code = graph_add_node(net->graph, op, name, attrs, in, in_count, out, out_count, net->err);
    if (net->code == ERR_OK)
        net->top = out[0];
}

static size_t add_biases(struct net *net, const char *layer, uint64_t count)
{
    AUTO_MEM char *name = base_asprintf("cg/%s/biases", layer);
    return add_var(
        net, &(struct model_var){.name = name, .rank = 1, .shape = {count}, .is_trainable = true});
}

void net_conv(struct net *net, uint64_t out_channels, uint64_t kernel, uint32_t stride,
              enum auto_pad auto_pad)
{
    if (net->code)
        return;
    uint64_t in_channels = net->graph->tensors[net->top].shape.dims[1];
    AUTO_MEM char *layer = base_asprintf("conv%u", net->conv_count++);
    AUTO_MEM char *kernel_name = base_asprintf("cg/%s/conv2d/kernel", layer);
    size_t weights =
        add_var(net, &(struct model_var){
                         .name = kernel_name,
                         .rank = 4,
                         .shape = {out_channels, in_channels, kernel, kernel},
                         .init = INIT_KIND_TRUNCATED_NORMAL,
                         .init_value = (float)(sqrt(1.0 / (double)(in_channels * kernel * kernel)) /
                                               TRUNCATED_SD),
                         .is_trainable = true,
                     });
    size_t biases = add_biases(net, layer, out_channels);
    struct op_attrs attrs = {.strides = {stride, stride}, .auto_pad = auto_pad};
    add_node(net, OP_CONV, layer, &attrs, (size_t[]){net->top, weights, biases}, 3, 1);
}

void net_max_pool(struct net *net, uint32_t window, uint32_t stride)
{
    AUTO_MEM char *name = base_asprintf("mpool%u", net->pool_count++);
    struct op_attrs attrs = {.kernel = {window, window}, .strides = {stride, stride}};
    add_node(net, OP_MAX_POOL, name, &attrs, &net->top, 1, 2);
}

void net_relu(struct net *net)
{
    AUTO_MEM char *name = base_asprintf("relu%u", net->relu_count++);
    add_node(net, OP_RELU, name, NULL, &net->top, 1, 1);
}

void net_flatten(struct net *net)
{
    if (net->code || net->graph->tensors[net->top].shape.rank == 2)
        return;
    AUTO_MEM char *name = base_asprintf("flatten%u", net->flatten_count++);
    add_node(net, OP_FLATTEN, name, NULL, &net->top, 1, 1);
}

void net_affine(struct net *net, uint64_t units, bool is_before_relu)
{
    net_flatten(net);
    if (net->code)
        return;
    uint64_t fan_in = net->graph->tensors[net->top].shape.dims[1];
    AUTO_MEM char *layer = base_asprintf("affine%u", net->affine_count++);
    AUTO_MEM char *weights_name = base_asprintf("cg/%s/weights", layer);
    size_t weights =
        add_var(net, &(struct model_var){
                         .name = weights_name,
                         .rank = 2,
                         .shape = {fan_in, units},
                         .init = INIT_KIND_TRUNCATED_NORMAL,
                         .init_value = (float)sqrt((is_before_relu ? 2.0 : 1.0) / (double)fan_in),
                         .is_trainable = true,
                     });
    size_t biases = add_biases(net, layer, units);
    add_node(net, OP_GEMM, layer, NULL, (size_t[]){net->top, weights, biases}, 3, 1);
}

void net_classify(struct net *net, uint64_t num_classes)
{
    net_affine(net, num_classes, false);
    if (net->code)
        return;
    struct graph *graph = net->graph;
    size_t out[2];
    net->code = graph_add_node(graph, OP_SOFTMAX_LOSS, "loss", NULL,
                               (size_t[]){net->top, graph->labels}, 2, out, 2, net->err);
    if (net->code)
        return;
    graph->loss = out[0];
    graph->log_prob = out[1];
    graph->forward_node_count = graph->node_count;
    net->code = graph_grad_add(graph, net->err);
}

enum err_code net_done(struct net *net, struct graph **ret_graph)
{
    AUTO(graph) graph = TAKE(net->graph);
    if (net->code == ERR_OK)
        net->code = graph_check(graph, net->err);
    if (net->code == ERR_OK)
        *ret_graph = TAKE(graph);
    return net->code;
}
