/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_team: shares a loop out to the threads of a device.
 *
 * The threads are OpenMP's, the same that oneDNN computes on, so a device has one pool of them. A
 * loop is cut between its units (elements, rows, planes), each of which is computed whole by one
 * thread: how many threads there are and which took what shows in the time, never in the bits.
 * Work that is too small to pay for waking a thread stays on the caller's.
 *
 * Owns    nothing. Thread: the device's.
 */
#ifndef KERNELS_CPU_CPU_TEAM_H
#define KERNELS_CPU_CPU_TEAM_H

#include "common/base/base.h"

/* For this device's oneDNN calls, on the calling thread only. */
void cpu_team_open(uint32_t threads);

/* Runs run(arg, first, end) until [0, units) is covered, each unit once; returns when all are done.
 * unit_cost: floats that a unit reads and writes, more where it computes on them at length. */
void cpu_team_run(uint32_t threads, void (*run)(const void *arg, size_t first, size_t end),
                  const void *arg, size_t units, size_t unit_cost);

#endif
