/* SPDX-License-Identifier: Apache-2.0 */
/* mem: tables whose length a peer or a file decides. base_alloc ends the process when it fails, which
 * is for small things of our own; a table of slices that does not fit is its order's failure.
 *
 * Owns    the caller; free(). Thread: any. Errors: ERR_NO_MEMORY names what, count and bytes.
 */
#ifndef PSD_VALUES_MEM_H
#define PSD_VALUES_MEM_H

#include <stdlib.h>

#include "common/base/base.h"
#include "common/base/err.h"

/* count items, zeroed; room for one when count is 0. NULL with the reason. */
MUST_CHECK static inline void *mem_table(size_t count, size_t item_bytes, const char *what,
                                         struct err *err)
{
    void *table = calloc(count ? count : 1, item_bytes);
    if (!table)
        err_set(err, ERR_NO_MEMORY, "no memory for %zu %s of %zu bytes", count, what, item_bytes);
    return table;
}

/* A table of count items that makes room for one more, doubling; *room is what it has. NULL with the
 * reason, and the old table is as it was. */
MUST_CHECK static inline void *mem_table_grown(void *table, size_t count, size_t *room,
                                               size_t item_bytes, const char *what, struct err *err)
{
    if (count < *room)
        return table;
    size_t more = *room ? 2 * *room : 16;
    void *grown = reallocarray(table, more, item_bytes);
    if (!grown)
        err_set(err, ERR_NO_MEMORY, "no memory for %zu %s of %zu bytes", more, what, item_bytes);
    else
        *room = more;
    return grown;
}

#endif
