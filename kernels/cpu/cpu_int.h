/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_int: what the files of the cpu backend share.
 *
 * Layout numbers: 0 is canonical; 16 and 8 are N,C/b,H,W,b for tensors of rank 4, the last block
 * padded with zeros.
 *
 * A port joins a tensor to a kernel that may want another layout: an input is reordered into
 * scratch memory before the kernel runs, an output out of it afterwards; where the layouts agree, a
 * port only passes the address on. */
#ifndef KERNELS_CPU_CPU_INT_H
#define KERNELS_CPU_CPU_INT_H

#include "kernels/device/device.h"

struct dnnl_engine;
struct dnnl_memory;
struct dnnl_primitive;
struct dnnl_primitive_attr;
struct dnnl_stream;

struct cpu_device {
    struct device base;
    uint32_t threads;
    struct dnnl_engine *engine;
    struct dnnl_stream *stream;
    struct dnnl_primitive_attr *attr; /* scratch memory is given by us */
};

struct cpu_op {
    struct device_op base; /* first */
    enum err_code (*run)(struct cpu_device *device, struct cpu_op *op,
                         const struct device_call *call, struct err *err);
    void (*free)(struct cpu_op *op);
};

/* One node being compiled. */
struct cpu_build {
    struct cpu_device *device;
    const struct graph_node *node;
    struct device_tensor *const *in;
    struct device_tensor *const *out;
};

struct cpu_port {
    bool is_out;
    size_t index;                   /* of the node's inputs or outputs */
    void *address;                  /* of the present run, in the kernel's layout */
    struct dnnl_primitive *reorder; /* NULL: the layouts agree */
    struct dnnl_memory *outer;      /* of the reorder */
    struct dnnl_memory *inner;
    struct dnnl_memory *pad; /* its scratchpad; NULL: needs none */
    size_t inner_offset;     /* in scratch */
    size_t pad_offset;
};

/* ---- cpu_port.c ---- */
/* Reserves bytes of an operator's scratch memory; returns their offset. */
size_t cpu_scratch_reserve(struct cpu_op *op, size_t bytes);
/* An input port, or one for an output whose layout is chosen already; layout is the kernel's. */
MUST_CHECK enum err_code cpu_port_init(const struct cpu_build *build, struct cpu_op *op,
                                       struct cpu_port *port, bool is_out, size_t index,
                                       uint32_t layout, struct err *err);
void cpu_port_done(struct cpu_port *port);
MUST_CHECK enum err_code cpu_port_begin(struct cpu_device *device, struct cpu_port *port,
                                        const struct device_call *call, struct err *err);
MUST_CHECK enum err_code cpu_port_end(struct cpu_device *device, struct cpu_port *port,
                                      const struct device_call *call, struct err *err);
/* An input port with a reorder: converts to where `to` says instead of scratch memory. */
MUST_CHECK enum err_code cpu_port_convert(struct cpu_device *device, struct cpu_port *port,
                                          const struct device_call *call, void *to,
                                          struct err *err);
/* Sets layout and bytes of a tensor. */
MUST_CHECK enum err_code cpu_tensor_set(struct device_tensor *tensor, uint32_t layout,
                                        struct err *err);
MUST_CHECK enum err_code cpu_dnnl_open(struct cpu_device *device, struct err *err);
void cpu_dnnl_close(struct cpu_device *device);

/* ---- one per operator: compile it ---- */
enum err_code cpu_conv_new(const struct cpu_build *build, struct cpu_op **ret_op, struct err *err);
enum err_code cpu_conv_grad_data_new(const struct cpu_build *build, struct cpu_op **ret_op,
                                     struct err *err);
enum err_code cpu_conv_grad_weights_new(const struct cpu_build *build, struct cpu_op **ret_op,
                                        struct err *err);
enum err_code cpu_gemm_new(const struct cpu_build *build, struct cpu_op **ret_op, struct err *err);
enum err_code cpu_reduce_sum_new(const struct cpu_build *build, struct cpu_op **ret_op,
                                 struct err *err);
enum err_code cpu_copy_new(const struct cpu_build *build, struct cpu_op **ret_op, struct err *err);
enum err_code cpu_relu_new(const struct cpu_build *build, struct cpu_op **ret_op, struct err *err);
enum err_code cpu_relu_grad_new(const struct cpu_build *build, struct cpu_op **ret_op,
                                struct err *err);
enum err_code cpu_add_new(const struct cpu_build *build, struct cpu_op **ret_op, struct err *err);
enum err_code cpu_max_pool_new(const struct cpu_build *build, struct cpu_op **ret_op,
                               struct err *err);
enum err_code cpu_max_pool_grad_new(const struct cpu_build *build, struct cpu_op **ret_op,
                                    struct err *err);
enum err_code cpu_softmax_new(const struct cpu_build *build, struct cpu_op **ret_op,
                              struct err *err);
enum err_code cpu_softmax_loss_new(const struct cpu_build *build, struct cpu_op **ret_op,
                                   struct err *err);
enum err_code cpu_softmax_loss_grad_new(const struct cpu_build *build, struct cpu_op **ret_op,
                                        struct err *err);

#endif
