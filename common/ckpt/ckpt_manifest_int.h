/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_manifest_int: what the text of a manifest is bound to, for those who check, write and read
 * it.
 *
 *   ckpt_manifest.c        the struct, and what has to hold in it; calls neither of the others
 *   ckpt_manifest_print.c  struct to text
 *   ckpt_manifest_parse.c  text to struct
 */
#ifndef COMMON_CKPT_CKPT_MANIFEST_INT_H
#define COMMON_CKPT_CKPT_MANIFEST_INT_H

#include <stdint.h>

/* The last field, with the end of the object: always as long as this. */
#define CKPT_TRAILER_FORMAT  ",\"crc32c\":\"%08x\"}\n"
#define CKPT_TRAILER_BYTES   (sizeof(",\"crc32c\":\"01234567\"}\n") - 1)
#define CKPT_FILE_NAME_BYTES 64 /* "server255-shard63.safetensors" and room */
#define CKPT_VALUE_MAX       ((uint64_t)INT64_MAX)

#endif
