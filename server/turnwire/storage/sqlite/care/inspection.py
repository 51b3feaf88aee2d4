"""What the checks share: the open database, and readers of what is stored in encoded form."""

import sqlite3
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from turnwire.ports.codec import Codec


class EventFacts(Struct, frozen=True):
    """What a stored durable event says about itself."""

    session_id: str
    """"" for a short event, which leaves it out."""
    sequence: int
    kind: str
    """The name of the kind's class, such as "MessageAdded"."""
    queue_revision: int | None = None
    """Of QueueChanged; None for other kinds."""


class FrameReader(Protocol):
    """Reads stored frames, which the store itself treats as opaque. Pure."""

    def event(self, frame: bytes) -> EventFacts:
        """Returns the facts of a short event or a frame. Raises ValueError when it is no event of a known kind."""
        ...

    def same_display(self, stored: bytes, made: bytes) -> bool:
        """Returns whether two display forms show the same. Bytes that differ may: the order of a map is free."""
        ...


class Inspection(Struct, frozen=True):
    """One look at a database. All checks read through one transaction, so they see one moment of a live database."""

    db: sqlite3.Connection
    codec: Codec
    frames: FrameReader
    advance: Callable[[str, int], None] = lambda _table, _rows: None
    """Called with a table and how many more of its rows were examined."""
