/* SPDX-License-Identifier: Apache-2.0 */
/* optim: the table of optimizers, each a loop over flat arrays.
 *
 * Values go from one buffer to another (readers may hold the old one); slots change in place. The
 * loops are compiled for several instruction sets and chosen at run time; all of them give the same
 * bits.
 *
 * Owns    nothing. Thread: any, one at a time for the same arrays.
 * Shapes  values, grads, next and each slot: count floats, no overlap between them.
 * Units   applied counts updates before this one; adam's t is applied + 1.
 */
#ifndef PSD_OPTIM_H
#define PSD_OPTIM_H

#include "common/base.h"
#include "common/job_spec.h"

#define OPTIM_SLOTS_MAX 2

enum optim_isa { OPTIM_ISA_BASE, OPTIM_ISA_AVX2, OPTIM_ISA_AVX512, OPTIM_ISA_COUNT };

struct optim_args {
    const float *values;
    const float *grads;
    float *next;
    float *slots[OPTIM_SLOTS_MAX];
    size_t count;
    uint64_t applied;
    double rate; /* learning rate of this update */
};

struct optim {
    enum optimizer_kind kind;
    uint32_t slot_count;
    const char *slot_names[OPTIM_SLOTS_MAX]; /* as checkpoints call them */
    void (*apply)(const struct optimizer_spec *spec, const struct optim_args *args,
                  enum optim_isa isa);
};

extern const struct optim optim_sgd;      /* optim_sgd.c */
extern const struct optim optim_momentum; /* optim_momentum.c */
extern const struct optim optim_adam;     /* optim_adam.c */

const struct optim *optim_of(enum optimizer_kind kind);
bool optim_isa_has(enum optim_isa isa); /* this processor runs it */
enum optim_isa optim_isa_best(void);
/* True when an element is NaN or infinite. */
bool optim_has_nonfinite(const float *grads, size_t count);

/* Makes fn_base, fn_avx2 and fn_avx512 of an always-inline loop, and picks one. The loop is written
 * once, so the variants differ in nothing but the width of the registers. */
#if defined(__x86_64__)
#define OPTIM_DISPATCH(loop, isa, ...)                                                             \
    do {                                                                                           \
        switch (isa) {                                                                             \
        case OPTIM_ISA_AVX512:                                                                     \
            loop##_avx512(__VA_ARGS__);                                                            \
            break;                                                                                 \
        case OPTIM_ISA_AVX2:                                                                       \
            loop##_avx2(__VA_ARGS__);                                                              \
            break;                                                                                 \
        default:                                                                                   \
            loop##_base(__VA_ARGS__);                                                              \
        }                                                                                          \
    } while (0)
#define OPTIM_VARIANTS(loop, params, names)                                                        \
    static __attribute__((noinline)) void loop##_base params                                       \
    {                                                                                              \
        loop names;                                                                                \
    }                                                                                              \
    static __attribute__((noinline, target("avx2"))) void loop##_avx2 params                       \
    {                                                                                              \
        loop names;                                                                                \
    }                                                                                              \
    static __attribute__((                                                                         \
        noinline, target("avx512f,avx512vl,prefer-vector-width=512"))) void loop##_avx512 params   \
    {                                                                                              \
        loop names;                                                                                \
    }
#else
#define OPTIM_DISPATCH(loop, isa, ...) ((void)(isa), loop##_base(__VA_ARGS__))
#define OPTIM_VARIANTS(loop, params, names)                                                        \
    static __attribute__((noinline)) void loop##_base params                                       \
    {                                                                                              \
        loop names;                                                                                \
    }
#endif

#endif
