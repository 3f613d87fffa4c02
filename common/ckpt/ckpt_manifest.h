/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_manifest: what makes one checkpoint, as `ckpt-<n>/manifest.json` says it.
 *
 * The tensors lie in safetensors files, one a shard. A slice of the manifest is a row range of a
 * variable in one of them, with the history (group) that it shares with others: after a restore to
 * another number of servers the pieces of one variable, and even of one slice of the plan, may have
 * seen different steps.
 *
 * The file is one JSON object whose last field is the crc32c of all bytes before that field, so
 * that every flipped or missing byte is found. Field by field: docs/checkpoint.md.
 *
 * Owns    struct ckpt_manifest owns everything it points to; made by ckpt_manifest_new or parse.
 * Thread  one at a time.
 * Errors  ERR_CORRUPT: a file that is not what a writer of ours makes; names file and field.
 *         ERR_INVALID: the caller's struct is inconsistent (checked before it is written).
 */
#ifndef COMMON_CKPT_CKPT_MANIFEST_H
#define COMMON_CKPT_CKPT_MANIFEST_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/base/limits.h"
#include "common/base/ranges.h"

#define CKPT_FORMAT        1
#define CKPT_MANIFEST_NAME "manifest.json"

struct ckpt_var {
    char *name;
    uint32_t rank;
    uint64_t shape[LIMIT_RANK];
    bool is_trainable;
};

struct ckpt_file {
    char *name; /* relative to the checkpoint's folder; no slash in it */
    uint64_t bytes;
    uint32_t crc32c;
    uint64_t version; /* of the shard's published values */
};

struct ckpt_group {
    uint64_t applied;    /* updates of its slices since their creation */
    struct ranges marks; /* steps that were applied to them */
};

struct ckpt_slice {
    uint32_t var; /* index into vars */
    uint64_t row_offset;
    uint64_t rows;
    uint32_t file;  /* index into files */
    uint32_t group; /* index into groups */
};

struct ckpt_manifest {
    char *job;
    char *spec_json;
    uint64_t generation;
    uint64_t number;
    uint64_t created_ms; /* wall clock */
    struct ckpt_var *vars;
    size_t var_count;
    struct ckpt_file *files;
    size_t file_count;
    struct ckpt_group *groups;
    size_t group_count;
    struct ckpt_slice *slices; /* together they cover every row of every variable exactly once */
    size_t slice_count;
    struct ranges acked; /* steps of the ledger that were durable before the first shard was cut */
    struct ranges abandoned; /* steps given up, a part of no marks that is waited for */
    uint32_t epoch; /* position in the data, for people: acked decides what is issued again */
    uint64_t batch;
};

struct ckpt_manifest *ckpt_manifest_new(void);
void ckpt_manifest_free(struct ckpt_manifest *manifest);
DEFINE_AUTO(ckpt_manifest)
/* Each returns the index of the new element; strings are copied. */
uint32_t ckpt_manifest_add_var(struct ckpt_manifest *manifest, const char *name, uint32_t rank,
                               const uint64_t *shape, bool is_trainable);
uint32_t ckpt_manifest_add_file(struct ckpt_manifest *manifest, const char *name, uint64_t bytes,
                                uint32_t crc32c, uint64_t version);
uint32_t ckpt_manifest_add_group(struct ckpt_manifest *manifest, uint64_t applied,
                                 const struct ranges *marks);
void ckpt_manifest_add_slice(struct ckpt_manifest *manifest, uint32_t var, uint64_t row_offset,
                             uint64_t rows, uint32_t file, uint32_t group);

/* Indices, names, sizes, and that the slices cover each variable once. ERR_INVALID names the
 * element. */
MUST_CHECK enum err_code ckpt_manifest_check(const struct ckpt_manifest *manifest, struct err *err);
/* The text of the file; free() it. */
MUST_CHECK enum err_code ckpt_manifest_print(const struct ckpt_manifest *manifest, char **ret_text,
                                             size_t *ret_bytes, struct err *err);
/* origin names the file in errors. */
MUST_CHECK enum err_code ckpt_manifest_parse(const char *origin, const char *text, size_t bytes,
                                             struct ckpt_manifest **ret_manifest, struct err *err);
/* Reads and parses folder/manifest.json. */
MUST_CHECK enum err_code ckpt_manifest_read(const char *folder, struct ckpt_manifest **ret_manifest,
                                            struct err *err);

uint64_t ckpt_var_rows(uint32_t rank, const uint64_t *shape);      /* 1 for rank 0 */
uint64_t ckpt_var_row_elems(uint32_t rank, const uint64_t *shape); /* elements of one row */
/* "name" for all rows, else "name[first:end]"; a slot's tensor adds "#slot". free() it. */
char *ckpt_tensor_key(const char *name, uint64_t all_rows, uint64_t row_offset, uint64_t rows,
                      const char *slot_or_null);

#endif
