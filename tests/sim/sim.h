/* SPDX-License-Identifier: Apache-2.0 */
/* sim: the coordinator's core against a model of everything around it, from one seed.
 *
 * Modelled: one to five workers, up to three servers of several shards, the ledger's disk, the
 * network's streams and calls, the shell's answers (plans, checkpoint files) and clients. One seed
 * draws the cluster, the jobs, which faults happen and when; at the end of the faults everything is
 * healed and every job has to end. After each event the invariants of core.h and of DESIGN 3 are
 * compared with what the model knows to be true.
 *
 * A planted bug is one in the MODEL (a server that forgets its marks, a ledger that loses a record,
 * ...); with one of them the simulator has to find a violation, which shows that its checks can
 * fail.
 *
 * Owns    everything of a run; nothing outlives sim_run. Thread: one run at a time.
 */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include "common/base/base.h"

enum sim_bug {
    SIM_BUG_NONE,
    SIM_BUG_SERVER_FORGETS_MARKS,  /* applies and sometimes does not mark */
    SIM_BUG_SERVER_LOSES_UPDATE,   /* answers "applied" and sometimes did not */
    SIM_BUG_CKPT_LOSES_UPDATE,     /* saves a mark without its update */
    SIM_BUG_CKPT_WITHOUT_MARKS,    /* saves values, restores without the marks */
    SIM_BUG_WORKER_REPORTS_EARLY,  /* after the first shard's answer */
    SIM_BUG_LEDGER_LOSES_RECORD,   /* confirms a record that it has not written */
    SIM_BUG_LEDGER_CONFIRMS_EARLY, /* before the commit */
    SIM_BUG_STREAM_LOSES_MESSAGE,  /* without breaking */
    SIM_BUG_WORKER_NEVER_REPORTS,  /* forgets a report and claims the step as held */
    SIM_BUG_COUNT
};

enum { SIM_KILLS_WANTED = 150 };

enum sim_profile {
    SIM_CALM,     /* no faults: nothing may be abandoned or redone */
    SIM_WORKERS,  /* workers crash, freeze, leave; connections break */
    SIM_SERVERS,  /* servers crash and freeze; checkpoints */
    SIM_RESTARTS, /* the coordinator crashes; the ledger is slow or stuck */
    SIM_STORM,    /* everything at once */
    SIM_KILLS,    /* SIM_KILLS_WANTED kills of the workers of one job, and nothing else */
    SIM_PROFILE_COUNT
};

struct sim_options {
    uint64_t seed;
    enum sim_profile profile;
    enum sim_bug bug;
    bool is_traced;   /* every event as a line on stderr */
    bool is_recorded; /* the last events of a run that fails, as lines on stderr */
};

struct sim_result {
    bool is_failed;
    char text[600]; /* what was violated */
    uint64_t events;
    uint64_t acked;      /* steps, over all jobs */
    uint64_t restarts;   /* of the coordinator */
    uint64_t losses;     /* crashes of workers and servers */
    uint64_t kills;      /* of workers, from outside, while their job ran */
    uint64_t abandoned;  /* steps, over all jobs */
    uint64_t duplicates; /* pushes answered "done before" */
    uint64_t restores;   /* of a job from a checkpoint */
    uint64_t succeeded;  /* jobs */
    uint64_t ended;      /* jobs that failed or were cancelled */
};

void sim_run(const struct sim_options *options, struct sim_result *ret_result);

#endif
