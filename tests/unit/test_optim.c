/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers against plain loops in double precision, and every instruction set against the others.
 */
#include <math.h>
#include <stdlib.h>

#include "common/base/rand.h"
#include "psd/optim/lr.h"
#include "psd/optim/optim.h"
#include "tests/harness.h"

enum { COUNT = 1037, STEPS = 50 }; /* no multiple of any register */

struct arrays {
    float w[COUNT], next[COUNT], g[COUNT], slots[OPTIM_SLOTS_MAX][COUNT];
};

/* Not equality of numbers: 0 and -0 differ, and a NaN equals itself. */
static bool same_bits(const void *a, const void *b, size_t bytes)
{
    return memcmp(a, b, bytes) == 0;
}

static float draw(uint64_t step, size_t i)
{
    /* Magnitudes over many binades, so that a product kept in more bits would show. */
    return rand_normal(5, step * COUNT + i) *
           exp2f((float)(rand_u64(6, step * COUNT + i) % 12) - 6.0f);
}

static void run(const struct optimizer_spec *spec, enum optim_isa isa, struct arrays *a)
{
    memset(a, 0, sizeof(*a));
    for (size_t i = 0; i < COUNT; i++)
        a->w[i] = draw(1000, i);
    for (uint64_t step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < COUNT; i++)
            a->g[i] = draw(step, i);
        struct optim_args args = {.values = a->w,
                                  .grads = a->g,
                                  .next = a->next,
                                  .slots = {a->slots[0], a->slots[1]},
                                  .count = COUNT,
                                  .applied = step,
                                  .rate = 0.01};
        optim_of(spec->kind)->apply(spec, &args, isa);
        memcpy(a->w, a->next, sizeof(a->w));
    }
}

/* The definitions, one element at a time, in double. */
static double plain(const struct optimizer_spec *spec, size_t i)
{
    double w = draw(1000, i), m = 0, v = 0, lr = 0.01;
    for (uint64_t step = 0; step < STEPS; step++) {
        double g = draw(step, i);
        switch (spec->kind) {
        case OPTIMIZER_SGD:
            w -= lr * g;
            break;
        case OPTIMIZER_MOMENTUM:
            m = spec->momentum * m - lr * g;
            w += spec->nesterov ? spec->momentum * m - lr * g : m;
            break;
        case OPTIMIZER_ADAM: {
            double t = (double)step + 1;
            m = spec->beta1 * m + (1 - spec->beta1) * g;
            v = spec->beta2 * v + (1 - spec->beta2) * g * g;
            double alpha = lr * sqrt(1 - pow(spec->beta2, t)) / (1 - pow(spec->beta1, t));
            w -= alpha * m / (sqrt(v) + spec->epsilon);
            break;
        }
        case OPTIMIZER_COUNT:
            break;
        }
    }
    return w;
}

static const struct optimizer_spec specs[] = {
    {.kind = OPTIMIZER_SGD},
    {.kind = OPTIMIZER_MOMENTUM, .momentum = 0.9},
    {.kind = OPTIMIZER_MOMENTUM, .momentum = 0.9, .nesterov = true},
    {.kind = OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-7},
};

TEST(each_optimizer_follows_its_definition)
{
    static struct arrays a;
    for (size_t s = 0; s < ARRAY_SIZE(specs); s++) {
        run(&specs[s], optim_isa_best(), &a);
        for (size_t i = 0; i < COUNT; i++) {
            double want = plain(&specs[s], i);
            CHECK_NEAR(a.w[i], want, 2e-5 * fmax(1.0, fabs(want)));
        }
    }
}

TEST(every_instruction_set_gives_the_same_bits)
{
    static struct arrays base, other;
    for (size_t s = 0; s < ARRAY_SIZE(specs); s++) {
        run(&specs[s], OPTIM_ISA_BASE, &base);
        for (int isa = OPTIM_ISA_BASE + 1; isa < OPTIM_ISA_COUNT; isa++) {
            if (!optim_isa_has((enum optim_isa)isa))
                continue;
            run(&specs[s], (enum optim_isa)isa, &other);
            CHECK(same_bits(&base, &other, sizeof(base)));
        }
    }
}

/* Each row of common/spec/optimizer.h has its code here, with as many slots as the memory plan has,
 * and is among the specs above. */
TEST(names_slots_and_code_agree)
{
    for (int kind = 0; kind < OPTIMIZER_COUNT; kind++) {
        const struct optim *optim = optim_of((enum optimizer_kind)kind);
        CHECK(optim && optim->apply);
        CHECK_U64(optim->slot_count, optimizer_slot_count((enum optimizer_kind)kind));
        CHECK(optim->slot_count <= OPTIM_SLOTS_MAX);
        for (uint32_t k = 0; k < OPTIM_SLOTS_MAX; k++)
            CHECK((k < optim->slot_count) == (optim->slot_names[k] && optim->slot_names[k][0]));
        for (int other = 0; other < kind; other++)
            CHECK(optim_of((enum optimizer_kind)other) != optim &&
                  strcmp(optimizer_name((enum optimizer_kind)other),
                         optimizer_name((enum optimizer_kind)kind)) != 0);
        bool is_tested = false;
        for (size_t s = 0; s < ARRAY_SIZE(specs); s++)
            is_tested = is_tested || (int)specs[s].kind == kind;
        if (!is_tested)
            test_fail(__FILE__, __LINE__, "nothing here tests %s",
                      optimizer_name((enum optimizer_kind)kind));
    }
}

TEST(values_are_read_only_and_nothing_is_written_behind_the_end)
{
    static struct arrays a;
    for (size_t s = 0; s < ARRAY_SIZE(specs); s++) {
        const struct optim *optim = optim_of(specs[s].kind);
        memset(&a, 0, sizeof(a));
        for (size_t i = 0; i < COUNT; i++)
            a.w[i] = a.g[i] = 1.0f;
        struct optim_args args = {.values = a.w,
                                  .grads = a.g,
                                  .next = a.next,
                                  .slots = {a.slots[0], a.slots[1]},
                                  .count = COUNT - 1,
                                  .rate = 0.1};
        optim->apply(&specs[s], &args, optim_isa_best());
        for (size_t i = 0; i < COUNT; i++)
            CHECK(a.w[i] == 1.0f && a.g[i] == 1.0f);
        CHECK(a.next[COUNT - 2] != 0.0f && a.next[COUNT - 1] == 0.0f); /* not one element too far */
    }
}

TEST(gradients_that_are_no_numbers_are_found_wherever_they_are)
{
    static struct arrays a;
    const float bad[] = {NAN, INFINITY, -INFINITY, -NAN};
    for (size_t s = 0; s < ARRAY_SIZE(specs); s++) {
        for (int isa = OPTIM_ISA_BASE; isa < OPTIM_ISA_COUNT; isa++) {
            if (!optim_isa_has((enum optim_isa)isa))
                continue;
            memset(&a, 0, sizeof(a));
            struct optim_args args = {.values = a.w,
                                      .grads = a.g,
                                      .next = a.next,
                                      .slots = {a.slots[0], a.slots[1]},
                                      .count = 100,
                                      .rate = 0.1};
            const struct optim *optim = optim_of(specs[s].kind);
            a.g[3] = 3.4e38f; /* the largest and the smallest that are numbers */
            a.g[4] = -1e-45f;
            a.g[100] = NAN; /* behind the end */
            CHECK(!optim->apply(&specs[s], &args, (enum optim_isa)isa));
            for (size_t i = 0; i < 100; i++) {
                a.g[i] = bad[i % ARRAY_SIZE(bad)];
                CHECK(optim->apply(&specs[s], &args, (enum optim_isa)isa));
                a.g[i] = 1.0f;
            }
        }
    }
}

TEST(a_learning_rate_changes_behind_its_boundary)
{
    uint64_t boundaries[] = {2, 5};
    double values[] = {0.1, 0.01, 0.001};
    struct rate_spec piecewise = {
        .kind = RATE_PIECEWISE, .count = 2, .boundaries = boundaries, .values = values};
    const double want[] = {0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.001, 0.001};
    for (uint64_t i = 0; i < ARRAY_SIZE(want); i++)
        CHECK(lr_at(&piecewise, i) == want[i]);
    struct rate_spec constant = {.constant = 0.25};
    CHECK(lr_at(&constant, 0) == 0.25 && lr_at(&constant, UINT64_MAX) == 0.25);
}
