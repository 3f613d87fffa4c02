/* SPDX-License-Identifier: Apache-2.0 */
/* json_where: a token walker with a stack of open containers.
 *
 * State of a container, and the moves between them:
 *   object: KEY_OR_END -> COLON -> VALUE -> COMMA_OR_END -> KEY -> COLON ...
 *   array:  VALUE_OR_END -> COMMA_OR_END -> VALUE -> COMMA_OR_END ...
 *   text:   VALUE -> END
 */
#include "common/formats/json_where.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum place { KEY_OR_END, KEY, COLON, VALUE, VALUE_OR_END, COMMA_OR_END, END };

/* Deeper containers are walked, but no longer named in the path. */
enum { DEPTH_NAMED = 32 };

struct frame {
    bool is_array;
    enum place place;
    size_t index;
    const char *key; /* inside the quotes; NULL: none read yet */
    size_t key_bytes;
};

struct walk {
    struct frame frames[DEPTH_NAMED + 1]; /* [0] is the text itself */
    size_t depth;                         /* of the innermost open container; 0: none */
};

static struct frame *top(struct walk *walk)
{
    return &walk->frames[MIN(walk->depth, (size_t)DEPTH_NAMED)];
}

static void after_value(struct walk *walk)
{
    top(walk)->place = walk->depth == 0 ? END : COMMA_OR_END;
}

static void step_over(struct walk *walk, const char *token, size_t bytes)
{
    struct frame *frame = top(walk);
    switch (token[0]) {
    case '{':
    case '[':
        walk->depth++;
        *top(walk) = (struct frame){.is_array = token[0] == '[',
                                    .place = token[0] == '[' ? VALUE_OR_END : KEY_OR_END};
        return;
    case '}':
    case ']':
        if (walk->depth > 0)
            walk->depth--;
        after_value(walk);
        return;
    case ':':
        frame->place = VALUE;
        return;
    case ',':
        frame->place = frame->is_array ? VALUE : KEY;
        frame->index += frame->is_array;
        frame->key = NULL;
        return;
    case '"':
        if (frame->place == KEY || frame->place == KEY_OR_END) {
            frame->key = token + 1;
            frame->key_bytes = bytes >= 2 ? bytes - 2 : 0;
            frame->place = COLON;
            return;
        }
        after_value(walk);
        return;
    default:
        after_value(walk);
        return;
    }
}

static size_t token_length(const char *at, size_t left, bool *ret_is_unclosed)
{
    *ret_is_unclosed = false;
    if (strchr("{}[]:,", at[0]) && at[0] != '\0')
        return 1;
    if (at[0] == '"') {
        for (size_t i = 1; i < left; i++) {
            if (at[i] == '\\')
                i++;
            else if (at[i] == '"')
                return i + 1;
        }
        *ret_is_unclosed = true;
        return left;
    }
    size_t n = 1;
    while (n < left && at[n] != '\0' && !strchr("{}[]:,\" \t\r\n", at[n]))
        n++;
    return n;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static const char *wanted_at(const struct frame *frame)
{
    switch (frame->place) {
    case KEY_OR_END:
        return "a name in double quotes or '}'";
    case KEY:
        return "a name in double quotes";
    case COLON:
        return "':'";
    case VALUE:
        return "a value";
    case VALUE_OR_END:
        return "a value or ']'";
    case COMMA_OR_END:
        return frame->is_array ? "',' or ']'" : "',' or '}'";
    case END:
        return "nothing more";
    }
    return "";
}

void json_where_append(char *path, size_t path_size, const char *key, size_t key_bytes,
                       size_t index)
{
    size_t used = strlen(path);
    if (used >= 4 && strcmp(path + used - 3, "...") == 0)
        return;
    char shown[80];
    bool is_plain = key && key_bytes > 0 && (isalpha((unsigned char)key[0]) || key[0] == '_');
    for (size_t i = 0; is_plain && i < key_bytes; i++)
        is_plain = isalnum((unsigned char)key[i]) || key[i] == '_' || key[i] == '-';
    int n;
    if (key) {
        json_where_show(key, key_bytes, shown, sizeof(shown));
        n = is_plain ? snprintf(path + used, path_size - used, "%s%s", used ? "." : "", shown)
                     : snprintf(path + used, path_size - used, "[\"%s\"]", shown);
    } else {
        n = snprintf(path + used, path_size - used, "[%zu]", index);
    }
    if (n < 0 || (size_t)n >= path_size - used)
        memcpy(path + MIN(used, path_size - 4), "...", 4);
}

void json_where_show(const char *bytes, size_t count, char *ret_text, size_t text_size)
{
    size_t used = 0;
    ASSERT(text_size >= 8);
    for (size_t i = 0; i < count; i++) {
        unsigned char c = (unsigned char)bytes[i];
        bool is_print = c >= 0x20 && c < 0x7f;
        /* room for this one, "..." and the end */
        if (used + (is_print ? 1 : 4) + 4 > text_size) {
            memcpy(ret_text + used, "...", 4);
            return;
        }
        if (is_print)
            ret_text[used++] = (char)c;
        else
            used += (size_t)snprintf(ret_text + used, text_size - used, "\\x%02x", c);
    }
    ret_text[used] = '\0';
}

void json_where_find(const char *text, size_t bytes, size_t offset, struct json_where *ret_where)
{
    struct json_where where = {.line = 1, .column = 1};
    struct walk walk = {.depth = 0};
    walk.frames[0].place = VALUE;
    size_t at = 0;
    size_t length = 0;

    for (;;) {
        while (at < bytes && is_blank(text[at]))
            at++;
        if (at >= bytes)
            break;
        length = token_length(text + at, bytes - at, &where.is_unclosed_string);
        if (at + length >= offset)
            break;
        where.is_after_comma = text[at] == ',';
        step_over(&walk, text + at, length);
        at += length;
    }
    if (at < bytes) {
        where.token = text + at;
        where.token_bytes = length;
    }
    for (size_t i = 0; i < at && i < bytes; i++) {
        if (text[i] == '\n') {
            where.line++;
            where.column = 1;
        } else if (((unsigned char)text[i] & 0xc0) != 0x80) {
            where.column++;
        }
    }
    for (size_t d = 1; d <= MIN(walk.depth, (size_t)DEPTH_NAMED); d++) {
        const struct frame *frame = &walk.frames[d];
        if (frame->is_array || frame->key)
            json_where_append(where.path, sizeof(where.path), frame->is_array ? NULL : frame->key,
                              frame->key_bytes, frame->index);
    }
    enum place place = top(&walk)->place;
    where.wanted = place == VALUE && walk.depth == 0 ? "a JSON object" : wanted_at(top(&walk));
    where.wants_string =
        place == KEY || place == KEY_OR_END || place == VALUE || place == VALUE_OR_END;
    *ret_where = where;
}
