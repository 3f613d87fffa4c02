#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make bench: every figure that docs/benchmarks.md quotes, one table. Never part of the tests.
set -eu
build=${1:?usage: bench/run.sh BUILD}
cd "$(dirname "$0")/.."
echo "# $(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg), $(uname -r)"
for program in bench_bulk bench_optim bench_step bench_ledger; do
    [ -x "$build/bench/$program" ] || continue
    echo "## $program"
    "$build/bench/$program"
done
echo "## bench_cluster"
bench/bench_cluster.py "$build"
