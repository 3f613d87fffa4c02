/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/fake/device_fake.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "kernels/fake/fake_script.h"
#include "models/zoo/model.h"
#include "tests/harness.h"
#include "workerd/step/exec.h"

static struct err err;

TEST(a_script_is_read_as_written)
{
    struct fake_script script;
    CHECK_OK(fake_script_init(
        &script,
        "  step_us=500 fail_at=7,9,20-22  crash_at=12 hang_at=20 jitter_us=100 fail_once_at=3 ",
        &err));
    CHECK_U64(script.step_us, 500);
    CHECK_U64(script.jitter_us, 100);
    CHECK(ranges_has(&script.fail_at, 7) && !ranges_has(&script.fail_at, 8) &&
          ranges_has(&script.fail_at, 21) && !ranges_has(&script.fail_at, 23));
    CHECK(ranges_has(&script.crash_at, 12) && ranges_has(&script.hang_at, 20) &&
          ranges_has(&script.fail_once_at, 3));
    fake_script_done(&script);
}

TEST(an_empty_script_takes_no_time)
{
    struct fake_script script;
    CHECK_OK(fake_script_init(&script, NULL, &err));
    CHECK_U64(fake_script_time_us(&script, 5), 0);
    fake_script_done(&script);
    CHECK_OK(fake_script_init(&script, "", &err));
    CHECK_U64(script.fail_at.count, 0);
    fake_script_done(&script);
}

TEST(bad_scripts_are_refused_by_the_word)
{
    static const char *const cases[][2] = {
        {"step_us", "fake script: \"step_us\": want step_us=, jitter_us=, fail_at=, fail_once_at=, "
                    "crash_at= or hang_at="},
        {"step_us=1 sleep=3", "fake script: \"sleep=3\": want step_us=, jitter_us=, fail_at=, "
                              "fail_once_at=, crash_at= or hang_at="},
        {"step=1", "fake script: \"step=1\": want step_us=, jitter_us=, fail_at=, fail_once_at=, "
                   "crash_at= or hang_at="},
        {"step_us=", "fake script: \"step_us=\": want 0 to 3600000000 microseconds"},
        {"step_us=-1", "fake script: \"step_us=-1\": want 0 to 3600000000 microseconds"},
        {"step_us=1.5", "fake script: \"step_us=1.5\": want 0 to 3600000000 microseconds"},
        {"jitter_us=3600000001",
         "fake script: \"jitter_us=3600000001\": want 0 to 3600000000 microseconds"},
        {"fail_at=", "fake script: \"fail_at=\": want steps like 7,9,20-29"},
        {"fail_at=1,", "fake script: \"fail_at=1,\": want steps like 7,9,20-29"},
        {"fail_at=1,,2", "fake script: \"fail_at=1,,2\": want steps like 7,9,20-29"},
        {"hang_at=9-7", "fake script: \"hang_at=9-7\": want steps like 7,9,20-29"},
        {"crash_at=99999999999999999999",
         "fake script: \"crash_at=99999999999999999999\": want steps like 7,9,20-29"},
        {"step_us=1 step_us=2", "fake script: \"step_us=2\": step_us is given twice"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fake_script script;
        CHECK(fake_script_init(&script, cases[i][0], &err) == ERR_INVALID);
        CHECK_STR(err.text, cases[i][1]);
    }
}

TEST(jitter_depends_on_the_step_alone_and_stays_in_its_bounds)
{
    struct fake_script script;
    CHECK_OK(fake_script_init(&script, "step_us=10 jitter_us=5", &err));
    bool seen[16] = {0};
    for (uint64_t step = 0; step < 200; step++) {
        uint64_t us = fake_script_time_us(&script, step);
        CHECK(us >= 10 && us <= 15);
        CHECK_U64(fake_script_time_us(&script, step), us);
        seen[us] = true;
    }
    for (size_t us = 10; us <= 15; us++)
        CHECK(seen[us]);
    fake_script_done(&script);
}

struct fixture {
    struct graph *graph;
    struct exec *exec;
    float weights[16 * 3], biases[3];
    float weights_grad[16 * 3], biases_grad[3];
    size_t grad_count;
};

static void fixture_init(struct fixture *f, const char *script)
{
    memset(f, 0, sizeof(*f));
    struct model_spec spec = {.name = (char *)"softmax", .num_classes = 3};
    struct exec_options options = {.device = "fake", .fake_script = script, .max_batch = 2};
    CHECK_OK(model_build(&spec, 1, 4, 4, &f->graph, &err));
    CHECK_OK(exec_new(f->graph, &options, &f->exec, &err));
}

static void fixture_done(struct fixture *f)
{
    exec_free(f->exec);
    graph_free(f->graph);
}

static void on_grad(size_t var_index, void *arg)
{
    (void)var_index;
    ((struct fixture *)arg)->grad_count++;
}

static enum err_code step(struct fixture *f, uint64_t number, float *ret_loss)
{
    static const float images[32];
    static const int32_t labels[2] = {1, 2};
    struct batch batch = {.count = 2, .images = images, .labels = labels};
    f->weights_grad[5] = f->biases_grad[1] = 99;
    f->grad_count = 0;
    return exec_train(f->exec, number, &batch, (const float *const[]){f->weights, f->biases},
                      (float *const[]){f->weights_grad, f->biases_grad}, on_grad, f, ret_loss,
                      &err);
}

TEST(losses_are_the_steps_own_and_gradients_are_zeros)
{
    struct fixture f;
    float loss = 0;
    float last = 1e9f;
    fixture_init(&f, NULL);
    for (uint64_t s = 0; s < 5000; s += 1000) {
        CHECK_OK(step(&f, s, &loss));
        CHECK(loss == device_fake_loss(s) && loss < last && loss > 0);
        CHECK_U64(f.grad_count, 2);
        CHECK(f.weights_grad[5] == 0 && f.biases_grad[1] == 0);
        last = loss;
    }
    fixture_done(&f);
}

TEST(scripted_steps_fail_every_time_or_once)
{
    struct fixture f;
    float loss = 5;
    fixture_init(&f, "fail_at=7,9 fail_once_at=3");
    CHECK_OK(step(&f, 6, &loss));
    loss = 5;
    for (int i = 0; i < 3; i++) {
        CHECK(step(&f, 7, &loss) == ERR_DEVICE);
        CHECK_STR(err.text, "device fake: step 7 fails by its script");
    }
    CHECK(step(&f, 3, &loss) == ERR_DEVICE);
    CHECK(loss == 5 && f.grad_count == 0);
    CHECK_OK(step(&f, 3, &loss));
    CHECK(loss == device_fake_loss(3));
    fixture_done(&f);
}

TEST(a_step_takes_at_least_its_time)
{
    struct fixture f;
    float loss = 0;
    fixture_init(&f, "step_us=20000");
    uint64_t start_ns = clock_now_ns();
    CHECK_OK(step(&f, 0, &loss));
    CHECK(clock_now_ns() - start_ns >= 20 * NS_PER_MS);
    fixture_done(&f);
}

static pid_t run_in_child(const char *script, uint64_t number)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct fixture f;
        float loss;
        fixture_init(&f, script);
        _exit(step(&f, number, &loss) == ERR_OK ? 0 : 1);
    }
    return pid;
}

TEST(a_crash_kills_the_process_and_only_at_its_step)
{
    int status = 0;
    pid_t pid = run_in_child("crash_at=12", 12);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    pid = run_in_child("crash_at=12", 11);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(a_hang_does_not_end)
{
    int status = 0;
    pid_t pid = run_in_child("hang_at=20", 20);
    uint64_t end_ns = clock_now_ns() + 100 * NS_PER_MS;
    while (clock_now_ns() < end_ns) /* nothing to wait for: it must still be there then */
        CHECK(waitpid(pid, &status, WNOHANG) == 0);
    CHECK(kill(pid, SIGKILL) == 0);
    CHECK(waitpid(pid, &status, 0) == pid);
}

TEST(a_bad_script_stops_the_device_from_opening)
{
    struct graph *graph = NULL;
    struct exec *exec = NULL;
    struct model_spec spec = {.name = (char *)"noop"};
    struct exec_options options = {.device = "fake", .fake_script = "boom=1", .max_batch = 2};
    CHECK_OK(model_build(&spec, 1, 4, 4, &graph, &err));
    CHECK(exec_new(graph, &options, &exec, &err) == ERR_INVALID);
    CHECK(strstr(err.text, "\"boom=1\""));
    graph_free(graph);
}
