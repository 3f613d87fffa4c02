/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's core under random schedules of a modelled cluster (tests/sim/sim.h). A failing
 * seed prints its last events and can be run alone:
 *
 *   SIM_PROFILE=storm SIM_SEED=4711 SIM_TRACE=1 build/release/tests/unit/test_sim one_schedule
 *
 * SIM_SCHEDULES=n sets how many schedules each profile runs (make sim-soak); SIM_FIRST=n where they
 * begin; SIM_BUG=n plants a bug of enum sim_bug into the model.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/log.h"
#include "tests/harness.h"
#include "tests/sim/sim.h"

static const char *const profile_names[SIM_PROFILE_COUNT] = {
    [SIM_CALM] = "calm",         [SIM_WORKERS] = "workers", [SIM_SERVERS] = "servers",
    [SIM_RESTARTS] = "restarts", [SIM_STORM] = "storm",     [SIM_KILLS] = "kills",
};

static uint64_t env_number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

/* An assertion of the core ends the process: say which schedule it was. */
static char crash_text[128];

static void on_crash(int signum)
{
    ssize_t written = write(STDERR_FILENO, crash_text, strlen(crash_text));
    (void)written;
    signal(signum, SIG_DFL);
    raise(signum);
}

static void run(const struct sim_options *options, struct sim_result *ret_result)
{
    snprintf(crash_text, sizeof(crash_text), "test_sim: crashed in SIM_PROFILE=%s SIM_SEED=%llu\n",
             profile_names[options->profile], (unsigned long long)options->seed);
    sim_run(options, ret_result);
}

static void watch_for_crashes(void)
{
    signal(SIGABRT, on_crash);
    signal(SIGSEGV, on_crash);
    log_set_level(LOG_ERROR);
}

/* Runs schedules until one fails; then again with a trace, of which the harness shows the end. */
static void run_profile(enum sim_profile profile, uint64_t schedules)
{
    watch_for_crashes();
    uint64_t first = env_number("SIM_FIRST", 1);
    uint64_t scale = MAX(env_number("TEST_TIME_SCALE", 1), (uint64_t)1); /* sanitizers are slow */
    schedules = env_number("SIM_SCHEDULES", schedules / scale);
    struct sim_result total = {0};
    for (uint64_t seed = first; seed < first + schedules; seed++) {
        struct sim_options options = {.seed = seed, .profile = profile};
        struct sim_result result;
        run(&options, &result);
        if (result.is_failed) {
            struct sim_result again;
            options.is_recorded = true;
            run(&options, &again);
            test_fail(__FILE__, __LINE__, "SIM_PROFILE=%s SIM_SEED=%llu: %s",
                      profile_names[profile], (unsigned long long)seed, result.text);
        }
        total.events += result.events;
        total.acked += result.acked;
        total.restarts += result.restarts;
        total.losses += result.losses;
        total.kills += result.kills;
        total.abandoned += result.abandoned;
        total.duplicates += result.duplicates;
        total.restores += result.restores;
        total.succeeded += result.succeeded;
        total.ended += result.ended;
    }
    fprintf(stderr,
            "%s: %llu schedules, %llu events, %llu steps, %llu jobs succeeded, %llu ended, %llu "
            "restarts, "
            "%llu losses, %llu kills, %llu abandoned, %llu duplicates, %llu restores\n",
            profile_names[profile], (unsigned long long)schedules, (unsigned long long)total.events,
            (unsigned long long)total.acked, (unsigned long long)total.succeeded,
            (unsigned long long)total.ended, (unsigned long long)total.restarts,
            (unsigned long long)total.losses, (unsigned long long)total.kills,
            (unsigned long long)total.abandoned, (unsigned long long)total.duplicates,
            (unsigned long long)total.restores);
    if (schedules < 100)
        return;
    /* What the profile is for has to have happened, or the schedules show nothing. */
    CHECK(total.succeeded > schedules / 2);
    if (profile == SIM_WORKERS || profile == SIM_STORM)
        CHECK(total.losses > 0 && total.duplicates > 0);
    if (profile == SIM_SERVERS || profile == SIM_STORM)
        CHECK(total.losses > 0 && total.restores > 0);
    if (profile == SIM_RESTARTS || profile == SIM_STORM)
        CHECK(total.restarts > 0);
    if (profile == SIM_KILLS)
        CHECK(total.kills > schedules * SIM_KILLS_WANTED * 9 / 10 &&
              total.abandoned > schedules / 8);
}

TEST_LIMIT(calm_schedules_issue_every_step_once, 300)
{
    run_profile(SIM_CALM, 2000);
}

TEST_LIMIT(schedules_with_dying_frozen_and_leaving_workers_keep_every_promise, 300)
{
    run_profile(SIM_WORKERS, 5000);
}

TEST_LIMIT(schedules_with_dying_and_frozen_servers_keep_every_promise, 300)
{
    run_profile(SIM_SERVERS, 5000);
}

TEST_LIMIT(schedules_with_coordinator_crashes_and_a_bad_disk_keep_every_promise, 300)
{
    run_profile(SIM_RESTARTS, 5000);
}

TEST_LIMIT(schedules_with_everything_at_once_keep_every_promise, 300)
{
    run_profile(SIM_STORM, 5000);
}

TEST_LIMIT(kills_from_outside_never_get_an_innocent_step_abandoned, 300)
{
    run_profile(SIM_KILLS, 400);
}

/* The one that SIM_SEED and SIM_PROFILE name, or the first storm. */
TEST_LIMIT(one_schedule, 300)
{
    watch_for_crashes();
    struct sim_options options = {.seed = env_number("SIM_SEED", 1),
                                  .profile = SIM_STORM,
                                  .bug = (enum sim_bug)env_number("SIM_BUG", 0),
                                  .is_traced = env_number("SIM_TRACE", 0) != 0};
    const char *name = getenv("SIM_PROFILE");
    for (int i = 0; i < SIM_PROFILE_COUNT; i++)
        if (name && strcmp(name, profile_names[i]) == 0)
            options.profile = (enum sim_profile)i;
    struct sim_result result;
    run(&options, &result);
    if (result.is_failed)
        test_fail(__FILE__, __LINE__, "%s", result.text);
}

/* ---- the simulator itself: each planted bug of the model has to be found
 * ------------------------- */

static void find_bug(enum sim_bug bug, enum sim_profile profile)
{
    watch_for_crashes();
    enum { SCHEDULES = 300 };
    unsigned found = 0;
    char text[600] = "";
    for (uint64_t seed = 1; seed <= SCHEDULES && found < 5; seed++) {
        struct sim_options options = {.seed = seed, .profile = profile, .bug = bug};
        struct sim_result result;
        run(&options, &result);
        if (result.is_failed && !found++)
            snprintf(text, sizeof(text), "seed %llu: %s", (unsigned long long)seed, result.text);
    }
    fprintf(stderr, "bug %d: %s\n", (int)bug, text);
    if (found < 5)
        test_fail(__FILE__, __LINE__,
                  "planted bug %d was found in %u of %d schedules, want 5 at least", (int)bug,
                  found, SCHEDULES);
}

TEST_LIMIT(a_server_that_forgets_marks_is_found, 60)
{
    find_bug(SIM_BUG_SERVER_FORGETS_MARKS, SIM_WORKERS);
}

TEST_LIMIT(a_server_that_loses_an_update_is_found, 60)
{
    find_bug(SIM_BUG_SERVER_LOSES_UPDATE, SIM_CALM);
}

TEST_LIMIT(a_checkpoint_that_lacks_an_update_is_found, 60)
{
    find_bug(SIM_BUG_CKPT_LOSES_UPDATE, SIM_SERVERS);
}

TEST_LIMIT(a_checkpoint_without_marks_is_found, 60)
{
    find_bug(SIM_BUG_CKPT_WITHOUT_MARKS, SIM_SERVERS);
}

TEST_LIMIT(a_worker_that_reports_before_every_shard_answered_is_found, 60)
{
    find_bug(SIM_BUG_WORKER_REPORTS_EARLY, SIM_WORKERS);
}

TEST_LIMIT(a_ledger_that_loses_a_confirmed_record_is_found, 60)
{
    find_bug(SIM_BUG_LEDGER_LOSES_RECORD, SIM_RESTARTS);
}

TEST_LIMIT(a_ledger_that_confirms_what_is_not_durable_is_found, 60)
{
    find_bug(SIM_BUG_LEDGER_CONFIRMS_EARLY, SIM_RESTARTS);
}

TEST_LIMIT(a_stream_that_loses_messages_silently_is_found, 60)
{
    find_bug(SIM_BUG_STREAM_LOSES_MESSAGE, SIM_CALM);
}

TEST_LIMIT(a_worker_that_claims_a_step_and_never_reports_it_is_found, 60)
{
    find_bug(SIM_BUG_WORKER_NEVER_REPORTS, SIM_CALM);
}
