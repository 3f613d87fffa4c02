/* SPDX-License-Identifier: Apache-2.0 */
/* coord: the coordinator daemon around its core: gRPC, the ledger, timers, files.
 *
 * Owns    everything of the daemon. Thread: the loop's.
 * Errors  coord_new names the port, directory or file that it could not have.
 */
#ifndef COORDINATORD_SHELL_COORD_H
#define COORDINATORD_SHELL_COORD_H

#include "common/base/base.h"
#include "common/base/err.h"

struct coord;
struct cluster_spec;
struct loop;
struct rpc_env;

struct coord_options {
    const char *address;   /* host:port to listen on */
    const char *port_file; /* gets the bound host:port; NULL: none */
    const char *state_dir;
    uint32_t heartbeat_ms;
    uint32_t lease_ms;
    uint32_t order_deadline_ms;
    uint32_t job_wait_ms;
    uint32_t audit_ms;
    uint32_t running_max;
    uint32_t recover_ms;
};

/* Borrows loop, env and cluster until coord_free. */
MUST_CHECK enum err_code coord_new(struct loop *loop, struct rpc_env *env,
                                   const struct cluster_spec *cluster,
                                   const struct coord_options *options, struct coord **ret_coord,
                                   struct err *err);
/* Stops taking calls, writes the ledger out, then on_done on the loop. */
void coord_stop(struct coord *coord, void (*on_done)(void *arg), void *arg);
void coord_free(struct coord *coord); /* stopped */

#endif
