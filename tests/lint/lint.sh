#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make lint: layout (clang-format), directions (layers.sh), clang-tidy, shell syntax.
set -u
build=${1:?usage: tests/lint/lint.sh BUILD}
cd "$(dirname "$0")/../.." || exit 2
fail=0
mapfile -t files < <(git ls-files '*.c' '*.h')
clang-format --dry-run -Werror "${files[@]}" || { echo "lint: run clang-format -i on the files above"; fail=1; }
tests/lint/layers.sh || fail=1
for s in $(git ls-files '*.sh'); do bash -n "$s" || fail=1; done
mapfile -t sources < <(git ls-files '*.c' | grep -v '^tests/fuzz/')
printf '%s\0' "${sources[@]}" |
    xargs -0 -P 2 -n 4 sh -c 'build=$1; shift
        exec clang-tidy --quiet "$@" -- -std=gnu17 -D_GNU_SOURCE -I. -I"$build/gen"' tidy "$build" >"$build/tidy.log" 2>/dev/null ||
    { grep -E 'error:|warning:' "$build/tidy.log" | sort -u | head -60; fail=1; }
[ $fail = 0 ] && echo "lint: clean"
exit $fail
