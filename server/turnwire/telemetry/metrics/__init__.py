"""Metrics in the format of Prometheus. The server imports this package only when `[metrics]` has an address."""
