"""What a release consists of: pinned requirements, wheel, sources and bill of materials. `make build` runs it."""
