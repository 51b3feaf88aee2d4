#!/bin/sh
# Writes src/gen, the stubs of the contract in ../../proto. Needs Node and buf (make buf).
set -eu
cd "$(dirname "$0")"
buf=../../.venv/bin/buf
[ -x "$buf" ] || buf=buf
[ -x node_modules/.bin/protoc-gen-es ] || npm ci --no-audit --no-fund
"$buf" generate ../.. --template buf.gen.yaml
