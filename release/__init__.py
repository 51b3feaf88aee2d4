"""Parts of a release: pinned requirements, wheel, sources and bill of materials. `make build` runs it."""
