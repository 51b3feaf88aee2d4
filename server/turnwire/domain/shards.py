"""Shards: parts of all sessions, each of which one node owns."""

from zlib import crc32

SHARDS = 256
"""Fixed forever: rows are stored under their shard."""


def shard_of(name: str) -> int:
    """Returns the shard of a session or of an upload by its id. It never changes."""
    return crc32(name.encode()) % SHARDS
