/* SPDX-License-Identifier: Apache-2.0 */
/* harness: forks a process per test, waits with a deadline, prints one line each. */
#include "tests/harness.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static struct test_case *first_test;
static char dir_path[64];
static int why_fd = -1; /* the child writes its reason here */

void test_register(struct test_case *test)
{
    struct test_case **at = &first_test;
    while (*at)
        at = &(*at)->next;
    *at = test;
}

static void write_reason(const char *text)
{
    ssize_t n = write(why_fd, text, strlen(text));
    (void)n;
}

void test_fail(const char *file, int line, const char *fmt, ...)
{
    char text[700];
    int n = snprintf(text, sizeof(text), "%s:%d: ", file, line);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
    va_end(ap);
    write_reason(text);
    _exit(1);
}

void test_skip(const char *fmt, ...)
{
    char text[500];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    write_reason(text);
    _exit(77);
}

const char *test_dir(void)
{
    return dir_path;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static const char *base_name(const char *file)
{
    static char name[128];
    const char *slash = strrchr(file, '/');
    snprintf(name, sizeof(name), "%s", slash ? slash + 1 : file);
    char *dot = strrchr(name, '.');
    if (dot)
        *dot = '\0';
    return name;
}

/* Returns 0 passed, 1 failed, 2 skipped. */
static int run_one(const struct test_case *test)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return 1;
    snprintf(dir_path, sizeof(dir_path), "/tmp/steadfast-test-XXXXXX");
    if (!mkdtemp(dir_path))
        return 1;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[0]);
        why_fd = fds[1];
        const char *scale = getenv("TEST_TIME_SCALE"); /* sanitizers are slow */
        alarm(test->limit_s * (scale ? (unsigned)atoi(scale) : 1));
        test->run();
        exit(0); /* not _exit: leak checkers report at exit */
    }
    close(fds[1]);
    int status = 0;
    waitpid(pid, &status, 0); /* first: a grandchild that lives on may hold the pipe open */
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    char why[700] = "";
    ssize_t n = read(fds[0], why, sizeof(why) - 1); /* one write of less than PIPE_BUF */
    why[MAX(n, 0)] = '\0';
    close(fds[0]);
    nftw(dir_path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);

    const char *file = base_name(test->file);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        printf("PASS %s.%s\n", file, test->name);
        return 0;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        printf("SKIP %s.%s: %s\n", file, test->name, why);
        return 2;
    }
    if (WIFSIGNALED(status))
        printf("FAIL %s.%s: %s%s\n", file, test->name,
               WTERMSIG(status) == SIGALRM ? "time limit of the test passed"
                                           : strsignal(WTERMSIG(status)),
               WCOREDUMP(status) ? " (core)" : "");
    else
        printf("FAIL %s.%s: %s\n", file, test->name, why[0] ? why : "non-zero exit");
    return 1;
}

int main(int argc, char **argv)
{
    bool any_failed = false;
    bool any_wanted = false;
    signal(SIGPIPE, SIG_IGN);
    for (const struct test_case *test = first_test; test; test = test->next) {
        bool wanted = argc < 2;
        for (int i = 1; i < argc; i++)
            wanted = wanted || strstr(test->name, argv[i]);
        if (wanted && run_one(test) == 1)
            any_failed = true;
        any_wanted = any_wanted || wanted;
    }
    if (!any_wanted)
        fprintf(stderr, "no test has such a name\n");
    return any_failed || !any_wanted;
}
