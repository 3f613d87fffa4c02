/* SPDX-License-Identifier: Apache-2.0 */
/* ctl: what all commands of trainctl share: options, the connection, exit codes and how errors are
 * said.
 *
 * Output of a command goes to stdout, errors and notes about the connection to stderr. With --json
 * stdout holds JSON only, and an error is one object on stderr: {"error": {"code": "NOT_FOUND",
 * "text": "..."}}, a note {"note": {"text": "...", "cause": "..."}}.
 *
 * Thread  main. A command returns its exit code; it does not exit.
 */
#ifndef TRAINCTL_CTL_H
#define TRAINCTL_CTL_H

#include "client/steadfast.h"
#include "common/base/base.h"
#include "common/base/err.h"

/* In --help and README.md too: scripts depend on them. */
enum ctl_exit {
    CTL_OK = 0,
    CTL_FAILED = 1, /* the operation or the job failed */
    CTL_USAGE = 2,  /* wrong usage, an address of something else, an invalid job: nothing started */
    CTL_UNREACHABLE = 3, /* no answer from the coordinator in time */
    CTL_JOB_CANCELLED = 4,
    CTL_INTERRUPTED = 130,
};

#define CTL_WORDS_MAX 4 /* command and its arguments */

struct ctl {
    const char *coordinator; /* host:port; NULL: none was named */
    uint32_t timeout_s;      /* for the coordinator to answer */
    uint32_t reconnect_s;    /* how long a watch survives without one */
    uint32_t wait_s;         /* cluster --wait; 0: do not */
    uint32_t interval_ms;    /* of a watch; 0: the command's choice */
    bool is_json;
    bool wants_watch;
    bool wants_resume;
    bool is_terminal; /* stdout is one */
    const char *words[CTL_WORDS_MAX];
    size_t word_count;
    struct steadfast_client *client; /* NULL before ctl_connect */
};

/* Options that only some commands take. */
enum ctl_option {
    OPTION_WATCH = 1,
    OPTION_RESUME = 2,
    OPTION_RECONNECT = 4,
    OPTION_INTERVAL = 8,
    OPTION_WAIT = 16,
};

/* The table of commands: name, arguments as --help shows them, their number, options, help. A row
 * `X(hello, ...)` is run by int cmd_hello(struct ctl *ctl); a row and that function are all that a
 * command is. Help, usage errors and "did you mean" come from here. */
#define CTL_COMMANDS(X)                                                                            \
    X(submit, "JOB.json", 1, OPTION_WATCH | OPTION_RESUME | OPTION_RECONNECT | OPTION_INTERVAL,    \
      "check a job file (\"-\": standard input), hand it to the cluster")                          \
    X(list, "", 0, 0, "all jobs the coordinator knows")                                            \
    X(status, "JOB", 1, 0, "one job: progress, evaluations, accounting")                           \
    X(watch, "JOB", 1, OPTION_RECONNECT | OPTION_INTERVAL, "follow a job until it ends")           \
    X(cancel, "JOB", 1, 0, "end a job; its checkpoints stay")                                      \
    X(checkpoint, "JOB", 1, 0, "write a checkpoint now; returns when it is published")             \
    X(export, "JOB|CKPT_DIR OUT.safetensors", 2, 0,                                                \
      "whole variables of a checkpoint (a job's newest) in one file")                              \
    X(cluster, "", 0, OPTION_WAIT, "members, and who is missing")                                  \
    X(plan, "JOB.json", 1, 0, "where each variable would live; starts nothing")

#define CTL_DECLARE_COMMAND(name_, args_, arg_count_, options_, help_)                             \
    int cmd_##name_(struct ctl *ctl);
CTL_COMMANDS(CTL_DECLARE_COMMAND)
#undef CTL_DECLARE_COMMAND

/* The whole program; main() is this. */
int ctl_run(int argc, char **argv);

/* CTL_OK: ctl->client is there (not yet connected). Else the reason was said. */
MUST_CHECK int ctl_connect(struct ctl *ctl);
uint32_t ctl_timeout_ms(const struct ctl *ctl);
/* Says the error and returns the exit code that belongs to its code. */
int ctl_fail(const struct ctl *ctl, const struct steadfast_error *err);
int ctl_fail_err(const struct ctl *ctl, const struct err *err);
/* Says how the connection is. cause: what is behind it, for --json and --log-level debug only; NULL:
 * nothing to add. */
void ctl_note(const struct ctl *ctl, const char *text, const char *cause);
/* A job file, checked without any connection; free() the text. CTL_USAGE: said what is wrong with
 * it. */
MUST_CHECK int ctl_read_job_file(const struct ctl *ctl, const char *path, char **ret_text);
int ctl_exit_of_state(enum steadfast_job_state state); /* of a job that has ended */

/* Watches the job until it ended; cmd_submit --watch goes on with it. */
int watch_job(struct ctl *ctl, const char *job);

#endif
