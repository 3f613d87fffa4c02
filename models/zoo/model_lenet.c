/* SPDX-License-Identifier: Apache-2.0 */
/* model_lenet: lenet as tf_cnn_benchmarks defines it: conv 32 5x5, pool 2, conv 64 5x5, pool 2,
 * affine 512, classifier; SAME padding, ReLU after each but the last.
 *
 * ReLU stands after the pool instead of before it. The maximum of a window and the cut at zero
 * commute, and so do their gradients (the first of the largest wins either way, and a window
 * without a positive value passes nothing on), so the network is the same to the bit, with a
 * quarter of the ReLU work. */
#include "models/zoo/model_int.h"

void model_lenet_build(struct net *net, const struct model_spec *spec)
{
    static const uint64_t channels[] = {32, 64};
    for (size_t i = 0; i < ARRAY_SIZE(channels); i++) {
        net_conv(net, channels[i], 5, 1, AUTO_PAD_SAME_UPPER);
        net_max_pool(net, 2, 2);
        net_relu(net);
    }
    net_affine(net, 512, true);
    net_relu(net);
    net_classify(net, spec->num_classes);
}
