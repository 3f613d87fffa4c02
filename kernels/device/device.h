/* SPDX-License-Identifier: Apache-2.0 */
/* device: what a compute backend has to offer (the list of backends:
 * kernels/program/device_table.c).
 *
 * A backend is a const table of functions over a private context. Work is given in order and is
 * done in order, but may still be under way when a call returns: mark() names the point reached so
 * far, wait() waits for it. A backend that works inside the call has every mark done at once.
 *
 * Layout: what crosses to the host is canonical (row-major, images N,C,H,W, kernels O,I,H,W).
 * Between two operators a backend may keep a tensor in a layout of its own, named by a number that
 * only it understands.
 *
 * Owns    a device owns its context; the operators made on it are freed before it is closed.
 * Thread  open, every call and close on one thread per device.
 * Errors  ERR_INVALID: what was asked for cannot be; ERR_DEVICE: the backend's library failed; ERR_NO_MEMORY.
 */
#ifndef KERNELS_DEVICE_DEVICE_H
#define KERNELS_DEVICE_DEVICE_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "models/graph/graph.h"

#define DEVICE_LAYOUT_CANONICAL 0
#define DEVICE_ALIGN                                                                               \
    64 /* of every address a backend is given, bytes: a cache line and an AVX-512 register */

struct device_options {
    uint32_t threads;        /* of this device; 0: 1 */
    const char *fake_script; /* fake/fake_script.h; NULL: none */
};

/* One tensor of a graph that is compiled for one batch size. */
struct device_tensor {
    const char *name;
    struct tensor_shape shape; /* no DIM_BATCH left */
    bool is_external;          /* given by or to the host: its layout stays canonical */
    uint32_t layout;           /* set by the operator that makes it */
    size_t bytes;              /* on the device, in that layout; set likewise */
};

/* First member of a backend's operator: what the memory planner needs of it. */
struct device_op {
    size_t scratch_bytes; /* wanted in device_call.scratch */
    bool is_view; /* output 0 is input 0, byte by byte; run with one address for both it does
                     nothing */
};

struct device_call { /* device addresses, aligned to DEVICE_ALIGN unless external */
    const void *in[OP_IN_MAX];
    void *out[OP_OUT_MAX];
    void *scratch;
};

struct device {
    const struct device_ops *ops;
};

struct device_ops {
    const char *name;
    bool is_host; /* device memory is host memory in canonical f32: externals are used where they
                     lie, never copied */

    enum err_code (*open)(const struct device_options *options, struct device **ret_device,
                          struct err *err);
    void (*close)(struct device *device);

    enum err_code (*buf_new)(struct device *device, size_t bytes, void **ret_address,
                             struct err *err);
    void (*buf_free)(struct device *device, void *address, size_t bytes);
    /* Sets bytes of a tensor in canonical layout; an error names it. */
    enum err_code (*tensor_init)(struct device *device, struct device_tensor *tensor,
                                 struct err *err);
    /* The host side is canonical; f32, f64 or i32 as the tensor says. It is borrowed until a later
     * mark is done. */
    enum err_code (*upload)(struct device *device, const struct device_tensor *tensor,
                            void *address, const void *host, struct err *err);
    enum err_code (*download)(struct device *device, const struct device_tensor *tensor,
                              const void *address, void *host, struct err *err);

    /* Compiles one node. Reads the layouts of in; sets layout and bytes of out. An opaque output
     * that nobody reads is NULL. Node and tensors outlive the operator. */
    enum err_code (*op_new)(struct device *device, const struct graph_node *node,
                            struct device_tensor *const *in, struct device_tensor *const *out,
                            struct device_op **ret_op, struct err *err);
    void (*op_free)(struct device *device, struct device_op *op);
    enum err_code (*op_run)(struct device *device, struct device_op *op,
                            const struct device_call *call, struct err *err);

    /* Before the operators of a training step; step seeds random operators and the fake script. */
    enum err_code (*step_begin)(struct device *device, uint64_t step, struct err *err);
    /* 0: all that was given so far is done already. */
    enum err_code (*mark)(struct device *device, uint64_t *ret_mark, struct err *err);
    enum err_code (*wait)(struct device *device, uint64_t mark, struct err *err);
};

void device_close(struct device *device); /* NULL is fine */
static inline void device_free(struct device *device)
{
    device_close(device);
}
DEFINE_AUTO(device)

/* What several backends share in their tables. */
enum err_code device_stub_upload(struct device *device, const struct device_tensor *tensor,
                                 void *address, const void *host,
                                 struct err *err); /* ERR_DEVICE: has none */
enum err_code device_stub_download(struct device *device, const struct device_tensor *tensor,
                                   const void *address, void *host, struct err *err);
enum err_code device_step_begin_free(struct device *device, uint64_t step, struct err *err);
enum err_code device_mark_done(struct device *device, uint64_t *ret_mark, struct err *err);
enum err_code device_wait_done(struct device *device, uint64_t mark, struct err *err);
/* Buffers in host memory: mapped, in huge pages where they fill one, untouched until used. */
enum err_code device_host_buf_new(struct device *device, size_t bytes, void **ret_address,
                                  struct err *err);
void device_host_buf_free(struct device *device, void *address, size_t bytes);

#endif
