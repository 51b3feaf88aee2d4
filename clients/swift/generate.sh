#!/bin/sh
# Writes Sources/TurnwireContract from the contract. Needs buf, protoc-gen-swift (of swift-protobuf) and
# protoc-gen-grpc-swift-2 (of grpc-swift-protobuf) on PATH; without the generators it changes nothing.
set -eu
cd "$(dirname "$0")"
for tool in protoc-gen-swift protoc-gen-grpc-swift-2; do
    if ! command -v "$tool" >/dev/null; then
        echo "clients/swift: not generated, no $tool here"
        exit 0
    fi
done
buf generate ../.. --template buf.gen.yaml
# Says of which contract the sources are, for checks where the generators are missing.
(cd ../../proto && find opencode -name '*.proto' | LC_ALL=C sort | xargs sha256sum) >Sources/TurnwireContract/contract.sha256
