#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The coordinator without space, without its files, without descriptors: it refuses, says why, and goes on by itself."""
import os
import resource
import shutil
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import (  # noqa: E402  pylint: disable=wrong-import-position
    FAILED, SCALE, Cluster, assert_exact, brief, error_lines, fill_up, lease_args, main, synthetic, test, wait_until)

SLOW = "--fake-script=step_us=1000"


def wait_log(c, words, deadline_s, name="coordinatord"):
    """The first line of a daemon's log with all of these words."""
    def look():
        for line in c.log(name).splitlines():
            if all(w in line for w in words):
                return line
        return None
    return wait_until(look, deadline_s, lambda: f"{words} in the log of {name}: ...{c.log(name)[-600:]}")


def timed(c, *args):
    begin = time.monotonic()
    rc, out, err = c.ctl_raw(*args)
    return rc, out, err, time.monotonic() - begin


class NoDescriptors:
    """A process that gets no descriptor more until the end of the block: those below the limit are all in use."""

    def __init__(self, pid):
        self.pid = pid
        self.old = None

    def __enter__(self):
        self.old = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (8, self.old[1]))
        return self

    def __exit__(self, *_):
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, self.old)


# ---- the ledger --------------------------------------------------------------------------------
@test(limit_s=60)
def what_the_full_ledger_cannot_hold_is_refused_at_once_and_changes_nothing():
    with Cluster(ps=1, workers=1, worker_args=SLOW, start=False) as c:
        c.mount_small(c.path("state"), "24m")
        c.up()
        job = c.submit(synthetic("mlp", steps=2000, checkpoint={"directory": c.path("ckpt")}))
        c.wait_acked(job, 50)
        filler = fill_up(c.path("state"))
        c.wait_status(job, lambda x: x["state"] == "paused", 15, "the job is paused")
        other = c.write_job(synthetic("softmax", name="other", steps=10))
        for words in (("submit", other), ("cancel", job), ("checkpoint", job)):
            rc, _, err, took = timed(c, *words)
            assert rc == FAILED and took < 3 * SCALE, f"{words[0]}: exit {rc} after {took:.1f} s: {err}"
            assert "ledger" in err and "full" in err, f"{words[0]} names the cause: {err}"
        assert c.status(job)["state"] == "paused", brief(c.status(job))
        assert [j["name"] for j in c.ctl("list")["jobs"]] == [c.status(job)["name"]]
        os.unlink(filler)
        assert_exact(c.wait_end(job), total=2000, shards=1)
        assert_exact(c.wait_end(c.submit(synthetic("softmax", name="other", steps=10))), total=10, shards=1)


@test(limit_s=60)
def a_request_that_meets_the_full_disk_first_is_answered_and_is_done_when_there_is_space():
    with Cluster(ps=1, workers=1, start=False) as c:
        c.mount_small(c.path("state"), "24m")
        c.up()
        filler = fill_up(c.path("state"))
        rc, _, err, took = timed(c, "submit", c.write_job(synthetic("mlp", name="first", steps=300)))
        assert rc != 0 and took < 5 * SCALE, f"exit {rc} after {took:.1f} s: {err}"
        assert "not durable" in err and "full" in err, err
        assert c.status("first")["steps"]["issued"] == 0, "a ticket left"
        os.unlink(filler)
        assert_exact(c.wait_end("first"), total=300, shards=1)
        assert [j["name"] for j in c.ctl("list")["jobs"]] == ["first"]


@test(limit_s=60)
def a_coordinator_that_is_started_on_a_full_disk_waits_for_space():
    with Cluster(ps=1, workers=1, worker_args=SLOW, coordinator_args=lease_args(), start=False) as c:
        c.mount_small(c.path("state"), "24m")
        c.up()
        job = c.submit(synthetic("mlp", steps=1500))
        c.wait_acked(job, 100)
        filler = fill_up(c.path("state"))
        acked = c.wait_status(job, lambda x: x["state"] == "paused", 15, "the job is paused")["steps"]["acknowledged"]
        c.kill("coordinatord")
        said = []
        starting = threading.Thread(target=lambda: said.append(c.start_daemon("coordinatord")))
        starting.start()
        try:
            wait_log(c, ("ledger.waiting", "space"), 8)
        finally:
            os.unlink(filler)
            starting.join(30 * SCALE)
        assert c.status(job)["steps"]["acknowledged"] >= acked, brief(c.status(job))
        assert_exact(c.wait_end(job), total=1500, shards=1)


@test(limit_s=60)
def a_ledger_that_is_moved_away_acknowledges_nothing_until_it_is_back():
    with Cluster(ps=1, workers=1, worker_args=SLOW) as c:
        job = c.submit(synthetic("mlp", steps=2000))
        c.wait_acked(job, 50)
        ledger, away = c.path("state", "ledger.db"), c.path("state", "away")
        os.rename(ledger, away)
        s = c.wait_status(job, lambda x: x["state"] == "paused", 15, "the job is paused")
        assert "removed" in s["reason"], brief(s)
        os.rename(away, ledger)
        assert_exact(c.wait_end(job), total=2000, shards=1)
        stuck = [line for line in error_lines(c.log("coordinatord")) if "ledger.stuck" in line]
        assert len(stuck) == 1, f"want it said once: {stuck}"


# ---- descriptors -------------------------------------------------------------------------------
@test(limit_s=60)
def a_resume_without_a_descriptor_to_look_for_the_checkpoint_waits_for_one():
    with Cluster(ps=1, workers=1, worker_args=SLOW, coordinator_args="--running-max 1") as c:
        spec = synthetic("mlp", name="first", steps=100, checkpoint={"directory": c.path("ckpt")})
        assert assert_exact(c.wait_end(c.submit(spec)), total=100, shards=1)["checkpoints"]
        before = c.submit(synthetic("mlp", name="before", steps=1000))
        c.submit(spec | {"name": "second", "epochs": 2}, "--resume")
        c.wait_acked(before, 50)
        with NoDescriptors(c.pid("coordinatord")):
            wait_log(c, ("disk.waiting", "Too many open files"), 20)
        s = assert_exact(c.wait_end("second"), total=200, shards=1)
        assert not any("begins anew" in n for n in s["notices"]), brief(s)


@test(limit_s=60)
def a_checkpoint_without_a_descriptor_is_said_and_the_next_one_is_written():
    with Cluster(ps=1, workers=1, worker_args=SLOW) as c:
        folder = c.path("ckpt")
        job = c.submit(synthetic("mlp", steps=3000, checkpoint={"directory": folder, "every_steps": 100}))
        c.wait_status(job, lambda x: x["checkpoints"], 20, "the first checkpoint")
        with NoDescriptors(c.pid("coordinatord")):
            wait_log(c, ("job.notice", "was not written", "Too many open files"), 20)
        before = c.status(job)["checkpoints"][-1]["number"]
        c.wait_status(job, lambda x: x["checkpoints"][-1]["number"] > before, 20, "a later checkpoint")
        assert_exact(c.wait_end(job), total=3000, shards=1)
        left = [n for n in os.listdir(folder) if n.endswith(".partial")]
        assert not left, left


# ---- memory ------------------------------------------------------------------------------------
@test(limit_s=60)
def a_job_larger_than_any_memory_is_refused_with_its_size_and_the_daemons_live():
    with Cluster(ps=1, workers=1) as c:
        wide = synthetic(name="wide") | {"model": {"name": "mlp", "num_classes": 4, "hidden": [65536] * 8}}
        rc, out, err = c.ctl_raw("--json", "submit", c.write_job(wide))
        if rc == 0:
            s = c.wait_end("wide")
            assert s["state"] == "failed" and "memory" in s["reason"].lower(), brief(s)
        else:
            assert "memory" in err.lower(), (rc, out, err)
        rc, _, err = c.ctl_raw("submit", c.write_job(synthetic(name="endless") | {"notes": "x" * (5 << 20)}))
        assert rc != 0 and err, "a job file of 5 MiB was taken"
        assert_exact(c.wait_end(c.submit(synthetic("mlp", name="small", steps=50))), total=50, shards=1)


# ---- checkpoints -------------------------------------------------------------------------------
@test(limit_s=60)
def a_checkpoint_directory_that_is_removed_is_made_again():
    with Cluster(ps=1, workers=1, worker_args=SLOW) as c:
        folder = c.path("ckpt")
        job = c.submit(synthetic("mlp", steps=2000, checkpoint={"directory": folder}))
        c.wait_acked(job, 50)
        c.ctl("checkpoint", job)
        shutil.rmtree(folder)
        later = c.ctl("checkpoint", job)
        assert os.path.exists(os.path.join(later["path"], "manifest.json")), later
        assert_exact(c.wait_end(job), total=2000, shards=1)


if __name__ == "__main__":
    sys.exit(main())
