#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A whole cluster on this machine's loopback, for the demo, for tests and for trying things out.
# Everything it makes lies under DIR:
#   cluster.env     STEADFAST_COORDINATOR=host:port, for trainctl:  . DIR/cluster.env; export STEADFAST_COORDINATOR
#   tf_config.json  the cluster as every daemon reads it
#   NAME.pid NAME.log   of coordinatord, psd-0.., workerd-0..
#   state/          the coordinator's ledger; kept by down, so that a later up goes on from it
#   run/            port files and command lines
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: deploy/local_cluster.sh COMMAND DIR ...
  up DIR [options]           start a cluster and wait until every member is attached
      --ps N                 parameter servers (1)
      --workers N            workers (1)
      --device NAME          cpu, ref or fake (cpu); each worker gets its share of the cores as --threads
      --shards N             threads that own variables in each psd (psd's own default)
      --timeout S            how long to wait for all members (20)
      --log-level LEVEL      error, warn, info or debug (info)
      --coordinator-args ".." --ps-args ".." --worker-args ".."   more flags, split at blanks
  down DIR                   stop workers, then servers, then the coordinator; state and logs stay
  status DIR                 one line a daemon; exit 0 when all run
  add-worker DIR NAME        one more worker, at a new address, with the device of up
  start DIR DAEMON [--new-address]    start a daemon that died, with the flags it had
  restart DIR DAEMON [--new-address]  stop it first (DAEMON: coordinatord, psd-1, workerd-0, ...)
  stop DIR DAEMON
Binaries: $STEADFAST_BIN, else build/release/bin beside this script, else $PATH.
Exit: 0 done, 1 failed (and nothing left running by up), 2 usage.
TEXT
}

say() { echo "local_cluster: $*"; }
fail() { echo "local_cluster: $*" >&2; exit 1; }
misuse() { echo "local_cluster: $*" >&2; usage >&2; exit 2; }

readonly STOP_GRACE_MS=10000 # a worker finishes or returns its steps in this time
readonly PORT_ATTEMPTS=5     # a port can be taken between its choice and its use

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
exec {nap_fd}<> <(:) # nobody writes here: a read with a timeout is a sleep without a process
nap() { read -r -t 0.01 -u "$nap_fd" || true; }
now_ms() { local t=${EPOCHREALTIME/[.,]/}; echo $((t / 1000)); }

find_binaries() {
    if [ -n "${STEADFAST_BIN:-}" ]; then
        bin=$STEADFAST_BIN
    elif [ -x "$here/../build/release/bin/coordinatord" ]; then
        bin=$(cd -- "$here/../build/release/bin" && pwd)
    else
        bin=$(dirname -- "$(command -v coordinatord || echo /nowhere/x)")
    fi
    local name
    for name in coordinatord psd workerd trainctl; do
        [ -x "$bin/$name" ] || fail "no $name in $bin; build with make, or set STEADFAST_BIN"
    done
}

# Ports that can be bound now: below the range that outgoing connections draw from, where that leaves room, so
# that a daemon that is restarted finds its port free. "free N" prints N; "taken PORT" succeeds when it is in use.
ports() {
    local python=/usr/bin/python3
    [ -x $python ] || python=python3
    "$python" -I -S - "$@" <<'PYTHON'
import random, socket, sys

def bound(port):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the daemons do: a connection's remains do not count
    try:
        s.bind(("127.0.0.1", port))
        s.listen(1)
        return s
    except OSError:
        s.close()
        return None

if sys.argv[1] == "taken":
    sys.exit(0 if bound(int(sys.argv[2])) is None else 1)
try:
    with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
        top = int(f.read().split()[0])
except (OSError, ValueError):
    top = 0
held = []
for _ in range(10000):
    if len(held) == int(sys.argv[2]):
        break
    s = bound(random.randrange(10000, top) if top >= 14000 else 0)
    if s:
        held.append(s)
print(*[s.getsockname()[1] for s in held])
sys.exit(0 if len(held) == int(sys.argv[2]) else 1)
PYTHON
}

# ---- one daemon ---------------------------------------------------------------------------------
# pid_of NAME: prints the pid when that process runs and is ours: its port file is named on its command line.
pid_of() {
    local pid args=() arg
    { read -r pid <"$dir/$1.pid"; } 2>/dev/null || return 1
    [[ $pid =~ ^[0-9]+$ ]] || return 1
    { mapfile -d '' -t args <"/proc/$pid/cmdline"; } 2>/dev/null || return 1
    for arg in "${args[@]}"; do
        [ "$arg" = "$dir/run/$1.port" ] && { echo "$pid"; return 0; }
    done
    return 1
}

# is_gone NAME: its process has ended. Not the opposite of pid_of: a process that is just becoming its daemon has
# no command line for a moment.
is_gone() {
    local pid stat
    { read -r pid <"$dir/$1.pid"; } 2>/dev/null || return 0
    { read -r stat <"/proc/$pid/stat"; } 2>/dev/null || return 0
    stat=${stat##*) }
    [[ ${stat:0:1} == [ZX] ]]
}

# spawn NAME: starts the command line in run/NAME.argv, appends to the log, writes the pid file.
spawn() {
    local argv=()
    mapfile -d '' -t argv <"$dir/run/$1.argv"
    rm -f -- "$dir/run/$1.port"
    setsid "${argv[@]}" >>"$dir/$1.log" 2>&1 </dev/null {nap_fd}>&- 9>&- &
    local pid=$!
    echo "$pid" >"$dir/$1.pid.new"
    mv -- "$dir/$1.pid.new" "$dir/$1.pid"
}

# describe NAME PROGRAM ARGS...: keeps a command line for spawn.
describe() {
    local name=$1 program=$2
    shift 2
    printf '%s\0' "$bin/$program" "$@" --port-file "$dir/run/$name.port" >"$dir/run/$name.argv"
}

# stop_all NAME...: TERM to all of them, KILL to those still there after the grace.
stop_all() {
    local name pid deadline waiting
    for name; do
        if pid=$(pid_of "$name"); then kill -TERM "$pid" 2>/dev/null || true; fi
    done
    deadline=$(($(now_ms) + STOP_GRACE_MS))
    while :; do
        waiting=()
        for name; do
            if pid_of "$name" >/dev/null; then waiting+=("$name"); fi
        done
        [ ${#waiting[@]} -eq 0 ] && break
        if [ "$(now_ms)" -gt "$deadline" ]; then
            deadline=$(($(now_ms) + STOP_GRACE_MS)) # after a KILL it is only a matter of the kernel
            for name in "${waiting[@]}"; do
                say "$name did not stop in $((STOP_GRACE_MS / 1000)) s: killed"
                if pid=$(pid_of "$name"); then kill -KILL "$pid" 2>/dev/null || true; fi
            done
        fi
        nap
    done
    for name; do rm -f -- "$dir/$name.pid" "$dir/run/$name.port"; done
}

# members PREFIX: the names of daemons that were started here, coordinatord last.
members() {
    local file name
    for file in "$dir"/workerd*.pid "$dir"/*.pid "$dir"/psd-*.pid "$dir"/coordinatord.pid; do
        [ -f "$file" ] || continue
        name=$(basename -- "$file" .pid)
        case $name in psd-*) echo "2 $name" ;; coordinatord) echo "3 $name" ;; *) echo "1 $name" ;; esac
    done | sort -u | cut -d' ' -f2-
}
workers() { members | grep -vE '^(psd-[0-9]+|coordinatord)$' || true; }
servers() { members | grep -E '^psd-[0-9]+$' || true; }

stop_cluster() {
    local names
    mapfile -t names < <(workers)
    stop_all "${names[@]}"
    mapfile -t names < <(servers)
    stop_all "${names[@]}"
    stop_all coordinatord
    rm -f -- "$dir/cluster.env"
}

show_log() {
    [ -s "$dir/$1.log" ] || { echo "(nothing in $dir/$1.log)" >&2; return 0; }
    echo "---- end of $dir/$1.log" >&2
    tail -n 15 -- "$dir/$1.log" >&2
}

# wait_listening DEADLINE_MS NAME...: until each has written its port file. Leaves those that are late in
# `late`, and those that ended in `ended`.
wait_listening() {
    local deadline=$1 name
    shift
    while :; do
        late=() ended=()
        for name; do
            [ -s "$dir/run/$name.port" ] && continue
            late+=("$name")
            if is_gone "$name" && ! [ -s "$dir/run/$name.port" ]; then ended+=("$name"); fi
        done
        [ ${#late[@]} -eq 0 ] && return 0
        [ ${#ended[@]} -gt 0 ] && return 1
        [ "$(now_ms)" -gt "$deadline" ] && return 1
        nap
    done
}

# A process that was just forked is still this script, and pid_of does not know it yet: waits until each has
# become its daemon, or has ended.
wait_exec() {
    local name
    for name; do
        while ! pid_of "$name" >/dev/null && ! is_gone "$name"; do nap; done
    done
}

# ---- commands -----------------------------------------------------------------------------------
lock() {
    exec 9>"$dir/run/lock"
    flock -w 30 9 || fail "another local_cluster.sh works on $dir"
}

number() { # FLAG VALUE MIN MAX
    if ! [[ $2 =~ ^[0-9]{1,4}$ ]] || [ "$2" -lt "$3" ] || [ "$2" -gt "$4" ]; then
        misuse "$1: $2: want a number from $3 to $4"
    fi
}

json_list() { # ADDRESS...
    local out='' a
    for a; do out+="${out:+, }\"$a\""; done
    echo "[$out]"
}

cmd_up() {
    local ps=1 worker_count=1 shards='' timeout=20 level=info
    local coordinator_args=() ps_args=() worker_args=()
    device=cpu
    while [ $# -gt 0 ]; do
        [ $# -ge 2 ] || misuse "$1: wants a value"
        case $1 in
            --ps) number "$1" "$2" 0 256; ps=$2 ;;
            --workers) number "$1" "$2" 0 4096; worker_count=$2 ;;
            --device) case $2 in cpu | ref | fake) device=$2 ;; *) misuse "--device: $2: want cpu, ref or fake" ;; esac ;;
            --shards) number "$1" "$2" 1 64; shards=$2 ;;
            --timeout) number "$1" "$2" 1 600; timeout=$2 ;;
            --log-level) level=$2 ;;
            --coordinator-args) read -r -a coordinator_args <<<"$2" ;;
            --ps-args) read -r -a ps_args <<<"$2" ;;
            --worker-args) read -r -a worker_args <<<"$2" ;;
            *) misuse "$1: unknown option" ;;
        esac
        shift 2
    done
    # The workers share this machine's cores.
    case " ${worker_args[*]} " in
        *" --threads"*) ;;
        *) local share=$(($(nproc) / (worker_count > 0 ? worker_count : 1))); worker_args+=(--threads $((share > 0 ? share : 1))) ;;
    esac
    find_binaries
    local name names
    mapfile -t names < <(members)
    for name in "${names[@]}"; do
        if pid_of "$name" >/dev/null; then
            fail "$dir has a running cluster ($name, pid $(pid_of "$name")); stop it with: $0 down ${dir@Q}"
        fi
        rm -f -- "$dir/$name.pid"
    done
    rm -f -- "$dir/cluster.env" "$dir"/run/*.argv "$dir"/run/*.port
    mkdir -p -- "$dir/state"
    trap stop_cluster EXIT # whatever goes wrong from here on leaves nothing running
    trap 'exit 130' INT TERM HUP

    local attempt
    for ((attempt = 1; ; attempt++)); do
        try_up && break
        if [ "$stolen" = 0 ] || [ "$attempt" -ge $PORT_ATTEMPTS ]; then exit 1; fi
        say "port $stolen was taken meanwhile: trying other ports"
        stop_cluster
    done
    trap - EXIT INT TERM HUP
    say "up in $dir: coordinator at $coordinator, $ps psd, $worker_count workerd ($device)"
}

# One attempt; uses cmd_up's variables. On failure, stolen is the port that another process has, or 0 when the
# reason is another one, which is then said.
try_up() {
    stolen=0
    local port_list addresses=() i
    port_list=$(ports free $((1 + ps + worker_count))) || { echo "local_cluster: not enough free ports" >&2; return 1; }
    for i in $port_list; do addresses+=("127.0.0.1:$i"); done
    coordinator=${addresses[0]}
    local started_ms deadline
    started_ms=$(now_ms)
    deadline=$((started_ms + timeout * 1000))
    {
        printf '{"cluster": {"chief": ["%s"]' "$coordinator"
        [ "$ps" -eq 0 ] || printf ', "ps": %s' "$(json_list "${addresses[@]:1:ps}")"
        [ "$worker_count" -eq 0 ] || printf ', "worker": %s' "$(json_list "${addresses[@]:1+ps}")"
        printf '}}\n'
    } >"$dir/tf_config.json"

    local config=(--tf-config "$dir/tf_config.json" --log-level "$level")
    describe coordinatord coordinatord "${config[@]}" --address "$coordinator" --state-dir "$dir/state" "${coordinator_args[@]}"
    local names=(coordinatord)
    for ((i = 0; i < ps; i++)); do
        describe "psd-$i" psd "${config[@]}" --job_name ps --task_index "$i" --address "${addresses[1 + i]}" \
            --coordinator "$coordinator" ${shards:+--shards "$shards"} "${ps_args[@]}"
        names+=("psd-$i")
    done
    for ((i = 0; i < worker_count; i++)); do
        describe "workerd-$i" workerd "${config[@]}" --job_name worker --task_index "$i" \
            --address "${addresses[1 + ps + i]}" --coordinator "$coordinator" --device "$device" "${worker_args[@]}"
        names+=("workerd-$i")
    done
    # For add-worker: how this cluster's workers are started, without name and address.
    printf '%s\0' --log-level "$level" --coordinator "$coordinator" --device "$device" "${worker_args[@]}" >"$dir/run/worker.args"

    local name
    for name in "${names[@]}"; do spawn "$name"; done
    wait_exec "${names[@]}"
    local late=() ended=()
    if ! wait_listening "$deadline" "${names[@]}"; then
        for name in "${ended[@]}"; do
            for i in "${!names[@]}"; do
                if [ "${names[i]}" = "$name" ] && ports taken "${addresses[i]##*:}"; then
                    stolen=${addresses[i]##*:}
                    return 1
                fi
            done
        done
        for name in "${late[@]}"; do
            if pid_of "$name" >/dev/null; then
                echo "local_cluster: $name does not listen after $(($(now_ms) - started_ms)) ms" >&2
            else
                echo "local_cluster: $name ended before it listened" >&2
            fi
            show_log "$name"
        done
        return 1
    fi
    local left_s=$(((deadline - $(now_ms)) / 1000 + 1))
    if ! "$bin/trainctl" --coordinator "$coordinator" cluster --wait "$left_s" >"$dir/run/cluster.txt" 2>&1; then
        echo "local_cluster: not all members attached within $timeout s:" >&2
        cat -- "$dir/run/cluster.txt" >&2
        for name in "${names[@]}"; do
            pid_of "$name" >/dev/null || { echo "local_cluster: $name has ended" >&2; show_log "$name"; }
        done
        show_log coordinatord
        return 1
    fi
    echo "STEADFAST_COORDINATOR=$coordinator" >"$dir/cluster.env.new"
    mv -- "$dir/cluster.env.new" "$dir/cluster.env"
}

cmd_down() {
    [ $# -eq 0 ] || misuse "down: unexpected: $*"
    stop_cluster
    say "down in $dir"
}

cmd_status() {
    [ $# -eq 0 ] || misuse "status: unexpected: $*"
    local names name pid address all=0
    mapfile -t names < <(members)
    [ ${#names[@]} -gt 0 ] || { say "no cluster in $dir"; return 1; }
    for name in "${names[@]}"; do
        address=''
        { read -r address <"$dir/run/$name.port"; } 2>/dev/null || true
        if pid=$(pid_of "$name"); then
            printf '%-14s running  pid %-8s at %s\n' "$name" "$pid" "${address:-(not listening yet)}"
        else
            printf '%-14s dead\n' "$name"
            all=1
        fi
    done
    return $all
}

# launch NAME: spawn and wait until it listens, or say why not.
launch() {
    local late=() ended=()
    spawn "$1"
    wait_exec "$1"
    if ! wait_listening $(($(now_ms) + 20000)) "$1"; then
        show_log "$1"
        stop_all "$1"
        fail "$1 did not start"
    fi
    say "$1 runs, pid $(<"$dir/$1.pid"), at $(<"$dir/run/$1.port")"
}

cmd_add_worker() {
    [ $# -eq 1 ] || misuse "add-worker: wants DIR NAME"
    [[ $1 =~ ^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$ ]] || misuse "add-worker: $1: want letters, digits, dots, dashes"
    case $1 in psd-* | coordinatord) misuse "add-worker: $1: not a name for a worker" ;; esac
    [ -s "$dir/cluster.env" ] || fail "no cluster in $dir; start one with: $0 up ${dir@Q}"
    ! pid_of "$1" >/dev/null || fail "$1 runs already, pid $(pid_of "$1")"
    find_binaries
    local args=()
    mapfile -d '' -t args <"$dir/run/worker.args"
    describe "$1" workerd --name "$1" --address 127.0.0.1:0 "${args[@]}"
    launch "$1"
}

cmd_start() {
    [ $# -ge 1 ] || misuse "wants DIR DAEMON"
    local name=$1
    [ -s "$dir/run/$name.argv" ] || fail "no daemon $name in $dir (there are: $(members | tr '\n' ' '))"
    case ${2:-} in
        '') ;;
        --new-address)
            [ "$name" != coordinatord ] || misuse "the coordinator's address is known to all others: it cannot change"
            local argv=() i
            mapfile -d '' -t argv <"$dir/run/$name.argv"
            for i in "${!argv[@]}"; do
                if [ "${argv[i]}" = --address ]; then argv[i + 1]=127.0.0.1:0; fi
            done
            printf '%s\0' "${argv[@]}" >"$dir/run/$name.argv"
            ;;
        *) misuse "$2: unknown option" ;;
    esac
    ! pid_of "$name" >/dev/null || fail "$name runs already, pid $(pid_of "$name")"
    launch "$name"
}

cmd_stop() {
    [ $# -eq 1 ] || misuse "stop: wants DIR DAEMON"
    [ -s "$dir/run/$1.argv" ] || fail "no daemon $1 in $dir (there are: $(members | tr '\n' ' '))"
    stop_all "$1"
}

case ${1:-} in
    -h | --help | help) usage; exit 0 ;;
    up | down | status | add-worker | start | restart | stop) ;;
    '') misuse "want a command" ;;
    *) misuse "$1: unknown command" ;;
esac
[ -n "${2:-}" ] || misuse "$1: wants a directory"
command=$1
dir=$(realpath -m -- "$2")
shift 2
if [ "$command" = up ]; then
    mkdir -p -- "$dir/run"
elif [ ! -d "$dir/run" ]; then
    [ "$command" = down ] && { say "no cluster in $dir"; exit 0; }
    fail "no cluster in $dir"
fi
[ "$command" = status ] || lock
bin=''
case $command in
    up) cmd_up "$@" ;;
    down) cmd_down "$@" ;;
    status) cmd_status "$@" ;;
    add-worker) cmd_add_worker "$@" ;;
    start) cmd_start "$@" ;;
    stop) cmd_stop "$@" ;;
    restart)
        [ $# -ge 1 ] || misuse "restart: wants DIR DAEMON"
        cmd_stop "$1"
        cmd_start "$@"
        ;;
esac
