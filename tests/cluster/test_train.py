#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Training with nothing going wrong: exact accounting, evaluations, plans, checkpoints, exports, commands."""
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import (  # noqa: E402  pylint: disable=wrong-import-position
    CANCELLED, ENDED, FAILED, OK, UNREACHABLE, USAGE, Cluster, assert_exact, brief, fashion, main, noop,
    read_safetensors, synthetic, test, wait_until)


@test(limit_s=60)
def a_job_trains_to_a_lower_loss_with_exact_accounting_and_an_evaluation_per_epoch():
    with Cluster(ps=2, workers=2, device="cpu") as c:
        job = c.submit(synthetic("mlp", steps=300, batch=16, epochs=3, evaluate=True))
        first = c.wait_status(job, lambda s: s["steps"]["acknowledged"] > 0 and s["loss"], 20, "a first loss")
        s = c.wait_end(job)
        assert_exact(s, total=900, shards=2)
        assert {x["server"] for x in s["shards"]} == {"ps:0", "ps:1"}, s["shards"]
        assert s["steps"]["reissued"] == 0 and s["duplicates_refused"] == 0, brief(s)
        assert [e["epoch"] for e in s["evaluations"]] == [1, 2, 3], s["evaluations"]
        assert [e["step"] for e in s["evaluations"]] == [300, 600, 900], s["evaluations"]
        losses = [e["loss"] for e in s["evaluations"]]
        assert s["loss"] < first["loss"], (first["loss"], s["loss"])
        assert losses[-1] < losses[0], losses
        assert s["generation"] == 1 and not s["abandoned_steps"], brief(s)
        phases = s["phases"]
        assert phases["steps"] == 900 and phases["compute_seconds"] > 0 and phases["apply_seconds"] > 0, phases
        assert all(phases[f"{name}_seconds"] >= 0 for name in ("serialise", "copy", "wait")), phases


@test(limit_s=90)
def one_epoch_of_fashion_mnist_teaches_softmax_more_than_three_in_four():
    with Cluster(ps=1, workers=2, device="cpu") as c:
        job = c.submit(fashion("softmax"))
        s = c.wait_end(job, 60)
        assert_exact(s, total=938, shards=1)
        assert len(s["evaluations"]) == 1, s["evaluations"]
        assert s["evaluations"][0]["accuracy"] > 0.75, s["evaluations"]
        return f"accuracy {s['evaluations'][0]['accuracy']:.4f}, {s['elapsed_seconds']:.1f} s"


@test(limit_s=90)
def values_read_in_place_and_over_the_network_train_the_same_weights():
    weights, logs = {}, {}
    for way in ("memory", "network"):
        off = "--no-peer-memory" if way == "network" else ""
        with Cluster(ps=2, workers=1, device="cpu", ps_args=off, worker_args=off) as c:
            spec = synthetic("mlp", steps=120, batch=16, side=28)
            spec["model"]["hidden"] = [256, 64]  # 800 KiB: above what is sent inside messages anyway
            spec["checkpoint"] = {"directory": os.path.join(c.dir, "ckpt"), "every_steps": 1000}
            job = c.submit(spec)
            assert_exact(c.wait_end(job), total=120, shards=2)
            path = os.path.join(c.dir, "weights.safetensors")
            c.ctl("export", job, path)
            with open(path, "rb") as file:
                weights[way] = file.read()
            with open(os.path.join(c.dir, "workerd-0.log"), encoding="utf-8") as file:
                logs[way] = file.read()
    assert "ps.memory" not in logs["network"], logs["network"]
    assert weights["memory"] == weights["network"], "the weights differ"
    if "ps.memory" not in logs["memory"]:
        return "both over the network: this system does not let one process read another"
    assert logs["memory"].count("are read where they lie") == 2, logs["memory"]


@test(limit_s=60)
def two_jobs_share_the_cluster_and_each_is_exact():
    with Cluster(ps=2, workers=2, worker_args="--fake-script=step_us=1000") as c:
        one = c.submit(synthetic("mlp", name="one", steps=800))
        two = c.submit(synthetic("softmax", name="two", steps=800))
        both = {}

        def together():
            both.update(one=c.status(one), two=c.status(two))
            assert not all(s["state"] in ENDED for s in both.values()), "both ended before they were seen together"
            return all(s["state"] == "running" and s["steps"]["acknowledged"] > 0 for s in both.values())

        wait_until(together, 20, lambda: f"both jobs train: {both}")
        assert_exact(c.wait_end(one), total=800, shards=2)
        assert_exact(c.wait_end(two), total=800)


@test(limit_s=40)
def a_plan_is_shown_before_anything_runs_and_is_what_the_servers_then_hold():
    with Cluster(ps=2, workers=1, shards=2) as c:
        spec = synthetic("mlp", steps=20, optimizer={"name": "adam", "learning_rate": 0.001},
                         variable_partitioner={"name": "fixed_shards", "num_shards": 3})
        plan = c.ctl("plan", c.write_job(spec))
        assert c.ctl("list")["jobs"] == [], "planning submitted a job"
        assert all(m["held_bytes"] == 0 for m in c.cluster()["members"]), c.cluster()
        assert plan["steps_total"] == 20 and plan["servers"] == ["ps:0", "ps:1"], plan
        assert plan["shards_per_server"] == 2 and len(plan["shard_bytes"]) == 4, plan
        assert plan["parameters"] == 64 * 32 + 32 + 32 * 4 + 4, plan
        planned = {}  # value bytes by (server, shard), from the slices themselves
        rows = {}
        for x in plan["slices"]:
            per_row = 4
            for dim in x["shape"][1:]:
                per_row *= dim
            at = (x["server"], x["shard"])
            planned[at] = planned.get(at, 0) + 3 * per_row * x["rows"]  # adam: value and two slots
            rows[x["variable"]] = rows.get(x["variable"], 0) + x["rows"]
            assert x["row_offset"] + x["rows"] <= x["shape"][0], x
        assert sorted(rows.values()) == [4, 32, 32, 64], rows
        assert sum(planned.values()) == 3 * 4 * plan["parameters"], planned
        s = assert_exact(c.wait_end(c.submit(spec)), total=20)
        held = {(x["server"], x["shard"]): x["bytes"] for x in s["shards"]}
        assert held == planned, f"planned {planned}, the servers said {held}"


@test(limit_s=60)
def checkpoints_are_published_kept_to_their_number_and_exported():
    with Cluster(ps=2, workers=2, device="cpu") as c:
        folder = c.path("ckpt")
        spec = synthetic("mlp", steps=500, checkpoint={"directory": folder, "every_steps": 100, "max_to_keep": 2})
        job = c.submit(spec)
        rc, out, err = c.ctl_raw("--json", "checkpoint", job)
        if rc == OK:  # the job may have ended before
            done = json.loads(out)
            assert done["path"].startswith(folder + "/ckpt-"), done
        else:
            assert c.status(job)["state"] in ENDED, err
        s = assert_exact(c.wait_end(job), total=500, shards=2)
        paths = [x["path"] for x in s["checkpoints"]]
        assert len(paths) == 2, s["checkpoints"]
        assert s["checkpoints"][-1]["step"] == 500, s["checkpoints"]
        found = sorted(n for n in os.listdir(folder))
        assert found == sorted(os.path.basename(p) for p in paths), (found, paths)
        assert any(n.endswith(".safetensors") for n in os.listdir(paths[-1])), os.listdir(paths[-1])
        shapes = {}
        for x in c.ctl("plan", c.write_job(spec))["slices"]:
            shapes[x["variable"]] = x["shape"]
        out = c.path("weights.safetensors")
        assert c.ctl("export", job, out)["checkpoint"] == paths[-1]
        assert read_safetensors(out) == shapes, (read_safetensors(out), shapes)
        again = c.path("again.safetensors")
        c.ctl("export", paths[-1], again)
        with open(out, "rb") as a, open(again, "rb") as b:
            assert a.read() == b.read()


@test(limit_s=60)
def commands_exit_with_the_codes_that_scripts_use():
    with Cluster(ps=1, workers=1, worker_args="--fake-script=step_us=2000") as c:
        long = c.submit(synthetic("softmax", name="long", steps=100000))
        c.wait_acked(long, 1)
        watch = c.watch(long)
        rc, out, _ = c.ctl_raw("cancel", long)
        assert rc == OK and "cancelled" in out, out
        wait_until(lambda: watch.poll() is not None, 10, "watch ends with its job")
        assert watch.returncode == CANCELLED, (watch.returncode, c.watch_output(long))
        s = c.status(long)
        assert s["state"] == "cancelled" and s["lost"] == 0 and s["repeated"] == 0, brief(s)
        assert c.ctl_raw("watch", long)[0] == CANCELLED
        short = c.submit(synthetic("softmax", name="short", steps=30))
        rc, out, err = c.ctl_raw("watch", short, "--interval-ms", "100")
        assert rc == OK and "succeeded" in out, (rc, out, err)
        rc, out, err = c.ctl_raw("submit", c.write_job(noop(500)), "--watch")
        assert rc == OK and "acknowledged 500 of 500" in out, (rc, out, err)
        names = [(j["name"], j["state"]) for j in c.ctl("list")["jobs"]]
        assert sorted(names) == [("long", "cancelled"), ("noop", "succeeded"), ("short", "succeeded")], names
        rc, _, err = c.ctl_raw("status", "no-such-job")
        assert rc == FAILED and "no-such-job" in err, (rc, err)
        rc, _, err = c.ctl_raw("--coordinator", "127.0.0.1:9", "--timeout", "1", "list")
        assert rc == UNREACHABLE and "127.0.0.1:9" in err, (rc, err)
        assert c.ctl_raw("no-such-command")[0] == USAGE
        rc, out, _ = c.ctl_raw("cancel", short)
        assert rc == OK and "succeeded" in out, f"cancelling a job that has ended: exit {rc}: {out}"


@test(limit_s=60)
def a_model_without_variables_needs_no_server_and_every_step_is_counted():
    with Cluster(ps=0, workers=2) as c:
        s = c.wait_end(c.submit(noop(20000)))
        steps = s["steps"]
        assert s["state"] == "succeeded" and s["shards"] == [], brief(s)
        assert steps["issued"] == steps["acknowledged"] == steps["total"] == 20000, brief(s)
        assert s["lost"] == 0 and s["repeated"] == 0 and s["accounting_final"], brief(s)
        return f"{20000 / max(s['elapsed_seconds'], 1e-9):.0f} steps/s"


@test(limit_s=40)
def a_cluster_is_up_and_its_first_step_done_in_a_moment():
    begin = time.monotonic()
    with Cluster(ps=2, workers=2) as c:
        up_s = time.monotonic() - begin
        job = c.submit(noop(1))
        s = c.wait_end(job, 10)
        first_s = time.monotonic() - begin
        assert s["steps"]["acknowledged"] == 1, brief(s)
        assert first_s < 3, f"up after {up_s:.2f} s, first step done after {first_s:.2f} s"
        return f"up after {up_s:.2f} s, first step done after {first_s:.2f} s"


@test(limit_s=40)
def every_daemon_leaves_at_sigterm_in_time_with_a_job_running():
    with Cluster(ps=2, workers=2, worker_args="--fake-script=step_us=1000") as c:
        job = c.submit(synthetic("mlp", steps=100000))
        c.wait_acked(job, 50)
        # The second worker may hold a step for the server that is gone: it tries on for five seconds.
        for name, limit_s in (("workerd-0", 3), ("psd-0", 3), ("workerd-1", 7), ("psd-1", 3), ("coordinatord", 3)):
            daemon = c.daemon(name)
            begin = time.monotonic()
            os.kill(daemon.pid, signal.SIGTERM)
            code = c.wait_dead(name, 10, "after SIGTERM")
            assert code == 0, f"{name} {daemon.said()} after SIGTERM, want exit code 0"
            took = time.monotonic() - begin
            assert took < limit_s, f"{name} took {took:.2f} s to leave"


if __name__ == "__main__":
    sys.exit(main())
