/* SPDX-License-Identifier: Apache-2.0 */
/* coord_job: what the shell keeps of a job beside the core. */
#include <stdlib.h>

#include "coordinatord/plan/plan.h"
#include "coordinatord/shell/coord_int.h"

struct coord_job *coord_job_of(struct coord *coord, uint64_t number)
{
    struct coord_job *job = map_get(&coord->jobs, number);
    if (!job) {
        job = base_alloc(sizeof(*job));
        job->job = number;
        map_put(&coord->jobs, number, job);
    }
    return job;
}

void coord_job_forget_parts(struct coord_job *job)
{
    for (size_t i = 0; i < job->part_count; i++)
        steadfast__v1__ckpt_file__free_unpacked(job->parts[i].file, NULL);
    job->part_count = 0;
}

static void job_free(struct coord_job *job)
{
    coord_job_forget_parts(job);
    free(job->parts);
    plan_proto_free(job->plan);
    free(job);
}

void coord_job_done(struct coord *coord)
{
    void *job;
    for (size_t at = 0; (job = map_next(&coord->jobs, &at));)
        job_free(job);
    map_done(&coord->jobs);
}
