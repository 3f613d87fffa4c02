/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers, the gate, and a shard whose readers do not let go. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "psd/exchange/push_gate.h"
#include "psd/shard/shard.h"
#include "tests/harness.h"

#define MIB ((size_t)1 << 20)
#define SPEC                                                                                       \
    "{\"name\": \"j\", \"seed\": 42, \"epochs\": 1, \"model\": {\"name\": \"softmax\","            \
    " \"num_classes\": 10}, \"dataset\": {\"source\": \"synthetic\", \"records\": 100,"            \
    " \"batch_size\": 10}, \"optimizer\": {\"name\": \"sgd\", \"learning_rate\": 1.0}}"

/* ---- pools ---------------------------------------------------------------------------------- */
TEST(a_pool_always_has_what_it_reserved_and_more_while_the_budget_lasts)
{
    struct err err;
    AUTO(budget) budget = budget_new(10 * MIB, false);
    struct bufpool *a, *b, *c = NULL;
    struct buf *bufs[8];
    CHECK_OK(bufpool_new(budget, "a", 2 * MIB, 2, &a, &err));
    CHECK_OK(bufpool_new(budget, "b", 2 * MIB, 1, &b, &err));
    CHECK_U64(budget_used(budget), 6 * MIB);
    for (int i = 0; i < 4; i++) {
        CHECK_OK(bufpool_get(a, &bufs[i], &err));
        CHECK(((uintptr_t)bufs[i]->data & 63) == 0 && bufs[i]->bytes == 2 * MIB);
    }
    CHECK(bufpool_get(a, &bufs[4], &err) == ERR_FULL); /* b's reservation is not touched */
    CHECK_OK(bufpool_get(b, &bufs[4], &err));
    CHECK(bufpool_new(budget, "c", MIB, 1, &c, &err) == ERR_NO_MEMORY);
    CHECK(strstr(err.text, "c:") && strstr(err.text, "10485760"));
    /* Idle ones beyond the reservation go to who is short. */
    for (int i = 0; i < 4; i++)
        buf_unref(bufs[i]);
    CHECK_U64(budget_used(budget), 10 * MIB);
    CHECK_OK(bufpool_new(budget, "c", MIB, 2, &c, &err));
    CHECK_OK(bufpool_get(a, &bufs[0], &err));
    CHECK_OK(bufpool_get(a, &bufs[1], &err));
    /* A pool lives until its last buffer is back. */
    bufpool_free(a);
    buf_ref(bufs[0]);
    buf_unref(bufs[0]);
    memset(bufs[0]->data, 1, bufs[0]->bytes);
    buf_unref(bufs[0]);
    uint64_t before = budget_used(budget);
    buf_unref(bufs[1]);
    CHECK_U64(before - budget_used(budget), 6 * MIB); /* one of its extra two went to c */
    buf_unref(bufs[4]);
    bufpool_free(b);
    bufpool_free(c);
    CHECK_U64(budget_used(budget), 0);
}

TEST(a_soft_budget_takes_idle_buffers_back_but_never_refuses)
{
    struct err err;
    AUTO(budget) budget = budget_new(2 * MIB, true);
    struct bufpool *a, *b;
    struct buf *x, *y, *z;
    CHECK_OK(bufpool_new(budget, "a", 2 * MIB, 0, &a, &err));
    CHECK_OK(bufpool_new(budget, "b", 2 * MIB, 0, &b, &err));
    CHECK_OK(bufpool_get(a, &x, &err));
    CHECK_OK(bufpool_get(a, &y, &err));
    CHECK_U64(budget_used(budget), 4 * MIB);
    buf_unref(x);
    buf_unref(y);
    CHECK_OK(bufpool_get(b, &z, &err));
    CHECK_U64(budget_used(budget), 2 * MIB);
    buf_unref(z);
    bufpool_free(a);
    bufpool_free(b);
}

/* ---- the gate ------------------------------------------------------------------------------- */
struct visitor {
    struct push_waiter waiter;
    int opened;
};
static int open_count;

static void on_open(struct push_waiter *waiter)
{
    CONTAINER_OF(waiter, struct visitor, waiter)->opened = ++open_count;
}

TEST(the_gate_lets_in_by_bytes_and_count_in_the_order_of_arrival)
{
    struct err err;
    AUTO(push_gate) gate = push_gate_new(100, 3, 3);
    struct visitor v[7];
    memset(v, 0, sizeof(v));
    const uint64_t bytes[7] = {500, 60, 30, 40, 10, 1, 1};
    bool is_in[7];
    for (int i = 0; i < 7; i++) {
        v[i].waiter.bytes = bytes[i];
        v[i].waiter.on_open = on_open;
    }
    CHECK_OK(push_gate_enter(gate, &v[0].waiter, &is_in[0], &err));
    CHECK(is_in[0]); /* larger than all, but alone */
    for (int i = 1; i < 4; i++) {
        CHECK_OK(push_gate_enter(gate, &v[i].waiter, &is_in[i], &err));
        CHECK(!is_in[i]);
    }
    CHECK(push_gate_enter(gate, &v[4].waiter, &is_in[4], &err) == ERR_FULL);
    push_gate_leave(gate, 500);
    CHECK(v[1].opened == 1 && v[2].opened == 2 && v[3].opened == 0); /* 60 + 30, 40 does not fit */
    CHECK_OK(push_gate_enter(gate, &v[4].waiter, &is_in[4], &err));
    CHECK(!is_in[4]); /* 10 would fit, but 40 was here before */
    CHECK(push_gate_cancel(gate, &v[3].waiter));
    CHECK(!push_gate_cancel(gate, &v[3].waiter));
    CHECK(!push_gate_cancel(gate, &v[1].waiter));
    CHECK_OK(push_gate_enter(gate, &v[5].waiter, &is_in[5], &err));
    push_gate_leave(gate, 30);
    CHECK(v[4].opened == 3 && v[5].opened == 4);
    CHECK_OK(push_gate_enter(gate, &v[6].waiter, &is_in[6], &err));
    CHECK(!is_in[6]); /* three are in */
    push_gate_leave(gate, 60);
    CHECK(v[6].opened == 5);
    push_gate_leave(gate, 10);
    push_gate_leave(gate, 1);
    push_gate_leave(gate, 1);
}

/* ---- a shard -------------------------------------------------------------------------------- */
struct install {
    struct task task;
    struct shard *shard;
    struct shard_job *job;
    enum err_code code;
};

struct apply {
    struct task task;
    struct shard *shard;
    struct shard_push push;
    struct shard_push_result result;
    struct err err;
    enum err_code code;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards done */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int done;

static void say_done(void)
{
    pthread_mutex_lock(&lock);
    done++;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_done(int want)
{
    pthread_mutex_lock(&lock);
    while (done < want)
        pthread_cond_wait(&changed, &lock); /* the test's own limit is the deadline */
    pthread_mutex_unlock(&lock);
}

static bool is_done(int want)
{
    pthread_mutex_lock(&lock);
    bool is = done >= want;
    pthread_mutex_unlock(&lock);
    return is;
}

static void run_install(struct task *task)
{
    struct install *install = CONTAINER_OF(task, struct install, task);
    struct err err;
    install->code = shard_install(install->shard, install->job, &(struct shard_counters){0}, &err);
    say_done();
}

static void run_apply(struct task *task)
{
    struct apply *apply = CONTAINER_OF(task, struct apply, task);
    apply->code = shard_apply(apply->shard, &apply->push, &apply->result, &apply->err);
    say_done();
}

static struct shard *new_shard(struct budget *values_budget, struct budget *grads,
                               uint64_t generation)
{
    struct err err;
    static uint64_t shape[2] = {512, 1024}; /* 2 MiB */
    Steadfast__V1__ServerRef ref = STEADFAST__V1__SERVER_REF__INIT, *refs = &ref;
    Steadfast__V1__Slice slice = STEADFAST__V1__SLICE__INIT, *list = &slice;
    slice.name = (char *)"w";
    slice.shape = shape;
    slice.n_shape = 2;
    slice.rows = 512;
    slice.trainable = true;
    Steadfast__V1__Plan plan = STEADFAST__V1__PLAN__INIT;
    plan.servers = &refs;
    plan.n_servers = 1;
    plan.slices = &list;
    plan.n_slices = 1;
    struct slice_layout *layout;
    struct job_spec *spec;
    struct values *values;
    struct shard *shard =
        shard_new(&(struct shard_options){.values = values_budget, .grads = grads});
    CHECK_OK(slice_layout_new(&plan, 0, 0, 1, &layout, &err));
    CHECK_OK(job_spec_parse(SPEC, strlen(SPEC), &spec, &err));
    CHECK_OK(values_new(values_budget, "test", layout, spec, &values, &err));
    struct install install = {.task.run = run_install, .shard = shard};
    CHECK_OK(shard_job_new(shard, 7, generation, "j", values, &install.job, &err));
    CHECK(task_thread_post(shard_thread(shard), &install.task) == ERR_OK);
    wait_done(1);
    CHECK(install.code == ERR_OK);
    return shard;
}

static void start(struct apply *apply, struct shard *shard, uint64_t step, uint64_t session,
                  const struct buf *grads)
{
    *apply = (struct apply){
        .task.run = run_apply,
        .shard = shard,
        .push = {.job = 7, .generation = 1, .step = step, .session = session, .grads = grads}};
    CHECK(task_thread_post(shard_thread(shard), &apply->task) == ERR_OK);
}

TEST(an_update_waits_for_a_reader_to_let_go_and_never_writes_what_somebody_reads)
{
    struct err err;
    AUTO(budget) memory = budget_new(6 * MIB, false); /* published, next, and one more */
    AUTO(budget) memory_grads = budget_new(64 * MIB, true);
    AUTO(shard) shard = new_shard(memory, memory_grads, 1);
    struct buf *grads, *held[3];
    uint64_t version;
    struct apply applies[4];
    struct shard_push push = {.job = 7, .generation = 1};
    CHECK_OK(shard_push_buffer(shard, &push, &grads, &err));
    float *g = grads->data;
    for (size_t i = 0; i < MIB / 2; i++)
        g[i] = -1.0f;
    int before = done;
    for (int i = 0; i < 2; i++) { /* readers hold versions 1 and 2 */
        CHECK_OK(shard_pull(shard, 7, 1, 0, &held[i], &version, &err));
        start(&applies[i], shard, (uint64_t)i, 5, grads);
        wait_done(before + 1 + i);
        CHECK(applies[i].code == ERR_OK && applies[i].result.version == (uint64_t)i + 2);
    }
    start(&applies[2], shard, 2, 5, grads);       /* no buffer for version 4 */
    struct timespec nap = {.tv_nsec = 120000000}; /* time to go wrong; nothing is waited for */
    nanosleep(&nap, NULL);
    CHECK(!is_done(before + 3));
    /* Reading, states and pins go on meanwhile. */
    struct shard_state state;
    CHECK_U64(shard_states(shard, &state, 1), 1);
    CHECK_U64(state.version, 3);
    CHECK_OK(shard_pin(shard, 7, 1, 9, &err));
    shard_unpin(shard, 7, 9);
    CHECK_OK(shard_pull(shard, 7, 1, 0, &held[2], &version, &err));
    CHECK_U64(version, 3);
    for (int i = 0; i < 3; i++)
        CHECK(((float *)held[i]->data)[1000] == (float)i);
    buf_unref(held[0]);
    wait_done(before + 3);
    CHECK(applies[2].code == ERR_OK && applies[2].result.version == 4);
    CHECK(((float *)held[1]->data)[1000] == 1.0f && ((float *)held[2]->data)[1000] == 2.0f);

    /* A fence ends the wait of its own session, and the slots stay untouched. */
    start(&applies[3], shard, 3, 6, grads);
    nanosleep(&nap, NULL);
    CHECK(!is_done(before + 4));
    CHECK(shard_fence(shard, 6, NULL)); /* nothing is being applied, so nobody to wait for */
    wait_done(before + 4);
    CHECK(applies[3].code == ERR_STALE);
    /* So does a newer generation. */
    start(&applies[3], shard, 3, 5, grads);
    nanosleep(&nap, NULL);
    shard_close_job(shard, 7, 2);
    wait_done(before + 5);
    CHECK(applies[3].code == ERR_STALE);
    shard_states(shard, &state, 1);
    CHECK_U64(state.applied, 3);
    CHECK_U64(state.marked, 3);
    buf_unref(held[1]);
    buf_unref(held[2]);
    buf_unref(grads);
}

TEST(a_stop_ends_an_update_that_waits)
{
    struct err err;
    AUTO(budget) memory = budget_new(6 * MIB, false);
    AUTO(budget) memory_grads = budget_new(64 * MIB, true);
    struct shard *shard = new_shard(memory, memory_grads, 1);
    struct buf *grads, *held[2];
    uint64_t version;
    struct apply applies[3];
    struct shard_push push = {.job = 7, .generation = 1};
    CHECK_OK(shard_push_buffer(shard, &push, &grads, &err));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(shard_pull(shard, 7, 1, 0, &held[i], &version, &err));
        start(&applies[i], shard, (uint64_t)i, 5, grads);
        wait_done(2 + i);
    }
    start(&applies[2], shard, 2, 5, grads);
    shard_stop(shard);
    CHECK(is_done(4) && applies[2].code == ERR_CANCELLED);
    CHECK(task_thread_post(shard_thread(shard), &applies[2].task) == ERR_CANCELLED);
    buf_unref(grads);
    buf_unref(held[0]);
    shard_free(shard);
    buf_unref(held[1]); /* a reader may outlive the shard */
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SHADOW 1 /* the sanitizers need address space of their own */
#else
#define HAS_SHADOW 0
#endif

/* Leaves room for small things, none for another buffer; 0: takes the limit away. */
static void limit_memory(uint64_t room)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    if (room) {
        unsigned long pages = 0;
        FILE *f = fopen("/proc/self/statm", "re");
        CHECK(f && fscanf(f, "%lu", &pages) == 1);
        fclose(f);
        limit.rlim_cur = pages * (uint64_t)sysconf(_SC_PAGESIZE) + room;
    }
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

TEST(an_update_waits_while_the_system_has_no_memory_and_a_pool_says_what_it_wanted)
{
    if (HAS_SHADOW)
        test_skip("the sanitizers want address space of their own");
    struct err err;
    AUTO(budget) memory = budget_new(600 * MIB, false);
    AUTO(budget) memory_grads = budget_new(64 * MIB, true);
    AUTO(shard) shard = new_shard(memory, memory_grads, 1);
    struct buf *grads, *more, *held[2];
    uint64_t version;
    struct apply applies[3];
    struct shard_push push = {.job = 7, .generation = 1};
    CHECK_OK(shard_push_buffer(shard, &push, &grads, &err));
    CHECK_OK(shard_pull(shard, 7, 1, 0, &held[0], &version, &err));
    start(&applies[0], shard, 0, 5, grads);
    wait_done(2);
    CHECK(applies[0].code == ERR_OK);
    limit_memory(MIB);

    uint64_t used = budget_used(memory_grads);
    CHECK(shard_push_buffer(shard, &push, &more, &err) == ERR_NO_MEMORY);
    if (!strstr(err.text, "job j shard 0 gradients") || !strstr(err.text, " 4194304 bytes"))
        test_fail(__FILE__, __LINE__, "neither whose nor how much: %s", err.text);
    CHECK_U64(budget_used(memory_grads), used); /* what was not had is not counted */

    /* Both buffers are held, the third is reserved but is not to be had. */
    struct timespec nap = {.tv_nsec = 200000000}; /* long enough to see a refusal, were there one */
    start(&applies[1], shard, 1, 5, grads);
    nanosleep(&nap, NULL);
    CHECK(!is_done(3));
    buf_unref(held[0]);
    wait_done(3);
    CHECK(applies[1].code == ERR_OK);

    CHECK_OK(shard_pull(shard, 7, 1, 0, &held[1], &version, &err));
    start(&applies[2], shard, 2, 5, grads);
    wait_done(4);
    CHECK(applies[2].code == ERR_OK);
    CHECK_OK(shard_pull(shard, 7, 1, 0, &held[0], &version, &err));
    start(&applies[2], shard, 3, 5, grads);
    nanosleep(&nap, NULL);
    CHECK(!is_done(5));
    limit_memory(0);
    wait_done(5);
    CHECK(applies[2].code == ERR_OK);
    buf_unref(held[0]);
    buf_unref(held[1]);
    buf_unref(grads);
}

TEST(pins_are_bounded_and_keep_their_first_meaning)
{
    struct err err;
    AUTO(budget) memory = budget_new(600 * MIB, false);
    AUTO(budget) memory_grads = budget_new(64 * MIB, true);
    AUTO(shard) shard = new_shard(memory, memory_grads, 1);
    struct buf *buf;
    uint64_t version;
    CHECK(shard_pin(shard, 7, 1, 0, &err) == ERR_INVALID);
    CHECK(shard_pin(shard, 7, 2, 1, &err) == ERR_UNAVAILABLE);
    CHECK(shard_pin(shard, 8, 1, 1, &err) == ERR_UNAVAILABLE);
    for (uint64_t pin = 1; pin <= LIMIT_PINS; pin++)
        CHECK_OK(shard_pin(shard, 7, 1, pin, &err));
    CHECK_OK(shard_pin(shard, 7, 1, 5, &err));
    CHECK(shard_pin(shard, 7, 1, LIMIT_PINS + 1, &err) == ERR_FULL);
    shard_unpin(shard, 7, 5);
    shard_unpin(shard, 7, 5);
    CHECK(shard_pull(shard, 7, 1, 5, &buf, &version, &err) == ERR_NOT_FOUND);
    CHECK_OK(shard_pin(shard, 7, 1, LIMIT_PINS + 1, &err));
    CHECK_OK(shard_pull(shard, 7, 1, LIMIT_PINS + 1, &buf, &version, &err));
    CHECK_U64(version, 1);
    buf_unref(buf);
    /* A coordinator's next start lets go of all that the one before pinned. */
    for (uint64_t pin = 1; pin <= LIMIT_PINS; pin++)
        CHECK_OK(shard_pin(shard, 7, 1, (uint64_t)1 << 32 | pin, &err));
}
