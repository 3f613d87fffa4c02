/* SPDX-License-Identifier: Apache-2.0 */
/* json_where: what a person needs to find a mistake in a JSON text: line, column, the path of the
 * place, the word that stands there, and what could have stood there instead.
 *
 * The parser says at which byte it gave up; this walks the text again up to there. It never fails:
 * text that is not JSON is what it is for.
 *
 * Owns    nothing; pointers in the answer point into the text. Thread: any.
 * Units   lines and columns count from 1, columns in characters (UTF-8), offsets in bytes from 0.
 */
#ifndef COMMON_FORMATS_JSON_WHERE_H
#define COMMON_FORMATS_JSON_WHERE_H

#include "common/base/base.h"

struct json_where {
    size_t line;
    size_t column;
    char path[160];    /* "cluster.worker[1]"; empty at the top */
    const char *token; /* what stands there; NULL at the end of the text */
    size_t token_bytes;
    const char *wanted;      /* "':'", "a value", ...; constant */
    bool wants_string;       /* a string could have stood there */
    bool is_after_comma;     /* the word before it is ',' */
    bool is_unclosed_string; /* the token is a string that never ends */
};

/* The first token that ends at or after offset. */
void json_where_find(const char *text, size_t bytes, size_t offset, struct json_where *ret_where);
/* Appends one step of a path: .key, ["odd key"] or [index] (key NULL). Truncates with "...". */
void json_where_append(char *path, size_t path_size, const char *key, size_t key_bytes,
                       size_t index);
/* A word for an error text: printable ASCII as it is, other bytes as \xNN, long ones cut with
 * "...". */
void json_where_show(const char *bytes, size_t count, char *ret_text, size_t text_size);

#endif
