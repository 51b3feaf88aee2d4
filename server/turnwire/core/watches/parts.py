"""The events that one server of several has of its own sessions, for watches of all sessions at another one.

A part begins with what is open, and goes on with what is published. It has the frames of events that are not stored,
each in its place between the positions of those that are: those, the watch reads from the store.
"""

from collections.abc import AsyncGenerator, Sequence

import msgspec
from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.turns.registry import Turns
from turnwire.core.watches.join import ENTRIES_AT_ONCE
from turnwire.core.watches.watch import is_delta, open_now
from turnwire.domain.conversation.events import Event
from turnwire.domain.errors import ShuttingDown
from turnwire.feed.memory import Entry
from turnwire.ports.codec import Codec

PART_BYTES = 256 * 1024
"""Approximate size of what is sent together of the beginning."""


class Told(Struct, frozen=True, array_like=True):
    """A frame, or else a position; with neither, the end of the beginning."""

    frame: bytes = b""
    """An event that is not stored."""
    position: int = 0
    """That of a stored event; the first one: all of this server's up to it are in the frames of the beginning."""


BEGUN = Told()
"""Follows what was open at the beginning."""


def told(data: bytes) -> list[Told]:
    """Returns what a part has sent at once."""
    return _DECODER.decode(data)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Told])


class WatchParts:
    """Makes the parts of this server."""

    def __init__(self, environment: Environment, turns: Turns, codec: Codec) -> None:
        """Args:
        environment: Ports.
        turns: Has what is open.
        codec: Encodes what is open.
        """
        self._environment, self._turns, self._codec = environment, turns, codec

    async def part(self, tenant: str, *, include_deltas: bool) -> AsyncGenerator[bytes]:
        """Yields what `told` takes, about the sessions of a tenant, until the caller closes the iterator.

        What any server had stored before the call is before the beginning.

        Raises:
            ShuttingDown: sessions went to another server, the caller is too slow, or the server stops.
            StorageError: the log could not be read.
        """
        store = self._environment.store
        await store.of(tenant).log_bounds()  # now what was stored before the call is published
        subscription = self._environment.feed.subscribe(tenant, None, is_part=True)
        try:
            first = Told(position=max(1, store.moment(tenant).position))
            batches = [*self._beginning(tenant), [BEGUN]]
            yield _ENCODER.encode([first])
            for batch in batches:
                yield _ENCODER.encode(batch)
            del batches
            while not (subscription.lagging or subscription.closed):
                entries = subscription.take_entries(ENTRIES_AT_ONCE)
                if items := _items(entries, include_deltas=include_deltas):
                    yield _ENCODER.encode(items)
                del entries
                await subscription.wait()
            raise ShuttingDown
        finally:
            subscription.close()

    def _beginning(self, tenant: str) -> list[list[Told]]:
        batches, size = [list[Told]()], 0
        for kind, session_id in open_now(self._turns, tenant, None):
            event = Event(session_id=session_id, kind=kind, at=self._environment.clock())
            frame = self._codec.encode_event(event)
            if size + len(frame) > PART_BYTES:
                batches.append([])
                size = 0
            batches[-1].append(Told(frame))
            size += len(frame)
        return batches


def _items(entries: Sequence[Entry], *, include_deltas: bool) -> list[Told]:
    items = []
    for entry in entries:
        if entry.order:
            items.append(Told(position=entry.order))
        elif include_deltas or entry.event is None or not is_delta(entry.event.kind):
            items.append(Told(entry.frame))
    return items
