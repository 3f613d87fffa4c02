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

void ps_part_free(struct part *part)
{
    part->orders->parts_out--;
    free(part->name);
    free(part->restore_directory);
    slice_layout_free(part->layout);
    job_spec_free(part->spec);
    shard_job_free(part->made);
    free(part->directory);
    snapshot_free(part->snapshot);
    free(part->file_name);
    free(part);
}

struct part *ps_part_new(struct ps_orders *orders, struct order *order, uint32_t shard,
                         uint64_t job, uint64_t generation)
{
    struct part *part = base_alloc(sizeof(*part));
    part->orders = orders;
    orders->parts_out++;
    part->order = order;
    part->shard = orders->ps->shards[shard];
    part->job = job;
    part->generation = generation;
    if (order)
        order->parts++;
    return part;
}

struct held_job *ps_held_find(struct ps_orders *orders, uint64_t job)
{
    struct held_job *held = orders->jobs;
    while (held && held->job != job)
        held = held->next;
    return held;
}

static void held_forget(struct ps_orders *orders, uint64_t job)
{
    struct held_job **at = &orders->jobs;
    while (*at && (*at)->job != job)
        at = &(*at)->next;
    struct held_job *held = *at;
    if (!held)
        return;
    *at = held->next;
    free(held->name);
    free(held);
}

/* The record of a job at a generation, or NULL with the reason. */
struct held_job *ps_held_at(struct ps_orders *orders, uint64_t job, uint64_t generation,
                            struct err *err)
{
    struct held_job *held = ps_held_find(orders, job);
    if (!held || held->generation < generation)
        err_set(err, ERR_UNAVAILABLE, "%s: job %" PRIu64 " generation %" PRIu64 " is not here",
                orders->ps->name, job, generation);
    else if (held->generation > generation)
        err_set(err, ERR_STALE, "%s: job %" PRIu64 ": generation %" PRIu64 ", want %" PRIu64,
                orders->ps->name, job, generation, held->generation);
    else
        return held;
    return NULL;
}

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
    answer->packed = base_alloc(answer->bytes);
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
    orders->on_done(&done, orders->arg);
    ps_wire_states_free(done.shards, done.n_shards);
    order_free(order);
}

/* A part, or the beginning, has ended. */
static void order_part_ended(struct ps_orders *orders, struct order *order, const struct err *err)
{
    ASSERT(order->parts > 0);
    if (err && err->code != ERR_OK && order->err.code == ERR_OK)
        order->err = *err;
    if (--order->parts > 0)
        return;
    order_answer(orders, order);
    ps_orders_begin_ready(orders);
}

/* ---- parts on their way
 * -------------------------------------------------------------------------- */
static void run_then(void *arg)
{
    struct part *part = arg;
    part->then(part);
}

void ps_part_to_loop(struct part *part, void (*then)(struct part *part))
{
    part->then = then;
    rpc_env_post(part->orders->ps->env, run_then, part);
}

void ps_part_ended(struct part *part)
{
    if (part->order)
        order_part_ended(part->orders, part->order, &part->err);
    ps_part_free(part);
}

/* To the shard's or its file thread; when that refuses (full, stopping), the part ends with the
 * reason. */
void ps_part_to_thread(struct part *part, struct task_thread *thread,
                       void (*run)(struct task *task), void (*then)(struct part *part))
{
    part->task.run = run;
    enum err_code code = task_thread_post(thread, &part->task);
    if (code == ERR_OK)
        return;
    err_set(&part->err, code, "shard %u takes no more orders now", shard_index(part->shard));
    ps_part_to_loop(part, then);
}

/* ---- the short ones
 * ------------------------------------------------------------------------------ */
static enum err_code do_prune(struct ps_orders *orders, const Steadfast__V1__Prune *prune,
                              struct err *err)
{
    struct held_job *held = ps_held_at(orders, prune->job, prune->generation, err);
    if (!held)
        return err->code;
    enum err_code code = ERR_OK;
    for (uint32_t i = 0; i < orders->ps->shard_count && code == ERR_OK; i++)
        if (held->has_slices[i])
            code = shard_prune(orders->ps->shards[i], prune->job, prune->generation,
                               prune->watermark, err);
    return code;
}

static void do_unpin(struct ps_orders *orders, uint64_t job, uint64_t pin)
{
    for (uint32_t i = 0; i < orders->ps->shard_count; i++)
        shard_unpin(orders->ps->shards[i], job, pin);
}

static enum err_code do_pin(struct ps_orders *orders, const Steadfast__V1__Pin *pin,
                            struct err *err)
{
    struct held_job *held = ps_held_at(orders, pin->job, pin->generation, err);
    if (!held)
        return err->code;
    enum err_code code = ERR_OK;
    for (uint32_t i = 0; i < orders->ps->shard_count && code == ERR_OK; i++)
        if (held->has_slices[i])
            code = shard_pin(orders->ps->shards[i], pin->job, pin->generation, pin->pin, err);
    if (code != ERR_OK)
        do_unpin(orders, pin->job, pin->pin);
    return code;
}

/* Shard thread. */
void ps_part_drop(struct task *task)
{
    struct part *part = CONTAINER_OF(task, struct part, task);
    shard_drop(part->shard, part->job);
    ps_part_to_loop(part, ps_part_ended);
}

static void begin_drop(struct ps_orders *orders, struct order *order, uint64_t job)
{
    for (uint32_t i = 0; i < orders->ps->shard_count; i++) {
        struct part *part = ps_part_new(orders, order, i, job, 0);
        shard_close_job(part->shard, job, UINT64_MAX);
        ps_part_to_thread(part, shard_thread(part->shard), ps_part_drop, ps_part_ended);
    }
    if (ps_held_find(orders, job))
        log_info("job.drop", "job=%" PRIu64, job);
    held_forget(orders, job);
}

/* Shard thread. */
static void fence_run(struct task *task)
{
    ps_part_to_loop(CONTAINER_OF(task, struct part, task), ps_part_ended);
}

static void begin_fence(struct ps_orders *orders, struct order *order, uint64_t session)
{
    for (uint32_t i = 0; i < orders->ps->shard_count; i++) {
        struct part *part = ps_part_new(orders, order, i, 0, 0);
        part->task.run = fence_run;
        if (shard_fence(part->shard, session, &part->task))
            ps_part_to_loop(part, ps_part_ended);
    }
    ps_api_end_session(orders->ps, session);
    log_info("session.fenced", "session=%" PRIu64, session);
}

/* ---- the queue
 * ----------------------------------------------------------------------------------- */
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
        code = do_prune(orders, message->prune, &err);
        break;
    case STEADFAST__V1__SERVER_ORDER__WHAT_PIN:
        code = do_pin(orders, message->pin, &err);
        break;
    case STEADFAST__V1__SERVER_ORDER__WHAT_UNPIN:
        do_unpin(orders, message->unpin->job, message->unpin->pin);
        break;
    case STEADFAST__V1__SERVER_ORDER__WHAT_DROP:
        begin_drop(orders, order, message->drop->job);
        break;
    case STEADFAST__V1__SERVER_ORDER__WHAT_FENCE:
        begin_fence(orders, order, message->fence->session);
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
    order_part_ended(orders, order, &err);
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

/* Begins what may begin. An order that ends at once changes the list, so the walk starts over. */
void ps_orders_begin_ready(struct ps_orders *orders)
{
    if (orders->is_beginning || orders->is_stopping)
        return;
    orders->is_beginning = true;
    struct order *order = orders->orders;
    while (order) {
        if (is_ready(orders, order)) {
            begin(orders, order);
            order = orders->orders;
        } else {
            order = order->next;
        }
    }
    orders->is_beginning = false;
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
        ASSERT(done);
        orders->on_done(done, orders->arg);
        steadfast__v1__order_done__free_unpacked(done, NULL);
        return;
    }
    for (const struct order *order = orders->orders; order; order = order->next)
        if (order->start == start && order->number == message->order)
            return; /* its answer is on the way */
    if (orders->order_count >= LIMIT_ORDERS_WAITING) {
        struct err err;
        err_set(&err, ERR_FULL, "%zu orders wait, the most there can be", orders->order_count);
        Steadfast__V1__OrderDone done = STEADFAST__V1__ORDER_DONE__INIT;
        done.order = message->order;
        done.code = (char *)err_name(err.code);
        done.text = err.text;
        orders->on_done(&done, orders->arg);
        return;
    }
    size_t bytes = protobuf_c_message_get_packed_size(&message->base);
    AUTO_MEM uint8_t *packed = base_alloc(bytes);
    protobuf_c_message_pack(&message->base, packed);
    struct order *order = base_alloc(sizeof(*order));
    order->message = steadfast__v1__server_order__unpack(NULL, bytes, packed);
    ASSERT(order->message);
    order->start = start;
    order->number = message->order;
    order->job = job_of(message);
    struct order **at = &orders->orders;
    while (*at)
        at = &(*at)->next;
    *at = order;
    orders->order_count++;
    ps_orders_begin_ready(orders);
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
        begin_drop(orders, NULL, orders->jobs->job);
}

Steadfast__V1__ShardState **ps_orders_states(struct ps_orders *orders, uint64_t job,
                                             bool with_marks, size_t *ret_count)
{
    const struct ps *ps = orders->ps;
    Steadfast__V1__ShardState **states = NULL;
    size_t count = 0;
    for (uint32_t s = 0; s < ps->shard_count; s++) {
        struct shard_state list[LIMIT_JOBS_ACTIVE];
        size_t found =
            MIN(shard_states(ps->shards[s], list, LIMIT_JOBS_ACTIVE), (size_t)LIMIT_JOBS_ACTIVE);
        states = base_realloc(states, (count + found + 1) * sizeof(Steadfast__V1__ShardState *));
        for (size_t i = 0; i < found; i++) {
            const struct held_job *held = ps_held_find(orders, list[i].job);
            if (!held || held->generation != list[i].generation || (job && job != list[i].job))
                continue;
            struct ranges marks;
            bool has_marks = with_marks && shard_marks(ps->shards[s], list[i].job, &marks);
            states[count++] = ps_wire_state(&list[i], held->server, s, has_marks ? &marks : NULL);
            if (has_marks)
                ranges_done(&marks);
        }
    }
    *ret_count = count;
    return states;
}

bool ps_orders_stop(struct ps_orders *orders)
{
    orders->is_stopping = true;
    return orders->parts_out == 0;
}

struct ps_orders *ps_orders_new(struct ps *ps,
                                void (*on_done)(const Steadfast__V1__OrderDone *done, void *arg),
                                void *arg)
{
    struct ps_orders *orders = base_alloc(sizeof(*orders));
    orders->ps = ps;
    orders->on_done = on_done;
    orders->arg = arg;
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
        held_forget(orders, orders->jobs->job);
    for (size_t i = 0; i < PS_ORDER_ANSWERS; i++)
        free(orders->answers[i].packed);
    free(orders);
}
