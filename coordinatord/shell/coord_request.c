/* SPDX-License-Identifier: Apache-2.0 */
/* coord_request: calls of clients that the core answers later, by number. */
#include <stdio.h>
#include <stdlib.h>

#include "coordinatord/shell/coord_int.h"

struct coord_request {
    uint64_t id;
    struct rpc_call *call; /* a reference */
    coord_request_reply_fn *on_reply;
};

uint64_t coord_request_new(struct coord *coord, struct rpc_call *call,
                           coord_request_reply_fn *on_reply)
{
    struct coord_request *request = base_alloc(sizeof(*request));
    request->id = ++coord->next_request;
    request->call = call;
    request->on_reply = on_reply;
    rpc_call_ref(call);
    map_put(&coord->requests, request->id, request);
    return request->id;
}

static void end_request(struct coord_request *request)
{
    rpc_call_unref(request->call);
    free(request);
}

void coord_request_reply(struct coord *coord, const struct core_act *act)
{
    struct coord_request *request = map_remove(&coord->requests, act->request);
    if (!request)
        return;
    if (act->code != ERR_OK)
        rpc_fail(request->call, act->code, act->text);
    else
        request->on_reply(coord, request->call, act);
    end_request(request);
}

uint64_t coord_request_job(struct coord *coord, struct rpc_call *call, const char *name)
{
    uint64_t job = core_job_find(coord->core, name);
    if (!job) {
        char text[LIMIT_NAME_BYTES + 80];
        snprintf(text, sizeof(text), "job \"%.128s\": there is no job of this name or number",
                 name);
        rpc_fail(call, ERR_NOT_FOUND, text);
    }
    return job;
}

bool coord_request_refused(struct coord *coord, struct rpc_call *call)
{
    const char *why = coord_core_stuck(coord);
    if (!why)
        return false;
    char *text AUTO_MEM =
        base_asprintf("the ledger cannot be written, nothing is changed until it can: %s", why);
    rpc_fail(call, ERR_FULL, text);
    return true;
}

void coord_request_close_all(struct coord *coord)
{
    struct coord_request *request;
    for (size_t at = 0; (request = map_next(&coord->requests, &at));) {
        rpc_fail(request->call, ERR_UNAVAILABLE, "the coordinator is stopping");
        end_request(request);
    }
    map_done(&coord->requests);
    map_init(&coord->requests);
}
