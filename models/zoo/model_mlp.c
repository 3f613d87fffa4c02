/* SPDX-License-Identifier: Apache-2.0 */
/* model_mlp: hidden affine layers, each with ReLU, of the sizes the job names. */
#include "models/zoo/model_int.h"

void model_mlp_build(struct net *net, const struct model_spec *spec)
{
    for (size_t i = 0; i < spec->hidden_count; i++) {
        net_affine(net, spec->hidden[i], true);
        net_relu(net);
    }
    net_classify(net, spec->num_classes);
}
