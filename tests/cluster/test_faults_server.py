#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Parameter servers killed, frozen, or replaced by another number of them."""
import os
import resource
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import (  # noqa: E402  pylint: disable=wrong-import-position
    Cluster, assert_exact, brief, lease_args, main, read_safetensors, synthetic, test)

SLOW = "--fake-script=step_us=2500"  # two workers: 800 steps a second


def redone(status):
    return [n for n in status["notices"] if "redone" in n]


def wait_paused(c, job, server):
    s = c.wait_status(job, lambda x: x["state"] == "paused", 10, "the job is paused")
    assert server in s["reason"], f"the reason names {server}: {brief(s)}"
    return s


@test(limit_s=60)
def without_a_checkpoint_a_killed_server_pauses_the_job_which_then_redoes_what_was_done():
    with Cluster(ps=2, workers=2, worker_args=SLOW, coordinator_args=lease_args()) as c:
        job = c.submit(synthetic("mlp", steps=1000))
        c.wait_acked(job, 200)
        c.kill("psd-1")
        paused = wait_paused(c, job, "ps:1")
        assert paused["steps"]["acknowledged"] >= 200, brief(paused)
        c.start_daemon("psd-1")
        s = assert_exact(c.wait_end(job), total=1000, shards=2)
        assert s["generation"] == 2, brief(s)
        assert len(redone(s)) == 1, s["notices"]
        assert f"all {paused['steps']['acknowledged']} acknowledged steps are redone" in redone(s)[0], (paused, s)


@test(limit_s=60)
def with_checkpoints_a_killed_server_is_restored_from_the_newest():
    with Cluster(ps=2, workers=2, worker_args=SLOW, coordinator_args=lease_args()) as c:
        folder = c.path("ckpt")
        job = c.submit(synthetic("mlp", steps=1500, checkpoint={"directory": folder, "every_steps": 200}))
        c.wait_status(job, lambda s: len(s["checkpoints"]) >= 2, 20, "two checkpoints")
        c.kill("psd-0")
        paused = wait_paused(c, job, "ps:0")
        newest = paused["checkpoints"][-1]
        c.start_daemon("psd-0")
        s = assert_exact(c.wait_end(job), total=1500, shards=2)
        assert s["generation"] == 2, brief(s)
        assert any(newest["path"] in n for n in s["notices"]), (newest, s["notices"])
        for n in redone(s):
            assert f" {paused['steps']['acknowledged'] - newest['step']} acknowledged" in n, (paused, newest, n)
        assert s["checkpoints"][-1]["step"] == 1500, s["checkpoints"]


@test(limit_s=60)
def a_server_that_is_back_before_its_lease_is_over_is_never_taken_for_the_old_one():
    with Cluster(ps=2, workers=2, worker_args=SLOW, coordinator_args=lease_args(20000)) as c:
        job = c.submit(synthetic("mlp", steps=800))
        c.wait_acked(job, 100)
        c.kill("psd-1")
        c.start_daemon("psd-1")
        s = assert_exact(c.wait_end(job), total=800, shards=2)
        assert s["generation"] == 2 and len(redone(s)) == 1, brief(s)


@test(limit_s=90)
def servers_killed_again_and_again_in_one_job_leave_exact_counts():
    with Cluster(ps=2, workers=2, worker_args=SLOW, coordinator_args=lease_args()) as c:
        job = c.submit(synthetic("mlp", steps=3000, checkpoint={"directory": c.path("ckpt"), "every_steps": 60}))
        for kill in range(6):
            name = f"psd-{kill % 2}"
            count = c.status(job)["steps"]["acknowledged"]
            c.wait_acked(job, count + 80)
            c.kill(name)
            c.start_daemon(name)
            c.wait_status(job, lambda s, want=kill + 2: s["generation"] >= want, 15, f"generation {kill + 2}")
        s = assert_exact(c.wait_end(job), total=3000, shards=2)
        assert s["generation"] >= 7, brief(s)


@test(limit_s=60)
def a_server_frozen_past_its_lease_goes_on_with_what_it_holds():
    with Cluster(ps=2, workers=2, worker_args=SLOW, coordinator_args=lease_args()) as c:
        job = c.submit(synthetic("mlp", steps=1000))
        c.wait_acked(job, 150)
        c.pause("psd-0")
        s = wait_paused(c, job, "ps:0")
        acknowledged = s["steps"]["acknowledged"]
        assert acknowledged >= 150, brief(s)
        c.go_on("psd-0")
        s = c.wait_status(job, lambda x: x["state"] != "paused", 10, "it goes on")
        assert s["steps"]["acknowledged"] >= acknowledged, f"want at least {acknowledged}: {brief(s)}"
        s = assert_exact(c.wait_end(job), total=1000, shards=2)
        assert s["generation"] == 1 and not redone(s), brief(s)


@test(limit_s=60)
def a_whole_cluster_switched_off_and_on_goes_on_from_the_newest_checkpoint():
    with Cluster(ps=2, workers=2, worker_args=SLOW, coordinator_args=lease_args()) as c:
        job = c.submit(synthetic("mlp", steps=3000, checkpoint={"directory": c.path("ckpt"), "every_steps": 200}))
        s = c.wait_status(job, lambda s: s["checkpoints"], 20, "a checkpoint")
        assert s["state"] == "running", brief(s)
        c.down()
        c.up()
        s = assert_exact(c.wait_end(job), total=3000, shards=2)
        assert s["generation"] >= 2 and any("restored from" in n for n in s["notices"]), brief(s)


class NoDescriptors:
    """From `with` on the process can open nothing more; what it has open it keeps."""

    def __init__(self, pid):
        self.pid = pid
        self.limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)

    def __enter__(self):
        taken = {int(fd) for fd in os.listdir(f"/proc/{self.pid}/fd")}
        free = next(fd for fd in range(len(taken) + 1) if fd not in taken)
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (free, self.limits[1]))
        return self

    def __exit__(self, *_):
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, self.limits)


@test(limit_s=60)
def a_checkpoint_for_which_there_are_no_descriptors_is_named_and_comes_when_there_are():
    with Cluster(ps=2, workers=2, worker_args=SLOW) as c:
        job = c.submit(synthetic("mlp", steps=3000, checkpoint={"directory": c.path("ckpt"), "every_steps": 100}))
        c.wait_status(job, lambda s: s["checkpoints"], 20, "a checkpoint")
        with NoDescriptors(c.pid("psd-1")):
            s = c.wait_status(job, lambda s: any("Too many open files" in n for n in s["notices"]), 20,
                              "a checkpoint fails aloud")
            said = next(n for n in s["notices"] if "Too many open files" in n)
            assert c.path("ckpt") in said and "server1-shard0" in said, said
            acked = s["steps"]["acknowledged"]
            s = c.wait_acked(job, acked + 200)
            assert s["state"] == "running", brief(s)
            count = len(s["checkpoints"])
        c.wait_status(job, lambda s: len(s["checkpoints"]) > count or s["checkpoints"][-1]["step"] > acked, 20,
                      "a checkpoint after it")
        assert_exact(c.wait_end(job), total=3000, shards=2)


@test(limit_s=90)
def a_restore_for_which_there_are_no_descriptors_is_named_and_comes_when_there_are():
    with Cluster(ps=2, workers=2, worker_args=SLOW, coordinator_args=lease_args()) as c:
        job = c.submit(synthetic("mlp", steps=2000, checkpoint={"directory": c.path("ckpt"), "every_steps": 100}))
        c.wait_status(job, lambda s: s["checkpoints"], 20, "a checkpoint")
        c.kill("psd-0")
        wait_paused(c, job, "ps:0")
        with NoDescriptors(c.pid("psd-1")):
            c.start_daemon("psd-0")
            s = c.wait_status(job, lambda s: "Too many open files" in s["reason"], 20, "the reason is said")
            assert s["state"] not in ("failed", "succeeded"), brief(s)
            assert "ps:1" in s["reason"] and c.path("ckpt") in s["reason"], s["reason"]
        s = assert_exact(c.wait_end(job), total=2000, shards=2)
        assert s["generation"] == 2, brief(s)


@test(limit_s=120)
def a_cancelled_job_is_resumed_on_other_numbers_of_servers():
    """2 servers, then 3, then 1: each restores the very weights and ends with the exact count."""
    folder = tempfile.mkdtemp(prefix="steadfast-ckpt-")
    try:
        spec = synthetic("mlp", steps=3000, checkpoint={"directory": folder, "every_steps": 300},
                         optimizer={"name": "adam", "learning_rate": 0.001},
                         variable_partitioner={"name": "fixed_shards", "num_shards": 3})
        shapes = None
        step = 0
        for servers, shards in ((2, 1), (3, 2), (1, 2)):
            if step:  # nobody trains: what is written again must be what was read
                with Cluster(ps=servers, workers=0, shards=shards) as c:
                    before = c.path("before.safetensors")
                    after = c.path("after.safetensors")
                    c.ctl("export", os.path.join(folder, newest(folder)), before)
                    job = c.submit(spec, "--resume")
                    done = c.ctl("checkpoint", job)
                    assert done["step"] == step, (done, step)
                    c.ctl("export", job, after)
                    with open(before, "rb") as a, open(after, "rb") as b:
                        assert a.read() == b.read(), f"restored on {servers} servers, the weights differ"
                    c.ctl("cancel", job)
            with Cluster(ps=servers, workers=2, device="cpu", shards=shards) as c:
                job = c.submit(spec, *(["--resume"] if step else []))
                if servers != 1:
                    c.wait_acked(job, step + 400)
                    done = c.ctl("checkpoint", job)
                    s = c.ctl("cancel", job)
                    assert s["state"] == "cancelled" and done["step"] > step, (brief(s), done)
                    assert s["lost"] == 0 and s["repeated"] == 0, brief(s)
                    step = s["checkpoints"][-1]["step"]  # one more may have been due meanwhile
                else:
                    s = assert_exact(c.wait_end(job), total=3000)
                    assert any("restored from" in n for n in s["notices"]), s["notices"]
                out = c.path("weights.safetensors")
                c.ctl("export", os.path.join(folder, newest(folder)), out)
                found = read_safetensors(out)
                assert shapes is None or found == shapes, (found, shapes)
                shapes = found
        assert len(shapes) == 4, shapes
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def newest(folder):
    """The checkpoint with the highest number."""
    return max((n for n in os.listdir(folder) if n.startswith("ckpt-") and n[5:].isdigit()), key=lambda n: int(n[5:]))


if __name__ == "__main__":
    sys.exit(main())
