/* SPDX-License-Identifier: Apache-2.0 */
/* ref_pool: max pooling; the workspace holds, for each output, the offset of the winner within its
 * image plane. */
#include "kernels/ref/ref_int.h"

#include <math.h>
#include <string.h>

void ref_max_pool(const struct ref_call *c)
{
    const struct op_attrs *a = c->attrs;
    const int64_t h = (int64_t)c->in_shape[0]->dims[2];
    const int64_t w = (int64_t)c->in_shape[0]->dims[3];
    const int64_t oh = (int64_t)c->out_shape[0]->dims[2];
    const int64_t ow = (int64_t)c->out_shape[0]->dims[3];
    const int64_t planes = (int64_t)(c->in_shape[0]->dims[0] * c->in_shape[0]->dims[1]);
    double *y = c->out[0];
    int64_t *winner = c->out[1];
    for (int64_t plane = 0; plane < planes; plane++)
        for (int64_t i = 0; i < oh; i++)
            for (int64_t j = 0; j < ow; j++) {
                const double *x = (const double *)c->in[0] + plane * h * w;
                int64_t best = -1;
                for (int64_t p = 0; p < a->kernel[0]; p++)
                    for (int64_t q = 0; q < a->kernel[1]; q++) {
                        int64_t row = i * a->strides[0] + p - a->pads[0];
                        int64_t col = j * a->strides[1] + q - a->pads[1];
                        if (row < 0 || row >= h || col < 0 || col >= w)
                            continue;
                        int64_t at = row * w + col;
                        bool wins =
                            best < 0 || x[at] > x[best] || (isnan(x[at]) && !isnan(x[best]));
                        best = wins ? at : best;
                    }
                int64_t to = (plane * oh + i) * ow + j;
                y[to] = x[best];
                if (winner)
                    winner[to] = best;
            }
}

void ref_max_pool_grad(const struct ref_call *c)
{
    const size_t in_plane = c->out_shape[0]->dims[2] * c->out_shape[0]->dims[3];
    const size_t out_plane = c->in_shape[0]->dims[2] * c->in_shape[0]->dims[3];
    const size_t planes = c->in_shape[0]->dims[0] * c->in_shape[0]->dims[1];
    const double *dy = c->in[0];
    const int64_t *winner = c->in[1];
    double *dx = c->out[0];
    memset(dx, 0, planes * in_plane * sizeof(*dx));
    for (size_t plane = 0; plane < planes; plane++)
        for (size_t k = 0; k < out_plane; k++)
            dx[plane * in_plane + (size_t)winner[plane * out_plane + k]] +=
                dy[plane * out_plane + k];
}
