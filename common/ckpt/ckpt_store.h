/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_store: the checkpoints of a job's directory: begin, publish, list, verify, newest usable,
 * sweep.
 *
 *   DIR/ckpt-7.partial/   being written: shard files arrive here, fsynced by their writers
 *   DIR/ckpt-7/           published by one rename, after its manifest was fsynced
 *   DIR/ckpt-7.removing/  being deleted by a sweep
 *
 * A crash at any point leaves every published checkpoint usable; begin and sweep clear what a crash
 * left of the other two. Nothing here deletes a file whose name is not one we write, nor a folder
 * that holds such a file.
 *
 * Owns    nothing beyond its results.
 * Thread  any; one writer a directory.
 * Errors  ERR_IO with path and errno; ERR_CORRUPT from a checkpoint that is not whole;
 *         ERR_NOT_FOUND when there is none to use.
 */
#ifndef COMMON_CKPT_CKPT_STORE_H
#define COMMON_CKPT_CKPT_STORE_H

#include "common/ckpt/ckpt_manifest.h"

/* Makes DIR (with parents) and an empty DIR/ckpt-<n>.partial; free() the path. ERR_EXISTS:
 * published already. Partial folders of smaller numbers are removed: a directory has one writer. */
MUST_CHECK enum err_code ckpt_begin(const char *dir, uint64_t number, char **ret_path,
                                    struct err *err);
/* Checks that the files of the manifest lie in the partial folder with their sizes, writes the
 * manifest, renames. manifest->number names the folder. After an error the folder may have its
 * final name already (the fsync behind the rename failed): go on with another number. */
MUST_CHECK enum err_code ckpt_publish(const char *dir, const struct ckpt_manifest *manifest,
                                      struct err *err);
/* Removes a partial folder that will not be published. Fine when there is none. */
MUST_CHECK enum err_code ckpt_abandon(const char *dir, uint64_t number, struct err *err);

/* Numbers of the folders ckpt-<n> that hold a manifest, rising; free() them. A missing DIR has
 * none. */
MUST_CHECK enum err_code ckpt_list(const char *dir, uint64_t **ret_numbers, size_t *ret_count,
                                   struct err *err);
char *ckpt_path(const char *dir, uint64_t number); /* DIR/ckpt-<n>; free() it */

/* Manifest strict, every file there with its size and, when with_checksums, its crc32c. */
MUST_CHECK enum err_code ckpt_verify(const char *dir, uint64_t number, bool with_checksums,
                                     struct ckpt_manifest **ret_manifest, struct err *err);
/* The newest that verifies with checksums. on_skipped hears of each newer one that does not, with
 * the reason: the caller says it loudly. ERR_NOT_FOUND: none is usable. ERR_FULL, ERR_NO_MEMORY:
 * there was no descriptor or memory to look at one; none is passed over for that. */
MUST_CHECK enum err_code
ckpt_newest(const char *dir, void (*on_skipped)(uint64_t number, const struct err *why, void *arg),
            void *arg, struct ckpt_manifest **ret_manifest, struct err *err);

/* Keeps the newest max_to_keep (0: all), removes older ones numbered first_number or more, and
 * leftovers: what is older than first_number belongs to another run. ret_removed may be NULL.
 * ERR_IO: the first failure; the rest of the sweep was still tried. */
MUST_CHECK enum err_code ckpt_sweep(const char *dir, uint64_t first_number, uint32_t max_to_keep,
                                    size_t *ret_removed, struct err *err);

/* Joins the slices of the checkpoint in folder into whole variables, under their canonical names in
 * the order of the model, in one safetensors file at path. Checksums of the source are verified
 * first. */
MUST_CHECK enum err_code ckpt_export(const char *folder, const char *path, struct err *err);

#endif
