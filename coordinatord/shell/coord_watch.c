/* SPDX-License-Identifier: Apache-2.0 */
/* coord_watch: the streams of clients that follow a job. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "coordinatord/shell/coord_int.h"

#define WATCH_DEFAULT_NS NS_PER_S
#define WATCH_MIN_NS     (100 * NS_PER_MS)
#define WATCH_TURN_MS    50

struct watcher {
    struct watcher *next;
    struct coord *coord;
    struct rpc_call *call;
    uint64_t job;
    uint64_t interval_ns; /* UINT64_MAX: nothing more is sent */
    uint64_t sent_ns;
    bool is_sending;
    bool is_due;
    bool is_over;
};

static bool is_over(enum core_job_state state)
{
    return state == CORE_JOB_SUCCEEDED || state == CORE_JOB_FAILED || state == CORE_JOB_CANCELLED;
}

static void on_watch_sent(struct rpc_call *call, bool ok, void *arg)
{
    struct watcher *watcher = arg;
    (void)call;
    (void)ok;
    watcher->is_sending = false;
}

static void on_watch_end(struct rpc_call *call, bool was_cancelled, void *arg)
{
    struct watcher *watcher = arg;
    (void)call;
    (void)was_cancelled;
    watcher->is_over = true; /* taken off the list at the next turn */
}

/* One status at a time per watcher: a slow reader gets fewer, never a queue. */
static void watch_send(struct watcher *watcher, uint64_t now_ns)
{
    struct coord *coord = watcher->coord;
    struct core_job_view view;
    if (!core_job_view(coord->core, now_ns, watcher->job, &view)) {
        rpc_fail(watcher->call, ERR_NOT_FOUND, "the job is no longer known");
        watcher->interval_ns = UINT64_MAX; /* on_watch_end follows */
        watcher->is_due = false;
        return;
    }
    Steadfast__V1__JobStatus status;
    coord_status_fill(&view, &status);
    struct rpc_out out = {.message = &status.base};
    watcher->is_sending = true;
    watcher->is_due = false;
    watcher->sent_ns = now_ns;
    if (rpc_send(watcher->call, &out, on_watch_sent, watcher) != ERR_OK) {
        watcher->is_sending = false;
    } else if (is_over(view.state)) {
        rpc_finish(watcher->call);
        watcher->is_due = false;
        watcher->interval_ns = UINT64_MAX;
    }
    coord_status_done(&status);
}

void coord_watch_changed(struct coord *coord, const struct core_act *act)
{
    for (struct watcher *watcher = coord->watchers; watcher; watcher = watcher->next)
        if (watcher->job == act->job && watcher->interval_ns != UINT64_MAX)
            watcher->is_due = true;
}

static void on_watch_timer(void *arg)
{
    struct coord *coord = arg;
    uint64_t now_ns = clock_now_ns();
    for (struct watcher **at = &coord->watchers; *at;) {
        struct watcher *watcher = *at;
        if (watcher->is_over && !watcher->is_sending) {
            *at = watcher->next;
            rpc_call_unref(watcher->call);
            free(watcher);
            continue;
        }
        bool is_time =
            watcher->interval_ns != UINT64_MAX && now_ns - watcher->sent_ns >= watcher->interval_ns;
        if (!watcher->is_over && !watcher->is_sending && (watcher->is_due || is_time))
            watch_send(watcher, now_ns);
        at = &watcher->next;
    }
}

void coord_watch_on_call(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    struct coord *coord = arg;
    const Steadfast__V1__WatchRequest *request = (const Steadfast__V1__WatchRequest *)in->message;
    uint64_t job = coord_request_job(coord, call, request->job);
    if (!job)
        return;
    struct watcher *watcher = base_alloc(sizeof(*watcher));
    watcher->coord = coord;
    watcher->call = call;
    watcher->job = job;
    watcher->interval_ns = request->interval_ms
                               ? MAX(request->interval_ms * NS_PER_MS, WATCH_MIN_NS)
                               : WATCH_DEFAULT_NS;
    watcher->next = coord->watchers;
    coord->watchers = watcher;
    rpc_call_ref(call);
    rpc_on_end(call, on_watch_end, watcher);
    watch_send(watcher, clock_now_ns());
}

void coord_watch_init(struct coord *coord)
{
    coord->watch_timer = loop_timer_new(coord->loop, on_watch_timer, coord);
}

void coord_watch_begin(struct coord *coord)
{
    loop_timer_every(coord->watch_timer, WATCH_TURN_MS);
}

void coord_watch_close_all(struct coord *coord)
{
    loop_timer_stop(coord->watch_timer);
    for (struct watcher *watcher = coord->watchers; watcher; watcher = watcher->next)
        if (!watcher->is_over && watcher->interval_ns != UINT64_MAX)
            rpc_fail(watcher->call, ERR_UNAVAILABLE, "the coordinator is stopping");
}

void coord_watch_done(struct coord *coord)
{
    while (coord->watchers) {
        struct watcher *next = coord->watchers->next;
        rpc_call_unref(coord->watchers->call);
        free(coord->watchers);
        coord->watchers = next;
    }
    loop_timer_free(coord->watch_timer);
}
