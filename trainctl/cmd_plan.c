/* SPDX-License-Identifier: Apache-2.0 */
/* plan: where each variable of a job would live on the servers that are there now. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/limits.h"
#include "trainctl/ctl.h"
#include "trainctl/job_json.h"
#include "trainctl/text_table.h"

static void format_shape(const struct steadfast_slice *slice, char *buf, size_t size)
{
    size_t used = 0;
    snprintf(buf, size, "scalar");
    for (size_t i = 0; i < slice->rank && used < size; i++)
        used +=
            (size_t)snprintf(buf + used, size - used, "%s%" PRIu64, i ? "x" : "", slice->shape[i]);
}

static void print_plan(const struct steadfast_plan *plan)
{
    static const char *const heads[] = {"VARIABLE", "SHAPE", "ROWS", "TRAINED", "SERVER", ">SHARD"};
    AUTO(text_table) table = text_table_new(heads, ARRAY_SIZE(heads));
    for (size_t i = 0; i < plan->slice_count; i++) {
        const struct steadfast_slice *slice = &plan->slices[i];
        char shape[LIMIT_RANK * 21];
        format_shape(slice, shape, sizeof(shape));
        text_table_add(table, "%s", slice->variable);
        text_table_add(table, "%s", shape);
        if (slice->rank == 0 || slice->rows == slice->shape[0])
            text_table_add(table, "all");
        else
            text_table_add(table, "%" PRIu64 " to %" PRIu64, slice->row_offset,
                           slice->row_offset + slice->rows - 1);
        text_table_add(table, "%s", slice->is_trainable ? "yes" : "no");
        text_table_add(table, "%s", slice->server);
        text_table_add(table, "%u", slice->shard);
    }
    text_table_print(table, "", stdout);
    for (size_t i = 0; i < plan->shard_bytes_count && plan->shards_per_server > 0; i++) {
        size_t server = i / plan->shards_per_server;
        char bytes[32];
        printf("%s shard %zu: %s with optimizer slots\n",
               server < plan->server_count ? plan->servers[server] : "?",
               i % plan->shards_per_server, text_bytes(plan->shard_bytes[i], bytes, sizeof(bytes)));
    }
    printf("%" PRIu64 " parameters; %" PRIu64 " steps an epoch, %" PRIu64 " in all\n",
           plan->parameters, plan->steps_per_epoch, plan->steps_total);
}

int cmd_plan(struct ctl *ctl)
{
    AUTO_MEM char *spec_json = NULL;
    int rc = ctl_read_job_file(ctl, ctl->words[1], &spec_json);
    if (rc == CTL_OK)
        rc = ctl_connect(ctl);
    if (rc != CTL_OK)
        return rc;
    struct steadfast_error err;
    struct steadfast_plan *plan;
    if (steadfast_plan_job(ctl->client, spec_json, ctl_timeout_ms(ctl), &plan, &err) !=
        STEADFAST_OK)
        return ctl_fail(ctl, &err);
    if (ctl->is_json)
        job_json_print(job_json_plan(plan), false, stdout);
    else
        print_plan(plan);
    steadfast_plan_free(plan);
    return CTL_OK;
}
