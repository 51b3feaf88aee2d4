"""Protobuf messages to and from values of the core. Knows no transport."""
