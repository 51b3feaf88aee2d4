"""The server's pending work at one moment."""

from msgspec import Struct


class Readings(Struct, frozen=True):
    """Numbers that are looked at, not counted."""

    running: int
    """Turns that run, the waiting ones included."""
    waiting: int
    """Running turns that wait for a person or for a tool of the client."""
    queued: int
    """Messages that wait behind a running turn."""
    watchers: int
    """Event streams that are open."""
    calls: int = 0
    """Calls that run, open streams included, of all listeners."""
    is_memory_short: bool = False
    """Whether new work is refused for want of memory."""
