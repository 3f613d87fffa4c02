/* SPDX-License-Identifier: Apache-2.0 */
/* coord_place: plans that the core asks for. */
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "coordinatord/plan/plan.h"
#include "coordinatord/shell/coord_int.h"

struct planned { /* an answer to CORE_ACT_PLAN, given after the list */
    uint64_t job;
    uint64_t generation;
    struct err err;
};

static void tell_planned(struct coord *coord, void *arg)
{
    struct planned *planned = arg;
    uint32_t slice_counts[LIMIT_SERVERS] = {0};
    const Steadfast__V1__Plan *plan = coord_job_of(coord, planned->job)->plan;
    for (size_t i = 0; planned->err.code == ERR_OK && i < plan->n_slices; i++)
        slice_counts[plan->slices[i]->server]++;
    core_on_planned(coord->core, clock_now_ns(), planned->job, planned->generation,
                    planned->err.code, planned->err.text, slice_counts);
    free(planned);
}

static void make_plan(struct coord *coord, const struct job_spec *spec,
                      const struct core_server_ref *servers, size_t count, struct planned *planned)
{
    struct coord_job *job = coord_job_of(coord, planned->job);
    Steadfast__V1__Plan *plan = NULL;
    uint32_t shard_count = 0;
    if (coord_plan_make(spec, &job->facts, servers, count, &plan, &shard_count, NULL,
                        &planned->err) != ERR_OK)
        return;
    plan_proto_free(job->plan);
    job->plan = plan;
}

/* After a restart the sizes of the images are read again before the plan is made. */
static void on_probed_again(struct coord *coord, void *arg, struct job_spec *spec, char *json,
                            const struct data_facts *facts, const struct err *err)
{
    struct planned *planned = arg;
    struct core_job_view view;
    struct coord_job *job = coord_job_of(coord, planned->job);
    planned->err = *err;
    if (err->code == ERR_OK && !core_job_view(coord->core, clock_now_ns(), planned->job, &view)) {
        err_set(&planned->err, ERR_NOT_FOUND, "no such job");
    } else if (err->code == ERR_OK) {
        job->facts = *facts;
        job->has_facts = true;
        make_plan(coord, spec, view.servers, view.server_count, planned);
    }
    if (err->code == ERR_CANCELLED) {
        free(planned);
    } else {
        tell_planned(coord, planned);
        coord_drain(coord);
    }
    job_spec_free(spec);
    free(json);
}

void coord_place_plan(struct coord *coord, const struct core_act *act)
{
    struct planned *planned = base_alloc(sizeof(*planned));
    *planned = (struct planned){.job = act->job, .generation = act->generation};
    struct core_job_view view;
    struct job_spec *spec = NULL;
    if (!core_job_view(coord->core, clock_now_ns(), act->job, &view)) {
        err_set(&planned->err, ERR_NOT_FOUND, "no such job");
    } else if (coord_job_of(coord, act->job)->has_facts) {
        make_plan(coord, view.spec, act->servers, act->count, planned);
    } else if (job_spec_parse(view.spec_json, strlen(view.spec_json), &spec, &planned->err) ==
               ERR_OK) {
        coord_probe(coord, spec, base_strdup(view.spec_json), false, COORD_TRIES, on_probed_again,
                    planned);
        return;
    }
    coord_core_later(coord, tell_planned, planned);
}
