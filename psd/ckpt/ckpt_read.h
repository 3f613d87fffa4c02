/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_read: a checkpoint's slices, whatever their layout was, into one shard's values.
 *
 * Every row of the shard's slices is looked up by variable name in the manifest; values and slots
 * are read, and the row keeps the history (group) it was saved with. Files that are read from are
 * checked against their size and crc32c.
 *
 * Thread  a file thread; values are nobody else's yet.
 * Errors  ERR_CORRUPT names file or field; ERR_INVALID: the checkpoint has other variables, shapes
 *         or slots than the job; ERR_NOT_FOUND, ERR_IO, ERR_NO_MEMORY.
 */
#ifndef PSD_CKPT_CKPT_READ_H
#define PSD_CKPT_CKPT_READ_H

#include "psd/values/values.h"

MUST_CHECK enum err_code ckpt_read(const char *folder, struct values *values, struct err *err);

#endif
