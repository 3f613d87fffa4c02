/* SPDX-License-Identifier: Apache-2.0 */
/* core_out: what leaves the core: the list of actions and the memory that they point to. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinatord/core/core_base_int.h"

#define ARENA_BLOCK 65536u

void *core_arena(struct core *core, size_t size)
{
    size = (size + 15) & ~(size_t)15;
    struct arena_block *block = core->arena;
    if (!block || block->size - block->used < size) {
        size_t room = MAX(size, (size_t)ARENA_BLOCK);
        block = base_alloc(sizeof(*block) + room);
        block->size = room;
        block->next = core->arena;
        core->arena = block;
    }
    void *p = block->data + block->used;
    block->used += size;
    memset(p, 0, size);
    return p;
}

/* Keeps one block, so that the common event allocates nothing. */
static void arena_reset(struct core *core)
{
    while (core->arena && core->arena->next) {
        struct arena_block *next = core->arena->next;
        free(core->arena);
        core->arena = next;
    }
    if (core->arena)
        core->arena->used = 0;
}

const char *core_arena_text(struct core *core, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    ASSERT(n >= 0);
    char *text = core_arena(core, (size_t)n + 1);
    va_start(ap, fmt);
    vsnprintf(text, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return text;
}

struct core_act *core_act_add(struct core *core, enum core_act_kind kind)
{
    if (core->act_count == core->act_capacity) {
        core->act_capacity = MAX(core->act_capacity * 2, (size_t)64);
        core->acts = base_realloc(core->acts, core->act_capacity * sizeof(*core->acts));
    }
    struct core_act *act = &core->acts[core->act_count++];
    *act = (struct core_act){.kind = kind};
    return act;
}

size_t core_take_actions(struct core *core, const struct core_act **ret_acts)
{
    size_t count = core->is_taken ? 0 : core->act_count;
    *ret_acts = core->acts;
    core->is_taken = true;
    return count;
}

void core_event_begin(struct core *core, uint64_t now_ns)
{
    if (core->is_taken) {
        core->act_count = 0;
        core->is_taken = false;
        arena_reset(core);
    }
    core->now_ns = MAX(core->now_ns, now_ns);
}

uint64_t core_wall_ms(const struct core *core, uint64_t now_ns)
{
    return core->config.wall_ms + (now_ns - MIN(now_ns, core->start_ns)) / NS_PER_MS;
}

void core_arm(struct core *core, uint64_t deadline_ns)
{
    core->deadline_ns = MIN(core->deadline_ns, deadline_ns);
}

uint64_t core_record(struct core *core, const struct core_record *record)
{
    struct core_act *act = core_act_add(core, CORE_ACT_JOURNAL);
    act->job = record->job;
    act->record = *record;
    act->record.seq = ++core->next_seq;
    if (record->text)
        act->record.text = core_arena_text(core, "%s", record->text);
    if (record->text2)
        act->record.text2 = core_arena_text(core, "%s", record->text2);
    if (core->probe_seq == 0) {
        core->probe_seq = act->record.seq;
        core->probe_ns = core->now_ns;
    }
    return act->record.seq;
}

void core_reply(struct core *core, uint64_t request, enum err_code code, uint64_t job,
                const char *text)
{
    struct core_act *act = core_act_add(core, CORE_ACT_REPLY);
    act->request = request;
    act->code = code;
    act->job = job;
    act->text = core_arena_text(core, "%s", text);
}

void core_notice(struct core *core, struct job *job, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (job) {
        if (job->past.notice_count == LIMIT_NOTICES) {
            free(job->past.notices[0]);
            memmove(job->past.notices, job->past.notices + 1,
                    (LIMIT_NOTICES - 1) * sizeof(job->past.notices[0]));
            job->past.notice_count--;
        }
        job->past.notices[job->past.notice_count++] = base_strdup(text);
    }
    struct core_act *act = core_act_add(core, CORE_ACT_NOTICE);
    act->job = job ? job->number : 0;
    act->text = core_arena_text(core, "%s", text);
}

void core_out_free(struct core *core)
{
    while (core->arena) {
        struct arena_block *next = core->arena->next;
        free(core->arena);
        core->arena = next;
    }
    free(core->acts);
}
