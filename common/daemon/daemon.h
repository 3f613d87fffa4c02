/* SPDX-License-Identifier: Apache-2.0 */
/* daemon: what the mains of coordinatord, psd and workerd have in common: their shared flags, who
 * the process is in its cluster, and the file that tells its port.
 *
 * Who it is comes from, in this order: --name, --address, --coordinator; --job_name and
 * --task_index; the "task" of the cluster description (host-list flags, --tf-config, TF_CONFIG). Only the coordinator always
 * needs a description: it says how many servers to wait for.
 *
 * A numeric address is listened on as it is. A host name may be the one of a proxy in front of us
 * (a service of Kubernetes), so it is told to others, and the process listens on all interfaces.
 *
 * Owns    struct daemon_identity owns its cluster description and strings.
 * Thread: main, before others.
 * Errors  ERR_INVALID names the flag or JSON path, the value and what was wanted: exit status 2.
 */
#ifndef COMMON_DAEMON_DAEMON_H
#define COMMON_DAEMON_DAEMON_H

#include "common/base/limits.h"
#include "common/daemon/flags.h"
#include "common/spec/cluster_spec.h"

struct daemon_flags {
    const char *tf_config;
    const char *job_name;
    const char *task_index;
    const char *ps_hosts;
    const char *worker_hosts;
    const char *controller_host;
    const char *address;
    const char *port_file;
    const char *log_level;
};

/* Rows of a flag table; f is a static struct daemon_flags. */
#define DAEMON_FLAG_ROWS(f)                                                                        \
    {"tf-config",                                                                                  \
     FLAG_STRING,                                                                                  \
     &(f).tf_config,                                                                               \
     0,                                                                                            \
     0,                                                                                            \
     "FILE",                                                                                       \
     "cluster description (default: the variable TF_CONFIG)"},                                     \
        {"job_name", FLAG_STRING, &(f).job_name, 0, 0, "ROLE", "task type of this process"},       \
        {"task_index", FLAG_STRING, &(f).task_index, 0, 0, "N", "index of this task"},             \
        {"ps_hosts",                                                                               \
         FLAG_STRING,                                                                              \
         &(f).ps_hosts,                                                                            \
         0,                                                                                        \
         0,                                                                                        \
         "LIST",                                                                                   \
         "host:port,... instead of a description"},                                                \
        {"worker_hosts", FLAG_STRING, &(f).worker_hosts, 0, 0, "LIST", "host:port,..."},           \
        {"controller_host",                                                                        \
         FLAG_STRING,                                                                              \
         &(f).controller_host,                                                                     \
         0,                                                                                        \
         0,                                                                                        \
         "HOST",                                                                                   \
         "host:port of the coordinator"},                                                          \
        {"address",                                                                                \
         FLAG_STRING,                                                                              \
         &(f).address,                                                                             \
         0,                                                                                        \
         0,                                                                                        \
         "HOST:PORT",                                                                              \
         "where to listen (default: this task's address); port 0 picks one"},                      \
        {"port-file", FLAG_STRING, &(f).port_file, 0, 0, "FILE", "gets the bound host:port"},      \
    {                                                                                              \
        "log-level", FLAG_STRING, &(f).log_level, 0, 0, "LEVEL",                                   \
            "error, warn, info or debug (info)"                                                    \
    }

struct daemon_identity {
    struct cluster_spec *cluster; /* NULL: the flags said all */
    char *name;                   /* "ps:0", "worker:1", "chief:0", or --name */
    char *listen;                 /* host:port to bind, the port may be 0 */
    char *advertise;   /* host:port to tell others; NULL: listen's host with the bound port */
    char *coordinator; /* host:port to dial */
};

/* The first thing in main: process set-up, flags, log level. 0, or the exit status after the error
 * was said. */
int daemon_begin(const char *program, const struct flag *table, size_t flag_count, int argc,
                 char **argv, const struct daemon_flags *flags);
/* name and coordinator: flags that only some daemons have; NULL otherwise. */
MUST_CHECK enum err_code daemon_identify(enum task_role role, const struct daemon_flags *flags,
                                         const char *name, const char *coordinator,
                                         struct daemon_identity *ret_identity, struct err *err);
void daemon_identity_done(struct daemon_identity *identity);
int daemon_usage_error(const struct err *err); /* says it; 2 */
MUST_CHECK enum err_code daemon_write_port_file(const char *path /* NULL: none */,
                                                const char *address, struct err *err);

#endif
