/* SPDX-License-Identifier: Apache-2.0 */
/* core_request: what clients ask for; each request is answered once. */
#include <stdlib.h>
#include <string.h>

#include "coordinatord/core/core_life_int.h"

/* By their names, whatever slashes are at the end; two names of one folder are the user's to avoid.
 */
static bool is_same_directory(const char *a, const char *b)
{
    if (!a || !b)
        return false;
    size_t a_bytes = strlen(a);
    size_t b_bytes = strlen(b);
    while (a_bytes > 1 && a[a_bytes - 1] == '/')
        a_bytes--;
    while (b_bytes > 1 && b[b_bytes - 1] == '/')
        b_bytes--;
    return a_bytes == b_bytes && memcmp(a, b, a_bytes) == 0;
}

void core_submit(struct core *core, uint64_t now_ns, uint64_t request, struct job_spec *take_spec,
                 const char *spec_json, uint64_t records, uint64_t eval_records, bool resume,
                 uint64_t wall_ms)
{
    core_event_begin(core, now_ns);
    AUTO(job_spec) spec = take_spec;
    size_t active = core->live_count;
    bool is_taken = false;
    const struct job *sharer = NULL;
    for (size_t i = 0; i < active; i++) {
        is_taken = is_taken || strcmp(core->live[i]->name, spec->name) == 0;
        if (is_same_directory(core->live[i]->spec->checkpoint.directory,
                              spec->checkpoint.directory))
            sharer = core->live[i];
    }
    if (is_taken) {
        core_reply(core, request, ERR_EXISTS, 0,
                   core_arena_text(core,
                                   "name: \"%s\": a job of this name is queued or running; cancel "
                                   "it or choose another name",
                                   spec->name));
    } else if (core->is_stuck) {
        core_reply(core, request, ERR_IO, 0,
                   core_arena_text(core, "the ledger cannot be written, no job is taken: %s",
                                   core->stuck_text));
    } else if (sharer) {
        core_reply(core, request, ERR_EXISTS, 0,
                   core_arena_text(
                       core,
                       "checkpoint.directory: \"%s\": in use by job \"%s\"; want one of its own",
                       spec->checkpoint.directory, sharer->name));
    } else if (active >= LIMIT_JOBS_ACTIVE) {
        core_reply(core, request, ERR_FULL, 0,
                   core_arena_text(core, "%zu jobs are queued or running, want fewer than %d",
                                   active, LIMIT_JOBS_ACTIVE));
    } else if (resume && !spec->checkpoint.directory) {
        core_reply(core, request, ERR_INVALID, 0,
                   "checkpoint.directory: absent: want the directory to resume from");
    } else {
        uint64_t number = core->next_job++;
        struct job *job = core_job_new(core, number, spec->name, spec, spec_json, records,
                                       eval_records, resume, wall_ms);
        spec = NULL; /* the job has it */
        job->begin_ns = core->now_ns;
        core_job_set_phase(core, job, PHASE_QUEUED);
        struct core_record record = {.kind = CORE_REC_JOB,
                                     .job = number,
                                     .number = resume,
                                     .first = records,
                                     .last = eval_records,
                                     .wall_ms = wall_ms,
                                     .text = job->name,
                                     .text2 = spec_json};
        core_record(core, &record);
        core_reply(core, request, ERR_OK, number, job->name);
    }
    core_event_end(core);
}

void core_cancel(struct core *core, uint64_t now_ns, uint64_t request, uint64_t number)
{
    core_event_begin(core, now_ns);
    struct job *job = core_job_of(core, number);
    if (!job) {
        core_reply(core, request, ERR_NOT_FOUND, 0, "no such job");
    } else {
        if (core_job_is_active(job))
            core_job_end(core, job, CORE_JOB_CANCELLED, ERR_CANCELLED, "cancelled by request");
        core_reply(core, request, ERR_OK, number, "");
    }
    core_event_end(core);
}

void core_checkpoint(struct core *core, uint64_t now_ns, uint64_t request, uint64_t number)
{
    core_event_begin(core, now_ns);
    struct job *job = core_job_of(core, number);
    if (!job) {
        core_reply(core, request, ERR_NOT_FOUND, 0, "no such job");
    } else if (!job->spec->checkpoint.directory) {
        core_reply(core, request, ERR_INVALID, number, "checkpoint.directory: the job has none");
    } else if (job->phase != PHASE_TRAINING && job->phase != PHASE_FINISHING) {
        core_reply(core, request, ERR_INVALID, number,
                   core_arena_text(core, "job \"%s\" is %s: want one that is training", job->name,
                                   core_phase_name(job->phase)));
    } else {
        struct ckpt_run *ckpt = &job->ckpt;
        ckpt->requests =
            base_realloc(ckpt->requests, (ckpt->request_count + 1) * sizeof(*ckpt->requests));
        ckpt->requests[ckpt->request_count++] = request;
        ckpt->is_wanted = true;
    }
    core_event_end(core);
}
