#!/bin/sh
# Writes the stubs of the contract: src/gen, and src/proto.ts, which exports all of them. They go below the folder named by
# the first argument, or below this one. Needs Node and buf (make buf); without Node what is there stays as it is.
set -eu
cd "$(dirname "$0")"
out=${1:-.}
if ! command -v npm >/dev/null; then
    echo "clients/typescript: no npm here, so its stubs stay as they are." >&2
    exit 0
fi
[ -x node_modules/.bin/protoc-gen-es ] || npm ci --no-audit --no-fund
buf=../../.venv/bin/buf
[ -x "$buf" ] || buf=buf
"$buf" generate ../.. --template buf.gen.yaml --output "$out"
{
    echo '/** The messages, enums and services of the contract. Names are unique over all packages of it. */'
    (cd "$out/src" && find gen -name '*_pb.ts' | sort | sed 's,^,export * from "./,; s,\.ts$,.js";,')
} >"$out/src/proto.ts"
