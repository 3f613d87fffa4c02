/* SPDX-License-Identifier: Apache-2.0 */
/* coord_read: messages of members as the structs that the core takes. */
#include <stdlib.h>

#include "coordinatord/shell/coord_int.h"

static void read_ref(struct core_step_ref *ref, uint64_t job, uint64_t step, uint64_t attempt,
                     int kind)
{
    *ref = (struct core_step_ref){job, step, attempt, kind == CORE_EVAL ? CORE_EVAL : CORE_TRAIN};
}

struct core_step_ref *coord_read_refs(Steadfast__V1__StepRef **from, size_t count)
{
    struct core_step_ref *refs = base_alloc((count + 1) * sizeof(*refs));
    for (size_t i = 0; i < count; i++)
        read_ref(&refs[i], from[i]->job, from[i]->step, from[i]->attempt, (int)from[i]->kind);
    return refs;
}

struct core_report *coord_read_reports(Steadfast__V1__StepReport **from, size_t count)
{
    struct core_report *reports = base_alloc((count + 1) * sizeof(*reports));
    for (size_t i = 0; i < count; i++) {
        const Steadfast__V1__StepReport *report = from[i];
        reports[i] = (struct core_report){
            .generation = report->generation,
            .outcome = report->outcome == STEADFAST__V1__STEP_OUTCOME__STEP_DONE ? CORE_DONE
                       : report->outcome == STEADFAST__V1__STEP_OUTCOME__STEP_FAILED
                           ? CORE_FAILED
                           : CORE_RETURNED,
            .loss = report->loss,
            .examples = report->examples,
            .correct = report->correct,
            .code = err_from_name(report->code),
            .text = report->text,
            .staleness = report->staleness,
            .is_duplicate = report->duplicate,
            .phases = {.compute_us = report->compute_us,
                       .serialise_us = report->serialise_us,
                       .copy_us = report->copy_us,
                       .apply_us = report->apply_us,
                       .wait_us = report->wait_us},
        };
        read_ref(&reports[i].ref, report->job, report->step, report->attempt, (int)report->kind);
    }
    return reports;
}

void coord_read_free_states(struct core_shard_state *states, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ranges_done(&states[i].marks);
    free(states);
}

struct core_shard_state *coord_read_states(Steadfast__V1__ShardState **from, size_t count,
                                           bool has_marks)
{
    struct core_shard_state *states = base_alloc((count + 1) * sizeof(*states));
    for (size_t i = 0; i < count; i++) {
        const Steadfast__V1__ShardState *state = from[i];
        states[i] = (struct core_shard_state){
            .job = state->job,
            .generation = state->generation,
            .shard = state->shard,
            .version = state->version,
            .applied = state->applied,
            .bytes = state->bytes,
            .duplicates_refused = state->duplicates_refused,
            .fenced = state->fenced,
            .repeated_applies = state->repeated_applies,
            .has_marks = has_marks,
        };
        for (size_t r = 0; has_marks && r < state->n_marks && r < LIMIT_RANGES; r++)
            if (state->marks[r]->first <= state->marks[r]->last &&
                state->marks[r]->last < LIMIT_STEPS)
                ranges_add_range(&states[i].marks, state->marks[r]->first, state->marks[r]->last);
    }
    return states;
}
