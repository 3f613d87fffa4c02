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

struct rpc_env;
struct rpc_channel;
struct slice_map;

struct ps_link {
    const char *name;    /* "ps:0" */
    const char *address; /* host:port */
    struct rpc_channel *channel;
    bool is_unreachable; /* the newest call ended without an answer */
    uint64_t since_ns;   /* when that began */
    struct err why;
    struct log_limit limit;
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
