"""Observability of the server's work: reports of ended operations, and traces."""
