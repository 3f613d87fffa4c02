/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/map.h"

#include "common/base/rand.h"
#include "tests/harness.h"

TEST(a_map_agrees_with_a_plain_array_under_random_operations)
{
    enum { N = 97 };
    static char values[N + 1];
    void *plain[N + 1] = {0};
    struct map map;
    map_init(&map);
    size_t count = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        uint64_t key = 1 + rand_u64(1, i) % N;
        if (rand_u64(2, i) % 2) {
            count += !plain[key];
            plain[key] = &values[key];
            map_put(&map, key, plain[key]);
        } else {
            count -= plain[key] != NULL;
            CHECK(map_remove(&map, key) == plain[key]);
            plain[key] = NULL;
        }
        CHECK(map.count == count);
        uint64_t probe = 1 + rand_u64(3, i) % N;
        CHECK(map_get(&map, probe) == plain[probe]);
    }
    size_t walked = 0;
    for (size_t at = 0; map_next(&map, &at);)
        walked++;
    CHECK(walked == count);
    map_done(&map);
}
