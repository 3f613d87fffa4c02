# SPDX-License-Identifier: Apache-2.0
"""Real daemons on loopback for tests: start them, break them, ask them, and clean up whatever happened.

A test is a function decorated with @test; it makes its own Cluster:

    @test(limit_s=40)
    def a_sentence_about_behaviour():
        with Cluster(ps=2, workers=2) as c:
            job = c.submit(synthetic("mlp"))
            assert_exact(c.wait_end(job))

main() runs the tests of a program, each under a time limit, and prints "PASS file.name", "FAIL file.name: why" or
"SKIP file.name: why". A test may return a text, a measurement, that is printed with its PASS. Arguments pick tests by
substring. STEADFAST_BUILD names the build (build/release), STEADFAST_KEEP=1 keeps the directories of failed tests,
TEST_TIME_SCALE stretches every limit (sanitizers).

Owns    every process of a Cluster: this process becomes the subreaper, so the daemons that local_cluster.sh leaves
        behind are our children and their exit status is known. A daemon that ended without being killed by the
        test, or with another status than 0, fails the test. Processes are ended by pid only.
"""
import ctypes
import errno
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(ROOT, "deploy", "local_cluster.sh")
BUILD = os.environ.get("STEADFAST_BUILD") or os.path.join(ROOT, "build", "release")
BIN = os.path.join(BUILD, "bin")
SCALE = float(os.environ.get("TEST_TIME_SCALE", "1"))
MNIST = "/usr/share/datasets/fashion-mnist/"
PR_SET_CHILD_SUBREAPER = 36
ENDED = ("succeeded", "failed", "cancelled")
POLL_S = 0.03  # between two looks at the cluster

OK, FAILED, USAGE, UNREACHABLE, CANCELLED = 0, 1, 2, 3, 4  # exit codes of trainctl


class Skip(Exception):
    """The machine lacks what the test needs."""


class TimeLimit(Exception):
    """The test ran longer than it may."""


# ---- waiting -----------------------------------------------------------------------------------
def wait_until(look, deadline_s, what):
    """Calls look() until it answers something true, which is returned; what: for the failure, a text or a function."""
    end = time.monotonic() + deadline_s * SCALE
    while True:
        answer = look()
        if answer:
            return answer
        if time.monotonic() > end:
            said = what() if callable(what) else what
            raise AssertionError(f"not within {deadline_s * SCALE:g} s: {said}")
        time.sleep(POLL_S)


def lease_args(lease_ms=1000, heartbeat_ms=100, more=""):
    """Coordinator flags for tests that wait for a lease to run out."""
    return (f"--lease-ms {int(lease_ms * SCALE)} --heartbeat-ms {heartbeat_ms} "
            f"--recover-ms {int(3000 * SCALE)} {more}").strip()


# ---- processes ---------------------------------------------------------------------------------
def runs(pid):
    """A zombie does not run."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_stopped(pid):
    """By SIGSTOP."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        return f.read().rsplit(")", 1)[1].split()[0] in "Tt"


def send(pid, signum):
    """Whether it was there to get it."""
    try:
        os.kill(pid, signum)
        return True
    except ProcessLookupError:
        return False


class Daemon:
    """One process that local_cluster.sh started."""

    def __init__(self, name, pid):
        self.name = name
        self.pid = pid
        self.status = None  # exit code, or minus the signal, once it has ended
        self.may_die = False

    def has_ended(self):
        if self.status is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # so soon that it was still the script's child: its status is not known
                return not runs(self.pid)
            if pid == 0:
                return False
            self.status = os.waitstatus_to_exitcode(status)
        return True

    def wait_end(self, fails=True):
        """For the moment between the last breath of a process and its exit status."""
        try:
            return wait_until(self.has_ended, 2, f"{self.name} (pid {self.pid}) ends")
        except AssertionError:
            if fails:
                raise
            return False

    def said(self):
        if self.status is None:
            return "ended"
        return f"was killed by {signal.Signals(-self.status).name}" if self.status < 0 else f"ended with {self.status}"


class Cluster:
    """A cluster in a directory of its own, from `with` to its end.

    start=False: only the directory is made; up() starts the daemons.
    """

    def __init__(self, ps=1, workers=1, device="fake", shards=None, coordinator_args="", ps_args="", worker_args="",
                 start=True):
        self.up_args = ["--ps", str(ps), "--workers", str(workers), "--device", device]
        for flag, value in (("--shards", shards), ("--coordinator-args", coordinator_args), ("--ps-args", ps_args),
                            ("--worker-args", worker_args)):
            if value:
                self.up_args += [flag, str(value)]
        self.start = start
        self.temp = self.dir = None
        self.daemons = {}  # pid -> Daemon, all there ever were
        self.mounts = []
        self.side = []  # other processes of the test (watches)
        self.wires = []
        self.job_files = 0
        self.up_s = None

    def __enter__(self):
        self.temp = tempfile.mkdtemp(prefix="steadfast-")
        self.dir = os.path.join(self.temp, "cluster")
        os.mkdir(self.dir)
        try:
            if self.start:
                self.up()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind, value, trace):
        limit = signal.setitimer(signal.ITIMER_REAL, 0)  # cleaning up is not interrupted
        try:
            problems = self.stop()
            is_bad = kind is not None and not issubclass(kind, Skip)
            if is_bad or problems:
                self.show()
            for wire in self.wires:
                wire.close()
            for path in reversed(self.mounts):
                subprocess.run(["umount", "-l", path], check=False)
            if (is_bad or problems) and os.environ.get("STEADFAST_KEEP"):
                print(f"kept {self.temp}", file=sys.stderr)
            else:
                shutil.rmtree(self.temp, ignore_errors=True)
        finally:
            signal.setitimer(signal.ITIMER_REAL, limit[0] and max(limit[0], 0.001))
        if problems and kind is None:
            raise AssertionError("; ".join(problems))

    # -- start and stop
    def script(self, command, *args, rc=0, env=None):
        """deploy/local_cluster.sh; returns what it said."""
        full = dict(os.environ, STEADFAST_BIN=BIN, **(env or {}))
        done = subprocess.run([SCRIPT, command, self.dir, *args], env=full, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.note_daemons()
        if rc is not None and done.returncode != rc:
            print(done.stdout, file=sys.stderr)
            raise AssertionError(f"local_cluster.sh {command} {' '.join(args)}: exit {done.returncode}, "
                                 f"want {rc}: ...{done.stdout[-600:]}")
        return done.stdout

    def up(self, env=None):
        begin = time.monotonic()
        self.script("up", *self.up_args, env=env)
        self.up_s = time.monotonic() - begin

    def down(self):
        """All of them, in order; up() starts them again on what they left on disk."""
        for daemon in self.daemons.values():
            daemon.may_die = daemon.may_die or not daemon.has_ended()
        said = self.script("down")
        assert "did not stop" not in said, said
        for daemon in self.daemons.values():
            daemon.wait_end()

    def start_daemon(self, name, *args, env=None):
        self.script("start", name, *args, env=env)

    def stop_daemon(self, name):
        """SIGTERM, and wait until it has left in order."""
        daemon = self.daemon(name)
        daemon.may_die = True
        self.script("stop", name)
        daemon.wait_end()
        assert daemon.status in (0, None), f"{name} {daemon.said()} when it was stopped"

    def restart(self, name, *args, env=None):
        self.stop_daemon(name)
        self.start_daemon(name, *args, env=env)

    def add_worker(self, name):
        self.script("add-worker", name)

    def note_daemons(self):
        for file in os.listdir(self.dir):
            if not file.endswith(".pid"):
                continue
            try:
                with open(os.path.join(self.dir, file), encoding="utf-8") as f:
                    pid = int(f.read())
            except (FileNotFoundError, ValueError):
                continue
            if pid not in self.daemons:
                self.daemons[pid] = Daemon(file[:-4], pid)

    def stop(self):
        """Ends everything. Returns what ended in another way than it should have."""
        problems = []
        for proc in self.side:
            if proc.poll() is None:
                proc.kill()
            proc.wait()
        for daemon in self.daemons.values():
            if daemon.has_ended() and not daemon.may_die:
                problems.append(f"{daemon.name} (pid {daemon.pid}) {daemon.said()} before it was stopped")
            elif daemon.status is None:
                send(daemon.pid, signal.SIGCONT)
        ended_before = {d.pid for d in self.daemons.values() if d.has_ended()}
        if os.path.isdir(os.path.join(self.dir, "run")):
            said = self.script("down", rc=None)
            problems += [line for line in said.splitlines() if "did not stop" in line]
        for daemon in self.daemons.values():
            if not daemon.wait_end(fails=False):
                problems.append(f"{daemon.name} (pid {daemon.pid}) was not stopped by down")
                send(daemon.pid, signal.SIGKILL)
                wait_until(daemon.has_ended, 10, f"{daemon.name} dies of SIGKILL")
            elif daemon.pid not in ended_before and daemon.status not in (0, None) and not daemon.may_die:
                problems.append(f"{daemon.name} (pid {daemon.pid}) {daemon.said()} when it was stopped")
        return problems

    # -- one daemon
    def daemon(self, name):
        self.note_daemons()
        with open(os.path.join(self.dir, name + ".pid"), encoding="utf-8") as f:
            return self.daemons[int(f.read())]

    def pid(self, name):
        return self.daemon(name).pid

    def kill(self, name):
        """kill -9, and wait until it is gone."""
        daemon = self.daemon(name)
        daemon.may_die = True
        send(daemon.pid, signal.SIGKILL)
        wait_until(daemon.has_ended, 10, f"{name} dies of SIGKILL")

    def pause(self, name):
        daemon = self.daemon(name)
        assert send(daemon.pid, signal.SIGSTOP), f"{name} is not there"
        wait_until(lambda: is_stopped(daemon.pid), 5, f"{name} is stopped")

    def go_on(self, name):
        assert send(self.pid(name), signal.SIGCONT), f"{name} is not there"

    def wait_dead(self, name, deadline_s=20, what=""):
        """Until a daemon ends by itself; returns its exit code, or minus the signal."""
        daemon = self.daemon(name)
        daemon.may_die = True
        wait_until(daemon.has_ended, deadline_s, f"{name} ends by itself {what}")
        return daemon.status

    def set_args(self, name, **flags):
        """Changes the command line a daemon gets at its next start; None takes a flag away."""
        path = self.path("run", name + ".argv")
        with open(path, encoding="utf-8") as f:
            argv = f.read().split("\0")[:-1]
        for key, value in flags.items():
            flag = "--" + key.replace("_", "-")
            argv = [a for i, a in enumerate(argv) if a != flag and argv[i - 1] != flag and
                    not a.startswith(flag + "=")]
            if value is not None:
                argv.append(f"{flag}={value}")
        with open(path, "w", encoding="utf-8") as f:
            f.write("".join(a + "\0" for a in argv))

    def wire_to(self, address):
        """A wire that can be held, for as long as the cluster lives."""
        self.wires.append(Wire(address))
        return self.wires[-1]

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def log(self, name):
        try:
            with open(self.path(name + ".log"), encoding="utf-8", errors="replace") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def show(self, lines=12):
        """The ends of all logs, for whoever looks at a failure."""
        for file in sorted(os.listdir(self.dir)):
            if file.endswith(".log"):
                tail = self.log(file[:-4]).splitlines()[-lines:]
                print(f"---- end of {file}", *[line[:300] for line in tail], sep="\n", file=sys.stderr)

    def coordinator(self):
        with open(self.path("cluster.env"), encoding="utf-8") as f:
            return f.read().strip().split("=", 1)[1]

    def address(self, name):
        """Where a daemon listens."""
        with open(self.path("run", name + ".port"), encoding="utf-8") as f:
            text = f.read().strip()
        return text if ":" in text else "127.0.0.1:" + text

    def mount_small(self, path, size):
        """A file system of so many bytes at path; skips the test where we may not."""
        os.makedirs(path, exist_ok=True)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0755", "tmpfs", path],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise Skip(f"cannot mount a small file system: {done.stdout.strip()}")
        self.mounts.append(path)

    def run_daemon(self, program, *args, env=None, timeout_s=20):
        """A daemon that is expected to end by itself: (exit code, what it said, seconds it took)."""
        begin = time.monotonic()
        full = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"} | (env or {})
        with subprocess.Popen([os.path.join(BIN, program), *args], env=full, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as proc:
            try:
                said, _ = proc.communicate(timeout=timeout_s * SCALE)
            except BaseException:
                proc.kill()
                proc.communicate()
                raise
        return proc.returncode, said, time.monotonic() - begin

    def spawn(self, program, *args):
        """One more daemon beside the cluster's; ended with it."""
        with open(self.path(f"spawned-{len(self.side)}.log"), "wb") as log:
            proc = subprocess.Popen([os.path.join(BIN, program), *args], stdin=subprocess.DEVNULL, stdout=log,
                                    stderr=subprocess.STDOUT)
        self.side.append(proc)
        return proc

    # -- trainctl
    def ctl_raw(self, *args, timeout_s=30, stdin=None):
        """trainctl as a person calls it: (exit code, stdout, stderr)."""
        env = dict(os.environ, STEADFAST_COORDINATOR=self.coordinator())
        done = subprocess.run([os.path.join(BIN, "trainctl"), *args], env=env, input=stdin, text=True,
                              stdin=subprocess.DEVNULL if stdin is None else None,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=timeout_s * SCALE)
        return done.returncode, done.stdout, done.stderr

    def ctl(self, *args, timeout_s=30):
        """trainctl --json; its answer, parsed. A failure is an AssertionError with its words."""
        rc, out, err = self.ctl_raw("--json", *args, timeout_s=timeout_s)
        if rc != OK:
            raise AssertionError(f"trainctl {' '.join(args)}: exit {rc}: {err.strip() or out.strip()}")
        return json.loads(out)

    def write_job(self, job):
        self.job_files += 1
        path = self.path(f"job-{self.job_files}.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(job, f)
        return path

    def submit(self, job, *args):
        """Returns the job's number as the text that trainctl takes."""
        return str(self.ctl("submit", self.write_job(job), *args)["job"])

    def status(self, job):
        return self.ctl("status", job)

    def cluster(self):
        return self.ctl("cluster")

    def member(self, name):
        """None when the coordinator does not know it."""
        for member in self.cluster()["members"]:
            if member["name"] == name:
                return member
        return None

    def wait_status(self, job, look, deadline_s, what):
        """The first status for which look(status) is true."""
        last = {}

        def once():
            last.clear()
            last.update(self.status(job))
            return dict(last) if look(last) else None

        return wait_until(once, deadline_s, lambda: f"{what}; last: {brief(last)}")

    def wait_acked(self, job, count, deadline_s=20):
        return self.wait_status(job, lambda s: s["steps"]["acknowledged"] >= count or s["state"] in ENDED, deadline_s,
                                f"{count} steps acknowledged")

    def wait_end(self, job, deadline_s=40):
        return self.wait_status(job, lambda s: s["state"] in ENDED, deadline_s, "the job ends")

    def watch(self, job, *args):
        """A running `trainctl watch`; ended with the cluster."""
        env = dict(os.environ, STEADFAST_COORDINATOR=self.coordinator())
        with open(self.path(f"watch-{job}.out"), "wb") as out:
            proc = subprocess.Popen([os.path.join(BIN, "trainctl"), "watch", job, *args], env=env,
                                    stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        self.side.append(proc)
        return proc

    def watch_output(self, job):
        with open(self.path(f"watch-{job}.out"), encoding="utf-8") as f:
            return f.read()


class Wire:
    """TCP between a daemon and an address; while held nothing passes and nobody is told."""

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self.target = (host, int(port))
        self.passing = threading.Event()
        self.passing.set()
        self.ends = []
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.server.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def close(self):
        self.passing.set()
        for end in [self.server, *self.ends]:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def accept(self):
        while True:
            try:
                near, _ = self.server.accept()
                self.passing.wait()
                far = socket.create_connection(self.target, timeout=5)
            except OSError:
                if self.server.fileno() < 0:
                    return
                near.close()
                continue
            far.settimeout(None)
            self.ends += [near, far]
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self.forward, args=(a, b), daemon=True).start()

    def forward(self, a, b):
        try:
            while data := a.recv(65536):
                self.passing.wait()
                b.sendall(data)
            self.passing.wait()
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def hold(self):
        self.passing.clear()

    def release(self):
        self.passing.set()


# ---- what a job must look like -----------------------------------------------------------------
def brief(status):
    """A job's status on one line."""
    if not status:
        return "no status"
    text = f"{status['state']} ({status['phase']}) {status['reason']} {status['steps']}"
    text += f" lost {status['lost']} repeated {status['repeated']} duplicates {status['duplicates_refused']}"
    text += f" applied {[s['applied'] for s in status['shards']]} generation {status['generation']}"
    return text + f" notices {status['notices'][-4:]}"


def assert_exact(status, total=None, abandoned=0, shards=None):
    """Succeeded, and every shard applied every acknowledged step once, by what shards and ledger say."""
    steps = status["steps"]
    said = brief(status)
    assert status["state"] == "succeeded", said
    assert total is None or steps["total"] == total, f"want {total} steps in all: {said}"
    assert steps["issued"] == steps["total"], said
    assert steps["abandoned"] == abandoned, f"want {abandoned} abandoned: {said}"
    assert steps["acknowledged"] == steps["total"] - abandoned, said
    assert status["accounting_final"] is True, said
    assert status["lost"] == 0 and status["repeated"] == 0, said
    assert status["shards"], f"no shard holds anything: {said}"
    assert shards is None or len(status["shards"]) == shards, f"want {shards} shards: {said}"
    for shard in status["shards"]:
        assert shard["applied"] == steps["acknowledged"], said
    return status


def error_lines(said):
    """The lines of a daemon's log at level error or warn."""
    return [line for line in said.splitlines() if "level=error" in line or "level=warn" in line]


def fill_up(path):
    """Takes every byte that is left in a file system. Returns the file that holds them."""
    filler = os.path.join(path, "filler")
    with open(filler, "wb", buffering=0) as f:
        for size in (65536, 4096, 512, 1):
            try:
                while True:
                    f.write(b"x" * size)
            except OSError as e:
                if e.errno != errno.ENOSPC:
                    raise
    return filler


def read_safetensors(path):
    """{name: shape} of a safetensors file whose sizes agree with its header."""
    with open(path, "rb") as f:
        data = f.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    shapes = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32", entry
        count = 4
        for dim in entry["shape"]:
            count *= dim
        begin, end = entry["data_offsets"]
        assert end - begin == count and 8 + length + end <= len(data), (name, entry)
        shapes[name] = entry["shape"]
    return shapes


# ---- jobs --------------------------------------------------------------------------------------
def synthetic(model="mlp", name=None, steps=400, batch=4, epochs=1, evaluate=False, side=8, checkpoint=None, **more):
    """A job on records drawn from the seed; so many steps an epoch. More fields of the job as keywords."""
    job = {
        "name": name or f"synthetic-{model}", "seed": 7, "epochs": epochs,
        "model": {"name": model, "num_classes": 4},
        "dataset": {"source": "synthetic", "records": steps * batch, "batch_size": batch, "height": side,
                    "width": side, "shuffle_buffer": 64},
        "optimizer": {"name": "momentum", "learning_rate": 0.005, "momentum": 0.9},
        "placement": "by_size",
    }
    if model == "mlp":
        job["model"]["hidden"] = [32]
        job["variable_partitioner"] = {"name": "fixed_shards", "num_shards": 2}
    if evaluate:
        job["eval_dataset"] = {"source": "synthetic", "records": 200, "batch_size": 50, "height": side, "width": side}
    if checkpoint:
        job["checkpoint"] = checkpoint
    job.update(more)
    return job


def noop(steps, name="noop"):
    return {"name": name, "model": {"name": "noop"}, "max_steps": steps}


def fashion(model="softmax", name=None, epochs=1, batch=64, **more):
    """Fashion-MNIST; skips where the data is not installed."""
    if not os.path.exists(MNIST + "train-images-idx3-ubyte.gz"):
        raise Skip(f"no Fashion-MNIST in {MNIST} (Debian package dataset-fashion-mnist)")
    job = {
        "name": name or f"fashion-{model}", "seed": 1, "epochs": epochs,
        "model": {"name": model, "num_classes": 10},
        "dataset": {"source": "idx", "images": MNIST + "train-images-idx3-ubyte.gz",
                    "labels": MNIST + "train-labels-idx1-ubyte.gz", "batch_size": batch, "shuffle_buffer": 10000},
        "eval_dataset": {"source": "idx", "images": MNIST + "t10k-images-idx3-ubyte.gz",
                         "labels": MNIST + "t10k-labels-idx1-ubyte.gz", "batch_size": 500},
        "optimizer": {"name": "momentum", "learning_rate": 0.005, "momentum": 0.9},
    }
    job.update(more)
    return job


# ---- the runner --------------------------------------------------------------------------------
TESTS = []


def test(limit_s=60):
    def add(function):
        TESTS.append((function, limit_s))
        return function
    return add


def on_alarm(signum, frame):
    raise TimeLimit()


def on_term(signum, frame):
    sys.exit(f"stopped by {signal.Signals(signum).name}")


def run_one(function, limit_s):
    """PASS, FAIL or SKIP, and why."""
    signal.setitimer(signal.ITIMER_REAL, limit_s * SCALE)
    try:
        return "PASS", function() or ""
    except Skip as e:
        return "SKIP", str(e)
    except TimeLimit:
        where = traceback.extract_tb(sys.exc_info()[2])
        lines = [f"{os.path.basename(f.filename)}:{f.lineno}" for f in where if "/tests/cluster/" in f.filename]
        return "FAIL", f"ran over its {limit_s * SCALE:g} s, at {' '.join(lines)}"
    except AssertionError as e:
        where = [f for f in traceback.extract_tb(sys.exc_info()[2]) if "/tests/cluster/test_" in f.filename]
        at = f"line {where[-1].lineno}: " if where else ""
        return "FAIL", at + (str(e) or (where[-1].line if where else "assertion"))
    except Exception as e:  # pylint: disable=broad-except
        traceback.print_exc()
        return "FAIL", f"{type(e).__name__}: {e}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main():
    program = os.path.basename(sys.argv[0])[:-3]
    programs = ("coordinatord", "psd", "workerd", "trainctl")
    missing = [n for n in programs if not os.access(os.path.join(BIN, n), os.X_OK)]
    if missing:
        print(f"FAIL {program}: no {' '.join(missing)} in {BIN}; build with make", flush=True)
        return 1
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGALRM, on_alarm)
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, on_term)
    failed = False
    for function, limit_s in TESTS:
        name = function.__name__
        if len(sys.argv) > 1 and not any(word in name for word in sys.argv[1:]):
            continue
        begin = time.monotonic()
        result, why = run_one(function, limit_s)
        failed = failed or result == "FAIL"
        why = " ".join(why.split())[:900]
        print(f"{result} {program}.{name}" + (f": {why}" if why else ""), flush=True)
        print(f"{program}.{name}: {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
    return 1 if failed else 0
