/* SPDX-License-Identifier: Apache-2.0 */
/* json: parsing with useful errors, and the readers. */
#include "common/formats/json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/base/nearest.h"
#include "common/formats/json_where.h"

enum {
    VALUE_SHOWN = 64, /* characters of a value in an error; the whole text has ERR_TEXT_SIZE */
    PATH_SHOWN = 160,
};

struct json_doc {
    json_t *root;
    char *origin;
};

/* ---- parsing --------------------------------------------------------------------------------- */

/* Habits of other languages, by the word that stands there. */
static const char *hint_for(const struct json_where *where)
{
    static const struct {
        const char *begin;
        const char *hint;
    } hints[] = {
        {"'", "strings take double quotes"},
        {"True", "write true"},
        {"False", "write false"},
        {"None", "leave it out"},
        {"NaN", "every number is finite"},
        {"Infinity", "every number is finite"},
        {"-Infinity", "every number is finite"},
        {"//", "there are no comments"},
        {"/*", "there are no comments"},
        {"#", "there are no comments"},
        {"\xef\xbb\xbf", "save the file without a byte order mark"},
    };
    if (!where->token)
        return NULL;
    for (size_t i = 0; i < ARRAY_SIZE(hints); i++) {
        size_t n = strlen(hints[i].begin);
        if (where->token_bytes >= n && memcmp(where->token, hints[i].begin, n) == 0)
            return hints[i].hint;
    }
    if (where->is_after_comma && (where->token[0] == '}' || where->token[0] == ']'))
        return "no comma after the last one";
    return NULL;
}

static enum err_code fail_parse(const char *origin, const char *text, size_t bytes,
                                const json_error_t *error, struct err *err)
{
    enum json_error_code code = json_error_code(error);
    if (code == json_error_out_of_memory)
        return err_set(err, ERR_NO_MEMORY, "out of memory while parsing JSON");
    /* The position is behind the word at fault, except for a byte that is not UTF-8: it is that
     * byte. */
    size_t offset = MIN((size_t)MAX(error->position, 0), bytes);
    bool is_end = code == json_error_premature_end_of_input;
    struct json_where where;
    json_where_find(text, bytes, is_end ? bytes : offset + (code == json_error_invalid_utf8),
                    &where);
    if (is_end && !where.is_unclosed_string)
        json_where_find(text, bytes, bytes + 1, &where);

    char place[PATH_SHOWN + 80];
    snprintf(place, sizeof(place), "line %zu, column %zu%s%s", where.line, where.column,
             where.path[0] ? ", in " : "", where.path);
    const char *colon = origin ? ": " : "";
    origin = origin ? origin : "";
    char token[VALUE_SHOWN] = "the end of the text";
    if (where.token)
        json_where_show(where.token, where.token_bytes, token, sizeof(token));
    bool is_string = where.token && where.token[0] == '"';

    switch (code) { /* what is JSON, but not to us */
    case json_error_duplicate_key:
        return err_set(err, ERR_INVALID, "%s%s%s: the name %s a second time in one object", origin,
                       colon, place, token);
    case json_error_numeric_overflow:
        return err_set(err, ERR_INVALID, "%s%s%s: %s: want a number from %s", origin, colon, place,
                       token,
                       strpbrk(token, ".eE") ? "-1.8e308 to 1.8e308"
                                             : "-9223372036854775808 to 9223372036854775807");
    case json_error_null_character:
    case json_error_null_byte_in_key:
        return err_set(err, ERR_INVALID, "%s%s%s: %s: want a string without \\u0000", origin, colon,
                       place, token);
    case json_error_invalid_utf8:
        return err_set(err, ERR_INVALID, "%s%s%s: %s: want UTF-8", origin, colon, place, token);
    case json_error_stack_overflow:
        return err_set(err, ERR_INVALID, "%s%s%s: want at most %d levels of nesting", origin, colon,
                       place, 2048);
    default:
        break;
    }
    if (where.is_unclosed_string)
        return err_set(err, ERR_INVALID, "%s%snot JSON: %s: found %s, want a closing double quote",
                       origin, colon, place, token);
    if (is_string && where.wants_string) { /* the string itself is at fault; jansson says how */
        const char *near = strstr(error->text, " near ");
        int words = near ? (int)(near - error->text) : (int)strlen(error->text);
        return err_set(err, ERR_INVALID, "%s%snot JSON: %s: found %s: %.*s", origin, colon, place,
                       token, words, error->text);
    }
    const char *hint = hint_for(&where);
    return err_set(err, ERR_INVALID, "%s%snot JSON: %s: found %s, want %s%s%s%s", origin, colon,
                   place, token, where.wanted, hint ? " (" : "", hint ? hint : "", hint ? ")" : "");
}

enum err_code json_doc_parse(const char *origin, const char *text, size_t bytes, size_t limit_bytes,
                             struct json_doc **ret_doc, struct err *err)
{
    const char *colon = origin ? ": " : "";
    const char *name = origin ? origin : "";
    if (bytes > limit_bytes)
        return err_set(err, ERR_INVALID, "%s%s%zu bytes: want at most %zu", name, colon, bytes,
                       limit_bytes);
    size_t blanks = 0;
    while (blanks < bytes && text[blanks] != '\0' && strchr(" \t\r\n", text[blanks]))
        blanks++;
    if (blanks == bytes)
        return err_set(err, ERR_INVALID, "%s%sempty: want a JSON object", name, colon);

    const char *nul = memchr(text, '\0', bytes); /* which jansson would take for the end */
    if (nul) {
        struct json_where where;
        json_where_find(text, bytes, (size_t)(nul - text) + 1, &where);
        return err_set(err, ERR_INVALID, "%s%snot JSON: line %zu, column %zu: found a NUL byte",
                       name, colon, where.line, where.column);
    }

    AUTO(json_doc) doc = calloc(1, sizeof(*doc));
    if (!doc || (origin && !(doc->origin = strdup(origin))))
        return err_set(err, ERR_NO_MEMORY, "out of memory while parsing JSON");
    json_error_t error = {0};
    doc->root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!doc->root)
        return fail_parse(origin, text, bytes, &error, err);
    *ret_doc = TAKE(doc);
    return ERR_OK;
}

void json_doc_free(struct json_doc *doc)
{
    if (!doc)
        return;
    json_decref(doc->root);
    free(doc->origin);
    free(doc);
}

struct json_at json_doc_root(const struct json_doc *doc)
{
    return (struct json_at){.parent = NULL, .key = doc->origin, .index = 0, .value = doc->root};
}

/* ---- places ---------------------------------------------------------------------------------- */

struct json_at json_at_member(const struct json_at *at, const char *key)
{
    ASSERT(key);
    return (struct json_at){
        .parent = at, .key = key, .index = 0, .value = json_object_get(at->value, key)};
}

struct json_at json_at_element(const struct json_at *at, size_t index)
{
    return (struct json_at){
        .parent = at, .key = NULL, .index = index, .value = json_array_get(at->value, index)};
}

bool json_at_next(const struct json_at *at, void **cursor, struct json_at *ret_member)
{
    json_t *object =
        (json_t *)at->value; /* iterating changes nothing; jansson's type says otherwise */
    *cursor = *cursor ? json_object_iter_next(object, *cursor) : json_object_iter(object);
    if (!*cursor)
        return false;
    *ret_member = (struct json_at){.parent = at,
                                   .key = json_object_iter_key(*cursor),
                                   .index = 0,
                                   .value = json_object_iter_value(*cursor)};
    return true;
}

size_t json_at_count(const struct json_at *at)
{
    return json_is_array(at->value) ? json_array_size(at->value) : json_object_size(at->value);
}

bool json_at_is_array(const struct json_at *at)
{
    return json_is_array(at->value);
}

bool json_at_is_object(const struct json_at *at)
{
    return json_is_object(at->value);
}

bool json_at_is_string(const struct json_at *at)
{
    return json_is_string(at->value);
}

const char *json_at_chars(const struct json_at *at)
{
    return json_string_value(at->value);
}

/* ---- words for errors ------------------------------------------------------------------------ */

static void append_path(const struct json_at *at, char *path, size_t size)
{
    if (!at->parent)
        return;
    append_path(at->parent, path, size);
    json_where_append(path, size, at->key, at->key ? strlen(at->key) : 0, at->index);
}

void json_at_path(const struct json_at *at, char *ret_path, size_t path_size)
{
    ret_path[0] = '\0';
    append_path(at, ret_path, path_size);
}

/* "origin: path", or "top level" where both are empty. */
static void show_place(const struct json_at *at, char *place, size_t size)
{
    char path[PATH_SHOWN];
    json_at_path(at, path, sizeof(path));
    const struct json_at *root = at;
    while (root->parent)
        root = root->parent;
    if (root->key)
        snprintf(place, size, "%.100s%s%s", root->key, path[0] ? ": " : "", path);
    else
        snprintf(place, size, "%s", path[0] ? path : "top level");
}

struct shown {
    char text[VALUE_SHOWN];
    size_t used;
};

/* Stops the dump when there is enough, so that a large value costs no more than a small one. */
static int add_shown(const char *bytes, size_t count, void *data)
{
    struct shown *shown = data;
    size_t room = sizeof(shown->text) - 1 - shown->used;
    memcpy(shown->text + shown->used, bytes, MIN(count, room));
    shown->used += MIN(count, room);
    return count > room ? -1 : 0;
}

static void show_value(const json_t *value, struct shown *shown)
{
    memset(shown, 0, sizeof(*shown));
    int rc = json_dump_callback(value, add_shown, shown,
                                JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII |
                                    JSON_REAL_PRECISION(15));
    if (rc != 0 && shown->used >= 3)
        memcpy(shown->text + shown->used - 3, "...", 4);
}

PRINTF_LIKE(4, 0)
static enum err_code fail_va(const struct json_at *at, struct err *err, const char *verb,
                             const char *fmt, va_list ap)
{
    char place[PATH_SHOWN + 120];
    show_place(at, place, sizeof(place));
    struct shown shown = {.text = "missing"};
    if (at->value)
        show_value(at->value, &shown);
    char words[ERR_TEXT_SIZE];
    vsnprintf(words, sizeof(words), fmt, ap);
    return err_set(err, ERR_INVALID, "%s: %s: %s%s", place, shown.text, verb, words);
}

enum err_code json_at_fail(const struct json_at *at, struct err *err, const char *want, ...)
{
    va_list ap;
    va_start(ap, want);
    enum err_code code = fail_va(at, err, "want ", want, ap);
    va_end(ap);
    return code;
}

enum err_code json_at_refuse(const struct json_at *at, struct err *err, const char *why, ...)
{
    va_list ap;
    va_start(ap, why);
    enum err_code code = fail_va(at, err, "", why, ap);
    va_end(ap);
    return code;
}

/* Adds "a", ", b" or " or c" to a list. */
static void add_to_list(char *list, size_t size, const char *word, bool is_first, bool is_last,
                        const char *last_joint)
{
    size_t used = strlen(list);
    snprintf(list + used, size - used, "%s%s", is_first ? "" : is_last ? last_joint : ", ", word);
}

/* ---- readers --------------------------------------------------------------------------------- */

static enum err_code fail_unknown(const struct json_at *member, const struct json_key *keys,
                                  size_t key_count, uint32_t variant, struct err *err)
{
    struct nearest nearest;
    nearest_init(&nearest, member->key);
    for (size_t k = 0; k < key_count; k++)
        nearest_offer(&nearest, keys[k].name);
    if (nearest.best)
        return json_at_refuse(member, err, "unknown name; did you mean \"%s\"?", nearest.best);
    char list[240] = "";
    for (size_t k = 0; k < key_count; k++)
        if (keys[k].variants & variant)
            add_to_list(list, sizeof(list), keys[k].name, list[0] == '\0', false, NULL);
    return json_at_refuse(member, err, "unknown name; known: %s", list);
}

enum err_code json_at_keys(const struct json_at *at, const struct json_key *keys, size_t key_count,
                           uint32_t variant, const char *const *of, struct err *err)
{
    if (!json_is_object(at->value))
        return json_at_fail(at, err, "an object");
    void *cursor = NULL;
    struct json_at member;
    while (json_at_next(at, &cursor, &member)) {
        size_t k = 0;
        while (k < key_count && strcmp(keys[k].name, member.key) != 0)
            k++;
        if (k == key_count)
            return fail_unknown(&member, keys, key_count, variant, err);
        if (keys[k].variants & variant)
            continue;
        char list[160] = "";
        uint32_t rest = keys[k].variants;
        for (uint32_t i = 0; rest; i++, rest >>= 1)
            if (rest & 1)
                add_to_list(list, sizeof(list), of[i], list[0] == '\0', rest == 1, " and ");
        const char *mine = of[__builtin_ctz(variant)];
        bool is_one = __builtin_popcount(keys[k].variants) == 1;
        return json_at_refuse(&member, err, "does not belong to %s; only %s %s it", mine, list,
                              is_one ? "takes" : "take");
    }
    return ERR_OK;
}

enum err_code json_at_array(const struct json_at *at, size_t min_count, size_t max_count,
                            const char *of_what, struct err *err)
{
    size_t count = json_array_size(at->value);
    if (json_is_array(at->value) && count >= min_count && count <= max_count)
        return ERR_OK;
    if (min_count == max_count)
        return json_at_fail(at, err, "an array of %zu %s", min_count, of_what);
    return json_at_fail(at, err, "an array of %zu to %zu %s", min_count, max_count, of_what);
}

enum err_code json_at_u64(const struct json_at *at, uint64_t min, uint64_t max, uint64_t *ret_value,
                          struct err *err)
{
    if (json_is_real(at->value))
        return json_at_fail(
            at, err, "a whole number from %" PRIu64 " to %" PRIu64 ", without point or exponent",
            min, max);
    json_int_t value = json_integer_value(at->value);
    bool is_good = json_is_integer(at->value) && value >= 0 && (uint64_t)value >= min &&
                   (uint64_t)value <= max;
    if (!is_good && min == max)
        return json_at_fail(at, err, "%" PRIu64, min);
    if (!is_good)
        return json_at_fail(at, err, "a whole number from %" PRIu64 " to %" PRIu64, min, max);
    *ret_value = (uint64_t)value;
    return ERR_OK;
}

enum err_code json_at_u32(const struct json_at *at, uint32_t min, uint32_t max, uint32_t *ret_value,
                          struct err *err)
{
    uint64_t value = 0;
    enum err_code code = json_at_u64(at, min, max, &value, err);
    if (code == ERR_OK)
        *ret_value = (uint32_t)value;
    return code;
}

enum err_code json_at_double(const struct json_at *at, struct json_range range, double *ret_value,
                             struct err *err)
{
    double value = json_number_value(at->value);
    /* Written so that a NaN would fail, although the parser lets none in. */
    bool is_above = range.is_min_open ? value > range.min : value >= range.min;
    bool is_below = range.is_max_open ? value < range.max : value <= range.max;
    if (!json_is_number(at->value) || !is_above || !is_below)
        return json_at_fail(at, err, "a number %s %.15g %s %.15g",
                            range.is_min_open ? "greater than" : "from", range.min,
                            range.is_max_open   ? "to less than"
                            : range.is_min_open ? "and at most"
                                                : "to",
                            range.max);
    *ret_value = value;
    return ERR_OK;
}

enum err_code json_at_bool(const struct json_at *at, bool *ret_value, struct err *err)
{
    if (!json_is_boolean(at->value))
        return json_at_fail(at, err, "true or false");
    *ret_value = json_is_true(at->value);
    return ERR_OK;
}

enum err_code json_at_string(const struct json_at *at, size_t min_bytes, size_t max_bytes,
                             char **ret_string, struct err *err)
{
    size_t bytes = json_string_length(at->value);
    if (!json_is_string(at->value) || bytes < min_bytes || bytes > max_bytes)
        return json_at_fail(at, err, "a string of %zu to %zu bytes", min_bytes, max_bytes);
    ASSERT(strlen(json_string_value(at->value)) == bytes); /* the parser lets no NUL in */
    char *copy = strdup(json_string_value(at->value));
    if (!copy)
        return err_set(err, ERR_NO_MEMORY, "out of memory for a string of %zu bytes", bytes);
    *ret_string = copy;
    return ERR_OK;
}

enum err_code json_at_word(const struct json_at *at, const struct json_word *words,
                           size_t word_count, int *ret_value, struct err *err)
{
    const char *chars = json_string_value(at->value);
    size_t available = 0;
    for (size_t w = 0; w < word_count; w++)
        available += words[w].value >= 0;
    char list[200] = "";
    size_t listed = 0;
    for (size_t w = 0; w < word_count; w++) {
        if (words[w].value < 0)
            continue;
        listed++;
        add_to_list(list, sizeof(list), words[w].word, listed == 1, listed == available, " or ");
    }
    for (size_t w = 0; chars && w < word_count; w++) {
        if (strcmp(words[w].word, chars) != 0)
            continue;
        if (words[w].value < 0)
            return json_at_refuse(at, err, "not available yet; want %s", list);
        *ret_value = words[w].value;
        return ERR_OK;
    }
    return json_at_fail(at, err, "%s", list);
}
