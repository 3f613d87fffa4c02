/* SPDX-License-Identifier: Apache-2.0 */
/* ref_conv: convolution and its gradients, as the sums that define them. */
#include "kernels/ref/ref_int.h"

#include <string.h>

/* y[n,o,i,j] = b[o] + sum over c,p,q of x[n,c,i*sh+p-top,j*sw+q-left] * w[o,c,p,q]. The three
 * kernels walk the same terms of that sum; each adds another one of the three factors. */
struct conv_dims {
    int64_t n, c, h, w; /* x */
    int64_t o, kh, kw;  /* w */
    int64_t oh, ow;     /* y */
    int64_t sh, sw, top, left;
};

static struct conv_dims dims_of(const struct op_attrs *attrs, const struct tensor_shape *x,
                                const struct tensor_shape *w, const struct tensor_shape *y)
{
    return (struct conv_dims){
        .n = (int64_t)x->dims[0],
        .c = (int64_t)x->dims[1],
        .h = (int64_t)x->dims[2],
        .w = (int64_t)x->dims[3],
        .o = (int64_t)w->dims[0],
        .kh = (int64_t)w->dims[2],
        .kw = (int64_t)w->dims[3],
        .oh = (int64_t)y->dims[2],
        .ow = (int64_t)y->dims[3],
        .sh = attrs->strides[0],
        .sw = attrs->strides[1],
        .top = attrs->pads[0],
        .left = attrs->pads[1],
    };
}

/* Calls body with offsets xi, wi, yi for every term of every output. */
#define FOR_EACH_TERM(d, ...)                                                                      \
    for (int64_t n = 0; n < (d).n; n++)                                                            \
        for (int64_t o = 0; o < (d).o; o++)                                                        \
            for (int64_t i = 0; i < (d).oh; i++)                                                   \
                for (int64_t j = 0; j < (d).ow; j++)                                               \
                    for (int64_t c = 0; c < (d).c; c++)                                            \
                        for (int64_t p = 0; p < (d).kh; p++)                                       \
                            for (int64_t q = 0; q < (d).kw; q++) {                                 \
                                int64_t row = i * (d).sh + p - (d).top;                            \
                                int64_t col = j * (d).sw + q - (d).left;                           \
                                if (row < 0 || row >= (d).h || col < 0 || col >= (d).w)            \
                                    continue;                                                      \
                                int64_t xi = ((n * (d).c + c) * (d).h + row) * (d).w + col;        \
                                int64_t wi = ((o * (d).c + c) * (d).kh + p) * (d).kw + q;          \
                                int64_t yi = ((n * (d).o + o) * (d).oh + i) * (d).ow + j;          \
                                __VA_ARGS__                                                        \
                            }

void ref_conv(const struct ref_call *c_)
{
    struct conv_dims d = dims_of(c_->attrs, c_->in_shape[0], c_->in_shape[1], c_->out_shape[0]);
    const double *x = c_->in[0];
    const double *w = c_->in[1];
    const double *b = c_->in[2];
    double *y = c_->out[0];
    for (int64_t k = 0; k < d.n * d.o; k++)
        for (int64_t at = 0; at < d.oh * d.ow; at++)
            y[k * d.oh * d.ow + at] = b ? b[k % d.o] : 0.0;
    FOR_EACH_TERM(d, { y[yi] += x[xi] * w[wi]; })
}

void ref_conv_grad_data(const struct ref_call *c_)
{
    struct conv_dims d = dims_of(c_->attrs, c_->out_shape[0], c_->in_shape[0], c_->in_shape[1]);
    const double *w = c_->in[0];
    const double *dy = c_->in[1];
    double *dx = c_->out[0];
    memset(dx, 0, (size_t)(d.n * d.c * d.h * d.w) * sizeof(*dx));
    FOR_EACH_TERM(d, { dx[xi] += dy[yi] * w[wi]; })
}

void ref_conv_grad_weights(const struct ref_call *c_)
{
    struct conv_dims d = dims_of(c_->attrs, c_->in_shape[0], c_->out_shape[0], c_->in_shape[1]);
    const double *x = c_->in[0];
    const double *dy = c_->in[1];
    double *dw = c_->out[0];
    double *db = c_->out[1];
    memset(dw, 0, (size_t)(d.o * d.c * d.kh * d.kw) * sizeof(*dw));
    FOR_EACH_TERM(d, { dw[wi] += dy[yi] * x[xi]; })
    if (!db)
        return;
    memset(db, 0, (size_t)d.o * sizeof(*db));
    for (int64_t k = 0; k < d.n * d.o; k++)
        for (int64_t at = 0; at < d.oh * d.ow; at++)
            db[k % d.o] += dy[k * d.oh * d.ow + at];
}
