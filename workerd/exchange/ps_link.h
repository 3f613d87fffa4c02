/* SPDX-License-Identifier: Apache-2.0 */
/* ps_link: the channels from a job to the parameter servers of its plan, and who of them is out of
 * reach.
 *
 * Owns    its channels; names and addresses are borrowed from the slice map, which lives longer.
 * Thread  the loop's; the channels may be used from any.
 */
#ifndef WORKERD_EXCHANGE_PS_LINK_H
#define WORKERD_EXCHANGE_PS_LINK_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/peer_memory.h"

struct rpc_env;
struct rpc_channel;
struct slice_map;

#define LINK_MEMORY_FAILURES                                                                       \
    3 /* a server that died is one; more are a system that says yes and no */

struct ps_link {
    const char *name;    /* "ps:0" */
    const char *address; /* host:port */
    struct rpc_channel *channel;
    bool is_unreachable; /* the newest call ended without an answer */
    uint64_t since_ns;   /* when that began */
    struct err why;
    struct log_limit limit;

    /* On one machine values and gradients are read where they lie (common/base/peer_memory.h). What
     * the newest pull has found out: */
    bool can_read;                     /* the server's memory; secret is its proof of that */
    bool is_read;                      /* the server can read ours */
    uint8_t secret[PEER_SECRET_BYTES]; /* the server's */
    uint32_t memory_failures;          /* at LINK_MEMORY_FAILURES it is not tried again */
};

struct ps_links {
    size_t count;
    struct ps_link items[]; /* by position in the plan */
};

/* Does not connect yet. Errors: those of rpc_channel_new, prefixed with the server. */
MUST_CHECK enum err_code ps_links_new(struct rpc_env *env, const struct slice_map *map,
                                      struct ps_links **ret_links, struct err *err);
void ps_links_free(struct ps_links *links);
DEFINE_AUTO(ps_links)

/* A read of memory failed, here or there: the network, from now on until a pull finds out more. */
void ps_link_memory_failed(struct ps_link *link, const struct err *why);

/* How a call to the server ended; says so in the log when that changes, and every few seconds while
 * it waits. */
void ps_link_note(struct ps_link *link, const struct err *status);

/* What an answer means for the step that asked. */
enum ps_verdict {
    PS_OK,
    PS_RETRY,  /* no answer, or not now: the same call again */
    PS_RETURN, /* the step is not ours any more: hand it back */
    PS_FAIL,   /* the request itself is wrong: the step fails */
};
enum ps_verdict ps_judge(enum err_code code);

#endif
