/* SPDX-License-Identifier: Apache-2.0 */
/* text_table: cells in one flat array, widths known when it is printed. */
#include "trainctl/text_table.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct text_table {
    size_t column_count;
    bool is_right[TEXT_TABLE_COLUMNS];
    size_t widths[TEXT_TABLE_COLUMNS];
    char **cells; /* row after row; the first row are the heads */
    size_t cell_count;
    size_t capacity;
};

static void add_cell(struct text_table *table, const char *text)
{
    if (table->cell_count == table->capacity) {
        table->capacity = table->capacity ? table->capacity * 2 : 64;
        table->cells = base_realloc(table->cells, table->capacity * sizeof(*table->cells));
    }
    size_t column = table->cell_count % table->column_count;
    table->widths[column] = MAX(table->widths[column], strlen(text));
    table->cells[table->cell_count++] = base_strdup(text);
}

struct text_table *text_table_new(const char *const *heads, size_t column_count)
{
    ASSERT(column_count > 0 && column_count <= TEXT_TABLE_COLUMNS);
    struct text_table *table = base_alloc(sizeof(*table));
    table->column_count = column_count;
    for (size_t i = 0; i < column_count; i++) {
        table->is_right[i] = heads[i][0] == '>';
        add_cell(table, heads[i] + (table->is_right[i] ? 1 : 0));
    }
    return table;
}

void text_table_free(struct text_table *table)
{
    if (!table)
        return;
    for (size_t i = 0; i < table->cell_count; i++)
        free(table->cells[i]);
    free(table->cells);
    free(table);
}

void text_table_add(struct text_table *table, const char *fmt, ...)
{
    char text[TEXT_CELL_SIZE];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    add_cell(table, text);
}

/* The last column that has something to show in this row: nothing is printed after it, so that no
 * line ends in blanks. */
static size_t last_column(const struct text_table *table, size_t row)
{
    size_t last = table->column_count - 1;
    while (last > 0 && table->cells[row * table->column_count + last][0] == '\0')
        last--;
    return last;
}

void text_table_print(const struct text_table *table, const char *indent, FILE *out)
{
    ASSERT(table->cell_count % table->column_count == 0);
    for (size_t row = 0; row < table->cell_count / table->column_count; row++) {
        size_t last = last_column(table, row);
        fputs(indent, out);
        for (size_t column = 0; column <= last; column++) {
            const char *cell = table->cells[row * table->column_count + column];
            int width = (int)table->widths[column];
            if (table->is_right[column])
                fprintf(out, "%*s", width, cell);
            else
                fprintf(out, "%-*s", column == last ? 0 : width, cell);
            fputs(column == last ? "\n" : "  ", out);
        }
    }
}

const char *text_bytes(uint64_t bytes, char *buf, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1023.95 && unit + 1 < ARRAY_SIZE(units)) { /* 1023.95 would print as 1024.0 */
        value /= 1024;
        unit++;
    }
    if (unit == 0)
        snprintf(buf, size, "%" PRIu64 " B", bytes);
    else
        snprintf(buf, size, "%.1f %s", value, units[unit]);
    return buf;
}

const char *text_duration(double seconds, char *buf, size_t size)
{
    if (!isfinite(seconds) || seconds < 0 || seconds > 100.0 * 86400) {
        snprintf(buf, size, "-");
        return buf;
    }
    unsigned all = (unsigned)(seconds + 0.5);
    if (all < 3600)
        snprintf(buf, size, "%u:%02u", all / 60, all % 60);
    else
        snprintf(buf, size, "%u:%02u:%02u", all / 3600, all / 60 % 60, all % 60);
    return buf;
}
