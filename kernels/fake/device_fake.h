/* SPDX-License-Identifier: Apache-2.0 */
/* device_fake: no maths, only time and failures, as a script says (fake_script.h). Without one it
 * takes no time.
 *
 * A training step's loss is device_fake_loss(step); gradients and everything else come back as
 * zeros. Nothing is copied to it and it holds no memory. */
#ifndef KERNELS_FAKE_DEVICE_FAKE_H
#define KERNELS_FAKE_DEVICE_FAKE_H

#include "kernels/device/device.h"

extern const struct device_ops device_fake_ops;

/* ln(10) / (1 + step / 1000): falls as a real one does, and every attempt of a step has the same.
 */
float device_fake_loss(uint64_t step);

#endif
