/* SPDX-License-Identifier: Apache-2.0 */
/* nearest: which known name somebody may have meant.
 *
 * Distance is the number of single-letter insertions, deletions, replacements and swaps of
 * neighbours (optimal string alignment); case does not count, and '-' equals '_'. A name is near
 * when at most a third of the longer word, and at least one letter, would have to change, or when
 * one is the beginning of the other.
 *
 * Owns    nothing. Thread: any.
 */
#ifndef COMMON_BASE_NEAREST_H
#define COMMON_BASE_NEAREST_H

#include "common/base/base.h"

struct nearest {
    const char *word;
    const char *best; /* NULL: nothing near so far; else a pointer that was offered */
    size_t distance;  /* of best */
};

void nearest_init(struct nearest *nearest, const char *word);
void nearest_offer(struct nearest *nearest,
                   const char *name); /* of equally near ones the first stays */

#endif
