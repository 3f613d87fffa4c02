/* SPDX-License-Identifier: Apache-2.0 */
/* device_table: opens a device by the name of its backend.
 *
 * Owns    the caller owns the device; device_close. Thread: the device's own.
 * Errors  ERR_INVALID: no such name; ERR_NOT_FOUND: a backend that this build lacks; those of the
 *         backend.
 */
#ifndef KERNELS_PROGRAM_DEVICE_TABLE_H
#define KERNELS_PROGRAM_DEVICE_TABLE_H

#include "kernels/device/device.h"

/* name: "ref", "cpu" or "fake". */
MUST_CHECK enum err_code device_open(const char *name, const struct device_options *options,
                                     struct device **ret_device, struct err *err);

#endif
