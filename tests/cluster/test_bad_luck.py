#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Bad input and bad luck: said once with the cause, nothing half started, nothing lost."""
import errno
import gzip
import json
import os
import random
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import (  # noqa: E402  pylint: disable=wrong-import-position
    USAGE, Cluster, assert_exact, brief, error_lines, fill_up, lease_args, main, synthetic, test, wait_until)

DAEMONS = ("coordinatord", "psd", "workerd")
SLOW = "--fake-script=step_us=1000"


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)
    return path


def idx_images(count, side=28):
    pixels = random.Random(5).randbytes(count * side * side)
    return struct.pack(">IIII", 0x803, count, side, side) + pixels


def idx_labels(count, classes=10):
    return struct.pack(">II", 0x801, count) + bytes(i % classes for i in range(count))


def idx_job(images, labels, name="idx", **more):
    return {"name": name, "seed": 3, "model": {"name": "softmax", "num_classes": 10},
            "dataset": {"source": "idx", "images": images, "labels": labels, "batch_size": 10},
            "optimizer": {"name": "sgd", "learning_rate": 0.01}} | more


# ---- input -------------------------------------------------------------------------------------
@test(limit_s=40)
def a_malformed_cluster_description_is_refused_at_once_with_path_and_hint():
    bad = [
        ('{"cluster": {"chief": ["a:1"], "ps": ["b:x"]}}', ("cluster.ps[0]", "b:x")),
        ('{"cluster": {"chief": ["a:1"], "pss": ["b:2"]}}', ("cluster.pss", "ps")),
        ('{"cluster": ', ("not JSON", "line 1")),
        ('[]', ("object",)),
    ]
    with Cluster(start=False) as c:
        for text, wanted in bad:
            path = c.path("tf_config.json")
            write(path, text.encode())
            for program in DAEMONS:
                for args, env in ((["--tf-config", path], None), ([], {"TF_CONFIG": text})):
                    rc, said, took = c.run_daemon(program, *args, "--port-file", c.path("port"), env=env)
                    assert rc == USAGE and took < 1, f"{program}: exit {rc} after {took:.2f} s: {said}"
                    assert all(w in said for w in wanted), f"{program}: want {wanted} in: {said}"
                    assert len(said.splitlines()) == 1, f"{program} said more than one line: {said}"
                    assert not os.path.exists(c.path("port")), "something was started"


@test(limit_s=40)
def a_malformed_job_is_refused_at_once_with_path_and_hint_and_nothing_is_started():
    def changed(**fields):
        return json.dumps(synthetic("mlp") | fields)

    bad = [
        (changed(epochs="3"), ("epochs", "3", "whole number")),
        (changed(optimiser={"name": "sgd"}), ("optimiser", "optimizer")),
        (changed(model={"name": "resnet50"}), ("model.name", "resnet50", "lenet")),
        (changed(optimizer={"name": "sgd", "learning_rate": -1}), ("optimizer.learning_rate", "-1")),
        ('{"name": "x", ', ("not JSON",)),
        ("", ("JSON",)),
    ]
    with Cluster(ps=1, workers=1) as c:
        for text, wanted in bad:
            path = write(c.path("bad.json"), text.encode())
            for command in ("submit", "plan"):
                begin = time.monotonic()
                rc, out, err = c.ctl_raw(command, path)
                took = time.monotonic() - begin
                assert rc == USAGE and took < 1, f"{command}: exit {rc} after {took:.2f} s: {err}"
                assert all(w in err for w in wanted), f"{command}: want {wanted} in: {err}"
                assert out == "", out
            rc, _, err = c.ctl_raw("--json", "submit", path)
            said = json.loads(err)["error"]
            assert rc == USAGE and said["code"] == "INVALID" and all(w in said["text"] for w in wanted), said
        rc, _, err = c.ctl_raw("submit", c.path("no-such-file.json"))
        assert rc == USAGE and "no-such-file.json" in err, (rc, err)
        assert c.ctl("list")["jobs"] == []


# ---- places ------------------------------------------------------------------------------------
@test(limit_s=40)
def a_port_that_is_taken_is_named_in_one_line_and_ends_each_daemon():
    with Cluster(start=False) as c, socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        os.mkdir(c.path("state"))
        for program, role, args in (("coordinatord", "chief", ["--state-dir", c.path("state")]),
                                    ("psd", "ps", ["--job_name", "ps", "--task_index", "0"]),
                                    ("workerd", "worker", ["--job_name", "worker", "--task_index", "0"])):
            config = {"cluster": {"chief": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"], "worker": ["127.0.0.1:3"]}}
            config["cluster"][role] = [address]
            path = write(c.path("tf_config.json"), json.dumps(config).encode())
            rc, said, took = c.run_daemon(program, "--tf-config", path, *args)
            assert rc == 1, f"{program}: exit {rc}: {said}"
            lines = error_lines(said)
            assert len(lines) == 1 and address in lines[0], f"{program}: want one line with {address}: {said}"
            assert took < 3, f"{program} took {took:.2f} s"


@test(limit_s=40)
def a_state_directory_that_cannot_be_used_is_named_and_ends_the_coordinator():
    with Cluster(start=False) as c:
        config = {"cluster": {"chief": ["127.0.0.1:1"]}}
        path = write(c.path("tf_config.json"), json.dumps(config).encode())
        file = write(c.path("file"), b"not a directory")
        places = [file, os.path.join(file, "below"), c.path("missing", "parent", "state")]
        garbled = c.path("garbled")
        os.mkdir(garbled)
        write(os.path.join(garbled, "ledger.db"), random.Random(1).randbytes(8192))
        places.append(garbled)
        for place in places:
            rc, said, took = c.run_daemon("coordinatord", "--tf-config", path, "--address", "127.0.0.1:0",
                                          "--state-dir", place, "--port-file", c.path("port"))
            assert rc == 1 and took < 3, f"{place}: exit {rc} after {took:.2f} s: {said}"
            lines = error_lines(said)
            assert len(lines) == 1 and place in lines[0], f"want one line with {place}: {said}"
            assert not os.path.exists(c.path("port")), "it listened"


# ---- full disks --------------------------------------------------------------------------------
@test(limit_s=60)
def a_full_disk_under_the_ledger_pauses_the_job_until_there_is_space():
    with Cluster(ps=2, workers=2, worker_args=SLOW, start=False) as c:
        c.mount_small(c.path("state"), "24m")
        c.up()
        job = c.submit(synthetic("mlp", steps=3000))
        c.wait_acked(job, 100)
        filler = fill_up(c.path("state"))
        s = c.wait_status(job, lambda x: x["state"] != "running", 15, "the job is paused")
        assert s["state"] == "paused", brief(s)
        assert "full" in s["reason"] or "space" in s["reason"], f"the reason names the cause: {brief(s)}"
        count = s["steps"]["acknowledged"]
        rc, _, err = c.ctl_raw("--timeout", "1", "submit", c.write_job(synthetic("softmax", steps=10)))
        assert rc != 0, "a job was accepted that no ledger holds"
        assert c.status(job)["steps"]["acknowledged"] == count, brief(c.status(job))
        os.unlink(filler)
        s = assert_exact(c.wait_end(job), total=3000, shards=2)
        assert s["generation"] == 1, brief(s)
        stuck = [line for line in error_lines(c.log("coordinatord")) if "full" in line]
        assert len(stuck) == 1, f"want it said once: {stuck}"


@test(limit_s=60)
def a_coordinator_killed_with_a_full_disk_goes_on_from_what_was_written():
    with Cluster(ps=2, workers=2, worker_args=SLOW, coordinator_args=lease_args(), start=False) as c:
        c.mount_small(c.path("state"), "24m")
        c.up()
        job = c.submit(synthetic("mlp", steps=2000))
        c.wait_acked(job, 100)
        filler = fill_up(c.path("state"))
        s = c.wait_status(job, lambda x: x["state"] == "paused", 15, "the job is paused")
        c.kill("coordinatord")
        os.unlink(filler)
        c.start_daemon("coordinatord")
        assert c.status(job)["steps"]["acknowledged"] >= s["steps"]["acknowledged"], brief(c.status(job))
        assert_exact(c.wait_end(job), total=2000, shards=2)


@test(limit_s=60)
def a_full_disk_under_the_checkpoints_is_said_and_training_goes_on():
    with Cluster(ps=2, workers=2, device="cpu", start=False) as c:
        folder = c.path("ckpt")
        c.mount_small(folder, "24m")
        c.up()
        large = {"name": "mlp", "num_classes": 4, "hidden": [2048]}
        job = c.submit(synthetic(steps=60000, checkpoint={"directory": folder}) | {"model": large})
        good = c.ctl("checkpoint", job)
        filler = fill_up(folder)
        rc, _, err = c.ctl_raw("checkpoint", job)
        assert rc == 1 and ("space" in err or "full" in err) and folder in err, (rc, err)
        s = c.status(job)
        said = [n for n in s["notices"] if "was not written" in n]
        assert s["state"] == "running" and len(said) == 1 and "space" in said[0], brief(s)
        count = s["steps"]["acknowledged"]
        c.wait_acked(job, count + 100)
        left = sorted(n for n in os.listdir(folder) if n != "filler")
        assert left == [os.path.basename(good["path"])], f"want only the good one: {left}"
        os.unlink(filler)
        later = c.ctl("checkpoint", job)
        assert later["number"] > good["number"] and later["step"] > good["step"], (good, later)
        s = c.ctl("cancel", job)
        assert s["lost"] == 0 and s["repeated"] == 0, brief(s)
        c.ctl("export", job, c.path("weights.safetensors"))


# ---- data --------------------------------------------------------------------------------------
@test(limit_s=60)
def a_data_file_that_cannot_be_used_is_refused_at_submit_with_file_and_cause():
    with Cluster(ps=1, workers=1, device="ref") as c:
        images = write(c.path("images"), idx_images(100))
        labels = write(c.path("labels"), idx_labels(100))
        missing = c.path("missing")
        wrong = write(c.path("wrong"), b"\x00\x00\x08\x07" + idx_images(100)[4:])
        short = write(c.path("short"), idx_images(100)[:9])
        half = write(c.path("half"), idx_images(100)[:40000])
        cut = write(c.path("cut.gz"), gzip.compress(idx_images(100))[:12])
        text = write(c.path("text"), b"label,pixel1,pixel2\n" * 100)
        for bad, words in ((missing, "No such file"), (wrong, "want"), (short, "want"), (half, "40000"),
                           (cut, "truncated"), (text, "want")):
            begin = time.monotonic()
            rc, _, err = c.ctl_raw("submit", c.write_job(idx_job(bad, labels)))
            took = time.monotonic() - begin
            assert rc in (1, USAGE) and took < 1, f"{bad}: exit {rc} after {took:.2f} s: {err}"
            assert bad in err and "dataset.images" in err and words in err, f"{bad}: {err}"
        rc, _, err = c.ctl_raw("submit", c.write_job(idx_job(images, write(c.path("few"), idx_labels(99)))))
        assert rc in (1, USAGE) and "100 images" in err and "99 labels" in err, (rc, err)
        rc, _, err = c.ctl_raw("submit", c.write_job(idx_job(images, images)))
        assert rc in (1, USAGE) and "dataset.labels" in err, (rc, err)
        assert c.ctl("list")["jobs"] == []
        assert_exact(c.wait_end(c.submit(idx_job(images, labels))), total=10)


@test(limit_s=90)
def a_data_file_that_is_damaged_behind_its_header_fails_its_step_with_file_and_offset():
    with Cluster(ps=1, workers=1, device="ref") as c:
        labels = write(c.path("labels"), idx_labels(1000))
        good = idx_images(1000)
        packed = gzip.compress(good, 1)
        broken = bytearray(packed)
        broken[len(broken) // 2] ^= 0xFF
        bad_label = bytearray(idx_labels(1000))
        bad_label[8 + 500] = 200
        for name, images, marks in (("gzip.gz", packed[:len(packed) // 2], labels),
                                    ("damaged.gz", bytes(broken), labels),
                                    ("label", good, write(c.path("labels-bad"), bytes(bad_label)))):
            path = write(c.path(name), images)
            s = c.wait_end(c.submit(idx_job(path, marks, name=name, steps={"on_error": "abort"})), 15)
            wanted = marks if name == "label" else path
            assert s["state"] == "failed", brief(s)
            assert "step" in s["reason"] and wanted in s["reason"], f"{name}: the file is named: {brief(s)}"
            assert "offset" in s["reason"] or "byte" in s["reason"] or "record" in s["reason"], \
                f"{name}: the place is named: {brief(s)}"
        # The cluster is none the worse for it.
        path = write(c.path("good"), good)
        assert_exact(c.wait_end(c.submit(idx_job(path, labels, name="good"))), total=100)


@test(limit_s=60)
def a_data_file_that_vanishes_after_submit_fails_the_step_with_its_name():
    with Cluster(ps=1, workers=0) as c:
        images = write(c.path("images"), idx_images(100))
        labels = write(c.path("labels"), idx_labels(100))
        job = c.submit(idx_job(images, labels))
        os.unlink(images)
        c.add_worker("late")
        s = c.wait_end(job, 20)
        assert s["state"] == "failed" and images in s["reason"], brief(s)
        assert "failed 5 times" in s["reason"], brief(s)
        assert all(images in x["text"] for x in s["abandoned_steps"]), s["abandoned_steps"]


# ---- noise -------------------------------------------------------------------------------------
@test(limit_s=60)
def random_bytes_at_every_port_close_their_connection_and_disturb_nothing():
    rng = random.Random(11)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    noise = [rng.randbytes(65536), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00" + rng.randbytes(512),
             preface + rng.randbytes(4096), preface + b"\x00\xff\xff\x00\x00\x00\x00\x00\x01" + rng.randbytes(70000),
             b"\x00" * 100000]
    with Cluster(ps=2, workers=2, worker_args=SLOW) as c:
        job = c.submit(synthetic("mlp", steps=3000))
        c.wait_acked(job, 50)
        for name in ("coordinatord", "psd-0", "psd-1", "workerd-0", "workerd-1"):
            host, port = c.address(name).rsplit(":", 1)
            for data in noise:
                with socket.create_connection((host, int(port)), timeout=5) as s:
                    s.settimeout(12)
                    try:
                        s.sendall(data)
                        s.shutdown(socket.SHUT_WR)
                        while s.recv(65536):
                            pass
                    except (ConnectionResetError, BrokenPipeError):
                        pass
                    except OSError as e:
                        if e.errno not in (errno.ENOTCONN, errno.ECONNRESET):
                            raise AssertionError(f"{name} kept the connection open after {data[:24]!r}: {e}") from e
        s = c.status(job)
        assert s["state"] == "running", f"the job ended before the noise did: {brief(s)}"
        s = assert_exact(c.wait_end(job), total=3000, shards=2)
        assert s["steps"]["reissued"] == 0 and s["generation"] == 1, brief(s)


@test(limit_s=40)
def a_member_that_speaks_for_another_is_refused_and_the_first_one_goes_on():
    with Cluster(ps=1, workers=1, worker_args=SLOW) as c:
        job = c.submit(synthetic("mlp", steps=1500))
        c.wait_acked(job, 50)
        # An older incarnation is what a clock that was set back, or a copy of an old machine, looks like: a newer
        # process takes the name over, and the old one must end rather than fight for it.
        old = c.daemon("workerd-0")
        args = ["--tf-config", c.path("tf_config.json"), "--job_name", "worker", "--task_index", "0", "--address",
                "127.0.0.1:0", "--device", "fake", SLOW, "--coordinator", c.coordinator()]
        proc = c.spawn("workerd", *args)
        wait_until(lambda: c.member("worker:0")["pid"] == proc.pid, 10, lambda: f"the newer is in: {c.cluster()}")
        assert c.wait_dead("workerd-0", 10, "as another has its name") == 1, old.said()
        lines = [x for x in error_lines(c.log("workerd-0")) if "level=error" in x]
        assert len(lines) == 1 and "newer" in lines[0], lines
        assert_exact(c.wait_end(job), total=1500)


if __name__ == "__main__":
    sys.exit(main())
