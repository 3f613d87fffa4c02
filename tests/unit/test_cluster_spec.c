/* SPDX-License-Identifier: Apache-2.0 */
/* What test_golden.c cannot say in files: host-list flags, loading, finding, splitting, sizes. */
#include "common/spec/cluster_spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/limits.h"
#include "common/spec/address.h"
#include "common/spec/host_flags.h"
#include "common/spec/tf_config.h"
#include "tests/harness.h"

static struct err err;

static void check_flags(const char *job, const char *index, const char *ps, const char *workers,
                        const char *controller, const char *want)
{
    struct cluster_spec *spec = NULL;
    CHECK(host_flags_parse(job, index, ps, workers, controller, &spec, &err) == ERR_INVALID);
    CHECK(spec == NULL);
    CHECK_STR(err.text, want);
}

TEST(host_list_flags_make_the_same_cluster_as_tf_config)
{
    AUTO(cluster_spec) spec = NULL;
    CHECK_OK(host_flags_parse("worker", "1", "p0:1,p1:2", "w0:3,w1:4", "c:5", &spec, &err));
    CHECK_U64(spec->roles[TASK_PS].count, 2);
    CHECK_U64(spec->roles[TASK_WORKER].count, 2);
    CHECK_STR(spec->roles[TASK_CHIEF].items[0].address, "c:5");
    CHECK_STR(spec->roles[TASK_PS].items[1].address, "p1:2");
    CHECK_STR(spec->roles[TASK_WORKER].items[1].address, "w1:4");
    CHECK_U64(spec->roles[TASK_WORKER].items[1].index, 1);
    CHECK(spec->has_task && spec->task_role == TASK_WORKER && spec->task_index == 1);
}

TEST(flags_default_as_in_tf_cnn)
{
    AUTO(cluster_spec) spec = NULL;
    /* task_index 0, no lists, the empty string for "not given" */
    CHECK_OK(host_flags_parse("ps", NULL, "p0:1", "", "c:5", &spec, &err));
    CHECK(spec->has_task && spec->task_role == TASK_PS && spec->task_index == 0);
    CHECK_U64(spec->roles[TASK_WORKER].count, 0);
    cluster_spec_free(TAKE(spec));
    CHECK_OK(host_flags_parse(NULL, NULL, NULL, NULL, "c:5", &spec, &err));
    CHECK(!spec->has_task);
    cluster_spec_free(TAKE(spec));
    CHECK_OK(host_flags_parse("controller", NULL, NULL, NULL, "c:5", &spec, &err));
    CHECK(spec->has_task && spec->task_role == TASK_CHIEF);
}

TEST(bad_flags_are_refused_with_flag_position_and_value)
{
    check_flags("ps", "0", "p:1", "w:1", NULL,
                "--controller_host: missing: want the coordinator's address, host:port");
    check_flags("ps", "0", "p:1", "w:1", "",
                "--controller_host: missing: want the coordinator's address, host:port");
    check_flags("ps", "0", "p:1,q", "w:1", "c:1",
                "--ps_hosts[1]: \"q\": want a port, \"host:port\"");
    check_flags("ps", "0", "p:1,,q:1", "w:1", "c:1", "--ps_hosts[1]: \"\": want \"host:port\"");
    check_flags("ps", "0", "p:1,", "w:1", "c:1", "--ps_hosts[1]: \"\": want \"host:port\"");
    check_flags("ps", "0", "p:1, q:1", "w:1", "c:1",
                "--ps_hosts[1]: \" q:1\": want \"host:port\" without blanks");
    check_flags("ps", "0", "p:1", "grpc://w:1", "c:1",
                "--worker_hosts[0]: \"grpc://w:1\": want \"host:port\" without a scheme");
    check_flags(
        "ps", "0", "p:1", "p:1", "c:1",
        "--worker_hosts[0]: \"p:1\": the address of --ps_hosts[0] too; want one address a task");
    check_flags("ps", "0", "p:1", "w:1", "c:1,d:1",
                "--controller_host: 2 addresses; want at most 1");
    check_flags("ps", "0", "p:0", "w:1", "c:1",
                "--ps_hosts[0]: \"p:0\": want a port from 1 to 65535");
}

TEST(the_flag_task_must_be_in_the_lists)
{
    check_flags("server", "0", "p:1", "w:1", "c:1",
                "--job_name: \"server\": want ps, worker, controller, chief or evaluator");
    check_flags("worker", "1", "p:1", "w:1", "c:1",
                "--task_index: 1: want less than 1, the tasks of --worker_hosts");
    check_flags("worker", "-1", "p:1", "w:1", "c:1",
                "--task_index: \"-1\": want a whole number from 0 to 4095");
    check_flags("worker", "one", "p:1", "w:1", "c:1",
                "--task_index: \"one\": want a whole number from 0 to 4095");
    check_flags("worker", "1.0", "p:1", "w:1", "c:1",
                "--task_index: \"1.0\": want a whole number from 0 to 4095");
    check_flags("worker", "", "p:1", "w:1", "c:1",
                "--task_index: \"\": want a whole number from 0 to 4095");
    check_flags("controller", "1", "p:1", "w:1", "c:1",
                "--task_index: \"1\": want 0, there is one chief");
    check_flags("worker", "0", "p:1", NULL, "c:1",
                "--job_name: \"worker\": want a role that the cluster has");
    check_flags(NULL, "0", "p:1", "w:1", "c:1", "--task_index: \"0\": want --job_name with it");
}

TEST(a_task_is_found_by_role_and_index)
{
    static const char json[] =
        "{\"cluster\":{\"chief\":[\"c:1\"],\"worker\":{\"9\":\"w9:1\",\"2\":\"w2:1\"}}}";
    AUTO(cluster_spec) spec = NULL;
    CHECK_OK(tf_config_parse("x", json, sizeof(json) - 1, &spec, &err));
    const struct cluster_task *task = cluster_spec_find(spec, TASK_WORKER, 9);
    CHECK(task != NULL);
    CHECK_STR(task->address, "w9:1");
    CHECK_U64(spec->roles[TASK_WORKER].items[0].index, 2);
    CHECK(cluster_spec_find(spec, TASK_WORKER, 0) == NULL);
    CHECK(cluster_spec_find(spec, TASK_PS, 0) == NULL);
    CHECK_STR(task_role_name(TASK_EVALUATOR), "evaluator");
}

TEST(an_address_is_split_into_host_and_port)
{
    char host[LIMIT_ADDRESS_BYTES];
    uint16_t port = 0;
    CHECK_OK(address_split("localhost:65535", host, sizeof(host), &port, &err));
    CHECK_STR(host, "localhost");
    CHECK_U64(port, 65535);
    CHECK_OK(address_split("[fe80::1%eth0]:22", host, sizeof(host), &port, &err));
    CHECK_STR(host, "fe80::1%eth0");
    CHECK_U64(port, 22);
    CHECK(address_split("localhost", host, sizeof(host), &port, &err) == ERR_INVALID);
    CHECK_STR(err.text, "address: \"localhost\": want a port, \"host:port\"");
    CHECK(address_split("localhost:1", host, 9, &port, &err) == ERR_INVALID);
    CHECK_STR(err.text, "address: \"localhost:1\": want a host of less than 9 bytes");
    CHECK_OK(address_split("localhost:1", host, 10, &port, &err));
    /* the longest DNS name, and one byte more */
    char longest[300];
    snprintf(longest, sizeof(longest), "%0253d.:1", 0);
    longest[0] = 'h';
    CHECK(address_split(longest, host, sizeof(host), &port, &err) == ERR_INVALID);
    snprintf(longest, sizeof(longest), "%0253d:1", 0);
    longest[0] = 'h';
    CHECK_OK(address_split(longest, host, sizeof(host), &port, &err));
    CHECK_U64(port, 1);
}

static void write_file(const char *path, const char *text)
{
    AUTO_FILE FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0);
}

TEST(the_file_goes_before_the_variable_and_neither_is_not_found)
{
    AUTO(cluster_spec) spec = NULL;
    unsetenv("TF_CONFIG");
    CHECK(tf_config_load(NULL, &spec, &err) == ERR_NOT_FOUND);
    CHECK_STR(err.text, "no cluster description: want --tf-config FILE or the variable TF_CONFIG");
    setenv("TF_CONFIG", "{\"cluster\":{\"chief\":[\"variable:1\"]}}", 1);
    CHECK_OK(tf_config_load(NULL, &spec, &err));
    CHECK_STR(spec->roles[TASK_CHIEF].items[0].address, "variable:1");
    cluster_spec_free(TAKE(spec));

    char path[128];
    snprintf(path, sizeof(path), "%s/tf.json", test_dir());
    write_file(path, "{\"cluster\":{\"chief\":[\"file:1\"]}}");
    CHECK_OK(tf_config_load(path, &spec, &err));
    CHECK_STR(spec->roles[TASK_CHIEF].items[0].address, "file:1");
    cluster_spec_free(TAKE(spec));

    write_file(path, "{\"cluster\":");
    CHECK(tf_config_load(path, &spec, &err) == ERR_INVALID);
    CHECK(strncmp(err.text, path, strlen(path)) == 0); /* the file is named first */
    setenv("TF_CONFIG", "", 1); /* set, though to nothing: refused, not taken for absent */
    CHECK(tf_config_load(NULL, &spec, &err) == ERR_INVALID);
    CHECK_STR(err.text, "TF_CONFIG: empty: want a JSON object");
}

TEST(a_file_that_cannot_be_read_is_invalid_and_never_a_hang)
{
    AUTO(cluster_spec) spec = NULL;
    char path[128];
    char want[256];
    snprintf(path, sizeof(path), "%s/missing", test_dir());
    CHECK(tf_config_load(path, &spec, &err) == ERR_INVALID);
    snprintf(want, sizeof(want), "%s: cannot open: No such file or directory", path);
    CHECK_STR(err.text, want);
    CHECK(tf_config_load(test_dir(), &spec, &err) == ERR_INVALID);
    snprintf(path, sizeof(path), "%s/fifo", test_dir());
    CHECK(mkfifo(path, 0600) == 0);
    CHECK(tf_config_load(path, &spec, &err) == ERR_INVALID);
    snprintf(want, sizeof(want), "%s: want a regular file", path);
    CHECK_STR(err.text, want);
    snprintf(path, sizeof(path), "%s/huge", test_dir());
    write_file(path, "");
    CHECK(truncate(path, LIMIT_TF_CONFIG_BYTES + 1) == 0);
    CHECK(tf_config_load(path, &spec, &err) == ERR_INVALID);
    snprintf(want, sizeof(want), "%s: 4194305 bytes: want at most 4194304", path);
    CHECK_STR(err.text, want);
    CHECK(spec == NULL);
}

TEST(the_largest_cluster_is_understood)
{
    size_t size = 1 << 20;
    AUTO_MEM char *json = malloc(size);
    int n = snprintf(json, size, "{\"cluster\":{\"chief\":[\"chief:1\"],\"ps\":[");
    for (int i = 0; i < LIMIT_SERVERS; i++)
        n += snprintf(json + n, size - (size_t)n, "%s\"ps-%d.example:1\"", i ? "," : "", i);
    n += snprintf(json + n, size - (size_t)n, "],\"worker\":[");
    for (int i = 0; i < LIMIT_WORKERS; i++)
        n += snprintf(json + n, size - (size_t)n, "%s\"worker-%d.example:1\"", i ? "," : "", i);
    n += snprintf(json + n, size - (size_t)n, "]},\"task\":{\"type\":\"worker\",\"index\":%d}}",
                  LIMIT_WORKERS - 1);
    AUTO(cluster_spec) spec = NULL;
    CHECK_OK(tf_config_parse("TF_CONFIG", json, (size_t)n, &spec, &err));
    CHECK_U64(spec->roles[TASK_WORKER].count, LIMIT_WORKERS);
    CHECK_U64(spec->task_index, LIMIT_WORKERS - 1);
}
