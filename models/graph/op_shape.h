/* SPDX-License-Identifier: Apache-2.0 */
/* op_shape: one shape function per operator; see op.h for what each takes and gives.
 *
 * A function reads call->in and call->attrs, resolves defaults in the attributes and fills
 * call->out. The counts have been checked against the table before.
 * Thread  any; pure. Errors ERR_INVALID: the shape that was given and the one that was wanted.
 */
#ifndef MODELS_GRAPH_OP_SHAPE_H
#define MODELS_GRAPH_OP_SHAPE_H

#include "models/graph/op.h"

MUST_CHECK enum err_code op_shape_conv(struct op_call *call, struct err *err);
MUST_CHECK enum err_code op_shape_max_pool(struct op_call *call, struct err *err);
MUST_CHECK enum err_code op_shape_same(struct op_call *call, struct err *err);
MUST_CHECK enum err_code op_shape_flatten(struct op_call *call, struct err *err);
MUST_CHECK enum err_code op_shape_reshape(struct op_call *call, struct err *err);
MUST_CHECK enum err_code op_shape_gemm(struct op_call *call, struct err *err);
MUST_CHECK enum err_code op_shape_add(struct op_call *call, struct err *err);
MUST_CHECK enum err_code op_shape_reduce_sum(struct op_call *call, struct err *err);
MUST_CHECK enum err_code op_shape_softmax(struct op_call *call, struct err *err);
MUST_CHECK enum err_code op_shape_softmax_loss(struct op_call *call, struct err *err);
MUST_CHECK enum err_code op_shape_conv_grad_data(struct op_call *call, struct err *err);
MUST_CHECK enum err_code op_shape_conv_grad_weights(struct op_call *call, struct err *err);
MUST_CHECK enum err_code op_shape_max_pool_grad(struct op_call *call, struct err *err);
MUST_CHECK enum err_code op_shape_softmax_loss_grad(struct op_call *call, struct err *err);

#endif
