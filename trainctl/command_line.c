/* SPDX-License-Identifier: Apache-2.0 */
/* command_line: options and the table of commands; above ctl.c and every cmd_*.c. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/nearest.h"
#include "common/daemon/flags.h"
#include "trainctl/ctl.h"

#define DEFAULT_TIMEOUT_S   10
#define DEFAULT_RECONNECT_S 60
#define MAX_SECONDS         86400
#define MIN_INTERVAL_MS     50 /* a watch more often than this is a load test */
#define MAX_INTERVAL_MS     60000

struct command {
    const char *name;
    const char *args; /* as --help and a usage error show them */
    size_t arg_count;
    unsigned options;
    int (*run)(struct ctl *ctl);
    const char *help;
};

#define ROW(name_, args_, arg_count_, options_, help_)                                             \
    {#name_, args_, arg_count_, options_, cmd_##name_, help_},
static const struct command commands[] = {CTL_COMMANDS(ROW)};
#undef ROW

static const char about_exit[] =
    "\nJOB is a name (the newest job of that name) or a number.\n"
    "Exit status: 0 done, or the job succeeded\n"
    "             1 the operation or the job failed\n"
    "             2 wrong usage, the address of something else, or a job that is not valid:\n"
    "               nothing was started\n"
    "             3 no answer from the coordinator in time\n"
    "             4 the job was cancelled";

static void print_help(const struct flag *flags, size_t flag_count)
{
    char about[4096];
    size_t used = (size_t)snprintf(about, sizeof(about), "commands:\n");
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        char usage[64];
        snprintf(usage, sizeof(usage), "%s %s", commands[i].name, commands[i].args);
        used += (size_t)snprintf(about + used, sizeof(about) - used, "  %-38s %s\n", usage,
                                 commands[i].help);
        ASSERT(used < sizeof(about));
    }
    used += (size_t)snprintf(about + used, sizeof(about) - used, "%s", about_exit);
    ASSERT(used < sizeof(about));
    flags_print_help("trainctl", "COMMAND ...", about, flags, flag_count);
}

/* ---- command line ------------------------------------------------------------------------------
 */
static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static int usage_error(const struct ctl *ctl, const char *fmt, ...) PRINTF_LIKE(2, 3);
static int usage_error(const struct ctl *ctl, const char *fmt, ...)
{
    struct err err;
    va_list ap;
    va_start(ap, fmt);
    err.code = ERR_INVALID;
    vsnprintf(err.text, sizeof(err.text), fmt, ap);
    va_end(ap);
    return ctl_fail_err(ctl, &err);
}

/* Options another command takes would be silently without effect here: refused. */
static int check_options(const struct ctl *ctl, const struct command *command)
{
    const struct {
        const char *name;
        unsigned bit;
        bool is_given;
    } given[] = {
        {"--watch", OPTION_WATCH, ctl->wants_watch},
        {"--resume", OPTION_RESUME, ctl->wants_resume},
        {"--reconnect", OPTION_RECONNECT, ctl->reconnect_s != 0},
        {"--interval-ms", OPTION_INTERVAL, ctl->interval_ms != 0},
        {"--wait", OPTION_WAIT, ctl->wait_s != 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(given); i++)
        if (given[i].is_given && !(command->options & given[i].bit))
            return usage_error(ctl, "%s: %s has no use for it; see trainctl --help", given[i].name,
                               command->name);
    return CTL_OK;
}

static int unknown_command(const struct ctl *ctl, const char *word)
{
    struct nearest nearest;
    nearest_init(&nearest, word);
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        nearest_offer(&nearest, commands[i].name);
    if (nearest.best)
        return usage_error(ctl, "%s: no such command; did you mean \"%s\"?", word, nearest.best);
    return usage_error(ctl, "%s: no such command; see trainctl --help", word);
}

static int run_command(struct ctl *ctl)
{
    if (ctl->word_count == 0)
        return usage_error(ctl, "want a command; see trainctl --help");
    const struct command *command = find_command(ctl->words[0]);
    if (!command)
        return unknown_command(ctl, ctl->words[0]);
    if (ctl->word_count != command->arg_count + 1)
        return usage_error(ctl, "usage: trainctl [options] %s %s", command->name, command->args);
    int rc = check_options(ctl, command);
    if (rc != CTL_OK)
        return rc;
    if (ctl->reconnect_s == 0)
        ctl->reconnect_s = DEFAULT_RECONNECT_S;
    rc = command->run(ctl);
    if ((fflush(stdout) != 0 || ferror(stdout)) && rc == CTL_OK) {
        struct err err;
        err_from_errno(&err, errno, "standard output");
        rc = ctl_fail_err(ctl, &err);
    }
    steadfast_close(ctl->client);
    return rc;
}

int ctl_run(int argc, char **argv)
{
    struct ctl ctl = {
        .coordinator = getenv("STEADFAST_COORDINATOR"),
        .timeout_s = DEFAULT_TIMEOUT_S,
        .is_terminal = isatty(STDOUT_FILENO) == 1,
    };
    const char *log_level_name = NULL;
    const struct flag flags[] = {
        {"coordinator", FLAG_STRING, &ctl.coordinator, 0, 0, "HOST:PORT",
         "whom to ask; default: $STEADFAST_COORDINATOR"},
        {"timeout", FLAG_U32, &ctl.timeout_s, 1, MAX_SECONDS, "SECONDS",
         "how long to wait for an answer; default 10"},
        {"log-level", FLAG_STRING, &log_level_name, 0, 0, "LEVEL",
         "error, warn, info or debug; debug: also why a coordinator went away; default info"},
        {"json", FLAG_SWITCH, &ctl.is_json, 0, 0, NULL,
         "output for programs; one object, or one a line"},
        {"watch", FLAG_SWITCH, &ctl.wants_watch, 0, 0, NULL,
         "submit: follow the job until it ends"},
        {"resume", FLAG_SWITCH, &ctl.wants_resume, 0, 0, NULL,
         "submit: go on from the newest usable checkpoint in the job's directory"},
        {"interval-ms", FLAG_U32, &ctl.interval_ms, MIN_INTERVAL_MS, MAX_INTERVAL_MS, "MS",
         "watch: time between updates"},
        {"reconnect", FLAG_U32, &ctl.reconnect_s, 1, MAX_SECONDS, "SECONDS",
         "watch: how long to wait for a coordinator that went away; default 60"},
        {"wait", FLAG_U32, &ctl.wait_s, 1, MAX_SECONDS, "SECONDS",
         "cluster: wait until no member is missing"},
    };
    for (int i = 1; i < argc; i++) /* flags_parse would print the options only */
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0 ||
            (i == 1 && strcmp(argv[i], "help") == 0)) {
            print_help(flags, ARRAY_SIZE(flags));
            return CTL_OK;
        }
    struct err err;
    ctl.word_count = CTL_WORDS_MAX;
    if (flags_parse(flags, ARRAY_SIZE(flags), argc, argv, ctl.words, &ctl.word_count, &err) !=
        ERR_OK) {
        ctl_fail_err(&ctl, &err);
        return CTL_USAGE;
    }
    enum log_level log_level = LOG_INFO;
    if (log_level_name && !log_level_from_name(log_level_name, &log_level))
        return usage_error(&ctl, "--log-level: \"%s\": want error, warn, info or debug",
                           log_level_name);
    log_set_level(log_level);
    return run_command(&ctl);
}
