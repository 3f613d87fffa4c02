/* SPDX-License-Identifier: Apache-2.0 */
/* net: builds a network layer on layer, with the conventions and names of tf_cnn_benchmarks'
 * ConvNetBuilder.
 *
 * A net has a top, the tensor that the next layer takes. The first error sticks: later calls do
 * nothing, and net_done returns it. Variables: "cg/conv<k>/conv2d/kernel", "cg/conv<k>/biases",
 * "cg/affine<k>/weights", "cg/affine<k>/biases".
 *
 * Initial values (the sources: ConvNetBuilder of tensorflow/benchmarks,
 * tf.variance_scaling_initializer): conv kernels    truncated normal, standard deviation
 * sqrt(1/fan_in) after the cut, so sqrt(1/fan_in)/0.87962566 before it; fan_in = I*kh*kw affine
 * weights  truncated normal, standard deviation before the cut sqrt(2/fan_in) where a ReLU follows,
 *                   sqrt(1/fan_in) where none does
 *   biases          0
 *
 * Owns    the graph under construction, until net_done gives it away.
 * Thread  the builder's.
 * Errors  those of graph_add_node.
 */
#ifndef MODELS_ZOO_NET_H
#define MODELS_ZOO_NET_H

#include "models/graph/graph.h"

struct net {
    struct graph *graph;
    struct err *err;
    enum err_code code;
    size_t top;
    unsigned conv_count, pool_count, relu_count, flatten_count, affine_count; /* for names */
};

void net_init(struct net *net, struct err *err);
/* Images of the given size become the top; labels stand beside them. */
void net_images(struct net *net, uint64_t channels, uint64_t height, uint64_t width);
/* A convolution with bias, stride 1 unless given. */
void net_conv(struct net *net, uint64_t out_channels, uint64_t kernel, uint32_t stride,
              enum auto_pad auto_pad);
void net_max_pool(struct net *net, uint32_t window, uint32_t stride);
void net_relu(struct net *net);
/* Flattens what has more than two dims. */
void net_flatten(struct net *net);
void net_affine(struct net *net, uint64_t units, bool is_before_relu);
/* The last affine, to num_classes, then the loss, then the backward half. */
void net_classify(struct net *net, uint64_t num_classes);
/* Checks and gives the graph away; frees it on failure. */
MUST_CHECK enum err_code net_done(struct net *net, struct graph **ret_graph);

#endif
