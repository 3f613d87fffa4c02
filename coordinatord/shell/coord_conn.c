/* SPDX-License-Identifier: Apache-2.0 */
/* coord_conn: the streams that members hold open, as far as writing to them and ending them goes. */
#include <stdlib.h>

#include "common/base/log.h"
#include "coordinatord/shell/coord_int.h"

struct conn *coord_conn_of(struct coord *coord, uint64_t id)
{
    return map_get(&coord->conns, id);
}

void coord_conn_free(struct conn *conn)
{
    for (size_t i = 0; i < conn->device_count; i++)
        free(conn->devices[i]);
    free(conn->devices);
    free(conn->name);
    free(conn);
}

void coord_conn_end(struct conn *conn, enum err_code code, const char *text)
{
    if (!conn || !conn->call || conn->is_ended)
        return;
    conn->is_ended = true;
    if (code == ERR_OK)
        rpc_finish(conn->call);
    else
        rpc_fail(conn->call, code, text);
}

void coord_conn_send(struct conn *conn, const Steadfast__V1__CoordMessage *message)
{
    if (!conn || !conn->call || conn->is_ended)
        return;
    struct rpc_out out = {.message = &message->base};
    enum err_code code = rpc_send(conn->call, &out, NULL, NULL);
    if (code == ERR_FULL) {
        log_warn("member.slow", "worker=%s its stream is full; closing it",
                 conn->name ? conn->name : "?");
        coord_conn_end(conn, ERR_FULL, "the stream's queue is full: the member does not read");
    }
}

void coord_conn_close_all(struct coord *coord)
{
    struct conn *conn;
    for (size_t at = 0; (conn = map_next(&coord->conns, &at));)
        coord_conn_end(conn, ERR_UNAVAILABLE, "the coordinator is stopping");
}
