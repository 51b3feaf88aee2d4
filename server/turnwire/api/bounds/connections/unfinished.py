"""What connections have sent of requests that are not whole.

gRPC keeps what comes of a request, and shows none of it before all is there. But the system tells how much a connection
has sent: less what its whole requests had, that is what is kept of the others.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

from turnwire.api.bounds.connections.sockets import Received

HEAD_BYTES = 256
"""Counted for the head of a request, beside what it has: about what clients send who repeat themselves."""

_MAX_KNOWN = 20_000
"""Connections whose whole requests are counted; further ones replace those that have sent none for longest."""


class Unfinished:
    """Counts it by connection. Belongs to the event loop.

    It counts too much where requests have ended before they were whole, until the connection has none for a moment.
    """

    def __init__(self, received: Callable[[Collection[str]], Mapping[str, int]] | None = None) -> None:
        """Takes what returns how much connections have sent, on a thread of its own; by default the system does."""
        self._received = received or Received()
        # one of its own: what others do on shared threads may take long, and this must not
        self._thread = ThreadPoolExecutor(1, "sent bytes")
        self._open = Counter[str]()
        """Requests that are awaited."""
        self._whole: dict[str, int] = {}
        """Bytes that are no part of unfinished requests; who has sent one last is last."""
        self._broken: set[str] = set()
        """Connections of which requests have ended that were not whole."""

    def begin(self, connection: str) -> None:
        """Notes that a request is awaited."""
        self._open[connection] += 1

    def end(self, connection: str, size: int | None) -> None:
        """Notes that a request is whole and how large it is; or with None, that it is awaited no more."""
        self._open[connection] -= 1
        if not self._open[connection]:
            del self._open[connection]
        if size is None:
            self._broken.add(connection)
        self._whole[connection] = self._whole.pop(connection, 0) + (0 if size is None else size + HEAD_BYTES)
        if len(self._whole) > _MAX_KNOWN:
            forgotten = next(iter(self._whole))
            del self._whole[forgotten]
            self._broken.discard(forgotten)

    async def bytes_of(self, connections: Collection[str]) -> dict[str, int]:
        """Returns the bytes of unfinished requests by connection, without those of which nothing is known."""
        asked = {*connections, *self._broken}
        received = await asyncio.get_running_loop().run_in_executor(self._thread, self._received, asked)
        for connection in asked:
            size = received.get(connection)
            if size is None:
                self._whole.pop(connection, None)
                self._broken.discard(connection)
            elif connection not in self._open or size < self._whole.get(connection, 0):
                # nothing is awaited; or the address is that of a new connection
                self._forgive(connection, size)
        return {one: received[one] - self._whole.get(one, 0) for one in connections if one in received}

    def forgive(self, connection: str, size: int) -> None:
        """Notes that so many bytes are kept no more: the requests that had them were ended."""
        self._forgive(connection, self._whole.get(connection, 0) + size)

    def _forgive(self, connection: str, whole: int) -> None:
        self._whole[connection] = whole
        self._broken.discard(connection)
