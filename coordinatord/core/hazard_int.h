/* SPDX-License-Identifier: Apache-2.0 */
/* hazard_int: workers die of steps, and of other things. Whether the deaths of those that ran one step
 * say more than that workers die anyway.
 *
 * A step ran alone on each of k workers that died, for e seconds in all. In the same days the others,
 * without it, had d deaths in s seconds. Were the step innocent, each of these k + d deaths would have
 * met it by chance: by its share e / (e + s) of the time. That k or more of them did has a chance that
 * a coin tossed k + d times has (binomial); where it is below one in a million the step is guilty.
 * This compares two counts and guesses no rate: few deaths in a short time prove little, and a storm
 * that has just begun is seen as soon as it kills others. The others count from the step's first
 * death on, and once more with what was remembered then of the time before, which fades: a storm may
 * end just as the step is tried out.
 *
 * Where nobody else died the time alone decides: s has to reach e * 10^(6 / k), or the longest wait
 * that is allowed, before the step is judged at all. A step that kills where nobody else does is
 * found after as many attempts as it is given.
 *
 * Owns    plain values. Units: seconds of workers. Pure functions. */
#ifndef COORDINATORD_CORE_HAZARD_INT_H
#define COORDINATORD_CORE_HAZARD_INT_H

#include "common/base/base.h"

struct hazard {    /* what some workers saw */
    double deaths; /* whole, but where they faded */
    double seconds;
};

/* After so many seconds with so many workers there: what was remembered fades, what was seen is new. */
void hazard_fade(struct hazard *recent, double passed_s, size_t workers);
/* That so many or more of all deaths meet a step that has this share of the time. */
double hazard_chance(uint64_t deaths, uint64_t others, double share);
/* How long others have to be watched before the step is judged. */
double hazard_watch_s(const struct hazard *alone);
bool hazard_is_guilty(const struct hazard *alone, const struct hazard *others);

#endif
