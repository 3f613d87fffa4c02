/* SPDX-License-Identifier: Apache-2.0 */
/* sim_engine: events in time order, memory, drawing, and a run from its seed to its verdict. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/rand.h"
#include "tests/sim/sim_int.h"

#define CHUNK_BYTES (1u << 20)
#define END_NS                                                                                     \
    (120 * NS_PER_S) /* after the faults: a healthy cluster has ended every job long before */
#define SETTLE_NS                                                                                  \
    (3 * NS_PER_S) /* after the last job: acknowledgements and drops are still on their way */
#define EVENTS_MAX 20000000u
#define LAST_LINES 30 /* the runner of tests shows forty lines of stderr */

/* ---- memory: chunks that are kept from run to run
 * ------------------------------------------------ */

struct chunk {
    struct chunk *next;
    size_t size;
    size_t used;
    size_t dirty; /* of an earlier run, to be zeroed again */
    char data[];
};

static struct chunk *chunks;
static struct chunk *chunk_now;

void *sim_alloc(size_t size)
{
    size = (size + 15) & ~(size_t)15;
    while (chunk_now && chunk_now->size - chunk_now->used < size && chunk_now->next)
        chunk_now = chunk_now->next;
    if (!chunk_now || chunk_now->size - chunk_now->used < size) {
        size_t room = MAX(size, (size_t)CHUNK_BYTES);
        struct chunk *fresh = base_alloc(sizeof(*fresh) + room);
        fresh->size = room;
        if (chunk_now)
            chunk_now->next = fresh;
        else
            chunks = fresh;
        chunk_now = fresh;
    }
    char *p = chunk_now->data + chunk_now->used;
    if (chunk_now->used < chunk_now->dirty)
        memset(p, 0, MIN(size, chunk_now->dirty - chunk_now->used));
    chunk_now->used += size;
    return p;
}

static void reset_memory(void)
{
    for (struct chunk *chunk = chunks; chunk; chunk = chunk->next) {
        chunk->dirty = MAX(chunk->dirty, chunk->used);
        chunk->used = 0;
    }
    chunk_now = chunks;
}

__attribute__((destructor)) static void free_memory(void)
{
    while (chunks) {
        struct chunk *next = chunks->next;
        free(chunks);
        chunks = next;
    }
}

char *sim_text(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *text = sim_alloc((size_t)n + 1);
    va_start(ap, fmt);
    vsnprintf(text, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return text;
}

void *sim_copy(const void *from, size_t size)
{
    void *to = sim_alloc(MAX(size, (size_t)1));
    if (size)
        memcpy(to, from, size);
    return to;
}

const char *sim_copy_text(const char *text)
{
    return text ? sim_copy(text, strlen(text) + 1) : NULL;
}

/* ---- drawing --------------------------------------------------------------------------------- */

uint64_t sim_draw(struct sim *sim)
{
    return rand_u64(sim->key, sim->drawn++);
}

uint64_t sim_below(struct sim *sim, uint64_t bound)
{
    return bound ? sim_draw(sim) % bound : 0;
}

uint64_t sim_between(struct sim *sim, uint64_t low, uint64_t high)
{
    return low + sim_below(sim, high - low + 1);
}

bool sim_chance(struct sim *sim, uint32_t per_mille)
{
    return per_mille && sim_below(sim, 1000) < per_mille;
}

/* ---- words ----------------------------------------------------------------------------------- */

static char last_lines[LAST_LINES][240]; /* of a recorded run */
static size_t last_count;

void sim_fail(struct sim *sim, const char *fmt, ...)
{
    char why[500];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    sim->result.is_failed = true;
    snprintf(sim->result.text, sizeof(sim->result.text), "at %.6f s: %s", (double)sim->now_ns / 1e9,
             why);
    sim_trace(sim, "VIOLATED: %s", why);
    longjmp(sim->fail_jump, 1);
}

void sim_say(struct sim *sim, const char *fmt, ...)
{
    char line[600];
    int n = snprintf(line, sizeof(line), "%12.6f ", (double)sim->now_ns / 1e9);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
    va_end(ap);
    if (sim->options.is_traced)
        fprintf(stderr, "%s\n", line);
    else
        snprintf(last_lines[last_count++ % LAST_LINES], sizeof(last_lines[0]), "%s", line);
}

static void print_last_lines(void)
{
    size_t first = last_count > LAST_LINES ? last_count - LAST_LINES : 0;
    for (size_t i = first; i < last_count; i++)
        fprintf(stderr, "%s\n", last_lines[i % LAST_LINES]);
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool is_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void push(struct sim *sim, struct sim_event event)
{
    if (sim->heap_count == sim->heap_capacity) {
        sim->heap_capacity = MAX(sim->heap_capacity * 2, (size_t)1024);
        sim->heap = base_realloc(sim->heap, sim->heap_capacity * sizeof(*sim->heap));
    }
    size_t at = sim->heap_count++;
    while (at > 0 && is_before(&event, &sim->heap[(at - 1) / 2])) {
        sim->heap[at] = sim->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    sim->heap[at] = event;
}

static struct sim_event pop(struct sim *sim)
{
    struct sim_event first = sim->heap[0];
    struct sim_event last = sim->heap[--sim->heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= sim->heap_count)
            break;
        if (child + 1 < sim->heap_count && is_before(&sim->heap[child + 1], &sim->heap[child]))
            child++;
        if (!is_before(&sim->heap[child], &last))
            break;
        sim->heap[at] = sim->heap[child];
        at = child;
    }
    if (sim->heap_count)
        sim->heap[at] = last;
    return first;
}

void sim_at(struct sim *sim, uint64_t at_ns, sim_event_fn *run, void *p, void *q, uint64_t a,
            uint64_t b)
{
    push(sim, (struct sim_event){.at_ns = MAX(at_ns, sim->now_ns),
                                 .order = sim->next_order++,
                                 .run = run,
                                 .p = p,
                                 .q = q,
                                 .a = a,
                                 .b = b});
}

void sim_again(struct sim *sim, const struct sim_event *event, uint64_t at_ns)
{
    sim_at(sim, at_ns, event->run, event->p, event->q, event->a, event->b);
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void draw_cluster(struct sim *sim)
{
    sim->worker_count = (uint32_t)sim_between(sim, 1, SIM_WORKERS_MAX);
    sim->server_count = (uint32_t)sim_between(sim, 1, SIM_SERVERS_MAX);
    for (uint32_t i = 0; i < sim->worker_count; i++) {
        struct sim_worker *worker = &sim->workers[i];
        worker->m = (struct sim_member){.role = CORE_WORKER, .index = i};
        snprintf(worker->m.name, sizeof(worker->m.name), "worker:%u", i);
        snprintf(worker->m.address, sizeof(worker->m.address), "10.0.1.%u:7000", i);
        worker->lanes = (uint32_t)sim_between(sim, 1, 2);
    }
    for (uint32_t i = 0; i < sim->server_count; i++) {
        struct sim_server *server = &sim->servers[i];
        server->m = (struct sim_member){.role = CORE_SERVER, .index = i};
        snprintf(server->m.name, sizeof(server->m.name), "ps:%u", i);
        snprintf(server->m.address, sizeof(server->m.address), "10.0.2.%u:7000", i);
        server->shard_count = (uint32_t)sim_between(sim, 1, SIM_SHARDS_MAX);
    }
    sim->config = (struct core_config){
        .heartbeat_ms = 50,
        .lease_ms = 400,
        .order_deadline_ms = 3000,
        .job_wait_ms = 60000,
        .audit_ms = sim_chance(sim, 500) ? 200 : 0,
        .running_max = (uint32_t)sim_between(sim, 1, 3),
        .servers_wanted = sim->server_count,
        .recover_ms = 1500,
    };
    sim->net_ns = sim_between(sim, 20, 400) * NS_PER_US;
    sim->ledger.commit_ns = sim_between(sim, 200, 3000) * NS_PER_US;
    sim->is_recreated_at_same_generation = sim_chance(sim, 500);
}

static void begin(struct sim *sim)
{
    draw_cluster(sim);
    sim_jobs_draw(sim);
    sim_faults_draw(sim);
    sim_coord_start(sim);
    for (uint32_t i = 0; i < sim->server_count; i++)
        sim_member_start(sim, &sim->servers[i].m);
    for (uint32_t i = 0; i < sim->worker_count; i++)
        sim_member_start(sim, &sim->workers[i].m);
    sim_faults_begin(sim);
}

static void run_events(struct sim *sim)
{
    begin(sim);
    uint64_t quiet_ns = UINT64_MAX;
    while (sim->heap_count) {
        struct sim_event event = pop(sim);
        sim->now_ns = event.at_ns;
        if (sim->now_ns > quiet_ns)
            break;
        event.run(sim, &event);
        sim_check_event(sim);
        sim->result.events++;
        if (sim->is_healed && quiet_ns == UINT64_MAX && sim_is_quiet(sim))
            quiet_ns = sim->now_ns + SETTLE_NS;
        if (sim->is_healed && quiet_ns == UINT64_MAX && sim->now_ns > sim->heal_ns + END_NS)
            break;
        if (sim->result.events > EVENTS_MAX)
            sim_fail(sim, "%u events and no end", EVENTS_MAX);
    }
    sim_check_end(sim);
}

void sim_run(const struct sim_options *options, struct sim_result *ret_result)
{
    reset_memory();
    struct sim *volatile sim = sim_alloc(sizeof(*sim));
    sim->options = *options;
    sim->key = rand_key(options->seed, RAND_TEST, options->profile, 7);
    last_count = 0;
    if (setjmp(sim->fail_jump) == 0)
        run_events(sim);
    core_free(sim->core);
    free(sim->heap);
    *ret_result = sim->result;
    if (sim->result.is_failed && sim->options.is_recorded)
        print_last_lines();
}
