/* SPDX-License-Identifier: Apache-2.0 */
/* flags: the words are read twice, first to check and then to store, so that a refused command line
 * has changed nothing.
 */
#include "common/daemon/flags.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/nearest.h"

enum { FLAG_COUNT_MAX = 64 }; /* bits of the set of options seen */

static bool is_number_kind(enum flag_kind kind)
{
    return kind == FLAG_U32 || kind == FLAG_U64 || kind == FLAG_SIZE;
}

static uint64_t max_of(const struct flag *flag)
{
    uint64_t max = flag->min == 0 && flag->max == 0 ? UINT64_MAX : flag->max;
    return flag->kind == FLAG_U32 ? MIN(max, UINT32_MAX) : max;
}

/* Digits, and for sizes a K, M or G for powers of 1024. */
static bool number_from_text(const char *text, enum flag_kind kind, uint64_t *ret_value)
{
    uint64_t value = 0;
    size_t i = 0;
    for (; text[i] >= '0' && text[i] <= '9'; i++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value))
            return false;
    if (i == 0)
        return false;
    if (kind == FLAG_SIZE && text[i] != '\0') {
        const char *suffixes = "KMG";
        const char *suffix = strchr(suffixes, text[i]);
        if (!suffix ||
            __builtin_mul_overflow(value, 1ull << (10 * (suffix - suffixes + 1)), &value))
            return false;
        i++;
    }
    *ret_value = value;
    return text[i] == '\0';
}

static enum err_code fail_number(const struct flag *flag, const char *text, struct err *err)
{
    const char *what =
        flag->kind == FLAG_SIZE ? "a size in bytes, or with K, M or G," : "a whole number";
    return err_set(err, ERR_INVALID, "--%s: \"%.80s\": want %s from %" PRIu64 " to %" PRIu64,
                   flag->name, text, what, flag->min, max_of(flag));
}

static enum err_code take_value(const struct flag *flag, const char *text, bool is_storing,
                                struct err *err)
{
    uint64_t number = 0;
    if (is_number_kind(flag->kind) && (!number_from_text(text, flag->kind, &number) ||
                                       number < flag->min || number > max_of(flag)))
        return fail_number(flag, text, err);
    if (!is_storing)
        return ERR_OK;
    switch (flag->kind) {
    case FLAG_SWITCH:
        *(bool *)flag->value = true;
        break;
    case FLAG_STRING:
        *(const char **)flag->value = text;
        break;
    case FLAG_U32:
        *(uint32_t *)flag->value = (uint32_t)number;
        break;
    case FLAG_U64:
    case FLAG_SIZE:
        *(uint64_t *)flag->value = number;
        break;
    }
    return ERR_OK;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static const struct flag *find_flag(const struct flag *flags, size_t flag_count, const char *name,
                                    size_t name_length)
{
    for (size_t f = 0; f < flag_count; f++)
        if (strncmp(flags[f].name, name, name_length) == 0 && flags[f].name[name_length] == '\0')
            return &flags[f];
    return NULL;
}

static enum err_code fail_unknown(const struct flag *flags, size_t flag_count, const char *word,
                                  struct err *err)
{
    char name[64];
    const char *bare = word + strspn(word, "-");
    snprintf(name, sizeof(name), "%.*s", (int)MIN(strcspn(bare, "="), sizeof(name) - 1), bare);
    struct nearest nearest;
    nearest_init(&nearest, name);
    for (size_t f = 0; f < flag_count; f++)
        nearest_offer(&nearest, flags[f].name);
    nearest_offer(&nearest, "help");
    nearest_offer(&nearest, "version");
    if (nearest.best)
        return err_set(err, ERR_INVALID, "%.80s: unknown option; did you mean --%s?", word,
                       nearest.best);
    return err_set(err, ERR_INVALID, "%.80s: unknown option; --help lists the known ones", word);
}

/* --help and --version, unless the table has a flag of that name. Does not return when it is one of
 * them. */
static void answer_and_exit(const char *program, const char *word, const struct flag *flags,
                            size_t flag_count)
{
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        flags_print_help(base_name(program), NULL, NULL, flags, flag_count);
        exit(0);
    }
    if (strcmp(word, "--version") == 0) {
        printf("%s %s\n", base_name(program), STEADFAST_VERSION);
        exit(0);
    }
}

/* The option at argv[*at], with its value; moves *at behind both. */
static enum err_code take_option(const struct flag *flags, size_t flag_count, int argc, char **argv,
                                 int *at, uint64_t *seen, bool is_storing, struct err *err)
{
    const char *word = argv[*at];
    const char *name = word + 2;
    size_t name_length = strcspn(name, "=");
    const struct flag *flag =
        strncmp(word, "--", 2) == 0 ? find_flag(flags, flag_count, name, name_length) : NULL;
    if (!flag) {
        answer_and_exit(argv[0], word, flags, flag_count);
        return fail_unknown(flags, flag_count, word, err);
    }
    uint64_t bit = 1ull << (flag - flags);
    if (*seen & bit)
        return err_set(err, ERR_INVALID, "--%s: given twice; want it once", flag->name);
    *seen |= bit;
    ++*at;

    const char *value = name[name_length] == '=' ? name + name_length + 1 : NULL;
    if (flag->kind == FLAG_SWITCH) {
        if (value)
            return err_set(err, ERR_INVALID, "--%s: \"%.80s\": want no value, it is a switch",
                           flag->name, value);
        return take_value(flag, "", is_storing, err);
    }
    const char *arg = flag->arg ? flag->arg : "VALUE";
    if (!value) {
        if (*at >= argc)
            return err_set(err, ERR_INVALID, "--%s: missing: want %s", flag->name, arg);
        value = argv[*at];
        if (strncmp(value, "--", 2) == 0)
            return err_set(err, ERR_INVALID,
                           "--%s: missing: want %s (write --%s=%.60s if that is the value)",
                           flag->name, arg, flag->name, value);
        ++*at;
    }
    return take_value(flag, value, is_storing, err);
}

static enum err_code take_all(const struct flag *flags, size_t flag_count, int argc, char **argv,
                              const char **words, size_t *word_count, size_t word_room,
                              bool is_storing, struct err *err)
{
    uint64_t seen = 0;
    bool is_over = false; /* after "--" everything is a word */
    *word_count = 0;
    for (int at = 1; at < argc;) {
        const char *word = argv[at];
        if (!is_over && strcmp(word, "--") == 0) {
            is_over = true;
            at++;
        } else if (!is_over && word[0] == '-' && word[1] != '\0') {
            enum err_code code =
                take_option(flags, flag_count, argc, argv, &at, &seen, is_storing, err);
            if (code != ERR_OK)
                return code;
        } else {
            if (*word_count >= word_room)
                return err_set(err, ERR_INVALID, "\"%.80s\": want %s%zu word%s beside the options",
                               word, word_room ? "at most " : "", word_room,
                               word_room == 1 ? "" : "s");
            if (is_storing)
                words[*word_count] = word;
            ++*word_count;
            at++;
        }
    }
    return ERR_OK;
}

enum err_code flags_parse(const struct flag *flags, size_t flag_count, int argc, char **argv,
                          const char **ret_words, size_t *word_count, struct err *err)
{
    ASSERT(flag_count <= FLAG_COUNT_MAX);
    size_t room = word_count ? *word_count : 0;
    ASSERT(room == 0 || ret_words);
    size_t count = 0;
    enum err_code code =
        take_all(flags, flag_count, argc, argv, ret_words, &count, room, false, err);
    if (code != ERR_OK)
        return code;
    code = take_all(flags, flag_count, argc, argv, ret_words, &count, room, true, err);
    ASSERT(code == ERR_OK);
    if (word_count)
        *word_count = count;
    return ERR_OK;
}

void flags_print_help(const char *program, const char *words, const char *about,
                      const struct flag *flags, size_t flag_count)
{
    enum { HELP_COLUMN = 30 };
    printf("usage: %s [options]%s%s\n", program, words ? " " : "", words ? words : "");
    if (about)
        printf("\n%s\n", about);
    printf("\noptions:\n");
    for (size_t f = 0; f < flag_count; f++) {
        const char *arg = flags[f].arg ? flags[f].arg : "VALUE";
        bool is_switch = flags[f].kind == FLAG_SWITCH;
        int used = printf("  --%s%s%s", flags[f].name, is_switch ? "" : " ", is_switch ? "" : arg);
        if (used >= HELP_COLUMN)
            used = printf("\n") - 1;
        printf("%*s%s", HELP_COLUMN - used, "", flags[f].help ? flags[f].help : "");
        if (is_number_kind(flags[f].kind) && flags[f].max != 0)
            printf(" (%" PRIu64 " to %" PRIu64 ")", flags[f].min, flags[f].max);
        printf("\n");
    }
    printf("  %-*s%s\n", HELP_COLUMN - 2, "--help", "print this and exit");
    printf("  %-*s%s\n", HELP_COLUMN - 2, "--version", "print the version and exit");
}
