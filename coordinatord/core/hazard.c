/* SPDX-License-Identifier: Apache-2.0 */
/* hazard: the arithmetic of verdicts on steps whose workers died. */
#include "coordinatord/core/hazard_int.h"

#include <math.h>

#define CHANCE_BOUND 1e-6
#define SPAN_S       30.0 /* of what is remembered */
#define WATCH_MAX_S  20.0 /* of one worker; a step that is innocent waits for no longer than this */

void hazard_fade(struct hazard *recent, double passed_s, size_t workers)
{
    double left = exp(-passed_s / SPAN_S);
    recent->deaths *= left;
    recent->seconds = recent->seconds * left + (double)workers * SPAN_S * (1 - left);
}

/* The sum of C(n, i) p^i (1 - p)^(n - i) over i >= deaths. */
double hazard_chance(uint64_t deaths, uint64_t others, double share)
{
    if (deaths == 0 || share >= 1)
        return 1;
    if (share <= 0)
        return 0;
    double n = (double)(deaths + others);
    double sum = 0;
    for (uint64_t i = deaths; i <= deaths + others; i++) {
        double term = exp(lgamma(n + 1) - lgamma((double)i + 1) - lgamma(n - (double)i + 1) +
                          (double)i * log(share) + (n - (double)i) * log1p(-share));
        sum += term;
        if ((double)i > n * share && term <= sum * 1e-9)
            break; /* they only fall from here */
    }
    return fmin(1, sum);
}

double hazard_watch_s(const struct hazard *alone)
{
    if (alone->deaths == 0)
        return 0;
    return fmin(WATCH_MAX_S, alone->seconds * pow(CHANCE_BOUND, -1 / alone->deaths));
}

bool hazard_is_guilty(const struct hazard *alone, const struct hazard *others)
{
    uint64_t other_deaths = (uint64_t)(others->deaths + 0.5);
    if (other_deaths == 0)
        return true; /* there is nothing else to blame */
    double all_s = alone->seconds + others->seconds;
    double share = all_s > 0 ? alone->seconds / all_s : 1;
    return hazard_chance((uint64_t)alone->deaths, other_deaths, share) < CHANCE_BOUND;
}
