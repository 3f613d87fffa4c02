/* SPDX-License-Identifier: Apache-2.0 */
/* tf_config: one reader for each object, into a draft.
 *
 * Words of TensorFlow's that are taken: "master" for chief (TF 1), "sparseCluster" for cluster
 * (Kubeflow's dynamic workers), maps from index to address, an index as a string, "environment"
 * (read and ignored), rpc_layer "grpc", an evaluator that knows no cluster. Differences from
 * TensorFlow, on purpose: everything is checked when it is read, an evaluator never counts among
 * those to wait for, and a chief has to be named, because it is where every daemon dials.
 */
#include "common/spec/tf_config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/limits.h"
#include "common/base/nearest.h"
#include "common/formats/json.h"
#include "common/spec/cluster_draft_int.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum err_code try_code_ = (call);                                                          \
        if (try_code_ != ERR_OK)                                                                   \
            return try_code_;                                                                      \
    } while (0)

static enum err_code read_address(struct cluster_draft *draft, enum task_role role, uint32_t index,
                                  const struct json_at *at, struct err *err)
{
    if (!json_at_is_string(at))
        return json_at_fail(at, err, "\"host:port\"");
    return cluster_draft_add(draft, role, index, json_at_chars(at), err);
}

static enum err_code read_role(struct cluster_draft *draft, enum task_role role,
                               const struct json_at *at, struct err *err)
{
    uint32_t limit = cluster_draft_role_limits[role];
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
    TRY(cluster_draft_reserve(draft, role, count, err));

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
        bool is_index = cluster_draft_index(member.key, limit, &index);
        if (!is_index && limit == 1)
            return json_at_refuse(&member, err, "want index 0, there is one %s", name);
        if (!is_index)
            return json_at_fail(&member, err, "an index from 0 to %" PRIu32 " before the address",
                                limit - 1);
        TRY(read_address(draft, role, index, &member, err));
    }
    cluster_draft_sort(draft, role);
    return ERR_OK;
}

static enum err_code read_cluster(struct cluster_draft *draft, const struct json_at *at,
                                  struct err *err)
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
    return cluster_draft_check_distinct(draft, err);
}

/* ---- names of clouds -------------------------------------------------------------------------
 */
/* "clsuter", "Task", "env"; not "task_id", which is longer than a typing mistake. */
static bool is_meant(const struct nearest *nearest)
{
    size_t length = strlen(nearest->word);
    size_t best_length = nearest->best ? strlen(nearest->best) : 0;
    return nearest->best &&
           (nearest->distance <= MAX(MAX(length, best_length) / 3, 1) || length < best_length);
}

/* Lists the members that are not among names. */
static enum err_code note_ignored(struct cluster_draft *draft, const struct json_at *at,
                                  const char *const *names, size_t name_count, struct err *err)
{
    struct cluster_spec *spec = draft->spec;
    void *cursor = NULL;
    struct json_at member;
    if (!json_at_is_object(at))
        return json_at_fail(at, err, "an object");
    while (json_at_next(at, &cursor, &member)) {
        struct nearest nearest;
        nearest_init(&nearest, member.key);
        size_t n = 0;
        for (; n < name_count && strcmp(names[n], member.key) != 0; n++)
            nearest_offer(&nearest, names[n]);
        if (n < name_count)
            continue;
        if (is_meant(&nearest))
            return json_at_refuse(&member, err, "unknown name; did you mean \"%s\"?", nearest.best);
        if (spec->ignored_count == LIMIT_IGNORED_NAMES)
            return json_at_refuse(&member, err, "unknown name, after %d others; want at most %d",
                                  LIMIT_IGNORED_NAMES, LIMIT_IGNORED_NAMES);
        char path[CLUSTER_PLACE_SIZE];
        json_at_path(&member, path, sizeof(path));
        char *copy = strdup(path);
        if (!copy)
            return err_set(err, ERR_NO_MEMORY, "out of memory for a cluster description");
        spec->ignored[spec->ignored_count++] = copy;
    }
    return ERR_OK;
}

/* ---- the objects -----------------------------------------------------------------------------
 */
static enum err_code read_task(struct cluster_draft *draft, const struct json_at *at,
                               struct err *err)
{
    static const char *const names[] = {"type", "index"};
    TRY(note_ignored(draft, at, names, ARRAY_SIZE(names), err));
    struct json_at type = json_at_member(at, "type");
    struct json_at index = json_at_member(at, "index");
    const char *chars = json_at_chars(&type);
    int role = TASK_CHIEF;
    if (!chars || strcmp(chars, "master") != 0)
        TRY(json_at_word(&type, cluster_draft_role_words, TASK_ROLE_COUNT, &role, err));

    chars = json_at_chars(&index);
    uint32_t limit = cluster_draft_role_limits[role];
    bool is_text_index = chars && cluster_draft_index(chars, limit, &draft->spec->task_index);
    if (!is_text_index) /* a number, or refused as none */
        TRY(json_at_u32(&index, 0, limit - 1, &draft->spec->task_index, err));
    draft->spec->task_role = (enum task_role)role;
    draft->spec->has_task = true;

    char role_place[CLUSTER_PLACE_SIZE];
    char index_place[CLUSTER_PLACE_SIZE];
    snprintf(role_place, sizeof(role_place), "%s: task.type", draft->origin);
    snprintf(index_place, sizeof(index_place), "%s: task.index", draft->origin);
    return cluster_draft_check_task(draft, role_place, index_place, err);
}

/* An evaluator reads checkpoints and needs to know nobody. */
static bool is_evaluator(const struct json_at *task)
{
    struct json_at type = {.value = NULL};
    if (json_at_is_object(task))
        type = json_at_member(task, "type");
    const char *chars = json_at_chars(&type);
    return chars && strcmp(chars, task_role_name(TASK_EVALUATOR)) == 0;
}

static enum err_code read_tf_config(struct cluster_draft *draft, const struct json_at *root,
                                    struct err *err)
{
    static const char *const names[] = {"cluster", "sparseCluster", "task", "environment",
                                        "rpc_layer"};
    TRY(note_ignored(draft, root, names, ARRAY_SIZE(names), err));
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
    struct json_at task = json_at_member(root, "task");
    if (cluster.value || sparse.value || !is_evaluator(&task))
        TRY(read_cluster(draft, sparse.value ? &sparse : &cluster, err));
    return task.value ? read_task(draft, &task, err) : ERR_OK;
}

enum err_code tf_config_parse(const char *origin, const char *json, size_t bytes,
                              struct cluster_spec **ret_spec, struct err *err)
{
    AUTO(json_doc) doc = NULL;
    TRY(json_doc_parse(origin, json, bytes, LIMIT_TF_CONFIG_BYTES, &doc, err));
    AUTO(cluster_spec) spec = calloc(1, sizeof(*spec));
    if (!spec)
        return err_set(err, ERR_NO_MEMORY, "out of memory for a cluster description");
    struct cluster_draft draft = {.spec = spec, .origin = origin};
    struct json_at root = json_doc_root(doc);
    TRY(read_tf_config(&draft, &root, err));
    *ret_spec = TAKE(spec);
    return ERR_OK;
}

/* ---- loading --------------------------------------------------------------------------------- */

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

enum err_code tf_config_load(const char *file, struct cluster_spec **ret_spec, struct err *err)
{
    if (!file) {
        const char *text = getenv("TF_CONFIG");
        if (!text)
            return err_set(
                err, ERR_NOT_FOUND,
                "no cluster description: want --tf-config FILE or the variable TF_CONFIG");
        return tf_config_parse("TF_CONFIG", text, strlen(text), ret_spec, err);
    }
    AUTO_MEM char *text = NULL;
    size_t bytes = 0;
    TRY(read_file(file, &text, &bytes, err));
    return tf_config_parse(file, text, bytes, ret_spec, err);
}
