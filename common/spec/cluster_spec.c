/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_spec: two readers (TF_CONFIG, host-list flags) that fill one draft, and one set of checks
 * over it.
 *
 * Words of TensorFlow's that are taken: "master" for chief (TF 1), "sparseCluster" for cluster
 * (Kubeflow's dynamic workers), maps from index to address, an index as a string, "environment"
 * (read and ignored), rpc_layer "grpc". Differences from TensorFlow, on purpose: everything is
 * checked when it is read, an evaluator never counts among those to wait for, and a chief has to be
 * named, because it is where every daemon dials.
 */
#include "common/spec/cluster_spec.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/limits.h"
#include "common/formats/json.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum err_code try_code_ = (call);                                                          \
        if (try_code_ != ERR_OK)                                                                   \
            return try_code_;                                                                      \
    } while (0)

enum { PLACE_SIZE = 160 }; /* "TF_CONFIG: cluster.worker[4095]" fits with a long file name */

/* A spec being filled, with what is needed to say where each task was written. */
struct draft {
    struct cluster_spec *spec;
    const char *origin;                  /* NULL for flags */
    const char *places[TASK_ROLE_COUNT]; /* "cluster.worker", "--ps_hosts"; NULL: role not there */
    char place_text[TASK_ROLE_COUNT][64];
    bool is_map[TASK_ROLE_COUNT];
};

static const uint32_t role_limits[TASK_ROLE_COUNT] = {[TASK_CHIEF] = 1,
                                                      [TASK_PS] = LIMIT_SERVERS,
                                                      [TASK_WORKER] = LIMIT_WORKERS,
                                                      [TASK_EVALUATOR] = 1};

const char *task_role_name(enum task_role role)
{
    switch (role) {
    case TASK_CHIEF:
        return "chief";
    case TASK_PS:
        return "ps";
    case TASK_WORKER:
        return "worker";
    case TASK_EVALUATOR:
        return "evaluator";
    case TASK_ROLE_COUNT:
        break;
    }
    return "unknown";
}

static const struct json_word role_words[] = {
    {"chief", TASK_CHIEF},
    {"ps", TASK_PS},
    {"worker", TASK_WORKER},
    {"evaluator", TASK_EVALUATOR},
};

/* ---- the draft ------------------------------------------------------------------------------- */

static void place_of(const struct draft *draft, enum task_role role, uint32_t index,
                     char *ret_place)
{
    snprintf(ret_place, PLACE_SIZE, draft->is_map[role] ? "%s%s%s[\"%u\"]" : "%s%s%s[%u]",
             draft->origin ? draft->origin : "", draft->origin ? ": " : "", draft->places[role],
             index);
}

/* items is large enough. */
static enum err_code add_task(struct draft *draft, enum task_role role, uint32_t index,
                              const char *address, struct err *err)
{
    const char *fault = address_fault(address);
    if (fault) {
        char place[PLACE_SIZE];
        place_of(draft, role, index, place);
        return address_fail(place, address, fault, err);
    }
    struct cluster_task *task = &draft->spec->roles[role].items[draft->spec->roles[role].count];
    task->address = strdup(address);
    if (!task->address)
        return err_set(err, ERR_NO_MEMORY, "out of memory for a cluster description");
    task->index = index;
    draft->spec->roles[role].count++;
    return ERR_OK;
}

static enum err_code reserve(struct draft *draft, enum task_role role, size_t count,
                             struct err *err)
{
    draft->spec->roles[role].items = calloc(count, sizeof(struct cluster_task));
    return draft->spec->roles[role].items
               ? ERR_OK
               : err_set(err, ERR_NO_MEMORY, "out of memory for %zu tasks", count);
}

static int compare_index(const void *a, const void *b)
{
    const struct cluster_task *x = a;
    const struct cluster_task *y = b;
    return (x->index > y->index) - (x->index < y->index);
}

struct placed {
    const struct cluster_task *task;
    enum task_role role;
    uint32_t order; /* of all tasks: chief, ps, worker, evaluator, each by index */
};

static int compare_placed(const void *a, const void *b)
{
    const struct placed *x = a;
    const struct placed *y = b;
    int by_address = strcasecmp(x->task->address, y->task->address);
    return by_address ? by_address : (x->order > y->order) - (x->order < y->order);
}

/* Host names do not tell upper from lower case; ports are written one way only. */
static enum err_code check_distinct(const struct draft *draft, struct err *err)
{
    size_t count = 0;
    for (int role = 0; role < TASK_ROLE_COUNT; role++)
        count += draft->spec->roles[role].count;
    AUTO_MEM struct placed *all = calloc(count + 1, sizeof(*all));
    if (!all)
        return err_set(err, ERR_NO_MEMORY, "out of memory for %zu tasks", count);
    size_t n = 0;
    for (int role = 0; role < TASK_ROLE_COUNT; role++)
        for (size_t i = 0; i < draft->spec->roles[role].count; i++, n++)
            all[n] = (struct placed){&draft->spec->roles[role].items[i], (enum task_role)role,
                                     (uint32_t)n};
    qsort(all, count, sizeof(*all), compare_placed);
    size_t found = 0; /* the first in order whose address was there before; 0: none */
    for (size_t i = 1; i < count; i++)
        if (strcasecmp(all[i].task->address, all[i - 1].task->address) == 0 &&
            (found == 0 || all[i].order < all[found].order))
            found = i;
    if (found == 0)
        return ERR_OK;
    char place[PLACE_SIZE];
    char before[PLACE_SIZE];
    struct draft bare = *draft;
    bare.origin = NULL; /* once is enough */
    place_of(draft, all[found].role, all[found].task->index, place);
    place_of(&bare, all[found - 1].role, all[found - 1].task->index, before);
    char fault[PLACE_SIZE + 80];
    snprintf(fault, sizeof(fault), "the address of %s too; want one address a task", before);
    return address_fail(place, all[found].task->address, fault, err);
}

/* The task that this process is has to be in the cluster. index_place and role_place begin the
 * error. */
static enum err_code check_task(const struct draft *draft, const char *role_place,
                                const char *index_place, struct err *err)
{
    const struct cluster_spec *spec = draft->spec;
    enum task_role role = spec->task_role;
    const char *name = task_role_name(role);
    size_t count = spec->roles[role].count;
    if (cluster_spec_find(spec, role, spec->task_index))
        return ERR_OK;
    if (role == TASK_EVALUATOR && count == 0 && spec->task_index == 0)
        return ERR_OK; /* as in TensorFlow: an evaluator need not be listed */
    if (count == 0)
        return err_set(err, ERR_INVALID, "%s: \"%s\": want a role that the cluster has", role_place,
                       name);
    if (!draft->is_map[role])
        return err_set(err, ERR_INVALID, "%s: %" PRIu32 ": want less than %zu, the tasks of %s",
                       index_place, spec->task_index, count, draft->places[role]);
    char list[120] = "";
    for (size_t i = 0; i < count && i < 8; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, "%s%" PRIu32, i ? ", " : "",
                 spec->roles[role].items[i].index);
    }
    return err_set(err, ERR_INVALID, "%s: %" PRIu32 ": want an index of %s, which has %s%s",
                   index_place, spec->task_index, draft->places[role], list,
                   count > 8 ? ", ..." : "");
}

/* ---- TF_CONFIG ------------------------------------------------------------------------------- */

/* A number as an index is written: no sign, no blanks, no leading zeros. */
static bool index_from_text(const char *text, uint32_t limit, uint32_t *ret_index)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 9 || text[digits] != '\0' || (text[0] == '0' && digits > 1))
        return false;
    unsigned long value = strtoul(text, NULL, 10);
    if (value >= limit)
        return false;
    *ret_index = (uint32_t)value;
    return true;
}

static enum err_code read_address(struct draft *draft, enum task_role role, uint32_t index,
                                  const struct json_at *at, struct err *err)
{
    if (!json_at_is_string(at))
        return json_at_fail(at, err, "\"host:port\"");
    return add_task(draft, role, index, json_at_chars(at), err);
}

static enum err_code read_role(struct draft *draft, enum task_role role, const struct json_at *at,
                               struct err *err)
{
    uint32_t limit = role_limits[role];
    const char *name = task_role_name(role);
    size_t count = json_at_count(at);
    draft->is_map[role] = json_at_is_object(at);
    if (!json_at_is_array(at) && !json_at_is_object(at))
        return json_at_fail(at, err, "a list of addresses or a map from index to address");
    if (count == 0)
        return role == TASK_CHIEF
                   ? json_at_fail(at, err, "the coordinator's address")
                   : json_at_fail(at, err, "at least one address, or no %s at all", name);
    if (count > limit && limit == 1)
        return json_at_refuse(at, err, "%zu addresses; want one %s", count, name);
    if (count > limit)
        return json_at_refuse(at, err, "%zu addresses; want at most %" PRIu32, count, limit);
    json_at_path(at, draft->place_text[role], sizeof(draft->place_text[role]));
    draft->places[role] = draft->place_text[role];
    TRY(reserve(draft, role, count, err));

    if (json_at_is_array(at)) {
        for (size_t i = 0; i < count; i++) {
            struct json_at element = json_at_element(at, i);
            TRY(read_address(draft, role, (uint32_t)i, &element, err));
        }
        return ERR_OK;
    }
    void *cursor = NULL;
    struct json_at member;
    while (json_at_next(at, &cursor, &member)) {
        uint32_t index;
        bool is_index = index_from_text(member.key, limit, &index);
        if (!is_index && limit == 1)
            return json_at_refuse(&member, err, "want index 0, there is one %s", name);
        if (!is_index)
            return json_at_fail(&member, err, "an index from 0 to %" PRIu32 " before the address",
                                limit - 1);
        TRY(read_address(draft, role, index, &member, err));
    }
    qsort(draft->spec->roles[role].items, count, sizeof(struct cluster_task), compare_index);
    return ERR_OK;
}

static enum err_code read_cluster(struct draft *draft, const struct json_at *at, struct err *err)
{
    static const struct json_key keys[] = {
        {"chief", JSON_ANY_VARIANT},     {"ps", JSON_ANY_VARIANT},     {"worker", JSON_ANY_VARIANT},
        {"evaluator", JSON_ANY_VARIANT}, {"master", JSON_ANY_VARIANT},
    };
    if (!json_at_is_object(at))
        return json_at_fail(at, err, "an object, {\"chief\": [\"host:port\"], \"ps\": [...], ...}");
    TRY(json_at_keys(at, keys, ARRAY_SIZE(keys), JSON_ANY_VARIANT, NULL, err));
    struct json_at chief = json_at_member(at, "chief");
    struct json_at master = json_at_member(at, "master");
    if (chief.value && master.value)
        return json_at_refuse(&master, err,
                              "an old word for chief, which is there too; want one of them");
    for (int role = 0; role < TASK_ROLE_COUNT; role++) {
        struct json_at member = json_at_member(at, task_role_name((enum task_role)role));
        if (role == TASK_CHIEF && master.value)
            member = master;
        if (member.value)
            TRY(read_role(draft, (enum task_role)role, &member, err));
    }
    if (!draft->places[TASK_CHIEF])
        return json_at_fail(&chief, err, "the coordinator's address, as in [\"host:port\"]");
    return check_distinct(draft, err);
}

static enum err_code read_task(struct draft *draft, const struct json_at *at, struct err *err)
{
    static const struct json_key keys[] = {{"type", JSON_ANY_VARIANT}, {"index", JSON_ANY_VARIANT}};
    TRY(json_at_keys(at, keys, ARRAY_SIZE(keys), JSON_ANY_VARIANT, NULL, err));
    struct json_at type = json_at_member(at, "type");
    struct json_at index = json_at_member(at, "index");
    const char *chars = json_at_chars(&type);
    int role = TASK_CHIEF;
    if (!chars || strcmp(chars, "master") != 0)
        TRY(json_at_word(&type, role_words, ARRAY_SIZE(role_words), &role, err));

    chars = json_at_chars(&index);
    uint32_t limit = role_limits[role];
    bool is_text_index = chars && index_from_text(chars, limit, &draft->spec->task_index);
    if (!is_text_index) /* a number, or refused as none */
        TRY(json_at_u32(&index, 0, limit - 1, &draft->spec->task_index, err));
    draft->spec->task_role = (enum task_role)role;
    draft->spec->has_task = true;

    char role_place[PLACE_SIZE];
    char index_place[PLACE_SIZE];
    snprintf(role_place, sizeof(role_place), "%s: task.type", draft->origin);
    snprintf(index_place, sizeof(index_place), "%s: task.index", draft->origin);
    return check_task(draft, role_place, index_place, err);
}

static enum err_code read_tf_config(struct draft *draft, const struct json_at *root,
                                    struct err *err)
{
    static const struct json_key keys[] = {
        {"cluster", JSON_ANY_VARIANT},   {"sparseCluster", JSON_ANY_VARIANT},
        {"task", JSON_ANY_VARIANT},      {"environment", JSON_ANY_VARIANT},
        {"rpc_layer", JSON_ANY_VARIANT},
    };
    TRY(json_at_keys(root, keys, ARRAY_SIZE(keys), JSON_ANY_VARIANT, NULL, err));
    struct json_at environment = json_at_member(root, "environment");
    if (environment.value && !json_at_is_string(&environment))
        return json_at_fail(&environment, err, "a string");
    struct json_at rpc_layer = json_at_member(root, "rpc_layer");
    const char *layer = json_at_chars(&rpc_layer);
    if (rpc_layer.value && (!layer || strcmp(layer, "grpc") != 0))
        return json_at_fail(&rpc_layer, err, "\"grpc\"");
    struct json_at cluster = json_at_member(root, "cluster");
    struct json_at sparse = json_at_member(root, "sparseCluster");
    if (cluster.value && sparse.value)
        return json_at_refuse(&sparse, err,
                              "another word for cluster, which is there too; want one of them");
    TRY(read_cluster(draft, sparse.value ? &sparse : &cluster, err));
    struct json_at task = json_at_member(root, "task");
    return task.value ? read_task(draft, &task, err) : ERR_OK;
}

enum err_code cluster_spec_parse(const char *origin, const char *json, size_t bytes,
                                 struct cluster_spec **ret_spec, struct err *err)
{
    AUTO(json_doc) doc = NULL;
    TRY(json_doc_parse(origin, json, bytes, LIMIT_TF_CONFIG_BYTES, &doc, err));
    AUTO(cluster_spec) spec = calloc(1, sizeof(*spec));
    if (!spec)
        return err_set(err, ERR_NO_MEMORY, "out of memory for a cluster description");
    struct draft draft = {.spec = spec, .origin = origin};
    struct json_at root = json_doc_root(doc);
    TRY(read_tf_config(&draft, &root, err));
    *ret_spec = TAKE(spec);
    return ERR_OK;
}

/* ---- host-list flags ------------------------------------------------------------------------- */

static enum err_code read_hosts(struct draft *draft, enum task_role role, const char *flag,
                                const char *hosts, struct err *err)
{
    if (!hosts || hosts[0] == '\0') /* TF-CNN's default is the empty string */
        return ERR_OK;
    size_t count = 1;
    for (const char *c = hosts; *c; c++)
        count += *c == ',';
    if (count > role_limits[role])
        return err_set(err, ERR_INVALID, "%s: %zu addresses; want at most %" PRIu32, flag, count,
                       role_limits[role]);
    draft->places[role] = flag;
    TRY(reserve(draft, role, count, err));
    AUTO_MEM char *copy = strdup(hosts);
    if (!copy)
        return err_set(err, ERR_NO_MEMORY, "out of memory for %zu tasks", count);
    char *rest = copy;
    for (uint32_t i = 0; i < count; i++)
        TRY(add_task(draft, role, i, strsep(&rest, ","), err));
    return ERR_OK;
}

static enum err_code read_job_flags(struct draft *draft, const char *job_name,
                                    const char *task_index, struct err *err)
{
    struct cluster_spec *spec = draft->spec;
    if (!job_name || job_name[0] == '\0') {
        if (task_index)
            return err_set(err, ERR_INVALID, "--task_index: \"%.64s\": want --job_name with it",
                           task_index);
        return ERR_OK;
    }
    spec->has_task = true;
    spec->task_role = TASK_CHIEF;
    if (strcmp(job_name, "controller") != 0) {
        size_t w = 0;
        while (w < ARRAY_SIZE(role_words) && strcmp(role_words[w].word, job_name) != 0)
            w++;
        if (w == ARRAY_SIZE(role_words))
            return err_set(err, ERR_INVALID,
                           "--job_name: \"%.64s\": want ps, worker, controller, chief or evaluator",
                           job_name);
        spec->task_role = (enum task_role)role_words[w].value;
    }
    uint32_t limit = role_limits[spec->task_role];
    bool is_index = !task_index || index_from_text(task_index, limit, &spec->task_index);
    if (!is_index && limit == 1)
        return err_set(err, ERR_INVALID, "--task_index: \"%.64s\": want 0, there is one %s",
                       task_index, task_role_name(spec->task_role));
    if (!is_index)
        return err_set(err, ERR_INVALID,
                       "--task_index: \"%.64s\": want a whole number from 0 to %" PRIu32,
                       task_index, limit - 1);
    return check_task(draft, "--job_name", "--task_index", err);
}

enum err_code cluster_spec_from_flags(const char *job_name, const char *task_index,
                                      const char *ps_hosts, const char *worker_hosts,
                                      const char *controller_host, struct cluster_spec **ret_spec,
                                      struct err *err)
{
    AUTO(cluster_spec) spec = calloc(1, sizeof(*spec));
    if (!spec)
        return err_set(err, ERR_NO_MEMORY, "out of memory for a cluster description");
    struct draft draft = {.spec = spec};
    if (!controller_host || controller_host[0] == '\0')
        return err_set(err, ERR_INVALID,
                       "--controller_host: missing: want the coordinator's address, host:port");
    TRY(read_hosts(&draft, TASK_CHIEF, "--controller_host", controller_host, err));
    TRY(read_hosts(&draft, TASK_PS, "--ps_hosts", ps_hosts, err));
    TRY(read_hosts(&draft, TASK_WORKER, "--worker_hosts", worker_hosts, err));
    TRY(check_distinct(&draft, err));
    TRY(read_job_flags(&draft, job_name, task_index, err));
    *ret_spec = TAKE(spec);
    return ERR_OK;
}

/* ---- loading, finding, freeing --------------------------------------------------------------- */

/* The whole of a regular file; a pipe could keep us waiting. */
static enum err_code read_file(const char *file, char **ret_text, size_t *ret_bytes,
                               struct err *err)
{
    AUTO_FD int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        char why[128];
        return err_set(err, ERR_INVALID, "%s: cannot open: %s", file,
                       strerror_r(errno, why, sizeof(why)));
    }
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, "%s: want a regular file", file);
    if (st.st_size > LIMIT_TF_CONFIG_BYTES)
        return err_set(err, ERR_INVALID, "%s: %lld bytes: want at most %u", file,
                       (long long)st.st_size, LIMIT_TF_CONFIG_BYTES);
    AUTO_MEM char *text = malloc((size_t)st.st_size + 1);
    if (!text)
        return err_set(err, ERR_NO_MEMORY, "out of memory for %s", file);
    size_t bytes = 0;
    while (bytes < (size_t)st.st_size) {
        ssize_t n = read(fd, text + bytes, (size_t)st.st_size - bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            char why[128];
            return err_set(err, ERR_INVALID, "%s: cannot read: %s", file,
                           strerror_r(errno, why, sizeof(why)));
        }
        if (n == 0)
            break;
        bytes += (size_t)n;
    }
    *ret_text = TAKE(text);
    *ret_bytes = bytes;
    return ERR_OK;
}

enum err_code cluster_spec_load(const char *file, struct cluster_spec **ret_spec, struct err *err)
{
    if (!file) {
        const char *text = getenv("TF_CONFIG");
        if (!text)
            return err_set(
                err, ERR_NOT_FOUND,
                "no cluster description: want --tf-config FILE or the variable TF_CONFIG");
        return cluster_spec_parse("TF_CONFIG", text, strlen(text), ret_spec, err);
    }
    AUTO_MEM char *text = NULL;
    size_t bytes = 0;
    TRY(read_file(file, &text, &bytes, err));
    return cluster_spec_parse(file, text, bytes, ret_spec, err);
}

const struct cluster_task *cluster_spec_find(const struct cluster_spec *spec, enum task_role role,
                                             uint32_t index)
{
    ASSERT(role < TASK_ROLE_COUNT);
    const struct cluster_task key = {.index = index};
    if (spec->roles[role].count == 0)
        return NULL;
    return bsearch(&key, spec->roles[role].items, spec->roles[role].count, sizeof(key),
                   compare_index);
}

void cluster_spec_free(struct cluster_spec *spec)
{
    if (!spec)
        return;
    for (int role = 0; role < TASK_ROLE_COUNT; role++) {
        for (size_t i = 0; i < spec->roles[role].count; i++)
            free(spec->roles[role].items[i].address);
        free(spec->roles[role].items);
    }
    free(spec);
}
