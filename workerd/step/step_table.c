/* SPDX-License-Identifier: Apache-2.0 */
/* step_table: one list a state, in order of arrival in it; what left is kept for the next tickets.
 */
#include <stdlib.h>
#include <string.h>

#include "workerd/step/step_int.h"

#define SPARE_STEPS_MAX (2 * STEP_HELD_MAX) /* kept for the next tickets instead of freed */

static void list_remove(struct step_list *list, struct step *step)
{
    *(step->prev ? &step->prev->next : &list->first) = step->next;
    *(step->next ? &step->next->prev : &list->last) = step->prev;
    list->count--;
}

static void list_append(struct step_list *list, struct step *step)
{
    step->prev = list->last;
    step->next = NULL;
    *(list->last ? &list->last->next : &list->first) = step;
    list->last = step;
    list->count++;
}

struct step *step_table_add(struct step_run *run)
{
    struct step *step = run->spares;
    if (step) {
        run->spares = step->next;
        run->spare_count--;
        memset(step, 0, sizeof(*step));
    } else {
        step = base_alloc(sizeof(*step));
    }
    step->run = run;
    step->state = STEP_WAITING;
    list_append(&run->lists[STEP_WAITING], step);
    return step;
}

void step_table_move(struct step *step, enum step_state state)
{
    list_remove(&step->run->lists[step->state], step);
    step->state = state;
    list_append(&step->run->lists[state], step);
}

void step_table_forget(struct step *step)
{
    struct step_run *run = step->run;
    ASSERT(!step->job && !step->slot && !step->copy && !step->push);
    list_remove(&run->lists[step->state], step);
    free(TAKE(step->text));
    if (run->spare_count >= SPARE_STEPS_MAX) {
        free(step);
        return;
    }
    step->next = run->spares;
    run->spares = step;
    run->spare_count++;
}

static bool key_equal(const struct step_key *a, const struct step_key *b)
{
    return a->step == b->step && a->attempt == b->attempt && a->job == b->job &&
           a->is_eval == b->is_eval;
}

struct step *step_table_find(const struct step_run *run, enum step_state state,
                             const struct step_key *key)
{
    for (struct step *step = run->lists[state].first; step; step = step->next)
        if (key_equal(&step->ticket.key, key))
            return step;
    return NULL;
}

bool step_table_has_job(const struct step_run *run, const struct open_job *job)
{
    for (int state = STEP_WAITING; state <= STEP_PUSHING; state++)
        for (const struct step *step = run->lists[state].first; step; step = step->next)
            if (step->job == job)
                return true;
    return false;
}

size_t step_table_held_count(const struct step_run *run)
{
    return run->lists[STEP_WAITING].count + run->lists[STEP_ON_DEVICE].count +
           run->lists[STEP_PUSHING].count;
}

bool step_table_is_empty(const struct step_run *run)
{
    return step_table_held_count(run) == 0 && run->lists[STEP_REPORTED].count == 0;
}

void step_table_free_spares(struct step_run *run)
{
    while (run->spares) {
        struct step *step = run->spares;
        run->spares = step->next;
        free(step);
    }
}
