#!/usr/bin/env bash
# Runs the public conformance suite of Connect against the web listener: .ci/conformance/run.sh FOLDER. Needs go and
# openssl. Installs the suite into the folder, makes the stubs of its protos there, and commits none of it.
set -euo pipefail
version=v1.0.7
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)

GOBIN=$folder go install "connectrpc.com/conformance/cmd/connectconformance@$version"
protos=$(go mod download -json "connectrpc.com/conformance@$version" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/proto
rm -rf "$folder/stubs"
mkdir -p "$folder/stubs"
(cd "$protos" && "$root/.venv/bin/python" -m grpc_tools.protoc -I . --python_out="$folder/stubs" \
    connectrpc/conformance/v1/config.proto connectrpc/conformance/v1/server_compat.proto \
    connectrpc/conformance/v1/service.proto)

PYTHONPATH=$folder/stubs "$folder/connectconformance" --mode server --parallel 2 --max-servers 1 \
    --conf "$root/.ci/conformance/features.yaml" --known-failing "@$root/.ci/conformance/known_failing.txt" -- \
    "$root/.venv/bin/python" "$root/.ci/conformance/server.py"
