#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make lint: layout (clang-format), directions (layers.sh), lengths of functions, shell and Python, clang-tidy.
#   tests/lint/lint.sh [--quick] BUILD    --quick: what takes seconds; make check runs it
set -u
quick=0
[ "${1:-}" = --quick ] && { quick=1; shift; }
build=${1:?usage: tests/lint/lint.sh [--quick] BUILD}
cd "$(dirname "$0")/../.." || exit 2
. tests/lint/files.sh
fail=0
tools=(clang-format)
[ $quick = 1 ] || tools+=(shellcheck clang-tidy)
for tool in "${tools[@]}"; do
    command -v "$tool" >/dev/null || { echo "lint: $tool is missing: run deploy/deps.sh lint" >&2; exit 1; }
done

tree_files c h | tr '\n' '\0' | xargs -0 -P "$(nproc)" -n 40 clang-format --dry-run -Werror ||
    { echo "lint: run clang-format -i on the files above"; fail=1; }
tests/lint/layers.sh || fail=1
tests/lint/functions.sh >"$build/functions.txt" || fail=1
if [ $quick = 0 ] || grep -q '^functions.sh:' "$build/functions.txt"; then cat "$build/functions.txt"; fi
mapfile -t scripts < <(tree_files sh; echo .ci/run)
for s in "${scripts[@]}"; do bash -n "$s" || fail=1; done
tree_files py | xargs -d '\n' python3 -c '
import ast, sys
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as f:
        ast.parse(f.read(), path)' || fail=1
if [ $quick = 0 ]; then
    shellcheck -x -S warning "${scripts[@]}" || fail=1
    tree_files c | grep -v '^tests/fuzz/' | tr '\n' '\0' |
        xargs -0 -P "$(nproc)" -n 4 sh -c 'build=$1; shift
            exec clang-tidy --quiet "$@" -- -std=gnu17 -D_GNU_SOURCE -I. -I"$build/gen"' tidy "$build" >"$build/tidy.log" 2>/dev/null ||
        { grep -E 'error:|warning:' "$build/tidy.log" | sort -u | head -60; fail=1; }
fi
[ $fail = 0 ] && echo "lint: clean"
exit $fail
