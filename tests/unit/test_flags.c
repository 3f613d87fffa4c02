/* SPDX-License-Identifier: Apache-2.0 */
#include "common/daemon/flags.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness.h"

static struct err err;
static bool verbose;
static const char *config;
static uint32_t port;
static uint64_t count;
static uint64_t memory;

static const struct flag flags[] = {
    {"verbose", FLAG_SWITCH, &verbose, 0, 0, NULL, "say more"},
    {"tf-config", FLAG_STRING, &config, 0, 0, "FILE", "the cluster"},
    {"port", FLAG_U32, &port, 1, 65535, "N", "where to listen"},
    {"count", FLAG_U64, &count, 0, 0, "N", "how many"},
    {"memory", FLAG_SIZE, &memory, 1024, 1ull << 40, "BYTES", "at most so much"},
};

/* Splits line at blanks; argv[0] is the program. */
static enum err_code parse(const char *line, const char **words, size_t *word_count)
{
    static char copy[400];
    static char *argv[32];
    snprintf(copy, sizeof(copy), "/usr/bin/prog %s", line);
    int argc = 0;
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    return flags_parse(flags, ARRAY_SIZE(flags), argc, argv, words, word_count, &err);
}

static void check_refused(const char *line, const char *want)
{
    const char *words[2];
    size_t word_count = 2;
    CHECK(parse(line, words, &word_count) == ERR_INVALID);
    CHECK_STR(err.text, want);
    CHECK_U64(word_count, 2);
}

TEST(values_follow_after_a_blank_or_an_equals_sign)
{
    const char *words[2];
    size_t word_count = 2;
    CHECK_OK(
        parse("--verbose --tf-config=a=b submit --port 80 --count=18446744073709551615 job.json",
              words, &word_count));
    CHECK(verbose);
    CHECK_STR(config, "a=b");
    CHECK_U64(port, 80);
    CHECK_U64(count, UINT64_MAX);
    CHECK_U64(word_count, 2);
    CHECK_STR(words[0], "submit");
    CHECK_STR(words[1], "job.json");
}

TEST(sizes_take_binary_suffixes)
{
    size_t none = 0;
    CHECK_OK(parse("--memory 4096", NULL, &none));
    CHECK_U64(memory, 4096);
    CHECK_OK(parse("--memory 3K", NULL, &none));
    CHECK_U64(memory, 3072);
    CHECK_OK(parse("--memory 5M", NULL, NULL));
    CHECK_U64(memory, 5u << 20);
    CHECK_OK(parse("--memory 1024G", NULL, NULL));
    CHECK_U64(memory, 1ull << 40);
    check_refused("--memory 1025G",
                  "--memory: \"1025G\": want a size in bytes, or with K, M or G, from 1024 "
                  "to 1099511627776");
    check_refused("--memory 18014398509481985K",
                  "--memory: \"18014398509481985K\": want a size in bytes, or "
                  "with K, M or G, from 1024 to 1099511627776");
    check_refused(
        "--memory 4KB",
        "--memory: \"4KB\": want a size in bytes, or with K, M or G, from 1024 to 1099511627776");
    check_refused(
        "--memory K",
        "--memory: \"K\": want a size in bytes, or with K, M or G, from 1024 to 1099511627776");
}

TEST(numbers_are_digits_in_range)
{
    check_refused("--port 0", "--port: \"0\": want a whole number from 1 to 65535");
    check_refused("--port 65536", "--port: \"65536\": want a whole number from 1 to 65535");
    check_refused("--port -1", "--port: \"-1\": want a whole number from 1 to 65535");
    check_refused("--port +1", "--port: \"+1\": want a whole number from 1 to 65535");
    check_refused("--port 0x10", "--port: \"0x10\": want a whole number from 1 to 65535");
    check_refused("--port=", "--port: \"\": want a whole number from 1 to 65535");
    check_refused("--port 1e3", "--port: \"1e3\": want a whole number from 1 to 65535");
    check_refused(
        "--count 18446744073709551616",
        "--count: \"18446744073709551616\": want a whole number from 0 to 18446744073709551615");
    check_refused("--count 5K",
                  "--count: \"5K\": want a whole number from 0 to 18446744073709551615");
}

TEST(unknown_options_are_refused_with_the_nearest_name)
{
    check_refused("--tf_config x", "--tf_config: unknown option; did you mean --tf-config?");
    check_refused("--prot=3", "--prot=3: unknown option; did you mean --port?");
    check_refused("-verbose", "-verbose: unknown option; did you mean --verbose?");
    check_refused("--hlep", "--hlep: unknown option; did you mean --help?");
    check_refused("--zzzzzz", "--zzzzzz: unknown option; --help lists the known ones");
    check_refused("-x", "-x: unknown option; --help lists the known ones");
}

TEST(missing_doubled_and_superfluous_values_are_refused)
{
    check_refused("--port", "--port: missing: want N");
    check_refused(
        "--tf-config --verbose",
        "--tf-config: missing: want FILE (write --tf-config=--verbose if that is the value)");
    check_refused("--port 1 --port 2", "--port: given twice; want it once");
    check_refused("--verbose=yes", "--verbose: \"yes\": want no value, it is a switch");
    check_refused("a b c", "\"c\": want at most 2 words beside the options");
    size_t one = 0;
    CHECK(parse("a", NULL, &one) == ERR_INVALID);
    CHECK_STR(err.text, "\"a\": want 0 words beside the options");
}

TEST(nothing_is_stored_when_anything_is_refused)
{
    verbose = false;
    config = NULL;
    port = 7;
    const char *words[1] = {"before"};
    size_t word_count = 1;
    CHECK(parse("word --verbose --tf-config f --port 9 --count x", words, &word_count) ==
          ERR_INVALID);
    CHECK(!verbose && config == NULL && port == 7);
    CHECK_STR(words[0], "before");
}

TEST(two_dashes_end_the_options_and_one_is_a_word)
{
    const char *words[3];
    size_t word_count = 3;
    port = 0;
    CHECK_OK(parse("- --port 5 -- --port", words, &word_count));
    CHECK_U64(port, 5);
    CHECK_U64(word_count, 2);
    CHECK_STR(words[0], "-");
    CHECK_STR(words[1], "--port");
}

/* Runs parse in a child whose stdout is caught; returns its exit status. */
static int run_child(const char *line, char *ret_text, size_t size)
{
    int fds[2];
    CHECK(pipe(fds) == 0);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], STDOUT_FILENO);
        close(fds[0]);
        close(fds[1]);
        enum err_code code = parse(line, NULL, NULL);
        _exit(code == ERR_OK ? 90 : 91);
    }
    close(fds[1]);
    size_t used = 0;
    ssize_t n;
    while (used < size - 1 && (n = read(fds[0], ret_text + used, size - 1 - used)) > 0)
        used += (size_t)n;
    ret_text[used] = '\0';
    close(fds[0]);
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(help_and_version_are_printed_and_exit_with_0)
{
    char text[4000];
    CHECK(run_child("--help", text, sizeof(text)) == 0);
    CHECK(strstr(text, "usage: prog [options]"));
    CHECK(strstr(text, "  --tf-config FILE            the cluster\n"));
    CHECK(strstr(text, "  --port N                    where to listen (1 to 65535)\n"));
    CHECK(strstr(text, "  --verbose                   say more\n"));
    CHECK(run_child("--port 1 -h", text, sizeof(text)) == 0);
    CHECK(run_child("--version", text, sizeof(text)) == 0);
    CHECK_STR(text, "prog " STEADFAST_VERSION "\n");
    CHECK(run_child("--port 1", text, sizeof(text)) == 90);
    CHECK_STR(text, "");
}

TEST(a_table_with_a_help_flag_answers_itself)
{
    bool is_help = false;
    const struct flag own[] = {{"help", FLAG_SWITCH, &is_help, 0, 0, NULL, "this"}};
    char program[] = "p";
    char word[] = "--help";
    char *argv[] = {program, word, NULL};
    CHECK_OK(flags_parse(own, 1, 2, argv, NULL, NULL, &err));
    CHECK(is_help);
}
