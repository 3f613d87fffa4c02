#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every test program of a build and adds their lines up.
#   tests/run.sh [--quick | --san] BUILD [NAME...]    NAME picks programs by substring
# Prints PASS/FAIL/SKIP lines, the seconds that each kind and the slowest programs took (all of them:
# BUILD/test-times.txt), and, last, "N passed, N failed, N skipped". Exit 1 when any failed.
#   --quick    what `make check` runs: fewer schedules of the simulator, and one test with real daemons
#   --san      limits for sanitizers; no cluster tests unless STEADFAST_SAN_CLUSTER=1
# TEST_JOBS programs of one kind run at once (one a core), but those that start daemons one after another: they
# watch leases run out, and another's load would look like a dead machine.
set -u
usage="usage: tests/run.sh [--quick | --san] BUILD [NAME...]"
readonly QUICK_SCHEDULES=500
readonly QUICK_CLUSTER=(tests/cluster/test_faults_worker.py the_steps_of_a_dead_worker_go_to_another_when_its_lease_is_over)
san=0 quick=0
case ${1:-} in
    --san) san=1; shift ;;
    --quick) quick=1; shift ;;
esac
build=${1:?$usage}
shift
names=("$@")
cd "$(dirname "$0")/.." || exit 2
[ -d "$build/tests" ] || { echo "tests/run.sh: $build: no tests are built there; want build/<variant>, relative to the checkout" >&2; exit 2; }

if [ $san = 1 ]; then
    export TEST_TIME_SCALE=10
    export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1}
    export TSAN_OPTIONS=${TSAN_OPTIONS:-ignore_noninstrumented_modules=1 halt_on_error=1}
fi
[ $quick = 1 ] && export SIM_SCHEDULES=${SIM_SCHEDULES:-$QUICK_SCHEDULES}
jobs=${TEST_JOBS:-$(nproc)}
[ "$jobs" -gt 8 ] && jobs=8 # most of them wait; more than this only makes the clocks of the others wrong
export STEADFAST_BUILD=$PWD/$build
work=$(mktemp -d)
log=$work/log times=$work/times
: >"$log"
: >"$times"
trap 'rm -rf -- "$work"' EXIT
# A background process of a script does not get the terminal's interrupt.
stop() {
    local pid
    for pid in $(jobs -pr); do kill "$pid" 2>/dev/null; done
    wait
    exit 130
}
trap stop INT TERM HUP

wanted() { # PROGRAM
    [ ${#names[@]} -eq 0 ] && return 0
    local n
    for n in "${names[@]}"; do case $1 in *"$n"*) return 0 ;; esac; done
    return 1
}

now_ms() { local t=${EPOCHREALTIME/[.,]/}; echo $((t / 1000)); }
seconds() { printf '%d.%d' $(($1 / 1000)) $(($1 % 1000 / 100)); }

# report PROGRAM RC OUT ERR: one line a test; what it said on stderr is shown when it failed.
report() {
    grep -E '^(PASS|FAIL|SKIP) ' "$3" | tee -a "$log"
    if [ "$2" -ne 0 ]; then
        grep -qE '^FAIL ' "$3" || echo "FAIL $(basename "$1"): exit status $2" | tee -a "$log"
        echo "---- stderr of $1 (last 40 lines)"; tail -40 "$4"; echo "----"
    elif ! grep -qE '^(PASS|FAIL|SKIP) ' "$3"; then
        echo "FAIL $(basename "$1"): ran no test" | tee -a "$log"
    fi
}

run() { # LIMIT_S PROGRAM [ARGUMENT...]
    local out rc begin limit=$1
    shift
    out=$(mktemp -p "$work")
    begin=$(now_ms)
    # A background process of a script starts with interrupts ignored; a test is not to notice.
    timeout --kill-after=10 "$limit" env --default-signal=INT,QUIT "$@" >"$out" 2>"$out.err" </dev/null &
    local child=$!
    trap 'kill "$child" 2>/dev/null; wait; exit 130' INT TERM HUP
    wait "$child"
    rc=$?
    {
        flock 8 # one program's lines stay together
        report "$1" $rc "$out" "$out.err"
        echo "$(($(now_ms) - begin)) $kind $(basename "$1")" >>"$times"
    } 8>"$work/lock"
    rm -f "$out" "$out.err"
}

# run_kind AT_ONCE LIMIT_S PROGRAM...: those that are wanted.
run_kind() {
    local at_once=$1 limit=$2 prog running=0
    shift 2
    for prog; do
        [ -x "$prog" ] && [ ! -d "$prog" ] && wanted "$prog" || continue
        if [ $running -ge "$at_once" ]; then
            wait -n
            running=$((running - 1))
        fi
        run "$limit" "$prog" &
        running=$((running + 1))
    done
    wait
}

# begin_kind NAME / end_kind: how long all programs of a kind took together.
begin_kind() { kind=$1 kind_begin=$(now_ms); }
end_kind() {
    grep -q " $kind " "$times" || return 0
    echo "$(($(now_ms) - kind_begin)) $kind all" >>"$times"
}

sources_of() { # KIND: programs that still have a source; a build folder keeps those of removed tests
    local prog
    for prog in "$build/tests/$1"/test_*; do
        [ -f "tests/$1/$(basename "$prog").c" ] && programs+=("$prog")
    done
}

for kind in unit parity fault; do
    begin_kind $kind
    programs=()
    [ $kind = unit ] && programs=(tests/lint/test_*.sh)
    sources_of $kind
    run_kind "$jobs" 600 "${programs[@]}"
    end_kind
done
if [ $quick = 1 ]; then
    begin_kind cluster
    [ ${#names[@]} -eq 0 ] && { run 100 "${QUICK_CLUSTER[@]}" & wait; }
    end_kind
elif [ $san = 0 ] || [ "${STEADFAST_SAN_CLUSTER:-0}" = 1 ]; then
    begin_kind cluster
    run_kind 1 400 tests/cluster/test_*.py
    end_kind
fi
if [ $quick = 0 ] && [ $san = 0 ]; then
    begin_kind additions
    run_kind 1 600 tests/additions/test_*.py
    end_kind
fi

p=$(grep -c '^PASS ' "$log")
f=$(grep -c '^FAIL ' "$log")
s=$(grep -c '^SKIP ' "$log")
while read -r ms kind prog; do echo "$(seconds "$ms") $kind $prog"; done <"$times" >"$build/test-times.txt"
echo "time: $(awk '$3 == "all" { printf "%s%s %s s", n++ ? ", " : "", $2, $1 }' "$build/test-times.txt")"
echo "slowest: $(sort -rn "$build/test-times.txt" | awk '$3 != "all" && n < 8 { printf "%s%s %s s", n++ ? ", " : "", $3, $1 }')"
[ "$f" -gt 0 ] && { echo "failed:"; grep '^FAIL ' "$log"; }
echo "$p passed, $f failed, $s skipped"
[ "$f" -eq 0 ] && [ "$p" -gt 0 ]
