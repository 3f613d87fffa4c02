/* SPDX-License-Identifier: Apache-2.0 */
/* flags: command-line options from a table, strictly.
 *
 * "--name value", "--name=value"; a switch takes no value; an option is given at most once; "--"
 * ends the options. A value that begins with "--" needs the "=". A table with a flag named "help"
 * answers --help itself. Nothing is stored when anything is refused. At most 64 flags. Unknown
 * options are refused with the nearest known name; a bad value names the option, the value and what
 * was wanted. --help prints the table and exits 0;
 * --version prints the version and exits 0.
 *
 * Owns    nothing: string values point into argv. Thread: main, before others.
 */
#ifndef COMMON_DAEMON_FLAGS_H
#define COMMON_DAEMON_FLAGS_H

#include "common/base/base.h"
#include "common/base/err.h"

enum flag_kind {
    FLAG_SWITCH,
    FLAG_STRING,
    FLAG_U32,
    FLAG_U64,
    FLAG_SIZE /* bytes; K M G suffixes */
};

struct flag {
    const char *name; /* without dashes */
    enum flag_kind kind;
    void *value;       /* bool *, const char **, uint32_t *, uint64_t * */
    uint64_t min, max; /* of numbers; both 0: no bound */
    const char *arg;   /* what --help calls the value; NULL for a switch */
    const char *help;
};

/* Parses argv[1..]; words that are not options are collected in order into ret_words (size
 * *word_count, then set to how many there were). ERR_INVALID: print the text and exit 2. */
MUST_CHECK enum err_code flags_parse(const struct flag *flags, size_t flag_count, int argc,
                                     char **argv, const char **ret_words, size_t *word_count,
                                     struct err *err);
/* words: what follows the options in the usage line ("COMMAND ..."); it and about may be NULL. */
void flags_print_help(const char *program, const char *words, const char *about,
                      const struct flag *flags, size_t flag_count);
#define STEADFAST_VERSION "0.1.0"

#endif
