"""Small answers that clients have not read: what gRPC keeps of their calls is more than the answers are."""

from collections.abc import Callable

from turnwire.api.bounds.peers import Resets
from turnwire.api.bounds.receiving import RETRY_AFTER
from turnwire.domain.errors import TooManyCalls

MAX_SMALL_BYTES = 64 * 2**20
"""Of answers to calls that are too small for a place and that clients have not read. Beyond it, who has the oldest is
cut off. Checks of health count too, from when they begin; where nobody can be cut off, twice as much refuses them."""

CALL_BYTES = 8192
"""What an answer counts at least: gRPC keeps about that for any call. The web listener keeps twice as much, and counts
every answer once more: also refusals, and files of the console."""


class Unread:
    """Counts them, and cuts off who has the oldest when they are too many. Belongs to the event loop."""

    def __init__(self, resets: Resets) -> None:
        """Takes what closes connections."""
        self._resets = resets
        self._kept: dict[object, tuple[int, str]] = {}
        """Of connections that are not cut off, the oldest first."""
        self._of: dict[str, set[object]] = {}
        """The same by connection."""
        self._kept_bytes = 0
        self.bytes = 0
        """Of all, also those of connections that are cut off and not yet gone."""

    def keep(self, size: int, connection: str) -> Callable[[], None]:
        """Counts an answer of so many bytes until the function that is returned is called, which is idempotent."""
        key, size = object(), max(size, CALL_BYTES)
        is_kept = True

        def forget() -> None:
            nonlocal is_kept
            if is_kept:
                is_kept = False
                self.bytes -= size
                self._drop(key)

        self._kept[key] = size, connection
        self._of.setdefault(connection, set()).add(key)
        self.bytes += size
        self._kept_bytes += size
        while self._kept_bytes > MAX_SMALL_BYTES:
            self._cut_off(self._kept[next(iter(self._kept))][1])
        return forget

    def check(self) -> None:
        """Raises TooManyCalls: cutting off has not helped."""
        if self.bytes >= 2 * MAX_SMALL_BYTES:
            text = "the server has too many answers that are not read"
            raise TooManyCalls.of("MAX_SMALL_BYTES", MAX_SMALL_BYTES, text, RETRY_AFTER)

    def _cut_off(self, connection: str) -> None:
        """Closes a connection. What it has counts no more for others to be cut off: it goes soon."""
        for key in list(self._of[connection]):
            self._drop(key)
        self._resets.cut_off(connection, "answers that are not read")

    def _drop(self, key: object) -> None:
        if (found := self._kept.pop(key, None)) is None:
            return
        size, connection = found
        self._kept_bytes -= size
        keys = self._of[connection]
        keys.discard(key)
        if not keys:
            del self._of[connection]
