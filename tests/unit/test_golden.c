/* SPDX-License-Identifier: Apache-2.0 */
/* Every file in tests/golden/{tf_config,job}/{valid,invalid} is parsed and compared with the
 * .expect beside it: for an invalid one the exact error, for a valid one a dump of what was
 * understood. tests/golden/README.md says how to add one. The same files, damaged in 20,000 ways,
 * must be parsed or refused with words, never more.
 *
 * Runs with the repository as its working directory.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/rand.h"
#include "common/spec/cluster_spec.h"
#include "common/spec/job_spec.h"
#include "common/spec/tf_config.h"
#include "tests/harness.h"

enum { INPUTS_MAX = 512, TEXT_MAX = 1 << 16, PATH_SIZE = 512 };

/* Writes the dump, or the error, to ret_text. */
typedef enum err_code parse_fn(const char *text, size_t bytes, char *ret_text, size_t text_size);

struct input {
    char path[PATH_SIZE];
    char *text;
    size_t bytes;
};

static char *read_whole(const char *path, size_t *ret_bytes)
{
    AUTO_FILE FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    char *text = malloc(TEXT_MAX);
    *ret_bytes = fread(text, 1, TEXT_MAX - 1, file);
    CHECK(feof(file));
    text[*ret_bytes] = '\0';
    return text;
}

static enum err_code dump_cluster(const char *text, size_t bytes, char *ret_text, size_t text_size)
{
    AUTO(cluster_spec) spec = NULL;
    struct err err;
    enum err_code code = tf_config_parse("TF_CONFIG", text, bytes, &spec, &err);
    AUTO_FILE FILE *out = fmemopen(ret_text, text_size, "w");
    if (code != ERR_OK) {
        CHECK(err.code == code);
        fprintf(out, "%s\n", err.text);
        return code;
    }
    for (int role = 0; role < TASK_ROLE_COUNT; role++)
        for (size_t i = 0; i < spec->roles[role].count; i++)
            fprintf(out, "%s %u %s\n", task_role_name((enum task_role)role),
                    spec->roles[role].items[i].index, spec->roles[role].items[i].address);
    if (spec->has_task)
        fprintf(out, "task %s %u\n", task_role_name(spec->task_role), spec->task_index);
    for (size_t i = 0; i < spec->ignored_count; i++)
        fprintf(out, "ignored %s\n", spec->ignored[i]);
    return code;
}

static void print_dataset(FILE *out, const char *name, const struct dataset_spec *data)
{
    static const char *const sources[] = {"idx", "synthetic", "none"};
    fprintf(out, "%s %s images=%s labels=%s records=%" PRIu64 " batch=%u shuffle=%" PRIu64, name,
            sources[data->source], data->images ? data->images : "-",
            data->labels ? data->labels : "-", data->records, data->batch_size,
            data->shuffle_buffer);
    fprintf(out, " shape=%ux%ux%u classes=%u\n", data->height, data->width, data->channels,
            data->num_classes);
}

static void print_job(FILE *out, const struct job_spec *job)
{
    static const char *const partitioners[] = {"none", "fixed_shards", "min_size", "max_size"};
    static const char *const policies[] = {"abort", "retry", "skip"};
    fprintf(out, "job %s seed=%" PRIu64 " epochs=%u max_steps=%" PRIu64 "\n", job->name, job->seed,
            job->epochs, job->max_steps);
    fprintf(out, "model %s classes=%u hidden=", job->model.name, job->model.num_classes);
    for (size_t i = 0; i < job->model.hidden_count; i++)
        fprintf(out, "%s%u", i ? "," : "", job->model.hidden[i]);
    fprintf(out, "\n");
    print_dataset(out, "dataset", &job->dataset);
    if (job->has_eval)
        print_dataset(out, "eval_dataset", &job->eval_dataset);
    const struct optimizer_spec *opt = &job->optimizer;
    fprintf(out, "optimizer %s momentum=%g nesterov=%d beta1=%g beta2=%g epsilon=%g rate=",
            optimizer_name(opt->kind), opt->momentum, opt->nesterov, opt->beta1, opt->beta2,
            opt->epsilon);
    if (opt->learning_rate.count == 0)
        fprintf(out, "%g", opt->learning_rate.constant);
    for (size_t i = 0; i < opt->learning_rate.count; i++)
        fprintf(out, "%g to %" PRIu64 ", then ", opt->learning_rate.values[i],
                opt->learning_rate.boundaries[i]);
    if (opt->learning_rate.count > 0)
        fprintf(out, "%g", opt->learning_rate.values[opt->learning_rate.count]);
    fprintf(out, "\nconsistency %s placement %s\n",
            job->consistency == CONSISTENCY_ASYNC ? "async" : "?",
            job->placement == PLACEMENT_BY_SIZE ? "by_size" : "round_robin");
    fprintf(out,
            "partitioner %s shards=%" PRIu64 " min=%" PRIu64 " max=%" PRIu64 " max_shards=%" PRIu64
            "\n",
            partitioners[job->partitioner.kind], job->partitioner.num_shards,
            job->partitioner.min_shard_bytes, job->partitioner.max_shard_bytes,
            job->partitioner.max_shards);
    fprintf(out, "checkpoint %s every=%" PRIu64 " keep=%u\n",
            job->checkpoint.directory ? job->checkpoint.directory : "-",
            job->checkpoint.every_steps, job->checkpoint.max_to_keep);
    fprintf(out, "steps attempts=%u on_error=%s deadline_ms=%u\n", job->steps.max_attempts,
            policies[job->steps.on_error], job->steps.deadline_ms);
}

static enum err_code dump_job(const char *text, size_t bytes, char *ret_text, size_t text_size)
{
    AUTO(job_spec) job = NULL;
    struct err err;
    enum err_code code = job_spec_parse(text, bytes, &job, &err);
    AUTO_FILE FILE *out = fmemopen(ret_text, text_size, "w");
    if (code != ERR_OK) {
        CHECK(err.code == code);
        fprintf(out, "%s\n", err.text);
        return code;
    }
    print_job(out, job);
    return code;
}

static int compare_input(const void *a, const void *b)
{
    return strcmp(((const struct input *)a)->path, ((const struct input *)b)->path);
}

/* The .json files of a folder by name. */
static size_t read_inputs(const char *folder, struct input *inputs)
{
    DIR *dir = opendir(folder);
    CHECK(dir != NULL);
    size_t count = 0;
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        const char *dot = strrchr(entry->d_name, '.');
        if (!dot || strcmp(dot, ".json") != 0)
            continue;
        CHECK(count < INPUTS_MAX);
        struct input *input = &inputs[count++];
        snprintf(input->path, sizeof(input->path), "%s/%s", folder, entry->d_name);
        input->text = read_whole(input->path, &input->bytes);
        CHECK(input->text != NULL);
    }
    closedir(dir);
    qsort(inputs, count, sizeof(*inputs), compare_input);
    return count;
}

static void check_folder(const char *folder, parse_fn *parse, bool is_valid, size_t least_count)
{
    static struct input inputs[INPUTS_MAX];
    static char got[TEXT_MAX];
    size_t count = read_inputs(folder, inputs);
    bool is_writing = getenv("GOLDEN_WRITE") != NULL;
    for (size_t i = 0; i < count; i++) {
        uint64_t start_ns = clock_now_ns();
        enum err_code code = parse(inputs[i].text, inputs[i].bytes, got, sizeof(got));
        uint64_t took_ns = clock_now_ns() - start_ns;
        if (code != (is_valid ? ERR_OK : ERR_INVALID))
            test_fail(__FILE__, __LINE__, "%s: %s: %s", inputs[i].path, err_name(code), got);
        if (took_ns > NS_PER_S)
            test_fail(__FILE__, __LINE__, "%s: took %llu ms", inputs[i].path, took_ns / NS_PER_MS);
        char expect_path[PATH_SIZE];
        snprintf(expect_path, sizeof(expect_path), "%.*s.expect",
                 (int)(strlen(inputs[i].path) - strlen(".json")), inputs[i].path);
        if (is_writing) {
            AUTO_FILE FILE *out = fopen(expect_path, "wb");
            CHECK(out && fputs(got, out) >= 0);
            continue;
        }
        size_t bytes;
        AUTO_MEM char *expect = read_whole(expect_path, &bytes);
        if (!expect)
            test_fail(__FILE__, __LINE__, "%s is missing", expect_path);
        if (strcmp(got, expect) != 0)
            test_fail(__FILE__, __LINE__, "%s: got \"%s\", want \"%s\"", inputs[i].path, got,
                      expect);
    }
    for (size_t i = 0; i < count; i++)
        free(inputs[i].text);
    if (count < least_count)
        test_fail(__FILE__, __LINE__, "%s: %zu inputs, want at least %zu", folder, count,
                  least_count);
}

TEST(valid_tf_configs_are_understood)
{
    check_folder("tests/golden/tf_config/valid", dump_cluster, true, 15);
}

TEST(invalid_tf_configs_are_refused_with_the_exact_words)
{
    check_folder("tests/golden/tf_config/invalid", dump_cluster, false, 60);
}

TEST(valid_jobs_are_understood)
{
    check_folder("tests/golden/job/valid", dump_job, true, 12);
}

TEST(invalid_jobs_are_refused_with_the_exact_words)
{
    check_folder("tests/golden/job/invalid", dump_job, false, 60);
}

/* Flips, inserts, deletes or repeats a few bytes; the result fits room. */
static size_t damage(char *text, size_t bytes, size_t room, uint64_t key)
{
    static const char likely[] = "{}[]:,\"\\0129-.eE/ntf\x00\xff\xc3";
    uint64_t draw = 0;
    uint64_t edits = 1 + rand_u64(key, draw++) % 4;
    for (uint64_t e = 0; e < edits; e++) {
        size_t at = bytes ? rand_u64(key, draw++) % bytes : 0;
        uint64_t random = rand_u64(key, draw++);
        char byte = likely[(random >> 8) % (sizeof(likely) - 1)];
        if (random & 1)
            memcpy(&byte, (const char *)&random + 7, 1);
        size_t span = MIN(1 + (random >> 32) % 16, bytes - at);
        switch ((random >> 1) % 4) {
        case 0:
            if (bytes)
                text[at] = byte;
            break;
        case 1:
            if (bytes + 1 > room)
                break;
            memmove(text + at + 1, text + at, bytes - at);
            text[at] = byte;
            bytes++;
            break;
        case 2:
            memmove(text + at, text + at + span, bytes - at - span);
            bytes -= span;
            break;
        default:
            if (bytes + span > room)
                break;
            memmove(text + at + span, text + at, bytes - at);
            bytes += span;
            break;
        }
    }
    return bytes;
}

static void check_mutations(const char *kind, parse_fn *parse, uint64_t mutations)
{
    static struct input inputs[2 * INPUTS_MAX];
    static char got[TEXT_MAX];
    char folder[PATH_SIZE];
    snprintf(folder, sizeof(folder), "tests/golden/%s/valid", kind);
    size_t count = read_inputs(folder, inputs);
    snprintf(folder, sizeof(folder), "tests/golden/%s/invalid", kind);
    count += read_inputs(folder, inputs + count);
    CHECK(count > 0);
    uint64_t accepted = 0;
    for (uint64_t m = 0; m < mutations; m++) {
        uint64_t key = rand_key(2026, RAND_TEST, m, 0);
        const struct input *input = &inputs[rand_u64(key, 1000) % count];
        size_t room = input->bytes + 80;
        /* Exactly as long as the text, so that a sanitizer sees the first byte read too far. */
        AUTO_MEM char *work = malloc(room);
        memcpy(work, input->text, input->bytes);
        size_t bytes = damage(work, input->bytes, room, key);
        AUTO_MEM char *exact = malloc(bytes + !bytes);
        memcpy(exact, work, bytes);
        memset(got, 0, 2);
        enum err_code code = parse(exact, bytes, got, sizeof(got));
        accepted += code == ERR_OK;
        if ((code != ERR_OK && code != ERR_INVALID) || (code != ERR_OK && strlen(got) < 10))
            test_fail(__FILE__, __LINE__, "mutation %" PRIu64 " of %s: %s: \"%s\"", m, input->path,
                      err_name(code), got);
    }
    /* Some damage must be harmless and most must not, or the test shows nothing. */
    CHECK(accepted > mutations / 1000 && accepted < mutations / 2);
    for (size_t i = 0; i < count; i++)
        free(inputs[i].text);
}

TEST_LIMIT(damaged_tf_configs_are_parsed_or_refused_with_words, 60)
{
    check_mutations("tf_config", dump_cluster, 10000);
}

TEST_LIMIT(damaged_jobs_are_parsed_or_refused_with_words, 60)
{
    check_mutations("job", dump_job, 10000);
}

TEST(every_field_of_a_job_is_documented)
{
    size_t bytes;
    AUTO_MEM char *doc = read_whole("docs/job-spec.md", &bytes);
    CHECK(doc != NULL);
    size_t count = 0;
    const char *field;
    while ((field = job_spec_field(count++))) {
        char cell[80];
        snprintf(cell, sizeof(cell), "| `%s` |", field);
        if (!strstr(doc, cell))
            test_fail(__FILE__, __LINE__, "docs/job-spec.md has no row for %s", field);
    }
    CHECK(count > 50);
}

TEST(the_example_in_the_documentation_is_a_valid_job)
{
    size_t bytes;
    AUTO_MEM char *doc = read_whole("docs/job-spec.md", &bytes);
    CHECK(doc != NULL);
    char *start = strstr(doc, "```json\n");
    CHECK(start != NULL);
    start += strlen("```json\n");
    char *end = strstr(start, "```");
    CHECK(end != NULL);
    AUTO(job_spec) job = NULL;
    struct err err;
    CHECK_OK(job_spec_parse(start, (size_t)(end - start), &job, &err));
    CHECK_STR(job->name, "fashion-lenet");
}
