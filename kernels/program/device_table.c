/* SPDX-License-Identifier: Apache-2.0 */
/* device_table: the backends of this build. A new one is a row here. */
#include "kernels/program/device_table.h"

#include <string.h>

#include "kernels/cpu/device_cpu.h"
#include "kernels/fake/device_fake.h"
#include "kernels/ref/device_ref.h"

static const struct device_ops *const backends[] = {&device_ref_ops, &device_cpu_ops,
                                                    &device_fake_ops};

enum err_code device_open(const char *name, const struct device_options *options,
                          struct device **ret_device, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(backends); i++)
        if (strcmp(backends[i]->name, name) == 0)
            return backends[i]->open(options, ret_device, err);
    if (strcmp(name, "cuda") == 0)
        return err_set(err, ERR_NOT_FOUND,
                       "device \"cuda\": this build has no CUDA backend, want ref, cpu or fake");
    return err_set(err, ERR_INVALID, "device \"%s\": want ref, cpu or fake", name);
}
