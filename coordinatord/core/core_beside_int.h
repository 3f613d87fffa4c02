/* SPDX-License-Identifier: Apache-2.0 */
/* core_beside_int: what runs beside the training and stops no step. */
#ifndef COORDINATORD_CORE_CORE_BESIDE_INT_H
#define COORDINATORD_CORE_CORE_BESIDE_INT_H

#include "coordinatord/core/core_order_int.h"

/* core_suspect.c */
#define CORE_SUSPECTS                                                                              \
    4 /* of one loss: what can be begun at once, on a few devices; the rest waited */
bool core_suspect_has(struct job *job, enum core_step_kind kind, uint64_t number);
void core_suspect_clear(struct job *job, enum core_step_kind kind, uint64_t number);
/* The tickets of a lost worker, oldest first. */
void core_suspect_add_all(struct core *core, const struct in_flight *flights, size_t count);
bool core_suspect_next(struct job *job, enum core_step_kind *ret_kind, uint64_t *ret_number);
/* Suspects wait, and this is the worker that is kept for them. */
bool core_suspect_wants(const struct core *core, const struct member *worker);

/* core_ckpt.c */
void core_ckpt_advance(struct core *core, struct job *job);
/* is_last: the job is over, so clients that wait for a later one are answered too. */
void core_ckpt_stop(struct core *core, struct job *job, enum err_code code, const char *text,
                    bool is_last);
void core_ckpt_begun(struct core *core, struct job *job, uint64_t number, enum err_code code,
                     const char *text);
void core_ckpt_snapshot_done(struct core *core, struct job *job, uint64_t number,
                             enum err_code code, const char *text);
void core_ckpt_published(struct core *core, struct job *job, uint64_t number, enum err_code code,
                         const char *text, const char *path);

/* core_eval.c */
void core_eval_start(struct core *core, struct job *job, uint32_t epoch);
void core_eval_stop(struct core *core, struct job *job);
void core_eval_pinned(struct core *core, struct job *job, uint64_t pin, enum err_code code,
                      const char *text);
void core_eval_report(struct core *core, struct job *job, const struct core_report *report,
                      const char *who);
/* The batch ended without a result. is_blamed: it may be why its worker died. */
void core_eval_give_back(struct core *core, struct job *job, uint64_t batch, bool is_blamed,
                         const char *who);
bool core_eval_next(struct job *job, uint64_t *ret_batch);

/* core_audit.c */
void core_audit_start(struct core *core, struct job *job, bool is_final);
void core_audit_answer(struct core *core, struct job *job, const struct order *order,
                       enum err_code code, const struct core_shard_state *shards, size_t count);
void core_audit_shard(struct job *job, size_t server_index, const struct core_shard_state *state);

#endif
