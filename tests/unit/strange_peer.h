/* SPDX-License-Identifier: Apache-2.0 */
/* strange_peer: a TCP port on loopback that behaves in one of the ways in which an address can be
 * wrong; for the tests of what is said about it. */
#ifndef TESTS_UNIT_STRANGE_PEER_H
#define TESTS_UNIT_STRANGE_PEER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/base.h"
#include "tests/harness.h"

struct strange_peer {
    int fd;
    char address[64];
    const char *says; /* to every connection; NULL: nothing, and closes it; "": nothing */
    atomic_bool is_ending;
    pthread_t thread;
    bool has_thread;
    int held[64];
    size_t held_count;
};

/* A port that listens and accepts nothing: what connects hears nothing. backlog 0: the second
 * connection gets no answer at all. */
UNUSED static void strange_listen(struct strange_peer *peer, int backlog)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    *peer = (struct strange_peer){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    CHECK(peer->fd >= 0 && bind(peer->fd, (struct sockaddr *)&at, sizeof(at)) == 0);
    CHECK(listen(peer->fd, backlog) == 0);
    CHECK(getsockname(peer->fd, (struct sockaddr *)&at, &size) == 0);
    snprintf(peer->address, sizeof(peer->address), "127.0.0.1:%u", ntohs(at.sin_port));
}

static void *strange_main(void *arg)
{
    struct strange_peer *peer = arg;
    while (!atomic_load(&peer->is_ending)) {
        struct pollfd poll_fd = {.fd = peer->fd, .events = POLLIN};
        if (poll(&poll_fd, 1, 10) <= 0)
            continue;
        int fd = accept4(peer->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        if (peer->says && send(fd, peer->says, strlen(peer->says), MSG_NOSIGNAL) >= 0 &&
            peer->held_count < ARRAY_SIZE(peer->held))
            peer->held[peer->held_count++] = fd;
        else
            close(fd);
    }
    return NULL;
}

UNUSED static void strange_start(struct strange_peer *peer, const char *says)
{
    strange_listen(peer, 64);
    peer->says = says;
    CHECK(pthread_create(&peer->thread, NULL, strange_main, peer) == 0);
    peer->has_thread = true;
}

UNUSED static void strange_stop(struct strange_peer *peer)
{
    atomic_store(&peer->is_ending, true);
    if (peer->has_thread)
        pthread_join(peer->thread, NULL);
    for (size_t i = 0; i < peer->held_count; i++)
        close(peer->held[i]);
    close(peer->fd);
}

#endif
