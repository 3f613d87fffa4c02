/* SPDX-License-Identifier: Apache-2.0 */
/* bench_optim: how much of the machine's memory bandwidth the optimizers reach, one thread, 64 MiB
 * of values.
 *
 * The yardstick is the triad a[i] = b[i] + s * c[i] on arrays of the same size, compiled for the
 * same instruction set, run in turn with the optimizers (A B A B ...), so that a noisy neighbour
 * hits both; medians are compared. Bytes are counted the way STREAM counts them: every element that
 * the loop names is read or written once, and the line that a plain store fetches before it writes
 * is not counted. For the triad 3 x 4 bytes an element (really 4 x 4 with that fetch), momentum 5 x
 * 4 (w, g, m read; m, w' written; really 6 x 4), adam 7 x 4 (really 8 x 4). Counting the fetch too
 * would favour the triad: its share of it is the largest; the second column says that ratio as
 * well.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/clock.h"
#include "psd/optim/optim.h"
#include "psd/values/values.h"

enum { ROUNDS = 15, ARRAYS = 5 };
#define BYTES ((size_t)64 << 20)
#define COUNT (BYTES / sizeof(float))

static inline __attribute__((always_inline)) uint32_t
triad(float *restrict a, const float *restrict b, const float *restrict c, size_t count, float s)
{
    for (size_t i = 0; i < count; i++)
        a[i] = b[i] + s * c[i];
    return 0;
}
OPTIM_VARIANTS(triad,
               (float *restrict a, const float *restrict b, const float *restrict c, size_t count,
                float s),
               (a, b, c, count, s))

static float *arrays[ARRAYS];

static double seconds_triad(enum optim_isa isa)
{
    uint64_t start = clock_now_ns();
    (void)OPTIM_DISPATCH(triad, isa, arrays[2], arrays[0], arrays[1], COUNT, 0.5f);
    return (double)(clock_now_ns() - start) / 1e9;
}

static double seconds_optim(const struct optimizer_spec *spec, enum optim_isa isa, uint64_t applied)
{
    struct optim_args args = {.values = arrays[0],
                              .grads = arrays[1],
                              .next = arrays[2],
                              .slots = {arrays[3], arrays[4]},
                              .count = COUNT,
                              .applied = applied,
                              .rate = 0.001};
    uint64_t start = clock_now_ns();
    (void)optim_of(spec->kind)->apply(spec, &args, isa);
    return (double)(clock_now_ns() - start) / 1e9;
}

/* The whole update as a shard makes it: in blocks, each scanned for elements that are no numbers.
 */
static struct values *new_values(struct budget *budget)
{
    static const char spec_json[] =
        "{\"name\": \"b\", \"model\": {\"name\": \"softmax\"}, \"dataset\": {\"source\": "
        "\"synthetic\","
        " \"records\": 1}, \"optimizer\": {\"name\": \"adam\", \"learning_rate\": 0.001}}";
    static uint64_t shape[2] = {1024, COUNT / 1024};
    Steadfast__V1__ServerRef ref = STEADFAST__V1__SERVER_REF__INIT, *refs = &ref;
    Steadfast__V1__Slice slice = STEADFAST__V1__SLICE__INIT, *list = &slice;
    Steadfast__V1__Plan plan = STEADFAST__V1__PLAN__INIT;
    struct slice_layout *layout = NULL;
    struct job_spec *spec = NULL;
    struct values *values = NULL;
    struct err err;
    slice.name = (char *)"w";
    slice.shape = shape;
    slice.n_shape = 2;
    slice.rows = 1024;
    slice.trainable = true;
    plan.servers = &refs;
    plan.n_servers = 1;
    plan.slices = &list;
    plan.n_slices = 1;
    if (slice_layout_new(&plan, 0, 0, 1, &layout, &err) != ERR_OK ||
        job_spec_parse(spec_json, sizeof(spec_json) - 1, &spec, &err) != ERR_OK ||
        values_new(budget, "bench", layout, spec, &values, &err) != ERR_OK) {
        fprintf(stderr, "bench_optim: %s\n", err.text);
        exit(1);
    }
    return values;
}

static double seconds_update(struct values *values, uint64_t step)
{
    int64_t bad_slice;
    uint64_t start = clock_now_ns();
    values_compute(values, step, arrays[1], arrays[2], &bad_slice);
    return (double)(clock_now_ns() - start) / 1e9;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof(*values), by_value);
    return values[ROUNDS / 2];
}

int main(void)
{
    static const char *const isa_names[] = {"base", "avx2", "avx512"};
    static const struct {
        const char *name;
        struct optimizer_spec spec;
        double streams, real_streams;
    } rows[] = {
        {"sgd", {.kind = OPTIMIZER_SGD}, 3, 4},
        {"momentum", {.kind = OPTIMIZER_MOMENTUM, .momentum = 0.9}, 5, 6},
        {"nesterov", {.kind = OPTIMIZER_MOMENTUM, .momentum = 0.9, .nesterov = true}, 5, 6},
        {"adam", {.kind = OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-7}, 7, 8},
    };
    enum optim_isa isa = optim_isa_best();
    for (int i = 0; i < ARRAYS; i++) {
        arrays[i] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (arrays[i] == MAP_FAILED) {
            perror("mmap");
            return 1;
        }
        madvise(arrays[i], BYTES, MADV_HUGEPAGE);
        for (size_t k = 0; k < COUNT; k++)
            arrays[i][k] = i >= 3 ? 0.0f : (float)(k % 251) * 0.01f - 1.0f;
    }
    printf(
        "optimizers, one thread, 64 MiB of values, %s, median of %d (STREAM's way of counting)\n",
        isa_names[isa], ROUNDS);
    AUTO(budget) budget = budget_new(UINT64_MAX, false);
    AUTO(values) values = new_values(budget);
    for (size_t r = 0; r <= ARRAY_SIZE(rows); r++) {
        bool is_update = r == ARRAY_SIZE(rows);
        double streams = is_update ? 7 : rows[r].streams;
        double real_streams = is_update ? 8 : rows[r].real_streams;
        double t[ROUNDS], o[ROUNDS];
        for (int i = 0; i < ROUNDS; i++) {
            t[i] = seconds_triad(isa);
            o[i] = is_update ? seconds_update(values, (uint64_t)i)
                             : seconds_optim(&rows[r].spec, isa, (uint64_t)i);
        }
        double mt = median(t), mo = median(o);
        double triad_gbs = 3.0 * (double)BYTES / mt / 1e9;
        double optim_gbs = streams * (double)BYTES / mo / 1e9;
        double real = (real_streams / mo) / (4.0 / mt);
        printf("  %-10s %6.2f GB/s   triad %6.2f GB/s   ratio %.2f   with line fetches %.2f   %s\n",
               is_update ? "shard adam" : rows[r].name, optim_gbs, triad_gbs, optim_gbs / triad_gbs,
               real, optim_gbs / triad_gbs >= 0.8 ? "reached 0.8" : "BELOW 0.8");
    }
    return 0;
}
