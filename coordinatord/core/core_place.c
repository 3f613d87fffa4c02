/* SPDX-License-Identifier: Apache-2.0 */
/* core_place: the servers of a job: which there are, which hold its slices, which are missing. */
#include <stdlib.h>
#include <string.h>

#include "coordinatord/core/core_phase_int.h"

/* "ps:2" before "ps:10". */
static int compare_servers(const void *a, const void *b)
{
    const struct member *x = *(struct member *const *)a;
    const struct member *y = *(struct member *const *)b;
    size_t xn = strlen(x->name);
    size_t yn = strlen(y->name);
    return xn != yn ? (xn < yn ? -1 : 1) : strcmp(x->name, y->name);
}

static size_t servers_here(const struct core *core, struct member **ret_servers)
{
    size_t count = 0;
    for (size_t i = 0; i < core->member_count && count < LIMIT_SERVERS; i++)
        if (core->members[i]->role == CORE_SERVER && core->members[i]->state == MEMBER_ATTACHED &&
            !core->members[i]->is_leaving)
            ret_servers[count++] = core->members[i];
    qsort(ret_servers, count, sizeof(struct member *), compare_servers);
    return count;
}

bool core_place_has_enough(const struct core *core, const struct job *job)
{
    struct member *servers[LIMIT_SERVERS];
    if (!job->wants_servers)
        return true;
    return servers_here(core, servers) >= MAX(core->config.servers_wanted, 1u);
}

void core_place_ask(struct core *core, struct job *job)
{
    struct core_server_ref *refs = core_arena(core, (job->place.server_count + 1) * sizeof(*refs));
    for (size_t i = 0; i < job->place.server_count; i++) {
        const struct member *server =
            core_member_named(core, CORE_SERVER, job->place.servers[i].name);
        refs[i] = (struct core_server_ref){
            .conn = server ? server->conn : CORE_NO_CONN,
            .name = job->place.servers[i].name,
            .address = job->place.servers[i].address,
            .shard_count = job->place.servers[i].shard_count,
            .memory_bytes = server ? server->memory_bytes : 0,
        };
    }
    struct core_act *act = core_act_add(core, CORE_ACT_PLAN);
    act->job = job->number;
    act->generation = job->generation;
    act->servers = refs;
    act->count = job->place.server_count;
}

void core_place_begin_plan(struct core *core, struct job *job)
{
    struct member *servers[LIMIT_SERVERS];
    size_t count = job->wants_servers ? servers_here(core, servers) : 0;
    core_job_forget_servers(job);
    job->place.servers = base_alloc((count + 1) * sizeof(*job->place.servers));
    job->place.server_count = count;
    for (size_t i = 0; i < count; i++)
        job->place.servers[i] = (struct job_server){.name = base_strdup(servers[i]->name),
                                                    .address = base_strdup(servers[i]->address),
                                                    .shard_count = servers[i]->shard_count,
                                                    .has_slices = true,
                                                    .incarnation = servers[i]->incarnation};
    job->generation++;
    job->place.is_replayed_placement = false;
    core_job_set_phase(core, job, PHASE_PLANNING);
    core_place_ask(core, job);
}

static bool is_server_intact(struct core *core, const struct job_server *server)
{
    if (!server->has_slices)
        return true;
    const struct member *member = core_member_named(core, CORE_SERVER, server->name);
    return member && core_member_is_here(member) && server->is_created &&
           member->incarnation == server->incarnation;
}

bool core_place_is_intact(struct core *core, const struct job *job)
{
    if (job->wants_servers && !job->place.server_count)
        return false; /* never placed */
    for (size_t i = 0; i < job->place.server_count; i++)
        if (!is_server_intact(core, &job->place.servers[i]))
            return false;
    return true;
}

const char *core_place_missing(struct core *core, const struct job *job)
{
    const char *text = "";
    for (size_t i = 0; i < job->place.server_count; i++)
        if (!is_server_intact(core, &job->place.servers[i]))
            text = core_arena_text(core, "%s %s at %s", text, job->place.servers[i].name,
                                   job->place.servers[i].address);
    return text;
}

/* A server that was away when a job ended, or was never answered, still holds it. */
static void drop_leftovers(struct core *core, struct member *server, const struct core_hello *hello)
{
    for (size_t s = 0; s < hello->shard_state_count; s++) {
        uint64_t number = hello->shards[s].job;
        const struct job *job = core_job_of(core, number);
        bool is_told = false;
        for (size_t before = 0; before < s; before++)
            is_told = is_told || hello->shards[before].job == number;
        if (!is_told && (!job || (!core_job_is_active(job) && job->end_seq == 0)))
            core_order_drop(core, server, number);
    }
}

void core_place_server_here(struct core *core, struct member *server,
                            const struct core_hello *hello)
{
    drop_leftovers(core, server, hello);
    for (size_t j = 0; j < core->live_count; j++) {
        struct job *job = core->live[j];
        for (size_t i = 0; i < job->place.server_count; i++) {
            struct job_server *slot = &job->place.servers[i];
            if (strcmp(slot->name, server->name) != 0)
                continue;
            bool has_it = false;
            for (size_t s = 0; s < hello->shard_state_count; s++)
                has_it = has_it || (hello->shards[s].job == job->number &&
                                    hello->shards[s].generation == job->generation);
            if (job->place.is_replayed_placement) { /* which process made them is not known */
                slot->is_created = has_it;
                slot->incarnation = server->incarnation;
            } else if (slot->incarnation != server->incarnation || (slot->is_created && !has_it)) {
                slot->is_created = false; /* a new process, or one that forgot */
            }
            free(slot->address);
            slot->address = base_strdup(server->address);
        }
    }
}
