/* SPDX-License-Identifier: Apache-2.0 */
/* ps_wire: what a shard says of itself, as messages.
 *
 * Owns    the caller owns what it gets; made with malloc, freed with the generated free functions
 * and a NULL allocator. Thread: any.
 */
#ifndef PSD_ORDER_PS_WIRE_H
#define PSD_ORDER_PS_WIRE_H

#include "proto/fleet.pb-c.h"
#include "psd/shard/shard.h"
#include "psd/values/snapshot.h"

/* marks_or_null: the steps that all slices have seen. */
Steadfast__V1__ShardState *ps_wire_state(const struct shard_state *state, uint32_t server,
                                         uint32_t shard, const struct ranges *marks_or_null);
void ps_wire_states_free(Steadfast__V1__ShardState **states, size_t count);
/* Without bytes and crc32c, which its writer knows. */
Steadfast__V1__CkptFile *ps_wire_file(const struct snapshot *snapshot, const char *name,
                                      uint32_t shard);

#endif
