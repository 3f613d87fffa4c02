#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The commands of CONTRIBUTING.md, "The first hour", as they stand there: each works and shows what it is said to show."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import (  # noqa: E402  pylint: disable=wrong-import-position
    BUILD, MNIST, ROOT, SCALE, SCRIPT, Skip, main, test)

EXAMPLE = "docs/examples/fashion-lenet.json"


def blocks():
    """The indented blocks of the section, one text each."""
    with open(os.path.join(ROOT, "CONTRIBUTING.md"), encoding="utf-8") as f:
        section = re.search(r"^## The first hour$(.*?)^## ", f.read(), flags=re.M | re.S)[1]
    found = re.findall(r"(?:^    .*\n)+", section, flags=re.M)
    return [re.sub(r"^    ", "", block, flags=re.M) for block in found]


def block_with(word):
    """The commands that mention it, from all blocks that do."""
    found = [block for block in blocks() if word in block]
    assert found, f"CONTRIBUTING.md, the first hour: no block mentions {word}"
    return "".join(found)


def tried(commands, temp="/tmp/sf", job=EXAMPLE):
    """Runs them in one shell, from the top of the tree. Returns (what they said, those that failed)."""
    if os.path.realpath(BUILD) != os.path.realpath(os.path.join(ROOT, "build", "release")):
        raise Skip(f"the commands are those of build/release, not of {BUILD}")
    with open(os.path.join(BUILD, "flags.stamp"), encoding="utf-8") as f:
        compiler = f.read().split(" -D_GNU_SOURCE")[0]  # make has to find nothing to do
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "DEBUGINFOD_URLS")}
    lines = [line for line in commands.splitlines() if not line.startswith("deploy/deps.sh")]
    script = "\n".join(["set -u", "trap 'echo \"FAILED: $BASH_COMMAND\"' ERR", *lines])
    script = script.replace("/tmp/sf", temp).replace(EXAMPLE, job)
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, env=env | {"CC": compiler}, stdin=subprocess.DEVNULL, timeout=80 * SCALE,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    return done.stdout, re.findall(r"^FAILED: (.*)", done.stdout, flags=re.M)


def want(said, *words):
    for word in words:
        if word not in said:
            print(said, file=sys.stderr)
            raise AssertionError(f"the commands did not show {word!r}: ...{said[-300:]}")


@test(limit_s=90)
def one_program_one_test_one_case_and_the_database_for_editors():
    said, failed = tried(block_with("compile_commands.json"))
    assert not failed, f"{failed}: {said[-600:]}"
    want(said, "usage: trainctl", "PASS test_faults_worker.a_step_that_fails_once_is_tried_again")
    ran = re.findall(r"^PASS test_ranges\.(\w+)", said, flags=re.M)
    again = [name for name in ran if ran.count(name) == 2]
    assert 0 < len(again) < len(ran) and all("random" in name for name in again), f"want all cases, then those of one word: {ran}"
    with open(os.path.join(ROOT, "compile_commands.json"), encoding="utf-8") as f:
        known = {entry["file"]: entry["command"] for entry in json.load(f)}
    for path in ("psd/shard/shard.c", "psd/shell/../main.c", "tests/unit/test_ranges.c", "tests/harness.c"):
        path = os.path.normpath(path)
        assert f" -c -o build/release/obj/{path[:-2]}.o {path}" in known.get(path, ""), f"{path}: {known.get(path)}"


@test(limit_s=90)
def a_daemon_in_a_cluster_stops_in_gdb_where_a_step_is_applied():
    if not shutil.which("gdb"):
        raise Skip("gdb is not installed")
    if not os.path.isdir(MNIST):
        raise Skip(f"no {MNIST}")
    temp = tempfile.mkdtemp(prefix="steadfast-")
    try:
        with open(os.path.join(ROOT, EXAMPLE), encoding="utf-8") as f:
            example = json.load(f)
        example["checkpoint"]["directory"] = os.path.join(temp, "ckpt")
        job = os.path.join(temp, "job.json")
        with open(job, "w", encoding="utf-8") as f:
            json.dump(example, f)
        said, failed = tried(block_with("/tmp/sf"), temp=temp, job=job)
        if "ptrace: Operation not permitted" in said:
            raise Skip("this machine does not let processes be traced")
        assert not failed, f"{failed}: {said[-600:]}"
        want(said, "job 1 submitted", "fashion-lenet: running")
        assert said.count("hit Breakpoint 1, shard_apply") == 2, f"want the breakpoint hit attached and started: {said[-900:]}"
        want(said, "$1 = {job = 1", "run_push")
    finally:
        subprocess.run([SCRIPT, "down", temp], stdout=subprocess.DEVNULL, check=False)
        shutil.rmtree(temp, ignore_errors=True)


@test(limit_s=60)
def a_seed_of_the_simulator_is_the_same_schedule_again():
    said, failed = tried(block_with("SIM_SEED"))
    want(said, "0.000000 coordinator starts", "record 1 kind 1 job 1", "FAIL test_sim.one_schedule")
    assert not failed, f"{failed}: {said[-600:]}"
    again, _ = tried(block_with("SIM_SEED"))
    keep = r"^(?: +[0-9.]+ .*|FAIL .*)$"
    assert re.findall(keep, said, flags=re.M) == re.findall(keep, again, flags=re.M), "two runs of one seed differ"


if __name__ == "__main__":
    sys.exit(main())
