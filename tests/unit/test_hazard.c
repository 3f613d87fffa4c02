/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of verdicts on steps whose workers died. */
#include "coordinatord/core/hazard_int.h"

#include <math.h>

#include "tests/harness.h"

TEST(chances_are_those_of_a_coin_tossed_so_often)
{
    CHECK_NEAR(hazard_chance(1, 0, 0.25), 0.25, 1e-12);
    CHECK_NEAR(hazard_chance(2, 1, 0.5), 0.5, 1e-12);     /* 2 or 3 of 3 */
    CHECK_NEAR(hazard_chance(3, 0, 0.01), 1e-6, 1e-15);   /* 3 of 3 */
    CHECK_NEAR(hazard_chance(3, 2, 0.1), 0.00856, 1e-12); /* 10 p^3 q^2 + 5 p^4 q + p^5 */
    CHECK_NEAR(hazard_chance(0, 7, 0.3), 1, 0);           /* none or more */
    CHECK_NEAR(hazard_chance(4, 9, 1), 1, 0);             /* all of the time */
    CHECK_NEAR(hazard_chance(4, 9, 0), 0, 0);             /* none of it */
    CHECK_NEAR(hazard_chance(500, 500, 0.5), 0.5 + 0.0252250 / 2, 1e-6); /* half of many */
    CHECK(hazard_chance(900, 100, 0.5) < 1e-150);
}

TEST(a_step_that_kills_where_nobody_else_dies_is_guilty_once_others_were_watched)
{
    struct hazard alone = {3, 0.3};
    CHECK(hazard_is_guilty(&alone, &(struct hazard){0, 0}));
    CHECK_NEAR(hazard_watch_s(&alone), 20, 0); /* a hundred times as long, but for the bound */
    alone = (struct hazard){3, 0.03};
    CHECK_NEAR(hazard_watch_s(&alone), 3, 1e-9);
    CHECK_NEAR(hazard_watch_s(&(struct hazard){6, 0.03}), 0.3, 1e-9);
    CHECK_NEAR(hazard_watch_s(&(struct hazard){5, 0}), 0, 0); /* at once */
    CHECK_NEAR(hazard_watch_s(&(struct hazard){0, 0}), 0, 0);
}

/* Four workers, each killed every ten seconds; the step runs for 0.2 s. */
TEST(deaths_that_meet_everybody_prove_nothing_until_they_are_too_many)
{
    struct hazard others = {40, 100};
    CHECK(!hazard_is_guilty(&(struct hazard){1, 0.2}, &others));
    CHECK(!hazard_is_guilty(&(struct hazard){2, 0.4}, &others));
    CHECK(!hazard_is_guilty(&(struct hazard){4, 0.8}, &others));
    CHECK(hazard_is_guilty(&(struct hazard){9, 1.8}, &others));
    /* two deaths in three seconds say as little about the others as about the step */
    CHECK(!hazard_is_guilty(&(struct hazard){5, 0.5}, &(struct hazard){2, 3}));
    /* as often as others die it is never guilty */
    for (double k = 1; k < 200; k++)
        CHECK(!hazard_is_guilty(&(struct hazard){k, k * 2.5}, &(struct hazard){40, 100}));
}

TEST(what_is_remembered_fades_and_keeps_its_rate)
{
    struct hazard recent = {0, 0};
    hazard_fade(&recent, 1e6, 4);
    CHECK_NEAR(recent.seconds, 4 * 30, 1e-6); /* no more than its span */
    recent.deaths = 12;
    hazard_fade(&recent, 30, 0);
    CHECK_NEAR(recent.deaths, 12 * exp(-1), 1e-9);
    CHECK_NEAR(recent.deaths / recent.seconds, 0.1, 1e-9);
}
