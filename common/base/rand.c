/* SPDX-License-Identifier: Apache-2.0 */
/* rand: counter-based draws, a truncated normal, and a Feistel permutation of any range. */
#include "common/base/rand.h"

#include <math.h>

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

uint64_t rand_u64(uint64_t key, uint64_t counter)
{
    return mix(mix(key + 0x9e3779b97f4a7c15ULL * (counter + 1)) ^ (key << 1 | key >> 63));
}

uint64_t rand_key(uint64_t seed, enum rand_purpose purpose, uint64_t a, uint64_t b)
{
    return rand_u64(rand_u64(rand_u64(seed, (uint64_t)purpose), a), b);
}

uint64_t rand_key_name(uint64_t key, const char *name)
{
    uint64_t hash = 0xcbf29ce484222325ULL;
    for (const unsigned char *p = (const unsigned char *)name; *p; p++)
        hash = (hash ^ *p) * 0x100000001b3ULL;
    return rand_u64(key, hash);
}

double rand_unit(uint64_t key, uint64_t counter)
{
    return (double)(rand_u64(key, counter) >> 11) * 0x1.0p-53;
}

static float normal_of(uint64_t key, uint64_t counter)
{
    double u = 1.0 - rand_unit(key, 2 * counter); /* (0, 1], so that the logarithm is finite */
    double v = rand_unit(key, 2 * counter + 1);
    return (float)(sqrt(-2.0 * log(u)) * cos(2.0 * M_PI * v));
}

float rand_normal(uint64_t key, uint64_t counter)
{
    return normal_of(key, counter);
}

float rand_truncated_normal(uint64_t key, uint64_t counter)
{
    uint64_t sub = rand_u64(key, counter);
    for (uint64_t i = 0; i < 64; i++) { /* P(reject) = 0.0455, so 64 misses do not happen */
        float x = normal_of(sub, i);
        if (fabsf(x) <= 2.0f)
            return x;
    }
    return 0.0f;
}

uint64_t rand_permute(uint64_t key, uint64_t index, uint64_t count)
{
    ASSERT(index < count);
    unsigned half = 1;
    while (half < 32 && (1ULL << (2 * half)) < count)
        half++;
    uint64_t mask = (1ULL << half) - 1;
    do { /* the domain is under four times count, so few walks are needed */
        uint64_t left = index >> half;
        uint64_t right = index & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t next = left ^ (rand_u64(key + round, right) & mask);
            left = right;
            right = next;
        }
        index = left << half | right;
    } while (index >= count);
    return index;
}
