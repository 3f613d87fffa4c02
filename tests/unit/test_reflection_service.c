/* SPDX-License-Identifier: Apache-2.0 */
/* reflection_service: what a generic client asks to list and call our services. */
#include "proto/health_service.h"
#include "proto/reflection.pb-c.h"
#include "proto/reflection_service.h"
#include "tests/unit/rpc_fixture.h"

typedef Grpc__Reflection__V1alpha__ServerReflectionRequest Request;
typedef Grpc__Reflection__V1alpha__ServerReflectionResponse Response;

TEST(symbols_of_every_kind_are_found_with_their_files)
{
    CHECK_U64(reflection_count_files("steadfast.v1.Coordinator"), 2); /* coord and common */
    CHECK_U64(reflection_count_files("steadfast.v1.Coordinator.SubmitJob"), 2);
    CHECK_U64(reflection_count_files("steadfast.v1.Slice"), 1);
    CHECK_U64(reflection_count_files("steadfast.v1.Slice.row_offset"), 1);
    CHECK_U64(reflection_count_files("steadfast.v1.InitKind"), 1);
    CHECK_U64(reflection_count_files("steadfast.v1.ServerOrder.what"), 2); /* a oneof */
    CHECK_U64(reflection_count_files("grpc.health.v1.HealthCheckResponse.ServingStatus"), 1);
}

TEST(what_is_no_symbol_is_not_found)
{
    static const char *const not [] = {"",
                                       "steadfast.v1",
                                       "steadfast.v1.",
                                       "steadfast.v1.Slic",
                                       "steadfast.v1.Slices",
                                       "steadfast.v1.Slice.",
                                       "steadfast.v1.Slice.row",
                                       "Slice",
                                       "steadfast.v1.Coordinator.Nothing",
                                       "steadfast.v1.Coordinator.SubmitJob.more"};
    for (size_t i = 0; i < ARRAY_SIZE(not ); i++)
        if (reflection_count_files(not [i]) != 0)
            test_fail(__FILE__, __LINE__, "\"%s\" was found", not [i]);
}

struct dialogue {
    struct rpc_ccall *call;
    size_t answers;
    size_t kind;
    size_t count;    /* files or services of the last answer */
    char names[512]; /* of services */
    int error_code;
    struct answer end;
};

static void on_response(struct rpc_ccall *call, const struct rpc_in *in, void *arg)
{
    struct dialogue *d = arg;
    if (!in)
        return;
    const Response *r = (const Response *)in->message;
    d->kind = r->message_response_case;
    d->names[0] = '\0';
    switch (r->message_response_case) {
    case GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE:
        d->count = r->list_services_response->n_service;
        for (size_t i = 0; i < d->count; i++) {
            size_t len = strlen(d->names);
            snprintf(d->names + len, sizeof(d->names) - len, "%s ",
                     r->list_services_response->service[i]->name);
        }
        break;
    case GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE:
        d->count = r->file_descriptor_response->n_file_descriptor_proto;
        for (size_t i = 0; i < d->count; i++) /* each begins with its own name, field 1 */
            CHECK(r->file_descriptor_response->file_descriptor_proto[i].data[0] == 0x0a);
        break;
    case GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE:
        d->error_code = r->error_response->error_code;
        break;
    default:
        CHECK(0);
    }
    d->answers++;
    rpc_crecv(call, on_response, d);
}

static void ask(struct dialogue *d, const Request *request)
{
    size_t before = d->answers;
    CHECK(rpc_csend(d->call, &(struct rpc_out){.message = &request->base}, NULL, NULL) == ERR_OK);
    WAIT_UNTIL(d->answers == before + 1);
}

TEST(a_client_can_list_services_and_fetch_files_and_symbols)
{
    struct err err;
    struct dialogue d = {0};
    fx_new_server(300);
    struct health_service *health = health_service_new();
    reflection_service_add(fx.server);
    health_service_add(health, fx.server);
    fx_start_server();
    struct rpc_call_options options = {.timeout_ms = 20000};
    CHECK_OK(
        rpc_open(fx.channel, &reflection_info, NULL, &options, on_answer, &d.end, &d.call, &err));
    rpc_crecv(d.call, on_response, &d);

    Request request = GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_REQUEST__INIT;
    char text[] = "steadfast.v1.Fleet", file[] = "proto/ps.proto", bad[] = "proto/no.proto";
    request.message_request_case =
        GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES;
    request.list_services = text;
    ask(&d, &request);
    CHECK_STR(d.names, "grpc.reflection.v1alpha.ServerReflection grpc.health.v1.Health ");

    request.message_request_case =
        GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL;
    request.file_containing_symbol = text;
    ask(&d, &request);
    CHECK_U64(d.count, 2);

    request.message_request_case =
        GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME;
    request.file_by_filename = file;
    ask(&d, &request);
    CHECK_U64(d.count, 1);
    request.file_by_filename = bad;
    ask(&d, &request);
    CHECK(d.error_code == 5);

    request.message_request_case =
        GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_ALL_EXTENSION_NUMBERS_OF_TYPE;
    request.all_extension_numbers_of_type = text;
    ask(&d, &request);
    CHECK(d.error_code == 12);

    rpc_cclose_send(d.call);
    WAIT_UNTIL(d.end.is_done);
    CHECK(d.end.status.code == ERR_OK);
    rpc_ccall_unref(d.call);
    fx_stop();
    health_service_free(health);
}
