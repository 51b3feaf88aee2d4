"""Shards: parts of all sessions, each of which one node owns."""

from collections.abc import Callable
from zlib import crc32

SHARDS = 256
"""Fixed forever: rows are stored under their shard."""


def shard_of(name: str) -> int:
    """Returns the shard of a session or of an upload by its id. It never changes."""
    return crc32(name.encode()) % SHARDS


def id_beside(name: str, new_id: Callable[[], str]) -> str:
    """Returns a new id of the shard of a name: whoever owns one owns the other. Draws 256 ids on average."""
    while shard_of(drawn := new_id()) != shard_of(name):
        pass
    return drawn
