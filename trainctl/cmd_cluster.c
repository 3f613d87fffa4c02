/* SPDX-License-Identifier: Apache-2.0 */
/* cluster: members and who is missing; with --wait, a barrier for scripts that have just started a
 * cluster. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "trainctl/ctl.h"
#include "trainctl/job_json.h"
#include "trainctl/text_table.h"

#define POLL_MS 20

/* Servers before workers, each kind by name; "worker:10" after "worker:9". */
static int compare_members(const void *a, const void *b)
{
    const struct steadfast_member *x = *(const struct steadfast_member *const *)a;
    const struct steadfast_member *y = *(const struct steadfast_member *const *)b;
    int by_role = strcmp(x->role, y->role);
    return by_role ? by_role : strverscmp(x->name, y->name);
}

static void add_row(struct text_table *table, const struct steadfast_member *member)
{
    char devices[TEXT_CELL_SIZE] = "";
    for (size_t d = 0; d < member->device_count; d++) {
        size_t used = strlen(devices);
        snprintf(devices + used, sizeof(devices) - used, "%s%s", d ? " " : "", member->devices[d]);
    }
    bool is_server = strcmp(member->role, "ps") == 0;
    char held[32] = "", budget[32] = "";
    if (is_server)
        text_bytes(member->held_bytes, held, sizeof(held));
    if (member->memory_bytes > 0) /* 0: no bound was set */
        text_bytes(member->memory_bytes, budget, sizeof(budget));
    text_table_add(table, "%s", member->name);
    text_table_add(table, "%s", member->role);
    text_table_add(table, "%s", member->state);
    text_table_add(table, "%s", member->address);
    text_table_add(table, "%" PRIu64, member->pid);
    text_table_add(table, "%s", held);
    text_table_add(table, "%s", budget);
    text_table_add(table, "%" PRIu64, member->steps_done);
    text_table_add(table, "%u", member->in_flight);
    text_table_add(table, "%s", devices);
}

static void print_cluster(const struct steadfast_cluster *cluster)
{
    static const char *const heads[] = {"NAME",  "ROLE",    "STATE",  "ADDRESS", ">PID",
                                        ">HELD", ">BUDGET", ">STEPS", ">FLYING", "DEVICES"};
    AUTO(text_table) table = text_table_new(heads, ARRAY_SIZE(heads));
    AUTO_MEM const struct steadfast_member **members =
        base_alloc(cluster->member_count * sizeof(struct steadfast_member *));
    for (size_t i = 0; i < cluster->member_count; i++)
        members[i] = &cluster->members[i];
    qsort(members, cluster->member_count, sizeof(struct steadfast_member *), compare_members);
    for (size_t i = 0; i < cluster->member_count; i++)
        add_row(table, members[i]);
    text_table_print(table, "", stdout);
    for (size_t i = 0; i < cluster->missing_count; i++)
        printf("missing: %s\n", cluster->missing[i]);
}

int cmd_cluster(struct ctl *ctl)
{
    int rc = ctl_connect(ctl);
    if (rc != CTL_OK)
        return rc;
    uint64_t deadline_ns = clock_now_ns() + ctl->wait_s * NS_PER_S;
    for (;;) {
        struct steadfast_error err;
        struct steadfast_cluster *cluster;
        uint64_t now_ns = clock_now_ns();
        uint32_t left_ms =
            now_ns < deadline_ns ? (uint32_t)((deadline_ns - now_ns) / NS_PER_MS) : 0;
        uint32_t timeout_ms = ctl->wait_s ? MAX(left_ms, 1u) : ctl_timeout_ms(ctl);
        if (steadfast_get_cluster(ctl->client, timeout_ms, &cluster, &err) != STEADFAST_OK)
            return ctl_fail(ctl, &err);
        bool is_complete = cluster->missing_count == 0;
        bool is_late = clock_now_ns() >= deadline_ns;
        if (ctl->wait_s == 0 || is_complete || is_late) {
            if (ctl->is_json)
                job_json_print(job_json_cluster(cluster), false, stdout);
            else
                print_cluster(cluster);
            steadfast_cluster_free(cluster);
            return ctl->wait_s && !is_complete ? CTL_FAILED : CTL_OK;
        }
        steadfast_cluster_free(cluster);
        nanosleep(&(struct timespec){.tv_nsec = POLL_MS * (long)NS_PER_MS}, NULL);
    }
}
