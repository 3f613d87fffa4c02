/* SPDX-License-Identifier: Apache-2.0 */
/* coord_disk: what may take time, on a thread of its own: reading the headers of data sets,
 * finding, beginning, publishing and sweeping checkpoints. A task carries copies in and results
 * out; its answer runs on the loop. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/ckpt/ckpt_store.h"
#include "common/spec/data_source.h"
#include "coordinatord/shell/coord_int.h"

struct disk_task {
    struct task task; /* first member */
    struct coord *coord;
    void (*work)(struct disk_task *task);   /* on the disk thread */
    void (*answer)(struct disk_task *task); /* on the loop; then the task is freed */
    struct err err;
    uint64_t job;
    uint64_t number;
    char *directory;
    char *path;
    char *skipped; /* a checkpoint that was not usable, in words; NULL: none */
    uint32_t max_to_keep;
    struct ckpt_manifest *manifest;
    uint64_t newest_number;
    uint64_t first_number; /* older checkpoints are not the job's own */
    /* probe */
    struct job_spec *spec;
    char *json;
    struct data_facts facts;
    bool makes_directory;
    void (*on_probed)(struct coord *coord, void *arg, struct job_spec *spec, char *json,
                      const struct data_facts *facts, const struct err *err);
    void *arg;
};

static void task_answer(void *arg)
{
    struct disk_task *task = arg;
    task->coord->tasks--;
    task->answer(task);
    ckpt_manifest_free(task->manifest);
    job_spec_free(task->spec);
    free(task->json);
    free(task->directory);
    free(task->path);
    free(task->skipped);
    free(task);
}

static void task_run(struct task *base)
{
    struct disk_task *task = (struct disk_task *)base;
    task->work(task);
    rpc_env_post(task->coord->env, task_answer, task);
}

static struct disk_task *task_new(struct coord *coord, void (*work)(struct disk_task *task),
                                  void (*answer)(struct disk_task *task))
{
    struct disk_task *task = base_alloc(sizeof(*task));
    task->task.run = task_run;
    task->coord = coord;
    task->work = work;
    task->answer = answer;
    return task;
}

static void task_post(struct disk_task *task)
{
    task->coord->tasks++;
    if (task_thread_post_always(task->coord->disk, &task->task) != ERR_OK) {
        err_set(&task->err, ERR_CANCELLED, "the coordinator is stopping");
        task_answer(task);
    }
}

/* ---- data sets
 * ------------------------------------------------------------------------------------- */

static enum err_code probe_dataset(const struct dataset_spec *dataset, const char *field,
                                   uint64_t *ret_records, struct data_facts *facts, struct err *err)
{
    struct data_shape shape;
    enum err_code code = data_source_measure(dataset, field, &shape, err);
    if (code != ERR_OK)
        return code;
    *ret_records = shape.records;
    facts->channels = shape.channels;
    facts->height = shape.height;
    facts->width = shape.width;
    return ERR_OK;
}

/* Found out now rather than at the first checkpoint, or, worse, at the last one. */
static enum err_code probe_directory(const char *path, struct err *err)
{
    enum err_code code = file_make_dirs(path, err);
    if (code == ERR_OK && access(path, W_OK | X_OK) != 0)
        code = err_from_errno(err, errno, "%s: the coordinator cannot write there", path);
    if (code != ERR_OK)
        err_prefix(err, "checkpoint.directory");
    return code;
}

static void probe_work(struct disk_task *task)
{
    const char *directory = task->spec->checkpoint.directory;
    if (directory && task->makes_directory && probe_directory(directory, &task->err) != ERR_OK)
        return;
    struct data_facts eval = {0};
    if (probe_dataset(&task->spec->dataset, "dataset", &task->facts.records, &task->facts,
                      &task->err) != ERR_OK ||
        !task->spec->has_eval)
        return;
    if (probe_dataset(&task->spec->eval_dataset, "eval_dataset", &task->facts.eval_records, &eval,
                      &task->err) != ERR_OK)
        return;
    if (eval.channels != task->facts.channels || eval.height != task->facts.height ||
        eval.width != task->facts.width)
        err_set(&task->err, ERR_INVALID,
                "eval_dataset: images of %" PRIu64 "x%" PRIu64 "x%" PRIu64 ", want %" PRIu64
                "x%" PRIu64 "x%" PRIu64 " as in dataset (channels x height x width)",
                eval.channels, eval.height, eval.width, task->facts.channels, task->facts.height,
                task->facts.width);
}

static void probe_answer(struct disk_task *task)
{
    task->on_probed(task->coord, task->arg, TAKE(task->spec), TAKE(task->json), &task->facts,
                    &task->err);
}

void coord_disk_probe(struct coord *coord, struct job_spec *take_spec, char *take_json,
                      bool makes_directory,
                      void (*on_done)(struct coord *coord, void *arg, struct job_spec *spec,
                                      char *json, const struct data_facts *facts,
                                      const struct err *err),
                      void *arg)
{
    struct disk_task *task = task_new(coord, probe_work, probe_answer);
    task->spec = take_spec;
    task->json = take_json;
    task->makes_directory = makes_directory;
    task->on_probed = on_done;
    task->arg = arg;
    task_post(task);
}

/* ---- finding a checkpoint
 * ---------------------------------------------------------------------------- */

static void on_skipped(uint64_t number, const struct err *why, void *arg)
{
    struct disk_task *task = arg;
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

static void find_work(struct disk_task *task)
{
    uint64_t *numbers = NULL;
    size_t count = 0;
    if (ckpt_list(task->directory, &numbers, &count, &task->err) != ERR_OK)
        return;
    task->newest_number = count ? numbers[count - 1] : 0;
    free(numbers);
    if (!count || task->newest_number < task->number) {
        err_set(&task->err, ERR_NOT_FOUND, "%s: no checkpoint", task->directory);
        return;
    }
    enum err_code code =
        ckpt_newest(task->directory, on_skipped, task, &task->manifest, &task->err);
    bool is_none =
        code == ERR_NOT_FOUND || (code == ERR_OK && task->manifest->number < task->number);
    if (is_none) /* to begin anew over checkpoints that somebody may still repair would be worse
                    than to stop */
        err_set(&task->err, ERR_CORRUPT, "%s: no checkpoint is usable; %s", task->directory,
                task->skipped ? task->skipped : "the older ones are not of this job");
    else if (code == ERR_OK)
        check_same_job(task->manifest, task->spec, task->directory, &task->err);
}

static void find_answer(struct disk_task *task)
{
    struct ranges none;
    ranges_init(&none);
    const struct ckpt_manifest *manifest = task->manifest;
    char *path AUTO_MEM = manifest ? ckpt_path(task->directory, manifest->number) : NULL;
    core_on_ckpt_found(task->coord->core, clock_now_ns(), task->job, task->err.code,
                       task->err.code == ERR_OK ? task->skipped : task->err.text, path,
                       task->newest_number, manifest ? &manifest->acked : &none,
                       manifest ? &manifest->abandoned : &none);
    coord_drain(task->coord);
}

static bool fill_job(struct coord *coord, uint64_t job, struct disk_task *task)
{
    struct core_job_view view;
    if (!core_job_view(coord->core, clock_now_ns(), job, &view))
        return false;
    task->job = job;
    task->directory = base_strdup(view.spec->checkpoint.directory);
    task->max_to_keep = view.spec->checkpoint.max_to_keep;
    task->first_number = view.first_ckpt;
    /* a task owns all it reads: the job may end while it runs */
    if (job_spec_parse(view.spec_json, strlen(view.spec_json), &task->spec, &task->err) != ERR_OK)
        ASSERT(!"a spec that was accepted no longer parses");
    return true;
}

static void task_free_unposted(struct disk_task *task)
{
    free(task);
}

void coord_disk_find_ckpt(struct coord *coord, uint64_t job, uint64_t first_number)
{
    struct disk_task *task = task_new(coord, find_work, find_answer);
    task->number = first_number;
    if (fill_job(coord, job, task))
        task_post(task);
    else
        task_free_unposted(task);
}

/* ---- writing one
 * -------------------------------------------------------------------------------------- */

static void begin_work(struct disk_task *task)
{
    if (ckpt_begin(task->directory, task->number, &task->path, &task->err) == ERR_OK)
        task->err.code = ERR_OK;
}

static void begin_answer(struct disk_task *task)
{
    core_on_ckpt_begun(task->coord->core, clock_now_ns(), task->job, task->number, task->err.code,
                       task->err.text);
    coord_drain(task->coord);
}

void coord_disk_begin_ckpt(struct coord *coord, uint64_t job, uint64_t number)
{
    struct disk_task *task = task_new(coord, begin_work, begin_answer);
    task->number = number;
    if (fill_job(coord, job, task))
        task_post(task);
    else
        task_free_unposted(task);
}

static void publish_work(struct disk_task *task)
{
    if (task->err.code != ERR_OK ||
        ckpt_publish(task->directory, task->manifest, &task->err) != ERR_OK)
        return;
    struct err sweep_err;
    if (ckpt_sweep(task->directory, MIN(task->first_number, task->number), task->max_to_keep, NULL,
                   &sweep_err) != ERR_OK)
        log_warn("ckpt.sweep", "directory=%s code=%s %s", task->directory, err_name(sweep_err.code),
                 sweep_err.text);
}

static void publish_answer(struct disk_task *task)
{
    char *path AUTO_MEM = ckpt_path(task->directory, task->number);
    if (task->err.code == ERR_OK)
        log_info("ckpt.published", "path=%s", path);
    core_on_ckpt_published(task->coord->core, clock_now_ns(), task->job, task->number,
                           task->err.code, task->err.text, path);
    coord_drain(task->coord);
}

static void add_piece(struct ckpt_manifest *manifest, const Steadfast__V1__Slice *slice,
                      uint64_t row_offset, uint64_t rows, uint32_t file, uint32_t group)
{
    ckpt_manifest_add_slice(manifest, slice->var, row_offset, rows, file, group);
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
                add_piece(manifest, slice, slice->row_offset, slice->rows, file, index);
            }
            for (size_t s = 0; s < group->n_pieces; s++) {
                const Steadfast__V1__CkptPiece *piece = group->pieces[s];
                if (piece->slice >= plan->n_slices)
                    return err_set(err, ERR_CORRUPT, "%s names slice %u, want under %zu",
                                   from->name, piece->slice, plan->n_slices);
                add_piece(manifest, plan->slices[piece->slice], piece->row_offset, piece->rows,
                          file, index);
            }
        }
    }
    return ERR_OK;
}

void coord_disk_publish_ckpt(struct coord *coord, const struct core_act *act)
{
    struct disk_task *task = task_new(coord, publish_work, publish_answer);
    struct core_job_view view;
    struct coord_job *job = coord_job_of(coord, act->job);
    if (!fill_job(coord, act->job, task) ||
        !core_job_view(coord->core, clock_now_ns(), act->job, &view)) {
        task_free_unposted(task);
        return;
    }
    struct ckpt_manifest *manifest = ckpt_manifest_new();
    task->number = act->number;
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
        fill_manifest(manifest, job, &task->err);
    else
        err_set(&task->err, ERR_UNAVAILABLE, "the job has no plan");
    task_post(task);
}

static void abort_work(struct disk_task *task)
{
    if (ckpt_abandon(task->directory, task->number, &task->err) != ERR_OK)
        log_warn("ckpt.abandon", "directory=%s ckpt=%" PRIu64 " code=%s %s", task->directory,
                 task->number, err_name(task->err.code), task->err.text);
}

static void abort_answer(struct disk_task *task)
{
    (void)task;
}

void coord_disk_abort_ckpt(struct coord *coord, uint64_t job, uint64_t number)
{
    struct disk_task *task = task_new(coord, abort_work, abort_answer);
    task->number = number;
    if (fill_job(coord, job, task))
        task_post(task);
    else
        task_free_unposted(task);
}
