/* SPDX-License-Identifier: Apache-2.0 */
/* device_ref: the slow, obvious backend that the others are judged by.
 *
 * Keeps every float as a double and computes in doubles, so its own error is far below the one it
 * measures. Takes f64 tensors too, which finite differences need. Layouts are canonical throughout.
 * Its memory counts as foreign, so that running it also runs the copying to and from a device. */
#ifndef KERNELS_REF_DEVICE_REF_H
#define KERNELS_REF_DEVICE_REF_H

#include "kernels/device/device.h"

extern const struct device_ops device_ref_ops;

#endif
