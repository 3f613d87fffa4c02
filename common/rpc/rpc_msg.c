/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_msg: arena, blobs, views, packing and unpacking. */
#include "common/rpc/rpc_msg.h"

#include <grpc/slice.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"

#define ARENA_FIRST_BYTES 1024
#define ARENA_ALIGN       16
#define REST_STACK_BYTES  1024 /* a chunk's header is under 64 bytes */

/* ---- arena ----------------------------------------------------------------------------------- */
struct rpc_block {
    struct rpc_block *next;
    size_t size; /* of bytes */
    size_t used;
    _Alignas(ARENA_ALIGN) uint8_t bytes[];
};

struct arena {
    struct rpc_block *blocks; /* newest first */
    size_t given;             /* over all blocks */
    bool is_over;             /* the bound was reached */
    bool is_short;            /* malloc had no more */
};

static void *arena_alloc(void *arg, size_t size)
{
    struct arena *arena = arg;
    if (size > LIMIT_RPC_ARENA_BYTES) {
        arena->is_over = true;
        return NULL;
    }
    size = (size + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    if (arena->given + size > LIMIT_RPC_ARENA_BYTES) {
        arena->is_over = true;
        return NULL;
    }
    struct rpc_block *block = arena->blocks;
    if (!block || block->size - block->used < size) {
        size_t want = MAX(size, block ? block->size * 2 : ARENA_FIRST_BYTES);
        block = malloc(sizeof(*block) + want);
        if (!block) {
            arena->is_short = true;
            return NULL;
        }
        *block = (struct rpc_block){.next = arena->blocks, .size = want};
        arena->blocks = block;
    }
    void *p = block->bytes + block->used;
    block->used += size;
    arena->given += size;
    return p;
}

static void arena_free(void *arg, void *p)
{
    (void)arg;
    (void)p; /* all of it goes at once */
}

static void blocks_free(struct rpc_block *block)
{
    while (block) {
        struct rpc_block *next = block->next;
        free(block);
        block = next;
    }
}

/* ---- blobs ----------------------------------------------------------------------------------- */
struct rpc_blob {
    atomic_uint refs;
    const void *data;
    size_t bytes;
    void (*free_any)(void *arg);
    void *arg;
};

struct rpc_blob *rpc_blob_wrap(const void *data, size_t bytes, void (*free_any)(void *arg),
                               void *arg)
{
    struct rpc_blob *blob = base_alloc(sizeof(*blob));
    atomic_init(&blob->refs, 1);
    blob->data = data;
    blob->bytes = bytes;
    blob->free_any = free_any;
    blob->arg = arg;
    return blob;
}

struct rpc_blob *rpc_blob_ref(struct rpc_blob *blob)
{
    atomic_fetch_add_explicit(&blob->refs, 1, memory_order_relaxed);
    return blob;
}

void rpc_blob_unref(struct rpc_blob *blob)
{
    if (!blob || atomic_fetch_sub_explicit(&blob->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (blob->free_any)
        blob->free_any(blob->arg);
    free(blob);
}

static void unref_slice_blob(void *arg)
{
    rpc_blob_unref(arg);
}

/* ---- packing --------------------------------------------------------------------------------- */
static size_t put_varint(uint8_t *at, uint64_t value)
{
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        at[n++] = (uint8_t)(value | 0x80);
    at[n++] = (uint8_t)value;
    return n;
}

enum err_code rpc_msg_pack(const struct rpc_out *out, grpc_byte_buffer **ret_buffer,
                           size_t *ret_bytes, struct err *err)
{
    const ProtobufCMessage *message = out->message;
    uint8_t head[11]; /* tag and length of the payload */
    size_t head_bytes = 0;
    if (out->blob) {
        ASSERT(out->offset <= out->blob->bytes && out->bytes <= out->blob->bytes - out->offset);
        head[0] = RPC_PAYLOAD_FIELD << 3 | 2; /* length-delimited */
        head_bytes = 1 + put_varint(head + 1, out->bytes);
    }
    size_t message_bytes = protobuf_c_message_get_packed_size(message);
    size_t total = message_bytes + head_bytes + (out->blob ? out->bytes : 0);
    if (total > LIMIT_RPC_MESSAGE_BYTES)
        return err_set(err, ERR_INVALID, "message %s of %zu bytes, want at most %u",
                       message->descriptor->name, total, LIMIT_RPC_MESSAGE_BYTES);

    grpc_slice slices[2];
    size_t count = 1;
    slices[0] = grpc_slice_malloc(message_bytes + head_bytes);
    uint8_t *at = GRPC_SLICE_START_PTR(slices[0]);
    size_t packed = protobuf_c_message_pack(message, at);
    ASSERT(packed == message_bytes);
    memcpy(at + message_bytes, head, head_bytes);
    if (out->blob && out->bytes > 0)
        slices[count++] =
            grpc_slice_new_with_user_data((uint8_t *)out->blob->data + out->offset, out->bytes,
                                          unref_slice_blob, rpc_blob_ref(out->blob));
    *ret_buffer = grpc_raw_byte_buffer_create(slices, count);
    *ret_bytes = total;
    for (size_t i = 0; i < count; i++)
        grpc_slice_unref(slices[i]); /* the byte buffer holds its own references */
    return ERR_OK;
}

/* ---- views ----------------------------------------------------------------------------------- */
struct rpc_view {
    atomic_uint refs;
    grpc_byte_buffer *buffer;
    size_t offset; /* of the payload in the buffer */
    size_t bytes;
};

/* Copies [offset, offset + bytes) of the slices. */
static void copy_out(const grpc_slice_buffer *slices, size_t offset, uint8_t *dst, size_t bytes)
{
    for (size_t i = 0; bytes > 0; i++) {
        ASSERT(i < slices->count);
        size_t len = GRPC_SLICE_LENGTH(slices->slices[i]);
        if (offset >= len) {
            offset -= len;
            continue;
        }
        size_t n = MIN(len - offset, bytes);
        memcpy(dst, GRPC_SLICE_START_PTR(slices->slices[i]) + offset, n);
        dst += n;
        bytes -= n;
        offset = 0;
    }
}

size_t rpc_view_bytes(const struct rpc_view *view)
{
    return view->bytes;
}

void rpc_view_copy(const struct rpc_view *view, size_t offset, void *dst, size_t bytes)
{
    ASSERT(offset <= view->bytes && bytes <= view->bytes - offset);
    copy_out(&view->buffer->data.raw.slice_buffer, view->offset + offset, dst, bytes);
}

struct rpc_view *rpc_view_take(const struct rpc_in *in)
{
    struct rpc_view *view = (struct rpc_view *)in->view;
    if (view)
        atomic_fetch_add_explicit(&view->refs, 1, memory_order_relaxed);
    return view;
}

void rpc_view_free(struct rpc_view *view)
{
    if (!view || atomic_fetch_sub_explicit(&view->refs, 1, memory_order_acq_rel) != 1)
        return;
    grpc_byte_buffer_destroy(view->buffer);
    free(view);
}

/* ---- unpacking ------------------------------------------------------------------------------- */
struct cursor { /* walks over the slices */
    const grpc_slice_buffer *slices;
    size_t index; /* of the slice */
    size_t at;    /* in the slice */
    size_t pos;   /* in the message */
};

static bool cursor_skip(struct cursor *c, uint64_t bytes)
{
    if (bytes > c->slices->length - c->pos)
        return false;
    c->pos += bytes;
    while (bytes > 0) {
        size_t left = GRPC_SLICE_LENGTH(c->slices->slices[c->index]) - c->at;
        size_t n = MIN(left, bytes);
        c->at += n;
        bytes -= n;
        if (n == left) {
            c->index++;
            c->at = 0;
        }
    }
    return true;
}

static bool cursor_varint(struct cursor *c, uint64_t *ret_value)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        while (c->index < c->slices->count &&
               c->at == GRPC_SLICE_LENGTH(c->slices->slices[c->index])) {
            c->index++;
            c->at = 0;
        }
        if (c->index == c->slices->count)
            return false;
        uint8_t byte = GRPC_SLICE_START_PTR(c->slices->slices[c->index])[c->at++];
        c->pos++;
        value |= shift < 64 ? (uint64_t)(byte & 0x7f) << shift : 0;
        if (!(byte & 0x80)) {
            *ret_value = value;
            return true;
        }
    }
    return false;
}

struct field {
    size_t start; /* of its tag */
    size_t end;
    size_t payload; /* first byte of field 15's content; only when is_payload */
    bool is_payload;
};

/* False: not protobuf, or a group. */
static bool next_field(struct cursor *c, struct field *ret_field)
{
    struct field field = {.start = c->pos};
    uint64_t tag, value;
    if (!cursor_varint(c, &tag))
        return false;
    bool ok = false;
    switch (tag & 7) {
    case 0:
        ok = cursor_varint(c, &value);
        break;
    case 1:
        ok = cursor_skip(c, 8);
        break;
    case 2:
        ok = cursor_varint(c, &value);
        field.is_payload = tag >> 3 == RPC_PAYLOAD_FIELD;
        field.payload = c->pos;
        ok = ok && cursor_skip(c, value);
        break;
    case 5:
        ok = cursor_skip(c, 4);
        break;
    default:
        break;
    }
    field.end = c->pos;
    *ret_field = field;
    return ok;
}

/* Where the last field 15 lies, as protobuf has it, and how many bytes are not of such fields. */
static bool find_payload(const grpc_slice_buffer *slices, size_t *ret_offset, size_t *ret_bytes,
                         bool *ret_is_present, size_t *ret_rest)
{
    struct cursor c = {.slices = slices};
    struct field field;
    *ret_rest = 0;
    *ret_is_present = false;
    while (c.pos < slices->length) {
        if (!next_field(&c, &field))
            return false;
        if (field.is_payload) {
            *ret_is_present = true;
            *ret_offset = field.payload;
            *ret_bytes = field.end - field.payload;
        } else {
            *ret_rest += field.end - field.start;
        }
    }
    return true;
}

static void copy_rest(const grpc_slice_buffer *slices, uint8_t *dst)
{
    struct cursor c = {.slices = slices};
    struct field field;
    while (c.pos < slices->length) {
        bool ok = next_field(&c, &field);
        ASSERT(ok); /* find_payload went over the same bytes */
        if (field.is_payload)
            continue;
        copy_out(slices, field.start, dst, field.end - field.start);
        dst += field.end - field.start;
    }
}

enum err_code rpc_msg_unpack(const ProtobufCMessageDescriptor *desc, bool has_payload,
                             grpc_byte_buffer *take_buffer, struct rpc_msg *ret_msg,
                             struct err *err)
{
    const grpc_slice_buffer *slices = &take_buffer->data.raw.slice_buffer;
    uint8_t stack[REST_STACK_BYTES];
    uint8_t *heap = NULL;
    const uint8_t *bytes = stack;
    size_t rest = slices->length, offset = 0, payload = 0;
    bool is_present = false;
    struct arena arena = {0};
    ProtobufCAllocator allocator = {arena_alloc, arena_free, &arena};
    ProtobufCMessage *message = NULL;
    enum err_code code = ERR_OK;

    if (take_buffer->data.raw.compression != GRPC_COMPRESS_NONE) {
        code = err_set(err, ERR_INVALID, "message %s is compressed, want it plain", desc->name);
        goto out;
    }
    if (has_payload && !find_payload(slices, &offset, &payload, &is_present, &rest)) {
        code = err_set(err, ERR_INVALID, "%zu bytes are no message %s", slices->length, desc->name);
        goto out;
    }
    if (!is_present && slices->count == 1) {
        bytes = GRPC_SLICE_START_PTR(slices->slices[0]);
    } else {
        if (rest > sizeof(stack)) {
            heap = malloc(rest);
            if (!heap) {
                code = err_set(err, ERR_NO_MEMORY, "no memory for a message %s of %zu bytes",
                               desc->name, rest);
                goto out;
            }
            bytes = heap;
        }
        if (is_present)
            copy_rest(slices, heap ? heap : stack);
        else
            copy_out(slices, 0, heap ? heap : stack, rest);
    }
    message = protobuf_c_message_unpack(desc, &allocator, rest, bytes);
    if (!message) {
        if (arena.is_short)
            code = err_set(err, ERR_NO_MEMORY, "no memory to unpack a message %s of %zu bytes",
                           desc->name, slices->length);
        else if (arena.is_over)
            code = err_set(err, ERR_INVALID, "message %s of %zu bytes unpacks to over %u bytes",
                           desc->name, slices->length, LIMIT_RPC_ARENA_BYTES);
        else
            code = err_set(err, ERR_INVALID, "%zu bytes are no message %s", slices->length,
                           desc->name);
        goto out;
    }
    *ret_msg = (struct rpc_msg){.message = message, .blocks = TAKE(arena.blocks)};
    if (is_present) {
        struct rpc_view *view = base_alloc(sizeof(*view));
        atomic_init(&view->refs, 1);
        view->buffer = TAKE(take_buffer);
        view->offset = offset;
        view->bytes = payload;
        ret_msg->view = view;
    }
out:
    blocks_free(arena.blocks);
    free(heap);
    if (take_buffer)
        grpc_byte_buffer_destroy(take_buffer);
    return code;
}

void rpc_msg_done(struct rpc_msg *msg)
{
    rpc_view_free(msg->view);
    blocks_free(msg->blocks);
    *msg = (struct rpc_msg){0};
}
