/* SPDX-License-Identifier: Apache-2.0 */
/* health_service: a short table of statuses and a list of watching streams. */
#include "proto/health_service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "proto/health.pb-c.h"
#include "proto/methods.h"

typedef Grpc__Health__V1__HealthCheckRequest Request;
typedef Grpc__Health__V1__HealthCheckResponse Response;

#define SERVING         GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
#define NOT_SERVING     GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING
#define SERVICE_UNKNOWN GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN

struct service {
    char name[LIMIT_NAME_BYTES];
    bool is_serving;
};

struct watcher {
    struct watcher *next;
    struct health_service *health;
    struct rpc_call *call; /* a reference */
    bool is_ended;         /* by us; on_end is still to come */
    char service[LIMIT_NAME_BYTES];
};

struct health_service {
    struct service services[LIMIT_HEALTH_SERVICES];
    size_t service_count;
    struct watcher *watchers;
    size_t watcher_count;
    bool is_draining;
};

struct health_service *health_service_new(void)
{
    return base_alloc(sizeof(struct health_service));
}

void health_service_free(struct health_service *health)
{
    if (!health)
        return;
    ASSERT(!health->watchers);
    free(health);
}

static struct service *find(struct health_service *health, const char *name)
{
    for (size_t i = 0; i < health->service_count; i++)
        if (strcmp(health->services[i].name, name) == 0)
            return &health->services[i];
    return NULL;
}

static Response response_for(struct health_service *health, const char *name)
{
    Response response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    const struct service *service = find(health, name);
    response.status = !service ? SERVICE_UNKNOWN : service->is_serving ? SERVING : NOT_SERVING;
    return response;
}

static void on_check(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    struct health_service *health = arg;
    const Request *request = (const Request *)in->message;
    Response response = response_for(health, request->service);
    if (response.status == SERVICE_UNKNOWN) {
        char text[LIMIT_NAME_BYTES + 64];
        snprintf(text, sizeof(text), "no service \"%.*s\" here", LIMIT_NAME_BYTES,
                 request->service);
        rpc_fail(call, ERR_NOT_FOUND, text);
        return;
    }
    rpc_reply(call, &(struct rpc_out){.message = &response.base});
}

/* ---- watching -------------------------------------------------------------------------------- */
static void end_watcher(struct watcher *watcher, enum err_code code, const char *text)
{
    if (watcher->is_ended)
        return;
    watcher->is_ended = true;
    rpc_fail(watcher->call, code, text);
}

static void tell(struct watcher *watcher)
{
    Response response = response_for(watcher->health, watcher->service);
    if (watcher->is_ended)
        return;
    enum err_code code =
        rpc_send(watcher->call, &(struct rpc_out){.message = &response.base}, NULL, NULL);
    if (code == ERR_FULL)
        end_watcher(watcher, ERR_FULL, "the watcher does not read what it asked for");
}

static void on_watch_end(struct rpc_call *call, bool was_cancelled, void *arg)
{
    (void)was_cancelled;
    struct watcher *watcher = arg;
    struct watcher **at = &watcher->health->watchers;
    while (*at != watcher)
        at = &(*at)->next;
    *at = watcher->next;
    watcher->health->watcher_count--;
    free(watcher);
    rpc_call_unref(call);
}

static void on_watch(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    struct health_service *health = arg;
    const Request *request = (const Request *)in->message;
    if (strlen(request->service) >= LIMIT_NAME_BYTES) {
        rpc_fail(call, ERR_INVALID, "service name too long");
        return;
    }
    if (health->is_draining) {
        rpc_fail(call, ERR_UNAVAILABLE, "the server is stopping");
        return;
    }
    if (health->watcher_count >= LIMIT_HEALTH_WATCHERS) {
        rpc_fail(call, ERR_FULL, "too many health watchers");
        return;
    }
    struct watcher *watcher = base_alloc(sizeof(*watcher));
    watcher->health = health;
    watcher->call = call;
    snprintf(watcher->service, sizeof(watcher->service), "%s", request->service);
    watcher->next = health->watchers;
    health->watchers = watcher;
    health->watcher_count++;
    rpc_call_ref(call);
    rpc_on_end(call, on_watch_end, watcher);
    tell(watcher);
}

static void tell_watchers_of(struct health_service *health, const char *name)
{
    for (struct watcher *w = health->watchers; w; w = w->next)
        if (strcmp(w->service, name) == 0)
            tell(w);
}

/* ---- what the daemon says -------------------------------------------------------------------- */
void health_service_add(struct health_service *health, struct rpc_server *server)
{
    rpc_server_add_method(server, &health_check, on_check, health);
    rpc_server_add_method(server, &health_watch, on_watch, health);
}

void health_service_set(struct health_service *health, const char *name, bool is_serving)
{
    if (health->is_draining)
        return;
    struct service *service = find(health, name);
    bool has_changed = !service || service->is_serving != is_serving;
    if (!service) {
        ASSERT(health->service_count < LIMIT_HEALTH_SERVICES && strlen(name) < LIMIT_NAME_BYTES);
        service = &health->services[health->service_count++];
        snprintf(service->name, sizeof(service->name), "%s", name);
    }
    service->is_serving = is_serving;
    if (has_changed)
        tell_watchers_of(health, name);
}

void health_service_drain(struct health_service *health)
{
    for (size_t i = 0; i < health->service_count; i++)
        health_service_set(health, health->services[i].name, false);
    health->is_draining = true;
    for (struct watcher *w = health->watchers; w; w = w->next) {
        if (!w->is_ended) {
            w->is_ended = true;
            rpc_finish(w->call); /* after the message that says NOT_SERVING */
        }
    }
}
