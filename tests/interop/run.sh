#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make interop: our files and services against other people's software. Makes a Python environment under
# build/interop (the safetensors reader and numpy from PyPI, grpcio and protobuf from Debian), starts a cluster on
# loopback, and lets interop.py judge it. Prints PASS and FAIL lines and "N passed, N failed".
set -euo pipefail
build=${1:?usage: tests/interop/run.sh BUILD}
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
STEADFAST_BIN=$(cd -- "$build/bin" && pwd)
export STEADFAST_BIN
work=$PWD/build/interop
venv=$work/venv
cluster=$work/cluster

mkdir -p -- "$work"
if ! "$venv/bin/python" -c 'import google.protobuf, grpc, numpy, safetensors' 2>/dev/null; then
    echo "interop: making a Python environment in $venv"
    rm -rf -- "$venv"
    /usr/bin/python3 -m venv --system-site-packages "$venv"
    wanted=(safetensors numpy)
    "$venv/bin/python" -c 'import grpc' 2>/dev/null || wanted+=(grpcio)
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --retries 5 "${wanted[@]}"
fi

# Message classes from our .proto files, by the compiler that everybody uses.
rm -rf -- "$work/gen" "$cluster" "$work/ckpt" "$work/export.safetensors"
mkdir -p -- "$work/gen"
protoc --python_out="$work/gen" proto/*.proto

trap 'deploy/local_cluster.sh down "$cluster" >/dev/null' EXIT
trap 'exit 130' INT TERM HUP
deploy/local_cluster.sh up "$cluster" --ps 2 --workers 1 --device cpu
PYTHONPATH=$work/gen "$venv/bin/python" tests/interop/interop.py "$cluster" "$work"
