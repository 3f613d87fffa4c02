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
#ifndef PSD_OPTIM_OPTIM_H
#define PSD_OPTIM_OPTIM_H

#include "common/base/base.h"
#include "common/spec/job_spec.h"

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
    uint32_t slot_count;                     /* OPTIMIZER_SLOTS_<KIND> */
    const char *slot_names[OPTIM_SLOTS_MAX]; /* as checkpoints call them */
    /* True when a gradient was NaN or infinite; it was applied like any other. */
    bool (*apply)(const struct optimizer_spec *spec, const struct optim_args *args,
                  enum optim_isa isa);
};

/* optim_<name>.c has optim_<name>, for each row of common/spec/optimizer.h. */
#define OPTIM_ROW_DECLARE(KIND, name, slots) extern const struct optim optim_##name;
OPTIMIZERS(OPTIM_ROW_DECLARE)

const struct optim *optim_of(enum optimizer_kind kind);
bool optim_isa_has(enum optim_isa isa); /* this processor runs it */
enum optim_isa optim_isa_best(void);

/* Makes loop_base, loop_avx2 and loop_avx512 of an always-inline loop that returns a uint32_t. The
 * loop is written once, so the variants differ in nothing but the width of the registers. */
#define OPTIM_VARIANT(name, attributes, loop, params, names)                                       \
    static __attribute__(attributes) uint32_t name params                                          \
    {                                                                                              \
        return loop names;                                                                         \
    }
#if defined(__x86_64__)
/* GCC keeps to half of a 512-bit register without the preference; Clang refuses the word. */
#if defined(__clang__)
#define OPTIM_AVX512 target("avx512f,avx512vl"), __min_vector_width__(512)
#else
#define OPTIM_AVX512 target("avx512f,avx512vl,prefer-vector-width=512")
#endif
#define OPTIM_VARIANTS(loop, params, names)                                                        \
    OPTIM_VARIANT(loop##_base, (noinline), loop, params, names)                                    \
    OPTIM_VARIANT(loop##_avx2, (noinline, target("avx2")), loop, params, names)                    \
    OPTIM_VARIANT(loop##_avx512, (noinline, OPTIM_AVX512), loop, params, names)
#define OPTIM_DISPATCH(loop, isa, ...)                                                             \
    ((isa) == OPTIM_ISA_AVX512 ? loop##_avx512(__VA_ARGS__)                                        \
     : (isa) == OPTIM_ISA_AVX2 ? loop##_avx2(__VA_ARGS__)                                          \
                               : loop##_base(__VA_ARGS__))
#else
#define OPTIM_VARIANTS(loop, params, names)                                                        \
    OPTIM_VARIANT(loop##_base, (noinline), loop, params, names)
#define OPTIM_DISPATCH(loop, isa, ...) ((void)(isa), loop##_base(__VA_ARGS__))
#endif

#endif
