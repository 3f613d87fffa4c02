/* SPDX-License-Identifier: Apache-2.0 */
/* workerd as a process: how it is told who it is, how it ends, and where its fault hooks kill it.
 */
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/worker_rig.h"

enum { DONE = 0 };

static struct {
    pid_t pid;
    char output[300]; /* path of what it says */
} child;

/* Starts build/.../bin/workerd with these arguments; what it says goes to a file. */
static void spawn(const char *const *args)
{
    const char *build = getenv("STEADFAST_BUILD");
    AUTO_MEM char *path = base_asprintf("%s/bin/workerd", build ? build : "build/release");
    if (access(path, X_OK) != 0)
        test_skip("%s is not built", path);
    char *argv[32] = {path};
    for (int i = 0; args[i]; i++)
        argv[i + 1] = (char *)args[i];
    snprintf(child.output, sizeof(child.output), "%s/output", test_dir());
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, child.output, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    CHECK(posix_spawn(&child.pid, path, &actions, NULL, argv, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
}

static int wait_child(void)
{
    int status;
    CHECK(waitpid(child.pid, &status, 0) == child.pid);
    return status;
}

/* The loop goes on turning while the child lives. */
static int turn_until_child_ends(void)
{
    int status = 0;
    RIG_UNTIL(waitpid(child.pid, &status, WNOHANG) == child.pid);
    return status;
}

static const char *output(void)
{
    static char text[8192];
    FILE *fp = fopen(child.output, "r");
    CHECK(fp);
    text[fread(text, 1, sizeof(text) - 1, fp)] = '\0';
    fclose(fp);
    return text;
}

static void check_usage_error(const char *const *args, const char *words)
{
    spawn(args);
    int status = wait_child();
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    if (!strstr(output(), words))
        test_fail(__FILE__, __LINE__, "said \"%s\", want \"%s\"", output(), words);
}

static void up(const char *device, const char *kill_at)
{
    rig_up_peers();
    if (kill_at)
        setenv("STEADFAST_WORKER_KILL", kill_at, 1);
    AUTO_MEM char *coordinator = base_asprintf("127.0.0.1:%u", rig.coord.port);
    AUTO_MEM char *port_file = base_asprintf("%s/port", test_dir());
    spawn((const char *[]){"--name", "worker:0", "--address", "127.0.0.1:0", "--coordinator",
                           coordinator, "--device", device, "--threads", "1", "--port-file",
                           port_file, NULL});
    rig_wait_attached();
    rig_open(RIG_SPEC, 1, true);
}

/* Runs steps 0 and 1, and the process must be killed at step 1. */
static void run_to_kill(const char *kill_at)
{
    up("ref", kill_at);
    rig_ticket(0);
    RIG_UNTIL(rig_report_of(0));
    CHECK_U64(rig_report_of(0)->outcome, DONE);
    rig_ticket(1);
    int status = turn_until_child_ends();
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK_U64(rig.coord.report_count, 1);
}

TEST(a_worker_killed_before_its_push_has_sent_nothing)
{
    run_to_kill("before_push:1");
    CHECK_U64(RIG_PS(0, push_tries), 1);
    CHECK_U64(RIG_PS(1, push_tries), 1);
    rig_down();
}

TEST(a_worker_killed_during_its_push_is_marked_on_one_shard_only)
{
    run_to_kill("during_push:1");
    CHECK_U64(RIG_PS(0, applied), 2);
    CHECK_U64(RIG_PS(1, applied), 1);
    rig_down();
}

TEST(a_worker_killed_after_its_push_is_marked_everywhere_and_reported_nowhere)
{
    run_to_kill("after_push:1");
    CHECK_U64(RIG_PS(0, applied), 2);
    CHECK_U64(RIG_PS(1, applied), 2);
    rig_down();
}

TEST(a_worker_stopped_before_its_push_goes_on_when_it_is_woken)
{
    up("ref", "stop_before_push:1");
    rig_ticket(0);
    rig_ticket(1);
    int status;
    RIG_UNTIL(waitpid(child.pid, &status, WNOHANG | WUNTRACED) == child.pid);
    CHECK(WIFSTOPPED(status));
    CHECK_U64(RIG_PS(0, push_tries), 1);
    RIG_PS_SET(0, refuse_push, ERR_STALE); /* it was fenced meanwhile */
    RIG_PS_SET(0, refuse_push_count, 1);
    kill(child.pid, SIGCONT);
    RIG_UNTIL(rig_report_of(1));
    CHECK_STR(rig_report_of(1)->code, "STALE");
    kill(child.pid, SIGTERM);
    status = turn_until_child_ends();
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    rig_down();
}

TEST(sigterm_ends_with_a_leaving_message_and_status_0)
{
    up("fake", NULL);
    rig_ticket(0);
    RIG_UNTIL(rig_report_of(0));
    kill(child.pid, SIGTERM);
    int status = turn_until_child_ends();
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(rig.coord.leaving);
    CHECK_STR(rig.coord.leaving->reason, "SIGTERM");
    rig_down();
}

TEST(the_port_file_holds_the_bound_address_that_hello_says)
{
    up("fake", NULL);
    AUTO_MEM char *path = base_asprintf("%s/port", test_dir());
    FILE *fp = fopen(path, "r");
    char line[64];
    CHECK(fp && fgets(line, sizeof(line), fp));
    fclose(fp);
    line[strcspn(line, "\n")] = '\0';
    CHECK_STR(line, rig.coord.hello->address);
    CHECK(strncmp(line, "127.0.0.1:", 10) == 0 && strcmp(line, "127.0.0.1:0") != 0);
    CHECK_U64(rig.coord.hello->pid, (uint64_t)child.pid);
    CHECK_STR(rig.coord.hello->devices[0]->name, "fake:0");
    kill(child.pid, SIGKILL);
    turn_until_child_ends();
    rig_down();
}

TEST(a_taken_port_is_one_error_line_and_status_1)
{
    rig_up_peers();
    AUTO_MEM char *taken = base_asprintf("127.0.0.1:%u", rig.coord.port);
    spawn(
        (const char *[]){"--name", "w", "--address", taken, "--coordinator", "127.0.0.1:9", NULL});
    int status = turn_until_child_ends();
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    CHECK(strstr(output(), taken) && strstr(output(), "EXISTS"));
    CHECK(strchr(output(), '\n') == strrchr(output(), '\n'));
    rig_down();
}

TEST(a_worker_that_is_not_told_who_it_is_says_what_was_wanted)
{
    unsetenv("TF_CONFIG");
    check_usage_error((const char *[]){NULL}, "want --tf-config FILE or the variable TF_CONFIG");
    check_usage_error((const char *[]){"--name", "w", "--address", "127.0.0.1:0", "--coordinator",
                                       "127.0.0.1:9", "--device", "gpu", NULL},
                      "--device: \"gpu\": want cpu, ref or fake");
    setenv("STEADFAST_WORKER_KILL", "at_noon:1", 1);
    check_usage_error((const char *[]){"--name", "w", "--address", "127.0.0.1:0", "--coordinator",
                                       "127.0.0.1:9", NULL},
                      "STEADFAST_WORKER_KILL: \"at_noon:1\": want before_push:STEP");
    unsetenv("STEADFAST_WORKER_KILL");
    setenv("TF_CONFIG",
           "{\"cluster\": {\"chief\": [\"127.0.0.1:9\"], \"ps\": [\"127.0.0.1:10\"], \"worker\": "
           "[\"127.0.0.1:11\"]}, \"task\": {\"type\": \"ps\", \"index\": 0}}",
           1);
    check_usage_error((const char *[]){NULL}, "task.type: \"ps\": want \"worker\"");
    check_usage_error((const char *[]){"--job_name", "ps", NULL},
                      "--job_name: \"ps\": want \"worker\"");
    check_usage_error((const char *[]){"--job_name", "evaluator", "--task_index", "0", NULL},
                      "--job_name: \"evaluator\": not available yet; want \"worker\", and the job "
                      "field eval_dataset");
    check_usage_error((const char *[]){"--job_name", "worker", "--task_index", "4", NULL},
                      "cluster.worker: no task 4");
    setenv("TF_CONFIG", "{", 1);
    check_usage_error((const char *[]){NULL}, "TF_CONFIG");
}

TEST(name_address_and_coordinator_come_from_tf_config)
{
    rig_up_peers();
    AUTO_MEM char *config =
        base_asprintf("{\"cluster\": {\"chief\": [\"127.0.0.1:%u\"], \"worker\": {\"3\": "
                      "\"127.0.0.1:12\"}}, \"task\": {\"type\": \"worker\", \"index\": \"3\"}}",
                      rig.coord.port);
    setenv("TF_CONFIG", config, 1);
    spawn((const char *[]){"--address", "127.0.0.1:0", "--device", "fake", NULL});
    rig_wait_attached();
    CHECK_STR(rig.coord.hello->name, "worker:3");
    kill(child.pid, SIGTERM);
    int status = turn_until_child_ends();
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    rig_down();
}
