/* SPDX-License-Identifier: Apache-2.0 */
/* ps_order: an order is cut into one part a shard; the last part that ends answers it.
 *
 *   queued --(head of its job's queue)--> begun --(all parts ended)--> answered
 *                                           |
 *                     snapshot: all copies made, or failed: the next order of the job may begin
 */
#include "psd/order/ps_order.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "psd/order/ps_order_int.h"
#include "psd/order/ps_wire.h"

/* ---- answers -------------------------------------------------------------------------------- */
static void file_free(Steadfast__V1__CkptFile *file)
{
    protobuf_c_message_free_unpacked(&file->base, NULL);
}

static void order_free(struct order *order)
{
    for (size_t i = 0; i < order->file_count; i++)
        file_free(order->files[i]);
    free(order->files);
    protobuf_c_message_free_unpacked(&order->message->base, NULL);
    free(order);
}

static void keep_answer(struct ps_orders *orders, const struct order *order,
                        const Steadfast__V1__OrderDone *done)
{
    struct answer *answer = &orders->answers[orders->next_answer++ % PS_ORDER_ANSWERS];
    free(answer->packed);
    answer->start = order->start;
    answer->number = order->number;
    answer->bytes = protobuf_c_message_get_packed_size(&done->base);
    answer->packed = malloc(answer->bytes);
    if (answer->packed)
        protobuf_c_message_pack(&done->base, answer->packed);
}

static void order_answer(struct ps_orders *orders, struct order *order)
{
    struct order **at = &orders->orders;
    while (*at != order)
        at = &(*at)->next;
    *at = order->next;
    orders->order_count--;

    Steadfast__V1__OrderDone done = STEADFAST__V1__ORDER_DONE__INIT;
    done.order = order->number;
    done.code = (char *)err_name(order->err.code);
    done.text = order->err.text;
    bool is_ok = order->err.code == ERR_OK;
    bool is_create = order->message->what_case == STEADFAST__V1__SERVER_ORDER__WHAT_CREATE;
    bool is_marks = order->message->what_case == STEADFAST__V1__SERVER_ORDER__WHAT_MARKS;
    if (is_ok && (is_create || is_marks))
        done.shards = ps_orders_states(orders, order->job, is_marks, &done.n_shards);
    if (is_ok) {
        done.files = order->files;
        done.n_files = order->file_count;
    }
    if (is_ok)
        log_debug("order.done", "order=%" PRIu64 " job=%" PRIu64, order->number, order->job);
    else
        log_warn("order.failed", "order=%" PRIu64 " job=%" PRIu64 " code=%s err=\"%s\"",
                 order->number, order->job, done.code, done.text);
    keep_answer(orders, order, &done);
    orders->env.on_done(&done, orders->env.arg);
    ps_wire_states_free(done.shards, done.n_shards);
    order_free(order);
}

/* ---- the queue -------------------------------------------------------------------------------- */
static uint64_t job_of(const Steadfast__V1__ServerOrder *message)
{
    switch (message->what_case) {
    case STEADFAST__V1__SERVER_ORDER__WHAT_CREATE:
        return message->create->job;
    case STEADFAST__V1__SERVER_ORDER__WHAT_SNAPSHOT:
        return message->snapshot->job;
    case STEADFAST__V1__SERVER_ORDER__WHAT_PRUNE:
        return message->prune->job;
    case STEADFAST__V1__SERVER_ORDER__WHAT_PIN:
        return message->pin->job;
    case STEADFAST__V1__SERVER_ORDER__WHAT_UNPIN:
        return message->unpin->job;
    case STEADFAST__V1__SERVER_ORDER__WHAT_DROP:
        return message->drop->job;
    case STEADFAST__V1__SERVER_ORDER__WHAT_MARKS:
        return message->marks->job;
    default:
        return 0;
    }
}

static void begin(struct ps_orders *orders, struct order *order)
{
    const Steadfast__V1__ServerOrder *message = order->message;
    struct err err = {0};
    enum err_code code = ERR_OK;
    order->is_begun = true;
    order->parts = 1; /* so that it does not end before all parts are on their way */
    switch (message->what_case) {
    case STEADFAST__V1__SERVER_ORDER__WHAT_CREATE:
        code = ps_order_begin_create(orders, order, &err);
        break;
    case STEADFAST__V1__SERVER_ORDER__WHAT_SNAPSHOT:
        code = ps_order_begin_snapshot(orders, order, &err);
        break;
    case STEADFAST__V1__SERVER_ORDER__WHAT_PRUNE:
        code = ps_order_do_prune(orders, message->prune, &err);
        break;
    case STEADFAST__V1__SERVER_ORDER__WHAT_PIN:
        code = ps_order_do_pin(orders, message->pin, &err);
        break;
    case STEADFAST__V1__SERVER_ORDER__WHAT_UNPIN:
        ps_order_do_unpin(orders, message->unpin->job, message->unpin->pin);
        break;
    case STEADFAST__V1__SERVER_ORDER__WHAT_DROP:
        ps_order_begin_drop(orders, order, message->drop->job);
        break;
    case STEADFAST__V1__SERVER_ORDER__WHAT_FENCE:
        ps_order_begin_fence(orders, order, message->fence->session);
        break;
    case STEADFAST__V1__SERVER_ORDER__WHAT_MARKS:
        if (!ps_held_at(orders, message->marks->job, message->marks->generation, &err))
            code = err.code;
        break;
    default:
        code = err_set(&err, ERR_INVALID, "order %" PRIu64 " of kind %d is not known here",
                       order->number, (int)message->what_case);
    }
    ASSERT(code == err.code);
    ps_order_part_ended(orders, order, &err);
}

static bool is_ready(const struct ps_orders *orders, const struct order *order)
{
    if (order->is_begun)
        return false;
    for (const struct order *before = orders->orders; before != order; before = before->next)
        if (before->job == order->job && order->job != 0 && !before->is_released)
            return false;
    return true;
}

/* Answers what has ended and begins what may begin. Both change the list, and beginning can end an
 * order at once, so the walk starts over after each. */
static void turn(struct ps_orders *orders)
{
    if (orders->is_turning)
        return;
    orders->is_turning = true;
    struct order *order = orders->orders;
    while (order) {
        if (order->is_ended)
            order_answer(orders, order);
        else if (!orders->is_stopping && is_ready(orders, order))
            begin(orders, order);
        else {
            order = order->next;
            continue;
        }
        order = orders->orders;
    }
    orders->is_turning = false;
}

/* Not kept: asked again, it may be taken. */
static void refuse(struct ps_orders *orders, uint64_t number, const struct err *why)
{
    Steadfast__V1__OrderDone done = STEADFAST__V1__ORDER_DONE__INIT;
    done.order = number;
    done.code = (char *)err_name(why->code);
    done.text = (char *)why->text;
    orders->env.on_done(&done, orders->env.arg);
}

static Steadfast__V1__ServerOrder *copy_of(const Steadfast__V1__ServerOrder *message,
                                           struct err *err)
{
    size_t bytes = protobuf_c_message_get_packed_size(&message->base);
    AUTO_MEM uint8_t *packed = malloc(bytes + 1);
    Steadfast__V1__ServerOrder *copy = NULL;
    if (packed) {
        protobuf_c_message_pack(&message->base, packed);
        copy = steadfast__v1__server_order__unpack(NULL, bytes, packed);
    }
    if (!copy)
        err_set(err, ERR_NO_MEMORY, "no memory for an order of %zu bytes", bytes);
    return copy;
}

void ps_orders_execute(struct ps_orders *orders, uint64_t start,
                       const Steadfast__V1__ServerOrder *message)
{
    for (size_t i = 0; i < PS_ORDER_ANSWERS; i++) {
        const struct answer *answer = &orders->answers[i];
        if (!answer->packed || answer->start != start || answer->number != message->order)
            continue;
        Steadfast__V1__OrderDone *done =
            steadfast__v1__order_done__unpack(NULL, answer->bytes, answer->packed);
        if (!done)
            return; /* no memory for it now; it is asked for again */
        orders->env.on_done(done, orders->env.arg);
        steadfast__v1__order_done__free_unpacked(done, NULL);
        return;
    }
    for (const struct order *order = orders->orders; order; order = order->next)
        if (order->start == start && order->number == message->order)
            return; /* its answer is on the way */
    struct err err = {0};
    Steadfast__V1__ServerOrder *copy = NULL;
    if (orders->order_count >= LIMIT_ORDERS_WAITING)
        err_set(&err, ERR_FULL, "%zu orders wait, the most there can be", orders->order_count);
    else
        copy = copy_of(message, &err);
    if (!copy) {
        refuse(orders, message->order, &err);
        return;
    }
    struct order *order = base_alloc(sizeof(*order));
    order->message = copy;
    order->start = start;
    order->number = message->order;
    order->job = job_of(message);
    struct order **at = &orders->orders;
    while (*at)
        at = &(*at)->next;
    *at = order;
    orders->order_count++;
    turn(orders);
}

void ps_orders_drop_all(struct ps_orders *orders)
{
    for (size_t i = 0; i < PS_ORDER_ANSWERS; i++) {
        free(orders->answers[i].packed);
        orders->answers[i] = (struct answer){0};
    }
    struct order **at = &orders->orders;
    while (*at) {
        struct order *order = *at;
        if (order->is_begun) {
            at = &order->next;
            continue;
        }
        *at = order->next;
        orders->order_count--;
        order_free(order);
    }
    while (orders->jobs)
        ps_order_begin_drop(orders, NULL, orders->jobs->job);
}

bool ps_orders_stop(struct ps_orders *orders)
{
    orders->is_stopping = true;
    return orders->parts_out == 0;
}

struct ps_orders *ps_orders_new(const struct ps_order_env *env)
{
    struct ps_orders *orders = base_alloc(sizeof(*orders));
    orders->env = *env;
    orders->turn = turn;
    return orders;
}

void ps_orders_free(struct ps_orders *orders)
{
    if (!orders)
        return;
    while (orders->orders) { /* begun ones have ended: their threads were stopped */
        struct order *order = orders->orders;
        orders->orders = order->next;
        order_free(order);
    }
    while (orders->jobs)
        ps_held_forget(orders, orders->jobs->job);
    for (size_t i = 0; i < PS_ORDER_ANSWERS; i++)
        free(orders->answers[i].packed);
    free(orders);
}
