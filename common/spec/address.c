/* SPDX-License-Identifier: Apache-2.0 */
/* address: checks letter by letter, so that the words say what is wrong, not that something is. */
#include "common/spec/address.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/formats/json_where.h"

enum { HOST_MAX = 253 }; /* the longest DNS name */

static bool is_host_char(char c)
{
    return isalnum((unsigned char)c) || c == '.' || c == '-' || c == '_';
}

/* What is wrong with a host that was written without brackets; NULL: nothing. */
static const char *fault_of_host(const char *host, size_t length)
{
    if (length == 0)
        return "want a host before the port";
    if (length > HOST_MAX)
        return "want a host of at most 253 bytes";
    bool is_numeric = true;
    for (size_t i = 0; i < length; i++) {
        if (host[i] == ',')
            return "want one address here";
        if (!is_host_char(host[i]) && host[i] != ':')
            return "want a host of A-Z a-z 0-9 . - _";
        is_numeric = is_numeric && (isdigit((unsigned char)host[i]) || host[i] == '.');
    }
    if (memchr(host, ':', length))
        return "want one port, and an IPv6 address in brackets, \"[v6]:port\"";
    if (host[0] == '.' || host[0] == '-')
        return "want a host that begins with a letter or digit";
    char text[HOST_MAX + 1];
    memcpy(text, host, length);
    text[length] = '\0';
    struct in_addr v4;
    if (is_numeric && inet_pton(AF_INET, text, &v4) != 1)
        return "want a host name or an IPv4 address of four numbers from 0 to 255";
    return NULL;
}

static const char *fault_of_v6(const char *host, size_t length)
{
    char text[INET6_ADDRSTRLEN];
    const char *zone = memchr(host, '%', length);
    size_t bare = zone ? (size_t)(zone - host) : length;
    for (size_t i = bare + 1; i < length; i++)
        if (!is_host_char(host[i]))
            bare = sizeof(text); /* a zone is an interface's name */
    if (bare >= sizeof(text) || length > HOST_MAX || (zone && bare + 1 == length))
        return "want an IPv6 address in the brackets";
    memcpy(text, host, bare);
    text[bare] = '\0';
    struct in6_addr v6;
    return inet_pton(AF_INET6, text, &v6) == 1 ? NULL : "want an IPv6 address in the brackets";
}

/* What is wrong with an address; NULL: nothing, and the parts are there. */
static const char *find_parts(const char *address, const char **ret_host, size_t *ret_host_length,
                              uint16_t *ret_port)
{
    if (address[0] == '\0')
        return "want \"host:port\"";
    for (const char *c = address; *c; c++)
        if (isspace((unsigned char)*c))
            return "want \"host:port\" without blanks";
    if (strstr(address, "://"))
        return "want \"host:port\" without a scheme";

    const char *host = address;
    size_t length;
    const char *colon;
    const char *fault;
    if (address[0] == '[') {
        const char *close = strchr(address, ']');
        if (!close)
            return "want a ']' that closes the '['";
        host = address + 1;
        length = (size_t)(close - host);
        colon = close + 1;
        if (*colon != ':')
            return "want a port, \"[v6]:port\"";
        fault = fault_of_v6(host, length);
    } else {
        colon = strrchr(address, ':');
        if (!colon)
            return "want a port, \"host:port\"";
        length = (size_t)(colon - host);
        fault = fault_of_host(host, length);
    }
    if (fault)
        return fault;

    const char *port = colon + 1;
    size_t digits = strspn(port, "0123456789");
    if (digits == 0 || port[digits] != '\0')
        return "want a number as the port";
    unsigned long number = digits <= 5 ? strtoul(port, NULL, 10) : 0;
    if (number < 1 || number > 65535 || port[0] == '0')
        return "want a port from 1 to 65535";
    *ret_host = host;
    *ret_host_length = length;
    *ret_port = (uint16_t)number;
    return NULL;
}

enum err_code address_fail(const char *place, const char *address, const char *fault,
                           struct err *err)
{
    char shown[72];
    json_where_show(address, strlen(address), shown, sizeof(shown));
    return err_set(err, ERR_INVALID, "%s: \"%s\": %s", place, shown, fault);
}

const char *address_fault(const char *address)
{
    const char *host;
    size_t length;
    uint16_t port;
    return find_parts(address, &host, &length, &port);
}

enum err_code address_split(const char *address, char *ret_host, size_t host_size,
                            uint16_t *ret_port, struct err *err)
{
    const char *host = NULL;
    size_t length = 0;
    uint16_t port = 0;
    const char *fault = find_parts(address, &host, &length, &port);
    if (fault)
        return address_fail("address", address, fault, err);
    if (length >= host_size) {
        char bound[64];
        snprintf(bound, sizeof(bound), "want a host of less than %zu bytes", host_size);
        return address_fail("address", address, bound, err);
    }
    memcpy(ret_host, host, length);
    ret_host[length] = '\0';
    *ret_port = port;
    return ERR_OK;
}

char *address_bound(const char *listen, uint16_t port)
{
    const char *colon = strrchr(listen, ':');
    ASSERT(colon);
    return base_asprintf("%.*s:%u", (int)(colon - listen), listen, port);
}
