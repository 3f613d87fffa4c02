/* SPDX-License-Identifier: Apache-2.0 */
/* json: strict readers over jansson, whose errors say where, what is there and what was wanted.
 *
 *   optimizer.momentum: 1.5: want a number from 0 to less than 1
 *   TF_CONFIG: cluster.worker[1]: missing: want ...
 *   TF_CONFIG: not JSON: line 1, column 16, in cluster: found "x", want ':'
 *
 * A document is parsed whole. A struct json_at is a place in it that knows how it was reached;
 * places are values on the stack that point at their parent, so a parent outlives its children.
 *
 * Strictness. Refused when parsing: anything after the document, duplicate names in an object, NaN
 * and Infinity, whole numbers beyond a signed 64 bit one, others beyond a double, strings with
 * invalid UTF-8, NUL or unpaired surrogates, nesting over 2048. Refused by the readers: another
 * type than asked for, values out of range, unknown names (with the nearest known one). A whole
 * number is one that is written as one: 3.0 and 3e0 are refused where 3 is wanted, because whoever
 * writes 3.0 may as well write 2.5 tomorrow; 3 is fine where a number is wanted. null is a value
 * like any other and nowhere wanted.
 * Owns    a document owns its tree; strings that are read are the caller's, by malloc.
 * Thread  any, one at a time for one document.
 * Errors  ERR_INVALID; ERR_NO_MEMORY. Outputs are untouched on failure.
 */
#ifndef COMMON_FORMATS_JSON_H
#define COMMON_FORMATS_JSON_H

#include "common/base/base.h"
#include "common/base/err.h"

struct json_t; /* jansson */
struct json_doc;

struct json_at {
    const struct json_at *parent; /* NULL: the document itself */
    const char *key;              /* of a member; of the document: its origin or NULL */
    size_t index;                 /* of an element, when key is NULL */
    const struct json_t *value;   /* NULL: absent */
};

/* A member an object may have. variants: the bits of those kinds of object that take it. */
struct json_key {
    const char *name;
    uint32_t variants;
};
#define JSON_ANY_VARIANT UINT32_MAX

/* A word of a closed set. value < 0: known, and refused as not available yet. */
struct json_word {
    const char *word;
    int value;
};

struct json_range {
    double min, max;
    bool is_min_open, is_max_open; /* the bound itself is refused */
};

/* origin begins every error of this document ("TF_CONFIG", a file name); NULL: errors begin with
 * the path. */
MUST_CHECK enum err_code json_doc_parse(const char *origin, const char *text, size_t bytes,
                                        size_t limit_bytes, struct json_doc **ret_doc,
                                        struct err *err);
void json_doc_free(struct json_doc *doc);
DEFINE_AUTO(json_doc)
struct json_at json_doc_root(const struct json_doc *doc);

/* Members and elements of a place of the right type; absent ones have value NULL. */
struct json_at json_at_member(const struct json_at *at, const char *key);
struct json_at json_at_element(const struct json_at *at, size_t index);
/* The members of an object in the order of the text. *cursor is NULL at first; false at the end. */
bool json_at_next(const struct json_at *at, void **cursor, struct json_at *ret_member);
size_t json_at_count(const struct json_at *at); /* members or elements; 0 for everything else */
bool json_at_is_array(const struct json_at *at);
bool json_at_is_object(const struct json_at *at);
bool json_at_is_string(const struct json_at *at);
/* The string itself, a loan; NULL when it is none. Without NUL inside. */
const char *json_at_chars(const struct json_at *at);

/* ERR_INVALID with "path: value: want WANT"; "path: missing: want WANT" for an absent place. */
enum err_code json_at_fail(const struct json_at *at, struct err *err, const char *want, ...)
    PRINTF_LIKE(3, 4);
/* ERR_INVALID with "path: value: WHY". */
enum err_code json_at_refuse(const struct json_at *at, struct err *err, const char *why, ...)
    PRINTF_LIKE(3, 4);
/* The path without origin; "" for the document. */
void json_at_path(const struct json_at *at, char *ret_path, size_t path_size);

/* An object with no other members than these. A name that is known, but not to this variant (one
 * bit), is refused with the reason: "only OF takes it", OF being of[i] for the bits i of its
 * variants. */
MUST_CHECK enum err_code json_at_keys(const struct json_at *at, const struct json_key *keys,
                                      size_t key_count, uint32_t variant, const char *const *of,
                                      struct err *err);
MUST_CHECK enum err_code json_at_array(const struct json_at *at, size_t min_count, size_t max_count,
                                       const char *of_what, struct err *err);
MUST_CHECK enum err_code json_at_u64(const struct json_at *at, uint64_t min, uint64_t max,
                                     uint64_t *ret_value, struct err *err);
MUST_CHECK enum err_code json_at_u32(const struct json_at *at, uint32_t min, uint32_t max,
                                     uint32_t *ret_value, struct err *err);
MUST_CHECK enum err_code json_at_double(const struct json_at *at, struct json_range range,
                                        double *ret_value, struct err *err);
MUST_CHECK enum err_code json_at_bool(const struct json_at *at, bool *ret_value, struct err *err);
/* min_bytes to max_bytes long. */
MUST_CHECK enum err_code json_at_string(const struct json_at *at, size_t min_bytes,
                                        size_t max_bytes, char **ret_string, struct err *err);
MUST_CHECK enum err_code json_at_word(const struct json_at *at, const struct json_word *words,
                                      size_t word_count, int *ret_value, struct err *err);

#endif
