/* SPDX-License-Identifier: Apache-2.0 */
/* list, status, cancel: one question, one answer. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "trainctl/ctl.h"
#include "trainctl/job_json.h"
#include "trainctl/job_text.h"
#include "trainctl/text_table.h"

static void print_list(const struct steadfast_job_list *list)
{
    static const char *const heads[] = {">JOB",   "NAME",     "STATE",    ">STEPS", ">OF",
                                        ">EPOCH", ">STEPS/S", "ACCURACY", "TIME"};
    AUTO(text_table) table = text_table_new(heads, ARRAY_SIZE(heads));
    for (size_t i = 0; i < list->count; i++) {
        const struct steadfast_job *job = list->jobs[i];
        char duration[32];
        text_table_add(table, "%" PRIu64, job->id);
        text_table_add(table, "%s", job->name);
        text_table_add(table, "%s", steadfast_job_state_name(job->state));
        text_table_add(table, "%" PRIu64, job->acknowledged);
        text_table_add(table, "%" PRIu64, job->steps_total);
        text_table_add(table, "%u/%u", MIN(job->epoch + 1, MAX(job->epochs, 1u)), job->epochs);
        if (isfinite(job->steps_per_second))
            text_table_add(table, "%.1f", job->steps_per_second);
        else
            text_table_add(table, "-");
        if (job->evaluation_count > 0)
            text_table_add(table, "%.4f", job->evaluations[job->evaluation_count - 1].accuracy);
        else
            text_table_add(table, "-");
        text_table_add(table, "%s",
                       text_duration(job->elapsed_seconds, duration, sizeof(duration)));
    }
    text_table_print(table, "", stdout);
}

int cmd_list(struct ctl *ctl)
{
    struct steadfast_error err;
    struct steadfast_job_list *list;
    int rc = ctl_connect(ctl);
    if (rc != CTL_OK)
        return rc;
    if (steadfast_list(ctl->client, ctl_timeout_ms(ctl), &list, &err) != STEADFAST_OK)
        return ctl_fail(ctl, &err);
    if (ctl->is_json)
        job_json_print(job_json_list(list), false, stdout);
    else
        print_list(list);
    steadfast_job_list_free(list);
    return CTL_OK;
}

static void print_job(const struct ctl *ctl, const struct steadfast_job *job)
{
    if (ctl->is_json)
        job_json_print(job_json(job), false, stdout);
    else
        job_text_summary(job, stdout);
}

int cmd_status(struct ctl *ctl)
{
    struct steadfast_error err;
    struct steadfast_job *job;
    int rc = ctl_connect(ctl);
    if (rc != CTL_OK)
        return rc;
    if (steadfast_status(ctl->client, ctl->words[1], ctl_timeout_ms(ctl), &job, &err) !=
        STEADFAST_OK)
        return ctl_fail(ctl, &err);
    print_job(ctl, job);
    steadfast_job_free(job);
    return CTL_OK; /* the question was answered, whatever became of the job */
}

int cmd_cancel(struct ctl *ctl)
{
    struct steadfast_error err;
    struct steadfast_job *job;
    int rc = ctl_connect(ctl);
    if (rc != CTL_OK)
        return rc;
    if (steadfast_cancel(ctl->client, ctl->words[1], ctl_timeout_ms(ctl), &job, &err) !=
        STEADFAST_OK)
        return ctl_fail(ctl, &err);
    print_job(ctl, job);
    steadfast_job_free(job);
    return CTL_OK;
}
