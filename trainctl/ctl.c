/* SPDX-License-Identifier: Apache-2.0 */
/* ctl: the connection, job files, and the one place where a code becomes an exit code. */
#include "trainctl/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/spec/job_spec.h"

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
