/* SPDX-License-Identifier: Apache-2.0 */
/* steadfast: the public C library; a program drives a cluster through its coordinator with it.
 *
 * The service behind it is steadfast.v1.Coordinator (proto/coord.proto), which any gRPC client in
 * any language may call as well. This header needs no other one of ours.
 *
 * Owns    every steadfast_..._free takes NULL. Results belong to the caller and own all they
 *         point to; strings are never NULL. Outputs are untouched on failure.
 * Thread  a client may be used from several threads at once; every call blocks its caller, at
 *         most for its timeout. Callbacks run on the thread that made the call.
 * Units   _ms are milliseconds, timeouts are counted from the call; steps count from 0, epochs as
 *         each field says.
 * Errors  a code says what to do next, the text says it to people: no program should read it.
 *         `err` may be NULL. A coordinator that is not there is waited for until the timeout;
 *         then the code is STEADFAST_TIMEOUT or STEADFAST_UNAVAILABLE, and the text says why nobody
 *         answered (refused, no route, name unknown, silence, ...). An address where something else
 *         answers (another protocol, program or role) is STEADFAST_INVALID. A request is sent at most
 *         once: after one of these two from steadfast_submit, the job may exist; look with
 *         steadfast_list.
 */
#ifndef CLIENT_STEADFAST_H
#define CLIENT_STEADFAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum steadfast_code {
    STEADFAST_OK = 0,
    STEADFAST_INVALID,     /* the request itself is wrong */
    STEADFAST_NOT_FOUND,   /* no such job, no such checkpoint */
    STEADFAST_EXISTS,      /* there already */
    STEADFAST_STALE,       /* of a past state of things: ask again */
    STEADFAST_FULL,        /* a bound is reached: try again later */
    STEADFAST_UNAVAILABLE, /* not reachable or not ready: retry */
    STEADFAST_TIMEOUT,     /* the timeout passed: the outcome is unknown */
    STEADFAST_CANCELLED,   /* taken back */
    STEADFAST_CORRUPT,     /* bytes that cannot be right */
    STEADFAST_IO,          /* an operating system refused */
    STEADFAST_DEVICE,      /* a compute device failed */
    STEADFAST_NO_MEMORY,   /* an allocation or a memory budget failed */
};

struct steadfast_error {
    enum steadfast_code code;
    char text[400];
};

const char *steadfast_code_name(enum steadfast_code code); /* "INVALID", ... */

/* ---- connection --------------------------------------------------------------------------------
 */
struct steadfast_client;

/* address "host:port". Connects when the first call needs it; only an address that cannot be one is
 * refused here. */
enum steadfast_code steadfast_connect(const char *address, struct steadfast_client **ret_client,
                                      struct steadfast_error *err);
void steadfast_close(struct steadfast_client *client); /* no call of it is in progress */

/* ---- jobs --------------------------------------------------------------------------------------
 */
enum steadfast_job_state {
    STEADFAST_JOB_QUEUED = 0,
    STEADFAST_JOB_RUNNING,
    STEADFAST_JOB_PAUSED,
    STEADFAST_JOB_SUCCEEDED, /* this one and those below: it has ended */
    STEADFAST_JOB_FAILED,
    STEADFAST_JOB_CANCELLED,
};
const char *steadfast_job_state_name(enum steadfast_job_state state); /* "queued", ... */
bool steadfast_job_has_ended(enum steadfast_job_state state);

struct steadfast_shard {
    const char *server; /* "ps:0" */
    uint32_t shard;     /* of that server */
    uint64_t applied;   /* updates */
    uint64_t bytes;     /* values and optimizer slots */
};

struct steadfast_evaluation {
    uint32_t epoch; /* 1 after the first epoch */
    uint64_t step;  /* acknowledged steps when the version was fixed */
    double loss;
    double accuracy; /* 0 to 1 */
};

struct steadfast_checkpoint {
    uint64_t number;
    uint64_t step; /* acknowledged steps that it is sure to hold */
    const char *path;
};

struct steadfast_abandoned {
    uint64_t step;
    uint32_t attempts;
    const char *code; /* of the last failure, by name */
    const char *text;
};

struct steadfast_job {
    uint64_t id;
    const char *name;
    enum steadfast_job_state state;
    const char *phase;  /* what a running job is doing: "training", "evaluating", ... */
    const char *reason; /* why it is paused, failed or cancelled; else "" */
    uint64_t steps_total;
    uint64_t issued;       /* distinct steps given out at least once */
    uint64_t acknowledged; /* steps that are durable in the ledger */
    uint64_t reissued;     /* attempts beyond the first */
    uint64_t abandoned;
    uint64_t duplicates_refused;
    uint64_t lost;     /* acknowledged steps that some shard does not hold */
    uint64_t repeated; /* updates that some shard applied more than once */
    bool
        is_accounting_final; /* lost and repeated were computed from the shards' marks at the end */
    double steps_per_second; /* NAN, and the next: it ended before the coordinator's last start */
    double images_per_second;
    double loss;      /* smoothed training loss */
    double staleness; /* mean, updates between pull and push */
    /* Mean seconds of a training step, over phase_steps steps since the coordinator started; NAN
     * without any. serialise, copy and apply are processor time over all shards and may lie beside
     * the compute; wait is what else the device waited for. */
    uint64_t phase_steps;
    double compute_seconds, serialise_seconds, copy_seconds, wait_seconds, apply_seconds;
    uint32_t epoch; /* being trained, from 0 */
    uint32_t epochs;
    double eta_seconds;     /* NAN: not known: it ended, does not go on now, or has no rate yet */
    double elapsed_seconds; /* NAN: it ended before the coordinator's last start */
    uint64_t generation;
    uint32_t workers;      /* that hold tickets of it */
    uint64_t submitted_ms; /* wall clock, since 1970 */

    const struct steadfast_shard *shards;
    size_t shard_count;
    const struct steadfast_evaluation *evaluations;
    size_t evaluation_count;
    const struct steadfast_checkpoint *checkpoints;
    size_t checkpoint_count;
    const struct steadfast_abandoned *abandoned_steps;
    size_t abandoned_step_count;
    const char *const *notices; /* what was lost, redone or refused, newest last */
    size_t notice_count;
};
void steadfast_job_free(struct steadfast_job *job);

struct steadfast_job_list {
    struct steadfast_job *const *jobs;
    size_t count;
};
void steadfast_job_list_free(struct steadfast_job_list *list);

/* spec_json: a job as docs/job-spec.md describes it. resume: go on from the newest usable
 * checkpoint in the job's directory; without one the job starts from the beginning.
 * STEADFAST_INVALID names field, value and what was wanted. */
enum steadfast_code steadfast_submit(struct steadfast_client *client, const char *spec_json,
                                     bool resume, uint32_t timeout_ms, uint64_t *ret_id,
                                     struct steadfast_error *err);
enum steadfast_code steadfast_list(struct steadfast_client *client, uint32_t timeout_ms,
                                   struct steadfast_job_list **ret_list,
                                   struct steadfast_error *err);
/* job: a name (the newest job of that name) or a number, here and below. */
enum steadfast_code steadfast_status(struct steadfast_client *client, const char *job,
                                     uint32_t timeout_ms, struct steadfast_job **ret_job,
                                     struct steadfast_error *err);
/* ret_job may be NULL; it is the state after the order was recorded, which may still be "running".
 */
enum steadfast_code steadfast_cancel(struct steadfast_client *client, const char *job,
                                     uint32_t timeout_ms, struct steadfast_job **ret_job,
                                     struct steadfast_error *err);

struct steadfast_checkpoint_done {
    uint64_t number;
    uint64_t step;
    char path[4096];
};
/* Returns when the checkpoint is published: give it the time that its bytes need. */
enum steadfast_code steadfast_checkpoint_job(struct steadfast_client *client, const char *job,
                                             uint32_t timeout_ms,
                                             struct steadfast_checkpoint_done *ret_checkpoint,
                                             struct steadfast_error *err);

/* Calls on_status now and then about every interval_ms (0: 1000) until the job has ended
 * (STEADFAST_OK; the last status says how), on_status returns false (STEADFAST_CANCELLED), the
 * connection ends (STEADFAST_UNAVAILABLE) or nothing was heard for silence_ms (STEADFAST_TIMEOUT).
 * A slow callback misses statuses, never the last one. The job is borrowed for the call. */
enum steadfast_code steadfast_watch(struct steadfast_client *client, const char *job,
                                    uint32_t interval_ms, uint32_t silence_ms,
                                    bool (*on_status)(const struct steadfast_job *job, void *arg),
                                    void *arg, struct steadfast_error *err);

/* ---- plan --------------------------------------------------------------------------------------
 */
struct steadfast_slice {
    const char *variable;
    const uint64_t *shape; /* of the whole variable */
    size_t rank;
    uint64_t row_offset;
    uint64_t rows;
    const char *server; /* "ps:0" */
    uint32_t shard;     /* of that server */
    bool is_trainable;
};

struct steadfast_plan {
    const struct steadfast_slice *slices;
    size_t slice_count;
    const char *const *servers;
    size_t server_count;
    uint32_t shards_per_server;
    const uint64_t *shard_bytes; /* values and slots, in the order of (server, shard) */
    size_t shard_bytes_count;
    uint64_t parameters;
    uint64_t steps_per_epoch;
    uint64_t steps_total;
};
/* Where every variable would live, before anything runs. */
enum steadfast_code steadfast_plan_job(struct steadfast_client *client, const char *spec_json,
                                       uint32_t timeout_ms, struct steadfast_plan **ret_plan,
                                       struct steadfast_error *err);
void steadfast_plan_free(struct steadfast_plan *plan);

/* ---- cluster -----------------------------------------------------------------------------------
 */
struct steadfast_member {
    const char *name; /* "worker:1" */
    const char *role; /* "ps", "worker" */
    const char *address;
    const char *state; /* attached, silent, lost, left */
    uint64_t incarnation;
    uint64_t session;
    const char *const *devices;
    size_t device_count;
    uint64_t memory_bytes;
    uint64_t held_bytes; /* ps: variables and slots */
    uint64_t pid;
    uint32_t in_flight;
    uint64_t steps_done;
    double seconds_silent;
};

struct steadfast_cluster {
    const struct steadfast_member *members;
    size_t member_count;
    const char *const
        *missing; /* tasks of the description that are not attached, "ps:1 at host:port" */
    size_t missing_count;
    uint64_t start; /* how often the coordinator was started on this state */
    const char *version;
};
enum steadfast_code steadfast_get_cluster(struct steadfast_client *client, uint32_t timeout_ms,
                                          struct steadfast_cluster **ret_cluster,
                                          struct steadfast_error *err);
void steadfast_cluster_free(struct steadfast_cluster *cluster);

#ifdef __cplusplus
}
#endif
#endif
