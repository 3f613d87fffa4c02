/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_dnnl: a oneDNN primitive as an operator of ours; and the one translation of oneDNN's
 * statuses.
 *
 * Written to oneDNN 2.6's C API (operation descriptors, which version 3 removed). Only cpu_dnnl.c,
 * cpu_port.c, cpu_conv.c and cpu_gemm.c call oneDNN.
 *
 * Owns    the primitive, its memory objects and reorders. Thread: the device's.
 */
#ifndef KERNELS_CPU_CPU_DNNL_H
#define KERNELS_CPU_CPU_DNNL_H

#include <oneapi/dnnl/dnnl.h>

#include "kernels/cpu/cpu_int.h"

/* dnnl_success: ERR_OK. Otherwise "<what>: oneDNN says <status>". */
enum err_code cpu_dnnl_check(struct err *err, dnnl_status_t status, const char *what);
/* The description of a tensor in a layout of ours; canonical for layout 0. */
MUST_CHECK enum err_code cpu_dnnl_desc(const struct device_tensor *tensor, uint32_t layout,
                                       dnnl_memory_desc_t *ret_desc, struct err *err);
/* The same with the layout left to the primitive. */
MUST_CHECK enum err_code cpu_dnnl_desc_any(const struct device_tensor *tensor,
                                           dnnl_memory_desc_t *ret_desc, struct err *err);
/* As cpu_port_init, with the kernel's layout as oneDNN describes it. */
MUST_CHECK enum err_code cpu_port_init_desc(const struct cpu_build *build, struct cpu_op *op,
                                            struct cpu_port *port, bool is_out, size_t index,
                                            const dnnl_memory_desc_t *inner, struct err *err);
void cpu_dnnl_memory_done(dnnl_memory_t memory);

struct cpu_dnnl_arg {
    int id; /* DNNL_ARG_... */
    bool is_out;
    size_t index;
};

/* Makes an operator of a primitive description, which stays the caller's. An output that is not
 * external takes the primitive's layout where it is one of ours, canonical otherwise. */
MUST_CHECK enum err_code cpu_dnnl_op_new(const struct cpu_build *build,
                                         const_dnnl_primitive_desc_t desc,
                                         const struct cpu_dnnl_arg *args, size_t arg_count,
                                         struct cpu_op **ret_op, struct err *err);

#endif
