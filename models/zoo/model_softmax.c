/* SPDX-License-Identifier: Apache-2.0 */
/* model_softmax: multinomial logistic regression; the classifier on the flat image, nothing
 * between. */
#include "models/zoo/model_int.h"

void model_softmax_build(struct net *net, const struct model_spec *spec)
{
    net_classify(net, spec->num_classes);
}
