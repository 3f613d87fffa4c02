/* SPDX-License-Identifier: Apache-2.0 */
/* coord_ckpt: checkpoints: finding, beginning, publishing and sweeping them on the disk thread, and
 * which files the servers have written of the one in progress. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/ckpt/ckpt_store.h"
#include "coordinatord/shell/coord_int.h"

#define ABORT_TRIES 60 /* a second apart; what then is left goes with the next checkpoint */

struct snapshot_order { /* an order that is out: which checkpoint its files belong to */
    uint64_t order;
    uint64_t job;
    uint64_t number;
    uint32_t server_index;
};

struct ckpt_task {
    struct disk_task base; /* first member */
    uint64_t job;
    uint64_t number;
    char *directory;
    char *skipped; /* a checkpoint that was not usable, in words; NULL: none */
    uint32_t max_to_keep;
    uint64_t newest_number;
    uint64_t first_number; /* older checkpoints are not the job's own */
    struct job_spec *spec;
    struct ckpt_manifest *manifest;
};

static void task_free(struct ckpt_task *task)
{
    ckpt_manifest_free(task->manifest);
    job_spec_free(task->spec);
    free(task->directory);
    free(task->skipped);
    free(task);
}

static struct ckpt_task *task_of(struct disk_task *base)
{
    return (struct ckpt_task *)base;
}

/* NULL: the job is gone. A task owns all it reads: the job may end while it runs. */
static struct ckpt_task *task_new(struct coord *coord, uint64_t job, uint64_t number,
                                  void (*work)(struct disk_task *base),
                                  void (*answer)(struct disk_task *base))
{
    struct core_job_view view;
    if (!core_job_view(coord->core, clock_now_ns(), job, &view))
        return NULL;
    struct ckpt_task *task = base_alloc(sizeof(*task));
    task->base.work = work;
    task->base.answer = answer;
    task->job = job;
    task->number = number;
    task->directory = base_strdup(view.spec->checkpoint.directory);
    task->max_to_keep = view.spec->checkpoint.max_to_keep;
    task->first_number = view.first_ckpt;
    if (job_spec_parse(view.spec_json, strlen(view.spec_json), &task->spec, &task->base.err) !=
        ERR_OK)
        ASSERT(!"a spec that was accepted no longer parses");
    return task;
}

/* ---- what servers wrote ---------------------------------------------------------------------- */

void coord_ckpt_remember_snapshot(struct coord *coord, const struct core_act *act)
{
    struct snapshot_order *order = map_get(&coord->snapshots, act->order);
    if (!order) {
        order = base_alloc(sizeof(*order));
        map_put(&coord->snapshots, act->order, order);
    }
    *order = (struct snapshot_order){act->order, act->job, act->number, act->server_index};
}

static void forget_snapshots(struct coord *coord, uint64_t job)
{
    struct snapshot_order *order;
    for (size_t at = 0; (order = map_next(&coord->snapshots, &at));) {
        if (order->job != job)
            continue;
        free(map_remove(&coord->snapshots, order->order));
        at = 0; /* a removal moves others */
    }
}

void coord_ckpt_keep_files(struct coord *coord, const Steadfast__V1__OrderDone *done)
{
    struct snapshot_order *order = map_remove(&coord->snapshots, done->order);
    if (!order)
        return;
    struct coord_job *job = coord_job_of(coord, order->job);
    for (size_t i = 0; i < done->n_files && job->ckpt_number == order->number; i++) {
        size_t bytes = steadfast__v1__ckpt_file__get_packed_size(done->files[i]);
        uint8_t *packed = base_alloc(bytes);
        steadfast__v1__ckpt_file__pack(done->files[i], packed);
        job->parts = base_realloc(job->parts, (job->part_count + 1) * sizeof(*job->parts));
        job->parts[job->part_count].server_index = order->server_index;
        job->parts[job->part_count].file = steadfast__v1__ckpt_file__unpack(NULL, bytes, packed);
        ASSERT(job->parts[job->part_count].file);
        job->part_count++;
        free(packed);
    }
    free(order);
}

/* ---- finding one ----------------------------------------------------------------------------- */

static void on_skipped(uint64_t number, const struct err *why, void *arg)
{
    struct ckpt_task *task = arg;
    log_error("ckpt.skipped", "directory=%s ckpt=%" PRIu64 " code=%s %s", task->directory, number,
              err_name(why->code), why->text);
    if (!task->skipped) /* the newest; the job's notices are read by people */
        task->skipped =
            base_asprintf("checkpoint %" PRIu64 " is not usable and was passed over: %s: %s",
                          number, err_name(why->code), why->text);
}

/* Steps of the checkpoint mean the same records and the same network only when these agree. */
static enum err_code check_same_job(const struct ckpt_manifest *manifest,
                                    const struct job_spec *spec, const char *directory,
                                    struct err *err)
{
    AUTO(job_spec) old = NULL;
    enum err_code code =
        job_spec_parse(manifest->spec_json, strlen(manifest->spec_json), &old, err);
    if (code != ERR_OK) {
        err_prefix(err, "%s/ckpt-%" PRIu64 ": spec", directory, manifest->number);
        return ERR_CORRUPT;
    }
    const struct {
        const char *field;
        uint64_t was;
        uint64_t is;
    } fields[] = {
        {"seed", old->seed, spec->seed},
        {"dataset.batch_size", old->dataset.batch_size, spec->dataset.batch_size},
        {"dataset.shuffle_buffer", old->dataset.shuffle_buffer, spec->dataset.shuffle_buffer},
        {"dataset.records", old->dataset.records, spec->dataset.records},
        {"dataset.source", (uint64_t)old->dataset.source, (uint64_t)spec->dataset.source},
        {"model.num_classes", old->model.num_classes, spec->model.num_classes},
    };
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        if (fields[i].was != fields[i].is)
            return err_set(err, ERR_INVALID,
                           "%s: %" PRIu64 ": want %" PRIu64 " as in %s/ckpt-%" PRIu64
                           ", which the job would resume from",
                           fields[i].field, fields[i].is, fields[i].was, directory,
                           manifest->number);
    if (strcmp(old->model.name, spec->model.name) != 0)
        return err_set(err, ERR_INVALID, "model.name: \"%s\": want \"%s\" as in %s/ckpt-%" PRIu64,
                       spec->model.name, old->model.name, directory, manifest->number);
    if (old->optimizer.kind != spec->optimizer.kind)
        return err_set(err, ERR_INVALID,
                       "optimizer.name: \"%s\": want \"%s\" as in %s/ckpt-%" PRIu64,
                       optimizer_name(spec->optimizer.kind), optimizer_name(old->optimizer.kind),
                       directory, manifest->number);
    return ERR_OK;
}

static void find_work(struct disk_task *base)
{
    struct ckpt_task *task = task_of(base);
    uint64_t *numbers = NULL;
    size_t count = 0;
    if (ckpt_list(task->directory, &numbers, &count, &task->base.err) != ERR_OK)
        return;
    task->newest_number = count ? numbers[count - 1] : 0;
    free(numbers);
    if (!count || task->newest_number < task->number) {
        err_set(&task->base.err, ERR_NOT_FOUND, "%s: no checkpoint", task->directory);
        return;
    }
    enum err_code code =
        ckpt_newest(task->directory, on_skipped, task, &task->manifest, &task->base.err);
    bool is_none =
        code == ERR_NOT_FOUND || (code == ERR_OK && task->manifest->number < task->number);
    if (is_none) /* to begin anew over checkpoints that somebody may still repair would be worse
                    than to stop */
        err_set(&task->base.err, ERR_CORRUPT, "%s: no checkpoint is usable; %s", task->directory,
                task->skipped ? task->skipped : "the older ones are not of this job");
    else if (code == ERR_OK)
        check_same_job(task->manifest, task->spec, task->directory, &task->base.err);
}

static void find_answer(struct disk_task *base)
{
    struct ckpt_task *task = task_of(base);
    struct ranges none;
    ranges_init(&none);
    const struct ckpt_manifest *manifest = task->manifest;
    char *path AUTO_MEM = manifest ? ckpt_path(task->directory, manifest->number) : NULL;
    if (base->err.code != ERR_CANCELLED)
        core_on_ckpt_found(base->coord->core, clock_now_ns(), task->job, task->base.err.code,
                           task->base.err.code == ERR_OK ? task->skipped : task->base.err.text,
                           path, task->newest_number, manifest ? &manifest->acked : &none,
                           manifest ? &manifest->abandoned : &none);
    coord_drain(base->coord);
    task_free(task);
}

void coord_ckpt_find(struct coord *coord, const struct core_act *act)
{
    struct ckpt_task *task = task_new(coord, act->job, act->number, find_work, find_answer);
    if (!task)
        return;
    task->base.tries_left = COORD_TRIES;
    coord_disk_post(coord, &task->base);
}

/* ---- writing one ----------------------------------------------------------------------------- */

static void begin_work(struct disk_task *base)
{
    struct ckpt_task *task = task_of(base);
    char *path AUTO_MEM = NULL; /* servers are told the name, too */
    base->err.code = ckpt_begin(task->directory, task->number, &path, &base->err);
}

static void begin_answer(struct disk_task *base)
{
    struct ckpt_task *task = task_of(base);
    if (base->err.code != ERR_CANCELLED)
        core_on_ckpt_begun(base->coord->core, clock_now_ns(), task->job, task->number,
                           task->base.err.code, task->base.err.text);
    coord_drain(base->coord);
    task_free(task);
}

void coord_ckpt_begin(struct coord *coord, const struct core_act *act)
{
    struct coord_job *job = coord_job_of(coord, act->job);
    coord_job_forget_parts(job);
    job->ckpt_number = act->number;
    struct ckpt_task *task = task_new(coord, act->job, act->number, begin_work, begin_answer);
    if (task)
        coord_disk_post(coord, &task->base);
}

static void publish_work(struct disk_task *base)
{
    struct ckpt_task *task = task_of(base);
    if (task->base.err.code != ERR_OK ||
        ckpt_publish(task->directory, task->manifest, &task->base.err) != ERR_OK)
        return;
    struct err sweep_err;
    if (ckpt_sweep(task->directory, MIN(task->first_number, task->number), task->max_to_keep, NULL,
                   &sweep_err) != ERR_OK)
        log_warn("ckpt.sweep", "directory=%s code=%s %s", task->directory, err_name(sweep_err.code),
                 sweep_err.text);
}

static void publish_answer(struct disk_task *base)
{
    struct ckpt_task *task = task_of(base);
    char *path AUTO_MEM = ckpt_path(task->directory, task->number);
    if (task->base.err.code == ERR_OK)
        log_info("ckpt.published", "path=%s", path);
    if (base->err.code != ERR_CANCELLED)
        core_on_ckpt_published(base->coord->core, clock_now_ns(), task->job, task->number,
                               task->base.err.code, task->base.err.text, path);
    coord_drain(base->coord);
    task_free(task);
}

/* From what the servers wrote and the plan they wrote it by. */
static enum err_code fill_manifest(struct ckpt_manifest *manifest, const struct coord_job *job,
                                   struct err *err)
{
    const Steadfast__V1__Plan *plan = job->plan;
    for (size_t i = 0; i < plan->n_slices; i++)
        if (plan->slices[i]->var == manifest->var_count)
            ckpt_manifest_add_var(manifest, plan->slices[i]->name,
                                  (uint32_t)plan->slices[i]->n_shape, plan->slices[i]->shape,
                                  plan->slices[i]->trainable);
    for (size_t p = 0; p < job->part_count; p++) {
        const Steadfast__V1__CkptFile *from = job->parts[p].file;
        uint32_t file =
            ckpt_manifest_add_file(manifest, from->name, from->bytes, from->crc32c, from->version);
        for (size_t g = 0; g < from->n_groups; g++) {
            const Steadfast__V1__CkptGroup *group = from->groups[g];
            struct ranges marks;
            ranges_init(&marks);
            for (size_t r = 0; r < group->n_marks && r < LIMIT_RANGES; r++)
                if (group->marks[r]->first <= group->marks[r]->last &&
                    group->marks[r]->last < LIMIT_STEPS)
                    ranges_add_range(&marks, group->marks[r]->first, group->marks[r]->last);
            uint32_t index = ckpt_manifest_add_group(manifest, group->applied, &marks);
            ranges_done(&marks);
            for (size_t s = 0; s < group->n_slices; s++) {
                if (group->slices[s] >= plan->n_slices)
                    return err_set(err, ERR_CORRUPT, "%s names slice %u, want under %zu",
                                   from->name, group->slices[s], plan->n_slices);
                const Steadfast__V1__Slice *slice = plan->slices[group->slices[s]];
                ckpt_manifest_add_slice(manifest, slice->var, slice->row_offset, slice->rows, file,
                                        index);
            }
            for (size_t s = 0; s < group->n_pieces; s++) {
                const Steadfast__V1__CkptPiece *piece = group->pieces[s];
                if (piece->slice >= plan->n_slices)
                    return err_set(err, ERR_CORRUPT, "%s names slice %u, want under %zu",
                                   from->name, piece->slice, plan->n_slices);
                ckpt_manifest_add_slice(manifest, plan->slices[piece->slice]->var,
                                        piece->row_offset, piece->rows, file, index);
            }
        }
    }
    return ERR_OK;
}

void coord_ckpt_publish(struct coord *coord, const struct core_act *act)
{
    struct ckpt_task *task = task_new(coord, act->job, act->number, publish_work, publish_answer);
    struct core_job_view view;
    if (!task)
        return;
    core_job_view(coord->core, clock_now_ns(), act->job, &view); /* of the same job, now */
    const struct coord_job *job = coord_job_of(coord, act->job);
    struct ckpt_manifest *manifest = ckpt_manifest_new();
    task->manifest = manifest;
    manifest->job = base_strdup(view.name);
    manifest->spec_json = base_strdup(view.spec_json);
    manifest->generation = act->generation;
    manifest->number = act->number;
    manifest->created_ms = clock_wall_ms();
    ranges_copy(&manifest->acked, view.ckpt_acked);
    ranges_copy(&manifest->abandoned, view.abandoned_set);
    uint64_t low = ranges_watermark(view.ckpt_acked);
    manifest->epoch = (uint32_t)(low / view.steps_per_epoch);
    manifest->batch = low % view.steps_per_epoch;
    if (job->plan)
        fill_manifest(manifest, job, &task->base.err);
    else
        err_set(&task->base.err, ERR_UNAVAILABLE, "the job has no plan");
    coord_disk_post(coord, &task->base);
}

static void abort_work(struct disk_task *base)
{
    struct ckpt_task *task = task_of(base);
    base->err.code = ckpt_abandon(task->directory, task->number, &base->err);
}

/* A server may still be writing into it. The directory is the job's own until a later job has it. */
static bool wants_abort_again(const struct disk_task *base)
{
    const struct ckpt_task *task = (const struct ckpt_task *)base;
    struct core *core = base->coord->core;
    size_t count = core_job_list(core, NULL, 0);
    uint64_t *numbers AUTO_MEM = base_alloc((count + 1) * sizeof(*numbers));
    core_job_list(core, numbers, count);
    for (size_t i = 0; i < count; i++) {
        struct core_job_view view;
        if (numbers[i] > task->job && core_job_view(core, clock_now_ns(), numbers[i], &view) &&
            view.spec->checkpoint.directory &&
            strcmp(view.spec->checkpoint.directory, task->directory) == 0)
            return false;
    }
    return true;
}

static void abort_answer(struct disk_task *base)
{
    struct ckpt_task *task = task_of(base);
    if (base->err.code != ERR_OK)
        log_warn("ckpt.abandon", "directory=%s ckpt=%" PRIu64 " code=%s %s", task->directory,
                 task->number, err_name(base->err.code), base->err.text);
    task_free(task);
}

void coord_ckpt_abort(struct coord *coord, const struct core_act *act)
{
    struct coord_job *job = coord_job_of(coord, act->job);
    forget_snapshots(coord, act->job);
    coord_job_forget_parts(job);
    job->ckpt_number = 0;
    struct ckpt_task *task = task_new(coord, act->job, act->number, abort_work, abort_answer);
    if (!task)
        return;
    task->base.wants_again = wants_abort_again;
    task->base.tries_left = ABORT_TRIES;
    coord_disk_post(coord, &task->base);
}

void coord_ckpt_done(struct coord *coord)
{
    void *order;
    for (size_t at = 0; (order = map_next(&coord->snapshots, &at));)
        free(order);
    map_done(&coord->snapshots);
}
