"""The server's pending work at one moment."""

from msgspec import Struct


class Readings(Struct, frozen=True):
    """Numbers of the present, which are read when needed and not counted."""

    running: int
    """Running turns, waiting ones included."""
    waiting: int
    """Running turns that wait for a person or for a tool of the client."""
    queued: int
    """Messages that wait behind a running turn."""
    watchers: int
    """Open event streams."""
    calls: int = 0
    """Running calls of all listeners, open streams included."""
    is_memory_short: bool = False
    """Whether new work is rejected because memory is short."""
