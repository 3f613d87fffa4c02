#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Workers that are killed, frozen, told to leave, or join late: no step is lost, none is applied twice."""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import (  # noqa: E402  pylint: disable=wrong-import-position
    ENDED, Cluster, assert_exact, brief, is_stopped, lease_args, main, synthetic, test, wait_until)

POINTS = ("before_push", "during_push", "after_push")
KILLS = 20


def hook(point, step):
    return {"STEADFAST_WORKER_KILL": f"{point}:{step}"}


def attached(c, name, pid, than=-1):
    """The member once it is attached as this process, in a session newer than another; else None."""
    m = c.member(name)
    return m if m and m["state"] == "attached" and m["pid"] == pid and m["session"] != than else None


@test(limit_s=90)
def a_worker_killed_before_during_and_after_its_push_twenty_times_leaves_exact_counts():
    step = 10
    with Cluster(ps=2, workers=1, worker_args="--fake-script=step_us=300", start=False) as c:
        c.up(env=hook(POINTS[0], step))
        job = c.submit(synthetic("mlp", steps=600))
        duplicates = 0
        for kill in range(KILLS):
            point = POINTS[kill % len(POINTS)]
            status = c.wait_dead("workerd-0", 20, f"at {point}:{step} (kill {kill + 1})")
            assert status == -signal.SIGKILL, f"kill {kill + 1}: status {status}"
            s = c.status(job)
            assert s["state"] == "running", f"after kill {kill + 1}: {brief(s)}"
            assert s["steps"]["acknowledged"] <= step, f"step {step} was acknowledged: {brief(s)}"
            duplicates += {"before_push": 0, "during_push": 1, "after_push": 2}[point]
            step += 15
            again = hook(POINTS[(kill + 1) % len(POINTS)], step) if kill + 1 < KILLS else None
            c.start_daemon("workerd-0", env=again)
        s = assert_exact(c.wait_end(job), total=600, shards=2)
        assert s["steps"]["reissued"] >= KILLS, f"{KILLS} steps died with their worker: {brief(s)}"
        # what the shards had applied when the worker died comes again, and is refused again
        assert s["duplicates_refused"] >= duplicates, f"want at least {duplicates}: {brief(s)}"
        return f"{s['steps']['reissued']} re-issued, {s['duplicates_refused']} duplicates refused"


@test(limit_s=90)
def a_step_that_kills_every_worker_after_its_push_is_acknowledged_and_not_abandoned():
    step = 40
    kills = hook("after_push", step)
    with Cluster(ps=2, workers=2, worker_args="--fake-script=step_us=1000", coordinator_args=lease_args(),
                 start=False) as c:
        c.up(env=kills)
        job = c.submit(synthetic("mlp", steps=600))
        deaths = 0
        names = ("workerd-0", "workerd-1")
        for name in names:
            c.daemon(name).may_die = True

        def look():
            """Ended, or somebody died of the step again."""
            s = c.status(job)
            dead = [name for name in names if c.daemon(name).has_ended()]
            return (s, dead) if dead or s["state"] in ENDED else None

        while True:
            s, dead = wait_until(look, 30, lambda: f"a worker dies or the job ends: {brief(c.status(job))}")
            if s["state"] in ENDED:
                break
            for name in dead:
                deaths += 1
                assert deaths < 25, f"the step goes on and on: {brief(s)}"
                c.wait_dead(name)
                c.start_daemon(name, env=kills)
                c.daemon(name).may_die = True
        assert deaths >= 5, f"it was found after {deaths} deaths, want 5 attempts at least"
        s = assert_exact(s, total=600, abandoned=0, shards=2)
        return f"{deaths} workers died of it"


@test(limit_s=60)
def workers_killed_at_any_moment_come_back_at_new_addresses():
    with Cluster(ps=2, workers=2, worker_args="--fake-script=step_us=1000", coordinator_args=lease_args()) as c:
        job = c.submit(synthetic("mlp", steps=2500))
        addresses = set()
        for kill in range(6):
            name = f"workerd-{kill % 2}"
            s = c.wait_acked(job, 40 + 300 * kill)
            assert s["state"] == "running", brief(s)
            c.kill(name)
            c.start_daemon(name, "--new-address")
            addresses.add(c.address(name))
        assert len(addresses) == 6, addresses
        s = assert_exact(c.wait_end(job), total=2500, shards=2)
        assert s["steps"]["reissued"] > 0, brief(s)


@test(limit_s=60)
def the_steps_of_a_dead_worker_go_to_another_when_its_lease_is_over():
    with Cluster(ps=1, workers=2, worker_args="--fake-script=step_us=1000", coordinator_args=lease_args()) as c:
        job = c.submit(synthetic("mlp", steps=600))
        c.wait_acked(job, 50)
        c.kill("workerd-1")
        s = assert_exact(c.wait_end(job), total=600)
        assert s["steps"]["reissued"] > 0, brief(s)
        assert c.member("worker:1")["state"] == "lost", c.cluster()


@test(limit_s=60)
def the_late_push_of_a_frozen_worker_is_refused_and_it_rejoins_as_a_new_incarnation():
    # Frozen with a gradient in its hands. The wire to the coordinator is held meanwhile, so that the push is what
    # happens first when it wakes, not the news that its lease is over.
    with Cluster(ps=2, workers=1, worker_args="--fake-script=step_us=2000", coordinator_args=lease_args()) as c:
        wire = c.wire_to(c.coordinator())
        c.stop_daemon("workerd-0")
        c.set_args("workerd-0", coordinator=wire.address)
        c.start_daemon("workerd-0", env=hook("stop_before_push", 30))
        job = c.submit(synthetic("mlp", steps=1500))
        pid = c.pid("workerd-0")
        before = wait_until(lambda: attached(c, "worker:0", pid), 10, "worker:0 is there")
        wait_until(lambda: is_stopped(pid), 20, "the worker freezes at step 30")
        wire.hold()
        wait_until(lambda: c.member("worker:0")["state"] == "lost", 10, lambda: f"it is lost: {c.member('worker:0')}")
        c.add_worker("second")
        s = c.wait_acked(job, 60)  # the frozen step and later ones are somebody else's now
        assert s["state"] == "running" and s["steps"]["reissued"] > 0, brief(s)
        assert "fenced" not in c.log("workerd-0"), "it was refused before it woke"
        c.go_on("workerd-0")
        wait_until(lambda: "was fenced" in c.log("workerd-0"), 10, "the late push is refused")
        c.wait_status(job, lambda x: x["duplicates_refused"] > 0, 10, "the refusal is counted")
        wire.release()
        after = wait_until(lambda: attached(c, "worker:0", pid, than=before["session"]), 10,
                           lambda: f"worker:0 rejoins: {c.member('worker:0')}")
        assert after["incarnation"] > before["incarnation"], (before, after)
        assert_exact(c.wait_end(job), total=1500, shards=2)


@test(limit_s=60)
def a_worker_frozen_past_its_lease_gets_steps_again_when_it_wakes():
    with Cluster(ps=2, workers=2, worker_args="--fake-script=step_us=1000", coordinator_args=lease_args()) as c:
        job = c.submit(synthetic("mlp", steps=4000))
        c.wait_acked(job, 100)
        before = c.member("worker:0")
        c.pause("workerd-0")
        wait_until(lambda: c.member("worker:0")["state"] == "lost", 10, lambda: f"it is lost: {c.member('worker:0')}")
        c.go_on("workerd-0")
        after = wait_until(lambda: attached(c, "worker:0", before["pid"], than=before["session"]), 10,
                           lambda: f"worker:0 rejoins: {c.member('worker:0')}")
        assert after["incarnation"] > before["incarnation"], (before, after)
        done = after["steps_done"]
        wait_until(lambda: c.member("worker:0")["steps_done"] > done + 10, 10, lambda: f"it works: {c.cluster()}")
        s = assert_exact(c.wait_end(job), total=4000, shards=2)
        assert s["steps"]["reissued"] > 0, brief(s)


@test(limit_s=40)
def a_worker_frozen_for_less_than_its_lease_goes_on_as_if_nothing_were():
    with Cluster(ps=1, workers=1, worker_args="--fake-script=step_us=1000", coordinator_args=lease_args(8000)) as c:
        job = c.submit(synthetic("mlp", steps=400))
        c.wait_acked(job, 30)
        session = c.member("worker:0")["session"]
        c.pause("workerd-0")
        wait_until(lambda: c.member("worker:0")["seconds_silent"] > 0.5, 10, "half a second of silence")
        c.go_on("workerd-0")
        s = assert_exact(c.wait_end(job), total=400)
        assert s["steps"]["reissued"] == 0 and s["duplicates_refused"] == 0, brief(s)
        assert c.member("worker:0")["session"] == session, c.cluster()


@test(limit_s=60)
def a_worker_told_to_leave_gives_its_steps_back_at_once():
    # The lease is far longer than the test may take: only steps that are given back can be done in time.
    with Cluster(ps=1, workers=2, worker_args="--fake-script=step_us=10000",
                 coordinator_args=lease_args(120000, 250)) as c:
        job = c.submit(synthetic("mlp", steps=400))
        c.wait_acked(job, 30)
        begin = time.monotonic()
        os.kill(c.pid("workerd-0"), signal.SIGTERM)
        code = c.wait_dead("workerd-0", 10, "after SIGTERM")
        took = time.monotonic() - begin
        assert code == 0, f"exit code {code}"
        assert took < 2, f"it took {took:.2f} s to leave"
        wait_until(lambda: c.member("worker:0")["state"] == "left", 5, lambda: f"it left: {c.member('worker:0')}")
        assert c.member("worker:0")["in_flight"] == 0, c.cluster()
        assert_exact(c.wait_end(job), total=400)
        return f"left after {took * 1000:.0f} ms"


def leave_s(c, name):
    """Seconds from SIGTERM to an orderly end."""
    begin = time.monotonic()
    os.kill(c.pid(name), signal.SIGTERM)
    code = c.wait_dead(name, 10, "after SIGTERM")
    took = time.monotonic() - begin
    assert code == 0, f"exit code {code}: {c.log(name)[-600:]}"
    return took


@test(limit_s=60)
def a_worker_that_leaves_does_not_wait_for_a_server_that_is_gone():
    with Cluster(ps=2, workers=2, worker_args="--fake-script=step_us=10000",
                 coordinator_args=lease_args(120000, 250)) as c:
        job = c.submit(synthetic("mlp", steps=300, checkpoint={"directory": c.path("ckpt"), "every_steps": 50}))
        c.wait_acked(job, 60)
        c.kill("psd-1")
        wait_until(lambda: "event=ps.unreachable" in c.log("workerd-0"), 10, "the worker notices")
        took = leave_s(c, "workerd-0")
        assert took < 1.5, f"it took {took:.2f} s to leave"
        c.start_daemon("psd-1")
        assert_exact(c.wait_end(job), total=300)
        return f"left after {took * 1000:.0f} ms"


@test(limit_s=60)
def a_worker_that_leaves_waits_a_bounded_time_for_a_server_that_is_frozen():
    with Cluster(ps=2, workers=2, worker_args="--fake-script=step_us=2000",
                 coordinator_args=lease_args(120000, 250)) as c:
        job = c.submit(synthetic("mlp", steps=600))
        c.wait_acked(job, 60)
        c.pause("psd-1")
        took = leave_s(c, "workerd-0")
        assert took < 3.5, f"it took {took:.2f} s to leave"
        c.go_on("psd-1")
        assert_exact(c.wait_end(job), total=600)
        return f"left after {took * 1000:.0f} ms"


@test(limit_s=60)
def a_worker_that_nobody_listed_joins_in_the_middle_and_gets_steps():
    with Cluster(ps=1, workers=1, worker_args="--fake-script=step_us=2000") as c:
        job = c.submit(synthetic("mlp", steps=1000))
        c.wait_acked(job, 50)
        c.add_worker("late")
        wait_until(lambda: (c.member("late") or {}).get("steps_done", 0) > 20, 20,
                   lambda: f"it gets steps: {c.cluster()}")
        s = assert_exact(c.wait_end(job), total=1000)
        assert s["steps"]["reissued"] == 0, brief(s)


@test(limit_s=60)
def a_step_that_kills_every_worker_is_quarantined_and_named():
    attempts = 3
    with Cluster(ps=2, workers=2, worker_args="--fake-script=crash_at=40") as c:
        for name in ("workerd-0", "workerd-1"):  # a script of two words
            c.set_args(name, fake_script="step_us=1000 crash_at=40")
            c.restart(name)
        job = c.submit(synthetic("mlp", steps=300) | {"steps": {"max_attempts": attempts}})
        deaths = 0

        def look():
            nonlocal deaths
            for name in ("workerd-0", "workerd-1"):
                daemon = c.daemon(name)
                if daemon.has_ended():
                    assert daemon.status in (-signal.SIGKILL, None), f"{name} {daemon.said()}"
                    daemon.may_die = True
                    deaths += 1
                    c.start_daemon(name)
            s = c.status(job)
            return s if s["state"] in ENDED else None

        s = wait_until(look, 30, lambda: f"step 40 is given up after {deaths} deaths: {brief(c.status(job))}")
        assert_exact(s, total=300, abandoned=1, shards=2)
        assert [x["step"] for x in s["abandoned_steps"]] == [40], s["abandoned_steps"]
        assert s["abandoned_steps"][0]["attempts"] == attempts, s["abandoned_steps"]
        assert "40" in s["reason"], s["reason"]
        assert any("step 40" in n for n in s["notices"]), s["notices"]
        return f"{deaths} workers died of it"


@test(limit_s=40)
def a_step_that_fails_once_is_tried_again():
    with Cluster(ps=1, workers=1, worker_args="--fake-script=fail_once_at=17,60") as c:
        s = assert_exact(c.wait_end(c.submit(synthetic("mlp", steps=100))), total=100)
        assert s["steps"]["reissued"] == 2, brief(s)
        assert any("step 17 " in n for n in s["notices"]), s["notices"]


@test(limit_s=40)
def steps_that_always_fail_are_given_up_or_end_the_job_as_it_says():
    with Cluster(ps=1, workers=2, worker_args="--fake-script=fail_at=17,60") as c:
        skip = synthetic("mlp", steps=100) | {"steps": {"on_error": "skip"}}
        s = assert_exact(c.wait_end(c.submit(skip)), total=100, abandoned=2)
        assert sorted(x["step"] for x in s["abandoned_steps"]) == [17, 60], s["abandoned_steps"]
        assert all(x["code"] == "DEVICE" for x in s["abandoned_steps"]), s["abandoned_steps"]
        retry = synthetic("mlp", name="retry", steps=100) | {"steps": {"max_attempts": 3}}
        s = assert_exact(c.wait_end(c.submit(retry)), total=100, abandoned=2)
        assert sorted((x["step"], x["attempts"]) for x in s["abandoned_steps"]) == [(17, 3), (60, 3)], s
        abort = synthetic("mlp", name="abort", steps=100) | {"steps": {"on_error": "abort"}}
        s = c.wait_end(c.submit(abort))
        assert s["state"] == "failed" and ("step 17" in s["reason"] or "step 60" in s["reason"]), brief(s)


if __name__ == "__main__":
    sys.exit(main())
