/* SPDX-License-Identifier: Apache-2.0 */
/* ref_loss: softmax and the cross entropy of it. */
#include "kernels/ref/ref_int.h"

#include <math.h>

/* log of the sum of exp(x), shifted by the maximum so that nothing overflows; NaN when a score is.
 */
static double log_sum_exp(const double *x, uint64_t count)
{
    double max = x[0];
    for (uint64_t j = 1; j < count; j++)
        max = x[j] > max ? x[j] : max;
    double sum = 0;
    for (uint64_t j = 0; j < count; j++)
        sum += exp(x[j] - max);
    return max + log(sum);
}

void ref_softmax(const struct ref_call *c)
{
    const uint64_t rows = c->in_shape[0]->dims[0];
    const uint64_t cols = c->in_shape[0]->dims[1];
    for (uint64_t i = 0; i < rows; i++) {
        const double *x = (const double *)c->in[0] + i * cols;
        double *y = (double *)c->out[0] + i * cols;
        double lse = log_sum_exp(x, cols);
        for (uint64_t j = 0; j < cols; j++)
            y[j] = exp(x[j] - lse);
    }
}

void ref_softmax_loss(const struct ref_call *c)
{
    const uint64_t rows = c->in_shape[0]->dims[0];
    const uint64_t cols = c->in_shape[0]->dims[1];
    const int32_t *labels = c->in[1];
    double sum = 0;
    for (uint64_t i = 0; i < rows; i++) {
        const double *x = (const double *)c->in[0] + i * cols;
        double *log_prob = (double *)c->out[1] + i * cols;
        double lse = log_sum_exp(x, cols);
        for (uint64_t j = 0; j < cols; j++)
            log_prob[j] = x[j] - lse;
        sum -= log_prob[labels[i]];
    }
    *(double *)c->out[0] = sum / (double)rows;
}

void ref_softmax_loss_grad(const struct ref_call *c)
{
    const uint64_t rows = c->in_shape[0]->dims[0];
    const uint64_t cols = c->in_shape[0]->dims[1];
    const double *log_prob = c->in[0];
    const int32_t *labels = c->in[1];
    double *dx = c->out[0];
    for (uint64_t i = 0; i < rows; i++)
        for (uint64_t j = 0; j < cols; j++)
            dx[i * cols + j] =
                (exp(log_prob[i * cols + j]) - (j == (uint64_t)labels[i])) / (double)rows;
}
