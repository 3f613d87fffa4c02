/* SPDX-License-Identifier: Apache-2.0 */
/* model: from the name in a job to a graph of operators with ONNX names and meaning.
 *
 * Builders: softmax (flatten, one affine), mlp (hidden ReLU layers), lenet (tf_cnn_benchmarks: conv
 * 32 5x5 SAME bias ReLU, max pool 2, conv 64 5x5, max pool 2, affine 512 ReLU, affine num_classes),
 * noop (no operators, no variables: measures dispatch). Every training graph ends in
 * SoftmaxCrossEntropyLoss, mean over the batch.
 *
 * Initial values: kernels variance scaling (fan in, truncated normal, scale 1) for conv; affine
 * weights truncated normal sd sqrt(2/fan_in) before ReLU, sqrt(1/fan_in) before the loss; biases 0.
 * Variable names: "cg/conv0/conv2d/kernel", "cg/conv0/biases", "cg/affine0/weights", ... as
 * tf_cnn_benchmarks has.
 *
 * Owns    the graph owns its nodes, names and shapes. Thread: immutable once built, so any.
 * Shapes  images N,C,H,W; conv kernels O,I,H,W; affine weights in,out; all f32, row-major.
 * Errors  ERR_INVALID names the field of the job.
 */
#ifndef MODELS_ZOO_MODEL_H
#define MODELS_ZOO_MODEL_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/spec/job_spec.h"
#include "models/graph/graph_var.h"

/* channels, height, width of one example. */
MUST_CHECK enum err_code model_build(const struct model_spec *spec, uint64_t channels,
                                     uint64_t height, uint64_t width, struct graph **ret_graph,
                                     struct err *err);
#endif
