/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints on disk: manifest, publication, verification, fallback, sweep, export. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/crc32c.h"
#include "common/base/file.h"
#include "common/base/rand.h"
#include "common/ckpt/ckpt_store.h"
#include "common/formats/safetensors.h"
#include "tests/harness.h"

#define SPEC "{\"name\": \"j\", \"note\": \"\\\"quoted\\\" \xc3\xa9\"}"

/* w is 5x2 over two files, rows 3-4 in the second; s is a scalar in the first. */
static struct ckpt_manifest *two_files(uint64_t number)
{
    struct ckpt_manifest *manifest = ckpt_manifest_new();
    struct ranges marks;
    manifest->job = base_strdup("j");
    manifest->spec_json = base_strdup(SPEC);
    manifest->number = number;
    manifest->generation = 3;
    manifest->created_ms = 1700000000000;
    manifest->epoch = 2;
    manifest->batch = 17;
    ranges_add_range(&manifest->acked, 0, 99);
    ranges_add_range(&manifest->acked, 102, 110);
    ranges_add(&manifest->abandoned, 100);
    ckpt_manifest_add_var(manifest, "w", 2, (uint64_t[]){5, 2}, true);
    ckpt_manifest_add_var(manifest, "s", 0, NULL, false);
    ckpt_manifest_add_file(manifest, "server0-shard0.safetensors", 0, 0, 12);
    ckpt_manifest_add_file(manifest, "server1-shard0.safetensors", 0, 0, 13);
    ranges_init(&marks);
    ranges_add_range(&marks, 0, 99);
    ckpt_manifest_add_group(manifest, 100, &marks);
    ranges_add_range(&marks, 102, 110);
    ckpt_manifest_add_group(manifest, 109, &marks);
    ranges_done(&marks);
    ckpt_manifest_add_slice(manifest, 0, 3, 2, 1, 1);
    ckpt_manifest_add_slice(manifest, 0, 0, 3, 0, 0);
    ckpt_manifest_add_slice(manifest, 1, 0, 1, 0, 0);
    return manifest;
}

static void write_file(const char *folder, struct ckpt_file *file,
                       const struct safetensors_entry *entries, size_t count, const float *data,
                       size_t bytes)
{
    struct err err;
    AUTO_MEM char *path = base_asprintf("%s/%s", folder, file->name);
    AUTO(safetensors_writer) writer = NULL;
    CHECK_OK(safetensors_writer_new(path, entries, count, NULL, 0, &writer, &err));
    CHECK_OK(safetensors_write(writer, data, bytes, &err));
    CHECK_OK(safetensors_writer_finish(writer, &file->bytes, &file->crc32c, &err));
}

static const float values[11] = {0, 1, 2, 3, 4, 5, 100, 6, 7, 8, 9};

/* begin, files, publish. */
static void make_checkpoint(const char *dir, uint64_t number)
{
    struct err err;
    AUTO_MEM char *partial = NULL;
    AUTO(ckpt_manifest) manifest = two_files(number);
    CHECK_OK(ckpt_begin(dir, number, &partial, &err));
    struct safetensors_entry first[] = {
        {.name = "w[0:3]", .dtype = "F32", .rank = 2, .shape = {3, 2}},
        {.name = "s", .dtype = "F32"}};
    struct safetensors_entry second[] = {
        {.name = "w[3:5]", .dtype = "F32", .rank = 2, .shape = {2, 2}}};
    write_file(partial, &manifest->files[0], first, 2, values, 7 * sizeof(float));
    write_file(partial, &manifest->files[1], second, 1, values + 7, 4 * sizeof(float));
    CHECK_OK(ckpt_publish(dir, manifest, &err));
}

static char *path_in(uint64_t number, const char *name)
{
    return base_asprintf("%s/ckpt-%llu/%s", test_dir(), (unsigned long long)number, name);
}

static void flip_byte(const char *path, long offset)
{
    AUTO_FILE FILE *file = fopen(path, "r+");
    CHECK(file && fseek(file, offset, offset < 0 ? SEEK_END : SEEK_SET) == 0);
    int byte = fgetc(file);
    CHECK(byte != EOF && fseek(file, offset, offset < 0 ? SEEK_END : SEEK_SET) == 0);
    CHECK(fputc(byte ^ 1, file) != EOF && fflush(file) == 0);
}

TEST(a_manifest_comes_back_as_it_was_printed)
{
    struct err err;
    AUTO_MEM char *text = NULL, *again = NULL;
    size_t bytes, again_bytes;
    AUTO(ckpt_manifest) manifest = two_files(7), *back = NULL;
    CHECK_OK(ckpt_manifest_print(manifest, &text, &bytes, &err));
    CHECK_U64(strlen(text), bytes);
    CHECK_OK(ckpt_manifest_parse("m", text, bytes, &back, &err));
    CHECK_STR(back->job, "j");
    CHECK_STR(back->spec_json, SPEC);
    CHECK_U64(back->number, 7);
    CHECK_U64(back->generation, 3);
    CHECK_U64(back->created_ms, 1700000000000);
    CHECK_U64(back->epoch, 2);
    CHECK_U64(back->batch, 17);
    CHECK(ranges_equal(&back->acked, &manifest->acked));
    CHECK(ranges_equal(&back->abandoned, &manifest->abandoned));
    CHECK_U64(back->var_count, 2);
    CHECK(back->vars[0].rank == 2 && back->vars[0].shape[1] == 2 && back->vars[0].is_trainable);
    CHECK(back->vars[1].rank == 0 && !back->vars[1].is_trainable);
    CHECK_U64(back->files[1].version, 13);
    CHECK_U64(back->groups[1].applied, 109);
    CHECK(ranges_equal(&back->groups[1].marks, &manifest->groups[1].marks));
    CHECK_U64(back->slices[0].row_offset, 3);
    CHECK_OK(ckpt_manifest_print(back, &again, &again_bytes, &err));
    CHECK_STR(again, text);
}

static void flip_bit(char *text, size_t bit)
{
    unsigned char *bytes = (unsigned char *)text;
    bytes[bit / 8] = (unsigned char)(bytes[bit / 8] ^ 1u << bit % 8);
}

TEST(any_flipped_bit_or_missing_byte_of_a_manifest_is_found)
{
    struct err err;
    AUTO_MEM char *text = NULL;
    size_t bytes;
    AUTO(ckpt_manifest) manifest = two_files(7);
    CHECK_OK(ckpt_manifest_print(manifest, &text, &bytes, &err));
    for (size_t i = 0; i < bytes * 8; i++) {
        AUTO(ckpt_manifest) back = NULL;
        flip_bit(text, i);
        CHECK(ckpt_manifest_parse("m", text, bytes, &back, &err) == ERR_CORRUPT);
        flip_bit(text, i);
    }
    for (size_t cut = 0; cut < bytes; cut++) {
        AUTO(ckpt_manifest) back = NULL;
        AUTO_MEM char *part = base_alloc(cut);
        memcpy(part, text, cut);
        CHECK(ckpt_manifest_parse("m", part, cut, &back, &err) == ERR_CORRUPT);
    }
}

/* With a checksum that is right, so that what is wrong is found for its own sake. */
static enum err_code parse_changed(const char *from, const char *to, struct err *err)
{
    AUTO_MEM char *text = NULL;
    size_t bytes;
    AUTO(ckpt_manifest) manifest = two_files(7);
    CHECK(ckpt_manifest_print(manifest, &text, &bytes, err) == ERR_OK);
    char *at = strstr(text, from);
    if (!at)
        test_fail(__FILE__, __LINE__, "no %s in %s", from, text);
    char *end = strstr(text, ",\"crc32c\":\"");
    for (char *next = end; next; next = strstr(next + 1, ",\"crc32c\":\""))
        end = next;
    AUTO_MEM char *body = base_asprintf("%.*s%s%.*s", (int)(at - text), text, to,
                                        (int)(end - at) - (int)strlen(from), at + strlen(from));
    AUTO_MEM char *all =
        base_asprintf("%s,\"crc32c\":\"%08x\"}\n", body, crc32c(0, body, strlen(body)));
    AUTO(ckpt_manifest) back = NULL;
    return ckpt_manifest_parse("the/manifest", all, strlen(all), &back, err);
}

TEST(a_wrong_field_is_named_with_its_file)
{
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"\"format\":1", "\"format\":2", "format"},
        {"\"job\":\"j\"", "\"job\":7", "job"},
        {"\"job\":\"j\"", "\"jab\":\"j\"", "jab"},
        {"\"number\":7", "\"number\":-7", "number"},
        {"\"number\":7", "\"number\":7.0", "number"},
        {"\"epoch\":2", "\"epoch\":\"2\"", "epoch"},
        {"[0,99]", "[99,0]", "acked"},
        {"[0,99]", "[0,101]", "acked"},
        {"[0,99]", "[0]", "acked"},
        {"\"shape\":[5,2]", "\"shape\":[5,0]", "vars[0].shape"},
        {"\"shape\":[5,2]", "\"shape\":[6,2]", "w"},
        {"\"trainable\":true", "\"trainable\":1", "trainable"},
        {"\"name\":\"s\"", "\"name\":\"w\"", "w"},
        {"\"name\":\"server1-shard0.safetensors\"", "\"name\":\"../x\"", "files[1]"},
        {"\"name\":\"server1-shard0.safetensors\"", "\"name\":\"server0-shard0.safetensors\"",
         "twice"},
        {"\"crc32c\":\"00000000\"", "\"crc32c\":\"0000000g\"", "files[0].crc32c"},
        {"\"rows\":2", "\"rows\":3", "key"},
        {"\"key\":\"w[3:5]\"", "\"key\":\"w[3:6]\"", "slices[0].key"},
        {"\"file\":1", "\"file\":2", "file 2"},
        {"\"group\":1", "\"group\":9", "group 9"},
        {"\"applied\":100", "\"applied\":null", "groups[0].applied"},
        {"\"spec\":", "\"spec\":7,\"spac\":", "spac"},
    };
    struct err err;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (parse_changed(cases[i].from, cases[i].to, &err) != ERR_CORRUPT ||
            !strstr(err.text, cases[i].says) || !strstr(err.text, "the/manifest"))
            test_fail(__FILE__, __LINE__, "%s: \"%s\", want it to name %s", cases[i].to, err.text,
                      cases[i].says);
    CHECK_OK(parse_changed("\"epoch\":2", "\"epoch\":3", &err));
}

TEST(slices_that_do_not_cover_a_variable_once_are_not_written)
{
    struct err err;
    AUTO_MEM char *text = NULL;
    size_t bytes;
    AUTO(ckpt_manifest) gap = two_files(1), *overlap = two_files(1), *beyond = two_files(1);
    gap->slices[1].rows = 2;
    CHECK(ckpt_manifest_print(gap, &text, &bytes, &err) == ERR_INVALID && strstr(err.text, "w"));
    overlap->slices[1].rows = 4;
    CHECK(ckpt_manifest_print(overlap, &text, &bytes, &err) == ERR_INVALID);
    beyond->slices[0].rows = UINT64_MAX;
    CHECK(ckpt_manifest_print(beyond, &text, &bytes, &err) == ERR_INVALID);
}

TEST(a_published_checkpoint_is_listed_verified_and_exported_whole)
{
    struct err err;
    uint64_t *numbers;
    size_t count;
    CHECK_OK(ckpt_list("/nonexistent", &numbers, &count, &err));
    CHECK_U64(count, 0);
    free(numbers);
    make_checkpoint(test_dir(), 10);
    make_checkpoint(test_dir(), 9);
    AUTO_MEM char *partial = NULL;
    CHECK(ckpt_begin(test_dir(), 9, &partial, &err) == ERR_EXISTS);
    CHECK_OK(ckpt_begin(test_dir(), 11, &partial, &err)); /* not published: not listed */
    CHECK_OK(ckpt_list(test_dir(), &numbers, &count, &err));
    CHECK_U64(count, 2);
    CHECK(numbers[0] == 9 && numbers[1] == 10);
    free(numbers);
    AUTO(ckpt_manifest) manifest = NULL;
    CHECK_OK(ckpt_verify(test_dir(), 10, true, &manifest, &err));
    CHECK_U64(manifest->number, 10);

    AUTO_MEM char *folder = ckpt_path(test_dir(), 10);
    AUTO_MEM char *out = base_asprintf("%s/model.safetensors", test_dir());
    CHECK_OK(ckpt_export(folder, out, &err));
    AUTO(safetensors_reader) reader = NULL;
    CHECK_OK(safetensors_reader_new(out, &reader, &err));
    CHECK_U64(safetensors_count(reader), 2);
    const struct safetensors_entry *w = safetensors_find(reader, "w"),
                                   *s = safetensors_find(reader, "s");
    CHECK(w && s && w->rank == 2 && w->shape[0] == 5 && w->shape[1] == 2 && s->rank == 0);
    float back[10], scalar;
    CHECK_OK(safetensors_read(reader, w, 0, back, sizeof(back), &err));
    CHECK_OK(safetensors_read(reader, s, 0, &scalar, sizeof(scalar), &err));
    for (int i = 0; i < 10; i++)
        CHECK(back[i] == (float)i);
    CHECK(scalar == 100);
}

struct heard {
    unsigned count;
    uint64_t numbers[8];
    char text[8][ERR_TEXT_SIZE];
};

static void on_skipped(uint64_t number, const struct err *why, void *arg)
{
    struct heard *heard = arg;
    heard->numbers[heard->count] = number;
    snprintf(heard->text[heard->count++], ERR_TEXT_SIZE, "%s", why->text);
}

TEST(a_damaged_newest_checkpoint_falls_back_to_the_one_before_and_says_so)
{
    struct err err;
    struct heard heard = {0};
    AUTO(ckpt_manifest) manifest = NULL;
    CHECK(ckpt_newest(test_dir(), on_skipped, &heard, &manifest, &err) == ERR_NOT_FOUND);
    for (uint64_t n = 1; n <= 5; n++)
        make_checkpoint(test_dir(), n);
    AUTO_MEM char *bit = path_in(5, "server0-shard0.safetensors");
    AUTO_MEM char *cut = path_in(4, "server1-shard0.safetensors");
    AUTO_MEM char *gone = path_in(3, "server1-shard0.safetensors");
    AUTO_MEM char *text = path_in(2, CKPT_MANIFEST_NAME);
    flip_byte(bit, -3);
    CHECK(truncate(cut, 100) == 0 && unlink(gone) == 0);
    flip_byte(text, 40);
    CHECK_OK(ckpt_newest(test_dir(), on_skipped, &heard, &manifest, &err));
    CHECK_U64(manifest->number, 1);
    CHECK_U64(heard.count, 4);
    CHECK(strstr(heard.text[0], bit) && strstr(heard.text[0], "crc32c"));
    CHECK(strstr(heard.text[1], cut) && strstr(heard.text[1], "100 bytes"));
    CHECK(strstr(heard.text[2], gone) && strstr(heard.text[2], "missing"));
    CHECK(strstr(heard.text[3], text));
    AUTO_MEM char *folder = ckpt_path(test_dir(), 5);
    CHECK(ckpt_export(folder, "/dev/null", &err) == ERR_CORRUPT);
}

TEST(a_checkpoint_moved_to_another_number_is_not_believed)
{
    struct err err;
    AUTO(ckpt_manifest) manifest = NULL;
    make_checkpoint(test_dir(), 1);
    AUTO_MEM char *from = ckpt_path(test_dir(), 1), *to = ckpt_path(test_dir(), 2);
    CHECK(rename(from, to) == 0);
    CHECK(ckpt_verify(test_dir(), 2, true, &manifest, &err) == ERR_CORRUPT &&
          strstr(err.text, "number"));
}

static size_t entries(const char *path)
{
    DIR *dir = opendir(path);
    size_t count = 0;
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

TEST(a_sweep_keeps_the_newest_and_whatever_others_wrote)
{
    struct err err;
    size_t removed, count;
    uint64_t *numbers;
    for (uint64_t n = 1; n <= 6; n++)
        make_checkpoint(test_dir(), n);
    /* Somebody's note in an old checkpoint, somebody's own folder, a folder of an odd name, a
     * foreign manifest. */
    AUTO_MEM char *note = path_in(2, "NOTE.txt");
    CHECK_OK(file_write(note, "mine", 4, &err));
    AUTO_MEM char *foreign = base_asprintf("%s/ckpt-0", test_dir());
    AUTO_MEM char *foreign_file = base_asprintf("%s/manifest.json", foreign);
    AUTO_MEM char *odd = base_asprintf("%s/ckpt-007", test_dir());
    AUTO_MEM char *other = base_asprintf("%s/ckpt-1.removing.bak", test_dir());
    CHECK(mkdir(foreign, 0755) == 0 && mkdir(odd, 0755) == 0 && mkdir(other, 0755) == 0);
    CHECK_OK(file_write(foreign_file, "{}", 2, &err));
    CHECK(ckpt_sweep(test_dir(), 0, 3, &removed, &err) != ERR_OK); /* it says what it left alone */
    CHECK_U64(removed, 2);
    CHECK_OK(ckpt_list(test_dir(), &numbers, &count, &err));
    CHECK_U64(count, 4);
    CHECK(numbers[0] == 0 && numbers[1] == 4 && numbers[3] == 6);
    free(numbers);
    CHECK_U64(entries(odd), 2);
    CHECK_U64(entries(other), 2);
    AUTO_MEM char *moved = base_asprintf("%s/ckpt-2.removing/NOTE.txt", test_dir());
    CHECK(access(moved, F_OK) == 0 && access(foreign_file, F_OK) == 0);
    /* Once the note is taken away the next sweep clears up. */
    CHECK(unlink(moved) == 0 && unlink(foreign_file) == 0);
    CHECK_OK(ckpt_sweep(test_dir(), UINT64_MAX, 3, &removed, &err)); /* all belong to another run */
    CHECK_U64(removed, 0);
    CHECK_OK(ckpt_sweep(test_dir(), 0, 3, &removed, &err));
    AUTO_MEM char *left = base_asprintf("%s/ckpt-2.removing", test_dir());
    CHECK(access(left, F_OK) != 0);
    CHECK_OK(ckpt_sweep(test_dir(), 0, 0, &removed, &err));
    CHECK_U64(removed, 0);
}

TEST(what_a_crash_left_of_a_number_is_cleared_when_it_is_begun_again)
{
    struct err err;
    AUTO_MEM char *partial = NULL, *again = NULL;
    AUTO(ckpt_manifest) manifest = two_files(1);
    CHECK_OK(ckpt_begin(test_dir(), 1, &partial, &err));
    AUTO_MEM char *half = base_asprintf("%s/server0-shard0.safetensors.tmp", partial);
    CHECK_OK(file_write(half, "x", 1, &err));
    CHECK(ckpt_publish(test_dir(), manifest, &err) == ERR_CORRUPT); /* its files are not there */
    CHECK_OK(ckpt_begin(test_dir(), 1, &again, &err));
    CHECK_STR(again, partial);
    CHECK_U64(entries(again), 2);
    CHECK_OK(ckpt_abandon(test_dir(), 1, &err));
    CHECK(access(partial, F_OK) != 0);
    CHECK_OK(ckpt_abandon(test_dir(), 1, &err));
}

TEST(a_disk_that_is_full_at_the_manifest_leaves_the_checkpoint_before_usable)
{
    struct err err;
    AUTO(ckpt_manifest) found = NULL, *manifest = two_files(2);
    AUTO_MEM char *partial = NULL;
    make_checkpoint(test_dir(), 1);
    CHECK_OK(ckpt_begin(test_dir(), 2, &partial, &err));
    for (size_t i = 0; i < 2; i++) {
        AUTO_MEM char *path = base_asprintf("%s/%s", partial, manifest->files[i].name);
        CHECK_OK(file_write(path, "x", 1, &err));
        manifest->files[i].bytes = 1;
    }
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {.rlim_cur = 50, .rlim_max = RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(ckpt_publish(test_dir(), manifest, &err) == ERR_IO);
    CHECK(strstr(err.text, "ckpt-2.partial/manifest.json"));
    CHECK_OK(ckpt_newest(test_dir(), NULL, NULL, &found, &err));
    CHECK_U64(found->number, 1);
}

TEST(what_failed_checkpoints_left_goes_when_the_next_one_begins)
{
    struct err err;
    const char *dir = test_dir();
    AUTO_MEM char *path = NULL;
    static const char *const files[] = {
        "ckpt-3.partial/server0-shard0.safetensors.tmp", "ckpt-4.partial/manifest.json.tmp",
        "ckpt-5.partial/notes-of-somebody", "ckpt-9.partial/server0-shard0.safetensors"};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        AUTO_MEM char *file = base_asprintf("%s/%s", dir, files[i]);
        char *slash = strrchr(file, '/');
        *slash = '\0';
        CHECK(mkdir(file, 0755) == 0);
        *slash = '/';
        CHECK_OK(file_write(file, "x", 1, &err));
    }
    CHECK_OK(ckpt_begin(dir, 7, &path, &err));
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        AUTO_MEM char *file = base_asprintf("%s/%s", dir, files[i]);
        bool stays = i >= 2; /* not ours; of a later one */
        CHECK((access(file, F_OK) == 0) == stays);
        *strrchr(file, '/') = '\0';
        CHECK((access(file, F_OK) == 0) == stays);
    }
}
