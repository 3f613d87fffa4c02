/* SPDX-License-Identifier: Apache-2.0 */
/* reflection_service: a walk over the serialised FileDescriptorSet, field by field.
 *
 * Only these fields of descriptor.proto matter:
 *   FileDescriptorSet       file 1
 *   FileDescriptorProto     name 1, package 2, dependency 3, message_type 4, enum_type 5, service 6
 *   DescriptorProto         name 1, field 2, nested_type 3, enum_type 4, oneof_decl 8
 *   EnumDescriptorProto     name 1
 *   ServiceDescriptorProto  name 1, method 2
 *   and name 1 in the leaves
 */
#include "proto/reflection_service.h"

#include <stdio.h>
#include <string.h>

#include "common/base/limits.h"
#include "proto/descriptors.h"
#include "proto/methods.h"
#include "proto/reflection.pb-c.h"

typedef Grpc__Reflection__V1alpha__ServerReflectionRequest Request;
typedef Grpc__Reflection__V1alpha__ServerReflectionResponse Response;

#define MAX_FILES    32 /* proto/ has six */
#define MAX_SERVICES 16 /* on one server */
#define MAX_NESTING  8  /* of messages in messages, in our own files */

struct bytes {
    const uint8_t *at;
    const uint8_t *end;
};

static uint64_t take_varint(struct bytes *b)
{
    uint64_t value = 0;
    for (unsigned shift = 0; b->at < b->end; shift += 7) {
        uint8_t byte = *b->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            break;
    }
    return value;
}

/* The next length-delimited field; others are passed over. The input is our own, so what is wrong
 * with it is a mistake of the build. */
static bool next_field(struct bytes *b, unsigned *ret_number, struct bytes *ret_content)
{
    while (b->at < b->end) {
        uint64_t tag = take_varint(b);
        size_t skip = 0;
        switch (tag & 7) {
        case 0:
            take_varint(b);
            break;
        case 1:
            skip = 8;
            break;
        case 2:
            skip = take_varint(b);
            break;
        case 5:
            skip = 4;
            break;
        default:
            ASSERT(!"a group in descriptors.pb");
        }
        ASSERT(skip <= (size_t)(b->end - b->at));
        *ret_content = (struct bytes){b->at, b->at + skip};
        b->at += skip;
        *ret_number = (unsigned)(tag >> 3);
        if ((tag & 7) == 2)
            return true;
    }
    return false;
}

static struct bytes find_field(struct bytes b, unsigned number)
{
    unsigned n;
    struct bytes content;
    while (next_field(&b, &n, &content))
        if (n == number)
            return content;
    return (struct bytes){NULL, NULL};
}

static bool equals(struct bytes b, const char *s)
{
    size_t len = (size_t)(b.end - b.at);
    return strlen(s) == len && memcmp(b.at, s, len) == 0;
}

/* What follows "name." in symbol, "" when symbol is name itself, NULL when it does not start so. */
static const char *cut(const char *symbol, struct bytes name)
{
    size_t len = (size_t)(name.end - name.at);
    if (strncmp(symbol, (const char *)name.at, len) != 0)
        return NULL;
    const char *rest = symbol + len;
    if (*rest == '.' && rest[1] != '\0')
        return rest + 1;
    return *rest == '\0' ? rest : NULL;
}

static bool has_leaf(struct bytes parent, unsigned number, const char *symbol)
{
    unsigned n;
    struct bytes content;
    while (next_field(&parent, &n, &content))
        if (n == number && equals(find_field(content, 1), symbol))
            return true;
    return false;
}

static bool message_defines(struct bytes message, const char *symbol, unsigned depth)
{
    ASSERT(depth < MAX_NESTING);
    const char *rest = cut(symbol, find_field(message, 1));
    if (!rest)
        return false;
    if (*rest == '\0' || has_leaf(message, 2, rest) || has_leaf(message, 4, rest) ||
        has_leaf(message, 8, rest))
        return true;
    unsigned n;
    struct bytes content;
    while (next_field(&message, &n, &content))
        if (n == 3 && message_defines(content, rest, depth + 1))
            return true;
    return false;
}

static bool file_defines(struct bytes file, const char *symbol)
{
    struct bytes package = find_field(file, 2);
    if (package.at && !(symbol = cut(symbol, package)))
        return false;
    unsigned n;
    struct bytes content;
    while (next_field(&file, &n, &content)) {
        if (n == 4 && message_defines(content, symbol, 0))
            return true;
        if (n == 5 && equals(find_field(content, 1), symbol))
            return true;
        const char *rest;
        if (n == 6 && (rest = cut(symbol, find_field(content, 1))) &&
            (*rest == '\0' || has_leaf(content, 2, rest)))
            return true;
    }
    return false;
}

/* ---- files ----------------------------------------------------------------------------------- */
struct files {
    struct bytes list[MAX_FILES];
    size_t count;
};

static struct bytes all_files(void)
{
    return (struct bytes){proto_descriptors, proto_descriptors + sizeof(proto_descriptors)};
}

static struct bytes find_file(struct bytes name)
{
    struct bytes set = all_files(), file;
    unsigned n;
    size_t len = (size_t)(name.end - name.at);
    while (next_field(&set, &n, &file)) {
        struct bytes other = find_field(file, 1);
        if (n == 1 && (size_t)(other.end - other.at) == len && memcmp(other.at, name.at, len) == 0)
            return file;
    }
    return (struct bytes){NULL, NULL};
}

/* Dependencies first. protoc has refused circles. */
static void add_file(struct files *files, struct bytes file)
{
    for (size_t i = 0; i < files->count; i++)
        if (files->list[i].at == file.at)
            return;
    struct bytes rest = file, content;
    unsigned n;
    while (next_field(&rest, &n, &content)) {
        if (n != 3)
            continue;
        struct bytes dependency = find_file(content);
        ASSERT(dependency.at); /* --include_imports */
        add_file(files, dependency);
    }
    ASSERT(files->count < MAX_FILES);
    files->list[files->count++] = file;
}

static void files_of_symbol(const char *symbol, struct files *files)
{
    struct bytes set = all_files(), file;
    unsigned n;
    while (next_field(&set, &n, &file))
        if (n == 1 && file_defines(file, symbol)) {
            add_file(files, file);
            return;
        }
}

size_t reflection_count_files(const char *symbol)
{
    struct files files = {.count = 0};
    files_of_symbol(symbol, &files);
    return files.count;
}

/* ---- answers --------------------------------------------------------------------------------- */
static void on_answered(struct rpc_call *call, bool ok, void *arg);

/* The next question is read when this answer has left: a client that only asks waits. */
static void send_response(struct rpc_call *call, const Request *request, Response *response,
                          const struct rpc_server *server)
{
    response->valid_host = request->host;
    response->original_request = (Request *)request;
    enum err_code code =
        rpc_send(call, &(struct rpc_out){.message = &response->base}, on_answered, (void *)server);
    if (code != ERR_OK && code != ERR_CANCELLED)
        rpc_fail(call, code, "the answer is too large for a message");
}

static void send_error(struct rpc_call *call, const Request *request,
                       const struct rpc_server *server, int grpc_status, const char *text)
{
    Response response = GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_RESPONSE__INIT;
    Grpc__Reflection__V1alpha__ErrorResponse error =
        GRPC__REFLECTION__V1ALPHA__ERROR_RESPONSE__INIT;
    error.error_code = grpc_status;
    error.error_message = (char *)text;
    response.message_response_case =
        GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    response.error_response = &error;
    send_response(call, request, &response, server);
}

static void send_files(struct rpc_call *call, const Request *request,
                       const struct rpc_server *server, const struct files *files,
                       const char *wanted)
{
    if (files->count == 0) {
        char text[2 * LIMIT_NAME_BYTES];
        snprintf(text, sizeof(text), "nothing is called \"%.*s\" here", LIMIT_NAME_BYTES, wanted);
        send_error(call, request, server, err_to_grpc(ERR_NOT_FOUND), text);
        return;
    }
    ProtobufCBinaryData list[MAX_FILES];
    for (size_t i = 0; i < files->count; i++)
        list[i] = (ProtobufCBinaryData){.len = (size_t)(files->list[i].end - files->list[i].at),
                                        .data = (uint8_t *)files->list[i].at};
    Response response = GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_RESPONSE__INIT;
    Grpc__Reflection__V1alpha__FileDescriptorResponse answer =
        GRPC__REFLECTION__V1ALPHA__FILE_DESCRIPTOR_RESPONSE__INIT;
    answer.n_file_descriptor_proto = files->count;
    answer.file_descriptor_proto = list;
    response.message_response_case =
        GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
    response.file_descriptor_response = &answer;
    send_response(call, request, &response, server);
}

static void send_services(struct rpc_call *call, const Request *request,
                          const struct rpc_server *server)
{
    Grpc__Reflection__V1alpha__ServiceResponse services[MAX_SERVICES];
    Grpc__Reflection__V1alpha__ServiceResponse *list[MAX_SERVICES];
    size_t count = 0;
    const char *name;
    while (count < MAX_SERVICES && (name = rpc_server_service(server, count))) {
        services[count] = (Grpc__Reflection__V1alpha__ServiceResponse)
            GRPC__REFLECTION__V1ALPHA__SERVICE_RESPONSE__INIT;
        services[count].name = (char *)name;
        list[count] = &services[count];
        count++;
    }
    Response response = GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_RESPONSE__INIT;
    Grpc__Reflection__V1alpha__ListServiceResponse answer =
        GRPC__REFLECTION__V1ALPHA__LIST_SERVICE_RESPONSE__INIT;
    answer.n_service = count;
    answer.service = list;
    response.message_response_case =
        GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
    response.list_services_response = &answer;
    send_response(call, request, &response, server);
}

static void on_question(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    if (!in) {
        rpc_finish(call);
        return;
    }
    const Request *request = (const Request *)in->message;
    const struct rpc_server *server = arg;
    struct files files = {.count = 0};
    switch (request->message_request_case) {
    case GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME: {
        const char *name = request->file_by_filename;
        struct bytes file =
            find_file((struct bytes){(const uint8_t *)name, (const uint8_t *)name + strlen(name)});
        if (file.at)
            add_file(&files, file);
        send_files(call, request, server, &files, name);
        break;
    }
    case GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
        files_of_symbol(request->file_containing_symbol, &files);
        send_files(call, request, server, &files, request->file_containing_symbol);
        break;
    case GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
        send_services(call, request, server);
        break;
    default:
        send_error(call, request, server, 12 /* UNIMPLEMENTED */, "our files have no extensions");
        break;
    }
}

static void on_answered(struct rpc_call *call, bool ok, void *arg)
{
    if (ok)
        rpc_recv(call, on_question, arg);
}

static void on_info(struct rpc_call *call, const struct rpc_in *request, void *arg)
{
    (void)request;
    rpc_recv(call, on_question, arg);
}

void reflection_service_add(struct rpc_server *server)
{
    rpc_server_add_method(server, &reflection_info, on_info, server);
}
