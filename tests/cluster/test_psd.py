#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The parameter server as a process: what it refuses, what it says while it waits, what it takes, how it leaves."""
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import (  # noqa: E402  pylint: disable=wrong-import-position
    BIN, BUILD, SCALE, Cluster, Skip, assert_exact, main, synthetic, test, wait_until)

NOBODY = "127.0.0.1:1"  # a port that refuses connections
TICKS = os.sysconf("SC_CLK_TCK")


def without_config():
    return {key: value for key, value in os.environ.items() if key != "TF_CONFIG"}


class Server:
    """One psd with nobody to attach to, from `with` to its end."""

    def __init__(self, *args, env=None):
        self.temp = tempfile.TemporaryDirectory(prefix="steadfast-psd-")
        self.port_file = os.path.join(self.temp.name, "port")
        self.log_path = os.path.join(self.temp.name, "log")
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([os.path.join(BIN, "psd"), "--port-file", self.port_file, *args],
                                            stdin=subprocess.DEVNULL, stderr=log,
                                            env={**without_config(), **(env or {})})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.temp.cleanup()

    def log(self):
        with open(self.log_path, encoding="utf-8") as f:
            return f.read()

    def address(self):
        wait_until(lambda: os.path.exists(self.port_file) or self.process.poll() is not None, 10, self.log)
        with open(self.port_file, encoding="utf-8") as f:
            return f.read().strip()

    def end(self, deadline_s=10):
        return self.process.wait(deadline_s * SCALE)


def alone(*args):
    return Server("--coordinator", NOBODY, "--task_index", "0", "--address", "127.0.0.1:0", *args)


def refused(*args, rc=2, env=None):
    """What it said, in one line, within a second."""
    begin = time.monotonic()
    with Server(*args, env=env) as s:
        assert s.end() == rc, s.log()
        took = time.monotonic() - begin
        lines = [line for line in s.log().splitlines() if line]
        assert len(lines) == 1 and "level=error" in lines[0], s.log()
        assert took < SCALE, f"refused after {took:.2f} s"
        assert not os.path.exists(s.port_file)
        return lines[0]


@test(limit_s=20)
def a_bad_description_is_refused_at_once_with_the_place():
    def config(**task):
        return {"TF_CONFIG": json.dumps({"cluster": {"chief": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"],
                                                     "worker": ["127.0.0.1:3"]}, "task": task})}

    assert "TF_CONFIG" in refused(env={"TF_CONFIG": "{"})
    assert "index" in refused(env=config(type="ps", index=1))
    assert "worker" in refused(env=config(type="worker", index=0))
    assert "--task_index" in refused("--coordinator", NOBODY, "--address", "127.0.0.1:0", "--task_index", "x")
    assert "shards" in refused("--shards", "0")
    assert "--memory" in refused("--memory", "lots")
    assert "--log-level" in refused("--log-level", "loud")
    assert "nosuch" in refused("--nosuch", "1")
    assert "/nonexistent" in refused("--tf-config", "/nonexistent/tf.json")
    assert "127.0.0.1" in refused("--coordinator", NOBODY, "--task_index", "0", "--address", "127.0.0.1:99999")


@test(limit_s=20)
def a_port_that_is_taken_is_said_once_and_ends_it():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        said = refused("--coordinator", NOBODY, "--task_index", "0", "--address", address, rc=1)
        assert address in said and "in use" in said, said


@test(limit_s=20)
def a_port_file_that_cannot_be_written_ends_it():
    done = subprocess.run([os.path.join(BIN, "psd"), "--coordinator", NOBODY, "--task_index", "0", "--address",
                           "127.0.0.1:0", "--port-file", "/nonexistent/port"], stdin=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, timeout=20 * SCALE, text=True, check=False,
                          env=without_config())
    assert done.returncode == 1 and "/nonexistent/port" in done.stderr, done.stderr


@test(limit_s=40)
def it_says_for_whom_it_waits_and_leaves_at_sigterm():
    with alone() as s:
        host, port = s.address().rsplit(":", 1)
        assert host == "127.0.0.1" and int(port) > 0
        wait_until(lambda: re.search(r"waiting for chief:0 at 127\.0\.0\.1:1\b", s.log()), 15, s.log)
        begin = time.monotonic()
        s.process.send_signal(signal.SIGTERM)
        assert s.end() == 0, s.log()
        took = time.monotonic() - begin
        assert took < 2 * SCALE, f"left after {took:.2f} s"
        return f"left after {1000 * took:.0f} ms"


@test(limit_s=40)
def what_is_no_rpc_at_its_port_changes_nothing():
    with alone() as s:
        host, port = s.address().rsplit(":", 1)
        for noise in (b"\0" * 5000, os.urandom(5000), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                      b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(3000)):
            with socket.create_connection((host, int(port)), timeout=10) as c:
                try:
                    c.sendall(noise)
                    c.settimeout(10)
                    while c.recv(4096):
                        pass
                except ConnectionError:
                    pass  # closed is what we want
        assert s.process.poll() is None, s.log()
        s.process.send_signal(signal.SIGTERM)
        assert s.end() == 0, s.log()


@test(limit_s=40)
def an_idle_server_takes_little_memory_and_no_time():
    with alone("--shards", "2") as s:
        s.address()

        def used():
            with open(f"/proc/{s.process.pid}/stat", encoding="utf-8") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / TICKS

        wait_until(lambda: "coordinator.wait" in s.log(), 15, s.log)
        begin, begin_s = used(), time.monotonic()
        time.sleep(3)  # the measurement itself
        share = 100 * (used() - begin) / (time.monotonic() - begin_s)
        with open(f"/proc/{s.process.pid}/status", encoding="utf-8") as f:
            rss_mib = int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) / 1024
        if SCALE == 1:
            assert rss_mib < 20, f"{rss_mib:.1f} MiB resident"
            assert share < 1, f"{share:.2f} % of a processor"  # one tick in three seconds is 0.33 %
        return f"{rss_mib:.1f} MiB, {share:.2f} %"


@test(limit_s=90)
def servers_that_are_killed_come_back_from_the_checkpoint_with_exact_counts():
    with Cluster(ps=2, workers=2, shards=2, worker_args="--fake-script=step_us=2000") as c:
        job = c.submit(synthetic("mlp", steps=1200, optimizer={"name": "adam", "learning_rate": 0.001},
                                 checkpoint={"directory": c.path("ckpt"), "every_steps": 100, "max_to_keep": 3}))
        for i in range(2):
            c.wait_acked(job, 300 * (i + 1), 40)
            c.kill(f"psd-{i}")
            c.start_daemon(f"psd-{i}")
        s = assert_exact(c.wait_end(job, 60), total=1200, shards=4)
        restored = [n for n in s["notices"] if "restored from" in n]
        assert len(restored) == 2, s["notices"]
        return "; ".join(n.split(": ")[-1] for n in restored)


def address_space(pid):
    with open(f"/proc/{pid}/statm", encoding="utf-8") as f:
        return int(f.read().split()[0]) * resource.getpagesize()


@test(limit_s=90)
def a_job_for_which_the_system_has_no_memory_fails_by_its_sizes_and_the_others_go_on():
    if os.path.basename(BUILD) != "release":
        raise Skip("the sanitizers want address space of their own")
    with Cluster(ps=1, workers=1, worker_args="--fake-script=step_us=2000") as c:
        pid = c.pid("psd-0")
        small = c.submit(synthetic("mlp", name="small", steps=3000))
        c.wait_acked(small, 100)
        large = synthetic("mlp", name="large", steps=5)
        large["model"]["hidden"] = [2048, 2048]  # 16 MiB of values, and momentum
        before = address_space(pid)
        limits = resource.prlimit(pid, resource.RLIMIT_AS)
        resource.prlimit(pid, resource.RLIMIT_AS, (before + (40 << 20), limits[1]))
        s = c.wait_end(c.submit(large), 20)
        assert s["state"] == "failed", s
        assert re.search(r"NO_MEMORY: job large shard 0: map [0-9]{8,} bytes: ", s["reason"]), s["reason"]
        wait_until(lambda: address_space(pid) < before + (16 << 20), 5, "what it had of it is given back")
        acked = c.status(small)["steps"]["acknowledged"]
        s = c.wait_acked(small, acked + 100)
        assert s["state"] == "running", s
        resource.prlimit(pid, resource.RLIMIT_AS, limits)
        assert_exact(c.wait_end(c.submit(large), 30), total=5, shards=1)
        assert_exact(c.wait_end(small), total=3000, shards=1)


@test(limit_s=60)
def a_job_beyond_the_budget_fails_by_its_sizes_and_the_others_go_on():
    with Cluster(ps=1, workers=1, ps_args="--memory=64M", worker_args="--fake-script=step_us=2000") as c:
        small = c.submit(synthetic("mlp", name="small", steps=600))
        c.wait_acked(small, 50)
        large = synthetic("mlp", name="large", steps=5)
        large["model"]["hidden"] = [4096, 4096]
        s = c.wait_end(c.submit(large), 20)
        assert s["state"] == "failed" and str(64 << 20) in s["reason"], s
        assert "large" in s["reason"] and re.search(r"[0-9]{9,} bytes", s["reason"]), s["reason"]
        assert_exact(c.wait_end(small), total=600, shards=1)


if __name__ == "__main__":
    sys.exit(main())
