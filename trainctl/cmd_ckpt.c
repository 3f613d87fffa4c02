/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint and export. An export reads the checkpoint's files itself: it needs no cluster when it
 * is given a folder, and the same file system as the servers when it is given a job. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/limits.h"
#include "common/ckpt/ckpt_store.h"
#include "trainctl/ctl.h"
#include "trainctl/job_json.h"

/* The servers' own deadline, and time for the answer. */
#define CHECKPOINT_TIMEOUT_MS (DEFAULT_ORDER_DEADLINE_MS + 10000u)

int cmd_checkpoint(struct ctl *ctl)
{
    struct steadfast_error err;
    struct steadfast_job *job;
    int rc = ctl_connect(ctl);
    if (rc != CTL_OK)
        return rc;
    /* Asked first, so that a coordinator that is not there is told after --timeout, not after the
     * long one. */
    if (steadfast_status(ctl->client, ctl->words[1], ctl_timeout_ms(ctl), &job, &err) !=
        STEADFAST_OK)
        return ctl_fail(ctl, &err);
    char id[32];
    snprintf(id, sizeof(id), "%" PRIu64, job->id);
    steadfast_job_free(job);

    struct steadfast_checkpoint_done done;
    uint32_t timeout_ms = MAX(CHECKPOINT_TIMEOUT_MS, ctl_timeout_ms(ctl));
    if (steadfast_checkpoint_job(ctl->client, id, timeout_ms, &done, &err) != STEADFAST_OK)
        return ctl_fail(ctl, &err);
    if (ctl->is_json)
        job_json_print(json_pack("{s:I, s:I, s:s}", "number", (json_int_t)done.number, "step",
                                 (json_int_t)done.step, "path", done.path),
                       false, stdout);
    else
        printf("checkpoint %" PRIu64 " of step %" PRIu64 ": %s\n", done.number, done.step,
               done.path);
    return CTL_OK;
}

/* The folder of the job's newest checkpoint; free() it. */
static int newest_checkpoint(struct ctl *ctl, const char *name, char **ret_folder)
{
    struct steadfast_error err;
    struct steadfast_job *job;
    int rc = ctl_connect(ctl);
    if (rc != CTL_OK)
        return rc;
    if (steadfast_status(ctl->client, name, ctl_timeout_ms(ctl), &job, &err) != STEADFAST_OK)
        return ctl_fail(ctl, &err);
    const struct steadfast_checkpoint *newest = NULL;
    for (size_t i = 0; i < job->checkpoint_count; i++)
        if (!newest || job->checkpoints[i].number > newest->number)
            newest = &job->checkpoints[i];
    if (newest) {
        *ret_folder = base_strdup(newest->path);
    } else {
        struct err none;
        if (job->state == STEADFAST_JOB_RUNNING)
            err_set(&none, ERR_NOT_FOUND,
                    "job %s has no checkpoint; write one with: trainctl checkpoint %s", name, name);
        else
            err_set(&none, ERR_NOT_FOUND, "job %s has no checkpoint: it is %s", name,
                    steadfast_job_state_name(job->state));
        rc = ctl_fail_err(ctl, &none);
    }
    steadfast_job_free(job);
    return rc;
}

/* A job's checkpoint directory is easily taken for one of its checkpoints. */
static enum err_code check_folder(const char *folder, struct err *err)
{
    AUTO_MEM char *manifest = base_asprintf("%s/" CKPT_MANIFEST_NAME, folder);
    if (access(manifest, F_OK) == 0)
        return ERR_OK;
    AUTO_MEM uint64_t *numbers = NULL;
    size_t count = 0;
    enum err_code code = ckpt_list(folder, &numbers, &count, err);
    if (code != ERR_OK || count == 0)
        return code; /* neither: the export itself says what is missing */
    return err_set(err, ERR_NOT_FOUND,
                   "%s is no checkpoint; want one of its ckpt-<n> folders, the newest is "
                   "ckpt-%" PRIu64,
                   folder, numbers[count - 1]);
}

int cmd_export(struct ctl *ctl)
{
    const char *source = ctl->words[1], *path = ctl->words[2];
    AUTO_MEM char *folder = NULL;
    struct stat st;
    if (stat(source, &st) == 0 && S_ISDIR(st.st_mode)) {
        struct err none;
        if (check_folder(source, &none) != ERR_OK) {
            ctl_fail_err(ctl, &none);
            return CTL_FAILED;
        }
        folder = base_strdup(source);
    } else if (strchr(source, '/')) {
        struct err none;
        err_set(&none, ERR_NOT_FOUND, "%s: no such directory: want a checkpoint's, or a job",
                source);
        return ctl_fail_err(ctl, &none);
    } else {
        int rc = newest_checkpoint(ctl, source, &folder);
        if (rc != CTL_OK)
            return rc;
    }
    struct err err;
    if (ckpt_export(folder, path, &err) != ERR_OK) {
        ctl_fail_err(ctl, &err);
        return CTL_FAILED;
    }
    if (ctl->is_json)
        job_json_print(json_pack("{s:s, s:s}", "checkpoint", folder, "file", path), false, stdout);
    else
        printf("%s: the variables of %s\n", path, folder);
    return CTL_OK;
}
