/* SPDX-License-Identifier: Apache-2.0 */
/* trainctl: the built program against a scripted coordinator (output, JSON keys, exit codes), and
 * its texts alone. */
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/fake_coord.h"
#include "tests/unit/strange_peer.h"
#include "trainctl/ctl.h"
#include "trainctl/job_text.h"
#include "trainctl/text_table.h"

#define ARGS_MAX 16

static char out_text[32768], err_text[8192];

static const char *path_of(const char *name)
{
    static char path[4][256];
    static unsigned at;
    char *buf = path[at++ % 4];
    snprintf(buf, sizeof(path[0]), "%s/%s", test_dir(), name);
    return buf;
}

/* This program is <build>/tests/unit/test_trainctl; the other is <build>/bin/trainctl. */
static const char *trainctl_path(void)
{
    static char path[600];
    char own[512];
    ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);
    CHECK(n > 0);
    own[n] = '\0';
    for (int up = 0; up < 3; up++)
        *strrchr(own, '/') = '\0';
    snprintf(path, sizeof(path), "%s/bin/trainctl", own);
    CHECK(access(path, X_OK) == 0);
    return path;
}

static pid_t start_trainctl(const char *const *args)
{
    const char *program = trainctl_path();
    const char *out_path = path_of("out"), *err_path = path_of("err");
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        const char *argv[ARGS_MAX + 2] = {program};
        for (int i = 0; args[i] && i < ARGS_MAX; i++)
            argv[i + 1] = args[i];
        int out = open(out_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        int err = open(err_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        if (fake.server)
            setenv("STEADFAST_COORDINATOR", fake.address, 1);
        else
            unsetenv("STEADFAST_COORDINATOR");
        execv(program, (char *const *)argv);
        _exit(127);
    }
    return pid;
}

static void read_text(const char *name, char *buf, size_t size)
{
    AUTO_FILE FILE *file = fopen(path_of(name), "re");
    CHECK(file);
    size_t n = fread(buf, 1, size - 1, file);
    buf[n] = '\0';
}

static int end_trainctl(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    read_text("out", out_text, sizeof(out_text));
    read_text("err", err_text, sizeof(err_text));
    if (!WIFEXITED(status))
        test_fail(__FILE__, __LINE__, "trainctl ended by signal %d: %s", WTERMSIG(status),
                  err_text);
    return WEXITSTATUS(status);
}

static int run_args(const char *const *args)
{
    return end_trainctl(start_trainctl(args));
}
#define RUN(...) run_args((const char *const[]){__VA_ARGS__, NULL})

#define CHECK_EXIT(got, want)                                                                      \
    do {                                                                                           \
        int got_exit_ = (got);                                                                     \
        if (got_exit_ != (want))                                                                   \
            test_fail(__FILE__, __LINE__, "exit %d, want %d; stderr: %.300s", got_exit_, (want),   \
                      err_text);                                                                   \
    } while (0)
#define CHECK_HAS(text, part)                                                                      \
    do {                                                                                           \
        if (!strstr((text), (part)))                                                               \
            test_fail(__FILE__, __LINE__, "no \"%s\" in: %.400s", (part), (text));                 \
    } while (0)

static unsigned count_of(const char *text, const char *part)
{
    unsigned count = 0;
    while ((text = strstr(text, part))) {
        count++;
        text += strlen(part);
    }
    return count;
}

/* Static storage, of the last file written. */
static const char *write_file(const char *name, const char *text)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s", path_of(name));
    AUTO_FILE FILE *file = fopen(path, "we");
    CHECK(file && fputs(text, file) >= 0);
    return path;
}

static const char good_job[] =
    "{\"name\": \"small\", \"model\": {\"name\": \"softmax\", \"num_classes\": 10},\n"
    " \"dataset\": {\"source\": \"synthetic\", \"records\": 1000, \"batch_size\": 10},\n"
    " \"optimizer\": {\"name\": \"sgd\", \"learning_rate\": 0.1}}\n";

/* ---- JSON --------------------------------------------------------------------------------------
 */
TEST(status_json_has_the_keys_that_programs_depend_on)
{
    fake_start(0);
    CHECK_EXIT(RUN("status", "fashion-lenet", "--json"), 0);
    fake_done();
    json_error_t error;
    json_t *json = json_loads(out_text, 0, &error);
    CHECK(json);
    const char *state, *name, *reason, *server, *path, *notice;
    json_int_t job, issued, acknowledged, reissued, abandoned, refused, lost, repeated, shard,
        applied, bytes, epoch, step, number, generation;
    double loss, accuracy, steps_rate, images_rate;
    int is_final;
    int rc = json_unpack_ex(
        json, &error, 0,
        "{s:s, s:s, s:s, s:I, s:{s:I, s:I, s:I, s:I}, s:I, s:I, s:I,"
        " s:[{s:s, s:I, s:I, s:I}, o], s:[{s:I, s:I, s:F, s:F}, o], s:{s:F, s:F},"
        " s:[{s:I, s:s}], s:[s], s:I, s:b}",
        "state", &state, "name", &name, "reason", &reason, "job", &job, "steps", "issued", &issued,
        "acknowledged", &acknowledged, "reissued", &reissued, "abandoned", &abandoned,
        "duplicates_refused", &refused, "lost", &lost, "repeated", &repeated, "shards", "server",
        &server, "shard", &shard, "applied", &applied, "bytes", &bytes, &(json_t *){NULL},
        "evaluations", "epoch", &epoch, "step", &step, "loss", &loss, "accuracy", &accuracy,
        &(json_t *){NULL}, "rates", "steps_per_second", &steps_rate, "images_per_second",
        &images_rate, "checkpoints", "number", &number, "path", &path, "notices", &notice,
        "generation", &generation, "accounting_final", &is_final);
    if (rc != 0)
        test_fail(__FILE__, __LINE__, "%s", error.text);
    CHECK_STR(state, "succeeded");
    CHECK_STR(name, "fashion-lenet");
    CHECK(job == 12 && issued == 2816 && acknowledged == 2813 && reissued == 5 && abandoned == 1);
    CHECK(refused == 2 && lost == 0 && repeated == 0 && generation == 2 && is_final == 1);
    CHECK_STR(server, "ps:0");
    CHECK(shard == 0 && applied == 2813 && bytes == 1000000);
    CHECK(epoch == 1 && step == 938);
    CHECK_NEAR(loss, 0.5, 0);
    CHECK_NEAR(accuracy, 0.875, 0);
    CHECK_NEAR(steps_rate, 312.5, 0);
    CHECK_NEAR(images_rate, 20000, 0);
    CHECK(number == 4);
    CHECK_STR(path, "/nonexistent/ckpt-4");
    json_decref(json);
}

TEST(every_json_output_is_one_object)
{
    const char *job = write_file("job.json", good_job);
    fake_start(0);
    const char *const commands[][3] = {{"list", NULL, NULL},       {"cancel", "12", NULL},
                                       {"checkpoint", "12", NULL}, {"cluster", NULL, NULL},
                                       {"plan", job, NULL},        {"submit", job, NULL}};
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        if (commands[i][1])
            CHECK_EXIT(RUN("--json", commands[i][0], commands[i][1]), 0);
        else
            CHECK_EXIT(RUN("--json", commands[i][0]), 0);
        json_t *json = json_loads(out_text, 0, NULL);
        CHECK(json && json_is_object(json));
        json_decref(json);
    }
    fake_done();
}

TEST(an_error_in_json_has_code_and_text)
{
    fake.fail_code = ERR_NOT_FOUND;
    fake.fail_text = "no job \"nobody\"";
    fake_start(0);
    CHECK_EXIT(RUN("status", "nobody", "--json"), 1);
    CHECK_STR(out_text, "");
    CHECK_STR(err_text,
              "{\"error\":{\"code\":\"NOT_FOUND\",\"text\":\"no job \\\"nobody\\\"\"}}\n");
    fake_done();
}

/* ---- output for people -------------------------------------------------------------------------
 */
TEST(status_for_people_shows_the_whole_accounting)
{
    fake_start(0);
    CHECK_EXIT(RUN("status", "12"), 0);
    CHECK_STR(out_text,
              "job 12 fashion-lenet: succeeded\n"
              "  time        0:09, epoch 3 of 3, generation 2\n"
              "  rates       312.5 steps/s, 20000 images/s, staleness 1.50\n"
              "  step time   50.00 ms: compute 80.0 %, serialise 1.0 %, copy 9.0 %, wait 6.0 %, "
              "apply 4.0 %\n"
              "  steps       issued 2816, acknowledged 2813 of 2814, re-issued 5, abandoned 1\n"
              "  applied     ps:0 shard 0: 2813 steps, 976.6 KiB\n"
              "              ps:1 shard 0: 2813 steps, 976.6 KiB\n"
              "  duplicates  2 refused\n"
              "  lost        0\n"
              "  repeated    0\n"
              "  accounting  final: the ledger against every shard's own marks\n"
              "  evaluation  epoch 1: test accuracy 0.8750, loss 0.5000 (938 steps)\n"
              "              epoch 2: test accuracy 0.9125, loss 0.2500 (1876 steps)\n"
              "  checkpoint  /nonexistent/ckpt-4 (step 1500)\n"
              "  abandoned   step 77 after 5 attempts: IO: train.gz: short record\n"
              "  notice      worker:1 lost: 3 steps issued again\n");
    fake_done();
}

TEST(a_job_that_ended_before_the_last_start_has_no_time_and_no_rates)
{
    fake.state = STEADFAST__V1__JOB_STATE__JOB_FAILED;
    fake.is_of_past_start = true;
    fake_start(0);
    CHECK_EXIT(RUN("status", "12"), 0);
    CHECK_HAS(out_text, "\n  time        -, epoch");
    CHECK_HAS(out_text, "\n  rates       -\n");
    CHECK_HAS(out_text, "  accounting  not final: the job ended before the shards' marks were "
                        "compared\n");
    CHECK_EXIT(RUN("list"), 0);
    CHECK_HAS(out_text, "        -  0.9125    -\n");
    fake_done();
}

TEST(a_job_that_has_no_rate_yet_has_no_time_left)
{
    fake.state = STEADFAST__V1__JOB_STATE__JOB_RUNNING;
    fake_start(0);
    CHECK_EXIT(RUN("status", "12"), 0);
    CHECK_HAS(out_text, "  time        0:09, 1:05 left, epoch");
    CHECK_HAS(out_text, "  accounting  so far: ");
    fake_stop();
    fake.has_no_rate = true;
    fake_start(0);
    CHECK_EXIT(RUN("status", "12"), 0);
    CHECK_HAS(out_text, "  time        0:09, epoch");
    CHECK_EXIT(RUN("status", "12", "--json"), 0);
    CHECK_HAS(out_text, "\"eta_seconds\": null");
    fake_done();
}

TEST(list_plan_and_cluster_are_tables)
{
    const char *job = write_file("job.json", good_job);
    fake_start(0);
    CHECK_EXIT(RUN("list"), 0);
    CHECK_STR(out_text,
              "JOB  NAME           STATE      STEPS    OF  EPOCH  STEPS/S  ACCURACY  TIME\n"
              " 12  fashion-lenet  succeeded   2813  2814    3/3    312.5  0.9125    0:09\n"
              " 12  fashion-lenet  succeeded   2813  2814    3/3    312.5  0.9125    0:09\n");
    CHECK_EXIT(RUN("plan", job), 0);
    CHECK_STR(out_text, "VARIABLE       SHAPE     ROWS          TRAINED  SERVER  SHARD\n"
                        "dense1/kernel  3136x512  0 to 1567     yes      ps:0        0\n"
                        "dense1/kernel  3136x512  1568 to 3135  yes      ps:1        0\n"
                        "global_step    scalar    all           no       ps:0        0\n"
                        "ps:0 shard 0: 6.1 MiB with optimizer slots\n"
                        "ps:1 shard 0: 6.1 MiB with optimizer slots\n"
                        "1605633 parameters; 938 steps an epoch, 2814 in all\n");
    fake_done();
}

TEST(cluster_names_members_and_the_missing)
{
    fake.missing_count = 1;
    fake_start(0);
    CHECK_EXIT(RUN("cluster"), 0);
    CHECK_STR(out_text,
              "NAME       ROLE    STATE     ADDRESS          PID     HELD   BUDGET  STEPS  FLYING  "
              "DEVICES\n"
              "ps:0       ps      attached  127.0.0.1:4713  4243  6.0 MiB               0       0\n"
              "worker:0   worker  attached  127.0.0.1:4711  4242           3.0 GiB   1300       4  "
              "cpu:0\n"
              "worker:10  worker  attached  127.0.0.1:4711  4242           3.0 GiB   1300       4  "
              "cpu:0\n"
              "missing: ps:1 at 127.0.0.1:4712\n");
    fake_done();
}

/* ---- exit codes --------------------------------------------------------------------------------
 */
TEST(wrong_usage_is_2_and_says_what_was_wanted)
{
    CHECK_EXIT(RUN("frobnicate"), 2);
    CHECK_HAS(err_text, "frobnicate: no such command; see trainctl --help\n");
    CHECK_EXIT(RUN("stauts", "12"), 2);
    CHECK_HAS(err_text, "stauts: no such command; did you mean \"status\"?\n");
    CHECK_EXIT(RUN("list", "--log-level", "loud"), 2);
    CHECK_HAS(err_text, "--log-level: \"loud\": want error");
    CHECK_EXIT(RUN("status"), 2);
    CHECK_HAS(err_text, "usage: trainctl [options] status JOB");
    CHECK_EXIT(RUN("status", "a", "b"), 2);
    CHECK_EXIT(RUN("list", "--resume"), 2);
    CHECK_HAS(err_text, "--resume: list has no use for it");
    CHECK_EXIT(RUN("status", "12", "--tiemout", "3"), 2);
    CHECK_HAS(err_text, "--timeout");
    CHECK_EXIT(RUN("status", "12"), 2);
    CHECK_HAS(err_text, "STEADFAST_COORDINATOR");
    CHECK_EXIT(RUN("status", "12", "--coordinator", "nowhere"), 2);
    CHECK_HAS(err_text, "nowhere");
}

TEST(help_lists_commands_and_exit_codes)
{
    CHECK_EXIT(RUN("--help"), 0);
    CHECK_HAS(out_text, "usage: trainctl [options] COMMAND ...\n\ncommands:\n");
    CHECK_HAS(out_text, "submit JOB.json");
    CHECK_HAS(out_text, "3 no answer from the coordinator in time");
    CHECK_HAS(out_text, "--coordinator HOST:PORT");
}

TEST(a_job_file_that_is_not_valid_is_2_before_any_connection)
{
    const char *bad = write_file("bad.json", "{\"name\": \"x\", \"epohcs\": 3}");
    fake_start(0);
    CHECK_EXIT(RUN("submit", bad), 2);
    CHECK_HAS(err_text, bad);
    CHECK_HAS(err_text, "epohcs");
    CHECK_HAS(err_text, "epochs"); /* the nearest known name */
    CHECK_EXIT(RUN("plan", bad), 2);
    CHECK_EXIT(RUN("submit", "/nonexistent/job.json"), 2);
    CHECK_HAS(err_text, "/nonexistent/job.json: No such file");
    CHECK_STR(fake_look()->spec_json, "");
    fake_done();
    CHECK_EXIT(RUN("submit", bad, "--coordinator", "127.0.0.1:1"), 2); /* not 3: nobody was asked */
}

TEST(a_job_that_the_coordinator_refuses_is_2)
{
    const char *job = write_file("job.json", good_job);
    fake.fail_code = ERR_INVALID;
    fake.fail_text = "dataset.images: /x: want a file";
    fake_start(0);
    CHECK_EXIT(RUN("submit", job), 2);
    CHECK_STR(err_text, "trainctl: dataset.images: /x: want a file\n");
    fake_done();
}

TEST(nobody_there_is_3_within_the_timeout)
{
    char address[64];
    snprintf(address, sizeof(address), "127.0.0.1:%u", fake_unused_port());
    uint64_t start_ns = clock_now_ns();
    CHECK_EXIT(RUN("--coordinator", address, "--timeout", "1", "status", "12"), 3);
    CHECK(clock_now_ns() - start_ns >= 900 * NS_PER_MS);
    CHECK_HAS(err_text, address);
    CHECK_HAS(err_text, "no answer within 1000 ms: connection refused");
    CHECK_EXIT(RUN("--coordinator", address, "--timeout", "1", "watch", "12"), 3);
    CHECK_EXIT(RUN("--coordinator", address, "--timeout", "1", "checkpoint", "12"), 3);
    fake_done();
}

TEST(an_address_of_something_else_is_2_and_says_what_is_there)
{
    struct strange_peer peer;
    strange_start(&peer, "HTTP/1.1 400 Bad Request\r\n\r\n");
    CHECK_EXIT(RUN("--coordinator", peer.address, "--timeout", "1", "list"), 2);
    CHECK_HAS(err_text, peer.address);
    CHECK_HAS(err_text, "it says \"HTTP/1.1 400 Bad Request\"");
    strange_stop(&peer);
}

TEST(an_export_of_a_checkpoint_that_is_not_there_is_1_and_writes_nothing)
{
    fake_start(0);
    CHECK_EXIT(RUN("export", "12", path_of("out.safetensors")), 1);
    CHECK_HAS(err_text, "/nonexistent/ckpt-4");
    CHECK(access(path_of("out.safetensors"), F_OK) != 0);
    fake_done();
}

TEST(an_export_of_a_directory_of_checkpoints_names_the_newest)
{
    const char *dir = test_dir();
    for (int n = 6; n <= 7; n++) {
        char name[64];
        snprintf(name, sizeof(name), "ckpt-%d", n);
        CHECK(mkdir(path_of(name), 0700) == 0);
        snprintf(name, sizeof(name), "ckpt-%d/manifest.json", n);
        write_file(name, "{}");
    }
    CHECK_EXIT(RUN("export", dir, path_of("out.safetensors")), 1);
    CHECK_HAS(err_text,
              " is no checkpoint; want one of its ckpt-<n> folders, the newest is ckpt-7\n");
}

static void check_export_without_checkpoint(Steadfast__V1__JobState state, const char *want)
{
    fake.state = state;
    fake.has_no_checkpoints = true;
    fake_start(0);
    CHECK_EXIT(RUN("export", "12", path_of("out.safetensors")), 1);
    CHECK_STR(err_text, want);
    fake_done();
}

TEST(an_export_of_a_running_job_without_checkpoint_says_how_to_write_one)
{
    check_export_without_checkpoint(
        STEADFAST__V1__JOB_STATE__JOB_RUNNING,
        "trainctl: job 12 has no checkpoint; write one with: trainctl checkpoint 12\n");
}

TEST(an_export_of_an_ended_job_without_checkpoint_advises_none)
{
    check_export_without_checkpoint(STEADFAST__V1__JOB_STATE__JOB_FAILED,
                                    "trainctl: job 12 has no checkpoint: it is failed\n");
}

/* ---- submit and watch --------------------------------------------------------------------------
 */
TEST(submit_hands_over_the_file_as_it_is)
{
    const char *job = write_file("job.json", good_job);
    fake_start(0);
    CHECK_EXIT(RUN("submit", job), 0);
    CHECK_STR(out_text, "job 12 submitted\n");
    CHECK_STR(fake_look()->spec_json, good_job);
    CHECK(!fake_look()->resume);
    CHECK_EXIT(RUN("submit", job, "--resume"), 0);
    CHECK(fake_look()->resume);
    fake_done();
}

static void check_watch_exit(Steadfast__V1__JobState state, int want)
{
    const char *job = write_file("job.json", good_job);
    fake.state = state;
    fake.watch_count = 2;
    fake_start(0);
    CHECK_EXIT(RUN("submit", job, "--watch", "--interval-ms", "50"), want);
    CHECK_STR(fake_look()->job, "12"); /* by number: a newer job of that name is another one */
    CHECK_HAS(out_text, "job 12 submitted\n");
    CHECK(count_of(out_text, "fashion-lenet: epoch 1: test accuracy 0.8750") == 1);
    CHECK(count_of(out_text, "fashion-lenet: worker:1 lost: 3 steps issued again\n") == 1);
    CHECK_HAS(out_text, "  lost        0\n");
    fake_done();
}

TEST(a_watched_job_that_succeeds_is_0)
{
    check_watch_exit(STEADFAST__V1__JOB_STATE__JOB_SUCCEEDED, 0);
}

TEST(a_watched_job_that_fails_is_1)
{
    check_watch_exit(STEADFAST__V1__JOB_STATE__JOB_FAILED, 1);
    CHECK_HAS(out_text, "job 12 fashion-lenet: failed: step 77: train.gz: short record\n");
}

TEST(a_watched_job_that_is_cancelled_is_4)
{
    check_watch_exit(STEADFAST__V1__JOB_STATE__JOB_CANCELLED, 4);
}

TEST(a_watch_in_json_is_one_object_a_line)
{
    fake.watch_count = 3;
    fake_start(0);
    CHECK_EXIT(RUN("watch", "12", "--json"), 0);
    fake_done();
    const char *last = NULL;
    json_t *json = NULL;
    for (char *line = strtok(out_text, "\n"); line; line = strtok(NULL, "\n")) {
        json_decref(json);
        json = json_loads(line, 0, NULL);
        CHECK(json);
        last = json_string_value(json_object_get(json, "state"));
    }
    CHECK(last);
    CHECK_STR(last, "succeeded");
    json_decref(json);
}

TEST(a_watch_survives_a_restart_of_the_coordinator)
{
    fake.watch_count = 3;
    fake.watch_end = FAKE_WATCH_SILENT;
    fake_start(0);
    pid_t pid = start_trainctl((const char *const[]){"watch", "fashion-lenet", NULL});
    fake_wait_watches(1);
    fake_stop();
    fake.watch_end = FAKE_WATCH_JOB_ENDS;
    fake_start(fake.port);
    CHECK_EXIT(end_trainctl(pid), 0);
    char want[200];
    snprintf(want, sizeof(want),
             "trainctl: coordinator %s went away; trying again for 60 s\n"
             "trainctl: the coordinator is back\n",
             fake.address);
    CHECK_STR(err_text, want);
    CHECK_STR(fake_look()->job, "12");                        /* asked again by number */
    CHECK(count_of(out_text, "epoch 1: test accuracy") == 2); /* as it came, and in the summary */
    fake_done();
}

TEST(a_watch_gives_up_on_a_coordinator_that_stays_away)
{
    fake.watch_count = 1;
    fake.watch_end = FAKE_WATCH_SILENT;
    fake_start(0);
    pid_t pid = start_trainctl((const char *const[]){"watch", "12", "--reconnect", "1", NULL});
    fake_wait_watches(1);
    fake_stop();
    CHECK_EXIT(end_trainctl(pid), 3);
    CHECK_HAS(err_text, "trying again for 1 s");
    fake_done();
}

static void check_cause_is_said(const char *option, const char *value, const char *part)
{
    fake.watch_count = 1;
    fake.watch_end = FAKE_WATCH_SILENT;
    fake_start(0);
    pid_t pid = start_trainctl(
        (const char *const[]){"watch", "12", "--reconnect", "1", option, value, NULL});
    fake_wait_watches(1);
    fake_stop();
    CHECK_EXIT(end_trainctl(pid), 3);
    CHECK_HAS(err_text, part);
    CHECK_HAS(err_text, "Coordinator/WatchJob");
    char doubled[200];
    snprintf(doubled, sizeof(doubled), "%s: %s", fake.address, fake.address);
    CHECK(!strstr(err_text, doubled));
    fake_done();
}

TEST(a_watch_says_why_the_coordinator_went_away_at_level_debug)
{
    check_cause_is_said("--log-level", "debug", "coordinator.lost");
}

TEST(a_watch_says_why_the_coordinator_went_away_in_json)
{
    check_cause_is_said("--json", NULL, "{\"note\":{\"text\":\"coordinator ");
}

TEST(cluster_wait_returns_when_nobody_is_missing)
{
    fake.missing_count = 3;
    fake_start(0);
    CHECK_EXIT(RUN("cluster", "--wait", "10"), 0);
    CHECK_U64(fake_look()->cluster_calls, 4);
    CHECK(!strstr(out_text, "missing"));
    fake_done();
}

TEST(cluster_wait_names_who_is_missing_at_the_deadline)
{
    fake.missing_count = UINT32_MAX;
    fake_start(0);
    CHECK_EXIT(RUN("cluster", "--wait", "1"), 1);
    CHECK_HAS(out_text, "missing: ps:1 at 127.0.0.1:4712\n");
    fake_done();
}

/* ---- texts -------------------------------------------------------------------------------------
 */
static struct steadfast_job running_job(void)
{
    return (struct steadfast_job){.name = "fashion-lenet",
                                  .state = STEADFAST_JOB_RUNNING,
                                  .phase = "training",
                                  .reason = "",
                                  .steps_total = 2000,
                                  .acknowledged = 1000,
                                  .epoch = 1,
                                  .epochs = 3,
                                  .steps_per_second = 312.44,
                                  .images_per_second = 19996,
                                  .loss = 0.41234,
                                  .eta_seconds = 65,
                                  .workers = 2};
}

TEST(the_live_line_has_bar_percent_epoch_rates_loss_and_eta)
{
    struct steadfast_job job = running_job();
    char line[512];
    job_text_progress(&job, true, 400, line, sizeof(line));
    CHECK_STR(line,
              "fashion-lenet  [============>           ]  50%  step 1000/2000  312.4 steps/s  "
              "loss 0.4123  eta 1:05  19996 images/s  epoch 2/3  2 workers");
    job_text_progress(&job, true, 99, line, sizeof(line));
    CHECK_STR(line, "fashion-lenet  [=====>    ]  50%  step 1000/2000  312.4 steps/s  loss 0.4123  "
                    "eta 1:05  epoch 2/3");
}

TEST(a_live_line_never_exceeds_its_width)
{
    struct steadfast_job job = running_job();
    char line[512];
    for (size_t width = 0; width < 200; width++) {
        job_text_progress(&job, true, width, line, sizeof(line));
        CHECK(strlen(line) <= width);
    }
    char small[32];
    job_text_progress(&job, true, 400, small, sizeof(small));
    CHECK_STR(small, "fashion-lenet  50%  loss 0.4123");
}

TEST(a_live_line_of_80_columns_holds_what_matters)
{
    struct steadfast_job job = running_job();
    char line[512];
    job_text_progress(&job, true, 79, line, sizeof(line));
    CHECK_STR(line, "fashion-lenet  50%  step 1000/2000  312.4 steps/s  loss 0.4123  eta 1:05");
    job.state = STEADFAST_JOB_PAUSED;
    job.eta_seconds = NAN;
    job.reason = "ps:1 was lost and the job waits for it to be started again";
    job_text_progress(&job, true, 79, line, sizeof(line));
    CHECK_STR(line,
              "fashion-lenet  50%  paused: ps:1 was lost and the job waits for it to be sta...");
    job_text_progress(&job, true, 30, line, sizeof(line));
    CHECK_HAS(line, "paused: ");
    job.name = "a-name-that-alone-has-more-columns-than-half-of-a-terminal-of-80";
    job_text_progress(&job, true, 79, line, sizeof(line));
    CHECK_HAS(line, "paused: ps:1 was lost");
    job.reason = "abcd\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"; /* is cut between characters */
    for (size_t width = 40; width < 60; width++) {
        job_text_progress(&job, false, width, line, sizeof(line));
        json_t *text = json_string(line);
        CHECK(text); /* UTF-8 */
        json_decref(text);
    }
}

TEST(a_job_that_does_not_train_says_what_it_does_instead)
{
    struct steadfast_job job = running_job();
    char line[512];
    job.phase = "evaluating";
    job_text_progress(&job, false, 400, line, sizeof(line));
    CHECK_HAS(line, "fashion-lenet  50%  evaluating  step 1000/2000");
    job.state = STEADFAST_JOB_PAUSED;
    job.reason = "ps:1 lost";
    job_text_progress(&job, false, 400, line, sizeof(line));
    CHECK_HAS(line, "50%  paused: ps:1 lost  step");
}

TEST(a_job_whose_total_is_not_known_yet_is_at_zero_percent)
{
    struct steadfast_job job = running_job();
    char line[512];
    job.steps_total = 0;
    job.loss = NAN;
    job.eta_seconds = NAN;
    job_text_progress(&job, false, 400, line, sizeof(line));
    CHECK_STR(line, "fashion-lenet  0%  step 1000/0  312.4 steps/s  19996 images/s  epoch 2/3  "
                    "2 workers");
}

TEST(bytes_and_durations_read_well)
{
    char buf[32];
    CHECK_STR(text_bytes(0, buf, sizeof(buf)), "0 B");
    CHECK_STR(text_bytes(1023, buf, sizeof(buf)), "1023 B");
    CHECK_STR(text_bytes(1024, buf, sizeof(buf)), "1.0 KiB");
    CHECK_STR(text_bytes((1u << 20) - 1, buf, sizeof(buf)), "1.0 MiB");
    CHECK_STR(text_bytes(UINT64_MAX, buf, sizeof(buf)), "16384.0 PiB");
    CHECK_STR(text_duration(0, buf, sizeof(buf)), "0:00");
    CHECK_STR(text_duration(59.6, buf, sizeof(buf)), "1:00");
    CHECK_STR(text_duration(11045, buf, sizeof(buf)), "3:04:05");
    CHECK_STR(text_duration(-1, buf, sizeof(buf)), "-");
    CHECK_STR(text_duration(NAN, buf, sizeof(buf)), "-");
    CHECK_STR(text_duration(1e12, buf, sizeof(buf)), "-");
}
