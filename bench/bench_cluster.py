#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench_cluster: whole-cluster figures with the real daemons on loopback.

  bench/bench_cluster.py BUILD [--runs N]

Prints one line a figure: name, median, unit, wanted, all runs. Dispatch: a job without operators on 4 workers with
fake devices, ledger on disk, synchronous; its elapsed time is the coordinator's own. Start: from the call of
local_cluster.sh to the first acknowledged step. Idle: resident memory and CPU of each daemon over some seconds.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, sys.argv[1] if len(sys.argv) > 1 else "build/release")
RUNS = int(sys.argv[sys.argv.index("--runs") + 1]) if "--runs" in sys.argv else 3
LOCAL = os.path.join(ROOT, "deploy/local_cluster.sh")
ENV = dict(os.environ, STEADFAST_BIN=os.path.join(BUILD, "bin"))


def up(folder, *options):
    subprocess.run([LOCAL, "up", folder, *options], check=True, env=ENV, stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, "cluster.env")) as file:
        return file.read().strip().split("=", 1)[1]


def down(folder):
    subprocess.run([LOCAL, "down", folder], env=ENV, stdout=subprocess.DEVNULL)


def ctl(address, *words):
    out = subprocess.run([os.path.join(BUILD, "bin/trainctl"), "--coordinator", address, "--json", *words],
                         stdout=subprocess.PIPE, check=True, env=ENV).stdout
    return json.loads(out)


def submit(address, folder, steps):
    path = os.path.join(folder, "job.json")
    with open(path, "w") as file:
        json.dump({"name": f"noop-{time.monotonic_ns()}", "seed": 1, "max_steps": steps, "model": {"name": "noop"},
                   "dataset": {"source": "none"}}, file)
    return str(ctl(address, "submit", path)["job"])


def wait(address, name, deadline_s=120):
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        status = ctl(address, "status", name)
        if status["state"] in ("succeeded", "failed", "cancelled"):
            return status
        time.sleep(0.1)
    raise SystemExit(f"bench_cluster: {name} did not end in {deadline_s} s")


def dispatch(folder):
    address = up(folder, "--ps", "1", "--workers", "4", "--device", "fake")
    try:
        rates = []
        for _ in range(RUNS):
            status = wait(address, submit(address, folder, 400000))
            assert status["steps"]["acknowledged"] == 400000, status
            rates.append(400000 / status["elapsed_seconds"])
        return rates
    finally:
        down(folder)


def latency(folder):
    address = up(folder, "--ps", "1", "--workers", "0", "--device", "fake")
    try:
        values = []
        for _ in range(RUNS):
            out = subprocess.run([os.path.join(BUILD, "bench/bench_latency"), address, "2000"], check=True,
                                 stdout=subprocess.PIPE, text=True).stdout
            acknowledged, ticket = (float(part.split()[0]) for part in out.split("p50=")[1:3])
            values.append((acknowledged, acknowledged + ticket))
        return values
    finally:
        down(folder)


def start(folder):
    path = os.path.join(folder, "job.json")
    with open(path, "w") as file:
        json.dump({"name": "first", "seed": 1, "max_steps": 100, "model": {"name": "noop"},
                   "dataset": {"source": "none"}}, file)
    began = time.monotonic()
    address = up(folder, "--ps", "2", "--workers", "2", "--device", "fake")
    try:
        name = str(ctl(address, "submit", path)["job"])
        while ctl(address, "status", name)["steps"]["acknowledged"] == 0:
            pass
        return time.monotonic() - began
    finally:
        down(folder)


def cpu_ticks(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def resident_mib(pid):
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


GROUPS = (("gRPC and what it stands on", ("libgrpc", "libgpr", "libupb", "libaddress_sorting", "libre2", "libabsl", "libcares")),
          ("TLS (gRPC sets it up)", ("libcrypto", "libssl")),
          ("oneDNN, OpenMP", ("libdnnl", "libgomp")),
          ("C and C++ libraries", ("libc.", "libm.", "libstdc++", "libgcc_s", "ld-linux")),
          ("SQLite, libuv, jansson, protobuf-c, zlib", ("libsqlite3", "libuv", "libjansson", "libprotobuf-c", "libz.")))


def where(pid, program):
    """{group: [resident, of it nobody else's and written]} in MiB, from the kernel's account of each mapping."""
    table, group = {}, None
    with open(f"/proc/{pid}/smaps") as file:
        for line_ in file:
            words = line_.split()
            if "-" in words[0] and not words[0].endswith(":"):
                base = os.path.basename(words[5]) if len(words) > 5 else ""
                group = next((name for name, heads in GROUPS if base.startswith(heads)), None)
                group = group or ("the program" if base == program else "heap, stacks, buffers")
            elif words[0] in ("Rss:", "Private_Dirty:"):
                table.setdefault(group, [0.0, 0.0])[words[0] != "Rss:"] += int(words[1]) / 1024
    return table


def idle(folder):
    up(folder, "--ps", "1", "--workers", "1", "--device", "cpu")
    try:
        pids = {}
        for name in ("coordinatord", "psd-0", "workerd-0"):
            with open(os.path.join(folder, name + ".pid")) as file:
                pids[name] = int(file.read())
        before = {name: cpu_ticks(pid) for name, pid in pids.items()}
        span = 10
        time.sleep(span)
        hz = os.sysconf("SC_CLK_TCK")
        return {name: (resident_mib(pid), 100.0 * (cpu_ticks(pid) - before[name]) / hz / span,
                       where(pid, name.split("-")[0]))
                for name, pid in pids.items()}
    finally:
        down(folder)


def line(name, values, unit, wanted):
    runs = " ".join(f"{value:.4g}" for value in values)
    print(f"{name:<38} {statistics.median(values):>10.4g} {unit:<9} want {wanted:<12} runs: {runs}", flush=True)


def main():
    with tempfile.TemporaryDirectory(prefix="steadfast-bench-") as top:
        def fresh():
            return tempfile.mkdtemp(dir=top)
        line("dispatch, 4 fake workers", dispatch(fresh()), "steps/s", ">= 40000")
        latencies = latency(fresh())
        line("report to acknowledged, p50", [first for first, _ in latencies], "us", "< 1000")
        line("ticket to acknowledged, p50, at most", [second for _, second in latencies], "us", "< 1000")
        line("cluster up and first step", [start(fresh()) for _ in range(RUNS)], "s", "< 1")
        for name, (rss, cpu, table) in idle(fresh()).items():
            line(f"idle {name} memory", [rss], "MiB", "< 20")
            line(f"idle {name} CPU", [cpu], "%", "< 0.5")
            for group, (resident, own) in sorted(table.items(), key=lambda row: -row[1][0]):
                print(f"    {resident:6.2f} MiB, of it its own {own:5.2f}   {group}")


main()
