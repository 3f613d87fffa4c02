/* SPDX-License-Identifier: Apache-2.0 */
/* program: a graph compiled for one device and one batch size: what is needed for the outputs that
 * are asked for, and nothing else, with all its memory planned.
 *
 * Everything between inputs and outputs lies in one arena, which the caller provides, so that
 * programs that never run at the same time share one. Nothing in it outlives a run.
 *
 * Owns    its operators and its plan. Borrows graph and device for its life, arena, inputs and
 *         outputs for a run.
 * Thread  the device's.
 * Errors  those of the device, with the node's name before them.
 */
#ifndef KERNELS_PROGRAM_PROGRAM_H
#define KERNELS_PROGRAM_PROGRAM_H

#include "kernels/device/device.h"

struct program;

MUST_CHECK enum err_code program_new(struct device *device, const struct graph *graph,
                                     uint32_t batch, const size_t *outputs, size_t output_count,
                                     struct program **ret_program, struct err *err);
void program_free(struct program *program);
DEFINE_AUTO(program)

uint32_t program_batch(const struct program *program);
size_t program_arena_bytes(const struct program *program);
bool program_uses(const struct program *program, size_t tensor);

/* Host arrays by tensor number, canonical. inputs: those that program_uses says yes to among the
 * graph's inputs and variables. outputs: those asked for. on_output (or NULL) is called as each is
 * complete, in the order in which they become so. */
struct program_io {
    const void *const *inputs;
    void *const *outputs;
    void (*on_output)(size_t tensor, void *arg);
    void *arg;
};

MUST_CHECK enum err_code program_run(struct program *program, void *arena,
                                     const struct program_io *io, struct err *err);
/* Adds the nanoseconds spent in each node to node_ns[node number of the graph] from now on; NULL:
 * off. */
void program_profile(struct program *program, uint64_t *node_ns);

#endif
