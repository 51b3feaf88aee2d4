#!/bin/sh
# Writes the stubs of the Go client from proto/. Needs buf on PATH: make generate-clients
set -eu
cd "$(dirname "$0")"
if ! command -v go >/dev/null; then
    echo "The stubs of the Go client stay as they are: no go here." >&2
    exit 0
fi
rm -rf opencode
buf generate ../.. --template buf.gen.yaml
