"""How many calls there are at once, whatever listener they came by, and whether there is memory for more."""

from collections.abc import Callable

from turnwire.api.bounds.copying import Copying
from turnwire.api.bounds.peers import Resets
from turnwire.api.bounds.receiving import RETRY_AFTER, Receiving
from turnwire.api.bounds.sending import Sending
from turnwire.api.bounds.unread import Unread
from turnwire.api.bounds.working import Working
from turnwire.domain.errors import MemoryShort, TooManyCalls
from turnwire.domain.limits import Limits

SMALL_METADATA_BYTES = 1024
"""Of one call: less is part of what any call takes. With a token it has some hundreds."""


class Load:
    """Counts the calls of one server. Belongs to the event loop."""

    def __init__(self, limits: Limits, max_message_bytes: int) -> None:
        """Takes the bounds, and the size of the largest request."""
        self._limits = limits
        self.copying = Copying()
        self.resets = Resets()
        self.receiving = Receiving(limits.max_receiving_bytes, max_message_bytes, self.copying, self.resets)
        self.working = Working()
        self.sending = Sending(limits.max_sending_bytes, self.copying)
        self.unread = Unread(self.resets)
        self.calls = 0
        """Calls that run, open streams and those whose answer is not read included."""
        self._metadata_bytes = 0
        self._short_of: int | None = None
        """The bytes that the process may have, while what begins new work is refused; else None."""
        self.can_give_up = list[Callable[[], None]]()
        """What drops things that are kept in memory and can be made again."""

    @property
    def is_memory_short(self) -> bool:
        """Whether what begins new work is refused."""
        return self._short_of is not None

    def enter(self, metadata_bytes: int, *, begins_work: bool, connection: str = "") -> int:
        """Counts a call. Returns what `leave` takes.

        With too many calls, one whose request waits behind those of others ends instead; see `Receiving.make_room`.

        Args:
            metadata_bytes: What the caller sent before its request.
            begins_work: Whether others can wait until there is memory again.
            connection: By which it came.

        Raises:
            TooManyCalls: there are too many, or their metadata is too much.
            MemoryShort: there is no memory for new work.
        """
        limits = self._limits
        if begins_work and self._short_of is not None:
            raise _memory_short(self._short_of)
        more = metadata_bytes if metadata_bytes > SMALL_METADATA_BYTES else 0
        if more and self._metadata_bytes + more > limits.max_metadata_bytes:
            raise TooManyCalls.at("limits.max_metadata_bytes", limits.max_metadata_bytes, RETRY_AFTER)
        if self.calls >= limits.max_calls:
            full = TooManyCalls.at("limits.max_calls", limits.max_calls, RETRY_AFTER)
            if not self.receiving.make_room(connection, full):
                raise full
        self._metadata_bytes += more
        self.calls += 1
        return more

    def leave(self, more: int) -> None:
        """Forgets a call that has ended and whose answer is no longer kept. Takes what `enter` has returned."""
        self.calls -= 1
        self._metadata_bytes -= more

    def give_up(self) -> None:
        """Drops what can be made again, because there is little memory."""
        for drop in self.can_give_up:
            drop()

    def memory_short(self, max_bytes: int | None) -> None:
        """Takes what the process may have, while memory is short; None when it is enough again.

        Requests that come slowly are ended while it is short.
        """
        self._short_of = max_bytes
        self.receiving.end_slow(None if max_bytes is None else _memory_short(max_bytes))


def _memory_short(max_bytes: int) -> MemoryShort:
    return MemoryShort.at("limits.max_memory_bytes", max_bytes, RETRY_AFTER)
