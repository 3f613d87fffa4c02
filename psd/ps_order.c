/* SPDX-License-Identifier: Apache-2.0 */
/* ps_order: an order is cut into one part a shard; the last part that ends answers it.
 *
 *   queued --(head of its job's queue)--> begun --(all parts ended)--> answered
 *                                           |
 *                     snapshot: all copies made, or failed: the next order of the job may begin
 *
 * A part moves between the loop, the shard thread and the file thread, and belongs to one of them
 * at a time: create    shard: retire the older generation; file: make or restore; shard: install
 *   snapshot  shard: copy; file: write
 *   drop      shard;   fence   loop, or the shard after the push that it is applying
 */
#include "psd/ps_order.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/job_spec.h"
#include "common/limits.h"
#include "common/log.h"
#include "psd/ckpt_read.h"
#include "psd/ckpt_write.h"
#include "psd/ps_int.h"

#define ANSWERS_KEPT   64 /* as many as a coordinator has open at once, several times over */
#define MEMORY_WAIT_NS (5 * NS_PER_S) /* for readers of the old generation to let go of it */
#define MEMORY_LOOK_NS (20 * NS_PER_MS)

struct order {
    uint64_t start;
    uint64_t number;
    uint64_t job;                        /* 0: none (fence) */
    Steadfast__V1__ServerOrder *message; /* own copy */
    struct order *next;                  /* of all orders, in the order of arrival */
    bool is_begun;
    bool is_released; /* the next order of the job may begin */
    size_t parts;     /* not ended yet; one is the beginning itself */
    size_t copies;    /* snapshot: not made yet */
    struct err err;   /* the first failure */
    Steadfast__V1__CkptFile **files;
    size_t file_count;
};

struct held_job { /* what was created here and not dropped */
    uint64_t job;
    uint64_t generation;
    uint32_t server; /* our position in its plan */
    bool has_slices[LIMIT_SHARDS_PER_SERVER];
    struct held_job *next;
};

struct answer {
    uint64_t start;
    uint64_t number;
    void *packed;
    size_t bytes;
};

struct ps_orders {
    struct ps *ps;
    void (*on_done)(const Steadfast__V1__OrderDone *done, void *arg);
    void *arg;
    struct order *orders;
    size_t order_count;
    struct held_job *jobs;
    bool is_beginning; /* begin_ready is at work further up */
    bool is_stopping;
    size_t parts_out; /* not freed yet */
    struct answer answers[ANSWERS_KEPT];
    size_t next_answer;
};

struct part {
    struct task task; /* first member */
    struct ps_orders *orders;
    struct order *order; /* NULL: a drop that nobody asked for by order */
    struct shard *shard;
    void (*then)(struct part *part); /* on the loop */
    struct err err;
    uint64_t job;
    uint64_t generation;
    /* create */
    char *name;
    char *restore_directory; /* NULL: initial values */
    struct slice_layout *layout;
    struct job_spec *spec;
    struct shard_counters counters;
    bool has_retired; /* an older generation, whose memory may be held by readers still */
    struct shard_job *made;
    /* snapshot */
    char *directory;
    struct snapshot *snapshot;
    char *file_name;
    uint64_t bytes;
    uint32_t crc;
};

static void part_free(struct part *part)
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

static struct part *part_new(struct ps_orders *orders, struct order *order, uint32_t shard,
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

static struct held_job *held_find(struct ps_orders *orders, uint64_t job)
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
    if (held)
        *at = held->next;
    free(held);
}

/* The record of a job at a generation, or NULL with the reason. */
static struct held_job *held_at(struct ps_orders *orders, uint64_t job, uint64_t generation,
                                struct err *err)
{
    struct held_job *held = held_find(orders, job);
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

/* ---- answers -----------------------------------------------------------------------------------
 */
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
    struct answer *answer = &orders->answers[orders->next_answer++ % ANSWERS_KEPT];
    free(answer->packed);
    answer->start = order->start;
    answer->number = order->number;
    answer->bytes = protobuf_c_message_get_packed_size(&done->base);
    answer->packed = base_alloc(answer->bytes);
    protobuf_c_message_pack(&done->base, answer->packed);
}

static void begin_ready(struct ps_orders *orders);

static void order_answer(struct ps_orders *orders, struct order *order)
{
    struct order **at = &orders->orders;
    while (*at != order)
        at = &(*at)->next;
    *at = order->next;
    orders->order_count--;

    Steadfast__V1__OrderDone done = STEADFAST__V1__ORDER_DONE__INIT;
    done.order = order->number;
    done.code = (char *)(uintptr_t)err_name(order->err.code);
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
    ps_orders_states_free(done.shards, done.n_shards);
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
    begin_ready(orders);
}

/* ---- parts on their way
 * -------------------------------------------------------------------------- */
static void run_then(void *arg)
{
    struct part *part = arg;
    part->then(part);
}

static void to_loop(struct part *part, void (*then)(struct part *part))
{
    part->then = then;
    rpc_env_post(part->orders->ps->env, run_then, part);
}

static void part_ended(struct part *part)
{
    if (part->order)
        order_part_ended(part->orders, part->order, &part->err);
    part_free(part);
}

/* To the shard's or its file thread; when that refuses (full, stopping), the part ends with the
 * reason. */
static void to_thread(struct part *part, struct task_thread *thread, void (*run)(struct task *task),
                      void (*then)(struct part *part))
{
    part->task.run = run;
    enum err_code code = task_thread_post(thread, &part->task);
    if (code == ERR_OK)
        return;
    err_set(&part->err, code, "shard %u takes no more orders now", shard_index(part->shard));
    to_loop(part, then);
}

static void drop_run(struct task *task);

/* ---- create
 * -------------------------------------------------------------------------------------- */
static void create_ended(struct part *part)
{
    struct ps_orders *orders = part->orders;
    struct held_job *held = held_find(orders, part->job);
    bool is_wanted = held && held->generation == part->generation;
    if (part->err.code != ERR_OK && is_wanted)
        held->has_slices[shard_index(part->shard)] = false;
    if (!is_wanted) { /* dropped by a Goodbye meanwhile */
        struct part *drop = part_new(orders, NULL, shard_index(part->shard), part->job, 0);
        to_thread(drop, shard_thread(part->shard), drop_run, part_ended);
    }
    part_ended(part);
}

/* Shard thread. */
static void create_install(struct task *task)
{
    struct part *part = CONTAINER_OF(task, struct part, task);
    if (shard_install(part->shard, part->made, &part->counters, &part->err) == ERR_OK)
        part->made = NULL;
    to_loop(part, create_ended);
}

/* Memory of the older generation comes back when its last reader is gone, which is soon. */
static enum err_code make_values(struct part *part, struct values **ret_values, struct err *err)
{
    struct budget *budget = part->orders->ps->values;
    AUTO_MEM char *what = base_asprintf("job %s shard %u", part->name, shard_index(part->shard));
    uint64_t deadline = clock_now_ns() + MEMORY_WAIT_NS;
    for (;;) {
        enum err_code code = values_new(budget, what, part->layout, part->spec, ret_values, err);
        if (code != ERR_NO_MEMORY || !part->has_retired || clock_now_ns() >= deadline)
            return code;
        nanosleep(&(struct timespec){.tv_nsec = (long)MEMORY_LOOK_NS}, NULL);
    }
}

/* File thread. */
static void create_make(struct task *task)
{
    struct part *part = CONTAINER_OF(task, struct part, task);
    AUTO(values) values = NULL;
    enum err_code code = make_values(part, &values, &part->err);
    if (code == ERR_OK) {
        part->layout = NULL; /* the values' own now */
        part->spec = NULL;
        /* Versions rise over generations, so that no cached copy of an older one is taken for new.
         */
        values->version = ((part->generation - 1) << 36) + 1;
        if (part->restore_directory)
            code = ckpt_read(part->restore_directory, values, &part->err);
        else
            values_fill_initial(values);
    }
    if (code == ERR_OK)
        code = shard_job_new(part->shard, part->job, part->generation, part->name, values,
                             &part->made, &part->err);
    if (code != ERR_OK) {
        to_loop(part, create_ended);
        return;
    }
    values = NULL;
    to_thread(part, shard_thread(part->shard), create_install, create_ended);
}

/* Shard thread. */
static void create_retire(struct task *task)
{
    struct part *part = CONTAINER_OF(task, struct part, task);
    bool is_here = false;
    enum err_code code = shard_retire(part->shard, part->job, part->generation, &part->counters,
                                      &is_here, &part->has_retired, &part->err);
    if (code != ERR_OK || is_here || part->layout->count == 0)
        to_loop(part, create_ended);
    else
        to_thread(part, shard_file_thread(part->shard), create_make, create_ended);
}

static enum err_code begin_create(struct ps_orders *orders, struct order *order, struct err *err)
{
    const Steadfast__V1__CreateShards *create = order->message->create;
    struct ps *ps = orders->ps;
    if (create->generation == 0 || create->generation >= LIMIT_GENERATIONS)
        return err_set(err, ERR_INVALID, "create: generation %" PRIu64 ", want 1 to %d",
                       create->generation, LIMIT_GENERATIONS - 1);
    struct held_job *held = held_find(orders, create->job);
    if (held && held->generation > create->generation)
        return err_set(err, ERR_STALE, "%s: job %" PRIu64 ": generation %" PRIu64 ", want %" PRIu64,
                       ps->name, create->job, create->generation, held->generation);
    struct part *parts[LIMIT_SHARDS_PER_SERVER] = {0};
    enum err_code code = ERR_OK;
    for (uint32_t i = 0; i < ps->shard_count && code == ERR_OK; i++) {
        parts[i] = part_new(orders, order, i, create->job, create->generation);
        parts[i]->name = base_strdup(create->name);
        if (create->restore_directory[0])
            parts[i]->restore_directory = base_strdup(create->restore_directory);
        code = slice_layout_new(create->plan, create->server, i, ps->shard_count, &parts[i]->layout,
                                err);
        if (code == ERR_OK)
            code =
                job_spec_parse(create->spec_json, strlen(create->spec_json), &parts[i]->spec, err);
    }
    if (code != ERR_OK) {
        for (uint32_t i = 0; i < ps->shard_count && parts[i]; i++) {
            order->parts--;
            part_free(parts[i]);
        }
        return code;
    }
    if (!held) {
        held = base_alloc(sizeof(*held));
        held->job = create->job;
        held->next = orders->jobs;
        orders->jobs = held;
    }
    bool is_again = held->generation == create->generation;
    held->generation = create->generation;
    held->server = create->server;
    for (uint32_t i = 0; i < ps->shard_count; i++) {
        held->has_slices[i] = parts[i]->layout->count > 0;
        shard_close_job(ps->shards[i], create->job, create->generation);
        to_thread(parts[i], shard_thread(ps->shards[i]), create_retire, create_ended);
    }
    log_info("job.create", "job=%s generation=%" PRIu64 " server=%u restore=\"%s\" again=%d",
             create->name, create->generation, create->server, create->restore_directory, is_again);
    return ERR_OK;
}

/* ---- snapshot
 * ------------------------------------------------------------------------------------ */
static void snapshot_ended(struct part *part)
{
    struct order *order = part->order;
    if (part->err.code == ERR_OK) {
        const struct snapshot *snapshot = part->snapshot;
        Steadfast__V1__CkptFile *file = base_alloc(sizeof(*file));
        steadfast__v1__ckpt_file__init(file);
        file->name = TAKE(part->file_name);
        file->bytes = part->bytes;
        file->crc32c = part->crc;
        file->shard = shard_index(part->shard);
        file->version = snapshot->version;
        file->n_groups = snapshot->group_count;
        file->groups = base_alloc(snapshot->group_count * sizeof(*file->groups));
        for (size_t g = 0; g < snapshot->group_count; g++) {
            const struct values_group *from = &snapshot->groups[g];
            Steadfast__V1__CkptGroup *group = base_alloc(sizeof(*group));
            steadfast__v1__ckpt_group__init(group);
            file->groups[g] = group;
            group->applied = from->applied;
            group->marks = base_alloc((from->marks.count + 1) * sizeof(*group->marks));
            for (size_t i = 0; i < from->marks.count; i++) {
                Steadfast__V1__Range *range = base_alloc(sizeof(*range));
                steadfast__v1__range__init(range);
                range->first = from->marks.items[i].first;
                range->last = from->marks.items[i].last;
                group->marks[group->n_marks++] = range;
            }
            group->slices = base_alloc((snapshot->piece_count + 1) * sizeof(*group->slices));
            group->pieces = base_alloc((snapshot->piece_count + 1) * sizeof(*group->pieces));
            for (size_t i = 0; i < snapshot->piece_count; i++) {
                const struct snapshot_piece *piece = &snapshot->pieces[i];
                if (piece->group != g)
                    continue;
                if (piece->is_whole_slice) {
                    group->slices[group->n_slices++] = piece->slice;
                    continue;
                }
                Steadfast__V1__CkptPiece *to = base_alloc(sizeof(*to));
                steadfast__v1__ckpt_piece__init(to);
                to->slice = piece->slice;
                to->row_offset = piece->row_offset;
                to->rows = piece->rows;
                group->pieces[group->n_pieces++] = to;
            }
        }
        order->files = base_realloc(order->files, (order->file_count + 1) * sizeof(*order->files));
        order->files[order->file_count++] = file;
    }
    part_ended(part);
}

/* File thread. */
static void snapshot_write(struct task *task)
{
    struct part *part = CONTAINER_OF(task, struct part, task);
    uint64_t start = clock_now_ns();
    if (ckpt_write(part->snapshot, part->directory, part->file_name, part->name, &part->bytes,
                   &part->crc, &part->err) == ERR_OK)
        log_debug("snapshot.written", "file=%s bytes=%" PRIu64 " ms=%" PRIu64, part->file_name,
                  part->bytes, (uint64_t)((clock_now_ns() - start) / NS_PER_MS));
    to_loop(part, snapshot_ended);
}

/* Loop: the copy is made, or is not to be had. */
static void snapshot_copied(struct part *part)
{
    struct order *order = part->order;
    struct ps_orders *orders = part->orders;
    if (--order->copies == 0)
        order->is_released = true;
    bool is_released = order->is_released;
    if (part->err.code == ERR_OK)
        to_thread(part, shard_file_thread(part->shard), snapshot_write, snapshot_ended);
    else
        part_ended(part);
    if (is_released)
        begin_ready(orders);
}

/* Shard thread. */
static void snapshot_copy(struct task *task)
{
    struct part *part = CONTAINER_OF(task, struct part, task);
    const struct values *values =
        shard_values(part->shard, part->job, part->generation, &part->err);
    if (values)
        (void)!snapshot_take(values, &part->snapshot, &part->err);
    to_loop(part, snapshot_copied);
}

static enum err_code begin_snapshot(struct ps_orders *orders, struct order *order, struct err *err)
{
    const Steadfast__V1__Snapshot *snapshot = order->message->snapshot;
    struct held_job *held = held_at(orders, snapshot->job, snapshot->generation, err);
    if (!held)
        return err->code;
    for (uint32_t i = 0; i < orders->ps->shard_count; i++) {
        if (!held->has_slices[i])
            continue;
        struct part *part = part_new(orders, order, i, snapshot->job, snapshot->generation);
        part->name = base_asprintf("%" PRIu64, snapshot->job);
        part->directory = base_strdup(snapshot->directory);
        part->file_name = base_asprintf("server%u-shard%u.safetensors", held->server, i);
        order->copies++;
        to_thread(part, shard_thread(part->shard), snapshot_copy, snapshot_copied);
    }
    return ERR_OK;
}

/* ---- the short ones
 * ------------------------------------------------------------------------------ */
static enum err_code do_prune(struct ps_orders *orders, const Steadfast__V1__Prune *prune,
                              struct err *err)
{
    struct held_job *held = held_at(orders, prune->job, prune->generation, err);
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
    struct held_job *held = held_at(orders, pin->job, pin->generation, err);
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
static void drop_run(struct task *task)
{
    struct part *part = CONTAINER_OF(task, struct part, task);
    shard_drop(part->shard, part->job);
    to_loop(part, part_ended);
}

static void begin_drop(struct ps_orders *orders, struct order *order, uint64_t job)
{
    for (uint32_t i = 0; i < orders->ps->shard_count; i++) {
        struct part *part = part_new(orders, order, i, job, 0);
        shard_close_job(part->shard, job, UINT64_MAX);
        to_thread(part, shard_thread(part->shard), drop_run, part_ended);
    }
    if (held_find(orders, job))
        log_info("job.drop", "job=%" PRIu64, job);
    held_forget(orders, job);
}

/* Shard thread. */
static void fence_run(struct task *task)
{
    to_loop(CONTAINER_OF(task, struct part, task), part_ended);
}

static void begin_fence(struct ps_orders *orders, struct order *order, uint64_t session)
{
    for (uint32_t i = 0; i < orders->ps->shard_count; i++) {
        struct part *part = part_new(orders, order, i, 0, 0);
        part->task.run = fence_run;
        if (shard_fence(part->shard, session, &part->task))
            to_loop(part, part_ended);
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
        code = begin_create(orders, order, &err);
        break;
    case STEADFAST__V1__SERVER_ORDER__WHAT_SNAPSHOT:
        code = begin_snapshot(orders, order, &err);
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
        if (!held_at(orders, message->marks->job, message->marks->generation, &err))
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
static void begin_ready(struct ps_orders *orders)
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
    for (size_t i = 0; i < ANSWERS_KEPT; i++) {
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
        done.code = (char *)(uintptr_t)err_name(err.code);
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
    begin_ready(orders);
}

void ps_orders_drop_all(struct ps_orders *orders)
{
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

/* ---- states
 * -------------------------------------------------------------------------------------- */
static Steadfast__V1__ShardState *state_of(const struct ps_orders *orders,
                                           const struct held_job *held, uint32_t shard,
                                           const struct shard_state *from, bool with_marks)
{
    Steadfast__V1__ShardState *to = base_alloc(sizeof(*to));
    steadfast__v1__shard_state__init(to);
    to->job = from->job;
    to->generation = from->generation;
    to->server = held ? held->server : 0;
    to->shard = shard;
    to->version = from->version;
    to->applied = from->applied;
    to->bytes = from->bytes;
    to->duplicates_refused = from->duplicates_refused;
    to->fenced = from->fenced;
    to->marked = from->marked;
    to->repeated_applies = from->repeated_applies;
    to->groups = from->groups;
    struct ranges marks;
    if (with_marks && shard_marks(orders->ps->shards[shard], from->job, &marks)) {
        to->marks = base_alloc((marks.count + 1) * sizeof(*to->marks));
        for (size_t i = 0; i < marks.count; i++) {
            Steadfast__V1__Range *range = base_alloc(sizeof(*range));
            steadfast__v1__range__init(range);
            range->first = marks.items[i].first;
            range->last = marks.items[i].last;
            to->marks[to->n_marks++] = range;
        }
        ranges_done(&marks);
    }
    return to;
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
        states = base_realloc(states, (count + found + 1) * sizeof(*states));
        for (size_t i = 0; i < found; i++) {
            const struct held_job *held = held_find(orders, list[i].job);
            if (held && held->generation == list[i].generation && (!job || job == list[i].job))
                states[count++] = state_of(orders, held, s, &list[i], with_marks);
        }
    }
    *ret_count = count;
    return states;
}

void ps_orders_states_free(Steadfast__V1__ShardState **states, size_t count)
{
    for (size_t i = 0; i < count; i++)
        steadfast__v1__shard_state__free_unpacked(states[i], NULL);
    free(states);
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
    for (size_t i = 0; i < ANSWERS_KEPT; i++)
        free(orders->answers[i].packed);
    free(orders);
}
