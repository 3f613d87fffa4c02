/* SPDX-License-Identifier: Apache-2.0 */
/* worker_rig: a worker in this process between a scripted coordinator and scripted parameter
 * servers, over real rpc on loopback. For the tests of workerd only.
 *
 * The coordinator's handlers run on the test's own loop, the servers' on the io thread.
 * rig_run_until turns the loop until something is true; the time limit of the test is the deadline.
 */
#ifndef TESTS_UNIT_WORKER_RIG_H
#define TESTS_UNIT_WORKER_RIG_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/ranges.h"
#include "common/loop/loop.h"
#include "common/rpc/rpc.h"
#include "models/zoo/model.h"
#include "proto/fleet.pb-c.h"
#include "proto/methods.h"
#include "proto/ps.pb-c.h"
#include "tests/harness.h"
#include "workerd/shell/worker.h"

enum {
    RIG_SERVERS = 2,
    RIG_SHARD_MAX = 1 << 16,
    RIG_LIST_MAX = 1 << 15,
    RIG_JOB = 7,
    RIG_PIN_VERSION = 1000
};

/* ---- parameter servers --------------------------------------------------------------------------
 */
struct rig_ps {
    uint32_t index;
    struct rpc_server *server;
    uint16_t port;
    bool is_drained;

    pthread_mutex_t lock; /* guards all below, between io thread and test */
    size_t payload_bytes;
    float values[RIG_SHARD_MAX];
    uint64_t version;
    uint64_t generation;
    struct ranges marks;
    float learning_rate;
    float first_push[RIG_SHARD_MAX]; /* payload of the first push that was applied */
    uint64_t last_session;
    uint64_t last_pulled_version;
    uint32_t applied;
    uint32_t pulls;
    uint32_t not_modified;
    uint32_t pinned_pulls;
    uint32_t push_tries;
    enum err_code refuse_push; /* the next refuse_push_count pushes fail with it */
    uint32_t refuse_push_count;
    enum err_code refuse_pull;
    uint32_t refuse_pull_count;
    uint64_t lie_total; /* a pull says so many bytes instead of the truth; 0: no lie */
    bool holds_pushes;  /* pushes are read, but not answered until release */
    struct rpc_call *held[16];
    size_t held_count;
};

struct rig_push {
    struct rig_ps *ps;
    bool has_header;
    uint64_t step;
    uint64_t session;
    uint64_t total_bytes;
    uint64_t received;
    float payload[RIG_SHARD_MAX];
};

static inline void rig_on_pull(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    struct rig_ps *ps = arg;
    const Steadfast__V1__PullRequest *request = (const Steadfast__V1__PullRequest *)in->message;
    pthread_mutex_lock(&ps->lock);
    ps->pulls++;
    ps->pinned_pulls += request->pin != 0;
    if (ps->refuse_pull_count > 0) {
        ps->refuse_pull_count--;
        rpc_fail(call, ps->refuse_pull, "scripted");
    } else if (request->generation != ps->generation) {
        rpc_fail(call, ERR_STALE, "another generation");
    } else {
        uint64_t version = request->pin ? RIG_PIN_VERSION + request->pin : ps->version;
        Steadfast__V1__TensorChunk chunk = STEADFAST__V1__TENSOR_CHUNK__INIT;
        struct rpc_out out = {.message = &chunk.base};
        chunk.version = version;
        chunk.total_bytes = ps->lie_total ? ps->lie_total : ps->payload_bytes;
        if (request->have_version == version) {
            chunk.not_modified = true;
            ps->not_modified++;
            CHECK(rpc_send(call, &out, NULL, NULL) == ERR_OK);
        }
        /* Three uneven chunks, cut inside elements. */
        size_t cuts[4] = {0, ps->payload_bytes / 3 + 1, ps->payload_bytes / 2 + 2,
                          ps->payload_bytes};
        for (int i = 0; i < 3 && !chunk.not_modified; i++) {
            chunk.offset = cuts[i];
            chunk.data.data = (uint8_t *)ps->values + cuts[i];
            chunk.data.len = cuts[i + 1] - cuts[i];
            CHECK(rpc_send(call, &out, NULL, NULL) == ERR_OK);
        }
        rpc_finish(call);
    }
    pthread_mutex_unlock(&ps->lock);
}

static inline void rig_answer(struct rpc_call *call, Steadfast__V1__PushOutcome outcome,
                              uint64_t version)
{
    Steadfast__V1__PushReply reply = STEADFAST__V1__PUSH_REPLY__INIT;
    reply.outcome = outcome;
    reply.version = version;
    reply.staleness = 3;
    struct rpc_out out = {.message = &reply.base};
    rpc_reply(call, &out);
}

/* Under the lock: the whole push is here. */
static inline void rig_apply(struct rig_ps *ps, struct rpc_call *call, const struct rig_push *push)
{
    ps->last_session = push->session;
    if (push->received != push->total_bytes || push->total_bytes != ps->payload_bytes) {
        rpc_fail(call, ERR_INVALID, "incomplete push");
        return;
    }
    bool is_new = ranges_add(&ps->marks, push->step);
    if (is_new) {
        if (ps->applied++ == 0)
            memcpy(ps->first_push, push->payload, ps->payload_bytes);
        for (size_t i = 0; i < ps->payload_bytes / sizeof(float); i++)
            ps->values[i] -= ps->learning_rate * push->payload[i];
        ps->version++;
    }
    if (ps->holds_pushes) {
        CHECK(ps->held_count < ARRAY_SIZE(ps->held));
        rpc_call_ref(call);
        ps->held[ps->held_count++] = call;
        return;
    }
    rig_answer(call,
               is_new ? STEADFAST__V1__PUSH_OUTCOME__PUSH_APPLIED
                      : STEADFAST__V1__PUSH_OUTCOME__PUSH_DONE_BEFORE,
               ps->version);
}

static inline void rig_on_push_message(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    struct rig_push *push = arg;
    struct rig_ps *ps = push->ps;
    pthread_mutex_lock(&ps->lock);
    if (!in) {
        rig_apply(ps, call, push);
    } else {
        const Steadfast__V1__PushChunk *chunk = (const Steadfast__V1__PushChunk *)in->message;
        if (chunk->header) {
            push->has_header = true;
            push->step = chunk->header->step;
            push->session = chunk->header->session;
            push->total_bytes = chunk->header->total_bytes;
            ps->last_pulled_version = chunk->header->pulled_version;
        }
        size_t bytes = in->view ? rpc_view_bytes(in->view) : 0;
        bool fits = push->has_header && bytes <= sizeof(push->payload) &&
                    chunk->offset <= sizeof(push->payload) - bytes;
        if (fits && bytes)
            rpc_view_copy(in->view, 0, (uint8_t *)push->payload + chunk->offset, bytes);
        push->received += bytes;
        if (fits)
            rpc_recv(call, rig_on_push_message, push);
        else
            rpc_fail(call, ERR_INVALID, "a chunk before the header, or beyond the payload");
    }
    pthread_mutex_unlock(&ps->lock);
}

static inline void rig_on_push_end(struct rpc_call *call, bool was_cancelled, void *arg)
{
    (void)call;
    (void)was_cancelled;
    free(arg);
}

static inline void rig_on_push(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    (void)in;
    struct rig_ps *ps = arg;
    pthread_mutex_lock(&ps->lock);
    ps->push_tries++;
    if (ps->refuse_push_count > 0) {
        ps->refuse_push_count--;
        rpc_fail(call, ps->refuse_push, "scripted");
    } else {
        struct rig_push *push = base_alloc(sizeof(*push));
        push->ps = ps;
        rpc_on_end(call, rig_on_push_end, push);
        rpc_recv(call, rig_on_push_message, push);
    }
    pthread_mutex_unlock(&ps->lock);
}

/* ---- coordinator --------------------------------------------------------------------------------
 */
struct rig_report {
    uint64_t step;
    uint64_t attempt;
    int kind;
    int outcome;
    float loss;
    uint32_t examples;
    uint32_t correct;
    uint32_t staleness;
    bool is_duplicate;
    char code[32];
    char text[ERR_TEXT_SIZE];
};

struct rig_coord {
    struct rpc_server *server;
    uint16_t port;
    struct rpc_call *call; /* the attached stream; NULL: none */
    uint64_t next_session;
    bool is_mute;      /* no Welcome */
    bool is_forgetful; /* no acknowledgements */
    uint32_t hello_count;
    Steadfast__V1__Hello *hello; /* the newest */
    struct rig_report *reports;
    size_t report_count;
    uint32_t heartbeat_count;
    char unreachable[64]; /* of the newest heartbeat; "" none */
    Steadfast__V1__Leaving *leaving;
    bool is_half_closed;
};

struct rig {
    struct loop *loop;
    struct rpc_env *env;
    struct rig_coord coord;
    struct rig_ps ps[RIG_SERVERS];
    struct rpc_method fleet_method;
    struct rpc_method ps_methods[RIG_SERVERS][2];
    struct worker *worker;
    bool pulls_ahead;          /* set before rig_up */
    struct loop_timer *turner; /* a condition may become true just before the loop goes to sleep */
    bool has_ended;
    int exit_code;
    bool is_stopped;
    uint64_t next_attempt;
};

/* One a process, and every test has a process of its own. */
static struct rig rig;

static inline void rig_send(const Steadfast__V1__CoordMessage *message)
{
    struct rpc_out out = {.message = &message->base};
    CHECK(rig.coord.call && rpc_send(rig.coord.call, &out, NULL, NULL) == ERR_OK);
}

static inline void rig_ack(uint64_t step, uint64_t attempt, int kind)
{
    Steadfast__V1__StepRef ref = STEADFAST__V1__STEP_REF__INIT;
    ref.job = RIG_JOB;
    ref.step = step;
    ref.attempt = attempt;
    ref.kind = (Steadfast__V1__StepKind)kind;
    Steadfast__V1__StepRef *refs[] = {&ref};
    Steadfast__V1__AckBatch acks = STEADFAST__V1__ACK_BATCH__INIT;
    acks.n_steps = 1;
    acks.steps = refs;
    Steadfast__V1__CoordMessage message = STEADFAST__V1__COORD_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_ACKS;
    message.acks = &acks;
    rig_send(&message);
}

static inline void rig_take_report(const Steadfast__V1__StepReport *from)
{
    CHECK(rig.coord.report_count < RIG_LIST_MAX);
    struct rig_report *report = &rig.coord.reports[rig.coord.report_count++];
    *report = (struct rig_report){.step = from->step,
                                  .attempt = from->attempt,
                                  .kind = (int)from->kind,
                                  .outcome = (int)from->outcome,
                                  .loss = from->loss,
                                  .examples = from->examples,
                                  .correct = from->correct,
                                  .staleness = from->staleness,
                                  .is_duplicate = from->duplicate};
    snprintf(report->code, sizeof(report->code), "%s", from->code);
    snprintf(report->text, sizeof(report->text), "%s", from->text);
    if (!rig.coord.is_forgetful)
        rig_ack(from->step, from->attempt, (int)from->kind);
}

/* A copy that outlives the callback. */
static inline void *rig_copy(const ProtobufCMessage *message)
{
    size_t bytes = protobuf_c_message_get_packed_size(message);
    AUTO_MEM uint8_t *packed = base_alloc(bytes);
    protobuf_c_message_pack(message, packed);
    return protobuf_c_message_unpack(message->descriptor, NULL, bytes, packed);
}

static inline void rig_on_hello(const Steadfast__V1__Hello *hello)
{
    struct rig_coord *coord = &rig.coord;
    if (coord->hello)
        steadfast__v1__hello__free_unpacked(coord->hello, NULL);
    coord->hello = rig_copy(&hello->base);
    coord->hello_count++;
    if (coord->is_mute)
        return;
    Steadfast__V1__Welcome welcome = STEADFAST__V1__WELCOME__INIT;
    welcome.session = hello->session ? hello->session : ++coord->next_session;
    welcome.start = 1;
    welcome.heartbeat_ms = 20;
    welcome.lease_ms = 2000;
    Steadfast__V1__CoordMessage message = STEADFAST__V1__COORD_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_WELCOME;
    message.welcome = &welcome;
    rig_send(&message);
    for (size_t i = 0; i < hello->n_reports; i++)
        rig_take_report(hello->reports[i]);
}

static inline void rig_on_member(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    (void)arg;
    struct rig_coord *coord = &rig.coord;
    if (!in) {
        if (call == coord->call) {
            coord->is_half_closed = true;
            rpc_finish(call);
        }
        return;
    }
    const Steadfast__V1__MemberMessage *message = (const Steadfast__V1__MemberMessage *)in->message;
    switch (message->kind_case) {
    case STEADFAST__V1__MEMBER_MESSAGE__KIND_HELLO:
        rig_on_hello(message->hello);
        break;
    case STEADFAST__V1__MEMBER_MESSAGE__KIND_REPORTS:
        for (size_t i = 0; i < message->reports->n_reports; i++)
            rig_take_report(message->reports->reports[i]);
        break;
    case STEADFAST__V1__MEMBER_MESSAGE__KIND_HEARTBEAT:
        coord->heartbeat_count++;
        snprintf(coord->unreachable, sizeof(coord->unreachable), "%s",
                 message->heartbeat->n_unreachable ? message->heartbeat->unreachable[0]->server
                                                   : "");
        break;
    case STEADFAST__V1__MEMBER_MESSAGE__KIND_LEAVING:
        coord->leaving = rig_copy(&message->leaving->base);
        break;
    default:
        CHECK(!"a message that no worker sends");
    }
    if (call == coord->call)
        rpc_recv(call, rig_on_member, NULL);
}

static inline void rig_on_attach_end(struct rpc_call *call, bool was_cancelled, void *arg)
{
    (void)was_cancelled;
    (void)arg;
    if (call == rig.coord.call)
        rig.coord.call = NULL;
    rpc_call_unref(call);
}

static inline void rig_on_attach(struct rpc_call *call, const struct rpc_in *in, void *arg)
{
    (void)in;
    (void)arg;
    rpc_call_ref(call);
    rig.coord.call = call;
    rpc_on_end(call, rig_on_attach_end, NULL);
    rpc_recv(call, rig_on_member, NULL);
}

/* Ends the stream as a connection that breaks does. */
static inline void rig_break_stream(void)
{
    rpc_fail(TAKE(rig.coord.call), ERR_UNAVAILABLE, "scripted break");
}

static inline void rig_goodbye(enum err_code code)
{
    Steadfast__V1__Goodbye goodbye = STEADFAST__V1__GOODBYE__INIT;
    goodbye.code = (char *)err_name(code);
    goodbye.text = (char *)"scripted";
    Steadfast__V1__CoordMessage message = STEADFAST__V1__COORD_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_GOODBYE;
    message.goodbye = &goodbye;
    rig_send(&message);
    rpc_finish(TAKE(rig.coord.call));
}

static inline void rig_ticket_full(int kind, uint64_t step, uint64_t generation, uint32_t epoch,
                                   uint64_t batch, uint64_t pin, uint32_t deadline_ms)
{
    Steadfast__V1__StepTicket ticket = STEADFAST__V1__STEP_TICKET__INIT;
    ticket.job = RIG_JOB;
    ticket.step = step;
    ticket.attempt = ++rig.next_attempt;
    ticket.generation = generation;
    ticket.kind = (Steadfast__V1__StepKind)kind;
    ticket.epoch = epoch;
    ticket.batch = batch;
    ticket.pin = pin;
    ticket.deadline_ms = deadline_ms;
    Steadfast__V1__StepTicket *tickets[] = {&ticket};
    Steadfast__V1__TicketBatch batch_message = STEADFAST__V1__TICKET_BATCH__INIT;
    batch_message.n_tickets = 1;
    batch_message.tickets = tickets;
    Steadfast__V1__CoordMessage message = STEADFAST__V1__COORD_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_TICKETS;
    message.tickets = &batch_message;
    rig_send(&message);
}

static inline void rig_ticket(uint64_t step)
{
    rig_ticket_full(STEADFAST__V1__STEP_KIND__STEP_TRAIN, step, 1, 0, step, 0, 10000);
}

static inline void rig_close_job(void)
{
    Steadfast__V1__JobClose close = STEADFAST__V1__JOB_CLOSE__INIT;
    close.job = RIG_JOB;
    Steadfast__V1__CoordMessage message = STEADFAST__V1__COORD_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_CLOSE;
    message.close = &close;
    rig_send(&message);
}

static inline void rig_revoke(uint64_t step, uint64_t attempt)
{
    Steadfast__V1__StepRef ref = STEADFAST__V1__STEP_REF__INIT;
    ref.job = RIG_JOB;
    ref.step = step;
    ref.attempt = attempt;
    Steadfast__V1__StepRef *refs[] = {&ref};
    Steadfast__V1__RevokeBatch revoke = STEADFAST__V1__REVOKE_BATCH__INIT;
    revoke.n_steps = 1;
    revoke.steps = refs;
    Steadfast__V1__CoordMessage message = STEADFAST__V1__COORD_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_REVOKE;
    message.revoke = &revoke;
    rig_send(&message);
}

/* ---- the job: softmax of 4 x 4 images and 3 classes
 * ---------------------------------------------- */
#define RIG_SPEC                                                                                   \
    "{\"name\": \"t\", \"seed\": 5, \"epochs\": 100, \"model\": {\"name\": \"softmax\", "          \
    "\"num_classes\": 3}, "                                                                        \
    "\"dataset\": {\"source\": \"synthetic\", \"records\": 1000, \"batch_size\": 16, "             \
    "\"shuffle_buffer\": 64, "                                                                     \
    "\"height\": 4, \"width\": 4}, "                                                               \
    "\"eval_dataset\": {\"source\": \"synthetic\", \"records\": 50, \"batch_size\": 20, "          \
    "\"height\": 4, "                                                                              \
    "\"width\": 4}, "                                                                              \
    "\"optimizer\": {\"name\": \"sgd\", \"learning_rate\": 0.1}}"
#define RIG_NOOP_SPEC "{\"name\": \"n\", \"model\": {\"name\": \"noop\"}, \"max_steps\": 1000000}"

static inline struct graph *rig_graph(void)
{
    struct err err;
    struct model_spec spec = {.name = (char *)"softmax", .num_classes = 3};
    struct graph *graph = NULL;
    CHECK_OK(model_build(&spec, 1, 4, 4, &graph, &err));
    return graph;
}

/* Where each variable's rows live: the first variable is cut in two, the rest is on server 1.
 * Element i of a variable is at home[v][row]. */
static inline void rig_open(const char *spec_json, uint64_t generation, bool has_variables)
{
    AUTO(graph) graph = rig_graph();
    size_t var_count = has_variables ? graph_var_count(graph) : 0;
    Steadfast__V1__Slice slices[8];
    Steadfast__V1__Slice *slice_ptrs[8];
    size_t count = 0;
    size_t bytes[RIG_SERVERS] = {0};
    for (size_t v = 0; v < var_count; v++) {
        const struct model_var *var = graph_var(graph, v);
        uint64_t row_elements = model_var_elements(var) / var->shape[0];
        uint64_t cut = v == 0 ? var->shape[0] / 2 + 1 : 0;
        for (uint32_t part = 0; part < 2; part++) {
            uint64_t rows = part == 0 ? cut : var->shape[0] - cut;
            if (rows == 0)
                continue;
            Steadfast__V1__Slice *slice = &slices[count];
            slice_ptrs[count] = slice;
            steadfast__v1__slice__init(slice);
            slice->index = (uint32_t)count++;
            slice->var = (uint32_t)v;
            slice->name = var->name;
            slice->n_shape = var->rank;
            slice->shape = (uint64_t *)var->shape;
            slice->row_offset = part == 0 ? 0 : cut;
            slice->rows = rows;
            slice->server = part;
            bytes[part] += rows * row_elements * sizeof(float);
        }
    }
    Steadfast__V1__ServerRef servers[RIG_SERVERS];
    Steadfast__V1__ServerRef *server_ptrs[RIG_SERVERS];
    static char addresses[RIG_SERVERS][32];
    static char *names[RIG_SERVERS] = {(char *)"ps:0", (char *)"ps:1"};
    for (int i = 0; i < RIG_SERVERS; i++) {
        snprintf(addresses[i], sizeof(addresses[i]), "127.0.0.1:%u", rig.ps[i].port);
        steadfast__v1__server_ref__init(&servers[i]);
        servers[i].name = names[i];
        servers[i].address = addresses[i];
        server_ptrs[i] = &servers[i];
        pthread_mutex_lock(&rig.ps[i].lock);
        rig.ps[i].payload_bytes = bytes[i];
        rig.ps[i].generation = generation;
        pthread_mutex_unlock(&rig.ps[i].lock);
    }
    Steadfast__V1__Plan plan = STEADFAST__V1__PLAN__INIT;
    plan.n_servers = RIG_SERVERS;
    plan.servers = server_ptrs;
    plan.n_slices = count;
    plan.slices = slice_ptrs;
    Steadfast__V1__JobOpen open = STEADFAST__V1__JOB_OPEN__INIT;
    open.job = RIG_JOB;
    open.name = (char *)"t";
    open.generation = generation;
    open.spec_json = (char *)spec_json;
    open.plan = &plan;
    Steadfast__V1__CoordMessage message = STEADFAST__V1__COORD_MESSAGE__INIT;
    message.kind_case = STEADFAST__V1__COORD_MESSAGE__KIND_OPEN;
    message.open = &open;
    rig_send(&message);
}

/* ---- up and down --------------------------------------------------------------------------------
 */
#define RIG_UNTIL(cond)                                                                            \
    while (!(cond))                                                                                \
    uv_run(loop_uv(rig.loop), UV_RUN_ONCE)

/* A value that the io thread writes under a server's lock. */
#define RIG_PS(i, field)                                                                           \
    ({                                                                                             \
        pthread_mutex_lock(&rig.ps[i].lock);                                                       \
        __typeof__(rig.ps[i].field) value_ = rig.ps[i].field;                                      \
        pthread_mutex_unlock(&rig.ps[i].lock);                                                     \
        value_;                                                                                    \
    })
#define RIG_PS_SET(i, field, value)                                                                \
    do {                                                                                           \
        pthread_mutex_lock(&rig.ps[i].lock);                                                       \
        rig.ps[i].field = (value);                                                                 \
        pthread_mutex_unlock(&rig.ps[i].lock);                                                     \
    } while (0)

static inline void rig_on_drained(void *arg)
{
    *(bool *)arg = true;
}

static inline void rig_ps_up(uint32_t i)
{
    struct err err;
    struct rig_ps *ps = &rig.ps[i];
    char address[32];
    snprintf(address, sizeof(address), "127.0.0.1:%u", ps->port); /* 0 the first time */
    ps->is_drained = false;
    CHECK_OK(rpc_server_new(rig.env, NULL, &ps->server, &err));
    struct rpc_method *methods = rig.ps_methods[i];
    methods[0] = ps_method_pull;
    methods[0].on_call = rig_on_pull;
    methods[1] = ps_method_push;
    methods[1].on_call = rig_on_push;
    for (int m = 0; m < 2; m++) {
        methods[m].where = RPC_INLINE;
        methods[m].arg = ps;
    }
    rpc_server_add(ps->server, methods, 2);
    CHECK_OK(rpc_server_listen(ps->server, address, &ps->port, &err));
    rpc_server_start(ps->server);
}

static inline void rig_ps_down(uint32_t i)
{
    struct rig_ps *ps = &rig.ps[i];
    rpc_server_drain(ps->server, rig_on_drained, &ps->is_drained);
    RIG_UNTIL(ps->is_drained);
    rpc_server_free(TAKE(ps->server));
}

static inline void rig_on_worker_end(void *arg, int exit_code)
{
    (void)arg;
    rig.has_ended = true;
    rig.exit_code = exit_code;
}

static inline void rig_on_turn(void *arg)
{
    (void)arg;
}

static inline void rig_on_stopped(void *arg)
{
    (void)arg;
    rig.is_stopped = true;
}

/* Coordinator and servers, without a worker. */
static inline void rig_up_peers(void)
{
    struct err err;
    rpc_process_init();
    CHECK_OK(loop_new(&rig.loop, &err));
    CHECK_OK(rpc_env_new(loop_uv(rig.loop), &rig.env, &err));
    rig.turner = loop_timer_new(rig.loop, rig_on_turn, NULL);
    loop_timer_every(rig.turner, 5);
    rig.coord.reports = base_alloc(RIG_LIST_MAX * sizeof(*rig.coord.reports));
    for (uint32_t i = 0; i < RIG_SERVERS; i++) {
        struct rig_ps *ps = &rig.ps[i];
        ps->index = i;
        pthread_mutex_init(&ps->lock, NULL);
        ranges_init(&ps->marks);
        ps->version = 1;
        ps->learning_rate = 0.5f;
        rig_ps_up(i);
    }
    CHECK_OK(rpc_server_new(rig.env, NULL, &rig.coord.server, &err));
    rig.fleet_method = fleet_method_attach;
    rig.fleet_method.where = RPC_ON_LOOP;
    rig.fleet_method.on_call = rig_on_attach;
    rpc_server_add(rig.coord.server, &rig.fleet_method, 1);
    CHECK_OK(rpc_server_listen(rig.coord.server, "127.0.0.1:0", &rig.coord.port, &err));
    rpc_server_start(rig.coord.server);
}

/* The worker is up; the caller waits for what it needs. */
static inline void rig_up(const char *device, const char *fake_script)
{
    struct err err;
    rig_up_peers();
    static char coordinator[32];
    snprintf(coordinator, sizeof(coordinator), "127.0.0.1:%u", rig.coord.port);
    struct worker_options options = {.loop = rig.loop,
                                     .rpc = rig.env,
                                     .name = "worker:0",
                                     .listen = "127.0.0.1:0",
                                     .coordinator = coordinator,
                                     .device = device,
                                     .threads = 1,
                                     .input_threads = 2,
                                     .fake_script = fake_script,
                                     .pulls_ahead = rig.pulls_ahead,
                                     .on_end = rig_on_worker_end};
    CHECK_OK(worker_new(&options, &rig.worker, &err));
    worker_start(rig.worker);
}

static inline void rig_wait_attached(void)
{
    RIG_UNTIL(rig.coord.hello_count > 0 && rig.coord.heartbeat_count > 0);
}

static inline void rig_down(void)
{
    if (rig.worker) {
        worker_stop(rig.worker, rig_on_stopped, NULL);
        RIG_UNTIL(rig.is_stopped);
        worker_free(rig.worker);
    }
    for (uint32_t i = 0; i < RIG_SERVERS; i++) {
        for (size_t h = 0; h < rig.ps[i].held_count; h++)
            rpc_call_unref(rig.ps[i].held[h]);
        if (rig.ps[i].server)
            rig_ps_down(i);
        ranges_done(&rig.ps[i].marks);
    }
    bool is_drained = false;
    rpc_server_drain(rig.coord.server, rig_on_drained, &is_drained);
    RIG_UNTIL(is_drained);
    rpc_server_free(rig.coord.server);
    loop_timer_free(rig.turner);
    rpc_env_free(rig.env);
    loop_free(rig.loop);
    if (rig.coord.hello)
        steadfast__v1__hello__free_unpacked(rig.coord.hello, NULL);
    if (rig.coord.leaving)
        steadfast__v1__leaving__free_unpacked(rig.coord.leaving, NULL);
    free(rig.coord.reports);
}

static inline const struct rig_report *rig_report_of(uint64_t step)
{
    for (size_t i = rig.coord.report_count; i-- > 0;)
        if (rig.coord.reports[i].step == step)
            return &rig.coord.reports[i];
    return NULL;
}

#endif
