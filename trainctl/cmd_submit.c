/* SPDX-License-Identifier: Apache-2.0 */
/* submit: a job file is checked here before anything is connected, then handed over. */
#include <inttypes.h>
#include <stdio.h>

#include "trainctl/ctl.h"
#include "trainctl/job_json.h"

int cmd_submit(struct ctl *ctl)
{
    AUTO_MEM char *spec_json = NULL;
    int rc = ctl_read_job_file(ctl, ctl->words[1], &spec_json);
    if (rc == CTL_OK)
        rc = ctl_connect(ctl);
    if (rc != CTL_OK)
        return rc;
    struct steadfast_error err;
    uint64_t id;
    if (steadfast_submit(ctl->client, spec_json, ctl->wants_resume, ctl_timeout_ms(ctl), &id,
                         &err) != STEADFAST_OK)
        return ctl_fail(ctl, &err);
    if (ctl->is_json && !ctl->wants_watch)
        job_json_print(json_pack("{s:I}", "job", (json_int_t)id), false, stdout);
    else if (!ctl->is_json)
        printf("job %" PRIu64 " submitted\n", id);
    fflush(stdout);
    if (!ctl->wants_watch)
        return CTL_OK;
    char job[32];
    snprintf(job, sizeof(job), "%" PRIu64, id);
    return watch_job(ctl, job);
}
