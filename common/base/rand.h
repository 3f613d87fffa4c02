/* SPDX-License-Identifier: Apache-2.0 */
/* rand: random numbers as pure functions. Nothing here has a history: a value depends on its key
 * and counter only, so any process can compute any element again, in any order.
 *
 * The mixer is the finaliser of SplitMix64 (Steele, Lea, Flood 2014), applied twice over key and
 * counter; it is for shuffles and initial values, not for secrets.
 * Thread  any; no state.
 */
#ifndef COMMON_BASE_RAND_H
#define COMMON_BASE_RAND_H

#include "common/base/base.h"

/* One stream per purpose, so that two draws for different things never share a key. */
enum rand_purpose {
    RAND_INIT = 1, /* initial values of a variable */
    RAND_WINDOW,   /* order of windows in an epoch */
    RAND_SHUFFLE,  /* order of records in a window */
    RAND_DATA,     /* synthetic records */
    RAND_CROP,     /* image distortions */
    RAND_DROPOUT,
    RAND_TEST,
};

uint64_t rand_key(uint64_t seed, enum rand_purpose purpose, uint64_t a, uint64_t b);
uint64_t rand_key_name(uint64_t key,
                       const char *name); /* mixes a name in (FNV-1a 64, then mixed) */
uint64_t rand_u64(uint64_t key, uint64_t counter);
double rand_unit(uint64_t key, uint64_t counter);  /* [0, 1), 53 bits */
float rand_normal(uint64_t key, uint64_t counter); /* N(0, 1), Box-Muller on counter's two words */
/* N(0, 1) cut at two standard deviations, by rejection over a per-counter sub-stream. */
float rand_truncated_normal(uint64_t key, uint64_t counter);
/* The image of index under a permutation of [0, count) chosen by key: a balanced Feistel network
 * with cycle walking; a bijection for every count >= 1, O(1), no memory. index < count. */
uint64_t rand_permute(uint64_t key, uint64_t index, uint64_t count);

#endif
