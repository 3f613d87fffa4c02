/* SPDX-License-Identifier: Apache-2.0 */
/* nearest: three rows of the alignment table are enough to see swaps of neighbours. */
#include "common/base/nearest.h"

#include <ctype.h>
#include <string.h>

enum { WORD_MAX = 48 }; /* longer words are not typing mistakes of our names */

static int fold(char c)
{
    return c == '-' ? '_' : tolower((unsigned char)c);
}

static size_t distance_of(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t rows[3][WORD_MAX + 1];
    size_t *before = rows[0];
    size_t *last = rows[1];
    size_t *now = rows[2];

    for (size_t j = 0; j <= b_len; j++)
        last[j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        now[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            bool is_same = fold(a[i - 1]) == fold(b[j - 1]);
            size_t best = MIN(last[j], now[j - 1]) + 1;
            best = MIN(best, last[j - 1] + !is_same);
            if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) &&
                fold(a[i - 2]) == fold(b[j - 1]))
                best = MIN(best, before[j - 2] + 1);
            now[j] = best;
        }
        size_t *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[b_len];
}

void nearest_init(struct nearest *nearest, const char *word)
{
    *nearest = (struct nearest){.word = word, .best = NULL, .distance = SIZE_MAX};
}

void nearest_offer(struct nearest *nearest, const char *name)
{
    size_t word_len = strnlen(nearest->word, WORD_MAX + 1);
    size_t name_len = strnlen(name, WORD_MAX + 1);
    if (word_len == 0 || word_len > WORD_MAX || name_len > WORD_MAX)
        return;
    size_t distance = distance_of(nearest->word, word_len, name, name_len);
    size_t common_len = MIN(word_len, name_len);
    bool is_beginning = common_len >= 3 && strncmp(nearest->word, name, common_len) == 0;
    bool is_near = distance <= MAX(MAX(word_len, name_len) / 3, 1) || is_beginning;
    if (is_near && distance < nearest->distance) {
        nearest->best = name;
        nearest->distance = distance;
    }
}
