/* SPDX-License-Identifier: Apache-2.0 */
/* push_gate: two counters and a line. */
#include "psd/exchange/push_gate.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

struct push_gate {
    uint64_t bytes_max;
    size_t count_max;
    size_t waiting_max;
    pthread_mutex_t lock; /* guards all below and the waiters' links; a leaf */
    uint64_t bytes;
    size_t count;
    struct push_waiter *first;
    struct push_waiter **end;
    size_t waiting;
};

struct push_gate *push_gate_new(uint64_t bytes_max, size_t count_max, size_t waiting_max)
{
    ASSERT(count_max > 0);
    struct push_gate *gate = base_alloc(sizeof(*gate));
    gate->bytes_max = bytes_max;
    gate->count_max = count_max;
    gate->waiting_max = waiting_max;
    gate->end = &gate->first;
    pthread_mutex_init(&gate->lock, NULL);
    return gate;
}

void push_gate_free(struct push_gate *gate)
{
    if (!gate)
        return;
    ASSERT(gate->count == 0 && !gate->first);
    pthread_mutex_destroy(&gate->lock);
    free(gate);
}

/* Lock held. */
static bool has_room(const struct push_gate *gate, uint64_t bytes)
{
    return gate->count == 0 || (gate->count < gate->count_max && gate->bytes <= gate->bytes_max &&
                                bytes <= gate->bytes_max - gate->bytes);
}

enum err_code push_gate_enter(struct push_gate *gate, struct push_waiter *waiter, bool *ret_is_in,
                              struct err *err)
{
    enum err_code code = ERR_OK;
    pthread_mutex_lock(&gate->lock);
    if (!gate->first && has_room(gate, waiter->bytes)) {
        gate->count++;
        gate->bytes += waiter->bytes;
        *ret_is_in = true;
    } else if (gate->waiting >= gate->waiting_max) {
        code = err_set(err, ERR_FULL,
                       "%zu pushes of %" PRIu64
                       " bytes are being received and %zu wait, the most there can be",
                       gate->count, gate->bytes, gate->waiting);
    } else {
        waiter->next = NULL;
        waiter->is_waiting = true;
        *gate->end = waiter;
        gate->end = &waiter->next;
        gate->waiting++;
        *ret_is_in = false;
    }
    pthread_mutex_unlock(&gate->lock);
    return code;
}

/* Lock held: takes out those at the head of the line that fit, as a list. */
static struct push_waiter *admit(struct push_gate *gate)
{
    struct push_waiter *list = gate->first;
    struct push_waiter **at = &gate->first;
    while (*at && has_room(gate, (*at)->bytes)) {
        gate->count++;
        gate->bytes += (*at)->bytes;
        gate->waiting--;
        (*at)->is_waiting = false;
        at = &(*at)->next;
    }
    if (at == &gate->first)
        return NULL;
    gate->first = *at;
    if (!gate->first)
        gate->end = &gate->first;
    *at = NULL;
    return list;
}

static void open_to(struct push_waiter *list)
{
    while (list) {
        struct push_waiter *waiter = list;
        list = waiter->next;
        waiter->on_open(waiter);
    }
}

bool push_gate_cancel(struct push_gate *gate, struct push_waiter *waiter)
{
    pthread_mutex_lock(&gate->lock);
    bool is_waiting = waiter->is_waiting;
    if (is_waiting) {
        struct push_waiter **at = &gate->first;
        while (*at != waiter)
            at = &(*at)->next;
        *at = waiter->next;
        if (!*at)
            gate->end = at;
        gate->waiting--;
        waiter->is_waiting = false;
    }
    pthread_mutex_unlock(&gate->lock);
    return is_waiting;
}

void push_gate_leave(struct push_gate *gate, uint64_t bytes)
{
    pthread_mutex_lock(&gate->lock);
    ASSERT(gate->count > 0 && gate->bytes >= bytes);
    gate->count--;
    gate->bytes -= bytes;
    struct push_waiter *list = admit(gate);
    pthread_mutex_unlock(&gate->lock);
    open_to(list);
}
