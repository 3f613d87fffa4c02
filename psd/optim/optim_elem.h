/* SPDX-License-Identifier: Apache-2.0 */
/* optim_elem: what an optimizer does to one element. Shared by the loops of psd and by device code.
 *
 * The formulas are those of tf.keras (keras/optimizers/{sgd,adam}.py), in its order of operations:
 *   sgd       w -= lr * g
 *   momentum  m = momentum * m - lr * g;  w += m            (classical)
 *                                         w += momentum * m - lr * g   (Nesterov; m already new)
 *   adam      m += (g - m) * (1 - beta1);  v += (g * g - v) * (1 - beta2);
 *             w -= (m * alpha) / (sqrt(v) + epsilon),
 *             alpha = lr * sqrt(1 - beta2^t) / (1 - beta1^t), t from 1
 * so the learning rate is inside the velocity (it is outside in PyTorch), and adam's epsilon is the
 * "epsilon hat" of Kingma and Ba, section 2, outside the root and not scaled by the bias
 * correction.
 *
 * No product and sum may be contracted into one rounding (-ffp-contract=off): every instruction set
 * gives the same bits.
 */
#ifndef PSD_OPTIM_OPTIM_ELEM_H
#define PSD_OPTIM_OPTIM_ELEM_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define OPTIM_FN static __device__ __forceinline__
#else
#define OPTIM_FN static inline __attribute__((always_inline))
#endif

/* The top bit is set when g is NaN or infinite: its exponent is all ones, and one more carries. The
 * loops gather these bits with "or", which costs nothing beside the memory. */
OPTIM_FN uint32_t optim_elem_nonfinite(float g)
{
    uint32_t bits;
    memcpy(&bits, &g, sizeof(bits));
    return (bits & 0x7fffffffu) + 0x00800000u;
}

OPTIM_FN float optim_elem_sgd(float w, float g, float lr)
{
    return w - lr * g;
}

OPTIM_FN float optim_elem_momentum(float w, float g, float *m, float lr, float momentum)
{
    float velocity = momentum * *m - lr * g;
    *m = velocity;
    return w + velocity;
}

OPTIM_FN float optim_elem_nesterov(float w, float g, float *m, float lr, float momentum)
{
    float step = lr * g;
    float velocity = momentum * *m - step;
    *m = velocity;
    return w + (momentum * velocity - step);
}

OPTIM_FN float optim_elem_adam(float w, float g, float *m, float *v, float alpha, float rest1,
                               float rest2, float epsilon)
{
    float mean = *m + (g - *m) * rest1; /* rest1 = 1 - beta1 */
    float square = *v + (g * g - *v) * rest2;
    *m = mean;
    *v = square;
    return w - (mean * alpha) / (sqrtf(square) + epsilon);
}

#endif
