/* SPDX-License-Identifier: Apache-2.0 */
/* device_cpu: the backend for processors: oneDNN's convolutions and matrix products, own loops for
 * the rest.
 *
 * Convolutions pick the layout of their images (channels in blocks of 16 or 8), and what follows
 * keeps it. Weights arrive and gradients leave in canonical layout; the blocked copies of a step
 * live in scratch memory. f32 only.
 *
 * Same bits on every repeat with the same number of threads. The loops of our own give the same
 * bits for any number; oneDNN's gradients of weights do not, as it sums a batch in one part a
 * thread. NaN goes through every operator.
 * Thread  the number of OpenMP threads is set for the thread that opens the device; all calls
 *         come from it.
 * Errors  ERR_DEVICE: oneDNN's status, by name, and what was asked of it. */
#ifndef KERNELS_CPU_DEVICE_CPU_H
#define KERNELS_CPU_DEVICE_CPU_H

#include "kernels/device/device.h"

extern const struct device_ops device_cpu_ops;

#endif
