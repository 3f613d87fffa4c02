/* SPDX-License-Identifier: Apache-2.0 */
#include "common/daemon/daemon.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/harness.h"

static const char described[] =
    "{\"cluster\": {\"chief\": [\"10.0.0.1:1\"], \"ps\": [\"10.0.0.2:2\", \"ps1.example:3\"], "
    "\"worker\": [\"10.0.0.4:4\"]}, \"task\": {\"type\": \"ps\", \"index\": 0}}";

static enum err_code identify(enum task_role role, const struct daemon_flags *flags,
                              const char *name, const char *coordinator, struct daemon_identity *me,
                              struct err *err)
{
    return daemon_identify(role, flags, name, coordinator, me, err);
}

TEST(a_task_of_the_description_is_who_the_process_is)
{
    struct daemon_flags flags = {0};
    struct daemon_identity me;
    struct err err;
    setenv("TF_CONFIG", described, 1);
    CHECK_OK(identify(TASK_PS, &flags, NULL, NULL, &me, &err));
    CHECK_STR(me.name, "ps:0");
    CHECK_STR(me.listen, "10.0.0.2:2");
    CHECK(me.advertise == NULL);
    CHECK_STR(me.coordinator, "10.0.0.1:1");
    daemon_identity_done(&me);
    flags.job_name = "worker";
    flags.task_index = "0";
    CHECK_OK(identify(TASK_WORKER, &flags, NULL, "10.9.9.9:9", &me, &err));
    CHECK_STR(me.name, "worker:0");
    CHECK_STR(me.coordinator, "10.9.9.9:9");
    daemon_identity_done(&me);
}

TEST(a_host_name_is_told_to_others_and_all_interfaces_are_listened_on)
{
    struct daemon_flags flags = {.task_index = "1"};
    struct daemon_identity me;
    struct err err;
    setenv("TF_CONFIG", described, 1);
    CHECK_OK(identify(TASK_PS, &flags, NULL, NULL, &me, &err));
    CHECK_STR(me.listen, "0.0.0.0:3");
    CHECK_STR(me.advertise, "ps1.example:3");
    daemon_identity_done(&me);
}

TEST(without_a_description_the_flags_may_say_all)
{
    struct daemon_flags flags = {.address = "127.0.0.1:0"};
    struct daemon_identity me;
    struct err err;
    unsetenv("TF_CONFIG");
    CHECK_OK(identify(TASK_WORKER, &flags, "spot-7", "127.0.0.1:5", &me, &err));
    CHECK_STR(me.name, "spot-7");
    CHECK_STR(me.listen, "127.0.0.1:0");
    CHECK(me.cluster == NULL);
    daemon_identity_done(&me);
    CHECK(identify(TASK_WORKER, &flags, NULL, "127.0.0.1:5", &me, &err) == ERR_NOT_FOUND);
}

TEST(a_role_or_task_that_does_not_fit_is_refused_with_what_was_wanted)
{
    struct daemon_flags flags = {0};
    struct daemon_identity me;
    struct err err;
    setenv("TF_CONFIG", described, 1);
    CHECK(identify(TASK_WORKER, &flags, NULL, NULL, &me, &err) == ERR_INVALID);
    CHECK_STR(err.text, "task.type: \"ps\": want \"worker\" for this daemon");
    flags.task_index = "7";
    CHECK(identify(TASK_PS, &flags, NULL, NULL, &me, &err) == ERR_INVALID);
    CHECK_STR(err.text, "cluster.ps: no task 7: want its host:port, or --address");
    flags.task_index = "x";
    CHECK(identify(TASK_PS, &flags, NULL, NULL, &me, &err) == ERR_INVALID);
    CHECK_STR(err.text, "--task_index: \"x\": want a number from 0 to 4095");
    flags.task_index = "0";
    flags.job_name = "worker";
    CHECK(identify(TASK_PS, &flags, NULL, NULL, &me, &err) == ERR_INVALID);
    CHECK_STR(err.text, "--job_name: \"worker\": want \"ps\" for this daemon");
    flags.job_name = NULL;
    flags.address = "nowhere";
    CHECK(identify(TASK_PS, &flags, NULL, NULL, &me, &err) == ERR_INVALID);
    CHECK(strstr(err.text, "nowhere"));
}

TEST(a_coordinator_described_as_another_task_is_refused)
{
    struct daemon_flags flags = {0};
    struct daemon_identity me;
    struct err err;
    setenv("TF_CONFIG", described, 1);
    CHECK(identify(TASK_CHIEF, &flags, NULL, NULL, &me, &err) == ERR_INVALID);
    CHECK_STR(err.text, "task.type: \"ps\": want \"chief\" for this daemon");
    flags.job_name = "chief"; /* a flag goes before the description */
    CHECK_OK(identify(TASK_CHIEF, &flags, NULL, NULL, &me, &err));
    CHECK_STR(me.name, "chief:0");
    daemon_identity_done(&me);
}

static const char evaluator_words[] =
    "\"evaluator\": not available yet; want \"worker\", and the job field eval_dataset, which "
    "workers evaluate (an evaluator will need the job's checkpoint.directory)";

TEST(an_evaluator_is_told_what_evaluates_instead)
{
    struct daemon_flags flags = {0};
    struct daemon_identity me;
    struct err err;
    char want[300];
    setenv("TF_CONFIG", "{\"task\": {\"type\": \"evaluator\", \"index\": 0}}", 1);
    snprintf(want, sizeof(want), "task.type: %s", evaluator_words);
    CHECK(identify(TASK_WORKER, &flags, NULL, NULL, &me, &err) == ERR_INVALID);
    CHECK_STR(err.text, want);
    flags.task_index = "0"; /* an index does not make a worker of it */
    CHECK(identify(TASK_WORKER, &flags, NULL, NULL, &me, &err) == ERR_INVALID);
    CHECK_STR(err.text, want);
    CHECK(identify(TASK_PS, &flags, NULL, NULL, &me, &err) == ERR_INVALID);
    CHECK_STR(err.text, "task.type: \"evaluator\": want \"ps\" for this daemon");
    setenv("TF_CONFIG", described, 1);
    flags.job_name = "evaluator";
    snprintf(want, sizeof(want), "--job_name: %s", evaluator_words);
    CHECK(identify(TASK_WORKER, &flags, NULL, NULL, &me, &err) == ERR_INVALID);
    CHECK_STR(err.text, want);
}

TEST(names_of_a_cloud_are_said_once_in_one_warning)
{
    struct daemon_flags flags = {0};
    struct daemon_identity me;
    struct err err;
    setenv(
        "TF_CONFIG",
        "{\"cluster\": {\"chief\": [\"10.0.0.1:1\"], \"ps\": [\"10.0.0.2:2\"]}, \"job\": \"{}\", "
        "\"task\": {\"type\": \"ps\", \"index\": 0, \"trial\": \"1\", \"cloud\": \"ab\"}}",
        1);
    char path[200];
    snprintf(path, sizeof(path), "%s/said", test_dir());
    int old = dup(STDERR_FILENO);
    CHECK(old >= 0 && freopen(path, "w", stderr));
    CHECK_OK(identify(TASK_PS, &flags, NULL, NULL, &me, &err));
    CHECK(dup2(old, STDERR_FILENO) >= 0 && close(old) == 0);
    daemon_identity_done(&me);
    char said[1000] = "";
    AUTO_FILE FILE *file = fopen(path, "r");
    CHECK(file && fread(said, 1, sizeof(said) - 1, file) > 0);
    static const char words[] = "tf_config.ignored";
    const char *first = strstr(said, words);
    CHECK(first && !strstr(first + 1, words));
    CHECK(strncmp(said, "<4>", 3) == 0); /* a warning */
    CHECK(strstr(said, "count=3 names=\"job, task.trial, task.cloud\""));
}
