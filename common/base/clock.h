/* SPDX-License-Identifier: Apache-2.0 */
/* clock: monotonic nanoseconds, and the wall clock for people. Thread: any. */
#ifndef COMMON_BASE_CLOCK_H
#define COMMON_BASE_CLOCK_H

#include "common/base/base.h"

#define NS_PER_US 1000ULL
#define NS_PER_MS 1000000ULL
#define NS_PER_S  1000000000ULL

uint64_t clock_now_ns(void);  /* CLOCK_MONOTONIC */
uint64_t clock_wall_ms(void); /* CLOCK_REALTIME, ms since the epoch; for people */

#endif
