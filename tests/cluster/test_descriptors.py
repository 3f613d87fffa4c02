#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Daemons that run out of file descriptors under a flood of connections, and what they do when it is over."""
import os
import resource
import socket
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import (  # noqa: E402  pylint: disable=wrong-import-position
    OK, UNREACHABLE, Cluster, assert_exact, main, synthetic, test, wait_until)

OPENING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"  # of a client of HTTP/2, with empty SETTINGS
FLOOD = 300


class Flood:
    """Many connections to one daemon, from `with` to its end."""

    def __init__(self, address, says):
        host, port = address.rsplit(":", 1)
        self.target = (host, int(port))
        self.says = says
        self.ends = []

    def __enter__(self):
        for _ in range(FLOOD):
            end = socket.create_connection(self.target, timeout=10)
            self.ends.append(end)
            try:
                end.sendall(self.says)
            except OSError:
                pass  # refused already
        return self

    def __exit__(self, *_):
        for end in self.ends:
            end.close()


def limit_files(pid, soft):
    """Returns what it was."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, before[1]))
    return before


def files_of(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def said(c, name, event):
    return c.log(name).count("event=" + event)


def flood_and_release(c, name, while_full):
    """A little room, taken by strangers; then no room at all; then peace."""
    pid = c.pid(name)
    before = limit_files(pid, 2 * files_of(pid))
    try:
        with Flood(c.address(name), OPENING):
            wait_until(lambda: said(c, name, "rpc.accept.full") == 1, 10, f"{name} says that it is full")
            while_full()
            limit_files(pid, 3)  # accept itself fails
            with Flood(c.address(name), b""):
                while_full()
            assert said(c, name, "rpc.accept.full") == 1, "said once"
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    wait_until(lambda: said(c, name, "rpc.accept.room") == 1, 10, f"{name} says that it is over")


@test(limit_s=60)
def a_coordinator_out_of_descriptors_keeps_its_members_and_answers_when_it_is_over():
    with Cluster(ps=1, workers=1, device="fake", worker_args="--fake-script=step_us=2000") as c:
        job = c.submit(synthetic("softmax", steps=6000))
        c.wait_acked(job, 50)

        def nobody_gets_in():
            rc, _, words = c.ctl_raw("--timeout", "1", "cluster")
            assert rc == UNREACHABLE, (rc, words)

        flood_and_release(c, "coordinatord", nobody_gets_in)
        wait_until(lambda: c.ctl_raw("--timeout", "1", "cluster")[0] == OK, 10, "trainctl is answered")
        assert_exact(c.wait_end(job))


@test(limit_s=60)
def a_server_out_of_descriptors_serves_its_workers_and_takes_new_ones_when_it_is_over():
    with Cluster(ps=1, workers=1, device="fake", worker_args="--fake-script=step_us=2000") as c:
        job = c.submit(synthetic("softmax", steps=3000))
        c.wait_acked(job, 50)

        def the_old_goes_on():
            acked = c.status(job)["steps"]["acknowledged"]
            c.wait_acked(job, acked + 20)

        flood_and_release(c, "psd-0", the_old_goes_on)
        c.kill("workerd-0")
        c.start_daemon("workerd-0")
        assert_exact(c.wait_end(job))


@test(limit_s=60)
def a_worker_that_finds_its_server_full_waits_and_goes_on():
    with Cluster(ps=1, workers=1, device="fake", worker_args="--fake-script=step_us=2000") as c:
        job = c.submit(synthetic("softmax", steps=1000))
        c.wait_acked(job, 50)
        c.kill("workerd-0")
        pid = c.pid("psd-0")
        before = limit_files(pid, 2 * files_of(pid))
        with Flood(c.address("psd-0"), OPENING):
            wait_until(lambda: said(c, "psd-0", "rpc.accept.full") == 1, 10, "psd-0 says that it is full")
            c.start_daemon("workerd-0")
            wait_until(lambda: (c.member("worker:0") or {}).get("state") == "attached", 10, "worker-0 is attached")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        assert_exact(c.wait_end(job))


if __name__ == "__main__":
    sys.exit(main())
