#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The demo: 1 coordinatord, 2 psd and 2 workerd on loopback train lenet on the 60,000 images of Fashion-MNIST,
# asynchronously. After some hundred acknowledged steps one worker is killed with SIGKILL; later it comes back as a new
# process at another address. At the end every step is accounted for.
#   deploy/demo.sh BUILD            (make demo)
#   RESUME=1 deploy/demo.sh BUILD   one epoch more, from the last run's newest checkpoint, in a new cluster
# Exit: 0 when accuracy is at least 0.89, nothing was lost or repeated and all counts agree. Else 1.
# DEMO_DIR (build/demo) keeps checkpoints and logs between runs.
set -euo pipefail

build=${1:?usage: deploy/demo.sh BUILD}
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname -- "$here")
[ -d "$build/bin" ] || { echo "demo: no programs in $build/bin; run make first" >&2; exit 1; }
STEADFAST_BIN=$(cd -- "$build/bin" && pwd)
export STEADFAST_BIN
dir=$(realpath -m -- "${DEMO_DIR:-$root/build/demo}")
cluster=$dir/cluster
python=/usr/bin/python3
readonly KILL_AT=400      # acknowledged steps of this run before the worker dies
readonly RETURN_AFTER=500 # further steps before it comes back
readonly LIMIT_S=900      # a machine on which the demo takes longer than this is not what it is for

trainctl() { "$STEADFAST_BIN/trainctl" "$@"; }
# Lines of the script go above the live line of the watch, where there is one.
say() {
    if [ -t 1 ]; then printf '\r\033[Kdemo: %s\n' "$*"; else printf 'demo: %s\n' "$*"; fi
}

saboteur='' watcher=''
clean_up() {
    local rc=$?
    trap - EXIT
    trap '' INT TERM HUP # the cleaning is short and must be whole
    local pid
    for pid in $saboteur $watcher; do kill "$pid" 2>/dev/null || true; done
    "$here/local_cluster.sh" down "$cluster" >/dev/null || true
    exit $rc
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# ---- the job ------------------------------------------------------------------------------------
"$here/local_cluster.sh" down "$cluster" >/dev/null # of a run that was ended with SIGKILL
rm -rf -- "$cluster"
resume=()
epochs=3
if [ "${RESUME:-0}" = 1 ]; then
    if ! compgen -G "$dir/ckpt/ckpt-*/manifest.json" >/dev/null || [ ! -s "$dir/epochs" ]; then
        echo "demo: nothing to resume in $dir; run make demo without RESUME first" >&2
        exit 1
    fi
    epochs=$(($(<"$dir/epochs") + 1))
    resume=(--resume)
else
    rm -rf -- "$dir/ckpt" "$dir/epochs"
fi
mkdir -p -- "$dir"
"$python" - "$root/docs/examples/fashion-lenet.json" "$dir/ckpt" "$epochs" >"$dir/job.json" <<'PYTHON'
import json, sys
with open(sys.argv[1], encoding="utf-8") as f:
    job = json.load(f)
job["checkpoint"]["directory"] = sys.argv[2]
job["epochs"] = int(sys.argv[3])
print(json.dumps(job, indent=2))
PYTHON

"$here/local_cluster.sh" up "$cluster" --ps 2 --workers 2 --device cpu
# shellcheck disable=SC1091 # written by the line above
. "$cluster/cluster.env"
export STEADFAST_COORDINATOR
trainctl cluster
job=$(trainctl submit "$dir/job.json" "${resume[@]}" --json | "$python" -c 'import json, sys; print(json.load(sys.stdin)["job"])')
echo "$epochs" >"$dir/epochs"
say "job $job: lenet on Fashion-MNIST, asynchronous, until epoch $epochs${resume:+, from the newest checkpoint}"

# ---- the accident -------------------------------------------------------------------------------
# Follows the job by one connection of its own and acts at the counts it sees.
sabotage() {
    local line now start='' pid='' is_back=''
    [ ${#resume[@]} -gt 0 ] || start=0 # a resumed job begins with the steps of its checkpoint
    while IFS= read -r line; do
        [[ $line =~ \"acknowledged\":([0-9]+) ]] || continue
        now=${BASH_REMATCH[1]}
        if [ -z "$start" ]; then
            if [ "$now" -gt 0 ]; then start=$now; fi
        elif [ -z "$pid" ] && [ "$now" -ge $((start + KILL_AT)) ]; then
            pid=$(<"$cluster/workerd-1.pid")
            kill -KILL "$pid"
            echo "$pid" >"$dir/killed"
            say "worker:1 (pid $pid) killed with SIGKILL; worker:0 goes on, with its steps too"
        elif [ -z "$is_back" ] && [ "$now" -ge $((start + KILL_AT + RETURN_AFTER)) ]; then
            is_back=1
            if "$here/local_cluster.sh" start "$cluster" workerd-1 --new-address >"$dir/return.log" 2>&1; then
                say "worker:1 is back: pid $(<"$cluster/workerd-1.pid"), at $(<"$cluster/run/workerd-1.port")"
            else
                say "worker:1 did not come back: $(tail -n 1 -- "$dir/return.log")"
            fi
        fi
    done < <(exec "$STEADFAST_BIN/trainctl" watch "$job" --json --interval-ms 250 --reconnect 1 2>/dev/null)
}
rm -f -- "$dir/killed"
sabotage &
saboteur=$!

# In the background, because a trap does not run while bash waits for a command in the foreground.
rc=0
timeout --foreground "$LIMIT_S" "$STEADFAST_BIN/trainctl" watch "$job" &
watcher=$!
wait "$watcher" || rc=$?
watcher=''
[ $rc -eq 124 ] && say "not done after $LIMIT_S s"
kill "$saboteur" 2>/dev/null || true
wait "$saboteur" 2>/dev/null || true
saboteur=''

# ---- the account --------------------------------------------------------------------------------
trainctl status "$job" --json >"$dir/status.json"
trainctl cluster --json >"$dir/cluster.json"
killed=''
[ -s "$dir/killed" ] && killed=$(<"$dir/killed")
report=0
"$python" "$here/demo_report.py" "$dir/status.json" "$dir/cluster.json" "$killed" || report=1
if [ $rc -ne 0 ] || [ $report -ne 0 ]; then
    echo "demo: failed; logs are in $cluster" >&2
    exit 1
fi
echo "demo: done. RESUME=1 make demo goes on for one more epoch; checkpoints are in $dir/ckpt"
