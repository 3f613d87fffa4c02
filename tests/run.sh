#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every test program of a build, fast ones first, and adds their lines up.
#   tests/run.sh [--san] BUILD [NAME...]    NAME picks programs by substring
# Prints PASS/FAIL/SKIP lines and, last, "N passed, N failed, N skipped". Exit 1 when any failed.
set -u
san=0
[ "${1:-}" = --san ] && { san=1; shift; }
build=${1:?usage: tests/run.sh [--san] BUILD [NAME...]}
shift
cd "$(dirname "$0")/.." || exit 2
[ -d "$build/tests" ] || { echo "tests/run.sh: $build: no tests are built there; want build/<variant>, relative to the checkout" >&2; exit 2; }

if [ $san = 1 ]; then
    export TEST_TIME_SCALE=10
    export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1}
    export TSAN_OPTIONS=${TSAN_OPTIONS:-ignore_noninstrumented_modules=1 halt_on_error=1}
fi
export STEADFAST_BUILD=$PWD/$build
log=$(mktemp)
trap 'rm -f "$log"' EXIT

wanted() { # PROGRAM
    [ $# -eq 1 ] && [ ${#names[@]} -eq 0 ] && return 0
    local n
    for n in "${names[@]}"; do case $1 in *"$n"*) return 0 ;; esac; done
    return 1
}
names=("$@")

run() { # PROGRAM LIMIT_S: one line a test on stdout; what it says on stderr is shown when it fails
    local out err rc
    out=$(mktemp) err=$(mktemp)
    timeout --kill-after=10 "$2" "$1" >"$out" 2>"$err" </dev/null
    rc=$?
    grep -E '^(PASS|FAIL|SKIP) ' "$out" | tee -a "$log"
    if [ $rc -ne 0 ]; then
        grep -qE '^FAIL ' "$out" || echo "FAIL $(basename "$1"): exit status $rc" | tee -a "$log"
        echo "---- stderr of $1 (last 40 lines)"; tail -40 "$err"; echo "----"
    elif ! grep -qE '^(PASS|FAIL|SKIP) ' "$out"; then
        echo "FAIL $(basename "$1"): ran no test" | tee -a "$log"
    fi
    rm -f "$out" "$err"
}

for kind in unit parity fault; do
    for prog in "$build"/tests/$kind/test_*; do
        [ -x "$prog" ] && [ ! -d "$prog" ] && [ -f "tests/$kind/$(basename "$prog").c" ] && wanted "$prog" && run "$prog" 600
    done
done
if [ $san = 0 ] || [ "${STEADFAST_SAN_CLUSTER:-0}" = 1 ]; then
    for prog in tests/cluster/test_*.py; do
        [ -x "$prog" ] && wanted "$prog" && run "$prog" 400
    done
fi
p=$(grep -c '^PASS ' "$log")
f=$(grep -c '^FAIL ' "$log")
s=$(grep -c '^SKIP ' "$log")
[ "$f" -gt 0 ] && { echo "failed:"; grep '^FAIL ' "$log"; }
echo "$p passed, $f failed, $s skipped"
[ "$f" -eq 0 ] && [ "$p" -gt 0 ]
