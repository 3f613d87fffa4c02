/* SPDX-License-Identifier: Apache-2.0 */
/* push_gate: how many pushes, and how many bytes of gradients, may be on their way in at once.
 *
 * Who does not get in waits in line, in the order of arrival, and reads nothing from its stream
 * meanwhile: the client feels it as back-pressure. One push larger than the whole budget is let in
 * alone.
 *
 * Owns    nothing: a waiter is part of its push. Thread: any; on_open runs on the thread that left.
 * Errors  ERR_FULL: the line is as long as it may be.
 */
#ifndef PSD_EXCHANGE_PUSH_GATE_H
#define PSD_EXCHANGE_PUSH_GATE_H

#include "common/base/base.h"
#include "common/base/err.h"

struct push_gate;

struct push_waiter {
    struct push_waiter *next;
    uint64_t bytes;
    void (*on_open)(struct push_waiter *waiter); /* it is in now, as if enter had said so */
    bool is_waiting;
};

struct push_gate *push_gate_new(uint64_t bytes_max, size_t count_max, size_t waiting_max);
void push_gate_free(struct push_gate *gate); /* nobody in it, nobody waits */
DEFINE_AUTO(push_gate)
/* *ret_is_in false: on_open will be called later. */
MUST_CHECK enum err_code push_gate_enter(struct push_gate *gate, struct push_waiter *waiter,
                                         bool *ret_is_in, struct err *err);
/* Gives up waiting. False: on_open was called or is being called. */
bool push_gate_cancel(struct push_gate *gate, struct push_waiter *waiter);
/* Never with a lock held that an on_open takes. */
void push_gate_leave(struct push_gate *gate, uint64_t bytes);

#endif
