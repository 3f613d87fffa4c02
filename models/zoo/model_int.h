/* SPDX-License-Identifier: Apache-2.0 */
/* model_int: the builders that model.c lists. Each puts the layers between the images and the
 * classifier on net. */
#ifndef MODELS_ZOO_MODEL_INT_H
#define MODELS_ZOO_MODEL_INT_H

#include "common/spec/job_spec.h"
#include "models/zoo/net.h"

void model_softmax_build(struct net *net, const struct model_spec *spec);
void model_mlp_build(struct net *net, const struct model_spec *spec);
void model_lenet_build(struct net *net, const struct model_spec *spec);
void model_noop_build(struct net *net, const struct model_spec *spec);

#endif
