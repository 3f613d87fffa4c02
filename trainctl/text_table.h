/* SPDX-License-Identifier: Apache-2.0 */
/* text_table: rows of cells, printed with columns as wide as their widest cell.
 *
 * Owns    copies of its cells. Thread: one. Errors: none; cells are cut at TEXT_CELL_SIZE.
 */
#ifndef TRAINCTL_TEXT_TABLE_H
#define TRAINCTL_TEXT_TABLE_H

#include <stdio.h>

#include "common/base/base.h"

#define TEXT_TABLE_COLUMNS 12
#define TEXT_CELL_SIZE     160

struct text_table;

/* heads: names of the columns; one that begins with '>' is flush right (without the '>'). */
struct text_table *text_table_new(const char *const *heads, size_t column_count);
void text_table_free(struct text_table *table);
DEFINE_AUTO(text_table)
/* Fills the next cell of the row; the row ends with its last column. */
void text_table_add(struct text_table *table, const char *fmt, ...) PRINTF_LIKE(2, 3);
void text_table_print(const struct text_table *table, const char *indent, FILE *out);

/* "3.4 MiB", "812 B"; into buf, which is returned. */
const char *text_bytes(uint64_t bytes, char *buf, size_t size);
/* "0:07", "12:31", "3:04:05". Not a finite number or over 100 days: "-". */
const char *text_duration(double seconds, char *buf, size_t size);

#endif
