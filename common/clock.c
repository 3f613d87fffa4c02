/* SPDX-License-Identifier: Apache-2.0 */
#include "common/clock.h"

#include <time.h>

static uint64_t (*clock_source)(void);

uint64_t clock_now_ns(void)
{
    if (clock_source)
        return clock_source();
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t clock_wall_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / NS_PER_MS;
}

void clock_set_source(uint64_t (*now_ns)(void))
{
    clock_source = now_ns;
}
