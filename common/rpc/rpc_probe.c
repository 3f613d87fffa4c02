/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_probe: getaddrinfo, connect, one look at the first bytes; each with what is left of the time.
 */
#include "common/rpc/rpc_probe.h"

#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/rpc/rpc_int.h"

#define SLICE_MS         20
#define PROBER_LIMIT_MS  2000
#define PROBER_AGAIN_NS  (5 * NS_PER_S)
#define FRAME_HEAD_BYTES 9 /* RFC 9113, 4.1 */
#define FRAME_SETTINGS   4

/* Our preface and an empty SETTINGS frame. */
static const char opening[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";

struct patience {
    uint64_t until_ns;
    bool (*is_over)(void *arg);
    void *arg;
};

static bool is_cut(const struct patience *patience)
{
    return patience->is_over && patience->is_over(patience->arg);
}

static bool is_late(const struct patience *patience)
{
    return clock_now_ns() >= patience->until_ns;
}

/* ---- the name -------------------------------------------------------------------------------- */
/* getaddrinfo has no deadline of its own: it runs in a thread that may outlive the wait for it. */
struct lookup {
    char host[LIMIT_ADDRESS_BYTES];
    char service[8];
    pthread_mutex_t lock; /* guards the rest */
    unsigned refs;        /* the asker's and the thread's */
    bool is_done;
    int status, errnum;
    struct addrinfo *list; /* owned until taken */
};

static int look_up(const char *host, const char *service, int flags, struct addrinfo **ret_list)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    return getaddrinfo(host, service, &hints, ret_list);
}

static void lookup_unref(struct lookup *lookup)
{
    pthread_mutex_lock(&lookup->lock);
    bool is_last = --lookup->refs == 0;
    pthread_mutex_unlock(&lookup->lock);
    if (!is_last)
        return;
    if (lookup->list)
        freeaddrinfo(lookup->list);
    pthread_mutex_destroy(&lookup->lock);
    free(lookup);
}

static void *lookup_main(void *arg)
{
    struct lookup *lookup = arg;
    struct addrinfo *list = NULL;
    int status = look_up(lookup->host, lookup->service, 0, &list);
    int errnum = errno;
    pthread_mutex_lock(&lookup->lock);
    lookup->status = status;
    lookup->errnum = errnum;
    lookup->list = list;
    lookup->is_done = true;
    pthread_mutex_unlock(&lookup->lock);
    lookup_unref(lookup);
    return NULL;
}

static bool lookup_poll(struct lookup *lookup, int *ret_status, int *ret_errnum,
                        struct addrinfo **ret_list)
{
    pthread_mutex_lock(&lookup->lock);
    bool is_done = lookup->is_done;
    if (is_done) {
        *ret_status = lookup->status;
        *ret_errnum = lookup->errnum;
        *ret_list = TAKE(lookup->list);
    }
    pthread_mutex_unlock(&lookup->lock);
    return is_done;
}

static void note_lookup(int status, int errnum, struct rpc_probe *probe)
{
    bool is_short = status == EAI_SYSTEM && (errnum == EMFILE || errnum == ENFILE);
    bool is_unknown = status == EAI_NONAME || status == EAI_NODATA;
    probe->kind = is_short     ? RPC_PROBE_NO_FILES
                  : is_unknown ? RPC_PROBE_NO_NAME
                               : RPC_PROBE_NO_LOOKUP;
    probe->errnum = is_short ? errnum : status;
}

/* NULL: probe says why. */
static struct addrinfo *resolve(const char *host, uint16_t port, const struct patience *patience,
                                struct rpc_probe *probe)
{
    struct addrinfo *list = NULL;
    char service[8];
    snprintf(service, sizeof(service), "%u", port);
    if (look_up(host, service, AI_NUMERICHOST, &list) == 0)
        return list;
    struct lookup *lookup = base_alloc(sizeof(*lookup));
    snprintf(lookup->host, sizeof(lookup->host), "%s", host);
    snprintf(lookup->service, sizeof(lookup->service), "%s", service);
    pthread_mutex_init(&lookup->lock, NULL);
    lookup->refs = 2;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int status = pthread_create(&thread, NULL, lookup_main, lookup), errnum = 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status != 0) {
        lookup->refs = 1;
        lookup_unref(lookup);
        *probe = (struct rpc_probe){.kind = RPC_PROBE_FAILED, .errnum = status};
        return NULL;
    }
    pthread_detach(thread);
    bool is_done;
    while (!(is_done = lookup_poll(lookup, &status, &errnum, &list)) && !is_cut(patience) &&
           !is_late(patience))
        nanosleep(&(struct timespec){.tv_nsec = SLICE_MS / 4 * (long)NS_PER_MS}, NULL);
    lookup_unref(lookup);
    if (!is_done)
        probe->kind = is_cut(patience) ? RPC_PROBE_CUT : RPC_PROBE_NO_LOOKUP;
    else if (status != 0)
        note_lookup(status, errnum, probe);
    return list;
}

/* ---- one address ----------------------------------------------------------------------------- */
/* True: something is there. Else probe->kind is CUT or what silence means. */
static bool wait_for(int fd, short events, const struct patience *patience,
                     enum rpc_probe_kind silence, struct rpc_probe *probe)
{
    struct pollfd poll_fd = {.fd = fd, .events = events};
    for (;;) {
        if (poll(&poll_fd, 1, SLICE_MS) > 0)
            return true;
        if (is_cut(patience) || is_late(patience)) {
            probe->kind = is_cut(patience) ? RPC_PROBE_CUT : silence;
            return false;
        }
    }
}

static enum rpc_probe_kind kind_of_errno(int errnum)
{
    switch (errnum) {
    case ECONNREFUSED:
        return RPC_PROBE_REFUSED;
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case EHOSTDOWN:
    case EADDRNOTAVAIL:
        return RPC_PROBE_NO_ROUTE;
    case ETIMEDOUT:
        return RPC_PROBE_SILENT;
    case EMFILE:
    case ENFILE:
        return RPC_PROBE_NO_FILES;
    case ECONNRESET:
    case EPIPE:
        return RPC_PROBE_CLOSED;
    default:
        return RPC_PROBE_FAILED;
    }
}

static void note_words(const uint8_t *bytes, size_t count, struct rpc_probe *probe)
{
    size_t n = 0;
    for (size_t i = 0; i < count && n + 1 < sizeof(probe->words); i++) {
        if (bytes[i] == '\r' || bytes[i] == '\n')
            break;
        probe->words[n++] = (char)(isprint(bytes[i]) && bytes[i] != '"' ? bytes[i] : '.');
    }
    probe->words[n] = '\0';
}

static void read_first(int fd, const struct patience *patience, struct rpc_probe *probe)
{
    uint8_t bytes[64];
    size_t count = 0;
    while (count < FRAME_HEAD_BYTES) {
        if (!wait_for(fd, POLLIN, patience, count ? RPC_PROBE_OTHER : RPC_PROBE_MUTE, probe))
            break;
        ssize_t n = recv(fd, bytes + count, sizeof(bytes) - count, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        probe->kind = count ? RPC_PROBE_OTHER : RPC_PROBE_CLOSED;
        if (n <= 0)
            break;
        count += (size_t)n;
    }
    if (count >= FRAME_HEAD_BYTES) /* a frame of stream 0, under 64 KiB */
        probe->kind = bytes[0] == 0 && bytes[3] == FRAME_SETTINGS && bytes[8] == 0
                          ? RPC_PROBE_HTTP2
                          : RPC_PROBE_OTHER;
    if (probe->kind == RPC_PROBE_OTHER)
        note_words(bytes, count, probe);
}

static void probe_one(const struct addrinfo *at, const struct patience *patience,
                      struct rpc_probe *probe)
{
    AUTO_FD int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int errnum = fd < 0 ? errno : 0;
    if (errnum == 0 && connect(fd, at->ai_addr, at->ai_addrlen) != 0)
        errnum = errno;
    if (errnum == EINPROGRESS) {
        socklen_t size = sizeof(errnum);
        if (!wait_for(fd, POLLOUT, patience, RPC_PROBE_SILENT, probe))
            return;
        (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &errnum, &size);
    }
    if (errnum != 0) {
        *probe = (struct rpc_probe){.kind = kind_of_errno(errnum), .errnum = errnum};
        return;
    }
    /* A peer that has closed already is told by the read. */
    ssize_t sent = send(fd, opening, sizeof(opening) - 1, MSG_NOSIGNAL);
    (void)sent;
    read_first(fd, patience, probe);
}

void rpc_probe_address(const char *address, uint32_t timeout_ms, bool (*is_over)(void *arg),
                       void *arg, struct rpc_probe *ret_probe)
{
    uint64_t start_ns = clock_now_ns();
    struct patience all = {start_ns + timeout_ms * NS_PER_MS, is_over, arg};
    struct rpc_probe best = {.kind = RPC_PROBE_CUT};
    char host[LIMIT_ADDRESS_BYTES];
    uint16_t port;
    bool is_v6;
    enum err_code code = rpc_address_split(address, host, sizeof(host), &port, &is_v6, NULL);
    ASSERT(code == ERR_OK);
    struct addrinfo *list = resolve(host, port, &all, &best);
    uint64_t left = 0;
    for (struct addrinfo *at = list; at; at = at->ai_next)
        left++;
    for (struct addrinfo *at = list; at && left > 0 && best.kind != RPC_PROBE_HTTP2;
         at = at->ai_next, left--) {
        uint64_t now_ns = clock_now_ns();
        struct patience share = all;
        if (now_ns < all.until_ns)
            share.until_ns = now_ns + (all.until_ns - now_ns) / left;
        struct rpc_probe probe = {.kind = RPC_PROBE_CUT};
        probe_one(at, &share, &probe);
        if (probe.kind >= best.kind)
            best = probe;
    }
    if (list)
        freeaddrinfo(list);
    best.took_ms = (uint32_t)((clock_now_ns() - start_ns) / NS_PER_MS);
    *ret_probe = best;
}

const char *rpc_probe_say(const struct rpc_probe *probe, char *ret_text, size_t size)
{
    struct rlimit files = {0};
    const char *text = "";
    switch (probe->kind) {
    case RPC_PROBE_CUT:
        text = "not known yet why";
        break;
    case RPC_PROBE_NO_FILES:
        (void)getrlimit(RLIMIT_NOFILE, &files);
        snprintf(ret_text, size, "no file descriptor is left here to connect with (limit %llu): %s",
                 (unsigned long long)files.rlim_cur, strerror(probe->errnum));
        return ret_text;
    case RPC_PROBE_NO_NAME:
        snprintf(ret_text, size, "the host name is not known: %s", gai_strerror(probe->errnum));
        return ret_text;
    case RPC_PROBE_NO_LOOKUP:
        snprintf(ret_text, size, "the host name could not be looked up: %s",
                 probe->errnum ? gai_strerror(probe->errnum) : "the name service is silent");
        return ret_text;
    case RPC_PROBE_FAILED:
        snprintf(ret_text, size, "cannot connect: %s", strerror(probe->errnum));
        return ret_text;
    case RPC_PROBE_NO_ROUTE:
        snprintf(ret_text, size, "no route to it: %s", strerror(probe->errnum));
        return ret_text;
    case RPC_PROBE_SILENT:
        text = "no sign of it: the machine is off, or packets to it are dropped";
        break;
    case RPC_PROBE_REFUSED:
        text = "connection refused: nobody listens there";
        break;
    case RPC_PROBE_CLOSED:
        text = "it takes connections and closes them without a word: full, or no Steadfast daemon";
        break;
    case RPC_PROBE_MUTE:
        text = "it takes connections and says nothing: stopped, stuck, or no Steadfast daemon";
        break;
    case RPC_PROBE_OTHER:
        snprintf(ret_text, size, "no Steadfast daemon: it does not speak gRPC, it says \"%s\"",
                 probe->words);
        return ret_text;
    case RPC_PROBE_HTTP2:
        text = "it is there, but has not answered: busy or stuck";
        break;
    }
    snprintf(ret_text, size, "%s", text);
    return ret_text;
}

/* ---- in the background ----------------------------------------------------------------------- */
struct rpc_prober {
    char address[LIMIT_ADDRESS_BYTES];
    atomic_bool is_ending;
    pthread_mutex_t lock; /* guards the rest; a leaf */
    pthread_t thread;
    bool has_thread; /* to be joined */
    bool is_running;
    uint64_t next_ns;
    const char *event;
    char who[LIMIT_NAME_BYTES];
};

struct rpc_prober *rpc_prober_new(const char *address)
{
    struct rpc_prober *prober = base_alloc(sizeof(*prober));
    snprintf(prober->address, sizeof(prober->address), "%s", address);
    pthread_mutex_init(&prober->lock, NULL);
    return prober;
}

void rpc_prober_free(struct rpc_prober *prober)
{
    if (!prober)
        return;
    atomic_store(&prober->is_ending, true);
    if (prober->has_thread)
        pthread_join(prober->thread, NULL);
    pthread_mutex_destroy(&prober->lock);
    free(prober);
}

static bool is_ending(void *arg)
{
    return atomic_load(&((struct rpc_prober *)arg)->is_ending);
}

static void *prober_main(void *arg)
{
    struct rpc_prober *prober = arg;
    struct rpc_probe probe;
    char why[ERR_TEXT_SIZE];
    rpc_probe_address(prober->address, PROBER_LIMIT_MS, is_ending, prober, &probe);
    if (!is_ending(prober)) /* event and who stay while is_running */
        log_warn(prober->event, "%s at %s took_ms=%u why=\"%s\"", prober->who, prober->address,
                 probe.took_ms, rpc_probe_say(&probe, why, sizeof(why)));
    pthread_mutex_lock(&prober->lock);
    prober->is_running = false;
    prober->next_ns = clock_now_ns() + PROBER_AGAIN_NS;
    pthread_mutex_unlock(&prober->lock);
    return NULL;
}

void rpc_prober_log(struct rpc_prober *prober, const char *event, const char *who)
{
    pthread_mutex_lock(&prober->lock);
    if (!prober->is_running && clock_now_ns() >= prober->next_ns) {
        if (prober->has_thread)
            pthread_join(prober->thread, NULL); /* it has ended */
        prober->event = event;
        snprintf(prober->who, sizeof(prober->who), "%s", who);
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before);
        prober->has_thread = pthread_create(&prober->thread, NULL, prober_main, prober) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        prober->is_running = prober->has_thread;
    }
    pthread_mutex_unlock(&prober->lock);
}
