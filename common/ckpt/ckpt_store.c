/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_store: folders, renames, and what may be deleted: files that our own names match, folders
 * that are empty then. */
#include "common/ckpt/ckpt_store.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"

#define PREFIX   "ckpt-"
#define PARTIAL  ".partial"
#define REMOVING ".removing"

char *ckpt_path(const char *dir, uint64_t number)
{
    return base_asprintf("%s/" PREFIX "%" PRIu64, dir, number);
}

static char *path_with(const char *dir, uint64_t number, const char *suffix)
{
    return base_asprintf("%s/" PREFIX "%" PRIu64 "%s", dir, number, suffix);
}

/* "ckpt-12" followed by suffix, and nothing that we would not print. */
static bool parse_name(const char *name, const char *suffix, uint64_t *ret_number)
{
    if (strncmp(name, PREFIX, sizeof(PREFIX) - 1) != 0)
        return false;
    const char *digits = name + sizeof(PREFIX) - 1;
    if (digits[0] < '0' || digits[0] > '9' ||
        (digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9'))
        return false;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(digits, &end, 10);
    if (errno || number > LIMIT_CKPT_NUMBER / 2 || strcmp(end, suffix) != 0) /* above: not ours, and
                                                          the next number must fit */
        return false;
    *ret_number = number;
    return true;
}

/* "server<k>-shard<i>.safetensors", the manifest, and the temporary names of both. */
static bool is_our_file(const char *name)
{
    char base[300];
    size_t len = strlen(name);
    if (len >= sizeof(base))
        return false;
    memcpy(base, name, len + 1);
    if (len > 4 && strcmp(base + len - 4, ".tmp") == 0)
        base[len - 4] = '\0';
    if (strcmp(base, CKPT_MANIFEST_NAME) == 0)
        return true;
    unsigned server, shard;
    char again[64];
    if (sscanf(base, "server%u-shard%u.", &server, &shard) != 2)
        return false;
    snprintf(again, sizeof(again), "server%u-shard%u.safetensors", server, shard);
    return strcmp(base, again) == 0;
}

/* Deletes our files in a folder, the manifest last, and the folder if that leaves it empty. */
static enum err_code remove_folder(const char *path, struct err *err)
{
    DIR *dir = opendir(path);
    if (!dir)
        return errno == ENOENT ? ERR_OK : err_from_errno(err, errno, "open folder %s", path);
    enum err_code code = ERR_OK;
    const struct dirent *item;
    while (code == ERR_OK && (item = readdir(dir))) {
        if (!is_our_file(item->d_name) || strcmp(item->d_name, CKPT_MANIFEST_NAME) == 0)
            continue;
        if (unlinkat(dirfd(dir), item->d_name, 0) != 0 && errno != ENOENT)
            code = err_from_errno(err, errno, "delete %s/%s", path, item->d_name);
    }
    if (code == ERR_OK && unlinkat(dirfd(dir), CKPT_MANIFEST_NAME, 0) != 0 && errno != ENOENT)
        code = err_from_errno(err, errno, "delete %s/" CKPT_MANIFEST_NAME, path);
    closedir(dir);
    if (code == ERR_OK && rmdir(path) != 0 && errno != ENOENT)
        code = err_from_errno(err, errno, "delete folder %s (what we did not write stays)", path);
    return code;
}

static int by_number(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Numbers of the folders with this suffix; with_manifest leaves out those without one. */
static enum err_code list_with(const char *dir, const char *suffix, bool with_manifest,
                               uint64_t **ret_numbers, size_t *ret_count, struct err *err)
{
    uint64_t *numbers = NULL;
    size_t count = 0;
    DIR *stream = opendir(dir);
    if (!stream && errno != ENOENT)
        return err_from_errno(err, errno, "open folder %s", dir);
    const struct dirent *item;
    while (stream && (item = readdir(stream))) {
        uint64_t number;
        if (!parse_name(item->d_name, suffix, &number))
            continue;
        AUTO_MEM char *manifest = base_asprintf("%s/%s/" CKPT_MANIFEST_NAME, dir, item->d_name);
        if (with_manifest && access(manifest, F_OK) != 0)
            continue;
        if ((count & (count - 1)) == 0)
            numbers = base_realloc(numbers, (count ? 2 * count : 1) * sizeof(*numbers));
        numbers[count++] = number;
    }
    if (stream)
        closedir(stream);
    if (count > 0)
        qsort(numbers, count, sizeof(*numbers), by_number);
    *ret_numbers = numbers;
    *ret_count = count;
    return ERR_OK;
}

/* What crashes and writers that came too late left of this number and those before it: it would take
 * space for ever. Only what is left of this one is in the way. */
static enum err_code remove_partials(const char *dir, uint64_t number, struct err *err)
{
    AUTO_MEM uint64_t *old = NULL;
    size_t count = 0;
    enum err_code code = list_with(dir, PARTIAL, false, &old, &count, err);
    for (size_t i = 0; code == ERR_OK && i < count && old[i] <= number; i++) {
        AUTO_MEM char *path = path_with(dir, old[i], PARTIAL);
        struct err why;
        if (remove_folder(path, &why) != ERR_OK && old[i] == number)
            code = err_set(err, why.code, "%s", why.text);
    }
    return code;
}

enum err_code ckpt_begin(const char *dir, uint64_t number, char **ret_path, struct err *err)
{
    enum err_code code = file_make_dirs(dir, err);
    if (code != ERR_OK)
        return code;
    AUTO_MEM char *final = ckpt_path(dir, number);
    if (access(final, F_OK) == 0)
        return err_set(err, ERR_EXISTS, "%s is there already", final);
    AUTO_MEM char *path = path_with(dir, number, PARTIAL);
    code = remove_partials(dir, number, err);
    if (code != ERR_OK)
        return code;
    if (mkdir(path, 0755) != 0)
        return err_from_errno(err, errno, "make folder %s", path);
    *ret_path = TAKE(path);
    return ERR_OK;
}

static enum err_code check_sizes(const char *folder, const struct ckpt_manifest *manifest,
                                 struct err *err)
{
    for (size_t i = 0; i < manifest->file_count; i++) {
        const struct ckpt_file *file = &manifest->files[i];
        AUTO_MEM char *path = base_asprintf("%s/%s", folder, file->name);
        struct stat st;
        if (stat(path, &st) != 0)
            return errno == ENOENT
                       ? err_set(err, ERR_CORRUPT, "%s: missing, the manifest names it", path)
                       : err_from_errno(err, errno, "stat %s", path);
        if ((uint64_t)st.st_size != file->bytes)
            return err_set(err, ERR_CORRUPT, "%s: %lld bytes, the manifest says %" PRIu64, path,
                           (long long)st.st_size, file->bytes);
    }
    return ERR_OK;
}

enum err_code ckpt_publish(const char *dir, const struct ckpt_manifest *manifest, struct err *err)
{
    AUTO_MEM char *partial = path_with(dir, manifest->number, PARTIAL);
    AUTO_MEM char *final = ckpt_path(dir, manifest->number);
    AUTO_MEM char *path = base_asprintf("%s/" CKPT_MANIFEST_NAME, partial);
    AUTO_MEM char *text = NULL;
    size_t bytes = 0;
    enum err_code code = check_sizes(partial, manifest, err);
    if (code == ERR_OK)
        code = ckpt_manifest_print(manifest, &text, &bytes, err);
    if (code == ERR_OK)
        code = file_write(path, text, bytes, err); /* fsyncs the folder too */
    if (code != ERR_OK)
        return code;
    if (rename(partial, final) != 0)
        return err_from_errno(err, errno, "rename %s to %s", partial, final);
    return file_sync_dir(dir, err);
}

enum err_code ckpt_abandon(const char *dir, uint64_t number, struct err *err)
{
    AUTO_MEM char *path = path_with(dir, number, PARTIAL);
    return remove_folder(path, err);
}

enum err_code ckpt_list(const char *dir, uint64_t **ret_numbers, size_t *ret_count, struct err *err)
{
    return list_with(dir, "", true, ret_numbers, ret_count, err);
}

enum err_code ckpt_verify(const char *dir, uint64_t number, bool with_checksums,
                          struct ckpt_manifest **ret_manifest, struct err *err)
{
    AUTO_MEM char *folder = ckpt_path(dir, number);
    AUTO(ckpt_manifest) manifest = NULL;
    enum err_code code = ckpt_manifest_read(folder, &manifest, err);
    if (code == ERR_OK && manifest->number != number)
        code = err_set(err, ERR_CORRUPT,
                       "%s/" CKPT_MANIFEST_NAME ": number: %" PRIu64 ", want %" PRIu64, folder,
                       manifest->number, number);
    if (code == ERR_OK)
        code = check_sizes(folder, manifest, err);
    for (size_t i = 0; code == ERR_OK && with_checksums && i < manifest->file_count; i++) {
        AUTO_MEM char *path = base_asprintf("%s/%s", folder, manifest->files[i].name);
        uint64_t bytes = 0;
        uint32_t crc = 0;
        code = file_checksum(path, &bytes, &crc, err);
        if (code == ERR_OK &&
            (bytes != manifest->files[i].bytes || crc != manifest->files[i].crc32c))
            code = err_set(err, ERR_CORRUPT,
                           "%s: crc32c %08x over %" PRIu64 " bytes, the manifest says %08x", path,
                           crc, bytes, manifest->files[i].crc32c);
    }
    if (code == ERR_OK)
        *ret_manifest = TAKE(manifest);
    return code;
}

enum err_code ckpt_newest(const char *dir,
                          void (*on_skipped)(uint64_t number, const struct err *why, void *arg),
                          void *arg, struct ckpt_manifest **ret_manifest, struct err *err)
{
    AUTO_MEM uint64_t *numbers = NULL;
    size_t count = 0;
    enum err_code code = ckpt_list(dir, &numbers, &count, err);
    if (code != ERR_OK)
        return code;
    for (size_t i = count; i-- > 0;) {
        struct err why = {0};
        if (ckpt_verify(dir, numbers[i], true, ret_manifest, &why) == ERR_OK)
            return ERR_OK;
        if (err_passes(
                why.code)) /* says nothing about the checkpoint: an older one would be wrong */
            return err_set(err, why.code, "%s", why.text);
        if (on_skipped)
            on_skipped(numbers[i], &why, arg);
    }
    return err_set(err, ERR_NOT_FOUND, "%s: no usable checkpoint among %zu", dir, count);
}

/* A checkpoint of ours disappears in one rename; a crash behind it leaves what the next sweep
 * finds. */
static enum err_code remove_one(const char *dir, uint64_t number, struct err *err)
{
    AUTO_MEM char *folder = ckpt_path(dir, number);
    AUTO_MEM char *removing = path_with(dir, number, REMOVING);
    if (rename(folder, removing) != 0)
        return err_from_errno(err, errno, "rename %s to %s", folder, removing);
    return remove_folder(removing, err);
}

enum err_code ckpt_sweep(const char *dir, uint64_t first_number, uint32_t max_to_keep,
                         size_t *ret_removed, struct err *err)
{
    AUTO_MEM uint64_t *numbers = NULL, *old = NULL;
    size_t count = 0, old_count = 0, removed = 0;
    struct err first = {0}, why;
    enum err_code code = ckpt_list(dir, &numbers, &count, err);
    if (code == ERR_OK)
        code = list_with(dir, REMOVING, false, &old, &old_count, err);
    if (code != ERR_OK)
        return code;
    for (size_t i = 0; i < old_count; i++) {
        AUTO_MEM char *path = path_with(dir, old[i], REMOVING);
        if (remove_folder(path, &why) != ERR_OK && first.code == ERR_OK)
            first = why;
    }
    for (size_t i = 0; max_to_keep > 0 && i + max_to_keep < count; i++) {
        if (numbers[i] < first_number)
            continue;
        /* A manifest that is not ours, or cannot be read, is left alone: somebody should look at
         * it. */
        AUTO_MEM char *folder = ckpt_path(dir, numbers[i]);
        AUTO(ckpt_manifest) manifest = NULL;
        enum err_code one = ckpt_manifest_read(folder, &manifest, &why);
        if (one == ERR_OK)
            one = remove_one(dir, numbers[i], &why);
        if (one == ERR_OK)
            removed++;
        else if (first.code == ERR_OK)
            first = why;
    }
    if (ret_removed)
        *ret_removed = removed;
    return first.code == ERR_OK ? ERR_OK : err_set(err, first.code, "%s", first.text);
}
