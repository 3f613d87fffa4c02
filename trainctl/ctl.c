/* SPDX-License-Identifier: Apache-2.0 */
/* ctl: options, the table of commands, and the one place where a code becomes an exit code. */
#include "trainctl/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/nearest.h"
#include "common/daemon/flags.h"
#include "common/spec/job_spec.h"
#include "trainctl/job_json.h"

#define DEFAULT_TIMEOUT_S   10
#define DEFAULT_RECONNECT_S 60
#define MAX_SECONDS         86400
#define MIN_INTERVAL_MS     50 /* a watch more often than this is a load test */
#define MAX_INTERVAL_MS     60000

/* Options that only some commands take. */
enum option_bit {
    OPTION_WATCH = 1,
    OPTION_RESUME = 2,
    OPTION_RECONNECT = 4,
    OPTION_INTERVAL = 8,
    OPTION_WAIT = 16,
};

struct command {
    const char *name;
    const char *args; /* as --help and a usage error show them */
    size_t arg_count;
    unsigned options;
    int (*run)(struct ctl *ctl);
    const char *help;
};

static const struct command commands[] = {
    {"submit", "JOB.json", 1, OPTION_WATCH | OPTION_RESUME | OPTION_RECONNECT | OPTION_INTERVAL,
     cmd_submit, "check a job file (\"-\": standard input), hand it to the cluster"},
    {"list", "", 0, 0, cmd_list, "all jobs the coordinator knows"},
    {"status", "JOB", 1, 0, cmd_status, "one job: progress, evaluations, accounting"},
    {"watch", "JOB", 1, OPTION_RECONNECT | OPTION_INTERVAL, cmd_watch,
     "follow a job until it ends"},
    {"cancel", "JOB", 1, 0, cmd_cancel, "end a job; its checkpoints stay"},
    {"checkpoint", "JOB", 1, 0, cmd_checkpoint,
     "write a checkpoint now; returns when it is published"},
    {"export", "JOB|CKPT_DIR OUT.safetensors", 2, 0, cmd_export,
     "whole variables of a checkpoint (a job's newest) in one file"},
    {"cluster", "", 0, OPTION_WAIT, cmd_cluster, "members, and who is missing"},
    {"plan", "JOB.json", 1, 0, cmd_plan, "where each variable would live; starts nothing"},
};

static const char about_exit[] =
    "\nJOB is a name (the newest job of that name) or a number.\n"
    "Exit status: 0 done, or the job succeeded\n"
    "             1 the operation or the job failed\n"
    "             2 wrong usage, or a job that is not valid: nothing was started\n"
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

static void say_error(bool is_json, const char *code, const char *text)
{
    if (!is_json) {
        fprintf(stderr, "trainctl: %s\n", text);
        return;
    }
    json_t *error = json_pack("{s:{s:s, s:s%}}", "error", "code", code, "text", text, strlen(text));
    if (!error) /* a text that is not UTF-8 */
        error = json_pack("{s:{s:s, s:s}}", "error", "code", code, "text", "");
    char *line = error ? json_dumps(error, JSON_COMPACT) : NULL;
    fprintf(stderr, "%s\n", line ? line : "{\"error\":{}}");
    free(line);
    json_decref(error);
}

void ctl_note(const struct ctl *ctl, const char *text, const char *cause)
{
    if (!ctl->is_json) {
        fprintf(stderr, "trainctl: %s\n", text);
        if (cause)
            log_debug("coordinator.lost", "err=\"%s\"", cause);
        return;
    }
    json_t *note = json_pack("{s:{s:s, s:s*}}", "note", "text", text, "cause", cause);
    char *line = note ? json_dumps(note, JSON_COMPACT) : NULL;
    fprintf(stderr, "%s\n", line ? line : "{\"note\":{}}"); /* a text that is not UTF-8 */
    free(line);
    json_decref(note);
}

static int exit_of_code(enum err_code code)
{
    switch (code) {
    case ERR_OK:
        return CTL_OK;
    case ERR_INVALID:
        return CTL_USAGE;
    case ERR_UNAVAILABLE:
    case ERR_TIMEOUT:
        return CTL_UNREACHABLE;
    default:
        return CTL_FAILED;
    }
}

int ctl_fail_err(const struct ctl *ctl, const struct err *err)
{
    say_error(ctl->is_json, err_name(err->code), err->text);
    return exit_of_code(err->code);
}

int ctl_fail(const struct ctl *ctl, const struct steadfast_error *err)
{
    say_error(ctl->is_json, steadfast_code_name(err->code), err->text);
    return exit_of_code((enum err_code)err->code);
}

int ctl_exit_of_state(enum steadfast_job_state state)
{
    switch (state) {
    case STEADFAST_JOB_SUCCEEDED:
        return CTL_OK;
    case STEADFAST_JOB_CANCELLED:
        return CTL_JOB_CANCELLED;
    default:
        return CTL_FAILED;
    }
}

uint32_t ctl_timeout_ms(const struct ctl *ctl)
{
    return ctl->timeout_s * 1000;
}

int ctl_connect(struct ctl *ctl)
{
    struct steadfast_error err;
    if (!ctl->coordinator || !ctl->coordinator[0]) {
        err.code = STEADFAST_INVALID;
        snprintf(err.text, sizeof(err.text),
                 "no coordinator named: want --coordinator HOST:PORT or the environment variable "
                 "STEADFAST_COORDINATOR");
        return ctl_fail(ctl, &err);
    }
    if (steadfast_connect(ctl->coordinator, &ctl->client, &err) != STEADFAST_OK)
        return ctl_fail(ctl, &err);
    return CTL_OK;
}

/* A pipe that somebody writes is waited for; one that nobody has open is at its end at once. */
static enum err_code read_bounded(const struct ctl *ctl, const char *path, char **ret_text,
                                  size_t *ret_bytes, struct err *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    AUTO_FD int own = is_stdin ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct pollfd ready = {.fd = is_stdin ? STDIN_FILENO : own, .events = POLLIN};
    if (ready.fd < 0)
        return err_from_errno(err, errno, "%s", path);
    AUTO_MEM char *text = malloc(LIMIT_SPEC_BYTES + 1);
    if (!text)
        return err_set(err, ERR_NO_MEMORY, "%s: no memory for a job file", path);
    size_t bytes = 0;
    while (bytes <= LIMIT_SPEC_BYTES) {
        ssize_t n = read(ready.fd, text + bytes, LIMIT_SPEC_BYTES + 1 - bytes);
        if (n == 0)
            break;
        if (n > 0)
            bytes += (size_t)n;
        else if (errno == EAGAIN && poll(&ready, 1, (int)ctl_timeout_ms(ctl)) == 0)
            return err_set(err, ERR_TIMEOUT, "%s: nothing was written into it for %u s", path,
                           ctl->timeout_s);
        else if (errno != EAGAIN && errno != EINTR)
            return err_from_errno(err, errno, "%s", path);
    }
    if (bytes > LIMIT_SPEC_BYTES)
        return err_set(err, ERR_INVALID, "%s: over %u bytes: want a job file", path,
                       LIMIT_SPEC_BYTES);
    text[bytes] = '\0';
    *ret_text = TAKE(text);
    *ret_bytes = bytes;
    return ERR_OK;
}

int ctl_read_job_file(const struct ctl *ctl, const char *path, char **ret_text)
{
    struct err err;
    AUTO_MEM char *text = NULL;
    AUTO(job_spec) spec = NULL;
    size_t bytes = 0;
    if (read_bounded(ctl, path, &text, &bytes, &err) != ERR_OK) {
        ctl_fail_err(ctl, &err);
        return CTL_USAGE; /* whatever kept us from reading it, nothing was started */
    }
    ASSERT(text);
    if (memchr(text, '\0', bytes)) {
        err_set(&err, ERR_INVALID, "%s: a NUL byte: want JSON text", path);
        return ctl_fail_err(ctl, &err);
    }
    if (job_spec_parse(text, bytes, &spec, &err) != ERR_OK) {
        err_prefix(&err, "%s", path);
        ctl_fail_err(ctl, &err);
        return CTL_USAGE;
    }
    *ret_text = TAKE(text);
    return CTL_OK;
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
