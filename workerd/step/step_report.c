/* SPDX-License-Identifier: Apache-2.0 */
/* step_report: the list of reported steps, and a mark in it before which all have been taken. */
#include "workerd/step/step_report.h"

#include "workerd/step/step_int.h"

void step_report_add(struct step *step)
{
    struct step_run *run = step->run;
    step_table_move(step, STEP_REPORTED);
    if (!run->next_untaken)
        run->next_untaken = step;
    run->on_report(run->on_report_arg);
}

size_t step_report_take(struct step_run *run, struct step_report *ret_reports, size_t max)
{
    size_t count = 0;
    for (; run->next_untaken && count < max; run->next_untaken = run->next_untaken->next)
        ret_reports[count++] = run->next_untaken->report;
    return count;
}

size_t step_report_take_for_hello(struct step_run *run, struct step_report *ret_reports, size_t max)
{
    struct step_list *list = &run->lists[STEP_REPORTED];
    size_t count = MIN(list->count, max);
    struct step *step = list->last;
    for (size_t i = count; i-- > 0; step = step->prev)
        ret_reports[i] = step->report;
    run->next_untaken = list->count > max ? list->first : NULL;
    return count;
}

static void forget_report(struct step *step)
{
    if (step->run->next_untaken == step)
        step->run->next_untaken = step->next;
    step_table_forget(step);
}

void step_report_ack(struct step_run *run, const struct step_key *key)
{
    /* Acknowledgements come nearly in the order of the reports, so this finds its step at once. */
    struct step *step = step_table_find(run, STEP_REPORTED, key);
    if (step)
        forget_report(step);
}

void step_report_drop_all(struct step_run *run)
{
    while (run->lists[STEP_REPORTED].first)
        forget_report(run->lists[STEP_REPORTED].first);
}

size_t step_report_unacked_count(const struct step_run *run)
{
    return run->lists[STEP_REPORTED].count;
}
