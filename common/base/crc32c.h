/* SPDX-License-Identifier: Apache-2.0 */
/* crc32c: the Castagnoli checksum (polynomial 0x1EDC6F41, reflected; RFC 3720 appendix B.4).
 *
 * SSE4.2's instruction where the processor has it, a table of eight otherwise; the results are the
 * same. Start with 0 and feed the pieces in order: crc32c(crc32c(0, a), b) is the checksum of a
 * followed by b.
 *
 * Thread  any.
 */
#ifndef COMMON_BASE_CRC32C_H
#define COMMON_BASE_CRC32C_H

#include "common/base/base.h"

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);
uint32_t crc32c_by_table(uint32_t crc, const void *data,
                         size_t bytes); /* what tests compare with */

#endif
