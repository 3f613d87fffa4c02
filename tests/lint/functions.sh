#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How long functions are, from the first line of the signature to the closing brace. Prints a table, and fails when
# fewer than 90 % have at most 70 lines, or any has more than 150. Reads code as clang-format leaves it: a function's
# braces stand alone in the first column, and nothing else's do.
#   tests/lint/functions.sh [TREE]
. "$(dirname "$0")/files.sh" || exit 2
cd "${1:-$(dirname "$0")/../..}" || exit 2
readonly SCREEN=70 SHARE=90 LIMIT=150 SHOWN=10

mapfile -t files < <(tree_files c h)
[ ${#files[@]} -gt 0 ] || { echo "functions.sh: no sources in $PWD" >&2; exit 1; }
LC_ALL=C awk '
FNR == 1 { start = 0; open = 0 }
# A signature begins in the first column with a name; a struct, an array or a preprocessor line does not end in "{" alone.
!open && /^[A-Za-z_]/ && (!start || done) { start = FNR; sig = ""; done = 0 }
!open && start { sig = sig " " $0 }
!open && /;[ \t]*$/ { done = 1 }
/^{$/ && start { open = 1 }
/^}$/ && open { print FNR - start + 1 "\t" FILENAME ":" start "\t" name(sig); open = 0; done = 1 }
!open && /^$/ { done = 1 }
function name(text,    m) {
    while (match(text, /__attribute__\(\([^)]*(\([^)]*\))?[^)]*\)\)/)) text = substr(text, 1, RSTART - 1) substr(text, RSTART + RLENGTH)
    if (match(text, /TEST[A-Z_]*\([a-z0-9_]+/)) return substr(text, RSTART, RLENGTH) ")"
    if (!match(text, /[A-Za-z0-9_]+\(/)) return "?"
    return substr(text, RSTART, RLENGTH - 1)
}' "${files[@]}" | sort -rn | awk -F'\t' -v screen=$SCREEN -v share=$SHARE -v limit=$LIMIT -v shown=$SHOWN -v files=${#files[@]} '
{ count++; lines += $1; if ($1 <= screen) fit++; if ($1 > limit) over++; if (count <= shown) table = table sprintf("  %4d  %-40s %s\n", $1, $3, $2) }
END {
    if (!count) { print "functions.sh: no function was found"; exit 1 }
    percent = 100 * fit / count
    printf "functions: %d in %d files, %.0f lines each; %.1f %% have at most %d lines (want %d %%). The longest:\n%s", \
        count, files, lines / count, percent, screen, share, table
    if (percent < share) { printf "functions.sh: only %.1f %% of the functions have at most %d lines, want %d %%\n", percent, screen, share; failed = 1 }
    if (over) { printf "functions.sh: %d of them over %d lines: split each into functions that have a name of their own\n", over, limit; failed = 1 }
    exit failed
}'
