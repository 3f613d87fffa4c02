/* SPDX-License-Identifier: Apache-2.0 */
/* coord_probe: what a job's files and folders say about it, before it is accepted or planned. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/formats/idx.h"
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
    if (dataset->source == DATA_NONE)
        return ERR_OK;
    if (dataset->source == DATA_SYNTHETIC) {
        *ret_records = dataset->records;
        facts->channels = dataset->channels;
        facts->height = dataset->height;
        facts->width = dataset->width;
        return ERR_OK;
    }
    struct idx_header images;
    struct idx_header labels;
    enum err_code code = idx_read_header(dataset->images, IDX_IMAGES, &images, err);
    if (code != ERR_OK) {
        err_prefix(err, "%s.images", field);
        return code;
    }
    code = idx_read_header(dataset->labels, IDX_LABELS, &labels, err);
    if (code != ERR_OK) {
        err_prefix(err, "%s.labels", field);
        return code;
    }
    if (images.count != labels.count)
        return err_set(err, ERR_INVALID,
                       "%s: %s has %" PRIu64 " images but %s has %" PRIu64 " labels", field,
                       dataset->images, images.count, dataset->labels, labels.count);
    if (dataset->records > images.count)
        return err_set(err, ERR_INVALID,
                       "%s.records: %" PRIu64 ": want at most the %" PRIu64 " of %s", field,
                       dataset->records, images.count, dataset->images);
    *ret_records = dataset->records ? dataset->records : images.count;
    facts->channels = 1;
    facts->height = images.height;
    facts->width = images.width;
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
