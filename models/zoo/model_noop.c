/* SPDX-License-Identifier: Apache-2.0 */
/* model_noop: no operators and no variables. A step of it costs only what scheduling and reporting
 * cost. */
#include "models/zoo/model_int.h"

void model_noop_build(struct net *net, const struct model_spec *spec)
{
    (void)net;
    (void)spec;
}
