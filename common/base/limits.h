/* SPDX-License-Identifier: Apache-2.0 */
/* limits: every bound in the system, with the reason for its value. */
#ifndef COMMON_BASE_LIMITS_H
#define COMMON_BASE_LIMITS_H

/* wire */
#define LIMIT_CHUNK_BYTES       (1u << 20)  /* best measured message size for tensors on a stream */
#define LIMIT_RPC_MESSAGE_BYTES (4u << 20)  /* gRPC's own default; four chunks */
#define LIMIT_RPC_ARENA_BYTES   (16u << 20) /* protobuf-c expands hostile input up to 68 times */
#define LIMIT_RPC_DETAILS_BYTES 4096        /* details over about 8 KiB turn into another error */
#define LIMIT_RPC_QUEUED_BYTES  (64u << 20) /* of one stream's send queue */
#define LIMIT_RPC_WINDOW_BYTES  (4u << 20)  /* unread bytes of one stream: 25 Gb/s over 1 ms */
#define LIMIT_RPC_STREAMS       1024 /* calls at once on one connection; a worker needs tens */
#define LIMIT_RPC_PENDING       256  /* connections that have not said a word yet */
#define LIMIT_RPC_FILES_KEPT    256  /* descriptors that connections leave to files and dialling */
#define LIMIT_SPEC_BYTES        (1u << 20) /* a job spec; the largest real one seen is under 4 KiB */
#define LIMIT_TF_CONFIG_BYTES   (4u << 20) /* 10,000 tasks of 100 bytes and room */
#define LIMIT_IGNORED_NAMES     16 /* of one TF_CONFIG that we do not know; clouds add about three */
#define LIMIT_HEALTH_SERVICES   16  /* with a health status; a daemon has a handful */
#define LIMIT_HEALTH_WATCHERS   256 /* load balancers and monitors of one daemon */

/* cluster */
#define LIMIT_SERVERS           256
#define LIMIT_WORKERS           4096
#define LIMIT_SHARDS_PER_SERVER 64
#define LIMIT_NAME_BYTES        128 /* job, task and variable names */
#define LIMIT_ADDRESS_BYTES     280 /* a DNS name of 253, a colon, a port */

/* jobs */
#define LIMIT_JOBS_ACTIVE      64   /* queued and running together */
#define LIMIT_JOBS_KEPT        1000 /* ended ones that status still knows */
#define LIMIT_VARIABLES        65536
#define LIMIT_SLICES           65536
#define LIMIT_RANK             8
#define LIMIT_STEPS            (1ull << 48) /* of a job; attempts and sizes stay exact in a double */
#define LIMIT_RANGES           65536        /* of one set on the wire or on disk */
#define LIMIT_NOTICES          64           /* kept per job */
#define LIMIT_EPOCHS           1000000
#define LIMIT_RECORDS          (1ull << 40) /* of a data set; a billion records take 2^30 */
#define LIMIT_CLASSES          1000000
#define LIMIT_HIDDEN_LAYERS    64 /* of an mlp; deeper ones do not train without more than that */
#define LIMIT_LAYER_UNITS      (1u << 20)   /* 4 MiB of f32 a row of weights, four wire chunks */
#define LIMIT_BATCH            (1u << 16)   /* records */
#define LIMIT_BATCH_BYTES      (4ull << 30) /* of a decoded batch; workers stage two or more */
#define LIMIT_IMAGE_SIDE       16384
#define LIMIT_IMAGE_CHANNELS   1024
#define LIMIT_RATE_BOUNDARIES  1024 /* of a piecewise learning rate */
#define LIMIT_STEP_ATTEMPTS    100
#define LIMIT_STEP_DEADLINE_MS 86400000 /* a day */
#define LIMIT_CHECKPOINTS_KEPT 100000
#define LIMIT_PATH_BYTES       3840 /* PATH_MAX of 4096 less room for our file names */
#define LIMIT_ABANDONED        1024 /* of a job, before it fails */

/* models */
#define LIMIT_GRAPH_NODES 65536 /* nasnetlarge, the largest of the zoo, has a few thousand */
#define LIMIT_TENSOR_ELEMENTS                                                                      \
    (1ull << 40) /* of one tensor, one example: byte counts stay far below 2^64 */

/* checkpoints */
#define LIMIT_SAFETENSORS_HEADER_BYTES                                                             \
    (64u << 20) /* LIMIT_SLICES with two slots of 200 bytes each, and room */
#define LIMIT_MANIFEST_BYTES  (64u << 20)  /* LIMIT_SLICES of 200 bytes, marks, and room */
#define LIMIT_MANIFEST_SLICES 262144       /* four times LIMIT_SLICES: some are in pieces */
#define LIMIT_CKPT_NUMBER     (1ull << 53) /* a JSON number that every reader keeps exact */

/* parameter server */
#define LIMIT_PUSHES_ADMITTED 1024      /* pushes that hold a gradient buffer; more wait unread */
#define LIMIT_PUSHES_WAITING  1024      /* unread behind them; each keeps one message */
#define LIMIT_PUSH_HOLES      1024      /* ranges that a push out of order may leave */
#define LIMIT_SHARD_BOX       2048      /* all admitted pushes and as many orders */
#define LIMIT_PINS            64        /* pinned versions of a job */
#define LIMIT_GENERATIONS     (1 << 17) /* of a job: each has 2^36 versions of its own below 2^53 */
#define LIMIT_ORDERS_WAITING  1024      /* of one server; a coordinator has a few a job */

/* models */

/* scheduling */
#define LIMIT_CREDIT_MIN 2   /* one running, one staged */
#define LIMIT_CREDIT_MAX 256 /* tickets in flight per worker */
#define LIMIT_HELD                                                                                 \
    1024 /* tickets or reports in a hello: those in flight, revoked ones, and room \
                               */
#define LIMIT_TICKETS_PER_MESSAGE 256
#define LIMIT_REPORTS_PER_MESSAGE 256

/* data */
#define LIMIT_IDX_BYTES                                                                            \
    (16ull << 30) /* of one idx file in memory; the largest public one (EMNIST) has 0.6 GiB */

/* A worker that leaves. Preemption notices leave 30 s for everything. */
#define LIMIT_LEAVE_FINISH_MS 5000 /* for the step on the device */
#define LIMIT_LEAVE_PUSH_MS                                                                        \
    1000 /* for gradients that no server refuses: 100 MB over 1 Gb/s, and a server that is only    \
            frozen is not worth more than the one step that is run again */
#define LIMIT_LEAVE_ANSWER_MS 1000 /* one round trip and a group commit, many times over */

/* time, ms */
#define DEFAULT_HEARTBEAT_MS       250
#define DEFAULT_LEASE_MS           2000
#define DEFAULT_RPC_HANDSHAKE_MS   10000 /* a connection that never says HTTP/2 is closed */
#define DEFAULT_RPC_SERVER_PING_MS 10000 /* a server's own look after silent clients */
#define DEFAULT_STEP_DEADLINE_MS   120000
#define DEFAULT_ORDER_DEADLINE_MS  120000 /* a checkpoint of a large shard to a slow disk */

#endif
