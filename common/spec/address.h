/* SPDX-License-Identifier: Apache-2.0 */
/* address: "host:port" as people write it. host is a DNS name, an IPv4 address or, in brackets, an
 * IPv6 address with an optional zone; port is 1 to 65535 without leading zeros.
 *
 * Owns    nothing. Thread: any. Errors: ERR_INVALID.
 */
#ifndef COMMON_SPEC_ADDRESS_H
#define COMMON_SPEC_ADDRESS_H

#include "common/base/base.h"
#include "common/base/err.h"

/* Splits "host:port" or "[v6]:port" (the host without brackets); ERR_INVALID says what is wrong
 * with it. */
MUST_CHECK enum err_code address_split(const char *address, char *ret_host, size_t host_size,
                                       uint16_t *ret_port, struct err *err);
/* The host of a listening address with the port that was bound; free() it. */
char *address_bound(const char *listen, uint16_t port);
/* What was wanted of an address, in constant words; NULL: it is one. */
const char *address_fault(const char *address);
/* ERR_INVALID with "place: "address": fault"; an address of any bytes is shown safely. */
enum err_code address_fail(const char *place, const char *address, const char *fault,
                           struct err *err);

#endif
