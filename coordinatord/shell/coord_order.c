/* SPDX-License-Identifier: Apache-2.0 */
/* coord_order: orders of the core to servers, as messages. An order that cannot be made is not sent;
 * the core's deadline ends it. */
#include <inttypes.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "coordinatord/shell/coord_int.h"

/* order->what_case and what it names are set. */
static void send_order(struct coord *coord, const struct core_act *act,
                       Steadfast__V1__ServerOrder *order)
{
    Steadfast__V1__CoordMessage message = STEADFAST__V1__COORD_MESSAGE__INIT;
    order->order = act->order;
    message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_ORDER;
    message.order = order;
    coord_conn_send(coord_conn_of(coord, act->conn), &message);
}

void coord_order_create(struct coord *coord, const struct core_act *act)
{
    struct core_job_view view;
    const struct coord_job *job = coord_job_of(coord, act->job);
    if (!job->plan || !core_job_view(coord->core, clock_now_ns(), act->job, &view))
        return;
    Steadfast__V1__ServerOrder order = STEADFAST__V1__SERVER_ORDER__INIT;
    Steadfast__V1__CreateShards create = STEADFAST__V1__CREATE_SHARDS__INIT;
    create.job = act->job;
    create.generation = act->generation;
    create.name = (char *)view.name;
    create.spec_json = (char *)view.spec_json;
    create.plan = job->plan;
    create.server = act->server_index;
    if (act->text)
        create.restore_directory = (char *)act->text;
    order.what_case = STEADFAST__V1__SERVER_ORDER__WHAT_CREATE;
    order.create = &create;
    send_order(coord, act, &order);
}

void coord_order_snapshot(struct coord *coord, const struct core_act *act)
{
    struct core_job_view view;
    if (!coord_conn_of(coord, act->conn) ||
        !core_job_view(coord->core, clock_now_ns(), act->job, &view))
        return;
    char *directory AUTO_MEM =
        base_asprintf("%s/ckpt-%" PRIu64 ".partial", view.spec->checkpoint.directory, act->number);
    Steadfast__V1__ServerOrder order = STEADFAST__V1__SERVER_ORDER__INIT;
    Steadfast__V1__Snapshot snapshot = STEADFAST__V1__SNAPSHOT__INIT;
    snapshot.job = act->job;
    snapshot.generation = act->generation;
    snapshot.directory = directory;
    order.what_case = STEADFAST__V1__SERVER_ORDER__WHAT_SNAPSHOT;
    order.snapshot = &snapshot;
    coord_ckpt_remember_snapshot(coord, act);
    send_order(coord, act, &order);
}

void coord_order_prune(struct coord *coord, const struct core_act *act)
{
    Steadfast__V1__ServerOrder order = STEADFAST__V1__SERVER_ORDER__INIT;
    Steadfast__V1__Prune prune = STEADFAST__V1__PRUNE__INIT;
    prune.job = act->job;
    prune.generation = act->generation;
    prune.watermark = act->number;
    order.what_case = STEADFAST__V1__SERVER_ORDER__WHAT_PRUNE;
    order.prune = &prune;
    send_order(coord, act, &order);
}

void coord_order_pin(struct coord *coord, const struct core_act *act)
{
    Steadfast__V1__ServerOrder order = STEADFAST__V1__SERVER_ORDER__INIT;
    Steadfast__V1__Pin pin = STEADFAST__V1__PIN__INIT;
    pin.job = act->job;
    pin.generation = act->generation;
    pin.pin = act->number;
    order.what_case = STEADFAST__V1__SERVER_ORDER__WHAT_PIN;
    order.pin = &pin;
    send_order(coord, act, &order);
}

void coord_order_unpin(struct coord *coord, const struct core_act *act)
{
    Steadfast__V1__ServerOrder order = STEADFAST__V1__SERVER_ORDER__INIT;
    Steadfast__V1__Unpin unpin = STEADFAST__V1__UNPIN__INIT;
    unpin.job = act->job;
    unpin.pin = act->number;
    order.what_case = STEADFAST__V1__SERVER_ORDER__WHAT_UNPIN;
    order.unpin = &unpin;
    send_order(coord, act, &order);
}

void coord_order_drop(struct coord *coord, const struct core_act *act)
{
    Steadfast__V1__ServerOrder order = STEADFAST__V1__SERVER_ORDER__INIT;
    Steadfast__V1__DropJob drop = STEADFAST__V1__DROP_JOB__INIT;
    drop.job = act->job;
    order.what_case = STEADFAST__V1__SERVER_ORDER__WHAT_DROP;
    order.drop = &drop;
    send_order(coord, act, &order);
}

void coord_order_fence(struct coord *coord, const struct core_act *act)
{
    Steadfast__V1__ServerOrder order = STEADFAST__V1__SERVER_ORDER__INIT;
    Steadfast__V1__Fence fence = STEADFAST__V1__FENCE__INIT;
    fence.session = act->number;
    order.what_case = STEADFAST__V1__SERVER_ORDER__WHAT_FENCE;
    order.fence = &fence;
    send_order(coord, act, &order);
}

void coord_order_marks(struct coord *coord, const struct core_act *act)
{
    Steadfast__V1__ServerOrder order = STEADFAST__V1__SERVER_ORDER__INIT;
    Steadfast__V1__ReadMarks marks = STEADFAST__V1__READ_MARKS__INIT;
    marks.job = act->job;
    marks.generation = act->generation;
    order.what_case = STEADFAST__V1__SERVER_ORDER__WHAT_MARKS;
    order.marks = &marks;
    send_order(coord, act, &order);
}
