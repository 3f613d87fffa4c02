/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_probe: why an address does not answer, found out beside gRPC, which keeps its reasons to
 * itself.
 *
 * A probe looks the name up, connects, opens as a client of HTTP/2 does and reads what comes. It
 * never sends a request, so whoever is there has nothing to do for it.
 *
 * Thread  any. A probe blocks, at most for its timeout; it looks at is_over about every 20 ms.
 * Errors  none: whatever goes wrong is the answer.
 */
#ifndef COMMON_RPC_RPC_PROBE_H
#define COMMON_RPC_RPC_PROBE_H

#include "common/base/base.h"

enum rpc_probe_kind { /* of several addresses of one name, the last in this list is told */
                      RPC_PROBE_CUT,      /* is_over said so: nothing is known */
                      RPC_PROBE_NO_FILES, /* no descriptor here: errnum */
                      RPC_PROBE_NO_NAME,  /* the host name is not known: errnum is getaddrinfo's */
                      RPC_PROBE_NO_LOOKUP, /* the name service does not answer: errnum is getaddrinfo's, 0: in time */
                      RPC_PROBE_FAILED,   /* something else of the operating system: errnum */
                      RPC_PROBE_NO_ROUTE, /* errnum */
                      RPC_PROBE_SILENT,   /* no answer to the connect */
                      RPC_PROBE_REFUSED,  /* nobody listens */
                      RPC_PROBE_CLOSED,   /* connected, and closed without a word */
                      RPC_PROBE_MUTE,     /* connected, and not a word */
                      RPC_PROBE_OTHER,    /* speaks something else: words */
                      RPC_PROBE_HTTP2,    /* speaks HTTP/2, as every gRPC server does */
};

struct rpc_probe {
    enum rpc_probe_kind kind;
    int errnum;
    uint32_t took_ms;
    char words[48]; /* what it said first, printable */
};

/* address "host:port" (one that rpc_channel_new takes). is_over may be NULL. */
void rpc_probe_address(const char *address, uint32_t timeout_ms, bool (*is_over)(void *arg),
                       void *arg, struct rpc_probe *ret_probe);
/* "connection refused: nobody listens there"; no capital, no full stop. Returns ret_text. */
const char *rpc_probe_say(const struct rpc_probe *probe, char *ret_text, size_t size);

/* Probes one address in the background and logs what it finds. */
struct rpc_prober;
struct rpc_prober *rpc_prober_new(const char *address);
void rpc_prober_free(struct rpc_prober *prober); /* ends a probe that runs */
/* Starts a probe unless one runs or ended a short while ago; its end is one line (warn):
 * event=EVENT WHO at ADDRESS took_ms=... why="...". event is static storage. */
void rpc_prober_log(struct rpc_prober *prober, const char *event, const char *who);

#endif
