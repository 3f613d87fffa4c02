/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/ranges.h"

#include "common/base/rand.h"
#include "tests/harness.h"

TEST(ranges_agree_with_a_plain_set_under_random_operations)
{
    enum { N = 200 };
    for (uint64_t seed = 0; seed < 50; seed++) {
        bool plain[N] = {0};
        struct ranges set;
        ranges_init(&set);
        for (uint64_t i = 0; i < 300; i++) {
            uint64_t key = rand_key(seed, RAND_TEST, i, 0);
            uint64_t first = rand_u64(key, 0) % N;
            uint64_t last = MIN(first + rand_u64(key, 1) % 9, N - 1);
            bool is_remove = rand_u64(key, 2) % 3 == 0;
            uint64_t fresh = 0;
            for (uint64_t v = first; v <= last; v++) {
                fresh += !plain[v];
                plain[v] = !is_remove;
            }
            if (is_remove)
                ranges_remove_range(&set, first, last);
            else
                CHECK_U64(ranges_add_range(&set, first, last), fresh);
            uint64_t total = 0;
            uint64_t low = 0;
            while (low < N && plain[low])
                low++;
            for (uint64_t v = 0; v < N; v++) {
                CHECK(ranges_has(&set, v) == plain[v]);
                total += plain[v];
            }
            CHECK_U64(ranges_total(&set), total);
            CHECK_U64(ranges_watermark(&set), low);
            for (uint64_t v = 0; v < N; v += 7) {
                uint64_t next = v;
                while (next < N && plain[next])
                    next++;
                CHECK_U64(ranges_next_missing(&set, v), next);
            }
            for (size_t r = 1; r < set.count; r++)
                CHECK(set.items[r].first > set.items[r - 1].last + 1);
        }
        ranges_done(&set);
    }
}

TEST(missing_counts_what_is_wanted_and_not_there)
{
    struct ranges have;
    struct ranges want;
    ranges_init(&have);
    ranges_init(&want);
    ranges_add_range(&have, 0, 9);
    ranges_add_range(&have, 20, 29);
    ranges_add_range(&want, 5, 24);
    CHECK_U64(ranges_missing(&have, &want), 10);
    CHECK_U64(ranges_missing(&want, &have), 10);
    ranges_copy(&have, &want);
    CHECK(ranges_equal(&have, &want));
    ranges_done(&have);
    ranges_done(&want);
}

TEST(a_permutation_hits_every_index_once)
{
    for (uint64_t count = 1; count < 300; count++) {
        bool seen[300] = {0};
        for (uint64_t i = 0; i < count; i++) {
            uint64_t image = rand_permute(rand_key(7, RAND_SHUFFLE, count, 0), i, count);
            CHECK(image < count && !seen[image]);
            seen[image] = true;
        }
    }
}

TEST(a_truncated_normal_has_the_right_moments_and_bounds)
{
    double sum = 0;
    double squares = 0;
    enum { N = 200000 };
    for (uint64_t i = 0; i < N; i++) {
        double x = rand_truncated_normal(42, i);
        CHECK(fabs(x) <= 2.0);
        sum += x;
        squares += x * x;
    }
    CHECK_NEAR(sum / N, 0.0, 0.01);
    CHECK_NEAR(squares / N, 0.7737, 0.01); /* variance of N(0,1) cut at 2 */
}
