/* SPDX-License-Identifier: Apache-2.0 */
/* core_base_int: the ground floor of the core: plain state and its bookkeeping. Nothing here
 * decides. The floors above, each a header that includes those below it:
 *
 *   core_life_int    core_event, core_request, core_life, core_replay, core_watch: events in
 *                    core_member, core_answer, core_report: members' lives, answers, reports
 *   core_phase_int   core_job, core_restore, core_place, core_end: the phases of a job
 *   core_sched_int   core_sched, core_step, core_window: which step goes to whom, and comes back
 *   core_beside_int  core_ckpt, core_eval, core_audit, core_suspect: beside the training
 *   core_order_int   core_order: orders to servers
 *   core_base_int    core_members, core_jobs, core_out
 *
 * A file calls its own floor and those below. What a low floor finds and a high one has to act on is
 * left as a flag and worked off at the end of the event, in a fixed order (core_event_end): a job
 * that has to end (core_job_doom), jobs whose end is durable (drops_due), workers that may have
 * something to get (is_fill_due). */
#ifndef COORDINATORD_CORE_CORE_BASE_INT_H
#define COORDINATORD_CORE_CORE_BASE_INT_H

#include "coordinatord/core/state_core_int.h"

/* core_out.c: what leaves the core */
void core_event_begin(struct core *core, uint64_t now_ns);
struct core_act *core_act_add(struct core *core, enum core_act_kind kind);
void *core_arena(struct core *core, size_t size);
const char *core_arena_text(struct core *core, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The time of day, as far as the clock of events goes from the start on. */
uint64_t core_wall_ms(const struct core *core, uint64_t now_ns);
void core_arm(struct core *core, uint64_t deadline_ns);
/* Emits a record; strings are copied into the arena. Returns its seq. */
uint64_t core_record(struct core *core, const struct core_record *record);
void core_reply(struct core *core, uint64_t request, enum err_code code, uint64_t job,
                const char *text);
void core_notice(struct core *core, struct job *job, const char *fmt, ...) PRINTF_LIKE(3, 4);
void core_out_free(struct core *core);

/* core_members.c: the list of members, tickets in flight, acknowledgements */
struct member *core_member_of_conn(struct core *core, uint64_t conn);
struct member *core_member_of_session(struct core *core, uint64_t session);
struct member *core_member_named(struct core *core, enum core_role role, const char *name);
bool core_member_is_here(const struct member *member); /* attached or silent within its lease */
/* Before a worker comes or goes, or a step is judged by how often they go. Returns how many are
 * attached. */
size_t core_lives_pass(struct core *core);
struct member *core_member_add(struct core *core, enum core_role role, const char *name);
/* It is not here and holds nothing. */
void core_member_forget(struct core *core, size_t at);
/* The worker that was heard of longest ago makes room; false: all are here. */
bool core_member_make_room(struct core *core);
void core_member_free(struct member *member);
bool core_ref_is_equal(const struct core_step_ref *a, const struct core_step_ref *b);
struct in_flight *core_flight_find(struct member *worker, const struct core_step_ref *ref);
void core_flight_push(struct member *worker, const struct in_flight *flight);
void core_flight_remove(struct member *worker, struct in_flight *flight);
void core_ack_add(struct member *worker, const struct core_step_ref *ref);
/* To be sent when the record is durable. */
void core_ack_pend(struct core *core, const struct pending_ack *ack);
/* The next one whose record is durable; false: none. */
bool core_ack_pop(struct core *core, struct pending_ack *ret_ack);
void core_ack_flush(struct core *core);

#define CORE_STALL_NS (10 * NS_PER_S) /* no progress for so long: say who holds what */

/* core_jobs.c: the list of jobs, what each one is and was */
struct job *core_job_of(const struct core *core, uint64_t number);
struct job *core_job_new(struct core *core, uint64_t number, const char *name,
                         struct job_spec *take_spec, const char *spec_json, uint64_t records,
                         uint64_t eval_records, bool is_resume, uint64_t wall_ms);
void core_job_free(struct job *job);
void core_job_leave_live(struct core *core, const struct job *job);
bool core_job_is_active(const struct job *job);
bool core_job_is_runnable(const struct core *core, const struct job *job);
void core_job_set_state(struct core *core, struct job *job, enum core_job_state state,
                        const char *reason);
void core_job_set_phase(struct core *core, struct job *job, enum phase phase);
/* The job fails at the end of this event; the first word stands. */
void core_job_doom(struct core *core, struct job *job, enum err_code code, const char *reason);
void core_job_add_eval(struct job *job, const struct core_eval *eval);
void core_job_add_ckpt(struct job *job, uint64_t number, uint64_t step, const char *path);
void core_job_add_abandoned(struct job *job, uint64_t step, uint32_t attempts, enum err_code code,
                            const char *text);
void core_job_forget_progress(struct job *job);
void core_job_forget_servers(struct job *job);
void core_suspicion_clear(struct suspicion *suspicion);
/* Servers that hold slices of the job. */
size_t core_job_holders(const struct job *job);
uint64_t core_job_first_ckpt(const struct job *job);
struct rule_steps core_job_rule_steps(const struct job *job);
const char *core_phase_name(enum phase phase);

#endif
