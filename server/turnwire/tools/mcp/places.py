"""Places for large messages of MCP servers: how much of them there is in memory together.

Who has no place reads no further, so that the server waits with what it sends.
"""

from collections.abc import Mapping

from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.tools.mcp.wire.sizes import MAX_MESSAGE_BYTES

ALWAYS_BYTES = 32 * 1024
"""Of a message that needs no place. Those of all calls that may run have 64 MiB."""


class Places:
    """The places of one server: all servers share a budget, of which one has half at most."""

    def __init__(self, server: str, messages: FairSemaphore) -> None:
        """Takes the name of the server, and the budget of all."""
        self._server = server
        self._messages = messages

    async def take(self, size: int) -> int:
        """Returns when there is a place for so many bytes. Safe to cancel.

        Returns:
            What `leave` gets: a message for which there is never enough memory has the largest place.
        """
        size = min(size, max(1, self._messages.limit // 2))
        await self._messages.acquire(self._server, size)
        return size

    def leave(self, size: int) -> None:
        """Gives up a place."""
        self._messages.release(self._server, size)


class Place:
    """The place of one answer. It has none before a message is large, and then one for all that a message may have."""

    def __init__(self, places: Places, headers: Mapping[str, str], *, is_kept: bool) -> None:
        """Args:
        places: Of the server.
        headers: Of the answer; they may say how long it is.
        is_kept: Whether it keeps its place behind the end of the message.
        """
        self._places = places
        self._is_kept = is_kept
        length = headers.get("content-length", "")
        self._most = min(int(length), MAX_MESSAGE_BYTES) if length.isascii() and length.isdigit() else MAX_MESSAGE_BYTES
        self._size = 0

    async def take(self, held_bytes: int) -> None:
        """Returns when so many bytes of a message may be held. Safe to cancel."""
        if held_bytes <= ALWAYS_BYTES:
            if not self._is_kept:
                self.leave()
        elif not self._size:
            self._size = await self._places.take(self._most)

    def leave(self) -> None:
        """Gives it up. Idempotent."""
        size, self._size = self._size, 0
        if size:
            self._places.leave(size)
