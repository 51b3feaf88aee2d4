#!/bin/sh
# Writes the Python stubs of the contract into the folder named by the first argument.
set -eu
out=${1:?folder}
python=${PYTHON:-python}
cd "$(dirname "$0")"
mkdir -p "$out"
find opencode -name '*.proto' | sort | xargs "$python" -m grpc_tools.protoc -I. \
    --python_out="$out" --grpc_python_out="$out" --mypy_out="$out" --mypy_grpc_out="$out"
touch "$out/opencode/py.typed"
