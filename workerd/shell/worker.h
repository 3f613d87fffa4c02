/* SPDX-License-Identifier: Apache-2.0 */
/* worker: the state of a worker process, built and torn down here.
 *
 *   worker_new -> worker_start -> working --worker_leave--> leaving --> on_end(0)
 *                                         --refused by the coordinator--> on_end(1)
 *   then worker_stop -> on_stopped -> worker_free
 *
 * Threads: the loop owns all state; one device thread; input threads; gRPC's io thread runs the
 * callbacks of pulls and pushes.
 *
 * Owns    everything below it: server, inbox, input pool, device thread, steps, session. Borrows
 *         loop and rpc.
 * Thread  the loop's.
 * Errors  ERR_EXISTS: the address is taken. ERR_INVALID: an option.
 */
#ifndef WORKERD_SHELL_WORKER_H
#define WORKERD_SHELL_WORKER_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "workerd/exchange/fault_hook.h"

struct loop;
struct rpc_env;
struct worker;

struct worker_options { /* strings are borrowed */
    struct loop *loop;
    struct rpc_env *rpc;
    const char *name;        /* "worker:0", or any name for a worker nobody listed */
    const char *listen;      /* host:port, port 0 picks one */
    const char *advertise;   /* host:port to tell others; NULL: listen's host with the bound port */
    const char *coordinator; /* host:port */
    const char *device;      /* "cpu", "ref", "fake" */
    uint32_t threads;        /* of the device; 0: one per core that this process may use */
    uint32_t input_threads;  /* 0: 1 */
    const char *fake_script; /* NULL: takes no time */
    bool pulls_ahead;        /* hides pulls behind compute, for one more own update of staleness */
    struct fault_hook hook;  /* tests only */
    void (*on_end)(void *arg, int exit_code); /* it left, or cannot go on; stop it now */
    void *arg;
};

MUST_CHECK enum err_code worker_new(const struct worker_options *options,
                                    struct worker **ret_worker, struct err *err);
const char *worker_address(const struct worker *worker); /* host:port with the bound port */
void worker_start(struct worker *worker);                /* serves, and dials the coordinator */
/* Finishes what the device has begun, returns the rest to the coordinator, then on_end(0). */
void worker_leave(struct worker *worker, const char *reason);
/* Drops everything; on_stopped when no thread, call or timer needs the worker any more. What a
 * device computes is waited for. */
void worker_stop(struct worker *worker, void (*on_stopped)(void *arg), void *arg);
void worker_free(struct worker *worker); /* NULL, stopped, or never started */

#endif
