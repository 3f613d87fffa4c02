#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""deploy/local_cluster.sh with stand-ins for the daemons: what it starts, waits for, says and stops.

A stand-in binds the --address it is given, writes the --port-file and appends its command line to "calls".
A file "<what>.<daemon>" beside it scripts a misbehaviour. None of our own programs is needed.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(ROOT, "deploy", "local_cluster.sh")

DAEMON = r"""#!/usr/bin/python3 -IS
import os, signal, socket, sys, time
fake = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
args = dict(zip(sys.argv[1::2], sys.argv[2::2]))
name = os.path.basename(args["--port-file"])[:-5]
with open(fake + "/calls", "a") as f:
    f.write(" ".join(sys.argv) + "\n")
def scripted(what):
    return os.path.exists(fake + "/" + what + "." + name)
def stop(signum, frame):
    with open(fake + "/stops", "a") as f:
        f.write(name + "\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if scripted("stubborn") else stop)
if scripted("die"):
    sys.exit("scripted: " + name + " dies")
if scripted("deaf"):
    time.sleep(60)
host, port = args["--address"].rsplit(":", 1)
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((host, int(port)))
s.listen(8)
if scripted("robbed"):  # another process, which does not look like the daemon, holds the port from now on
    os.unlink(fake + "/robbed." + name)
    thief = os.fork()
    if thief == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(60)
        os._exit(0)
    with open(fake + "/thief", "w") as f:
        f.write(str(thief))
    sys.exit("scripted: address in use")
with open(args["--port-file"] + ".new", "w") as f:
    f.write("%s:%d\n" % s.getsockname())
os.rename(args["--port-file"] + ".new", args["--port-file"])
while True:
    signal.pause()
"""

TRAINCTL = r"""#!/bin/sh
fake=$(dirname "$0")/..
echo "$0 $*" >>"$fake/calls"
[ -e "$fake/missing" ] || exit 0
echo "missing: $(cat "$fake/missing")"
exit 1
"""


class World:
    """A directory with a blank in its name, the stand-ins, and a cluster directory."""

    def __enter__(self):
        self.temp = tempfile.TemporaryDirectory(prefix="steadfast test ")
        self.fake = self.temp.name
        self.dir = os.path.join(self.fake, "my cluster")
        os.mkdir(os.path.join(self.fake, "bin"))
        for name, text in [("coordinatord", DAEMON), ("psd", DAEMON), ("workerd", DAEMON), ("trainctl", TRAINCTL)]:
            path = os.path.join(self.fake, "bin", name)
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            os.chmod(path, 0o755)
        return self

    def __exit__(self, *_):
        self.run("down")
        if os.path.exists(self.fake + "/thief"):
            kill(int(self.read("thief")))
        self.temp.cleanup()

    def run(self, command, *args, rc=None):
        env = dict(os.environ, STEADFAST_BIN=os.path.join(self.fake, "bin"))
        done = subprocess.run([SCRIPT, command, self.dir, *args], env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
        if rc is not None:
            assert done.returncode == rc, f"{command}: exit {done.returncode}, want {rc}:\n{done.stdout}"
        return done.stdout

    def script(self, what, text=""):
        with open(os.path.join(self.fake, what), "w", encoding="utf-8") as f:
            f.write(text)

    def read(self, name):
        with open(os.path.join(self.fake, name), encoding="utf-8") as f:
            return f.read()

    def calls(self, program):
        prefix = os.path.join(self.fake, "bin", program) + " "
        return [c[len(prefix):] for c in self.read("calls").splitlines() if c.startswith(prefix)]

    def pid(self, name):
        with open(os.path.join(self.dir, name + ".pid"), encoding="utf-8") as f:
            return int(f.read())

    def coordinator(self):
        with open(os.path.join(self.dir, "cluster.env"), encoding="utf-8") as f:
            return re.fullmatch(r"STEADFAST_COORDINATOR=(127\.0\.0\.1:[0-9]+)\n", f.read()).group(1)


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def runs(pid):
    """A zombie does not run; who reaps it depends on the machine."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_gone(pid):
    deadline = time.monotonic() + 10
    while runs(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.01)


def up_starts_all_daemons_on_the_addresses_of_one_description(w):
    w.run("up", "--ps", "2", "--workers", "2", "--device", "fake", "--shards", "3", "--ps-args", "--memory 1G", rc=0)
    with open(os.path.join(w.dir, "tf_config.json"), encoding="utf-8") as f:
        cluster = json.load(f)["cluster"]
    assert list(map(len, (cluster["chief"], cluster["ps"], cluster["worker"]))) == [1, 2, 2], cluster
    every = cluster["chief"] + cluster["ps"] + cluster["worker"]
    assert len(set(every)) == 5, cluster
    assert w.coordinator() == cluster["chief"][0]
    chief = w.calls("coordinatord")
    assert len(chief) == 1 and f"--address {cluster['chief'][0]} --state-dir {w.dir}/state" in chief[0], chief
    psd = sorted(w.calls("psd"))
    assert len(psd) == 2, psd
    for i, line in enumerate(psd):
        for part in (f"--job_name ps --task_index {i} --address {cluster['ps'][i]}", "--shards 3", "--memory 1G",
                     f"--coordinator {w.coordinator()}", f"--tf-config {w.dir}/tf_config.json"):
            assert part in line, (part, line)
    workers = sorted(w.calls("workerd"))
    for i, line in enumerate(workers):
        for part in (f"--job_name worker --task_index {i} --address {cluster['worker'][i]}", "--device fake"):
            assert part in line, (part, line)
    for name in ("coordinatord", "psd-0", "psd-1", "workerd-0", "workerd-1"):
        assert runs(w.pid(name)), name
    assert w.run("status", rc=0).count(" running ") == 5


def down_stops_workers_then_servers_then_the_coordinator(w):
    w.run("up", "--ps", "2", "--workers", "2", rc=0)
    pids = [w.pid(n) for n in ("coordinatord", "psd-0", "psd-1", "workerd-0", "workerd-1")]
    w.run("down", rc=0)
    assert not any(map(runs, pids))
    kinds = [name.split("-")[0] for name in w.read("stops").split()]
    assert kinds == ["workerd", "workerd", "psd", "psd", "coordinatord"], kinds
    left = os.listdir(w.dir)
    assert "cluster.env" not in left and not [n for n in left if n.endswith(".pid")], left
    assert "state" in left and "coordinatord.log" in left, left
    w.run("down", rc=0)
    w.run("status", rc=1)


def a_second_up_on_a_running_cluster_is_refused_and_harms_nothing(w):
    w.run("up", rc=0)
    pid = w.pid("workerd-0")
    text = w.run("up", rc=1)
    assert "running cluster" in text and str(pid) in text, text
    assert w.pid("workerd-0") == pid and runs(pid)


def a_daemon_that_dies_at_start_is_named_with_its_log_and_nothing_stays(w):
    w.script("die.psd-1")
    text = w.run("up", "--ps", "2", "--workers", "1", rc=1)
    assert "psd-1 ended before it listened" in text and "scripted: psd-1 dies" in text, text
    assert not [n for n in os.listdir(w.dir) if n.endswith(".pid") or n == "cluster.env"]
    assert w.run("status", rc=1).count("running") == 0


def a_daemon_that_never_listens_is_named_at_the_deadline(w):
    w.script("deaf.workerd-0")
    text = w.run("up", "--timeout", "1", rc=1)
    assert re.search(r"workerd-0 does not listen after \d+ ms", text), text
    assert "coordinatord" in w.read("stops")


def a_member_that_does_not_attach_is_named_and_nothing_stays(w):
    w.script("missing", "worker:0 at 127.0.0.1:1")
    text = w.run("up", "--timeout", "1", rc=1)
    assert "missing: worker:0 at 127.0.0.1:1" in text, text
    assert not [n for n in os.listdir(w.dir) if n.endswith(".pid")]


def a_port_that_was_taken_meanwhile_leads_to_other_ports(w):
    w.script("robbed.psd-0")
    text = w.run("up", rc=0)
    assert re.search(r"port \d+ was taken meanwhile", text), text
    addresses = [re.search(r"--address (\S+)", c).group(1) for c in w.calls("psd")]
    assert len(addresses) == 2 and addresses[0] != addresses[1], addresses


def the_pid_file_of_another_process_is_not_believed(w):
    w.run("up", rc=0)
    ours = w.pid("workerd-0")
    with subprocess.Popen(["/bin/sleep", "60"]) as other:
        with open(os.path.join(w.dir, "workerd-0.pid"), "w", encoding="utf-8") as f:
            f.write(f"{other.pid}\n")
        assert re.search(r"workerd-0 +dead", w.run("status", rc=1))
        w.run("down", rc=0)
        assert other.poll() is None, "a process that is not ours was stopped"
        other.kill()
    kill(ours)


def a_killed_worker_comes_back_under_its_name_at_a_new_address(w):
    w.run("up", "--workers", "2", rc=0)
    old = w.pid("workerd-1")
    os.kill(old, signal.SIGKILL)
    wait_gone(old)
    w.run("status", rc=1)
    w.run("start", "workerd-1", "--new-address", rc=0)
    assert w.pid("workerd-1") != old
    last = w.calls("workerd")[-1]
    assert "--task_index 1 " in last and "--address 127.0.0.1:0 " in last, last
    w.run("status", rc=0)
    assert "runs already" in w.run("start", "workerd-1", rc=1)


def restart_keeps_the_address_and_add_worker_takes_a_new_one(w):
    w.run("up", "--worker-args", "--threads 2", rc=0)
    w.run("restart", "coordinatord", rc=0)
    first, second = w.calls("coordinatord")
    assert first == second
    w.run("add-worker", "late", rc=0)
    last = w.calls("workerd")[-1]
    for part in ("--name late", "--address 127.0.0.1:0", "--threads 2", f"--coordinator {w.coordinator()}", "--device cpu"):
        assert part in last, (part, last)
    late = w.pid("late")
    w.run("down", rc=0)
    assert not runs(late)
    assert w.read("stops").split()[-1] == "coordinatord"


def a_daemon_that_ignores_term_is_killed_after_the_grace(w):
    w.script("stubborn.workerd-0")
    w.run("up", rc=0)
    pid = w.pid("workerd-0")
    start = time.monotonic()
    text = w.run("down", rc=0)
    assert "workerd-0 did not stop in 10 s: killed" in text, text
    assert 9 < time.monotonic() - start < 20
    assert not runs(pid)


def wrong_usage_is_exit_2_and_starts_nothing(w):
    for args in (["--ps", "x"], ["--ps"], ["--device", "tpu"], ["--what", "1"], ["--workers", "99999"]):
        w.run("up", *args, rc=2)
    assert not os.path.exists(os.path.join(w.fake, "calls"))


TESTS = [f for f in list(globals().values()) if callable(f) and getattr(f, "__module__", "") == "__main__" and
         f not in (World, kill, runs, wait_gone)]


def main():
    failed = 0
    for test in TESTS:
        try:
            with World() as w:
                test(w)
            print(f"PASS test_local_cluster.{test.__name__}", flush=True)
        except Exception as e:  # pylint: disable=broad-except
            failed = 1
            why = " ".join(str(e).split())[:600]
            print(f"FAIL test_local_cluster.{test.__name__}: {type(e).__name__}: {why}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
