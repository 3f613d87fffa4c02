/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_msg: packing and unpacking over slices cut at any place, and what hostile bytes may cost. */
#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/base/limits.h"
#include "common/rpc/rpc_msg.h"
#include "proto/coord.pb-c.h"
#include "proto/fleet.pb-c.h"
#include "proto/methods.h"
#include "proto/ps.pb-c.h"
#include "tests/harness.h"

static uint32_t seed = 12345;

static uint32_t next_random(void) /* xorshift; a fixed sequence is all that is wanted */
{
    seed ^= seed << 13;
    seed ^= seed >> 17;
    seed ^= seed << 5;
    return seed;
}

/* A byte buffer of these bytes, cut into slices of up to max_slice. */
static grpc_byte_buffer *cut_up(const uint8_t *bytes, size_t len, size_t max_slice)
{
    grpc_slice slices[4096];
    size_t count = 0;
    for (size_t at = 0; at < len;) {
        size_t n = 1 + next_random() % max_slice;
        n = MIN(n, len - at);
        ASSERT(count < ARRAY_SIZE(slices));
        slices[count++] = grpc_slice_from_copied_buffer((const char *)bytes + at, n);
        at += n;
    }
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(slices, count);
    for (size_t i = 0; i < count; i++)
        grpc_slice_unref(slices[i]);
    return buffer;
}

static uint8_t *flatten(grpc_byte_buffer *take_buffer, size_t *ret_len)
{
    *ret_len = grpc_byte_buffer_length(take_buffer);
    uint8_t *bytes = malloc(*ret_len + 1);
    size_t at = 0;
    const grpc_slice_buffer *sb = &take_buffer->data.raw.slice_buffer;
    for (size_t i = 0; i < sb->count; i++) {
        memcpy(bytes + at, GRPC_SLICE_START_PTR(sb->slices[i]), GRPC_SLICE_LENGTH(sb->slices[i]));
        at += GRPC_SLICE_LENGTH(sb->slices[i]);
    }
    grpc_byte_buffer_destroy(take_buffer);
    return bytes;
}

static int freed;

static void count_free(void *arg)
{
    (void)arg;
    freed++;
}

static uint8_t *pack_chunk(const uint8_t *payload, size_t bytes, size_t offset, size_t *ret_len)
{
    Steadfast__V1__PushChunk chunk = STEADFAST__V1__PUSH_CHUNK__INIT;
    Steadfast__V1__PushHeader header = STEADFAST__V1__PUSH_HEADER__INIT;
    header.step = 77;
    chunk.header = &header;
    chunk.offset = 1ull << 40;
    struct rpc_blob *blob = rpc_blob_wrap(payload, offset + bytes, count_free, NULL);
    struct rpc_out out = {&chunk.base, blob, offset, bytes};
    grpc_byte_buffer *buffer;
    size_t total;
    struct err err;
    CHECK_OK(rpc_msg_pack(&out, &buffer, &total, &err));
    rpc_blob_unref(blob);
    CHECK_U64(grpc_byte_buffer_length(buffer), total);
    return flatten(buffer, ret_len);
}

TEST(a_packed_payload_is_ordinary_protobuf)
{
    grpc_init();
    uint8_t payload[3000];
    for (size_t i = 0; i < sizeof(payload); i++)
        payload[i] = (uint8_t)next_random();
    size_t len;
    AUTO_MEM uint8_t *bytes = pack_chunk(payload, 2000, 1000, &len);
    CHECK(freed == 1);
    Steadfast__V1__PushChunk *chunk = steadfast__v1__push_chunk__unpack(NULL, len, bytes);
    CHECK(chunk);
    CHECK_U64(chunk->data.len, 2000);
    CHECK(memcmp(chunk->data.data, payload + 1000, 2000) == 0);
    CHECK_U64(chunk->header->step, 77);
    CHECK_U64(chunk->offset, 1ull << 40);
    steadfast__v1__push_chunk__free_unpacked(chunk, NULL);
    grpc_shutdown();
}

TEST(a_payload_is_found_however_the_slices_are_cut)
{
    grpc_init();
    uint8_t payload[5000], got[5000];
    for (size_t i = 0; i < sizeof(payload); i++)
        payload[i] = (uint8_t)next_random();
    for (int round = 0; round < 500; round++) {
        size_t bytes = next_random() % sizeof(payload), len;
        AUTO_MEM uint8_t *wire = pack_chunk(payload, bytes, 0, &len);
        struct rpc_msg msg;
        struct err err;
        CHECK_OK(rpc_msg_unpack(&steadfast__v1__push_chunk__descriptor, true,
                                cut_up(wire, len, 1 + next_random() % 200), &msg, &err));
        const Steadfast__V1__PushChunk *chunk = (const Steadfast__V1__PushChunk *)msg.message;
        CHECK_U64(chunk->header->step, 77);
        CHECK_U64(chunk->data.len, 0);
        CHECK_U64(rpc_view_bytes(msg.view), bytes);
        size_t from = bytes ? next_random() % bytes : 0;
        rpc_view_copy(msg.view, from, got, bytes - from);
        CHECK(memcmp(got, payload + from, bytes - from) == 0);
        rpc_msg_done(&msg);
    }
    grpc_shutdown();
}

TEST(a_taken_view_outlives_its_message)
{
    grpc_init();
    uint8_t payload[100] = {1, 2, 3}, got[3];
    size_t len;
    AUTO_MEM uint8_t *wire = pack_chunk(payload, sizeof(payload), 0, &len);
    struct rpc_msg msg;
    struct err err;
    CHECK_OK(rpc_msg_unpack(&steadfast__v1__push_chunk__descriptor, true, cut_up(wire, len, 7),
                            &msg, &err));
    struct rpc_in in = {msg.message, msg.view};
    struct rpc_view *view = rpc_view_take(&in);
    rpc_msg_done(&msg);
    rpc_view_copy(view, 0, got, 3);
    CHECK(got[0] == 1 && got[2] == 3);
    rpc_view_free(view);
    grpc_shutdown();
}

TEST(fields_after_and_around_the_payload_are_kept_and_the_last_payload_wins)
{
    grpc_init();
    /* data "ab", offset 5, data "cde", an unknown varint field 9, header {} */
    static const uint8_t wire[] = {0x7a, 2,   'a', 'b',  0x10, 5,    0x7a, 3,
                                   'c',  'd', 'e', 0x48, 1,    0x0a, 0};
    for (size_t max = 1; max < sizeof(wire); max++) {
        struct rpc_msg msg;
        struct err err;
        char got[3];
        CHECK_OK(rpc_msg_unpack(&steadfast__v1__push_chunk__descriptor, true,
                                cut_up(wire, sizeof(wire), max), &msg, &err));
        const Steadfast__V1__PushChunk *chunk = (const Steadfast__V1__PushChunk *)msg.message;
        CHECK_U64(chunk->offset, 5);
        CHECK(chunk->header);
        CHECK_U64(rpc_view_bytes(msg.view), 3);
        rpc_view_copy(msg.view, 0, got, 3);
        CHECK(memcmp(got, "cde", 3) == 0);
        rpc_msg_done(&msg);
    }
    grpc_shutdown();
}

static enum err_code unpack_bytes(const ProtobufCMessageDescriptor *desc, bool has_payload,
                                  const uint8_t *bytes, size_t len, struct err *err)
{
    struct rpc_msg msg;
    enum err_code code =
        rpc_msg_unpack(desc, has_payload, cut_up(bytes, len, MAX(len / 100, 1)), &msg, err);
    if (code == ERR_OK)
        rpc_msg_done(&msg);
    return code;
}

TEST(every_truncation_of_a_message_is_refused_or_a_shorter_message)
{
    grpc_init();
    uint8_t payload[64] = {0};
    size_t len;
    AUTO_MEM uint8_t *wire = pack_chunk(payload, sizeof(payload), 0, &len);
    size_t refused = 0;
    for (size_t n = 0; n < len; n++) {
        struct err err;
        enum err_code split =
            unpack_bytes(&steadfast__v1__push_chunk__descriptor, true, wire, n, &err);
        enum err_code whole =
            unpack_bytes(&steadfast__v1__push_chunk__descriptor, false, wire, n, &err);
        CHECK(split == whole); /* our walk and protobuf-c agree on what is a message */
        refused += split != ERR_OK;
    }
    CHECK(refused > len - 10);
    grpc_shutdown();
}

TEST(random_damage_never_does_more_than_refuse)
{
    grpc_init();
    uint8_t payload[40] = {0};
    size_t len, refused = 0;
    AUTO_MEM uint8_t *wire = pack_chunk(payload, sizeof(payload), 0, &len);
    AUTO_MEM uint8_t *bad = malloc(len);
    for (int round = 0; round < 20000; round++) {
        memcpy(bad, wire, len);
        for (uint32_t n = 1 + next_random() % 4; n > 0; n--)
            bad[next_random() % len] = (uint8_t)next_random();
        struct err err;
        enum err_code split =
            unpack_bytes(&steadfast__v1__push_chunk__descriptor, true, bad, len, &err);
        enum err_code whole =
            unpack_bytes(&steadfast__v1__push_chunk__descriptor, false, bad, len, &err);
        CHECK(split == ERR_OK || split == ERR_INVALID);
        if (split == ERR_OK &&
            whole != ERR_OK) /* only what is inside a dropped payload may differ */
            CHECK(0);
        refused += split != ERR_OK;
    }
    CHECK(refused > 1000);
    grpc_shutdown();
}

TEST(a_message_that_unpacks_to_many_times_its_size_is_refused_at_the_arena)
{
    grpc_init();
    /* MemberMessage{reports{reports: {} {} ...}}: two bytes become a StepReport and a pointer. */
    size_t pairs = 1u << 20, len = 10 + 2 * pairs;
    AUTO_MEM uint8_t *wire = malloc(len);
    size_t at = 0;
    wire[at++] = 3 << 3 | 2;
    for (size_t v = 2 * pairs; v; v >>= 7)
        wire[at++] = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
    for (size_t i = 0; i < pairs; i++) {
        wire[at++] = 1 << 3 | 2;
        wire[at++] = 0;
    }
    struct err err;
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    CHECK(unpack_bytes(&steadfast__v1__member_message__descriptor, false, wire, at, &err) ==
          ERR_INVALID);
    CHECK(strstr(err.text, "unpacks to over 16777216 bytes"));
    size_t after = mallinfo2().uordblks + mallinfo2().hblkhd;
    CHECK(after <= before + (64u << 10));
    grpc_shutdown();
}

TEST(a_message_for_which_there_is_no_memory_is_refused_and_the_next_one_is_read)
{
    grpc_init();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    test_skip("sanitizers need more address space than can be bounded");
#endif
    size_t len = 3u << 20;
    AUTO_MEM uint8_t *wire = calloc(1, len);
    Steadfast__V1__SubmitRequest request = STEADFAST__V1__SUBMIT_REQUEST__INIT;
    request.spec_json = malloc(len - 16);
    memset(request.spec_json, 'x', len - 17);
    request.spec_json[len - 17] = '\0';
    size_t bytes = protobuf_c_message_pack(&request.base, wire);
    free(request.spec_json);
    malloc_trim(0);
    grpc_byte_buffer *buffers[2];
    for (int i = 0; i < 2; i++)
        buffers[i] = cut_up(wire, bytes, 1u << 20);
    struct rlimit all, few;
    CHECK(getrlimit(RLIMIT_AS, &all) == 0);
    few = all;
    few.rlim_cur = 1u << 20; /* less than there is: no more of it */
    struct rpc_msg msg = {0};
    struct err err;
    CHECK(setrlimit(RLIMIT_AS, &few) == 0);
    enum err_code code =
        rpc_msg_unpack(&steadfast__v1__submit_request__descriptor, false, buffers[0], &msg, &err);
    CHECK(setrlimit(RLIMIT_AS, &all) == 0);
    CHECK(code == ERR_NO_MEMORY);
    CHECK(strstr(err.text, "SubmitRequest"));
    CHECK_OK(
        rpc_msg_unpack(&steadfast__v1__submit_request__descriptor, false, buffers[1], &msg, &err));
    rpc_msg_done(&msg);
    grpc_shutdown();
}

TEST(ten_thousand_nested_groups_cost_no_stack)
{
    grpc_init();
    uint8_t wire[20000];
    for (size_t i = 0; i < sizeof(wire); i += 2) {
        wire[i] = (uint8_t)((20 << 3 | 3) & 0x7f) | 0x80; /* start group, field 20 */
        wire[i + 1] = 20 << 3 >> 7;
    }
    struct err err;
    CHECK(unpack_bytes(&steadfast__v1__push_chunk__descriptor, true, wire, sizeof(wire), &err) ==
          ERR_INVALID);
    CHECK(unpack_bytes(&steadfast__v1__push_chunk__descriptor, false, wire, sizeof(wire), &err) ==
          ERR_INVALID);
    grpc_shutdown();
}

/* protobuf-c unpacks sub-messages by recursion without a bound, so a message type that can hold
 * itself would let a peer choose our stack depth. */
static void check_no_cycle(const ProtobufCMessageDescriptor *desc,
                           const ProtobufCMessageDescriptor **above, size_t depth)
{
    for (size_t i = 0; i < depth; i++)
        if (above[i] == desc)
            test_fail(__FILE__, __LINE__, "message %s can hold itself", desc->name);
    CHECK(depth < 16);
    above[depth] = desc;
    for (unsigned i = 0; i < desc->n_fields; i++)
        if (desc->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
            check_no_cycle(desc->fields[i].descriptor, above, depth + 1);
}

TEST(no_message_that_a_server_reads_can_hold_itself)
{
    const ProtobufCMessageDescriptor *above[16];
    const struct rpc_method *method;
    for (size_t i = 0; (method = methods_at(i)); i++) {
        check_no_cycle(method->in, above, 0);
        check_no_cycle(method->out, above, 0);
        CHECK(methods_find(method->service, method->name) == method);
    }
    CHECK(!methods_find("steadfast.v1.Fleet", "SubmitJob"));
}

static void check_service(const ProtobufCServiceDescriptor *service)
{
    for (unsigned i = 0; i < service->n_methods; i++) {
        const ProtobufCMethodDescriptor *want = &service->methods[i];
        const struct rpc_method *method = methods_find(service->name, want->name);
        if (!method)
            test_fail(__FILE__, __LINE__, "no row of proto/methods.h for %s/%s", service->name,
                      want->name);
        CHECK(method->in == want->input && method->out == want->output);
    }
}

TEST(every_method_of_our_contracts_has_a_row_with_its_messages)
{
    check_service(&steadfast__v1__coordinator__descriptor);
    check_service(&steadfast__v1__fleet__descriptor);
    check_service(&steadfast__v1__parameter_server__descriptor);
}
