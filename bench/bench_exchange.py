#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""bench_exchange: what training over parameter servers costs against the same training in one process.

  bench/bench_exchange.py BUILD [--rounds N] [--steps N] [--no-peer-memory]

Each round runs, one after another: one process (bench_train: input, forward, backward, optimizer; one thread), a cluster
of 1 psd and 1 workerd, a cluster of 2 psd and 2 workerd; lenet, batch 64, momentum, synthetic records, one thread a worker.
A cluster's rate counts from a tenth of its steps on. Printed: medians over the rounds, the ratios of the rates of the
same round (2 + 2 against twice the one process), shares of a step's time, and processor time a step by daemon.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, sys.argv[1] if len(sys.argv) > 1 and sys.argv[1][0] != "-" else "build/release")
LOCAL = os.path.join(ROOT, "deploy/local_cluster.sh")
ENV = dict(os.environ, STEADFAST_BIN=os.path.join(BUILD, "bin"))
HZ = os.sysconf("SC_CLK_TCK")


def option(name, value):
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else value


ROUNDS, STEPS = option("--rounds", 5), option("--steps", 400)
NETWORK = "--no-peer-memory" in sys.argv


def one_process():
    out = subprocess.run([os.path.join(BUILD, "bench/bench_train"), "lenet", "64", "5"], check=True, text=True,
                         stdout=subprocess.PIPE).stdout
    return float(out.split(":")[1].split()[0])


def processor_seconds(folder):
    seconds = {}
    for name in os.listdir(folder):
        if name.endswith(".pid"):
            with open(os.path.join(folder, name)) as file, open(f"/proc/{file.read().strip()}/stat") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
            daemon = name.split(".")[0].split("-")[0]
            seconds[daemon] = seconds.get(daemon, 0) + (int(fields[11]) + int(fields[12])) / HZ
    return seconds


def cluster(top, count):
    """(steps/s, mean seconds of a step by phase, processor seconds a step by daemon)"""
    folder = tempfile.mkdtemp(dir=top)
    more = ["--ps-args", "--no-peer-memory", "--worker-args", "--no-peer-memory --threads 1"] if NETWORK else \
        ["--worker-args", "--threads 1"]
    subprocess.run([LOCAL, "up", folder, "--ps", str(count), "--workers", str(count), "--device", "cpu", *more], check=True,
                   env=ENV, stdout=subprocess.DEVNULL)
    try:
        with open(os.path.join(folder, "cluster.env")) as file:
            address = file.read().strip().split("=", 1)[1]
        steps = STEPS * count
        path = os.path.join(folder, "job.json")
        with open(path, "w") as file:
            json.dump({"name": "lenet", "seed": 1, "model": {"name": "lenet", "num_classes": 10},
                       "dataset": {"source": "synthetic", "records": steps * 64, "height": 28, "width": 28, "channels": 1,
                                   "batch_size": 64, "shuffle_buffer": 10000},
                       "optimizer": {"name": "momentum", "momentum": 0.9, "learning_rate": 0.002},
                       "variable_partitioner": {"name": "min_size", "min_shard_bytes": 262144, "max_shards": 2}}, file)
        ctl = [os.path.join(BUILD, "bin/trainctl"), "--coordinator", address, "--json"]
        before = processor_seconds(folder)
        job = str(json.loads(subprocess.run([*ctl, "submit", path], check=True, stdout=subprocess.PIPE, env=ENV).stdout)["job"])
        marks, status = [], None
        with subprocess.Popen([*ctl, "watch", job, "--interval-ms", "100"], stdout=subprocess.PIPE, env=ENV) as watch:
            for line in watch.stdout:
                seen = json.loads(line)
                if "steps" in seen:
                    status = seen
                    marks.append((time.monotonic(), status["steps"]["acknowledged"]))
        assert status and status["state"] == "succeeded", status
        after = processor_seconds(folder)
        begin = next(mark for mark in marks if mark[1] >= steps // 10)
        end = next(mark for mark in marks if mark[1] == steps)
        rate = (end[1] - begin[1]) / (end[0] - begin[0])
        return rate, status["phases"], {name: (after[name] - before[name]) / steps for name in after}
    finally:
        subprocess.run([LOCAL, "down", folder], env=ENV, stdout=subprocess.DEVNULL)


def show(name, values, unit="", form="%.2f"):
    runs = " ".join(form % value for value in values)
    print(f"{name:<52} {form % statistics.median(values):>9} {unit:<8} [{runs}]", flush=True)


def details(name, runs):
    phases = ("compute", "serialise", "copy", "wait", "apply")
    means = {phase: statistics.median(run[1][phase + "_seconds"] for run in runs) for phase in phases}
    whole = sum(means.values())
    print(f"  {name}: of {whole * 1e3:.1f} ms a step " +
          ", ".join(f"{phase} {100 * means[phase] / whole:.1f} %" for phase in phases))
    print("  processor time a step: " + ", ".join(
        f"{daemon} {1e3 * statistics.median(run[2][daemon] for run in runs):.2f} ms" for daemon in sorted(runs[0][2])))


def main():
    with tempfile.TemporaryDirectory(prefix="steadfast-bench-") as top:
        alone, small, large = [], [], []
        for _ in range(ROUNDS):
            alone.append(one_process())
            small.append(cluster(top, 1))
            alone.append(one_process())
            large.append(cluster(top, 2))
    pairs = [(alone[2 * k] + alone[2 * k + 1]) / 2 for k in range(ROUNDS)]
    show("one process", alone, "steps/s")
    show("1 psd, 1 workerd", [run[0] for run in small], "steps/s")
    show("  against the one process (wanted: 0.85)", [run[0] / one for run, one in zip(small, pairs)])
    details("1 + 1", small)
    show("2 psd, 2 workerd", [run[0] for run in large], "steps/s")
    show("  against twice the one process (wanted: 0.75)", [run[0] / one / 2 for run, one in zip(large, pairs)])
    details("2 + 2", large)


main()
