/* SPDX-License-Identifier: Apache-2.0 */
/* coord_probe: what a job's files and folders say about it, before it is accepted or planned. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/spec/data_source.h"
#include "coordinatord/shell/coord_int.h"

struct probe_task {
    struct disk_task base; /* first member */
    struct job_spec *spec;
    char *json;
    struct data_facts facts;
    bool makes_directory;
    coord_probe_fn *on_probed;
    void *arg;
};

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

static void probe_work(struct disk_task *base)
{
    struct probe_task *task = (struct probe_task *)base;
    const char *directory = task->spec->checkpoint.directory;
    if (directory && task->makes_directory && probe_directory(directory, &base->err) != ERR_OK)
        return;
    struct data_facts eval = {0};
    if (probe_dataset(&task->spec->dataset, "dataset", &task->facts.records, &task->facts,
                      &base->err) != ERR_OK ||
        !task->spec->has_eval)
        return;
    if (probe_dataset(&task->spec->eval_dataset, "eval_dataset", &task->facts.eval_records, &eval,
                      &base->err) != ERR_OK)
        return;
    if (eval.channels != task->facts.channels || eval.height != task->facts.height ||
        eval.width != task->facts.width)
        err_set(&base->err, ERR_INVALID,
                "eval_dataset: images of %" PRIu64 "x%" PRIu64 "x%" PRIu64 ", want %" PRIu64
                "x%" PRIu64 "x%" PRIu64 " as in dataset (channels x height x width)",
                eval.channels, eval.height, eval.width, task->facts.channels, task->facts.height,
                task->facts.width);
}

static void probe_answer(struct disk_task *base)
{
    struct probe_task *task = (struct probe_task *)base;
    task->on_probed(base->coord, task->arg, task->spec, task->json, &task->facts, &base->err);
    free(task);
}

void coord_probe(struct coord *coord, struct job_spec *take_spec, char *take_json,
                 bool makes_directory, uint32_t tries, coord_probe_fn *on_probed, void *arg)
{
    struct probe_task *task = base_alloc(sizeof(*task));
    task->base.work = probe_work;
    task->base.answer = probe_answer;
    task->base.tries_left = tries;
    task->spec = take_spec;
    task->json = take_json;
    task->makes_directory = makes_directory;
    task->on_probed = on_probed;
    task->arg = arg;
    coord_disk_post(coord, &task->base);
}
