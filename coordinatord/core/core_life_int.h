/* SPDX-License-Identifier: Apache-2.0 */
/* core_life_int: members' lives, what they report and answer, and the ends of events. */
#ifndef COORDINATORD_CORE_CORE_LIFE_INT_H
#define COORDINATORD_CORE_CORE_LIFE_INT_H

#include "coordinatord/core/core_phase_int.h"

/* core_report.c */
void core_report_take(struct core *core, struct member *worker, const struct core_report *report);
void core_report_written(struct core *core); /* acknowledges what has become durable */

/* core_answer.c: an order ended, by its answer, its deadline or the loss of its server */
void core_answer_take(struct core *core, struct member *server, uint64_t number, enum err_code code,
                      const char *text, const struct core_shard_state *shards, size_t count);
void core_answer_lost(struct core *core, const struct member *server);
void core_answer_check(struct core *core);

/* core_member.c */
void core_member_check(struct core *core); /* leases and ticket deadlines, from the timer */
void core_member_hello(struct core *core, uint64_t conn, const struct core_hello *hello);
void core_member_conn_lost(struct core *core, uint64_t conn);
void core_member_heartbeat(struct core *core, struct member *member,
                           const struct core_shard_state *shards, size_t count);
void core_member_leaving(struct core *core, struct member *member, const struct core_step_ref *refs,
                         size_t count);

/* core_watch.c */
void core_watch_check(struct core *core); /* from the timer */

/* core_life.c */
void core_event_end(struct core *core);

#endif
