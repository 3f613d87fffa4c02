#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Members and clients that break the rules of the wire: their streams end, nothing else happens."""
import atexit
import importlib
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import (  # noqa: E402  pylint: disable=wrong-import-position
    Cluster, Skip, assert_exact, main, synthetic, test)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def fleet():
    """grpc and the message classes of fleet.proto, made by protoc in a folder of this process."""
    try:
        import grpc  # pylint: disable=import-outside-toplevel
    except ImportError as why:
        raise Skip("python3-grpcio is not installed") from why
    folder = tempfile.mkdtemp(prefix="steadfast-proto-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    subprocess.run(["protoc", "--python_out=" + folder, "proto/common.proto", "proto/fleet.proto"], cwd=ROOT, check=True)
    sys.path.insert(0, folder)
    return grpc, importlib.import_module("proto.fleet_pb2")


def attach(grpc, pb, channel, messages, wait_s=5):
    """What the coordinator says on a stream that sends these messages and half-closes; its end is fine either way."""
    call = channel.stream_stream("/steadfast.v1.Fleet/Attach",
                                 request_serializer=lambda message: message.SerializeToString(),
                                 response_deserializer=pb.CoordMessage.FromString)(iter(messages), timeout=wait_s)
    said = []
    try:
        said.extend(call)
    except grpc.RpcError:
        pass
    return said


@test(limit_s=60)
def members_that_are_told_goodbye_and_half_close_end_only_their_own_streams():
    grpc, pb = fleet()
    with Cluster(ps=1, workers=1, device="fake") as c:
        job = c.submit(synthetic("softmax", steps=400))
        channel = grpc.insecure_channel(c.coordinator())
        old = pb.MemberMessage(hello=pb.Hello(role=1, name="worker:0", address="127.0.0.1:1", incarnation=5))
        for _ in range(200):
            said = attach(grpc, pb, channel, [old])
            assert not said or said[-1].HasField("goodbye"), said
        assert not c.daemon("coordinatord").has_ended()
        assert_exact(c.wait_end(job))


@test(limit_s=60)
def a_member_that_does_not_begin_with_a_hello_or_says_nonsense_is_refused():
    grpc, pb = fleet()
    with Cluster(ps=1, workers=1, device="fake") as c:
        job = c.submit(synthetic("softmax", steps=400))
        channel = grpc.insecure_channel(c.coordinator())
        hello = pb.Hello(role=1, name="odd:0", address="127.0.0.1:1", incarnation=5)
        ref = {"job": 1, "step": 2 ** 63, "attempt": 2 ** 64 - 1, "generation": 2 ** 63}
        for messages in (
                [pb.MemberMessage(heartbeat=pb.Heartbeat(sequence=1))],
                [pb.MemberMessage()],
                [pb.MemberMessage(hello=pb.Hello())],
                [pb.MemberMessage(hello=pb.Hello(role=1, name="x" * 100000))],
                [pb.MemberMessage(hello=pb.Hello(role=2, name="ps:9", address="127.0.0.1:1", incarnation=1))],
                [pb.MemberMessage(hello=hello)] * 2,
                [pb.MemberMessage(hello=hello), pb.MemberMessage(reports=pb.ReportBatch(reports=[
                    pb.StepReport(outcome=0, **ref), pb.StepReport(outcome=7, kind=9, **ref)]))],
                [pb.MemberMessage(hello=hello), pb.MemberMessage(done=pb.OrderDone(order=2 ** 63, code="NONSENSE"))],
        ):
            attach(grpc, pb, channel, messages)
        assert not c.daemon("coordinatord").has_ended()
        assert_exact(c.wait_end(job))


@test(limit_s=60)
def a_coordinator_with_another_ledger_does_not_take_old_jobs_for_its_own():
    with Cluster(ps=1, workers=1, device="fake", worker_args="--fake-script=step_us=2000") as c:
        first = c.submit(synthetic("softmax", name="first", steps=100000))
        c.wait_acked(first, 50)
        c.kill("coordinatord")
        state = os.path.join(c.dir, "state")
        shutil.rmtree(state)
        os.mkdir(state)
        c.start_daemon("coordinatord")
        second = c.submit(synthetic("softmax", name="second", steps=300))
        assert c.status(second)["job"] == c.status("second")["job"]
        end = c.wait_end(second)
        assert_exact(end)
        assert end["duplicates_refused"] == 0, end


@test(limit_s=60)
def of_two_servers_of_one_name_the_newer_stays_and_the_older_ends():
    with Cluster(ps=1, workers=1, device="fake", worker_args="--fake-script=step_us=2000") as c:
        job = c.submit(synthetic("softmax", steps=600))
        c.wait_acked(job, 50)
        c.spawn("psd", "--tf-config", c.path("tf_config.json"), "--job_name", "ps", "--task_index", "0",
                "--address", "127.0.0.1:0", "--coordinator", c.coordinator())
        assert c.wait_dead("psd-0", what="when a newer process took its name") == 1
        end = c.wait_end(job)
        assert_exact(end)
        assert end["generation"] == 2, end


if __name__ == "__main__":
    sys.exit(main())
