/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_write: one shard's snapshot into `server<k>-shard<i>.safetensors`, fsynced.
 *
 * A piece's values are the tensor ckpt_tensor_key(name, rows...) and its slots the same with
 * "#slot".
 *
 * Thread  a file thread.
 * Errors  ERR_IO with path and errno; an earlier file of that name stays as it was.
 */
#ifndef PSD_CKPT_CKPT_WRITE_H
#define PSD_CKPT_CKPT_WRITE_H

#include "psd/values/snapshot.h"

MUST_CHECK enum err_code ckpt_write(const struct snapshot *snapshot, const char *directory,
                                    const char *file_name, const char *job, uint64_t *ret_bytes,
                                    uint32_t *ret_crc32c, struct err *err);

#endif
