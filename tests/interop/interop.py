# SPDX-License-Identifier: Apache-2.0
"""A standard gRPC client and the reference safetensors reader against a running cluster.

usage: interop.py CLUSTER_DIR WORK_DIR, with the classes of proto/ on the path.
"""
import glob
import json
import os
import subprocess
import sys

import grpc
import numpy
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from safetensors import safe_open
from safetensors.numpy import load_file

from proto import coord_pb2, health_pb2, reflection_pb2

CALL_S = 10
SERVICES = {"coordinatord": {"steadfast.v1.Coordinator", "steadfast.v1.Fleet"},
            "psd-0": {"steadfast.v1.ParameterServer"}, "workerd-0": set()}
EVERYWHERE = {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}


class World:
    """The cluster, and the files of a job that is trained on first use."""

    def __init__(self, cluster, work):
        self.cluster = cluster
        self.work = work
        self.files = None

    def read(self, name):
        with open(os.path.join(self.cluster, name), encoding="utf-8") as f:
            return f.read().strip()

    def channel(self, daemon):
        return grpc.insecure_channel(self.read(f"run/{daemon}.port"))

    def trainctl(self, *args):
        env = dict(os.environ, STEADFAST_COORDINATOR=self.read("cluster.env").split("=")[1])
        done = subprocess.run([os.path.join(os.environ["STEADFAST_BIN"], "trainctl"), *args], env=env, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120,
                              check=False)
        assert done.returncode == 0, f"trainctl {args}: exit {done.returncode}: {done.stderr}"
        return done.stdout

    def trained(self):
        """Trains a small job; returns (checkpoint folder, exported file, status)."""
        if not self.files:
            job = {"name": "interop", "seed": 3, "epochs": 1,
                   "model": {"name": "mlp", "num_classes": 10, "hidden": [100]},
                   "dataset": {"source": "synthetic", "records": 6400, "batch_size": 64},
                   "optimizer": {"name": "adam", "learning_rate": 0.001},
                   "variable_partitioner": {"name": "fixed_shards", "num_shards": 3},
                   "checkpoint": {"directory": os.path.join(self.work, "ckpt"), "every_steps": 40}}
            path = os.path.join(self.work, "job.json")
            with open(path, "w", encoding="utf-8") as f:
                json.dump(job, f)
            self.trainctl("submit", path, "--watch")
            status = json.loads(self.trainctl("status", "interop", "--json"))
            newest = max(status["checkpoints"], key=lambda c: c["number"])
            out = os.path.join(self.work, "export.safetensors")
            self.trainctl("export", "interop", out)
            self.files = newest["path"], out, status
        return self.files


def unary(channel, method, request, reply_type):
    call = channel.unary_unary(method, request_serializer=lambda m: m.SerializeToString(),
                               response_deserializer=reply_type.FromString)
    return call(request, timeout=CALL_S)


def reflect(channel, **request):
    call = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                                 request_serializer=lambda m: m.SerializeToString(),
                                 response_deserializer=reflection_pb2.ServerReflectionResponse.FromString)
    replies = list(call(iter([reflection_pb2.ServerReflectionRequest(**request)]), timeout=CALL_S))
    assert len(replies) == 1, replies
    return replies[0]


def expect_status(code, what):
    try:
        what()
    except grpc.RpcError as e:
        assert e.code() == code, f"{e.code()} {e.details()}, want {code}"
        return e
    raise AssertionError(f"no error, want {code}")


# ---- health -------------------------------------------------------------------------------------
def all_three_daemons_are_healthy_to_a_standard_client(w):
    for daemon in SERVICES:
        with w.channel(daemon) as channel:
            reply = unary(channel, "/grpc.health.v1.Health/Check", health_pb2.HealthCheckRequest(),
                          health_pb2.HealthCheckResponse)
            assert reply.status == health_pb2.HealthCheckResponse.SERVING, (daemon, reply)


def the_health_of_a_service_nobody_has_is_not_found(w):
    for daemon in SERVICES:
        with w.channel(daemon) as channel:
            request = health_pb2.HealthCheckRequest(service="no.such.Service")
            expect_status(grpc.StatusCode.NOT_FOUND,
                          lambda: unary(channel, "/grpc.health.v1.Health/Check", request, health_pb2.HealthCheckResponse))


def a_health_watch_says_serving_first(w):
    for daemon in SERVICES:
        with w.channel(daemon) as channel:
            call = channel.unary_stream("/grpc.health.v1.Health/Watch",
                                        request_serializer=lambda m: m.SerializeToString(),
                                        response_deserializer=health_pb2.HealthCheckResponse.FromString)
            stream = call(health_pb2.HealthCheckRequest(), timeout=CALL_S)
            assert next(stream).status == health_pb2.HealthCheckResponse.SERVING, daemon
            stream.cancel()


# ---- reflection ---------------------------------------------------------------------------------
def reflection_lists_what_each_daemon_serves(w):
    for daemon, own in SERVICES.items():
        with w.channel(daemon) as channel:
            reply = reflect(channel, list_services="")
            names = {s.name for s in reply.list_services_response.service}
            assert names == own | EVERYWHERE, (daemon, names)


def reflection_refuses_an_unknown_symbol(w):
    with w.channel("coordinatord") as channel:
        reply = reflect(channel, file_containing_symbol="no.such.Service")
        assert reply.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0], reply


def a_client_that_knows_only_reflection_calls_the_coordinator(w):
    with w.channel("coordinatord") as channel:
        reply = reflect(channel, file_containing_symbol="steadfast.v1.Coordinator")
        pool = descriptor_pool.DescriptorPool()
        files = {}
        for data in reply.file_descriptor_response.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(data)
            files[file.name] = file

        def add(name):
            if name not in files:  # servers may leave dependencies to be asked for
                more = reflect(channel, file_by_filename=name).file_descriptor_response.file_descriptor_proto
                files.update({f.name: f for f in map(descriptor_pb2.FileDescriptorProto.FromString, more)})
            for dependency in files[name].dependency:
                add(dependency)
            pool.Add(files[name])

        top = [n for n, f in files.items() if any(s.name == "Coordinator" for s in f.service)]
        assert len(top) == 1, files.keys()
        add(top[0])
        method = pool.FindServiceByName("steadfast.v1.Coordinator").FindMethodByName("GetCluster")
        classes = [message_factory.MessageFactory(pool).GetPrototype(t) for t in (method.input_type, method.output_type)]
        reply = unary(channel, "/steadfast.v1.Coordinator/GetCluster", classes[0](), classes[1])
        assert {m.name for m in reply.members} == {"ps:0", "ps:1", "worker:0"}, reply


# ---- errors -------------------------------------------------------------------------------------
def an_error_has_its_status_and_its_name(w):
    with w.channel("coordinatord") as channel:
        e = expect_status(grpc.StatusCode.NOT_FOUND,
                          lambda: unary(channel, "/steadfast.v1.Coordinator/GetJob", coord_pb2.JobRef(job="nobody"),
                                        coord_pb2.JobStatus))
        assert ("steadfast-error", "NOT_FOUND") in [tuple(m) for m in e.trailing_metadata()], e.trailing_metadata()
        assert "nobody" in e.details(), e.details()


def an_unknown_method_is_unimplemented(w):
    for daemon in SERVICES:
        with w.channel(daemon) as channel:
            expect_status(grpc.StatusCode.UNIMPLEMENTED,
                          lambda: unary(channel, "/no.such.Service/Method", coord_pb2.ListRequest(), coord_pb2.JobList))


# ---- files --------------------------------------------------------------------------------------
def manifest_of(folder):
    with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as f:
        return json.load(f)


def the_reference_reader_opens_every_shard_file(w):
    folder, _, _ = w.trained()
    paths = glob.glob(os.path.join(folder, "*.safetensors"))
    assert len(paths) == len(manifest_of(folder)["files"]) >= 2, paths
    for path in paths:
        with safe_open(path, framework="numpy") as f:
            assert f.keys(), path
            for key in f.keys():
                tensor = f.get_tensor(key)
                assert tensor.dtype == numpy.float32 and numpy.isfinite(tensor).all(), (path, key)


def slices_and_slots_have_the_shapes_that_the_manifest_says(w):
    folder, _, _ = w.trained()
    manifest = manifest_of(folder)
    files = [load_file(os.path.join(folder, f["name"])) for f in manifest["files"]]
    rows = [0] * len(manifest["vars"])
    for s in manifest["slices"]:
        shape = manifest["vars"][s["var"]]["shape"]
        tensors = [t for k, t in files[s["file"]].items() if k == s["key"] or k.startswith(s["key"] + "#")]
        assert s["key"] in files[s["file"]], s
        assert len(tensors) == (3 if manifest["vars"][s["var"]]["trainable"] else 1), (s, len(tensors))  # adam: m, v
        for tensor in tensors:
            want = [s["rows"]] + shape[1:] if shape else []
            assert list(tensor.shape) == want, (s, tensor.shape)
        rows[s["var"]] += s["rows"]
    assert rows == [v["shape"][0] if v["shape"] else 1 for v in manifest["vars"]], rows


def the_export_holds_the_whole_variables_bit_for_bit(w):
    folder, out, _ = w.trained()
    manifest = manifest_of(folder)
    files = [load_file(os.path.join(folder, f["name"])) for f in manifest["files"]]
    whole = load_file(out)
    assert set(whole) == {v["name"] for v in manifest["vars"]}, set(whole)
    for i, var in enumerate(manifest["vars"]):
        slices = sorted((s for s in manifest["slices"] if s["var"] == i), key=lambda s: s["row_offset"])
        parts = [files[s["file"]][s["key"]] for s in slices]
        joined = numpy.concatenate(parts) if var["shape"] else parts[0]
        assert list(whole[var["name"]].shape) == var["shape"], var
        assert numpy.array_equal(whole[var["name"]], joined), var


def the_export_is_that_of_a_model_that_has_learned(w):
    _, out, status = w.trained()
    whole = load_file(out)
    assert status["steps"]["acknowledged"] == 100 and status["lost"] == status["repeated"] == 0, status["steps"]
    biases = [t for t in whole.values() if t.ndim == 1]
    assert biases and all(numpy.abs(b).max() > 0 for b in biases), "biases start at zero and are still there"


TESTS = [all_three_daemons_are_healthy_to_a_standard_client,
         the_health_of_a_service_nobody_has_is_not_found,
         a_health_watch_says_serving_first,
         reflection_lists_what_each_daemon_serves,
         reflection_refuses_an_unknown_symbol,
         a_client_that_knows_only_reflection_calls_the_coordinator,
         an_error_has_its_status_and_its_name,
         an_unknown_method_is_unimplemented,
         the_reference_reader_opens_every_shard_file,
         slices_and_slots_have_the_shapes_that_the_manifest_says,
         the_export_holds_the_whole_variables_bit_for_bit,
         the_export_is_that_of_a_model_that_has_learned]


def main():
    world = World(sys.argv[1], sys.argv[2])
    passed = failed = 0
    for test in TESTS:
        try:
            test(world)
            print(f"PASS interop.{test.__name__}", flush=True)
            passed += 1
        except Exception as e:  # pylint: disable=broad-except
            print(f"FAIL interop.{test.__name__}: {type(e).__name__}: {' '.join(str(e).split())[:600]}", flush=True)
            failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
