#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The coordinator killed in the middle: it goes on from its ledger, and nothing acknowledged is lost or repeated."""
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import (  # noqa: E402  pylint: disable=wrong-import-position
    ENDED, OK, Cluster, Wire, assert_exact, brief, lease_args, main, noop, synthetic, test, wait_until)

SLOW = "--fake-script=step_us=1500"  # two workers: 1300 steps a second


def varint(data, at):
    """(value, what follows)"""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """(number, value) of a protobuf message; values are numbers or bytes."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 2:
            size, at = varint(data, at)
            yield tag >> 3, data[at:at + size]
            at += size
        else:
            assert tag & 7 == 0, f"wire type {tag & 7}"
            value, at = varint(data, at)
            yield tag >> 3, value


class Tap(Wire):
    """A wire to the coordinator that reads along which tickets come down."""

    def __init__(self, target):
        self.steps = []  # (job, step) of every training ticket
        super().__init__(target)

    def forward(self, a, b):
        comes_down = a.getpeername()[1] == self.target[1]
        frames, streams = bytearray(), {}
        try:
            while data := a.recv(65536):
                if comes_down:
                    frames += data
                    self.read(frames, streams)
                try:
                    b.sendall(data)
                except OSError:
                    pass  # the worker is dead; what comes after it left the coordinator all the same
        except OSError:
            pass
        for end in (a, b):
            try:
                end.shutdown(2)
            except OSError:
                pass

    def read(self, frames, streams):
        """HTTP/2 frames; gRPC messages in DATA; tickets in MemberDown (proto/fleet.proto)."""
        while len(frames) >= 9 and len(frames) >= 9 + (size := int.from_bytes(frames[:3], "big")):
            kind, stream = frames[3], int.from_bytes(frames[5:9], "big")
            if kind == 0:
                data = streams.setdefault(stream, bytearray())
                data += frames[9:9 + size]
                while len(data) >= 5 and len(data) >= 5 + (length := int.from_bytes(data[1:5], "big")):
                    self.read_message(bytes(data[5:5 + length]))
                    del data[:5 + length]
            del frames[:9 + size]

    def read_message(self, message):
        for number, batch in fields(message):
            if number != 2 or not isinstance(batch, bytes):
                continue
            for _, ticket in fields(batch):
                seen = dict(fields(ticket))
                if seen.get(5, 0) == 0:
                    self.steps.append((seen.get(1, 0), seen.get(2, 0)))


def kill_and_start(c):
    c.kill("coordinatord")
    c.start_daemon("coordinatord")


@test(limit_s=90)
def a_coordinator_killed_six_times_in_one_job_ends_it_with_the_exact_count():
    with Cluster(ps=2, workers=2, worker_args=SLOW, coordinator_args=lease_args()) as c:
        job = c.submit(synthetic("mlp", steps=3000))
        sessions = {m["name"]: m["pid"] for m in c.cluster()["members"]}
        last = 0
        for kill in range(6):
            s = c.wait_acked(job, last + 100)
            assert s["state"] == "running", f"before kill {kill + 1}: {brief(s)}"
            last = s["steps"]["acknowledged"]
            kill_and_start(c)
            s = c.status(job)
            assert s["steps"]["acknowledged"] >= last, f"acknowledged {last} before kill {kill + 1}, now {brief(s)}"
            assert c.cluster()["start"] == kill + 2, c.cluster()
        s = assert_exact(c.wait_end(job), total=3000, shards=2)
        assert s["generation"] == 1, f"the servers kept their variables: {brief(s)}"
        assert {m["name"]: m["pid"] for m in c.cluster()["members"]} == sessions, "members were restarted"
        return f"{s['steps']['reissued']} re-issued, {s['duplicates_refused']} duplicates refused"


@test(limit_s=120)
def counters_go_on_where_they_were_however_often_coordinator_and_workers_die_together():
    total, kills = 1500, 5
    with Cluster(ps=2, workers=2, worker_args=SLOW, coordinator_args=lease_args(), start=False) as c:
        c.up()
        taps = [Tap(c.coordinator()) for _ in range(2)]
        c.wires += taps
        for i, tap in enumerate(taps):
            c.stop_daemon(f"workerd-{i}")
            c.set_args(f"workerd-{i}", coordinator=tap.address)
            c.start_daemon(f"workerd-{i}")
        job = c.submit(synthetic("mlp", steps=total, epochs=2, evaluate=True))
        total *= 2
        c.wait_acked(job, 1)
        began = time.monotonic()
        for kill in range(kills):
            before = c.wait_acked(job, (kill + 1) * total // (kills + 2))
            c.kill("coordinatord")
            c.kill(f"workerd-{kill % 2}")
            c.start_daemon("coordinatord")
            c.start_daemon(f"workerd-{kill % 2}")
            after = c.status(job)
            for count in ("issued", "reissued", "acknowledged"):
                assert after["steps"][count] >= before["steps"][count], (kill, count, brief(before), brief(after))
            assert after["evaluations"][:len(before["evaluations"])] == before["evaluations"], (before, after)
            assert after["elapsed_seconds"] >= before["elapsed_seconds"], (before, after)
        s = assert_exact(c.wait_end(job), total=total, shards=2)
        took = time.monotonic() - began
        assert took - 1 <= s["elapsed_seconds"] <= took + 5, f"took {took:.1f} s: {s['elapsed_seconds']}"
        seen = [step for tap in taps for number, step in tap.steps if number == s["job"]]
        again = len(seen) - len(set(seen))
        # What was written ahead and died with the coordinator before it reached the wire counts, too.
        assert len(set(seen)) == total and again <= s["steps"]["reissued"] <= again + kills * 2 * 32, (again, brief(s))
        assert [e["epoch"] for e in s["evaluations"]] == [1, 2], s["evaluations"]
        return f"{again} tickets went out again, {s['steps']['reissued']} re-issued"


@test(limit_s=60)
def a_watch_and_jobs_in_every_state_survive_the_coordinator():
    with Cluster(ps=1, workers=1, worker_args=SLOW, coordinator_args=lease_args(more="--running-max 1")) as c:
        done = c.submit(synthetic("softmax", name="done", steps=60, evaluate=True))
        ended = assert_exact(c.wait_end(done), total=60)
        gone = c.submit(synthetic("softmax", name="gone", steps=100000))
        c.wait_acked(gone, 10)
        c.ctl("cancel", gone)
        cancelled = c.status(gone)
        runs = c.submit(synthetic("mlp", name="runs", steps=1200))
        queued = c.submit(synthetic("softmax", name="queued", steps=40))
        watch = c.watch(runs)
        c.wait_acked(runs, 100)
        assert c.status(queued)["state"] == "queued", brief(c.status(queued))
        kill_and_start(c)
        assert c.status(queued)["state"] in ("queued", "running"), brief(c.status(queued))
        for before in (ended, cancelled):
            after = c.status(str(before["job"]))
            for count in ("total", "acknowledged", "reissued", "abandoned"):
                assert after["steps"][count] == before["steps"][count], (before["steps"], after["steps"])
            for key in ("name", "state", "reason", "shards", "evaluations", "lost", "repeated",
                        "duplicates_refused", "accounting_final", "submitted_ms"):
                assert after[key] == before[key], f"{before['name']}: {key} was {before[key]}, is {after[key]}"
        assert_exact(c.wait_end(runs), total=1200)
        wait_until(lambda: watch.poll() is not None, 10, "the watch ends with its job")
        said = c.watch_output(runs)
        assert watch.returncode == OK, (watch.returncode, said)
        assert "trying again" in said and "the coordinator is back" in said, said
        assert_exact(c.wait_end(queued), total=40)
        assert [j["name"] for j in c.ctl("list")["jobs"]] in (["done", "gone", "runs", "queued"],
                                                              ["queued", "runs", "gone", "done"]), c.ctl("list")


@test(limit_s=60)
def every_epoch_is_evaluated_once_however_often_the_coordinator_dies():
    with Cluster(ps=2, workers=2, worker_args=SLOW, coordinator_args=lease_args()) as c:
        job = c.submit(synthetic("mlp", steps=300, epochs=4, evaluate=True))
        for epoch in (1, 2, 3):
            c.wait_acked(job, 300 * epoch - 20)  # about when the evaluation begins
            kill_and_start(c)
        s = assert_exact(c.wait_end(job), total=1200, shards=2)
        assert [e["epoch"] for e in s["evaluations"]] == [1, 2, 3, 4], s["evaluations"]
        assert [e["step"] for e in s["evaluations"]] == [300, 600, 900, 1200], s["evaluations"]


@test(limit_s=60)
def a_worker_that_dies_while_the_coordinator_is_away_loses_nothing():
    with Cluster(ps=2, workers=2, worker_args=SLOW, coordinator_args=lease_args()) as c:
        job = c.submit(synthetic("mlp", steps=1500))
        c.wait_acked(job, 100)
        c.kill("coordinatord")
        c.kill("workerd-0")
        c.start_daemon("coordinatord")
        c.start_daemon("workerd-0")
        assert_exact(c.wait_end(job), total=1500, shards=2)


@test(limit_s=60)
def a_server_that_dies_while_the_coordinator_is_away_is_found_empty_and_the_job_begins_anew():
    with Cluster(ps=2, workers=2, worker_args=SLOW, coordinator_args=lease_args()) as c:
        job = c.submit(synthetic("mlp", steps=1000))
        c.wait_acked(job, 100)
        c.kill("coordinatord")
        c.kill("psd-0")
        c.start_daemon("psd-0")
        c.start_daemon("coordinatord")
        s = assert_exact(c.wait_end(job), total=1000, shards=2)
        assert s["generation"] == 2, brief(s)
        assert any("redone" in n for n in s["notices"]), s["notices"]


@test(limit_s=60)
def a_coordinator_frozen_for_a_while_goes_on():
    with Cluster(ps=1, workers=2, worker_args=SLOW, coordinator_args=lease_args()) as c:
        job = c.submit(synthetic("mlp", steps=1000))
        s = c.wait_acked(job, 100)
        c.pause("coordinatord")
        rc, _, err = c.ctl_raw("--timeout", "1", "status", job)
        assert rc == 3, f"a frozen coordinator answered: {rc} {err}"
        c.go_on("coordinatord")
        s = assert_exact(c.wait_end(job), total=1000)
        assert s["generation"] == 1, brief(s)


@test(limit_s=60)
def dispatch_at_full_speed_survives_a_kill_with_every_step_counted_once():
    with Cluster(ps=0, workers=2, coordinator_args=lease_args()) as c:
        total = 150000
        job = c.submit(noop(total))
        last = 0
        for _ in range(3):
            s = c.wait_acked(job, last + 10000)
            if s["state"] in ENDED:
                break
            last = s["steps"]["acknowledged"]
            kill_and_start(c)
            assert c.status(job)["steps"]["acknowledged"] >= last, brief(c.status(job))
        assert last > 0, "the job ended before the first kill"
        s = c.wait_end(job)
        assert s["state"] == "succeeded" and s["steps"]["acknowledged"] == total, brief(s)
        assert s["steps"]["issued"] == total and s["lost"] == 0 and s["repeated"] == 0, brief(s)


@test(limit_s=40)
def a_second_coordinator_on_the_same_ledger_is_refused():
    with Cluster(ps=0, workers=1) as c:
        rc, said, took = c.run_daemon("coordinatord", "--tf-config", c.path("tf_config.json"), "--address",
                                      "127.0.0.1:0", "--state-dir", c.path("state"))
        assert rc == 1 and took < 2, (rc, took, said)
        assert c.path("state") in said and "another coordinator" in said, said
        assert c.wait_end(c.submit(noop(100)))["state"] == "succeeded"


if __name__ == "__main__":
    sys.exit(main())
