/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_listen: a thread that accepts connections and hands them to gRPC.
 *
 *   accepted --(the first bytes of HTTP/2 are there)--> gRPC's
 *            --(other bytes, the end, DEFAULT_RPC_HANDSHAKE_MS)--> closed
 *
 * gRPC's own listener is not used: after the first accept that fails for want of a descriptor it
 * never accepts again. Here connections may not take the last descriptors of the process (its own
 * files need them): one that would is closed at once, so that its peer knows. When not even that
 * can be done, a spare descriptor is given up for the moment that a refusal takes. Connections that
 * have said nothing make room for new ones, the oldest first.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <grpc/grpc.h>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/rpc/rpc_server_int.h"

static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port),
              "ports of IPv4 and IPv6 at one place");

#define SOCKETS_MAX  8                 /* addresses of one host name, and several listen calls */
#define ACCEPT_ROUND 64                /* before the others get their turn */
#define RETRY_NS     (100 * NS_PER_MS) /* an accept that failed and could not be refused either */
#define CALM_NS      NS_PER_S          /* without a refusal: it is over */
#define YOUNG_NS     (500 * NS_PER_MS) /* one that may still be about to speak */
#define HANDSHAKE_NS (DEFAULT_RPC_HANDSHAKE_MS * NS_PER_MS)

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"; /* RFC 9113, 3.4 */
#define PREFACE_BYTES (sizeof(preface) - 1)

struct pending { /* accepted, has not yet said what a client of ours says */
    int fd;
    struct sockaddr_in6 from; /* or a sockaddr_in */
    uint64_t since_ns;
};

struct rpc_listener {
    grpc_server *grpc;
    grpc_server_credentials *creds;
    int sockets[SOCKETS_MAX];
    size_t socket_count;
    char address[LIMIT_ADDRESS_BYTES]; /* of the first, for the log */
    pthread_t thread;
    bool is_running;
    int wake; /* eventfd: stop */

    pthread_mutex_t lock;       /* guards peers; a leaf */
    struct sockaddr_in6 *peers; /* who is behind a descriptor that gRPC has; by descriptor */
    size_t peer_count;

    /* the thread's */
    int spare;                                 /* -1: given up */
    struct pending pending[LIMIT_RPC_PENDING]; /* oldest first */
    size_t pending_count;
    uint64_t retry_ns; /* no accept before */
    bool is_full;      /* said so */
    uint64_t full_since_ns, refused_ns;
    uint64_t refused;
};

struct rpc_listener *rpc_listener_new(grpc_server *grpc)
{
    struct rpc_listener *listener = base_alloc(sizeof(*listener));
    listener->grpc = grpc;
    listener->creds = grpc_insecure_server_credentials_create();
    listener->wake = listener->spare = -1;
    pthread_mutex_init(&listener->lock, NULL);
    return listener;
}

void rpc_listener_free(struct rpc_listener *listener)
{
    rpc_listener_stop(listener);
    grpc_server_credentials_release(listener->creds);
    pthread_mutex_destroy(&listener->lock);
    free(listener->peers);
    free(listener);
}

/* ---- listening ------------------------------------------------------------------------------- */
/* 0 or errno. */
static int open_socket(const struct sockaddr *addr, socklen_t addr_len, int *ret_fd)
{
    int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int one = 1, zero = 0;
    if (fd < 0)
        return errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (addr->sa_family == AF_INET6) /* so that [::] takes IPv4 as well */
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    if (bind(fd, addr, addr_len) == 0 && listen(fd, SOMAXCONN) == 0) {
        *ret_fd = fd;
        return 0;
    }
    int errnum = errno;
    close(fd);
    return errnum;
}

static uint16_t port_of(int fd)
{
    struct sockaddr_in6 at = {0}; /* the port of IPv4 is at the same place */
    socklen_t len = sizeof(at);
    return getsockname(fd, (struct sockaddr *)&at, &len) == 0 ? ntohs(at.sin6_port) : 0;
}

/* Listens on one address; the first of a port 0 chooses it for the rest. 0 or errno. */
static int add_socket(struct rpc_listener *listener, struct sockaddr *addr, socklen_t addr_len,
                      uint16_t *port)
{
    int fd = -1;
    ((struct sockaddr_in *)addr)->sin_port = htons(*port); /* of IPv6 at the same place */
    if (listener->socket_count == SOCKETS_MAX)
        return ENOSPC;
    int errnum = open_socket(addr, addr_len, &fd);
    if (errnum != 0)
        return errnum;
    listener->sockets[listener->socket_count++] = fd;
    *port = port_of(fd);
    return 0;
}

/* "0.0.0.0" means every address, those of IPv6 too where the machine has it. */
static bool add_wildcard(struct rpc_listener *listener, const char *host, uint16_t *port)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    return strcmp(host, "0.0.0.0") == 0 &&
           add_socket(listener, (struct sockaddr *)&any, sizeof(any), port) == 0;
}

/* The addresses of a name; one that the machine does not have is left out. 0, errno when there is
 * none, or EADDRINUSE when somebody has one of them. */
static int add_list(struct rpc_listener *listener, const struct addrinfo *list, uint16_t *port)
{
    bool is_chosen = *port == 0, has_any = false;
    int errnum = 0;
    for (const struct addrinfo *at = list; at; at = at->ai_next) {
        int failed = add_socket(listener, at->ai_addr, at->ai_addrlen, port);
        has_any = has_any || failed == 0;
        if (failed == EADDRINUSE && !is_chosen)
            return EADDRINUSE;
        if (errnum == 0)
            errnum = failed;
    }
    return has_any ? 0 : errnum;
}

enum err_code rpc_listener_add(struct rpc_listener *listener, const char *address,
                               uint16_t *ret_port, struct err *err)
{
    ASSERT(!listener->is_running);
    char host[LIMIT_ADDRESS_BYTES], service[8];
    uint16_t port;
    bool is_v6;
    enum err_code code = rpc_address_split(address, host, sizeof(host), &port, &is_v6, err);
    if (code != ERR_OK)
        return code;
    if (listener->wake < 0 && (listener->wake = eventfd(0, EFD_CLOEXEC)) < 0)
        return err_from_errno(err, errno, "listening on %s: eventfd", address);
    if (!add_wildcard(listener, host, &port)) {
        struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
        snprintf(service, sizeof(service), "%u", port);
        int status = getaddrinfo(host, service, &hints, &list);
        if (status != 0)
            return err_set(err, ERR_INVALID, "listening on %s: %s", address,
                           status == EAI_SYSTEM ? strerror(errno) : gai_strerror(status));
        int errnum = add_list(listener, list, &port);
        freeaddrinfo(list);
        if (errnum == EADDRINUSE)
            return err_set(err, ERR_EXISTS, "listening on %s: the address is in use", address);
        if (errnum != 0)
            return err_from_errno(err, errnum, "listening on %s", address);
    }
    if (!listener->address[0])
        snprintf(listener->address, sizeof(listener->address), "%s", address);
    if (ret_port)
        *ret_port = port;
    return ERR_OK;
}

/* ---- room ------------------------------------------------------------------------------------ */
/* The first descriptor number that a connection may not have. The kernel gives out the lowest that
 * is free, so one of that number says how many are in use. */
static int connections_end(int *ret_limit)
{
    struct rlimit files;
    int limit = getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < INT32_MAX
                    ? (int)files.rlim_cur
                    : INT32_MAX;
    *ret_limit = limit;
    return limit - MIN(limit / 4, LIMIT_RPC_FILES_KEPT);
}

static void note_refused(struct rpc_listener *listener, uint64_t now_ns, int errnum)
{
    listener->refused_ns = now_ns;
    if (listener->is_full)
        return;
    listener->is_full = true;
    listener->full_since_ns = now_ns;
    listener->refused = 0;
    int limit, end = connections_end(&limit);
    log_warn("rpc.accept.full",
             "address=%s limit=%d kept_for_files=%d pending=%zu err=\"%s\" new connections are "
             "refused until descriptors are free",
             listener->address, limit, limit - end, listener->pending_count, strerror(errnum));
}

/* Over when nobody was refused for a while and there is room. */
static void check_calm(struct rpc_listener *listener, uint64_t now_ns)
{
    if (!listener->is_full || now_ns < listener->refused_ns + CALM_NS)
        return;
    int limit, end = connections_end(&limit);
    AUTO_FD int probe = fcntl(listener->wake, F_DUPFD_CLOEXEC, 0);
    if (probe < 0 || probe >= end) {
        listener->refused_ns = now_ns; /* look again in CALM_NS */
        return;
    }
    listener->is_full = false;
    log_warn("rpc.accept.room",
             "address=%s limit=%d refused=%llu seconds=%.1f new connections are taken again",
             listener->address, limit, (unsigned long long)listener->refused,
             (double)(now_ns - listener->full_since_ns) / (double)NS_PER_S);
}

/* ---- connections that have not spoken yet ---------------------------------------------------- */
static void pending_remove(struct rpc_listener *listener, size_t i)
{
    listener->pending_count--;
    memmove(&listener->pending[i], &listener->pending[i + 1],
            (listener->pending_count - i) * sizeof(listener->pending[0]));
}

static void pending_drop(struct rpc_listener *listener, size_t i)
{
    close(listener->pending[i].fd);
    pending_remove(listener, i);
}

/* Before gRPC gets the descriptor. It keeps it for as long as a call on it lives, so what stands
 * here is true for every call that asks. */
static void note_peer(struct rpc_listener *listener, int fd, const struct sockaddr_in6 *from)
{
    pthread_mutex_lock(&listener->lock);
    size_t need = (size_t)fd + 1;
    if (need > listener->peer_count) {
        size_t count = MAX(need, 2 * listener->peer_count);
        listener->peers = base_realloc(listener->peers, count * sizeof(*listener->peers));
        memset(listener->peers + listener->peer_count, 0,
               (count - listener->peer_count) * sizeof(*listener->peers));
        listener->peer_count = count;
    }
    listener->peers[fd] = *from;
    pthread_mutex_unlock(&listener->lock);
}

void rpc_listener_peer(struct rpc_listener *listener, int fd, char *ret_name, size_t size)
{
    struct sockaddr_in6 at = {0};
    char host[64] = "?", port[8] = "0";
    pthread_mutex_lock(&listener->lock);
    if (fd >= 0 && (size_t)fd < listener->peer_count)
        at = listener->peers[fd];
    pthread_mutex_unlock(&listener->lock);
    bool is_v6 = at.sin6_family == AF_INET6;
    (void)getnameinfo((struct sockaddr *)&at, is_v6 ? sizeof(at) : sizeof(struct sockaddr_in), host,
                      sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(ret_name, size, is_v6 ? "ipv6:[%s]:%s" : "ipv4:%s:%s", host, port);
}

/* True: it is no longer pending. */
static bool pending_try(struct rpc_listener *listener, size_t i)
{
    struct sockaddr_in6 from = listener->pending[i].from;
    int fd = listener->pending[i].fd;
    char seen[PREFACE_BYTES];
    ssize_t n = recv(fd, seen, sizeof(seen), MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0 || memcmp(seen, preface, (size_t)n) != 0) {
        pending_drop(listener, i);
        return true;
    }
    int low_water = n < (ssize_t)PREFACE_BYTES ? (int)PREFACE_BYTES : 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low_water, sizeof(low_water));
    if (n < (ssize_t)PREFACE_BYTES)
        return false;
    pending_remove(listener, i);
    note_peer(listener, fd, &from);
    grpc_server_add_channel_from_fd(listener->grpc, fd, listener->creds); /* closes it, too */
    return true;
}

/* Room for one more: the oldest goes when it has had its time. */
static bool pending_make_room(struct rpc_listener *listener, uint64_t now_ns)
{
    if (listener->pending_count == 0 || now_ns < listener->pending[0].since_ns + YOUNG_NS)
        return false;
    pending_drop(listener, 0);
    return true;
}

static void pending_add(struct rpc_listener *listener, int fd, const struct sockaddr_in6 *from,
                        uint64_t now_ns)
{
    int one = 1, user_timeout_ms = DEFAULT_RPC_SERVER_PING_MS;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout_ms, sizeof(user_timeout_ms));
    listener->pending[listener->pending_count++] =
        (struct pending){.fd = fd, .from = *from, .since_ns = now_ns};
    pending_try(listener, listener->pending_count - 1);
}

/* ---- accepting ------------------------------------------------------------------------------- */
static void spare_take(struct rpc_listener *listener)
{
    if (listener->spare < 0)
        listener->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static int accept_next(int socket, struct sockaddr_in6 *ret_from)
{
    socklen_t size = sizeof(*ret_from);
    return accept4(socket, (struct sockaddr *)ret_from, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

/* accept failed. True: go on with this socket. */
static bool accept_failed(struct rpc_listener *listener, int socket, uint64_t now_ns, int errnum)
{
    bool is_short = errnum == EMFILE || errnum == ENFILE || errnum == ENOMEM || errnum == ENOBUFS;
    if (errnum == EAGAIN)
        return false;
    if (!is_short) /* of the connection, not of the listener: it is gone already (accept(2)) */
        return true;
    note_refused(listener, now_ns, errnum);
    if (pending_make_room(listener, now_ns))
        return true;
    if (listener->spare >= 0) {
        close(listener->spare);
        struct sockaddr_in6 from;
        int fd = accept_next(socket, &from);
        if (fd >= 0)
            close(fd);
        listener->refused += fd >= 0;
        listener->spare = -1;
        spare_take(listener);
        if (fd >= 0)
            return true;
    }
    listener->retry_ns = now_ns + RETRY_NS;
    return false;
}

static void accept_round(struct rpc_listener *listener, int socket, uint64_t now_ns)
{
    for (int i = 0; i < ACCEPT_ROUND; i++) {
        struct sockaddr_in6 from = {0};
        int fd = accept_next(socket, &from);
        if (fd < 0) {
            if (!accept_failed(listener, socket, now_ns, errno))
                return;
            continue;
        }
        int limit, end = connections_end(&limit);
        bool has_room = fd < end && listener->pending_count < LIMIT_RPC_PENDING;
        if (fd >= end)
            note_refused(listener, now_ns, EMFILE);
        if (!has_room && !pending_make_room(listener, now_ns)) {
            close(fd);
            listener->refused += listener->is_full;
            continue;
        }
        pending_add(listener, fd, &from, now_ns);
    }
}

static uint64_t next_look_ns(const struct rpc_listener *listener, uint64_t now_ns)
{
    uint64_t next_ns = UINT64_MAX;
    if (listener->pending_count > 0)
        next_ns = listener->pending[0].since_ns + HANDSHAKE_NS;
    if (listener->is_full)
        next_ns = MIN(next_ns, listener->refused_ns + CALM_NS);
    if (now_ns < listener->retry_ns)
        next_ns = MIN(next_ns, listener->retry_ns);
    return next_ns;
}

/* What is due by the clock; then how long poll may sleep. */
static int run_clock(struct rpc_listener *listener, uint64_t now_ns)
{
    while (listener->pending_count > 0 && now_ns >= listener->pending[0].since_ns + HANDSHAKE_NS)
        pending_drop(listener, 0);
    spare_take(listener);
    check_calm(listener, now_ns);
    uint64_t next_ns = next_look_ns(listener, now_ns);
    if (next_ns == UINT64_MAX)
        return -1;
    return next_ns <= now_ns ? 0 : (int)((next_ns - now_ns) / NS_PER_MS) + 1;
}

static void *accept_main(void *arg)
{
    struct rpc_listener *listener = arg;
    struct pollfd fds[1 + SOCKETS_MAX + LIMIT_RPC_PENDING];
    for (;;) {
        uint64_t now_ns = clock_now_ns();
        int timeout_ms = run_clock(listener, now_ns);
        size_t count = 0, polled = listener->pending_count;
        fds[count++] = (struct pollfd){.fd = listener->wake, .events = POLLIN};
        for (size_t i = 0; i < polled; i++)
            fds[count++] = (struct pollfd){.fd = listener->pending[i].fd, .events = POLLIN};
        for (size_t i = 0; i < listener->socket_count && now_ns >= listener->retry_ns; i++)
            fds[count++] = (struct pollfd){.fd = listener->sockets[i], .events = POLLIN};
        if (poll(fds, count, timeout_ms) < 0 && errno != EINTR && errno != ENOMEM)
            ASSERT(!"poll");
        if (fds[0].revents)
            return NULL;
        for (size_t i = polled; i-- > 0;)
            if (fds[1 + i].revents)
                pending_try(listener, i);
        now_ns = clock_now_ns();
        for (size_t i = 1 + polled; i < count; i++)
            if (fds[i].revents)
                accept_round(listener, fds[i].fd, now_ns);
    }
}

void rpc_listener_start(struct rpc_listener *listener)
{
    if (listener->socket_count == 0)
        return;
    spare_take(listener);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int errnum = pthread_create(&listener->thread, NULL, accept_main, listener);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    ASSERT(errnum == 0); /* gRPC has started a dozen */
    pthread_setname_np(listener->thread, "rpc-accept");
    listener->is_running = true;
}

void rpc_listener_stop(struct rpc_listener *listener)
{
    if (listener->is_running) {
        uint64_t one = 1;
        ssize_t written = write(listener->wake, &one, sizeof(one));
        ASSERT(written == sizeof(one));
        pthread_join(listener->thread, NULL);
        listener->is_running = false;
    }
    while (listener->pending_count > 0)
        pending_drop(listener, 0);
    while (listener->socket_count > 0)
        close(listener->sockets[--listener->socket_count]);
    if (listener->spare >= 0)
        close(listener->spare);
    if (listener->wake >= 0)
        close(listener->wake);
    listener->wake = listener->spare = -1;
}
