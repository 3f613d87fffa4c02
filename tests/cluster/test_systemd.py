#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The systemd units as `make install` lays them down, judged by systemd's own tools; and each daemon's side of
Type=notify with a socket of the test's own in the service manager's place."""
import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("STEADFAST_BUILD", os.path.join(ROOT, "build", "release"))
UNITS = ["coordinatord.service", "psd@0.service", "workerd@0.service", "steadfast.target"]
DAEMONS = ["coordinatord", "psd", "workerd"]
WAIT_S = 20


class Skip(Exception):
    """What keeps a test from being run."""


def need(tool):
    if not shutil.which(tool):
        raise Skip(f"no {tool} on this machine")


def command(*args, rc=0, **kw):
    done = subprocess.run(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=120, check=False, **kw)
    assert done.returncode == rc, f"{' '.join(args)}: exit {done.returncode}, want {rc}: {done.stdout}"
    return done.stdout


def text_of(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


class Tree:
    """What `make install DESTDIR=... PREFIX=/usr` makes, and the targets of this machine that units refer to."""

    def __init__(self, path):
        self.path = path
        env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
        command("make", "-s", "install", f"DESTDIR={path}", "PREFIX=/usr", cwd=ROOT, env=env)
        self.units = os.path.join(path, "usr", "lib", "systemd", "system")

    def unit(self, name):
        return text_of(os.path.join(self.units, re.sub(r"@\d+\.", "@.", name)))

    def values(self, name, key):
        return re.findall(rf"^{key}=(.*)$", self.unit(name), re.M)


def add_system_targets(tree):
    for kind in ("target", "slice", "socket"):
        for path in glob.glob(f"/lib/systemd/system/*.{kind}"):
            if not os.path.exists(os.path.join(tree.units, os.path.basename(path))):
                shutil.copy(path, tree.units, follow_symlinks=True)


def systemd_analyze_verify_finds_nothing_to_say(tree):
    need("systemd-analyze")
    add_system_targets(tree)
    said = command("systemd-analyze", "verify", "--man=no", f"--root={tree.path}", *UNITS)
    assert said == "", said


def the_services_are_hardened(tree):
    need("systemd-analyze")
    for name in UNITS[:3]:
        # The threshold is ten times the exposure that `systemd-analyze security` prints.
        command("systemd-analyze", "security", "--offline=true", f"--root={tree.path}", "--threshold=20", name)


def the_prefix_is_filled_in_and_the_programs_are_there(tree):
    for name in UNITS:
        assert "@PREFIX@" not in tree.unit(name), name
    for name in UNITS[:3]:
        program = tree.values(name, "ExecStart")[0].split()[0]
        assert program.startswith("/usr/bin/"), program
        assert os.access(tree.path + program, os.X_OK), f"{program} is not installed"


def each_service_is_notified_watched_and_stopped_within_a_preemption(tree):
    for name in UNITS[:3]:
        for key, want in (("Type", "notify"), ("NotifyAccess", "main"), ("Restart", "on-failure"),
                          ("SuccessExitStatus", "143"), ("RestartPreventExitStatus", "2")):
            assert tree.values(name, key) == [want], (name, key, tree.values(name, key))
        assert int(tree.values(name, "TimeoutStopSec")[0].rstrip("s")) <= 25, name
        assert tree.values(name, "WatchdogSec"), name
        assert tree.values(name, "StateDirectory") and tree.values(name, "RuntimeDirectory"), name
    # oneDNN generates code; psd and coordinatord never do.
    assert tree.values(UNITS[2], "MemoryDenyWriteExecute") == ["no"]
    assert tree.values(UNITS[0], "MemoryDenyWriteExecute") == tree.values(UNITS[1], "MemoryDenyWriteExecute") == ["yes"]


def every_flag_in_a_unit_is_one_that_the_daemon_knows(tree):
    for name, daemon in zip(UNITS, DAEMONS):
        known = command(os.path.join(BUILD, "bin", daemon), "--help")
        for flag in re.findall(r"(--[\w-]+)", tree.values(name, "ExecStart")[0]):
            assert re.search(rf"^\s*{flag}\b", known, re.M), f"{daemon} does not know {flag}"


def user_and_directories_are_declared(tree):
    need("systemd-sysusers")
    os.makedirs(os.path.join(tree.path, "etc"), exist_ok=True)
    command("systemd-sysusers", f"--root={tree.path}", os.path.join(tree.path, "usr/lib/sysusers.d/steadfast.conf"))
    assert re.search(r"^steadfast:", text_of(os.path.join(tree.path, "etc/passwd")), re.M)
    if os.getuid() != 0:
        raise Skip("only root may give directories to another user")
    command("systemd-tmpfiles", "--create", f"--root={tree.path}",
            os.path.join(tree.path, "usr/lib/tmpfiles.d/steadfast.conf"))
    for path in ("etc/steadfast", "var/lib/steadfast/checkpoints"):
        assert os.path.isdir(os.path.join(tree.path, path)), path


# ---- the daemons' side --------------------------------------------------------------------------
def next_words(manager, want, deadline):
    """Reads datagrams until one has the assignment."""
    while True:
        left = deadline - time.monotonic()
        assert left > 0, f"no {want} within {WAIT_S} s"
        manager.settimeout(left)
        try:
            if want in manager.recv(4096).decode().split("\n"):
                return
        except socket.timeout:
            pass


def check_notify(path, program, *args):
    address = os.path.join(path, "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, \
            open(os.path.join(path, "log"), "w+", encoding="utf-8") as log:
        manager.bind(address)
        env = dict(os.environ, NOTIFY_SOCKET=address, WATCHDOG_USEC="300000")
        for name in ("TF_CONFIG", "WATCHDOG_PID"):
            env.pop(name, None)
        daemon = subprocess.Popen([os.path.join(BUILD, "bin", program), *args], env=env, stdin=subprocess.DEVNULL,
                                  stdout=log, stderr=log)
        try:
            for want in ("READY=1", "WATCHDOG=1", "WATCHDOG=1"):
                next_words(manager, want, time.monotonic() + WAIT_S)
            daemon.send_signal(signal.SIGTERM)
            next_words(manager, "STOPPING=1", time.monotonic() + WAIT_S)
            rc = daemon.wait(WAIT_S)
            assert rc in (0, 143), f"exit {rc} after SIGTERM"
        except AssertionError as e:
            log.seek(0)
            raise AssertionError(f"{e}; log: {log.read()[-400:]}") from e
        finally:
            daemon.kill()
            daemon.wait()


def check_daemon(program, *more):
    with tempfile.TemporaryDirectory() as path:
        config = os.path.join(path, "tf_config.json")
        with open(config, "w", encoding="utf-8") as f:  # nobody listens at these addresses
            f.write('{"cluster": {"chief": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"], "worker": ["127.0.0.1:3"]}}')
        if program == "coordinatord":
            more = ("--state-dir", path)
        check_notify(path, program, "--tf-config", config, "--address", "127.0.0.1:0", "--port-file", path + "/port", *more)


def coordinatord_says_ready_feeds_its_watchdog_and_says_stopping(_tree):
    check_daemon("coordinatord")


def psd_does_so_too_even_while_its_coordinator_is_away(_tree):
    check_daemon("psd", "--job_name", "ps", "--task_index", "0")


def workerd_does_so_too_even_while_its_coordinator_is_away(_tree):
    check_daemon("workerd", "--job_name", "worker", "--task_index", "0", "--device", "fake")


TESTS = [systemd_analyze_verify_finds_nothing_to_say, the_services_are_hardened,
         the_prefix_is_filled_in_and_the_programs_are_there,
         each_service_is_notified_watched_and_stopped_within_a_preemption,
         every_flag_in_a_unit_is_one_that_the_daemon_knows, user_and_directories_are_declared,
         coordinatord_says_ready_feeds_its_watchdog_and_says_stopping,
         psd_does_so_too_even_while_its_coordinator_is_away, workerd_does_so_too_even_while_its_coordinator_is_away]


def main():
    failed = 0
    with tempfile.TemporaryDirectory(prefix="steadfast-units-") as path:
        tree = Tree(path)
        for test in TESTS:
            name = f"test_systemd.{test.__name__}"
            try:
                test(tree)
                print(f"PASS {name}", flush=True)
            except Skip as e:
                print(f"SKIP {name}: {e}", flush=True)
            except Exception as e:  # pylint: disable=broad-except
                failed = 1
                print(f"FAIL {name}: {type(e).__name__}: {' '.join(str(e).split())[:700]}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
