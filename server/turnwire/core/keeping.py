"""What is kept in memory of sessions between their requests, so that each request costs what is new in it.

Everything here can be made again from the stored messages. Whoever keeps something compares what it was made from with
what there is now, so nothing has to be told that a conversation changed.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

MAX_KEPT_BYTES = 192 * 2**20
"""For all sessions together: about 100,000 messages of 400 characters, for a session of that length costs little only
while it is kept. A session that needs more alone is not kept."""

IDLE_SECONDS = 600.0
"""How long a session is kept after its last use, until another one is used. Few people think longer between two
messages."""


class KeptPart(Protocol):
    """One of the things that are kept of a session. It is made without arguments."""

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        ...


P = TypeVar("P", bound=KeptPart)


class KeptSession:
    """What is kept of one session. `lock` is held by whoever uses it."""

    def __init__(self) -> None:
        """Keeps nothing yet."""
        self.lock = asyncio.Lock()
        self.users = 0
        self.used_at = 0.0
        self.size_bytes = 0
        self._parts: dict[type, KeptPart] = {}

    def take(self, kind: type[P]) -> P:
        """Takes the part of this kind away, for who changes it; a new one when there is none."""
        part = self._parts.pop(kind, None)
        return part if isinstance(part, kind) else kind()

    def put(self, part: KeptPart) -> None:
        """Keeps a part that is whole again. One that is not put back, because its user was cancelled, is forgotten."""
        self._parts[type(part)] = part

    def weigh(self) -> None:
        """Finds out how large it is now."""
        self.size_bytes = sum(part.size_bytes for part in self._parts.values())


class KeptSessions:
    """The most recently used sessions, by id. Used on the event loop only."""

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        """Takes how much memory all of them may have."""
        self._max_bytes = max_bytes
        self._sessions: OrderedDict[str, KeptSession] = OrderedDict()
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """What all of them take."""
        return self._size_bytes

    @asynccontextmanager
    async def use(self, session_id: str) -> AsyncIterator[KeptSession]:
        """Yields what is kept of a session, to nobody else meanwhile."""
        kept = self._sessions.setdefault(session_id, KeptSession())
        self._sessions.move_to_end(session_id)
        kept.users += 1  # so that it stays while somebody waits for it
        try:
            async with kept.lock:
                before = kept.size_bytes
                try:
                    yield kept
                finally:
                    kept.weigh()
                    kept.used_at = time.monotonic()
                    self._size_bytes += kept.size_bytes - before
        finally:
            kept.users -= 1
            self._drop()

    def forget(self, session_id: str) -> None:
        """Drops what is kept of a session that was removed. Somebody who uses it goes on."""
        kept = self._sessions.get(session_id)
        if kept is not None and not kept.users:
            del self._sessions[session_id]
            self._size_bytes -= kept.size_bytes

    def clear(self) -> None:
        """Drops what nobody uses."""
        for session_id in list(self._sessions):
            self.forget(session_id)

    def _drop(self) -> None:
        """Drops sessions, the one that was used longest ago first, until the others fit and are in use."""
        idle_since = time.monotonic() - IDLE_SECONDS
        for _ in range(len(self._sessions)):
            session_id, kept = next(iter(self._sessions.items()))
            if self._size_bytes <= self._max_bytes and (kept.users or kept.used_at >= idle_since):
                return
            if kept.users:
                self._sessions.move_to_end(session_id)
            else:
                del self._sessions[session_id]
                self._size_bytes -= kept.size_bytes
