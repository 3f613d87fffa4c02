/* SPDX-License-Identifier: Apache-2.0 */
/* core_phase_int: the phases of a job. */
#ifndef COORDINATORD_CORE_CORE_PHASE_INT_H
#define COORDINATORD_CORE_CORE_PHASE_INT_H

#include "coordinatord/core/core_sched_int.h"

/* core_end.c */
void core_job_end(struct core *core, struct job *job, enum core_job_state state, enum err_code code,
                  const char *reason);
void core_job_end_doomed(struct core *core);
void core_job_drop_ended(struct core *core); /* those whose end became durable */

/* core_place.c */
bool core_place_has_enough(const struct core *core, const struct job *job);
void core_place_ask(struct core *core, struct job *job); /* for a plan on its servers */
void core_place_begin_plan(struct core *core, struct job *job);
bool core_place_is_intact(struct core *core, const struct job *job);
const char *core_place_missing(struct core *core, const struct job *job);
void core_place_server_here(struct core *core, struct member *server,
                            const struct core_hello *hello);

/* core_restore.c: answers that put a job onto servers */
void core_restore_found(struct core *core, struct job *job, enum err_code code, const char *text,
                        const char *directory, uint64_t ckpt_number, const struct ranges *acked,
                        const struct ranges *abandoned);
void core_restore_planned(struct core *core, struct job *job, enum err_code code, const char *text,
                          const uint32_t *slice_counts);

/* core_job.c */
void core_job_advance_all(struct core *core);
void core_job_begin_looking(struct core *core, struct job *job);
void core_job_server_lost(struct core *core, struct member *server);

#endif
