#!/bin/sh
# Fails when generated/python is not what generate.sh makes of the contract. `make generate` repairs it.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
# Its output is worth reading only when it fails: it names every file.
if ! output=$("$root/proto/generate.sh" "$fresh" 2>&1); then
    echo "$output" >&2
    exit 1
fi
if ! diff -r -q -x __pycache__ "$fresh/opencode" "$root/generated/python/opencode"; then
    echo "generated/python is stale: run make generate." >&2
    exit 1
fi
